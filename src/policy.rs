//! A policy: who is calling, what the limits are, which route charges which. Immutable once loaded.
//!
//! A request takes one snapshot of all policies and keeps it to its end. Counters live in the store,
//! never here.

mod compile;
mod file;
mod matcher;
mod rate;
mod sources;

use std::{borrow::Cow, collections::HashMap, net::IpAddr, time::Duration};

use http::{HeaderName, HeaderValue, Method, StatusCode};
use ipnet::IpNet;

use crate::{
    clock::Timestamp,
    identity::{CallerValue, Identity, IdentityRules, ResolvedCaller},
    limit::{LimitId, Quota},
};

pub use self::{
    compile::load,
    matcher::{HostPattern, Matcher, PathPattern, PatternError, Request, Router},
    rate::{Period, Rate, RateError},
    sources::Sources,
};

/// Every policy that is in force, found by host.
#[derive(Default)]
pub struct Policies {
    policies: Vec<Policy>,
    by_name: HashMap<Box<str>, usize>,
    /// Suffix patterns, longest first.
    by_suffix: Vec<(HostPattern, usize)>,
    /// The policy without hosts.
    fallback: Option<usize>,
}

impl Policies {
    /// Indexes policies by their hosts. That no two claim the same host is checked at load.
    pub fn new(policies: Vec<Policy>) -> Self {
        let mut all = Policies::default();
        for (index, policy) in policies.iter().enumerate() {
            if policy.hosts.is_empty() {
                all.fallback = Some(index);
            }
            for host in &policy.hosts {
                match host {
                    HostPattern::Exact(name) => {
                        all.by_name.insert(name.clone(), index);
                    }
                    HostPattern::Below(_) => all.by_suffix.push((host.clone(), index)),
                }
            }
        }
        let length = |pattern: &HostPattern| match pattern {
            HostPattern::Exact(name) | HostPattern::Below(name) => name.len(),
        };
        all.by_suffix.sort_by_key(|(pattern, _)| std::cmp::Reverse(length(pattern)));
        all.policies = policies;
        all
    }

    /// The policy for a host: its own name, else the longest suffix, else the one without hosts.
    pub fn for_host(&self, host: Option<&str>) -> Option<&Policy> {
        let by_suffix = |host: &str| {
            self.by_suffix
                .iter()
                .find(|(pattern, _)| pattern.matches(host))
                .map(|(_, index)| *index)
        };
        let index = host
            .and_then(|host| self.by_name.get(host).copied().or_else(|| by_suffix(host)))
            .or(self.fallback)?;
        self.policies.get(index)
    }

    /// All policies, in the order of their file names.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter()
    }
}

/// One policy file, compiled.
pub struct Policy {
    /// The file's name without its ending; part of every counter's key.
    pub name: Box<str>,
    /// Hosts it is for; empty: every host that no other policy names.
    pub hosts: Vec<HostPattern>,
    /// Where requests go.
    pub upstreams: Vec<Upstream>,
    /// Who is calling.
    pub identity: IdentityRules,
    /// The limits, referred to by position.
    pub limits: Vec<Limit>,
    /// Finds the position of a request's route.
    pub router: Router,
    /// In the order of the file.
    pub routes: Vec<Route>,
    /// What clients are told.
    pub responses: Responses,
    /// Who is charged nothing.
    pub exempt: Listed,
    /// Who is refused.
    pub deny: Listed,
    /// The limit that stands for all where only one can be told: a position in `limits`.
    pub core: Option<usize>,
}

impl Policy {
    /// The route that a request takes, the first that matches, and where it leads.
    pub fn route(&self, request: Request<'_>) -> Option<(&Route, &Upstream)> {
        let route = self.routes.get(self.router.route(request)?)?;
        Some((route, self.upstreams.get(route.upstream)?))
    }
}

impl Policy {
    /// Positions of all limits, that of `core` first.
    pub fn core_first(&self) -> impl Iterator<Item = usize> {
        let others = (0..self.limits.len()).filter(|at| Some(*at) != self.core);
        self.core.into_iter().chain(others)
    }

    /// The response fields that say what requests on a route have cost.
    pub fn cost_headers<'p>(&'p self, route: &'p Route) -> impl Iterator<Item = &'p HeaderName> {
        let limits = route.limits.iter().filter_map(|at| self.limits.get(*at));
        let own = limits.map(|limit| &limit.cost).filter(|_| route.cost.is_none());
        route.cost.iter().chain(own).filter_map(|cost| cost.from_response_header.as_ref())
    }
}

