//! What a route changes about the messages that take it: their path and their header fields.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate_wire::target::plain_form;

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
    /// What the upstream is asked for instead of `path`, which is in normal form.
    pub fn rewrite<'p>(&self, path: &'p str) -> Cow<'p, str> {
        let rest = self.strip.as_deref().and_then(|prefix| {
            let plain = plain_form(path);
            let rest = plain.strip_prefix(prefix)?;
            let is_whole = rest.is_empty() || rest.starts_with('/');
            is_whole.then(|| below(path, prefix.matches('/').count()))
        });
        let rest = match rest {
            Some("") => "/",
            Some(rest) => rest,
            None => path,
        };
        match &self.add {
            Some(prefix) => Cow::Owned(format!("{prefix}{rest}")),
            None => Cow::Borrowed(rest),
        }
    }
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
            assert_eq!(rewrite.rewrite(path), expected, "{rewrite:?} {path}");
        }
    }
}
