//! Locations as patterns of paths: texts that paths are, or begin with.

/// How a location says which paths it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `= /a`
    Exact,
    /// `^~ /a`
    Final,
    /// `/a`
    Prefix,
    /// `~ a`, `~* a`
    Regex { ignores_case: bool },
    /// `@a`
    Named,
}

/// The kind of a location, and its text.
pub(super) fn location(args: &[String]) -> (Kind, &str) {
    let (mark, text) = match args {
        [mark, text, ..] => (mark.as_str(), text.as_str()),
        [text] => {
            let mark = ["=", "^~", "~*", "~"]
                .into_iter()
                .find(|mark| text.starts_with(mark))
                .unwrap_or("");
            (mark, text.get(mark.len()..).unwrap_or_default())
        }
        [] => ("", ""),
    };
    let kind = match mark {
        "=" => Kind::Exact,
        "^~" => Kind::Final,
        "~" => Kind::Regex { ignores_case: false },
        "~*" => Kind::Regex { ignores_case: true },
        _ if text.starts_with('@') => Kind::Named,
        _ => Kind::Prefix,
    };
    (kind, text)
}

/// The pattern for a path.
pub(super) fn exact(text: &str) -> String {
    text.bytes().map(encoded).collect()
}

/// The pattern for all paths that begin so: a text, and not a segment.
pub(super) fn prefix(text: &str) -> String {
    let path = exact(text);
    if path.ends_with('/') { format!("{path}**") } else { format!("{path}*/**") }
}

/// A byte of a path as patterns have it.
pub(super) fn encoded(byte: u8) -> String {
    match byte {
        0..=31 | 127.. => format!("%{byte:02X}"),
        _ if b"*{}% ?#\"<>^`|\\".contains(&byte) => format!("%{byte:02X}"),
        _ => char::from(byte).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_have_a_kind_and_a_text() {
        let of = |text: &str| {
            let args: Vec<String> = text.split(' ').map(str::to_owned).collect();
            let (kind, text) = location(&args);
            (kind, text.to_owned())
        };
        assert_eq!(of("=/x"), (Kind::Exact, "/x".to_owned()));
        assert_eq!(of("~* \\.php$"), (Kind::Regex { ignores_case: true }, "\\.php$".to_owned()));
        assert_eq!(of("^~/x"), (Kind::Final, "/x".to_owned()));
        assert_eq!(of("@app").0, Kind::Named);
        assert_eq!(
            (prefix("/"), prefix("/api"), prefix("/a b/")),
            ("/**".into(), "/api*/**".into(), "/a%20b/**".into())
        );
    }
}
