//! Paths of a route as patterns: texts that paths begin with, and the few regular expressions that
//! a pattern can say.

use crate::paths::literal;

/// A path as a route here has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) text: String,
    /// What is taken off before it is forwarded, if that is always the same.
    pub(super) prefix: Option<String>,
    /// How it differs.
    pub(super) difference: Option<&'static str>,
}

impl Pattern {
    /// All paths.
    pub(super) fn all() -> Self {
        Pattern { text: "/**".to_owned(), prefix: Some(String::new()), difference: None }
    }
}

/// Ends of regular expressions that say: and all below; the last two only before a `$`.
const BELOW: [&str; 6] = ["(/|$)(.*)", "(?:/|$)(.*)", "(/|$).*", "(?:/|$).*", "(/|$)", "(?:/|$)"];
const BELOW_OR_NOTHING: [&str; 2] = ["(/.*)?", "(?:/.*)?"];
const ANYTHING: [&str; 2] = [".*", "(.*)"];
/// Stands for `[^/]`, so that slashes separate segments.
const NO_SLASH: char = '\u{1}';

/// Whether a path is a regular expression.
pub(super) fn is_expression(path: &str, is_old: bool) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_~/%".contains(&byte);
    path.starts_with('~') || (is_old && !path.bytes().all(is_plain))
}

/// A path as a pattern. None: no pattern says this.
pub(super) fn pattern(path: &str, is_old: bool) -> Option<Pattern> {
    match is_expression(path, is_old) {
        true => expression(path.strip_prefix('~').unwrap_or(path)),
        false => begins(path),
    }
}

/// A pattern for all paths that may be those of an expression, for a route that is closed.
pub(super) fn wider(path: &str, is_old: bool) -> String {
    let text = path.strip_prefix('~').unwrap_or(path).replace("\\/", "/");
    let text = text.trim_start_matches('^');
    let special = |letter: char| !(letter.is_ascii_alphanumeric() || "-_/".contains(letter));
    let end = text.find(special).unwrap_or(text.len());
    let (begin, rest) = text.split_at(end);
    // What stands before a quantifier need not be there.
    let is_sure = !rest.starts_with(['?', '*', '{']);
    let begin = if is_sure { begin } else { begin.trim_end_matches(|letter| letter != '/') };
    let begin = if is_sure { begin } else { begin.trim_end_matches('/') };
    let depth = |text: &str| text.matches('(').count() == text.matches(')').count();
    let has_others = rest.match_indices('|').any(|(at, _)| depth(rest.get(..at).unwrap_or("")));
    let whole = begin.rsplit_once('/').map_or("", |(whole, _)| whole);
    match is_expression(path, is_old) && !has_others {
        true => format!("{whole}/**"),
        false => "/**".to_owned(),
    }
}

/// This path alone, of which nothing is taken off.
pub(super) fn exact(path: &str) -> Option<Pattern> {
    let text = literal(path.trim_end_matches('/'))?;
    let text = if text.is_empty() { "/".to_owned() } else { text };
    let difference = Some("a slash at the end of a path makes no difference here");
    Some(Pattern { text, prefix: Some(String::new()), difference })
}

fn begins(path: &str) -> Option<Pattern> {
    let trimmed = path.trim_end_matches('/');
    // Kong refuses others.
    let text = literal(trimmed).filter(|_| path.starts_with('/'))?;
    let prefix = taken_off(&text);
    let (text, difference) = match (trimmed.is_empty(), path.ends_with('/')) {
        (true, _) => ("/**".to_owned(), None),
        (_, true) => {
            (format!("{text}/**"), Some("it takes the path without a slash at its end, too"))
        }
        _ => (format!("{text}*/**"), None),
    };
    Some(Pattern { text, prefix, difference })
}

