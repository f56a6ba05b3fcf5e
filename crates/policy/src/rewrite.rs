//! What a route changes about the messages that take it: their path and their header fields.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate_wire::target::plain_form;

use super::{PathReading, Suffix};

/// Segments of a path that are left out of a prefix, at most.
const MOST_LEFT_OUT: usize = 8;

/// How a path is rewritten for the upstream. Both are whole segments, with a slash at the
/// beginning and none at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathRewrite {
    /// Taken off, where the path begins with it, in its plain form.
    pub strip: Option<Box<str>>,
    /// Put in front, after that.
    pub add: Option<Box<str>>,
}

impl PathRewrite {
    /// What the upstream is asked for instead of `path`, which is in normal form and may have a
    /// query, by servers that read it so.
    pub fn rewrite<'p>(&self, path: &'p str, reading: PathReading) -> Cow<'p, str> {
        let (path, query) =
            path.split_at_checked(path.find('?').unwrap_or(path.len())).unwrap_or((path, ""));
        let rest = self.strip.as_deref().and_then(|prefix| {
            let segments = segments_read_as(prefix, path, reading)?;
            Some(below(path, segments))
        });
        let rest = match rest {
            Some("") => "/",
            Some(rest) => rest,
            None => path,
        };
        match &self.add {
            None if query.is_empty() => Cow::Borrowed(rest),
            add => Cow::Owned(format!("{}{rest}{query}", add.as_deref().unwrap_or_default())),
        }
    }
}

/// How many segments a path in its normal form begins with that are read as this prefix.
fn segments_read_as(prefix: &str, path: &str, reading: PathReading) -> Option<usize> {
    let is_whole = |rest: &str| rest.is_empty() || rest.starts_with('/');
    if plain_form(path).strip_prefix(prefix).is_some_and(is_whole) {
        return Some(prefix.matches('/').count());
    }
    if reading.is_literal() {
        return None;
    }
    let all = path.matches('/').count();
    let is_prefix = |segments: usize| {
        let rest = below(path, segments).len();
        let begin = path.get(..path.len() - rest).unwrap_or_default();
        // Only the last segment has a suffix.
        let suffix = if segments == all { reading.suffix } else { Suffix::Keep };
        let reading = PathReading { suffix, ..reading };
        let begin = reading.without_parameters(begin);
        reading.forms(&begin).iter().any(|form| reading.is_same(prefix, form))
    };
    // Each try costs as much as the path is long.
    let most = prefix.matches('/').count() + MOST_LEFT_OUT;
    (1..=all.min(most)).find(|segments| is_prefix(*segments))
}

/// What follows so many segments of a path: nothing, or a path.
fn below(path: &str, segments: usize) -> &str {
    let slash = path.match_indices('/').nth(segments);
    slash.and_then(|(at, _)| path.get(at..)).unwrap_or_default()
}

/// Fields that a route removes, sets and adds, in that order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    /// Taken out.
    pub remove: Vec<HeaderName>,
    /// Put in place of all that there are.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Put beside those that there are.
    pub add: Vec<(HeaderName, HeaderValue)>,
}

impl HeaderEdits {
    /// Makes the changes.
    pub fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name.clone(), value.clone());
        }
        for (name, value) in &self.add {
            headers.append(name.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Framework;

    #[test]
    fn prefix_is_taken_off_by_whole_segments() {
        let table = [
            (Some("/v1"), None, "/v1/users", "/users"),
            (Some("/v1"), None, "/v1", "/"),
            (Some("/v1"), None, "/v10/users", "/v10/users"),
            (Some("/v1"), Some("/internal"), "/v1/users", "/internal/users"),
            (None, Some("/internal"), "/users", "/internal/users"),
            (Some("/v1"), Some("/internal"), "/v1", "/internal/"),
            (Some("/v1"), None, "/v1/", "/"),
            (Some("/v1"), None, "/a/v1", "/a/v1"),
            (Some("/a/b"), Some("/c/d"), "/a/b/e", "/c/d/e"),
            (None, Some("/internal"), "/", "/internal/"),
            (None, None, "/users", "/users"),
            (Some("/@v1"), None, "/%40v1/a%40b", "/a%40b"),
            (Some("/@v1"), None, "/%40v1", "/"),
            (Some("/@v1"), None, "/%40v10", "/%40v10"),
        ];
        for (strip, add, path, expected) in table {
            let rewrite = PathRewrite { strip: strip.map(Into::into), add: add.map(Into::into) };
            let rewritten = rewrite.rewrite(path, PathReading::default());
            assert_eq!(rewritten, expected, "{rewrite:?} {path}");
        }
    }

    #[test]
    fn prefix_is_taken_off_as_the_server_reads_it() {
        for (framework, path, expected) in [
            (Framework::Express, "/V1/Users", "/Users"),
            (Framework::Express, "/V10/Users", "/V10/Users"),
            (Framework::Spring, "/v1;x=1/users;y", "/users;y"),
            (Framework::Spring, "/;x/v1/users", "/users"),
            (Framework::Fastify, "/v1/users?x/v1", "/users?x/v1"),
            (Framework::Fastify, "/v1?x/users", "/?x/users"),
            (Framework::Php, "/index.php/v1/users", "/users"),
            (Framework::Rails, "/v1.json", "/"),
            (Framework::Rails, "/v1.2/users", "/v1.2/users"),
            (Framework::Django, "/V1/users", "/V1/users"),
        ] {
            let rewrite = PathRewrite { strip: Some("/v1".into()), add: None };
            let rewritten = rewrite.rewrite(path, PathReading::of(framework));
            assert_eq!(rewritten, expected, "{framework:?} {path}");
        }
    }
}
