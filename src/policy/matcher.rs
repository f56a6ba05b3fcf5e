//! Which route a request takes: the first, in the order of the file, whose host, path and methods
//! match.
//!
//! Patterns match whole segments: `/repos/{owner}/*` two segments after `repos`, `/search/**`
//! `search` itself and everything below it. A slash at the end of a path makes no difference, so
//! that `/login/` is not a way around the limits of `/login`. Candidates are found by their first
//! segment, so a thousand routes cost no more than a few.

use std::collections::HashMap;

use http::Method;

use crate::target::{EncodedSlash, normalize_path};

/// A path pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    segments: Vec<Segment>,
    /// It ends in `/**`.
    open_ended: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(Box<str>),
    Any,
}

/// Why a text is no path pattern. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It does not start with a slash.
    #[error("a path starts with `/`")]
    NoSlash,
    /// A slash without a segment after it.
    #[error("a path has no empty segments")]
    EmptySegment,
    /// `**` somewhere else.
    #[error("`**` stands for the rest of a path and comes last")]
    RestNotLast,
    /// `a*b`, `{a}-{b}`, `{}`.
    #[error("`{0}`: `*` and `{{name}}` stand for a whole segment")]
    PartialSegment(String),
    /// Requests are matched in their normal form, which this text is not.
    #[error("a request's path never looks like this: it is matched as `{0}`")]
    NotNormal(String),
    /// Not a path at all.
    #[error("{0}")]
    Invalid(crate::target::TargetError),
}

impl PathPattern {
    /// Reads a pattern such as `/repos/{owner}/**`.
    ///
    /// # Errors
    /// [`PatternError`] with what to write instead.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let path = text.strip_prefix('/').ok_or(PatternError::NoSlash)?;
        let literal = |segment: &str| literal(segment).map_err(|error| error.about(text));
        let mut pattern = PathPattern { segments: Vec::new(), open_ended: false };
        if path.is_empty() {
            return Ok(pattern);
        }
        let path = path.strip_suffix('/').unwrap_or(path);
        let mut segments = path.split('/').peekable();
        while let Some(segment) = segments.next() {
            match segment {
                "" => return Err(PatternError::EmptySegment),
                "**" if segments.peek().is_some() => return Err(PatternError::RestNotLast),
                "**" => pattern.open_ended = true,
                "*" => pattern.segments.push(Segment::Any),
                _ if is_parameter(segment) => pattern.segments.push(Segment::Any),
                _ if segment.contains(['*', '{', '}']) => {
                    return Err(PatternError::PartialSegment(segment.to_owned()));
                }
                _ => pattern.segments.push(literal(segment)?),
            }
        }
        Ok(pattern)
    }

    /// Whether `path`, in its normal form, matches.
    pub fn matches(&self, path: &str) -> bool {
        let mut rest = segments(path);
        for expected in &self.segments {
            match (expected, rest.next()) {
                (Segment::Any, Some(_)) => {}
                (Segment::Literal(literal), Some(segment)) if **literal == *segment => {}
                _ => return false,
            }
        }
        self.open_ended || rest.next().is_none()
    }

    fn first_literal(&self) -> Option<&str> {
        match self.segments.first() {
            Some(Segment::Literal(literal)) => Some(literal),
            _ => None,
        }
    }
}

fn is_parameter(segment: &str) -> bool {
    let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(|name| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

impl PatternError {
    /// With the normal form of the whole pattern instead of one segment's.
    fn about(self, pattern: &str) -> Self {
        match (self, normalize_path(pattern, EncodedSlash::Reject)) {
            (PatternError::NotNormal(_), Ok(normal)) => {
                PatternError::NotNormal(normal.into_owned())
            }
            (error, _) => error,
        }
    }
}

fn literal(segment: &str) -> Result<Segment, PatternError> {
    let path = format!("/{segment}");
    match normalize_path(&path, EncodedSlash::Reject) {
        Ok(normal) if normal == path => Ok(Segment::Literal(segment.into())),
        Ok(normal) => Err(PatternError::NotNormal(normal.into_owned())),
        Err(error) => Err(PatternError::Invalid(error)),
    }
}

/// Segments of a path in its normal form, without the empty one after a slash at the end.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    let inner = path.trim_start_matches('/');
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    inner.split('/').filter(|segment| !segment.is_empty())
}

/// A host pattern: `api.example.com` or `*.example.com`, which matches every name below it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// This name.
    Exact(Box<str>),
    /// Names that end in this suffix, which starts with a dot.
    Below(Box<str>),
}

