//! A policy: who is calling, what the limits are, which route charges which. Immutable once loaded.
//!
//! A request takes one snapshot of all policies and keeps it to its end. Counters live in the
//! store, never here.
//!
//! It describes: it knows no connections, no state of servers and no counters.
//!
//! The types to know first:
//!
//! - [`Policies`]: every policy that is in force, found by host.
//! - [`Policy`]: one policy file, compiled.
//! - [`Route`]: what happens to the requests that match.
//! - [`Limit`]: how much, by tier, and what it is counted per.
//! - [`Upstream`]: a group of interchangeable servers.

mod allowance;
mod callers;
mod case;
mod compile;
mod cors;
mod cost;
mod descriptors;
mod facts;
mod file;
mod headers;
mod key_part;
mod limit;
mod matcher;
mod networks;
mod overrides;
mod own_headers;
mod path_reading;
mod published;
mod rate;
mod rewrite;
mod upstream;

use std::{borrow::Cow, collections::HashMap, sync::Arc, time::Duration};

use http::{HeaderName, Method, StatusCode};
use tollgate_graphql::Measure;
use tollgate_identity::{Auth, IdentityRules, Issuer, PublishedKeys, Scheme};
use tollgate_usage::request::Members;
use tollgate_wire::{method_override::MethodOverride, target::EncodedSlash};
use tollgate_yaml::warning::Warning;

use self::compile::warnings::warn_across;

pub use self::{
    allowance::{Allowance, Allowances, RefundBound, are_alike},
    callers::{CallerList, CallerName},
    case::{Begin, Case, Expect, Given, MAX_REQUESTS},
    compile::{load, warnings::Vouchers},
    cors::{Cors, OriginPattern, Origins, Preflight},
    cost::{
        AskedUsage, BodyCost, BodyMember, Cost, CostSource, MemberReserve, MessageCosts, Reserve,
        StreamUsage, UnfitMember, Unfitness, query_units, units_of,
    },
    descriptors::{DescriptorCharge, DescriptorKey, DescriptorRule, DescriptorValue},
    facts::Fact,
    file::schema,
    headers::{HeaderFamily, HeaderProfile, is_reserved},
    key_part::{Chooser, KeyPart, KeyValue, MCP_SESSION_ID, NamedKey, Wanted},
    limit::{Enforcement, Limit, OnMissing, OpenParts, Per, Refund, Statuses},
    matcher::{
        HostPattern, Matcher, PathPattern, PatternError, Request, RequestPath, RoutePart, Router,
    },
    networks::{AddressRefusal, AddressRules, Networks},
    overrides::{Override, Overrides},
    own_headers::OwnHeaders,
    path_reading::{
        Framework, LetterCase, MatrixParams, PathInfo, PathReading, Suffix, TrailingSlash,
    },
    rate::{Period, Rate, RateError},
    rewrite::{HeaderEdits, PathRewrite},
    upstream::{
        Balance, Bounds, Ejection, HealthCheck, Protocol, Retries, Server, Sharing, Transport,
        Upstream, UpstreamPosition, UpstreamTls,
    },
};
pub use self::{networks::in_words, published::published_secret};

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
    /// For how long a unit counts at most, by any limit.
    pub fn longest(&self) -> Duration {
        let limits = self.policies.iter().flat_map(|policy| &policy.limits);
        let allowances = limits.flat_map(|limit| {
            let overrides = limit.overrides.0.iter().map(|other| &other.allowances);
            limit.rates.iter().chain(&limit.candidate).chain(overrides).flatten()
        });
        allowances.map(|allowance| allowance.quota.longest()).max().unwrap_or_default()
    }

    /// Indexes policies by their hosts, numbers them, their parts and published keys, and protects
    /// the upstreams of each from what clients write in the headers of any; and warns of callers of
    /// two who have one name. That no two policies claim the same host is checked at load.
    pub fn new(mut policies: Vec<Policy>) -> Self {
        share_own_headers(&mut policies);
        warn_across(&mut policies);
        number_parts(&mut policies);
        PublishedKeys::number(policies.iter_mut().flat_map(|policy| &mut policy.identity.issuers));
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

    /// The issuers of all policies.
    pub fn issuers(&self) -> impl Iterator<Item = &Issuer> {
        self.policies.iter().flat_map(|policy| &policy.identity.issuers)
    }

    /// The upstream at this position.
    pub fn upstream_at(&self, position: UpstreamPosition) -> Option<&Upstream> {
        self.policies.get(position.policy)?.upstreams.get(position.upstream)
    }

    /// All policies, in the order of their file names.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter()
    }
}

