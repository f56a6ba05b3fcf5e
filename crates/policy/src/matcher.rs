//! Which route a request takes: the first, in the order of the file, whose host, path, methods and
//! client addresses match.
//!
//! Patterns match whole segments: `/repos/{owner}/*` two segments after `repos`, `/search/**`
//! `search` itself and everything below it. A slash at the end of a path makes no difference, so
//! that `/login/` is not a way around the limits of `/login`. Candidates are found by their first
//! segment, so a thousand routes cost no more than a few.

mod overlap;

use std::{borrow::Cow, collections::HashMap, net::IpAddr};

use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_wire::target::{EncodedSlash, normalize_path, plain_form, with_reserved_decoded};

use super::Networks;

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
    /// Any text: `*`, or `{name}`.
    Any(Option<Box<str>>),
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
    /// `/{a}/{a}`.
    #[error("`{{{0}}}` appears twice")]
    ParameterTwice(String),
    /// Requests are matched in their normal form, which this text is not.
    #[error("a request's path never looks like this: it is matched as `{0}`")]
    NotNormal(String),
    /// Not a path at all.
    #[error("{0}")]
    Invalid(tollgate_wire::target::TargetError),
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
                "*" => pattern.segments.push(Segment::Any(None)),
                _ if segment.contains(['*', '{', '}']) => {
                    let name = parameter_name(segment)
                        .ok_or_else(|| PatternError::PartialSegment(segment.to_owned()))?;
                    if pattern.has_parameter(name) {
                        return Err(PatternError::ParameterTwice(name.to_owned()));
                    }
                    pattern.segments.push(Segment::Any(Some(name.into())));
                }
                _ => pattern.segments.push(literal(segment)?),
            }
        }
        Ok(pattern)
    }

    /// Whether `path`, in its plain form, matches.
    pub fn matches(&self, path: &str) -> bool {
        let mut rest = segments(path);
        for expected in &self.segments {
            match (expected, rest.next()) {
                (Segment::Any(_), Some(_)) => {}
                (Segment::Literal(literal), Some(segment)) if **literal == *segment => {}
                _ => return false,
            }
        }
        self.open_ended || rest.next().is_none()
    }

    /// The segment of a matching `path` that the pattern calls `{name}`.
    pub fn parameter<'r>(&self, name: &str, path: &'r str) -> Option<&'r str> {
        let is_it = |segment: &Segment| segment.is_parameter(name);
        self.segments.iter().zip(segments(path)).find(|(own, _)| is_it(own)).map(|(_, text)| text)
    }

    /// Whether the pattern has a `{name}`.
    pub fn has_parameter(&self, name: &str) -> bool {
        self.segments.iter().any(|segment| segment.is_parameter(name))
    }

    /// A matching `path`, in its normal form, in which the segments that the pattern spells out
    /// have their reserved characters decoded.
    ///
    /// A server that matches paths before it decodes them takes `/users/%40me` for
    /// `/users/{id}`, although the route is `/users/@me`: so it gets the latter.
    pub fn spell<'p>(&self, path: &'p str) -> Cow<'p, str> {
        let is_literal = |at: usize| matches!(self.segments.get(at), Some(Segment::Literal(_)));
        // The piece before the first slash is empty.
        let spelled =
            |(at, piece): (usize, &'p str)| match at.checked_sub(1).is_some_and(is_literal) {
                true => with_reserved_decoded(piece),
                false => Cow::Borrowed(piece),
            };
        let mut pieces = path.split('/').enumerate().map(spelled);
        match pieces.clone().any(|piece| matches!(piece, Cow::Owned(_))) {
            true => Cow::Owned(pieces.by_ref().collect::<Vec<_>>().join("/")),
            false => Cow::Borrowed(path),
        }
    }

    fn first_literal(&self) -> Option<&str> {
        match self.segments.first() {
            Some(Segment::Literal(literal)) => Some(literal),
            _ => None,
        }
    }
}

impl Segment {
    fn is_parameter(&self, name: &str) -> bool {
        matches!(self, Segment::Any(Some(own)) if **own == *name)
    }
}

/// The name in `{name}`.
fn parameter_name(segment: &str) -> Option<&str> {
    let name = segment.strip_prefix('{')?.strip_suffix('}')?;
    is_parameter_name(name).then_some(name)
}

/// Whether a parameter may be called so.
pub(super) fn is_parameter_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl PatternError {
    /// With the normal form of the whole pattern instead of one segment's.
    fn about(self, pattern: &str) -> Self {
        match (self, normalize_path(pattern, EncodedSlash::Reject)) {
            (PatternError::NotNormal(_), Ok(normal)) => {
                PatternError::NotNormal(plain_form(&normal).into_owned())
            }
            (error, _) => error,
        }
    }
}

