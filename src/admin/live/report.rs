//! What the dashboard shows: what there is, and how it changes each second.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_clock::Timestamp;
use tollgate_gate::{Shared, Snapshot};
use tollgate_identity::RemoteStatus;
use tollgate_observe::sketch::LimitRef;
use tollgate_policy::{Allowances, Enforcement, Limit, Override, Policy};
use tollgate_preview::diff::words;

use super::{
    Recent,
    counts::{
        AddedQuantiles, CountTotals, RequestCounts, RequestRates, TierCounts, TierName, rate,
    },
    steps::{MAX_TIERS, STEP, Step, Steps, TierStep},
};
use crate::admin::{Context, Phase, RefusedReload, UpstreamStatus, upstreams};

/// The most overrides of a limit that are shown.
const MAX_OVERRIDES: usize = 50;

/// How it is, and how it was in the last seconds.
#[derive(Deserialize, Serialize, JsonSchema)]
pub(in crate::admin) struct LiveReport {
    /// When that is, as RFC 3339 writes it.
    time: String,
    /// When the process was started.
    started: String,
    /// What the process is in the middle of.
    phase: Phase,
    /// Which configuration is in force: ask `/history` again when it is another one.
    generation: u64,
    /// A short name of the policies.
    digest: String,
    /// Requests since the start.
    requests: RequestCounts,
    /// Requests that have begun and not ended.
    in_flight: u64,
    /// Connections of clients.
    connections: u64,
    /// Requests a second, of the last five seconds.
    rates: RequestRates,
    /// What the proxy itself took, in the last five seconds.
    added: AddedQuantiles,
    /// How many steps of five seconds have ended.
    step: u64,
    /// The last of them.
    latest_step: Step,
    /// Each limit and tier, in the order of the policies.
    tiers: Vec<LiveTier>,
    /// What is wrong with the latest configuration, if that is why it is not in force.
    refused: Option<RefusedReload>,
    /// Sections of the settings file that need a restart.
    needs_restart: Vec<String>,
    /// `memory` or `redis`.
    store: String,
    /// Why some or all callers are decided without Redis.
    store_problems: Vec<String>,
    /// Where requests are forwarded to.
    upstreams: Vec<UpstreamStatus>,
    /// Why keys of issuers could not be fetched the last time, or that there never were any.
    key_problems: Vec<KeyProblem>,
    /// The number of the latest denial: ask `/denials` when it has changed.
    latest_denial: u64,
}

/// Keys of an issuer that could not be fetched.
#[derive(Deserialize, Serialize, JsonSchema)]
struct KeyProblem {
    /// Where from.
    url: String,
    /// Why.
    problem: String,
}

/// A limit and a tier, as it is.
#[derive(Deserialize, Serialize, JsonSchema)]
struct LiveTier {
    /// The policy.
    policy: String,
    /// The limit.
    limit: String,
    /// The tier.
    tier: String,
    /// What was decided since the start.
    counts: TierCounts,
    /// What candidate rates would have decided, if there are any.
    candidate: Option<CandidateTier>,
    /// Requests a second that were allowed, of the last five seconds.
    allowed_per_second: f64,
    /// Those that were denied, or would have been.
    denied_per_second: f64,
    /// Units a second that were charged and not given back.
    units_per_second: f64,
    /// About how many callers have used more than 80 %, or were denied, in this minute or the last.
    near_callers: u64,
    /// The last step of five seconds.
    latest_step: TierStep,
}

/// What candidate rates would have decided.
#[derive(Deserialize, Serialize, JsonSchema)]
struct CandidateTier {
    /// Since the start.
    counts: TierCounts,
    /// In the last step of five seconds.
    latest_step: TierStep,
}

/// The last hour, and what does not change until a reload.
#[derive(Deserialize, Serialize, JsonSchema)]
pub(in crate::admin) struct History {
    /// When it was asked.
    time: String,
    /// When the process was started.
    started: String,
    /// The version of the program.
    version: String,
    /// Which configuration is in force.
    generation: u64,
    /// The length of a step.
    step_seconds: u64,
    /// How many steps have ended.
    step: u64,
    /// Up to 720 of them, the oldest first.
    steps: Vec<Step>,
    /// The limits in force, in the order of the policies.
    limits: Vec<LimitHistory>,
    /// Limits with a tier that are left out: at most 256 are shown.
    left_out: usize,
}

