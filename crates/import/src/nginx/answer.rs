//! What answers requests of a location before any limit: `return`, `if` and `rewrite`.

use super::{Importer, directive::Directive, levels::Levels, rewrites::is_redirect};
use crate::Finding;

/// What answers before any limit.
pub(super) enum Answer {
    /// It goes on.
    None,
    /// nginx answers itself, and refuses nothing.
    Served,
    Refused,
}

impl<'c> Importer<'c> {
    /// What `return`, `if` and `rewrite` make of requests before anything else.
    pub(super) fn answer(&mut self, levels: &Levels<'c>) -> Answer {
        let server = levels.server.into_iter().flat_map(Directive::inner);
        let directives = server.filter(|_| !levels.is_server()).chain(levels.own());
        let is_passed = levels.own().iter().any(|directive| directive.name == "proxy_pass");
        let of = |directive| self.answer_of(directive, is_passed);
        directives.filter_map(of).last().unwrap_or(Answer::None)
    }

    fn answer_of(&mut self, directive: &Directive, is_passed: bool) -> Option<Answer> {
        let (place, there) = (&directive.place, directive.said());
        let rewritten = "write a route for the paths that it makes, or let the upstream rewrite \
                         them";
        match directive.name.as_str() {
            "return" if status(directive) >= 400 => {
                let there = format!("{there} {}", directive.arg(0));
                self.row(Finding::nearly(place.to_string(), there, "closed: 403"));
            }
            "return" => {
                self.left_out(directive, "nginx answers itself: no route can do so");
                return Some(Answer::Served);
            }
            "rewrite" if is_redirect(directive) => {
                let why = "these requests are forwarded, and not sent elsewhere";
                self.left_out(directive, why);
                return None;
            }
            "rewrite" if is_passed && directive.arg(2) == "break" => return None,
            "rewrite" => self.close(place, there, rewritten),
            "if" => match worst(directive, 0) {
                Some(refusing) if refusing.name == "return" => {
                    let instead = "write what it refuses as routes (`methods`, `from`, `host`), or \
                                   let the upstream refuse it";
                    let there = format!("{there} {{ return {} }}", refusing.arg(0));
                    self.close(place, there, instead);
                }
                Some(_) => self.close(place, format!("{there} with a rewrite"), rewritten),
                None => {
                    self.left_out(directive, "nothing of it is done: it refuses nothing");
                    return None;
                }
            },
            _ => return None,
        }
        Some(Answer::Refused)
    }
}

/// The status of a `return`; a mere address is a redirect.
fn status(directive: &Directive) -> u16 {
    directive.arg(0).parse().unwrap_or(302)
}

/// What of an `if` refuses requests or turns them elsewhere.
fn worst(directive: &Directive, depth: usize) -> Option<&Directive> {
    directive.inner().iter().find_map(|inner| match inner.name.as_str() {
        "return" if status(inner) >= 400 => Some(inner),
        "rewrite" if !is_redirect(inner) => Some(inner),
        "deny" | "proxy_pass" | "break" => None,
        _ if depth < 24 => worst(inner, depth + 1),
        _ => None,
    })
}
