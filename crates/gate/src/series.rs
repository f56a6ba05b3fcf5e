//! The names of what is counted of requests, and each worker's counters for them.
//!
//! A name that a policy has had once keeps its counters until the process ends, also if a reload
//! removes it, so that no number that only grows ever falls.

use std::{
    collections::BTreeMap,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tollgate_identity::AuthResult;
use tollgate_observe::{
    metrics::{
        ADDED_SECONDS, Histogram, HistogramTotal, LimitCounters, LimitDecision, LimitSeries,
        MethodLabel, PolicyCounters, PolicySeries, REQUEST_SECONDS, RequestTotal, RouteCounters,
    },
    sketch::{CallerBook, LimitRef},
};
use tollgate_policy::{Limit, Policies, Policy};

use super::Snapshot;

/// What stands in for the name of a policy or a route where there is none.
const NO_NAME: &str = "_none";

/// The names of all policies so far, with the counters of all workers.
#[derive(Default)]
pub struct SeriesBook {
    policies: Mutex<BTreeMap<Box<str>, PolicyNames>>,
    /// Who uses each limit most.
    pub callers: CallerBook,
    /// How often names were entered.
    generation: AtomicU64,
}

/// The names of a policy.
#[derive(Default)]
struct PolicyNames {
    own: PerWorker<PolicyCounters>,
    routes: BTreeMap<Box<str>, RouteName>,
    limits: BTreeMap<LimitName, PerWorker<LimitCounters>>,
}

/// A route's label. Several routes of a policy may share one.
#[derive(Default)]
struct RouteName {
    counters: PerWorker<RouteCounters>,
    /// What the route is known to answer, which is shown before there is a request.
    expected: RequestTotal,
}

/// A limit and a tier.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct LimitName {
    limit: Box<str>,
    tier: Box<str>,
}

/// Counters by the number of the worker.
struct PerWorker<T>(Vec<Arc<T>>);

/// A worker's counters of all policies in force.
pub(super) struct WorkerSeries {
    /// The generation of the policies.
    generation: u64,
    /// By the position of the policy.
    policies: Vec<Rc<PolicySeries>>,
    /// Those of requests that no policy is for.
    no_policy: Rc<PolicySeries>,
}

/// What was counted of a policy, by all workers together.
pub struct PolicyTotal {
    /// Its name.
    pub policy: Box<str>,
    /// Requests that have begun and not ended.
    pub in_flight: u64,
    /// Bytes of requests' bodies.
    pub received: u64,
    /// Bytes of responses' bodies.
    pub sent: u64,
    /// Requests by [`AuthResult`], in the order of its keywords.
    pub auth: Vec<u64>,
    /// Requests whose token names a tier that there is not.
    pub unknown_tiers: u64,
    /// What the proxy itself took for a request.
    pub added: HistogramTotal,
    /// What was counted of each route.
    pub routes: Vec<RouteTotal>,
    /// What was counted of each limit and tier.
    pub limits: Vec<LimitTotal>,
}

/// What was counted of a route.
pub struct RouteTotal {
    /// Its label.
    pub route: Box<str>,
    /// Requests by method and status.
    pub requests: RequestTotal,
    /// How long they took.
    pub duration: HistogramTotal,
}

/// What was counted of a limit and a tier.
pub struct LimitTotal {
    /// The limit's name; with `;candidate` after it, of its candidate rates.
    pub limit: Box<str>,
    /// The tier's name.
    pub tier: Box<str>,
    /// Decisions, in the order of [`LimitDecision::ALL`].
    pub decisions: [u64; 5],
    /// Units that requests have taken.
    pub charged: u64,
    /// Those of them that were given back.
    pub refunded: u64,
    /// Units that requests have reserved whose responses have told their costs.
    pub reserved: u64,
    /// What these have cost.
    pub settled: u64,
    /// How much of that was not reserved.
    pub debt: u64,
}

/// What a limit's candidate rates are called where each name is counted.
pub fn candidate_name(limit: &str) -> String {
    format!("{limit};candidate")
}

