//! What answers requests of a location before any limit: `return`, `if` and `rewrite`.

use super::{
    Importer,
    directive::Directive,
    levels::Levels,
    rewrites::{self, is_redirect},
    rows::{Closing, REWRITTEN},
};
use crate::Finding;

/// What answers before any limit. In the order of strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Answer {
    /// It goes on.
    None,
    /// nginx answers itself, and refuses nothing.
    Served,
    Refused,
    /// Something is done with some of the requests that has no counterpart.
    Unknown,
}

impl<'c> Importer<'c> {
    /// What `return`, `if` and `rewrite` make of requests before anything else.
    pub(super) fn answer(&mut self, levels: &Levels<'c>) -> Answer {
        let server = levels.server.into_iter().flat_map(Directive::inner);
        // These have routes of their own.
        let is_open = |directive: &&Directive| rewrites::paths(directive).is_none();
        let own = levels.own().iter().filter(|_| !levels.is_server());
        let is_passed = levels.own().iter().any(|directive| directive.name == "proxy_pass");
        let of = |directive| self.answer_of(directive, is_passed);
        server.filter(is_open).chain(own).map(of).max().unwrap_or(Answer::None)
    }

    fn answer_of(&mut self, directive: &Directive, is_passed: bool) -> Answer {
        let (place, there) = (&directive.place, directive.said());
        match directive.name.as_str() {
            "return" if status(directive) >= 400 => {
                let there = format!("{there} {}", directive.arg(0));
                self.row(Finding::nearly(place.to_string(), there, "closed: 403"));
                Answer::Refused
            }
            "return" => {
                self.left_out(directive, "nginx answers itself: no route can do so");
                Answer::Served
            }
            "rewrite" if is_redirect(directive) => {
                let why = "these requests are forwarded, and not sent elsewhere";
                self.left_out(directive, why);
                Answer::None
            }
            "rewrite" if is_passed && directive.arg(2) == "break" => Answer::None,
            "rewrite" => {
                self.close(place, there, &REWRITTEN);
                Answer::Unknown
            }
            "if" => self.answer_of_if(directive),
            _ => Answer::None,
        }
    }

    fn answer_of_if(&mut self, directive: &Directive) -> Answer {
        let there = directive.said();
        match worst(directive, 0) {
            Some(refusing) if refusing.name == "return" => {
                let closing = Closing::guard(
                    "write what it refuses as routes (`methods`, `from`, `host`), or let the \
                     upstream refuse it; then take the `deny` out",
                );
                let there = format!("{there} {{ return {} }}", refusing.arg(0));
                self.close(&directive.place, there, &closing);
            }
            Some(_) => {
                self.close(&directive.place, format!("{there} with a rewrite"), &REWRITTEN);
            }
            None => {
                let is_preflight = directive.args.iter().any(|arg| arg.contains("OPTIONS"));
                self.left_out(
                    directive,
                    if is_preflight {
                        "OPTIONS goes to the upstream, with all limits: to have preflights \
                         answered here, write `cors: { origins: […], preflight: answer }`"
                    } else {
                        "nothing of it is done: it refuses nothing"
                    },
                );
                return Answer::None;
            }
        }
        Answer::Unknown
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