impl HostPattern {
    /// Whether `host`, lower-case and without port or final dot, matches.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            HostPattern::Exact(name) => **name == *host,
            HostPattern::Below(suffix) => host.len() > suffix.len() && host.ends_with(&**suffix),
        }
    }
}

/// What a route's `match` says.
#[derive(Clone, Debug)]
pub struct Matcher {
    /// Any of these; empty: every host of the policy.
    pub hosts: Vec<HostPattern>,
    /// The path.
    pub path: PathPattern,
    /// Any of these; empty: every method.
    pub methods: Vec<Method>,
}

impl Matcher {
    fn matches(&self, request: Request<'_>) -> bool {
        // Methods are case-sensitive, but not every server knows: `post` is no way around POST.
        let method = request.method.as_str();
        let is_listed = |listed: &Method| listed.as_str().eq_ignore_ascii_case(method);
        (self.methods.is_empty() || self.methods.iter().any(is_listed))
            && (self.hosts.is_empty()
                || request.host.is_some_and(|host| self.hosts.iter().any(|h| h.matches(host))))
            && self.path.matches(request.path)
    }
}

/// What a route is chosen by.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// Lower-case, without port or final dot; none on HTTP/1.0 without Host.
    pub host: Option<&'r str>,
    /// In its normal form.
    pub path: &'r str,
    /// As sent.
    pub method: &'r Method,
}

/// Finds the first matching route.
#[derive(Debug, Default)]
pub struct Router {
    matchers: Vec<Matcher>,
    /// For each first segment that some route spells out: the routes that can match a path that
    /// starts so, in order.
    by_first_segment: HashMap<Box<str>, Vec<usize>>,
    /// Routes whose first segment may be anything, in order.
    others: Vec<usize>,
}

impl Router {
    /// A router over `matchers`, whose order decides.
    pub fn new(matchers: Vec<Matcher>) -> Self {
        let firsts: Vec<Option<&str>> =
            matchers.iter().map(|matcher| matcher.path.first_literal()).collect();
        let by_first_segment = firsts
            .iter()
            .flatten()
            .map(|first| {
                let can_match = |(index, own): (usize, &Option<&str>)| {
                    own.is_none_or(|own| own == *first).then_some(index)
                };
                (Box::from(*first), firsts.iter().enumerate().filter_map(can_match).collect())
            })
            .collect();
        let others = firsts
            .iter()
            .enumerate()
            .filter_map(|(index, first)| first.is_none().then_some(index))
            .collect();
        Router { by_first_segment, others, matchers }
    }