impl SeriesBook {
    /// Enters the names of policies, so that their numbers are shown as 0 from now on. Returns the
    /// generation of these policies: no others have the same.
    pub(super) fn enter(&self, policies: &Policies) -> u64 {
        self.callers.enter(policies.iter().flat_map(limit_refs));
        let mut names = self.policies.lock();
        names.entry(NO_NAME.into()).or_default();
        for policy in policies.iter() {
            let own = names.entry(policy.name.clone()).or_default();
            own.routes.entry(NO_NAME.into()).or_default();
            for route in &policy.routes {
                let denied = policy.responses.denied_status.as_u16();
                let name = own.routes.entry(route.label.clone()).or_default();
                let method = route.methods.first().map_or(MethodLabel::GET, MethodLabel::of);
                for status in [200, denied] {
                    name.expected.insert(Some((method, status)), 0);
                }
            }
            for name in limit_names(policy) {
                own.limits.entry(name).or_default();
            }
        }
        self.generation.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The counters of a worker for these policies.
    pub(super) fn of_worker(&self, worker: usize, snapshot: &Snapshot) -> WorkerSeries {
        let Snapshot { generation, policies, .. } = snapshot;
        let mut names = self.policies.lock();
        let mut series_of = |policy: Option<&Policy>| {
            let name = policy.map_or(NO_NAME, |policy| &policy.name);
            let own = names.entry(name.into()).or_default().of_worker(worker, policy);
            Rc::new(self.with_callers(own, worker, policy))
        };
        WorkerSeries {
            generation: *generation,
            no_policy: series_of(None),
            policies: policies.iter().map(|policy| series_of(Some(policy))).collect(),
        }
    }

    /// The same, with the places where callers are noted.
    fn with_callers(
        &self,
        own: PolicySeries,
        worker: usize,
        policy: Option<&Policy>,
    ) -> PolicySeries {
        let Some(policy) = policy else { return own };
        let mut own = own;
        for (limit, series) in policy.limits.iter().zip(&mut own.limits) {
            series.callers = self.callers.of_worker(worker, &limit_ref(policy, limit));
        }
        let tiers = policy.identity.tiers.names();
        PolicySeries {
            tier_numbers: tiers.map(|tier| self.callers.tier_number(tier)).collect(),
            ..own
        }
    }

    /// What was counted so far.
    pub fn totals(&self) -> Vec<PolicyTotal> {
        let names = self.policies.lock();
        names.iter().map(|(policy, names)| names.total(policy)).collect()
    }
}

fn limit_refs(policy: &Policy) -> impl Iterator<Item = LimitRef> {
    policy.limits.iter().map(|limit| limit_ref(policy, limit))
}

fn limit_ref(policy: &Policy, limit: &Limit) -> LimitRef {
    LimitRef { policy: policy.name.clone(), limit: limit.name.clone() }
}

/// The names of each limit and its candidate rates, with each tier.
fn limit_names(policy: &Policy) -> impl Iterator<Item = LimitName> {
    policy.limits.iter().flat_map(|limit| {
        let candidate = (!limit.candidate.is_empty()).then(|| candidate_name(&limit.name).into());
        let names = [Some(limit.name.clone()), candidate];
        names.into_iter().flatten().flat_map(|limit: Box<str>| {
            let tiers = policy.identity.tiers.names();
            let names = tiers.map(|tier| LimitName { limit: limit.clone(), tier: tier.into() });
            names.collect::<Vec<_>>()
        })
    })
}

impl PolicyNames {
    fn of_worker(&mut self, worker: usize, policy: Option<&Policy>) -> PolicySeries {
        let PolicyNames { own, routes, limits } = self;
        let own = own.get_or(worker, || PolicyCounters::new(AuthResult::words().len()));
        let mut route = |label: &str| {
            let name = routes.entry(label.into()).or_default();
            name.counters.get_or(worker, RouteCounters::default)
        };
        let no_route = route(NO_NAME);
        let Some(policy) = policy else {
            let (routes, limits, tier_numbers) = (Vec::new(), Vec::new(), Vec::new());
            return PolicySeries { own, routes, no_route, limits, tier_numbers };
        };
        let routes = policy.routes.iter().map(|own| route(&own.label)).collect();
        let mut by_tier = |limit: &str| -> Vec<Arc<LimitCounters>> {
            let tiers = policy.identity.tiers.names();
            let counters = tiers.map(|tier| {
                let name = LimitName { limit: limit.into(), tier: tier.into() };
                limits.entry(name).or_default().get_or(worker, LimitCounters::default)
            });
            counters.collect()
        };
        let limits = policy.limits.iter().map(|limit| LimitSeries {
            rates: by_tier(&limit.name),
            candidate: match limit.candidate.is_empty() {
                true => Vec::new(),
                false => by_tier(&candidate_name(&limit.name)),
            },
            callers: None,
        });
        PolicySeries { own, routes, no_route, limits: limits.collect(), tier_numbers: Vec::new() }
    }

