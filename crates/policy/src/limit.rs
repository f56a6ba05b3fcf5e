//! A limit of a policy: how much, by tier, what it is counted per, and when it counts.

use std::fmt;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use tollgate_keyword::{Keyword, keywords};
use tollgate_limit::{Fallback, Scope, WhenFull};

use super::{Allowances, Overrides};

/// A named rule: how much, by tier, and what it is counted per.
#[derive(Debug)]
pub struct Limit {
    /// Its name, which clients see as `x-ratelimit-resource`.
    pub name: Box<str>,
    /// Its position among the limits of its policy; none of those: `usize::MAX`.
    pub position: usize,
    /// The name as a header value.
    pub resource: HeaderValue,
    /// What a counter is kept for.
    pub per: Per,
    /// Whether clients choose the hosts and paths of its requests.
    pub open: OpenParts,
    /// What each tier may use, by the tier's position.
    pub rates: Vec<Allowances>,
    /// Other rates for some requests.
    pub overrides: Overrides,
    /// What a request costs where its route does not say.
    pub cost: Cost,
    /// Which requests are given back what they cost.
    pub refund: Refund,
    /// Only requests answered with one of these statuses count; none: all do.
    pub count_when: Option<Statuses>,
    /// The callers for which the limit is enforced.
    pub enforcement: Enforcement,
    /// How its charges are decided if the store does not answer: `on_store_error`.
    pub fallback: Fallback,
    /// How they are decided if the process has no room for a counter: `on_store_full`.
    pub full: WhenFull,
    /// Rates that are tried out beside those in force, by the tier's position; empty: none are.
    pub candidate: Vec<Allowances>,
}

impl Limit {
    /// Whether the limit counts by address and needs no caller: such a limit is charged for failed
    /// authentication.
    pub fn is_by_address(&self) -> bool {
        let needs_token = |part: &KeyPart| matches!(part, KeyPart::Caller | KeyPart::Claim(_));
        self.per.parts.contains(&KeyPart::ClientIp) && !self.per.parts.iter().any(needs_token)
    }

    /// Whether programs charge it by name, with keys of theirs; requests never do.
    pub fn is_named(&self) -> bool {
        self.per.parts.contains(&KeyPart::Key)
    }

    /// Whether descriptors that Envoy sends are charged to it; requests never are.
    pub fn is_of_descriptors(&self) -> bool {
        self.per.parts.iter().any(|part| matches!(part, KeyPart::Descriptor(_)))
    }

    /// Whose counters it has.
    pub fn scope(&self) -> Scope {
        let parts = &self.per.parts;
        if parts.contains(&KeyPart::Caller) {
            Scope::Caller
        } else if parts.contains(&KeyPart::ClientIp) {
            Scope::Address
        } else {
            Scope::Shared
        }
    }
}

/// What counters are kept for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Per {
    /// Never empty.
    pub parts: Vec<KeyPart>,
    /// How a request is treated that lacks one.
    pub on_missing: OnMissing,
    /// IPv4 addresses with the same prefix of this length are one; 32.
    pub ipv4_prefix: u8,
    /// IPv6 addresses with the same prefix of this length are one; 64.
    pub ipv6_prefix: u8,
}

/// What is open about the routes that a limit is listed by: of what is open, a client can make up
/// as many values as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenParts {
    /// One of them takes requests for any host, or any below a name.
    pub hosts: bool,
    /// One of them takes requests for more than one path.
    pub paths: bool,
}

/// One thing that a limit is counted per.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The caller: (issuer, claim, value) or an address.
    Caller,
    /// The client's address, by its prefix.
    ClientIp,
    /// The request's host.
    Host,
    /// The request's path in its normal form.
    Path,
    /// The path's segment that the route's pattern gives this name.
    PathParameter(Box<str>),
    /// The request's method.
    Method,
    /// A claim of the verified token, by name or dotted path.
    Claim(Box<str>),
    /// A request header.
    Header(HeaderName),
    /// A cookie.
    Cookie(Box<str>),
    /// What a program names that charges the limit (`decisions` in the settings). No request has
    /// it.
    Key,
    /// What Envoy's rate limit filter sends as this key of a descriptor. No request has it.
    Descriptor(Box<str>),
}

/// As policies write it.
impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyPart::Caller => f.write_str("caller"),
            KeyPart::ClientIp => f.write_str("client.ip"),
            KeyPart::Host => f.write_str("host"),
            KeyPart::Path => f.write_str("path"),
            KeyPart::PathParameter(name) => NamedKey::PathParameter.write(f, name),
            KeyPart::Method => f.write_str("method"),
            KeyPart::Claim(name) => NamedKey::Claim.write(f, name),
            KeyPart::Header(name) => NamedKey::Header.write(f, name.as_str()),
            KeyPart::Cookie(name) => NamedKey::Cookie.write(f, name),
            KeyPart::Key => f.write_str("key"),
            KeyPart::Descriptor(name) => NamedKey::Descriptor.write(f, name),
        }
    }
}