    /// Position of the first matcher that matches.
    pub fn route(&self, request: Request<'_>) -> Option<usize> {
        let first = segments(request.path).next().unwrap_or_default();
        let candidates = self.by_first_segment.get(first).unwrap_or(&self.others);
        let matches =
            |index: &&usize| self.matchers.get(**index).is_some_and(|m| m.matches(request));
        candidates.iter().find(matches).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_whole_segments() {
        for (pattern, path, expected) in [
            ("/", "/", true),
            ("/", "/a", false),
            ("/**", "/", true),
            ("/**", "/a/b", true),
            ("/login", "/login", true),
            ("/login", "/login/", true),
            ("/login/", "/login", true),
            ("/login", "/loginx", false),
            ("/login", "/login/x", false),
            ("/search/**", "/search", true),
            ("/search/**", "/search/", true),
            ("/search/**", "/search/a/b", true),
            ("/search/**", "/searching", false),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a", false),
            ("/a/*", "/a/", false),
            ("/a/*", "/a/b/c", false),
            ("/repos/{owner}/{repo}/**", "/repos/o/r", true),
            ("/repos/{owner}/{repo}/**", "/repos/o", false),
            ("/repos/{owner}/{repo}", "/repos/o/r/", true),
            ("/A", "/a", false),
        ] {
            assert_eq!(
                PathPattern::parse(pattern).unwrap().matches(path),
                expected,
                "{pattern} {path}"
            );
        }
    }

    #[test]
    fn patterns_that_could_mislead_are_refused() {
        use PatternError::*;
        for (pattern, error) in [
            ("login", NoSlash),
            ("", NoSlash),
            ("/a//b", EmptySegment),
            ("/**/a", RestNotLast),
            ("/a*", PartialSegment("a*".into())),
            ("/{a}-{b}", PartialSegment("{a}-{b}".into())),
            ("/{}", PartialSegment("{}".into())),
            ("/%61", NotNormal("/a".into())),
            ("/a/../b", NotNormal("/b".into())),
        ] {
            assert_eq!(PathPattern::parse(pattern), Err(error), "{pattern}");
        }
    }

    #[test]
    fn host_patterns_match_names_below_them_only() {
        let below = HostPattern::Below(".example.com".into());
        assert!(below.matches("api.example.com"));
        assert!(below.matches("a.b.example.com"));
        assert!(!below.matches("example.com"));
        assert!(!below.matches(".example.com"));
        assert!(!below.matches("badexample.com"));
    }

    #[test]
    fn first_match_wins_over_a_closer_one() {
        let matcher = |path| Matcher {
            hosts: vec![],
            path: PathPattern::parse(path).unwrap(),
            methods: vec![],
        };
        let router = Router::new(vec![matcher("/a/**"), matcher("/{x}/b"), matcher("/a/b")]);
        let route = |path| router.route(Request { host: None, path, method: &Method::GET });
        assert_eq!(route("/a/b"), Some(0));
        assert_eq!(route("/z/b"), Some(1));
        assert_eq!(route("/z"), None);
        assert_eq!(route("/"), None);
    }

    /// Texts over a small alphabet, so that patterns and paths meet.
    fn segment() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec!["a", "b", "c"])
    }

    fn pattern() -> impl Strategy<Value = String> {
        let piece = prop_oneof![3 => segment().prop_map(str::to_owned), 1 => Just("*".to_owned()), 1 => Just("{p}".to_owned())];
        (prop::collection::vec(piece, 0..4), any::<bool>()).prop_map(|(mut pieces, rest)| {
            if rest {
                pieces.push("**".to_owned());
            }
            format!("/{}", pieces.join("/"))
        })
    }

    /// The obvious way: recurse over both lists of segments.
    fn reference(pattern: &[&str], path: &[&str]) -> bool {
        match (pattern, path) {
            (["**"], _) => true,
            ([], []) => true,
            ([first, pattern @ ..], [segment, path @ ..]) => {
                (first == segment || *first == "*" || *first == "{p}") && reference(pattern, path)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn prop_router_agrees_with_a_naive_search(
            patterns in prop::collection::vec((pattern(), any::<bool>()), 1..12),
            path in prop::collection::vec(segment(), 0..5),
            slash in any::<bool>(),
        ) {
            let router = Router::new(
                patterns
                    .iter()
                    .map(|(pattern, get_only)| Matcher {
                        hosts: vec![],
                        path: PathPattern::parse(pattern).unwrap(),
                        methods: if *get_only { vec![Method::GET] } else { vec![] },
                    })
                    .collect(),
            );
            let text = format!("/{}{}", path.join("/"), if slash && !path.is_empty() { "/" } else { "" });
            for method in [Method::GET, Method::POST] {
                let expected = patterns.iter().position(|(pattern, get_only)| {
                    let pieces: Vec<&str> = pattern.split('/').filter(|piece| !piece.is_empty()).collect();
                    (!get_only || method == Method::GET) && reference(&pieces, &path)
                });
                prop_assert_eq!(router.route(Request { host: None, path: &text, method: &method }), expected);
            }
        }
    }
}
