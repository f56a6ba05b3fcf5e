//! The report of a caller's counters, for people and for machines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_clock::Timestamp;
use tollgate_identity::NameError;
use tollgate_limit::{DecidedBy, Decision, Outcome};
use tollgate_policy::{Enforcement, Limit, Policy};
use tollgate_preview::diff::words;
use tollgate_settings::{StoreKind, StoreSettings};

use super::{
    found::{Found, OwnCounters, Row},
    seen::SeenNames,
    shared_limit::SharedLimit,
};

/// How the limits of a caller stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallerReport {
    /// The instant by the clock of the store.
    pub time: String,
    /// One for each policy that knows the caller.
    pub policies: Vec<PolicyReport>,
    /// Policies that want more of the name.
    #[serde(default)]
    pub skipped: Vec<SkippedPolicy>,
}

/// A policy that has such callers, and wants more of the name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkippedPolicy {
    /// The policy.
    pub policy: String,
    /// What it wants.
    pub why: String,
}

impl SkippedPolicy {
    fn all(skipped: &[(&str, NameError)]) -> Vec<SkippedPolicy> {
        let told = skipped.iter().map(|(policy, error)| SkippedPolicy {
            policy: (*policy).to_owned(),
            why: error.to_string(),
        });
        told.collect()
    }
}

/// How the limits of a caller stand under one policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyReport {
    /// The policy.
    pub policy: String,
    /// The caller, as this policy names it.
    pub caller: String,
    /// Who vouches for it.
    pub issuer: Option<String>,
    /// Its tier; none: it is not known, and windows of every tier are shown.
    pub tier: Option<String>,
    /// `exempt` or `deny`, if it is in that list of the policy.
    pub listed: Option<String>,
    /// The limits that count by it alone.
    pub limits: Vec<LimitReport>,
    /// Limits that count by something else as well, and are not shown.
    pub shared: Vec<SharedLimit>,
    /// Limits of the caller's routes that count by something else, and may deny it.
    #[serde(default)]
    pub beside: Vec<SharedLimit>,
}

/// How a limit stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitReport {
    /// Its name.
    pub limit: String,
    /// `enforced`, `shadow`, or `enforced for 10% of callers`.
    pub mode: String,
    /// The override that is in force for the caller.
    pub r#override: Option<OverrideReport>,
    /// Its windows; none: it is unlimited.
    pub windows: Vec<WindowReport>,
}

/// An override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OverrideReport {
    /// When it ends; none: it has no end.
    pub until: Option<String>,
    /// The reason that the policy gives.
    pub why: String,
}

/// How a window stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WindowReport {
    /// What it is called where each window has a name.
    pub name: String,
    /// The tier whose rate it has; none: it is an override's, or all tiers have the same.
    pub tier: Option<String>,
    /// How much, and how that is counted: `5000/hour`.
    pub rate: String,
    /// Whether the rate is only tried out.
    pub is_candidate: bool,
    /// Units that are used.
    pub used: u32,
    /// Units that can be used.
    pub max: u32,
    /// Units that are left.
    pub remaining: u32,
    /// When all are there again; none: no window is open, or it ends with requests in flight.
    pub reset: Option<String>,
    /// Who answered.
    pub answered_by: AnsweredBy,
}

/// Who answered how a window stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnsweredBy {
    /// Counters in the process.
    Memory,
    /// Counters on disk.
    Disk,
    /// Redis.
    Redis,
    /// Counters in the process, which callers are moved to.
    NextMemory,
    /// Counters on disk, which callers are moved to.
    NextDisk,
    /// The Redis that callers are moved to.
    NextRedis,
    /// This proxy's share, while the store does not answer.
    Local,
    /// No store: what was last known is shown.
    None,
}

/// What was reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResetReport {
    /// The limits, as `policy/limit`.
    pub limits: Vec<String>,
    /// The caller, as the first of the policies names it.
    pub caller: String,
    /// Limits that count by something else as well, and are not reset.
    #[serde(default)]
    pub shared: Vec<SharedLimit>,
    /// Policies that want more of the name, and in which nothing was reset.
    #[serde(default)]
    pub skipped: Vec<SkippedPolicy>,
}

impl ResetReport {
    pub(super) fn of(
        Found { own: found, skipped }: &Found<'_>,
        seen: SeenNames<'_>,
    ) -> ResetReport {
        let named = |own: &OwnCounters<'_>| {
            let policy = own.policy.name.clone();
            let limits = own.limits.iter();
            limits.map(move |limit| format!("{policy}/{}", limit.name)).collect::<Vec<_>>()
        };
        ResetReport {
            limits: found.iter().flat_map(named).collect(),
            caller: found.first().map(|own| own.key.name()).unwrap_or_default(),
            shared: found.iter().flat_map(|own| own.with_more(seen)).collect(),
            skipped: SkippedPolicy::all(skipped),
        }
    }
}