/// What happens to the requests that match.
#[derive(Debug)]
pub struct Route {
    /// The path pattern as written: what logs call the route.
    pub name: Box<str>,
    /// The path pattern, for its parameters.
    pub path: PathPattern,
    /// Whether a caller must show a token.
    pub auth: Auth,
    /// Limits to charge, primary first: positions in [`Policy::limits`].
    pub limits: Vec<usize>,
    /// Where to forward to: position in [`Policy::upstreams`].
    pub upstream: usize,
    /// What a request costs here; none: what its limits say.
    pub cost: Option<Cost>,
}

/// Whether a route looks at tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// It does not; credentials are the upstream's own affair.
    None,
    /// A token may be missing, not bad.
    Optional(AcceptedIssuers),
    /// A good token is needed.
    Required(AcceptedIssuers),
}

/// Whose tokens a route takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcceptedIssuers {
    /// Every issuer of the policy.
    All,
    /// Only these: positions in [`IdentityRules::issuers`].
    Only(Vec<usize>),
}

impl AcceptedIssuers {
    /// Whether tokens of the issuer at this position are taken.
    pub fn contains(&self, issuer: usize) -> bool {
        match self {
            AcceptedIssuers::All => true,
            AcceptedIssuers::Only(issuers) => issuers.contains(&issuer),
        }
    }
}

/// A named rule: how much, by tier, and what it is counted per.
#[derive(Debug)]
pub struct Limit {
    /// Its name, which clients see as `x-ratelimit-resource`.
    pub name: Box<str>,
    /// The name as a header value.
    pub resource: HeaderValue,
    /// What a counter is kept for.
    pub per: Per,
    /// What each tier may use, by the tier's position.
    pub rates: Vec<Allowances>,
    /// Other rates for single callers.
    pub overrides: Overrides,
    /// What a request costs where its route does not say.
    pub cost: Cost,
    /// Which requests are given back what they cost.
    pub refund: Refund,
    /// Only requests answered with one of these statuses count; none: all do.
    pub count_when: Option<Statuses>,
    /// For whom the limit is more than a word.
    pub enforcement: Enforcement,
    /// Rates that are tried out beside those in force, by the tier's position; empty: none are.
    pub candidate: Vec<Allowances>,
}

/// What a tier may use of a limit, in several windows at once; none: the limit does not apply. The
/// longest window is last, and is the one that clients are told about.
pub type Allowances = Vec<Allowance>;

impl Limit {
    /// Whether the limit counts by address and needs no caller: such a limit is charged for failed
    /// authentication.
    pub fn is_by_address(&self) -> bool {
        let needs_token = |part: &KeyPart| matches!(part, KeyPart::Caller | KeyPart::Claim(_));
        self.per.parts.contains(&KeyPart::ClientIp) && !self.per.parts.iter().any(needs_token)
    }
}

/// How much, in one window.
#[derive(Clone, Debug)]
pub struct Allowance {
    /// How much, and how it is counted.
    pub quota: Quota,
    /// Names the limit and the way of counting in counter keys.
    pub id: LimitId,
    /// The quota's limit as a header value, built once.
    pub limit: HeaderValue,
    /// What it is called where each window has a name: as the limit, or as `core-1h`.
    pub name: Box<str>,
    /// Length of the window in whole seconds, rounded up; none for what has no window.
    pub window_secs: Option<u64>,
}

/// What counters are kept for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Per {
    /// Never empty.
    pub parts: Vec<KeyPart>,
    /// What becomes of a request that lacks one.
    pub on_missing: OnMissing,
    /// IPv4 addresses with the same prefix of this length are one; 32.
    pub ipv4_prefix: u8,
    /// IPv6 addresses with the same prefix of this length are one; 64.
    pub ipv6_prefix: u8,
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
}

/// What becomes of a request that lacks what a limit counts by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissing {
    /// The limit does not apply to it.
    #[default]
    Skip,
    /// It is refused.
    Deny,
}

/// Other rates for single callers, until a day.
#[derive(Clone, Debug, Default)]
pub struct Overrides(pub Vec<Override>);

/// Another rate for one caller.
#[derive(Clone, Debug)]
pub struct Override {
    /// Who.
    pub caller: CallerName,
    /// What it may use.
    pub allowances: Allowances,
    /// From this instant on, no longer.
    pub until: Option<Timestamp>,
    /// The reason, for people.
    pub why: Box<str>,
}

impl Overrides {
    /// What a caller may use instead of its tier's rates.
    pub fn of(&self, identity: &Identity<'_>, now: Timestamp) -> Option<&[Allowance]> {
        let caller = identity.caller.as_ref().filter(|_| !self.0.is_empty())?;
        let applies =
            |own: &&Override| own.until.is_none_or(|until| now < until) && own.caller.is_of(caller);
        self.0.iter().find(applies).map(|own| own.allowances.as_slice())
    }
}

