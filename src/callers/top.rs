//! The callers that use limits most, of this proxy; and whatever else limits count by.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_clock::Timestamp;
use tollgate_gate::Shared;
use tollgate_keyword::keywords;
use tollgate_observe::sketch::{KEPT_MINUTES, LimitRef, Measure};

use super::asked_limit;

/// What callers are ranked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RankBy {
    /// Units that they were charged, before refunds.
    #[default]
    Units,
    /// Requests that were denied.
    Denials,
    /// Requests that would have been denied if the limit were enforced.
    #[serde(rename = "would_be_denials")]
    WouldBeDenials,
}

keywords! {
    RankBy { Units = "units", Denials = "denials", WouldBeDenials = "would_be_denials" }
}

/// Which callers are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopQuery {
    /// What they are ranked by.
    pub by: RankBy,
    /// Of which policy; none: of all.
    pub policy: Option<String>,
    /// Of which limit; none: of all.
    pub limit: Option<String>,
    /// Of how many minutes, 1 to 60. The last one is the one that has begun.
    pub minutes: u64,
    /// How many callers at most.
    pub top: usize,
}

/// The callers that use limits most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopReport {
    /// When it was asked.
    pub time: String,
    /// What they are ranked by.
    pub by: RankBy,
    /// Minutes that are counted. The last one is the one that has begun.
    pub minutes: u64,
    /// The callers, those with the highest counts first.
    pub callers: Vec<TopCaller>,
    /// The limits that were asked about.
    pub limits: Vec<TopLimit>,
}

/// A caller of a limit, or what else the limit counts by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopCaller {
    /// Its name, as `tollgate look` takes it: `user:42`, `jwt.org:acme`. A value that may be a
    /// secret is a hash in it.
    pub name: String,
    /// The policy.
    pub policy: String,
    /// The limit.
    pub limit: String,
    /// The tier that its latest request had.
    pub tier: Option<String>,
    /// Units, denials or would-be denials: at most this many.
    pub count: u64,
    /// By how much the count may be too high: the true one is at least `count - error`.
    pub error: u64,
}

/// A limit whose callers are ranked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopLimit {
    /// The policy.
    pub policy: String,
    /// The limit.
    pub limit: String,
    /// Units, denials or would-be denials of all callers. It is exact.
    pub total: u64,
    /// The most that a caller has who is not in the list.
    pub unlisted: u64,
    /// About how many callers have used more than 80 %, by tier. Tiers without any are left out.
    pub near: Vec<NearCallers>,
}

/// How many callers of a tier have used more than 80 % of a limit, or were denied by it: about, as
/// it is counted in a table of fixed size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NearCallers {
    /// The tier.
    pub tier: String,
    /// In the minute that has begun.
    pub this_minute: u64,
    /// In the minute before.
    pub last_minute: u64,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopError {
    /// There is nothing of this name.
    #[error("no {asked}: there are {known}")]
    NoSuchLimit {
        /// What was asked for: ``limit is called `core` ``.
        asked: String,
        /// Those that there are.
        known: String,
    },
    /// More minutes than are kept, or none.
    #[error("ask for 1 to 60 minutes")]
    Minutes,
}

impl Default for TopQuery {
    fn default() -> Self {
        TopQuery { by: RankBy::Units, policy: None, limit: None, minutes: 10, top: 20 }
    }
}

/// The callers that use limits most, at `now`.
///
/// # Errors
/// [`TopError`].
pub fn top(shared: &Shared, query: &TopQuery, now: Timestamp) -> Result<TopReport, TopError> {
    if !(1..=KEPT_MINUTES).contains(&query.minutes) {
        return Err(TopError::Minutes);
    }
    let book = &shared.series.callers;
    let all = book.limits();
    let (policy, limit) = asked_limit(query.policy.as_deref(), query.limit.as_deref());
    let is_asked = |own: &&LimitRef| {
        policy.is_none_or(|policy| *own.policy == *policy)
            && limit.is_none_or(|limit| *own.limit == *limit)
    };
    let asked: Vec<&LimitRef> = all.iter().filter(is_asked).collect();
    if asked.is_empty() && (policy.is_some() || limit.is_some()) {
        return Err(no_such_limit(policy, limit, &all));
    }
    let measure = match query.by {
        RankBy::Units => Measure::Units,
        RankBy::Denials => Measure::Denials,
        RankBy::WouldBeDenials => Measure::WouldBeDenials,
    };
    let mut callers = Vec::new();
    let mut limits = Vec::new();
    for limit in asked {
        let Some(mut summary) = book.summary(limit, measure, query.minutes, now) else { continue };
        summary.keep(query.top);
        let [policy, name] = [&limit.policy, &limit.limit].map(|name| name.to_string());
        limits.push(TopLimit {
            policy: policy.clone(),
            limit: name.clone(),
            total: summary.total,
            unlisted: summary.unlisted,
            near: near(shared, limit, now),
        });
        callers.extend(summary.entries.into_iter().map(|entry| TopCaller {
            name: entry.name.to_string(),
            policy: policy.clone(),
            limit: name.clone(),
            tier: book.tier_name(entry.tier).map(String::from),
            count: entry.most,
            error: entry.most - entry.least,
        }));
    }
    callers.sort_by_key(|caller| std::cmp::Reverse(caller.count));
    callers.truncate(query.top);
    Ok(TopReport { time: now.to_string(), by: query.by, minutes: query.minutes, callers, limits })
}

fn near(shared: &Shared, limit: &LimitRef, now: Timestamp) -> Vec<NearCallers> {
    let near = shared.series.callers.near(limit, now).into_iter();
    let near = near.map(|own| NearCallers {
        tier: own.tier.into(),
        this_minute: own.this_minute,
        last_minute: own.last_minute,
    });
    near.collect()
}

fn no_such_limit(policy: Option<&str>, limit: Option<&str>, all: &[LimitRef]) -> TopError {
    let asked = match (policy, limit) {
        (Some(policy), Some(limit)) => format!("limit of policy `{policy}` is called `{limit}`"),
        (Some(policy), None) => format!("policy with limits is called `{policy}`"),
        (None, limit) => format!("limit is called `{}`", limit.unwrap_or_default()),
    };
    let known: Vec<String> =
        all.iter().map(|own| format!("{}/{}", own.policy, own.limit)).collect();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    TopError::NoSuchLimit { asked, known }
}