fn expression(text: &str) -> Option<Pattern> {
    let text = text.replace("\\/", "/").replace("[^/]", &NO_SLASH.to_string());
    let text = text.strip_prefix('^').unwrap_or(&text);
    let (text, is_end) = match text.strip_suffix('$') {
        Some(text) => (text, true),
        None => (text, false),
    };
    let ending = |endings: &[&str]| endings.iter().find_map(|end| text.strip_suffix(end));
    let nothing = ending(&BELOW_OR_NOTHING).filter(|_| is_end);
    let (stem, behind) = match (ending(&BELOW).or(nothing), ending(&ANYTHING)) {
        (Some(stem), _) => (stem, "/**"),
        (_, Some(stem)) if stem.ends_with('/') => (stem, "/**"),
        (_, Some(stem)) => (stem, "*/**"),
        _ if is_end => (text, ""),
        _ if text.ends_with('/') => (text, "/**"),
        _ => (text, "*/**"),
    };
    let optional = stem.strip_suffix("/?").or(stem.strip_suffix("(/)?"));
    let stem = optional.unwrap_or(stem).trim_end_matches('/');
    let mut pattern = String::new();
    for segment in stem.split('/').skip(1) {
        match unescaped(segment) {
            Some(own) => pattern = format!("{pattern}/{}", literal(&own)?),
            None => pattern = format!("{pattern}/{}", any_segment(segment).then_some("*")?),
        }
    }
    // What has `.*` is taken off as a whole there.
    let is_plain = ending(&BELOW).or(nothing).or(ending(&ANYTHING)).is_none();
    // A segment that is anything, and anything behind it.
    let behind = if pattern.ends_with('*') && behind == "*/**" { "/**" } else { behind };
    let prefix = taken_off(&pattern).filter(|_| is_plain);
    let text = match pattern.is_empty() {
        true if behind.is_empty() => "/".to_owned(),
        true => "/**".to_owned(),
        false => format!("{pattern}{behind}"),
    };
    let is_begun = stem.is_empty() || stem.starts_with('/');
    let difference = Some("a slash at the end of a path makes no difference here");
    is_begun.then_some(Pattern { text, prefix, difference })
}

/// What is taken off the paths of a pattern without its end, if it is the same for all of them.
fn taken_off(stem: &str) -> Option<String> {
    let is_same = !["*", "%2A", "%7B", "%7D"].iter().any(|own| stem.contains(own));
    is_same.then(|| stem.to_owned())
}

/// Whether a segment of an expression is any text.
fn any_segment(segment: &str) -> bool {
    let inner =
        segment.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(segment);
    let named = ["?<", "?P<"].iter().find_map(|mark| inner.strip_prefix(mark));
    let inner = named.and_then(|rest| rest.split_once('>')).map_or(inner, |(_, rest)| rest);
    inner.trim_start_matches("?:") == format!("{NO_SLASH}+")
}

/// A segment of an expression that is itself.
fn unescaped(segment: &str) -> Option<String> {
    let mut text = String::new();
    let mut letters = segment.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => text.push(letters.next().filter(|next| !next.is_ascii_alphanumeric())?),
            letter if letter == NO_SLASH || ".+*?()[]{}|^$".contains(letter) => return None,
            letter => text.push(letter),
        }
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_texts_or_simple_expressions() {
        for (path, expected) in [
            ("/", Some("/**")),
            ("/api", Some("/api*/**")),
            ("/api/", Some("/api/**")),
            ("~/status$", Some("/status")),
            ("~/$", Some("/")),
            ("~/", Some("/**")),
            ("~/api", Some("/api*/**")),
            ("~^/api/.*", Some("/api/**")),
            ("~/api/?(.*)", Some("/api*/**")),
            ("~/api(/.*)?$", Some("/api/**")),
            ("~\\/api\\/[^\\/]+$", Some("/api/*")),
            ("~/api(/|$)(.*)", Some("/api/**")),
            ("~/v1\\.0/x", Some("/v1.0/x*/**")),
            ("~/users/(?<id>[^/]+)$", Some("/users/*")),
            ("~/users/[^/]+", Some("/users/*/**")),
            ("~/users/(?<id>[^/]+)/orders$", Some("/users/*/orders")),
            ("~/users/\\d+$", None),
            ("~/(a|b)", None),
            ("~/v[12]/x", None),
            ("~.*", Some("/**")),
            ("/a%20b", None),
            ("", None),
            ("a", None),
            ("/a*", Some("/a%2A*/**")),
        ] {
            let own = pattern(path, false).map(|own| own.text);
            assert_eq!(own.as_deref(), expected, "{path}");
        }
        assert!(is_expression("/a/(b|c)", true) && !is_expression("/a.b", true));
        assert!(!is_expression("/a/(b|c)", false));
    }

    #[test]
    fn closed_routes_are_for_what_expressions_begin_with() {
        for (path, expected) in [
            ("~/users/\\d+$", "/users/**"),
            ("~/us(a|b)", "/**"),
            ("~/a/b[0-9]", "/a/**"),
            ("~/a/b/?x", "/a/**"),
            ("~/a/b*", "/**"),
            ("~/a/(b|c)\\d", "/a/**"),
            ("~/a/\\d|/c", "/**"),
            ("/a%20b", "/**"),
        ] {
            assert_eq!(wider(path, false), expected, "{path}");
        }
    }

    #[test]
    fn prefix_is_known_without_segments_that_are_any() {
        assert_eq!(pattern("~/api/v1$", false).unwrap().prefix.as_deref(), Some("/api/v1"));
        assert_eq!(pattern("~/users/[^/]+$", false).unwrap().prefix, None);
        assert_eq!(pattern("/api/", false).unwrap().prefix.as_deref(), Some("/api"));
    }
}
