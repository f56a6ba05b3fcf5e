//! Paths and hosts that a route or a limit is for.

/// Which paths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pattern {
    /// This one, with or without a slash at its end.
    Exact(String),
    /// This one and all below it.
    Below(String),
    /// All that begin with this text.
    Begins(String),
}

impl Pattern {
    pub(crate) fn exact(path: &str) -> Self {
        Pattern::Exact(trimmed(path))
    }

    pub(crate) fn below(path: &str) -> Self {
        Pattern::Below(trimmed(path))
    }

    pub(crate) fn begins(text: &str) -> Self {
        match text.ends_with('/') {
            true => Pattern::below(text),
            false => Pattern::Begins(text.to_owned()),
        }
    }

    pub(crate) fn text(&self) -> &str {
        let (Pattern::Exact(text) | Pattern::Below(text) | Pattern::Begins(text)) = self;
        text
    }

    /// Whether it is for all paths that the other is for. Two patterns are nested, or have no path
    /// in common.
    pub(crate) fn contains(&self, other: &Pattern) -> bool {
        let text = other.text();
        match (self, other) {
            (Pattern::Exact(own), Pattern::Exact(_)) => own == text,
            (Pattern::Exact(_), _) => false,
            (Pattern::Begins(own), _) => text.starts_with(own.as_str()),
            (Pattern::Below(own), Pattern::Begins(_)) => {
                text.strip_prefix(own.as_str()).is_some_and(|rest| rest.starts_with('/'))
            }
            (Pattern::Below(own), _) => text
                .strip_prefix(own.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    }

    /// As a route has it.
    pub(crate) fn path(&self) -> String {
        let own = |text: &str| text.replace('*', "%2A").replace('{', "%7B").replace('}', "%7D");
        match self {
            Pattern::Exact(path) if path.is_empty() => "/".to_owned(),
            Pattern::Exact(path) => own(path),
            Pattern::Below(path) => format!("{}/**", own(path)),
            Pattern::Begins(text) => format!("{}*/**", own(text)),
        }
    }

    /// Paths that it is for.
    pub(crate) fn samples(&self) -> Vec<String> {
        let text = self.text();
        let root = if text.is_empty() { "/" } else { text }.to_owned();
        match self {
            Pattern::Exact(_) => vec![root],
            Pattern::Below(_) => vec![root, format!("{text}/sample"), format!("{text}/other/one")],
            Pattern::Begins(_) => vec![root, format!("{text}-sample"), format!("{text}/sample")],
        }
    }

    /// What comes first: single paths, then what is longer.
    pub(crate) fn rank(&self) -> (u8, std::cmp::Reverse<usize>) {
        let kind = if matches!(self, Pattern::Exact(_)) { 0 } else { 1 };
        (kind, std::cmp::Reverse(self.text().len()))
    }
}

fn trimmed(path: &str) -> String {
    path.trim_end_matches('/').to_owned()
}

/// Whether a host, or hosts with a star, are among those of another pattern.
pub(crate) fn host_contains(pattern: Option<&str>, host: Option<&str>) -> bool {
    match (pattern, host) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(pattern), Some(host)) => match pattern.strip_prefix('*') {
            Some(ending) => host == pattern || host.trim_start_matches('*').ends_with(ending),
            None => host == pattern,
        },
    }
}

/// The hosts of a route at a listener: those of both. None: they have none in common.
pub(crate) fn common_host(route: Option<&str>, listener: Option<&str>) -> Option<Option<String>> {
    let own = match () {
        () if host_contains(listener, route) => route,
        () if host_contains(route, listener) => listener,
        () => return None,
    };
    Some(own.map(str::to_ascii_lowercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_contain_whole_segments_or_texts() {
        let patterns = [
            Pattern::exact("/a"),
            Pattern::below("/a/"),
            Pattern::begins("/a"),
            Pattern::below("/a/b"),
            Pattern::exact("/ab"),
            Pattern::begins("/a/b"),
            Pattern::below("/"),
        ];
        let contained: Vec<String> = patterns
            .iter()
            .map(|one| patterns.iter().map(|other| u8::from(one.contains(other)).to_string()))
            .map(Iterator::collect)
            .collect();
        let expected =
            ["1000000", "1101010", "1111110", "0001000", "0000100", "0001010", "1111111"];
        assert_eq!(contained, expected);
        assert_eq!(
            patterns.map(|pattern| pattern.path()),
            ["/a", "/a/**", "/a*/**", "/a/b/**", "/ab", "/a/b*/**", "/**"]
        );
        assert_eq!(Pattern::exact("/").path(), "/");
        assert_eq!(Pattern::exact("/{a}*").path(), "/%7Ba%7D%2A");
    }

    #[test]
    fn hosts_of_a_route_are_those_of_its_listener_as_well() {
        for (route, listener, expected) in [
            (None, None, Some(None)),
            (Some("A.io"), None, Some(Some("a.io"))),
            (None, Some("*.io"), Some(Some("*.io"))),
            (Some("*.toystore.io"), Some("*.io"), Some(Some("*.toystore.io"))),
            (Some("*.toystore.local"), Some("*.io"), None),
            (Some("*.io"), Some("a.io"), Some(Some("a.io"))),
            (Some("aio"), Some("*.io"), None),
        ] {
            let expected = expected.map(|host: Option<&str>| host.map(str::to_owned));
            assert_eq!(common_host(route, listener), expected, "{route:?} {listener:?}");
        }
    }
}