/// A caller as policies write it: `user:42`, `anonymous:192.0.2.1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerName {
    /// The kind: the name of an entry of `callers`.
    pub kind: Box<str>,
    /// Which one.
    pub value: Box<str>,
}

impl CallerName {
    /// Whether it names this caller.
    fn is_of(&self, caller: &ResolvedCaller<'_>) -> bool {
        *self.kind == *caller.kind
            && match &caller.value {
                CallerValue::Claim(value) => self.value.as_bytes() == value.as_bytes(),
                CallerValue::Address(address) => *self.value == *address.to_string(),
            }
    }
}

/// Addresses and callers that a policy singles out.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// Addresses.
    pub networks: Vec<IpNet>,
    /// Callers.
    pub callers: Vec<CallerName>,
}

impl Listed {
    /// Whether this address is among them.
    pub fn contains_address(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// Whether the address or the caller is among them.
    pub fn contains(&self, identity: &Identity<'_>) -> bool {
        let is_caller =
            |caller: &ResolvedCaller<'_>| self.callers.iter().any(|listed| listed.is_of(caller));
        self.contains_address(identity.address) || identity.caller.as_ref().is_some_and(is_caller)
    }
}

/// What a request costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// By method.
    pub by_method: Vec<(Method, u32)>,
    /// Units, for all other methods.
    pub default: u32,
    /// The response field that says what the request has really cost.
    pub from_response_header: Option<HeaderName>,
}

impl Cost {
    /// One unit.
    pub const ONE: Cost = Cost { by_method: Vec::new(), default: 1, from_response_header: None };

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
    /// Those with such a response, whoever sent them.
    pub everybody: Statuses,
    /// Those with such a response whose sender showed a good token.
    pub authenticated: Statuses,
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

    /// Whether this one is among them.
    pub fn contains(&self, status: StatusCode) -> bool {
        let (word, bit) = Self::place(status.as_u16());
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    /// The word and bit of a status: 100 is the first.
    fn place(status: u16) -> (usize, u128) {
        let position = usize::from(status.wrapping_sub(100));
        (position / 128, 1 << (position % 128))
    }
}

/// For whom a limit is more than a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enforcement {
    /// Everybody.
    #[default]
    Everybody,
    /// Nobody: it counts and tells, and never denies.
    Nobody,
    /// So many of a hundred callers, always the same.
    Percent(u8),
}

/// Where requests are forwarded to.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its name in the policy.
    pub name: Box<str>,
    /// The server.
    pub server: Server,
    /// The server as a `Host` field, for requests that have none.
    pub authority: HeaderValue,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long the upstream may take to answer with a response head.
    pub response_timeout: Duration,
    /// How long a body may make no progress, either way.
    pub idle_timeout: Duration,
}

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Name or address.
    pub host: Box<str>,
    /// TCP port.
    pub port: u16,
}

/// What clients are told.
#[derive(Clone, Debug)]
pub struct Responses {
    /// Which limit headers.
    pub headers: HeaderProfile,
    /// Status of a denial: 429 or 403.
    pub denied_status: StatusCode,
    /// Where the API's limits are explained.
    pub documentation_url: Option<Cow<'static, str>>,
    /// The protection space named in `WWW-Authenticate`.
    pub realm: Cow<'static, str>,
    /// Where callers can ask how they stand; none: nowhere.
    pub rate_limit_path: Option<Cow<'static, str>>,
    /// Up to so much is added to `Retry-After`, so that clients do not come back all at once.
    pub jitter: Duration,
    /// Whether responses name the limits in shadow mode that would have denied.
    pub shadow_header: bool,
}

impl Responses {
    /// What clients are told that no policy is for.
    pub const DEFAULT: Responses = Responses {
        headers: HeaderProfile::Github,
        denied_status: StatusCode::TOO_MANY_REQUESTS,
        documentation_url: None,
        realm: Cow::Borrowed("tollgate"),
        rate_limit_path: None,
        jitter: Duration::ZERO,
        shadow_header: false,
    };
}

/// Which limit headers responses carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderProfile {
    /// `x-ratelimit-limit`, `-remaining`, `-used`, `-reset`, `-resource`.
    #[default]
    Github,
    /// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10).
    Ietf,
    /// Both of these.
    Both,
    /// None.
    None,
}

impl HeaderProfile {
    /// Whether responses carry the five headers.
    pub fn shows_github(self) -> bool {
        matches!(self, HeaderProfile::Github | HeaderProfile::Both)
    }

    /// Whether responses carry the two fields.
    pub fn shows_ietf(self) -> bool {
        matches!(self, HeaderProfile::Ietf | HeaderProfile::Both)
    }
}