/// Reserves the headers in which one policy sends claims to an upstream under all policies: no
/// client may write them on the way to the same upstream by another host.
fn share_own_headers(policies: &mut [Policy]) {
    let own = |policy: &Policy| {
        let all = policies.iter().map(|policy| &policy.identity);
        Arc::new(OwnHeaders::new(&policy.identity, &policy.limits, policy.method_override, all))
    };
    let all: Vec<Arc<OwnHeaders>> = policies.iter().map(own).collect();
    for (policy, own) in policies.iter_mut().zip(all) {
        for upstream in &mut policy.upstreams {
            upstream.own_headers = Arc::clone(&own);
        }
    }
}

/// Gives policies, upstreams, routes and limits their positions.
fn number_parts(policies: &mut [Policy]) {
    for (policy, own) in policies.iter_mut().enumerate() {
        own.position = policy;
        for (upstream, own) in own.upstreams.iter_mut().enumerate() {
            own.position = UpstreamPosition { policy, upstream };
        }
        own.routes.iter_mut().enumerate().for_each(|(route, own)| own.position = route);
        own.limits.iter_mut().enumerate().for_each(|(limit, own)| own.position = limit);
    }
}

/// One policy file, compiled.
pub struct Policy {
    /// The file's name without its ending; part of every counter's key.
    pub name: Box<str>,
    /// Its position among all policies.
    pub position: usize,
    /// Hosts it is for; empty: every host that no other policy names.
    pub hosts: Vec<HostPattern>,
    /// Where requests go.
    pub upstreams: Vec<Upstream>,
    /// Who is calling.
    pub identity: IdentityRules,
    /// The limits, referred to by position.
    pub limits: Vec<Limit>,
    /// What costs and keys need of the bodies of requests; none: nothing.
    pub members: Option<Members>,
    /// Which of them descriptors are charged to, in the order of the file.
    pub descriptors: Vec<DescriptorRule>,
    /// What an escaped slash in a path stands for.
    pub encoded_slash: EncodedSlash,
    /// What is done with fields that override the method.
    pub method_override: MethodOverride,
    /// Finds the position of a request's route.
    pub router: Router,
    /// In the order of the file.
    pub routes: Vec<Route>,
    /// How responses are made.
    pub responses: Responses,
    /// What pages of other origins may read where a route does not say, and of the endpoint of
    /// standings; none: nothing.
    pub cors: Option<Arc<Cors>>,
    /// Who is charged nothing.
    pub exempt: CallerList,
    /// Who is refused.
    pub deny: CallerList,
    /// What the access log may tell of requests beside what each line has.
    pub facts: Vec<Fact>,
    /// The limit to report where a response can report only one: a position in `limits`.
    pub core: Option<usize>,
    /// Requests and the responses expected; requests of clients do not read this.
    pub tests: Vec<Case>,
    /// What is surely not meant, in the order of the file.
    pub warnings: Vec<Warning>,
    /// What is good to know, a line each.
    pub notes: Vec<String>,
    /// Who vouches for its subjects, for the warning about those of other policies.
    pub vouchers: Vouchers,
}

impl Policy {
    /// The route that a request takes, the first that matches, and where it leads.
    pub fn route(&self, request: Request<'_>) -> Option<(&Route, &Upstream)> {
        let route = self.routes.get(self.router.route(request)?)?;
        Some((route, self.upstreams.get(route.upstream)?))
    }

    /// Whether servers of any upstream may take a POST for the method that its query names.
    pub fn reads_method_in_query(&self) -> bool {
        let mut readings = self.upstreams.iter().filter_map(|upstream| upstream.paths);
        readings.any(PathReading::reads_method_in_query)
    }

    /// Positions of all limits, that of `core` first.
    pub fn core_first(&self) -> impl Iterator<Item = usize> {
        let others = (0..self.limits.len()).filter(|at| Some(*at) != self.core);
        self.core.into_iter().chain(others)
    }