/// A limit.
#[derive(Deserialize, Serialize, JsonSchema)]
struct LimitHistory {
    /// The policy.
    policy: String,
    /// Its name.
    limit: String,
    /// What it counts by.
    per: String,
    /// `enforced`, `shadow` or `percent`.
    mode: String,
    /// For how many percent of callers it is enforced, if not for all or none.
    percent: Option<u8>,
    /// Each tier.
    tiers: Vec<TierHistory>,
    /// Other rates for single callers, at most 50.
    overrides: Vec<OverrideInfo>,
    /// How many overrides there are.
    all_overrides: usize,
}

/// A tier of a limit.
#[derive(Deserialize, Serialize, JsonSchema)]
struct TierHistory {
    /// Its name.
    tier: String,
    /// How much it may use, in each window; none: as much as it likes.
    rates: Vec<String>,
    /// What was decided in each step: as many as there are of `steps`, or none at all if there was
    /// nothing to decide.
    steps: Vec<TierStep>,
    /// The candidate rates, if there are any.
    candidate: Option<CandidateHistory>,
}

/// The candidate rates of a tier.
#[derive(Deserialize, Serialize, JsonSchema)]
struct CandidateHistory {
    /// How much it might use, in each window.
    rates: Vec<String>,
    /// What they would have decided in each step, or none at all.
    steps: Vec<TierStep>,
}

/// Another rate for some requests.
#[derive(Deserialize, Serialize, JsonSchema)]
struct OverrideInfo {
    /// Whose.
    of: String,
    /// How much, in each window.
    rates: Vec<String>,
    /// When it ends; none: it has no end.
    until: Option<String>,
    /// Whether it has ended.
    has_ended: bool,
    /// The reason that the policy gives.
    why: String,
}

/// A limit in force, with a tier.
struct TierInForce<'p> {
    limit: &'p Limit,
    name: TierName,
    rates: &'p Allowances,
    candidate: Option<&'p Allowances>,
}

impl LiveReport {
    /// At the latest instant of `recent`.
    pub(super) fn of(context: &Context, steps: &Steps, recent: &Recent) -> LiveReport {
        let Context { shared, state, phase, started, .. } = context;
        let now = shared.clock.now();
        let report = state.report();
        let latest = recent.latest();
        let (seconds, earlier) = recent.earlier();
        let keys = context.remote_keys().into_iter();
        let key_problem =
            |own: RemoteStatus| Some(KeyProblem { problem: own.problem()?, url: own.url });
        let snapshot = shared.snapshot();
        LiveReport {
            time: now.to_string(),
            started: started.to_string(),
            phase: phase.get(),
            generation: report.generation,
            digest: report.digest,
            requests: latest.requests,
            in_flight: latest.in_flight,
            connections: shared.admission.connections() as u64,
            rates: RequestRates::of(latest.requests.since(earlier.requests), seconds),
            added: latest.added.since(&earlier.added),
            step: steps.number,
            latest_step: steps.all.back().copied().unwrap_or_default(),
            tiers: live_tiers(shared, &snapshot, steps, (seconds, &earlier, &latest)),
            refused: report.refused.map(RefusedReload::from),
            needs_restart: report.needs_restart.iter().map(ToString::to_string).collect(),
            store: shared.stores.settings().current.name().into(),
            store_problems: shared.stores.degradations().iter().map(ToString::to_string).collect(),
            upstreams: upstreams::all(shared).into_iter().map(Into::into).collect(),
            key_problems: keys.filter_map(key_problem).collect(),
            latest_denial: shared.denials.latest(),
        }
    }
}

fn live_tiers(
    shared: &Shared,
    snapshot: &Snapshot,
    steps: &Steps,
    (seconds, earlier, latest): (f64, &CountTotals, &CountTotals),
) -> Vec<LiveTier> {
    let now = shared.clock.now();
    let mut near: Option<(LimitRef, Vec<_>)> = None;
    let tiers = snapshot.policies.iter().flat_map(in_force).take(MAX_TIERS).map(|own| {
        let TierName { policy, limit, tier } = &own.name;
        let limit_ref = LimitRef { policy: policy.clone(), limit: limit.clone() };
        // Once for all tiers of a limit, which follow each other.
        if near.as_ref().is_none_or(|(of, _)| *of != limit_ref) {
            let callers = shared.series.callers.near(&limit_ref, now);
            near = Some((limit_ref, callers));
        }
        let of_tier = near.iter().flat_map(|(_, all)| all).filter(|near| *near.tier == **tier);
        let near_callers = of_tier.map(|near| near.this_minute.max(near.last_minute)).sum();
        let (counts, before) = (latest.of_tier(&own.name), earlier.of_tier(&own.name));
        let since = |number: fn(&TierCounts) -> u64| {
            rate(number(&counts).saturating_sub(number(&before)), seconds)
        };
        LiveTier {
            policy: policy.to_string(),
            limit: limit.to_string(),
            tier: tier.to_string(),
            counts,
            candidate: own.candidate.map(|_| {
                let name = own.name.candidate();
                let latest_step = steps.of_tier(&name).last().unwrap_or_default();
                CandidateTier { counts: latest.of_tier(&name), latest_step }
            }),
            allowed_per_second: since(|own| own.allowed),
            denied_per_second: since(|own| own.denied + own.would_be_denied),
            units_per_second: since(|own| own.charged.saturating_sub(own.refunded)),
            near_callers,
            latest_step: steps.of_tier(&own.name).last().unwrap_or_default(),
        }
    });
    tiers.collect()
}

