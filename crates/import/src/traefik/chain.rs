//! Chains of middlewares, each with those that it names in its place.

use super::files::Configuration;
use crate::section::Section;

/// The deepest chain within chains, and the most middlewares of a router.
const MAX_DEPTH: usize = 16;
const MAX_MIDDLEWARES: usize = 100;

/// Middlewares in their order, and what keeps Traefik from serving a router with them.
#[derive(Default)]
pub(super) struct Flat<'d> {
    pub(super) found: Vec<(String, Section<'d>)>,
    pub(super) problems: Vec<String>,
    visits: usize,
}

impl<'d> Flat<'d> {
    /// The middlewares of these names.
    pub(super) fn of(names: &[String], configuration: &Configuration<'d>) -> Self {
        let mut flat = Flat::default();
        flat.add(names, MAX_DEPTH, configuration);
        flat.problems.dedup();
        flat
    }

    /// Adds the middlewares of these names, with those of chains in the place of the chains.
    fn add(&mut self, names: &[String], depth: usize, configuration: &Configuration<'d>) {
        for name in names {
            self.visits += 1;
            if self.visits > MAX_MIDDLEWARES || depth == 0 {
                let why = format!(
                    "chains at `{name}` have no end, or more than {MAX_MIDDLEWARES} middlewares"
                );
                return self.problems.push(why);
            }
            let Some(section) = configuration.middleware(name) else {
                self.problems.push(format!(
                    "`{name}` is not in the files: without it Traefik serves none of its routers"
                ));
                continue;
            };
            match section.section("chain") {
                None => self.found.push((name.clone(), section)),
                Some(chain) => {
                    let inner = configuration.references(name, chain);
                    self.add(&inner, depth - 1, configuration);
                }
            }
            if self.visits > MAX_MIDDLEWARES {
                return;
            }
        }
    }
}