    /// Whether an escaped slash is a part of its segment, and goes on as it is.
    pub fn keeps_encoded_slashes(&self) -> bool {
        self.encoded_slash == EncodedSlash::Keep
    }

    /// The response fields that say what requests on a route have cost.
    pub fn cost_headers<'p>(&'p self, route: &'p Route) -> impl Iterator<Item = &'p HeaderName> {
        let limits = route.limits.iter().filter_map(|at| self.limits.get(*at));
        let own = limits.map(|limit| &limit.cost).filter(|_| route.cost.is_none());
        route.cost.iter().chain(own).filter_map(Cost::header)
    }
}

/// What happens to the requests that match.
#[derive(Debug)]
pub struct Route {
    /// The path pattern as written: what logs call the route.
    pub name: Box<str>,
    /// What metrics call the route: the name that the policy gives it, else the path pattern.
    pub label: Box<str>,
    /// Its position among the routes of its policy.
    pub position: usize,
    /// The path pattern, for its parameters.
    pub path: PathPattern,
    /// How the servers of its upstream read paths.
    pub reading: PathReading,
    /// The methods that it takes, HEAD with GET; empty: all.
    pub methods: Vec<Method>,
    /// Which client addresses it lets in.
    pub addresses: AddressRules,
    /// Whether a caller must show a token.
    pub auth: Auth,
    /// Scopes that a token must grant, all of them.
    pub scopes: Vec<Box<str>>,
    /// Limits to charge, primary first: positions in [`Policy::limits`].
    pub limits: Vec<usize>,
    /// Where to forward to: position in [`Policy::upstreams`].
    pub upstream: usize,
    /// What a request costs here; none: what its limits say.
    pub cost: Option<Cost>,
    /// What is read of the bodies of requests before they are charged.
    pub body: BodyReading,
    /// Bytes that a request's body may have; none: any number.
    pub max_body: Option<u64>,
    /// What pages of other origins may read; none: what the upstream says.
    pub cors: Option<Arc<Cors>>,
    /// Protocols that a request may switch to (`Upgrade`), in lower case.
    pub upgrades: Vec<Box<str>>,
    /// What the upstream is asked for instead of the path.
    pub rewrite: PathRewrite,
    /// What is changed about the head of a request, at last.
    pub request_headers: HeaderEdits,
    /// What is changed about the head of an upstream's response, at first.
    pub response_headers: Arc<HeaderEdits>,
}

/// What a route reads of the bodies of requests before they are charged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyReading {
    /// Whether it looks into them at all.
    pub is_any: bool,
    /// Whether it reads messages of the Model Context Protocol.
    pub is_of_messages: bool,
    /// By which measures it counts GraphQL.
    pub measures: Vec<Measure>,
}

/// How responses are made.
#[derive(Clone, Debug)]
pub struct Responses {
    /// Which limit headers.
    pub headers: HeaderProfile,
    /// Status of a denial: 400 to 499, or 503.
    pub denied_status: StatusCode,
    /// The same to clients of the Model Context Protocol before its revision 2026-07-28, some of
    /// which end their session at any status but 200; none: the same.
    pub mcp_denied_status: Option<StatusCode>,
    /// Where the API's limits are explained.
    pub documentation_url: Option<Cow<'static, str>>,
    /// The protection space named in `WWW-Authenticate`.
    pub realm: Cow<'static, str>,
    /// The schemes named there: at least one, those of tokens first.
    pub schemes: Cow<'static, [Scheme]>,
    /// Where callers can ask how they stand; none: nowhere.
    pub rate_limit_path: Option<Cow<'static, str>>,
    /// Up to so much is added to `Retry-After`, so that clients do not come back all at once.
    pub jitter: Duration,
    /// Whether responses name the limits in shadow mode that would have denied.
    pub shadow_header: bool,
}

impl Responses {
    /// How responses to requests without a policy are made.
    pub const DEFAULT: Responses = Responses {
        headers: HeaderProfile::Github,
        denied_status: StatusCode::TOO_MANY_REQUESTS,
        mcp_denied_status: None,
        documentation_url: None,
        realm: Cow::Borrowed("tollgate"),
        schemes: Cow::Borrowed(&[Scheme::Bearer]),
        rate_limit_path: None,
        jitter: Duration::ZERO,
        shadow_header: false,
    };
}