impl History {
    /// Until the last step.
    pub(super) fn of(steps: &Steps, context: &Context) -> History {
        let Context { shared, state, started, .. } = context;
        let now = shared.clock.now();
        let snapshot = shared.snapshot();
        let all: Vec<TierInForce<'_>> = snapshot.policies.iter().flat_map(in_force).collect();
        let left_out = all.len().saturating_sub(MAX_TIERS);
        let mut limits: Vec<LimitHistory> = Vec::new();
        for own in all.into_iter().take(MAX_TIERS) {
            let TierName { policy, limit, .. } = &own.name;
            let is_next = |last: &LimitHistory| *last.policy != **policy || *last.limit != **limit;
            if limits.last().is_none_or(is_next) {
                limits.push(LimitHistory::of(policy, own.limit, now));
            }
            let tier = TierHistory::of(&own, steps);
            if let Some(last) = limits.last_mut() {
                last.tiers.push(tier);
            }
        }
        History {
            time: now.to_string(),
            started: started.to_string(),
            version: env!("CARGO_PKG_VERSION").into(),
            generation: state.report().generation,
            step_seconds: STEP.as_secs(),
            step: steps.number,
            steps: steps.all.iter().copied().collect(),
            limits,
            left_out,
        }
    }
}

impl LimitHistory {
    fn of(policy: &str, limit: &Limit, now: Timestamp) -> LimitHistory {
        let (mode, percent) = match limit.enforcement {
            Enforcement::AllCallers => ("enforced", None),
            Enforcement::Shadow => ("shadow", None),
            Enforcement::Percent(percent) => ("percent", Some(percent)),
        };
        let per: Vec<String> = limit.per.parts.iter().map(ToString::to_string).collect();
        let overrides = &limit.overrides.0;
        LimitHistory {
            policy: policy.into(),
            limit: limit.name.to_string(),
            per: per.join(" and "),
            mode: mode.into(),
            percent,
            tiers: Vec::new(),
            overrides: overrides
                .iter()
                .take(MAX_OVERRIDES)
                .map(|own| OverrideInfo::of(own, now))
                .collect(),
            all_overrides: overrides.len(),
        }
    }
}

impl TierHistory {
    fn of(own: &TierInForce<'_>, steps: &Steps) -> TierHistory {
        TierHistory {
            tier: own.name.tier.to_string(),
            rates: in_words(own.rates),
            steps: unless_empty(steps, &own.name),
            candidate: own.candidate.map(|rates| CandidateHistory {
                rates: in_words(rates),
                steps: unless_empty(steps, &own.name.candidate()),
            }),
        }
    }
}

/// The steps of a tier; none if nothing was decided in any.
fn unless_empty(steps: &Steps, name: &TierName) -> Vec<TierStep> {
    let all: Vec<TierStep> = steps.of_tier(name).collect();
    let has_some = all.iter().any(|step| *step != TierStep::default());
    if has_some { all } else { Vec::new() }
}

impl OverrideInfo {
    fn of(own: &Override, now: Timestamp) -> OverrideInfo {
        OverrideInfo {
            of: own.to_string(),
            rates: in_words(&own.allowances),
            until: own.until.map(|until| until.to_string()),
            has_ended: !own.is_in_force(now),
            why: own.why.to_string(),
        }
    }
}

/// Each limit of a policy with each tier.
fn in_force(policy: &Policy) -> impl Iterator<Item = TierInForce<'_>> {
    policy.limits.iter().flat_map(|limit| {
        let tiers = policy.identity.tiers.names().enumerate().zip(&limit.rates);
        tiers.map(|((position, tier), rates)| TierInForce {
            limit,
            name: TierName {
                policy: policy.name.clone(),
                limit: limit.name.clone(),
                tier: tier.into(),
            },
            rates,
            candidate: limit.candidate.get(position),
        })
    })
}

fn in_words(allowances: &Allowances) -> Vec<String> {
    allowances.iter().map(|allowance| words::quota(&allowance.quota)).collect()
}
