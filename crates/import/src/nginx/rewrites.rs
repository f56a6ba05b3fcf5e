//! What a location makes of paths before it forwards them.

use super::{
    Importer,
    directive::Directive,
    expressions::{self, Patterns},
    paths::{self, Kind},
    route::{Deep, Route},
    rows::REWRITTEN,
    server::{Location, Server},
};

/// What is taken off a path, and what is put in front.
#[derive(Default)]
pub(super) struct Rewrite {
    pub(super) strip: String,
    pub(super) add: String,
}

impl<'c> Importer<'c> {
    /// Closed routes for the paths that a server rewrites, before those of its locations.
    pub(super) fn rewritten(&mut self, server: &Server<'c>) -> Vec<Route> {
        let mut routes = Vec::new();
        for directive in server.directive.inner() {
            let Some(Patterns { paths: patterns, depth, deeper: paths, .. }) = paths(directive)
            else {
                continue;
            };
            let there = directive.said();
            self.close(
                &directive.place,
                format!("{there}, for {}", patterns.join(" and ")),
                &REWRITTEN,
            );
            let deep = depth.map(|depth| Deep { there, depth, paths });
            routes.push(Route { deep, ..Route::closed(directive.place.clone(), patterns) });
        }
        routes
    }

    /// What becomes of the path, by a `rewrite` or the path of `proxy_pass`.
    ///
    /// # Errors
    /// Why that cannot be said here.
    pub(super) fn rewrite(
        &mut self,
        location: &Location<'c>,
        uri: Option<&str>,
    ) -> Result<Rewrite, String> {
        let Location { kind, text, .. } = *location;
        let is_inner =
            |directive: &&Directive| directive.name == "rewrite" && !is_redirect(directive);
        let rewrites: Vec<&Directive> = location.levels.own().iter().filter(is_inner).collect();
        let (from, to) = match (&rewrites[..], uri) {
            ([], None) => return Ok(Rewrite::default()),
            ([], Some(uri)) if matches!(kind, Kind::Exact | Kind::Final | Kind::Prefix) => {
                (text, uri)
            }
            ([rewrite], _) => {
                let (from, to) =
                    exchanged(rewrite).ok_or("its rewrites are more than a prefix taken off")?;
                if from.trim_end_matches('/') != text.trim_end_matches('/') {
                    return Err("its rewrite is not for all of its paths".to_owned());
                }
                self.row(rewrite.same("`strip_prefix` and `add_prefix`"));
                (from, to)
            }
            _ => return Err("what it makes of the path has no counterpart".to_owned()),
        };
        if from.ends_with('/') && !to.ends_with('/')
            || kind == Kind::Exact && to.ends_with('/') != from.ends_with('/')
            || to.contains(['?', '#', '$'])
        {
            return Err("it joins the path to a text that is no whole segment".to_owned());
        }
        let (strip, add) = (from.trim_end_matches('/'), to.trim_end_matches('/'));
        if strip == add {
            return Ok(Rewrite::default());
        }
        Ok(Rewrite { strip: strip.to_owned(), add: add.to_owned() })
    }
}

/// The paths that a `rewrite` changes. None: it is none, it answers with another address, or these
/// paths cannot be told from all others.
pub(super) fn paths(directive: &Directive) -> Option<Patterns> {
    if directive.name != "rewrite" || is_redirect(directive) {
        return None;
    }
    let expression = directive.arg(0);
    let begun = || Some(Patterns { paths: vec![beginning(expression)?], ..Patterns::default() });
    let patterns = expressions::regex(expression).or_else(begun)?;
    (!patterns.paths.iter().any(|path| path == "/**")).then_some(patterns)
}

/// The pattern for what begins as all paths do that an expression is for.
fn beginning(expression: &str) -> Option<String> {
    let rest = expression.strip_prefix('^')?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/-_".contains(letter);
    let (text, after) = rest.split_at(rest.find(|letter| !is_plain(letter)).unwrap_or(rest.len()));
    let is_optional = after.starts_with(['?', '*', '{']);
    let text = if is_optional { text.get(..text.len().checked_sub(1)?)? } else { text };
    let is_long = text.starts_with('/') && text.len() > 1;
    (is_long && !has_choices(after)).then(|| paths::prefix(text))
}

/// Whether an expression has `|` outside of all groups: its beginning is one of several then.
fn has_choices(expression: &str) -> bool {
    let (mut depth, mut is_class, mut is_escaped) = (0_i32, false, false);
    for letter in expression.chars() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            ']' => is_class = false,
            _ if is_class => {}
            '[' => is_class = true,
            '(' => depth += 1,
            ')' => depth -= 1,
            '|' if depth <= 0 => return true,
            _ => {}
        }
    }
    false
}

/// The prefixes of `rewrite ^/from/(.*) /to/$1 break`.
fn exchanged(rewrite: &Directive) -> Option<(&str, &str)> {
    let from = rewrite.arg(0).strip_prefix('^')?.trim_end_matches('$').strip_suffix("(.*)")?;
    let to = rewrite.arg(1).strip_suffix("$1")?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_".contains(&byte);
    let is_prefix = from.ends_with('/') && from.bytes().all(is_plain);
    (is_prefix && to.ends_with('/') && rewrite.arg(2) == "break").then_some((from, to))
}

/// Whether a `rewrite` answers with another address.
pub(super) fn is_redirect(rewrite: &Directive) -> bool {
    let has_address =
        ["http://", "https://", "$scheme"].iter().any(|scheme| rewrite.arg(1).starts_with(scheme));
    has_address || matches!(rewrite.arg(2), "redirect" | "permanent")
}