fn literal(segment: &str) -> Result<Segment, PatternError> {
    let path = format!("/{segment}");
    let normal = normalize_path(&path, EncodedSlash::Reject).map_err(PatternError::Invalid)?;
    let plain = plain_form(&normal);
    match plain.strip_prefix('/') {
        Some(plain) if written(plain) == segment => Ok(Segment::Literal(plain.into())),
        _ => Err(PatternError::NotNormal(plain.into_owned())),
    }
}

/// A segment in its plain form as patterns write it: what means something to them is escaped.
fn written(segment: &str) -> Cow<'_, str> {
    match segment.contains(['*', '{', '}']) {
        true => Cow::Owned(segment.replace('*', "%2A").replace('{', "%7B").replace('}', "%7D")),
        false => Cow::Borrowed(segment),
    }
}

/// Segments of a path, without the empty one after a slash at the end.
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

/// A host for which there is every reason to have no pattern (RFC 6761).
const ANY_HOST: &str = "policy.test";

impl HostPattern {
    /// A host that the first of `patterns` matches; without patterns, any host.
    pub fn sample(patterns: &[HostPattern]) -> Box<str> {
        match patterns.first() {
            None => ANY_HOST.into(),
            Some(HostPattern::Exact(name)) => name.clone(),
            Some(HostPattern::Below(suffix)) => format!("any{suffix}").into(),
        }
    }

    /// Whether every host that `other` matches is one that this matches.
    pub(super) fn covers(&self, other: &HostPattern) -> bool {
        match (self, other) {
            (_, HostPattern::Exact(name)) => self.matches(name),
            (HostPattern::Below(own), HostPattern::Below(other)) => other.ends_with(&**own),
            (HostPattern::Exact(_), HostPattern::Below(_)) => false,
        }
    }

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
    /// Any of these, and HEAD with GET; empty: every method.
    pub methods: Vec<Method>,
    /// Client addresses in any of these; empty: every address.
    pub from: Networks,
}

/// What a route matches requests by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RoutePart {
    /// The host.
    Host,
    /// The path.
    Path,
    /// The method.
    Method,
    /// The client's address.
    Address,
}

impl Matcher {
    fn matches(&self, request: Request<'_>) -> bool {
        self.matches_in(RoutePart::Method, request)
            && self.matches_in(RoutePart::Host, request)
            && self.matches_in(RoutePart::Path, request)
            && self.matches_in(RoutePart::Address, request)
    }

    fn matches_in(&self, part: RoutePart, request: Request<'_>) -> bool {
        match part {
            RoutePart::Host => {
                let is_there = |host| self.hosts.iter().any(|pattern| pattern.matches(host));
                self.hosts.is_empty() || request.host.is_some_and(is_there)
            }
            RoutePart::Path => self.path.matches(request.path),
            RoutePart::Method => {
                // Methods are case-sensitive, but not every server knows: `post` is no way around
                // POST.
                let method = request.method.as_str();
                let is = |listed: &Method| listed.as_str().eq_ignore_ascii_case(method);
                // Servers answer HEAD by what they do for GET (RFC 9110 section 9.3.2).
                let is_listed =
                    |listed: &Method| is(listed) || *listed == Method::GET && is(&Method::HEAD);
                self.methods.is_empty() || self.methods.iter().any(is_listed)
            }
            RoutePart::Address => self.from.is_empty() || self.from.contains(request.address),
        }
    }

    /// Whether it takes requests with this method, which is in capitals.
    pub fn takes_method(&self, method: &Method) -> bool {
        self.methods.is_empty()
            || self.methods.contains(method)
            || *method == Method::HEAD && self.methods.contains(&Method::GET)
    }

    /// Whether it takes requests from all client addresses that `other` takes them from.
    pub fn covers_addresses_of(&self, other: &Matcher) -> bool {
        match (self.from.is_empty(), other.from.is_empty()) {
            (true, _) => true,
            (false, true) => false,
            (false, false) => self.from.covers(&other.from),
        }
    }
}

/// What a route is chosen by.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// Lower-case, without port or final dot; none on HTTP/1.0 without Host.
    pub host: Option<&'r str>,
    /// In its plain form.
    pub path: &'r str,
    /// As sent.
    pub method: &'r Method,
    /// The client's, canonical, as trusted proxies say it.
    pub address: IpAddr,
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

    /// What the routes match, in their order.
    pub fn matchers(&self) -> &[Matcher] {
        &self.matchers
    }

    /// For each route, in their order, what of it a request does not match; nothing: it matches.
    pub fn differences(&self, request: Request<'_>) -> impl Iterator<Item = Vec<RoutePart>> {
        self.matchers.iter().map(move |matcher| {
            let parts = [RoutePart::Host, RoutePart::Path, RoutePart::Method, RoutePart::Address];
            parts.into_iter().filter(|part| !matcher.matches_in(*part, request)).collect()
        })
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
mod tests;
