//! Which route a request takes: the first, in the order of the file, whose host, path, methods and
//! client addresses match.
//!
//! Patterns match segment by segment: `/repos/{owner}/*` two segments after `repos`, `/search/**`
//! `search` itself and everything below it, `/report-*` one segment that begins so. A slash at the
//! end of a path makes no difference, so that `/login/` is not a way around the limits of `/login`.
//! Candidates are found by their first segment, so a thousand routes cost no more than a few. What
//! the servers behind a route take for the same path, it takes as well: see [`PathReading`].

mod affix;
mod overlap;
mod reading;
mod router;

use std::{borrow::Cow, net::IpAddr};

use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_wire::target::{EncodedSlash, normalize_path, plain_form};

use self::affix::Affix;
pub use self::{reading::RequestPath, router::Router};
use super::{Networks, PathReading};

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
    /// A text of which the beginning and the end are known: `report-*`.
    Affix(Affix),
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
    /// `a*b*`, `a**`.
    #[error("`{0}`: a segment has one `*` at most, and `**` stands alone")]
    SeveralStars(String),
    /// `{a}-{b}`, `{a}.json`, `{}`.
    #[error("`{0}`: `{{name}}` stands for a whole segment, and only `*` for a part of one")]
    PartialParameter(String),
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
        let affix = |segment: &str| match Affix::parse(segment) {
            Ok(affix) => Ok(Segment::Affix(affix)),
            Err(error) => Err(error.about(text)),
        };
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
                _ if segment.contains(['{', '}']) => {
                    let name = parameter_name(segment)
                        .ok_or_else(|| PatternError::PartialParameter(segment.to_owned()))?;
                    if pattern.has_parameter(name) {
                        return Err(PatternError::ParameterTwice(name.to_owned()));
                    }
                    pattern.segments.push(Segment::Any(Some(name.into())));
                }
                _ => match segment.matches('*').count() {
                    0 => pattern.segments.push(literal(segment)?),
                    1 => pattern.segments.push(affix(segment)?),
                    _ => return Err(PatternError::SeveralStars(segment.to_owned())),
                },
            }
        }
        Ok(pattern)
    }

    /// Whether `path`, in its plain form, matches.
    pub fn matches(&self, path: &str) -> bool {
        self.matches_read(path, &PathReading::default())
    }

    /// Whether a path matches, or one form of it, where letters may differ by case.
    fn matches_read(&self, path: &str, reading: &PathReading) -> bool {
        let mut rest = segments(path);
        for expected in &self.segments {
            match rest.next() {
                Some(segment) if expected.matches(segment, reading) => {}
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

    fn first_literal(&self) -> Option<&str> {
        match self.segments.first() {
            Some(Segment::Literal(literal)) => Some(literal),
            _ => None,
        }
    }
}

impl Segment {
    /// Whether it matches a segment of a path, or of one form of it.
    fn matches(&self, text: &str, reading: &PathReading) -> bool {
        match self {
            Segment::Literal(literal) => reading.is_same(literal, text),
            Segment::Affix(affix) => affix.matches(text, reading),
            Segment::Any(_) => true,
        }
    }

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
    /// How the servers of its upstream read paths.
    pub reading: PathReading,
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
    /// Whether it takes a request whose path its servers surely read so.
    fn matches(&self, path: &str, request: Request<'_>) -> bool {
        self.path.matches(path)
            && !self.reading.asks_script(path)
            && self.matches_beside_path(request)
    }

    /// Whether it takes a request for this form of its path.
    fn takes_form(&self, form: &str, request: Request<'_>) -> bool {
        self.path.matches_form(form, &self.reading) && self.matches_beside_path(request)
    }

    fn matches_beside_path(&self, request: Request<'_>) -> bool {
        self.matches_in(RoutePart::Method, request)
            && self.matches_in(RoutePart::Host, request)
            && self.matches_in(RoutePart::Address, request)
    }

    fn matches_in(&self, part: RoutePart, request: Request<'_>) -> bool {
        match part {
            RoutePart::Host => {
                let is_there = |host| self.hosts.iter().any(|pattern| pattern.matches(host));
                self.hosts.is_empty() || request.host.is_some_and(is_there)
            }
            RoutePart::Path => {
                let path = request.path.as_read_by(&self.reading);
                self.path.matches_as_it_is(&path, &self.reading)
            }
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
    /// As servers of each kind take it.
    pub path: RequestPath<'r>,
    /// As sent.
    pub method: &'r Method,
    /// The client's, canonical, as trusted proxies say it.
    pub address: IpAddr,
}

#[cfg(test)]
mod tests;
