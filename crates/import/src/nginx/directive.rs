//! A directive, and those within it.

use super::lexer::Place;
use crate::Finding;

/// A directive, or an entry of a block such as `map`.
#[derive(Clone, Debug)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) args: Vec<String>,
    pub(super) block: Option<Vec<Directive>>,
    pub(super) place: Place,
}

impl Directive {
    pub(super) fn arg(&self, at: usize) -> &str {
        self.args.get(at).map_or("", String::as_str)
    }

    /// What is in its block.
    pub(super) fn inner(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// The value of a parameter such as `burst=5`.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.args.iter().rev().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='))
    }

    /// A row for it that says it is the same.
    pub(super) fn same(&self, here: impl Into<String>) -> Finding {
        Finding::same(self.place.to_string(), self.said(), here)
    }

    /// A row for it with the difference.
    pub(super) fn nearly(&self, here: impl Into<String>) -> Finding {
        Finding::nearly(self.place.to_string(), self.said(), here)
    }

    /// A row for it that says why it has no counterpart.
    pub(super) fn left_out(&self, why: impl Into<String>) -> Finding {
        Finding::left_out(self.place.to_string(), self.said(), why)
    }

    /// As it is written, without what may be a secret.
    pub(super) fn said(&self) -> String {
        let shown = match self.name.as_str() {
            "proxy_set_header" | "add_header" if self.arg(1).contains('$') => 2,
            // The texts of these may be credentials, or what a client has to know.
            "proxy_set_header" | "add_header" | "set" | "if" | "return" | "fastcgi_param" => 1,
            name if name.contains("_by_lua") || name.starts_with("perl") => 0,
            name if name.starts_with("auth_") && name.contains("key") => 0,
            _ => self.args.len(),
        };
        let mut said = self.name.clone();
        for arg in self.args.iter().take(shown) {
            said = format!("{said} {arg}");
        }
        let is_cut = shown < self.args.len() || said.chars().count() > MAX_SAID;
        let mut said: String = said.chars().take(MAX_SAID).collect();
        if is_cut {
            said.push_str(" …");
        }
        said.replace(['\n', '\r', '\t'], " ")
    }
}

/// How much of a directive a row shows.
const MAX_SAID: usize = 90;

/// All these directives, and those in the blocks that `enters` chooses, a block after what is
/// around it.
pub(super) fn within(level: &[Directive], enters: impl Fn(&Directive) -> bool) -> Vec<&Directive> {
    let mut found = Vec::new();
    let mut open = vec![level];
    while let Some(level) = open.pop() {
        for directive in level {
            found.push(directive);
            open.extend(directive.block.as_deref().filter(|_| enters(directive)));
        }
    }
    found
}