    fn total(&self, policy: &str) -> PolicyTotal {
        let PolicyNames { own, routes, limits } = self;
        let auth = |position: usize| {
            own.sum(|own| own.auth.get(position).map_or(0, tollgate_observe::metrics::Count::get))
        };
        let routes = routes.iter().map(|(route, name)| {
            let mut requests = name.expected.clone();
            name.counters.0.iter().for_each(|own| own.add_to(&mut requests));
            let durations = name.counters.0.iter().map(|own| &own.duration);
            let duration = Histogram::total(&REQUEST_SECONDS, durations);
            RouteTotal { route: route.clone(), requests, duration }
        });
        let limits = limits.iter().map(|(name, counters)| LimitTotal {
            limit: name.limit.clone(),
            tier: name.tier.clone(),
            decisions: LimitDecision::ALL
                .map(|decision| counters.sum(|own| own.of(decision).get())),
            charged: counters.sum(|own| own.charged.get()),
            refunded: counters.sum(|own| own.refunded.get()),
            reserved: counters.sum(|own| own.settlements.reserved.get()),
            settled: counters.sum(|own| own.settlements.settled.get()),
            debt: counters.sum(|own| own.settlements.debt.get()),
        });
        // The ended ones first: a request that ends meanwhile counts as in flight rather than less.
        let ended = own.sum(|own| own.ended.get());
        PolicyTotal {
            policy: policy.into(),
            in_flight: own.sum(|own| own.begun.get()).saturating_sub(ended),
            received: own.sum(|own| own.received.get()),
            sent: own.sum(|own| own.sent.get()),
            auth: (0..AuthResult::words().len()).map(auth).collect(),
            unknown_tiers: own.sum(|own| own.unknown_tiers.get()),
            added: Histogram::total(&ADDED_SECONDS, own.0.iter().map(|own| &own.added)),
            routes: routes.collect(),
            limits: limits.collect(),
        }
    }
}

impl<T> Default for PerWorker<T> {
    fn default() -> Self {
        PerWorker(Vec::new())
    }
}

impl<T> PerWorker<T> {
    /// The counters of a worker, which are made with those of the workers before it.
    fn get_or(&mut self, worker: usize, new: impl Fn() -> T) -> Arc<T> {
        while self.0.len() <= worker {
            self.0.push(Arc::new(new()));
        }
        // There are that many by now.
        self.0.get(worker).map_or_else(|| Arc::new(new()), Arc::clone)
    }

    fn sum(&self, number: impl Fn(&T) -> u64) -> u64 {
        self.0.iter().map(|own| number(own)).sum()
    }
}

impl WorkerSeries {
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The counters of a policy in force; none: of requests that no policy is for.
    pub(super) fn policy(&self, policy: Option<&Policy>) -> &Rc<PolicySeries> {
        let found = policy.and_then(|policy| self.policies.get(policy.position));
        found.unwrap_or(&self.no_policy)
    }
}
