//! What a location makes of paths before it forwards them.

use super::{Importer, directive::Directive, paths::Kind, server::Location};

/// What is taken off a path, and what is put in front.
#[derive(Default)]
pub(super) struct Rewrite {
    pub(super) strip: String,
    pub(super) add: String,
}

impl<'c> Importer<'c> {
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
