//! The name by which this proxy says in `Via` that a message has passed it.

use tollgate_wire::via::{MAX_PSEUDONYM_BYTES, Via};
use tollgate_yaml::{Check, Spanned};

use super::Checker;

impl Checker<'_> {
    pub(super) fn via(&mut self, raw: Option<&Spanned<String>>) -> Option<Via> {
        let raw = raw?;
        let via = Via::named(&raw.value);
        if via.is_none() {
            let message = format!("`{}` is no name for `Via`", raw.value);
            let help = format!(
                "write a token, 1 to {MAX_PSEUDONYM_BYTES} letters, digits and marks such as `-` \
                 and `.`: edge-1"
            );
            self.refuse(raw, message, help);
        }
        via
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tollgate_yaml::{Problem, Sources};

    use super::*;
    use crate::{
        Settings,
        tests::{FILE, rendered},
    };

    fn parse(line: &str) -> Result<Settings, Vec<Problem>> {
        let text = format!("version: 1\nlisteners: [{{ address: 127.0.0.1:0 }}]\n{line}\n");
        Settings::parse(Path::new(FILE), &text, &Sources::system())
    }

    #[test]
    fn no_name_by_default() {
        assert_eq!(parse("").unwrap().via, None);
        assert_eq!(parse("via: edge-1").unwrap().via, Via::named("edge-1"));
    }

    #[test]
    fn what_is_no_token_is_reported_with_its_place() {
        for name in ["edge 1", "edge:8080", "", "https://edge.example"] {
            let help =
                "write a token, 1 to 64 letters, digits and marks such as `-` and `.`: edge-1";
            let expected = format!("3:6 `{name}` is no name for `Via`: {help}");
            assert_eq!(rendered(&parse(&format!("via: \"{name}\"")).unwrap_err()), [expected]);
        }
    }
}