impl KeyPart {
    /// The keys that are a single keyword; the others are [`NamedKey`]s.
    pub const KEYWORDS: [(&'static str, KeyPart); 6] = [
        ("caller", KeyPart::Caller),
        ("client.ip", KeyPart::ClientIp),
        ("host", KeyPart::Host),
        ("path", KeyPart::Path),
        ("method", KeyPart::Method),
        ("key", KeyPart::Key),
    ];
}

/// A kind of key that is written before a name: `header.x-tenant`. The parser, the schema and the
/// names of overrides are made from its keywords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedKey {
    /// [`KeyPart::PathParameter`].
    PathParameter,
    /// [`KeyPart::Claim`].
    Claim,
    /// [`KeyPart::Header`].
    Header,
    /// [`KeyPart::Cookie`].
    Cookie,
    /// [`KeyPart::Descriptor`].
    Descriptor,
}

keywords! {
    NamedKey {
        PathParameter = "path", Claim = "jwt", Header = "header", Cookie = "cookie",
        Descriptor = "descriptor",
    }
}

impl NamedKey {
    /// Other words for the same.
    pub const ALIASES: [(&'static str, NamedKey); 1] = [("claim", NamedKey::Claim)];

    /// The kind with this keyword or alias.
    pub fn from_prefix(prefix: &str) -> Option<NamedKey> {
        let alias =
            || Self::ALIASES.iter().find(|(alias, _)| *alias == prefix).map(|(_, kind)| *kind);
        NamedKey::from_keyword(prefix).or_else(alias)
    }

    fn write(self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        write!(f, "{}.{name}", self.keyword())
    }
}

/// How a request is treated that lacks a key of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissing {
    /// The limit does not apply to it.
    #[default]
    Skip,
    /// It is refused.
    Deny,
}

keywords! { OnMissing { Skip = "skip", Deny = "deny" } }

/// What a request costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// By method.
    pub by_method: Vec<(Method, u32)>,
    /// Units, for all other methods.
    pub default: u32,
    /// The response field that says what the request has really cost.
    pub from_response_header: Option<HeaderName>,
    /// Units, if the client hangs up and the response's head never comes; none: the dearest of
    /// late.
    pub abandoned: Option<u32>,
}

impl Cost {
    /// One unit.
    pub const ONE: Cost =
        Cost { by_method: Vec::new(), default: 1, from_response_header: None, abandoned: None };

    /// What a request with this method costs at first.
    pub fn of(&self, method: &Method) -> u32 {
        // Methods in any case are one method, as for routes.
        let is_it =
            |(listed, _): &&(Method, u32)| listed.as_str().eq_ignore_ascii_case(method.as_str());
        self.by_method.iter().find(is_it).map_or(self.default, |(_, units)| *units)
    }
}

/// Which requests are given back what they cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refund {
    /// Statuses that are refunded to every caller.
    pub everybody: Statuses,
    /// Statuses that are refunded to callers with a valid token.
    pub authenticated: Statuses,
    /// Percent of what can be used in a window that may be given back in it; none: all of it, again
    /// and again.
    pub at_most: Option<u8>,
}

impl Refund {
    /// The statuses that give something back to a sender, with a good token or without.
    pub fn statuses(&self, is_authenticated: bool) -> Statuses {
        match is_authenticated {
            true => self.everybody.and(self.authenticated),
            false => self.everybody,
        }
    }
}

/// A set of status codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statuses([u128; 4]);

impl Statuses {
    /// With this one too.
    #[must_use]
    pub fn with(mut self, status: u16) -> Self {
        let (word, bit) = Self::place(status);
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
        self
    }

    /// These and others.
    #[must_use]
    pub fn and(mut self, others: Statuses) -> Self {
        self.0.iter_mut().zip(others.0).for_each(|(word, other)| *word |= other);
        self
    }

    /// Whether there are others among them than this one.
    pub fn names_others(&self, status: StatusCode) -> bool {
        *self != Statuses::default() && *self != Statuses::default().with(status.as_u16())
    }

    /// Whether this one is among them.
    pub fn contains(&self, status: StatusCode) -> bool {
        let (word, bit) = Self::place(status.as_u16());
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    /// The index of the word that holds a status, and its bit there: 100 is the first.
    fn place(status: u16) -> (usize, u128) {
        let position = usize::from(status.wrapping_sub(100));
        (position / 128, 1 << (position % 128))
    }
}

/// `304, 500-599`.
impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contains = |code: u16| StatusCode::from_u16(code).is_ok_and(|code| self.contains(code));
        let is_first = |code: &u16| contains(*code) && (*code == 100 || !contains(code - 1));
        let range = |first: u16| match (first..=599).take_while(|code| contains(*code)).last() {
            Some(last) if last > first => format!("{first}-{last}"),
            _ => first.to_string(),
        };
        let ranges: Vec<String> = (100..=599).filter(is_first).map(range).collect();
        f.write_str(if ranges.is_empty() { "none" } else { &ranges.join(", ") })
    }
}

/// The callers for which a limit is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enforcement {
    /// All callers.
    #[default]
    AllCallers,
    /// No caller: the limit counts and reports, and never denies.
    Shadow,
    /// This percentage of callers, always the same ones.
    Percent(u8),
}
