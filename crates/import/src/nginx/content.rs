//! Where the requests of a location end up.

use super::{
    Importer,
    directive::Directive,
    levels::Levels,
    server::{Location, Server},
    upstreams::Target,
};
use crate::words;

/// What answers requests itself, beside `proxy_pass` and the like.
const CONTENT: &str =
    "alias autoindex dav_methods empty_gif flv js_content mp4 perl return stub_status";
/// Redirects within nginx that are followed.
const MAX_HOPS: usize = 4;

impl<'c> Importer<'c> {
    /// Where its requests end up, and whose limits hold for them: those of the first location on
    /// the way that has some.
    pub(super) fn content(
        &mut self,
        server: &Server<'c>,
        location: &Location<'c>,
        hops: usize,
    ) -> (Result<Target, String>, Levels<'c>) {
        let levels = &location.levels;
        let Some(next) = next(server, location).filter(|_| hops < MAX_HOPS) else {
            let pass = levels
                .own()
                .iter()
                .find(|directive| matches!(directive.name.as_str(), "proxy_pass" | "grpc_pass"));
            let target = match pass {
                Some(pass) => self.target(location, pass),
                None => Err(served(levels.own())),
            };
            return (target, levels.clone());
        };
        let (target, limited) = self.content(server, &next, hops + 1);
        let guarded = self.access(&next.levels);
        let target = if guarded.is_closed || guarded.needs_token {
            Err("`try_files` leads to a location that refuses requests".to_owned())
        } else {
            target.map(|mut target| {
                target.notes.push(
                    "files that `try_files` finds come from the upstream as well, and are counted"
                        .to_owned(),
                );
                target
            })
        };
        let has_limits = ["limit_req", "limit_conn"].iter().any(|name| levels.one(name).is_some());
        (target, if has_limits { levels.clone() } else { limited })
    }
}

/// The location to which `try_files` leads in the end.
fn next<'c>(server: &Server<'c>, location: &Location<'c>) -> Option<Location<'c>> {
    let levels = &location.levels;
    let tried = levels.one("try_files").filter(|_| !levels.own().iter().any(is_content))?;
    let last = tried.args.last().filter(|last| !last.starts_with('='))?;
    server.find(last).filter(|next| next.text != location.text || next.kind != location.kind)
}

/// Why nginx answers itself.
fn served(own: &[Directive]) -> String {
    match own.iter().find(|directive| is_content(directive)) {
        Some(directive) => format!("`{}` has no counterpart", directive.name),
        None => "nginx serves files there".to_owned(),
    }
}

fn is_content(directive: &Directive) -> bool {
    let name = directive.name.as_str();
    name.ends_with("_pass") || name.starts_with("content_by_lua") || words::has(CONTENT, name)
}