/// What stores have said.
pub(super) struct Answer<'a, 'p> {
    /// What they were asked about.
    pub(super) rows: &'a [Row<'p>],
    /// An outcome for each row.
    pub(super) decision: Decision,
    /// When they were asked, by this process' clock.
    pub(super) now: Timestamp,
    /// What finds the names of other counters.
    pub(super) seen: SeenNames<'a>,
}

/// The report.
pub(super) fn of(
    Found { own: found, skipped }: &Found<'_>,
    answer: &Answer<'_, '_>,
    settings: &StoreSettings,
) -> CallerReport {
    let Answer { rows, decision, now, seen } = answer;
    let outcomes: Vec<(&Row<'_>, &Outcome)> = rows.iter().zip(&decision.outcomes).collect();
    let policies = found.iter().map(|own| PolicyReport {
        policy: own.policy.name.to_string(),
        caller: own.key.name(),
        issuer: own.issuer(),
        tier: own.tier().and_then(|tier| tier_name(own.policy, tier)),
        listed: own.listed_as().map(str::to_owned),
        limits: own
            .limits
            .iter()
            .map(|limit| {
                let is_own = |(row, _): &&(&Row<'_>, &Outcome)| std::ptr::eq(row.limit, *limit);
                LimitReport {
                    limit: limit.name.to_string(),
                    mode: mode(limit),
                    r#override: own.override_of(limit, *now).map(|own| OverrideReport {
                        until: own.until.map(|until| until.to_string()),
                        why: own.why.to_string(),
                    }),
                    windows: outcomes
                        .iter()
                        .filter(is_own)
                        .map(|(row, outcome)| window(own, row, outcome, decision, settings))
                        .collect(),
                }
            })
            .collect(),
        shared: own.with_more(*seen),
        beside: own.without(*seen),
    });
    CallerReport {
        time: decision.now.to_string(),
        policies: policies.collect(),
        skipped: SkippedPolicy::all(skipped),
    }
}

fn window(
    own: &OwnCounters<'_>,
    row: &Row<'_>,
    outcome: &Outcome,
    decision: &Decision,
    settings: &StoreSettings,
) -> WindowReport {
    let standing = outcome.standing;
    let is_open =
        standing.used > 0 && standing.reset > decision.now && !row.charge.quota.holds_leases();
    WindowReport {
        name: row.allowance.name.to_string(),
        tier: row.tier.and_then(|tier| tier_name(own.policy, tier)),
        rate: words::quota(row.charge.quota),
        is_candidate: row.is_candidate,
        used: standing.used,
        max: standing.limit,
        remaining: standing.remaining,
        reset: is_open.then(|| standing.reset.to_string()),
        answered_by: answered_by(outcome.decided_by, settings),
    }
}

fn answered_by(decided_by: DecidedBy, settings: &StoreSettings) -> AnsweredBy {
    let next = settings.next.as_ref().map(|moving| &moving.to);
    match (decided_by, &settings.current, next) {
        (DecidedBy::Current, StoreKind::Memory, _) => AnsweredBy::Memory,
        (DecidedBy::Current, StoreKind::Disk(_), _) => AnsweredBy::Disk,
        (DecidedBy::Current, StoreKind::Redis(_), _) => AnsweredBy::Redis,
        (DecidedBy::Next, _, Some(StoreKind::Memory)) => AnsweredBy::NextMemory,
        (DecidedBy::Next, _, Some(StoreKind::Disk(_))) => AnsweredBy::NextDisk,
        (DecidedBy::Next, _, _) => AnsweredBy::NextRedis,
        (DecidedBy::Local, _, _) => AnsweredBy::Local,
        // No look is answered from memory of a denial, or at the time of a client.
        (DecidedBy::ClientTime | DecidedBy::Memo | DecidedBy::NoStore, _, _) => AnsweredBy::None,
    }
}

fn mode(limit: &Limit) -> String {
    match limit.enforcement {
        Enforcement::AllCallers => "enforced".into(),
        Enforcement::Shadow => "shadow".into(),
        Enforcement::Percent(percent) => format!("enforced for {percent}% of callers"),
    }
}

fn tier_name(policy: &Policy, tier: usize) -> Option<String> {
    policy.identity.tiers.get(tier).map(|tier| tier.name.to_string())
}
