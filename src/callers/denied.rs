//! The report of the latest denials.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_gate::{DenialEntry, DenialFilter, FoundDenials, Shared};

/// The latest denials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DenialsReport {
    /// The denials, the oldest first.
    pub denials: Vec<DenialReport>,
    /// The number of the latest denial of all: ask with `after` for those that come next.
    pub latest: u64,
    /// Denials since the start that are not kept, since there were too many at once.
    pub left_out: u64,
}

/// Requests that were denied, or would have been: one, or several of the same caller, for the same
/// limit and reason, with the same method and path, within a minute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DenialReport {
    /// Its number, a higher one than those before. It has another one whenever it is counted up.
    pub seq: u64,
    /// The number that it had first: an entry replaces an earlier one with the same.
    #[serde(default)]
    pub group: u64,
    /// When the first of the requests came.
    pub time: String,
    /// When the latest of them came.
    #[serde(default)]
    pub last: String,
    /// How many they are.
    #[serde(default)]
    pub count: u64,
    /// Its caller, as `tollgate look` takes it. None: it could not be identified.
    pub caller: Option<String>,
    /// The client's address.
    pub address: String,
    /// The policy.
    pub policy: Option<String>,
    /// The limits, if it was for limits; a comma between them.
    pub limit: Option<String>,
    /// Whose counters had no room, as `tollgate look` takes them: `user:42`, `jwt.org:acme`. A
    /// value that may be a secret is a hash.
    #[serde(default)]
    pub counters: Vec<String>,
    /// Why: `limit`, `deny`, `auth`, `scope`, `missing_key` or `store`.
    pub reason: String,
    /// The caller's tier.
    pub tier: Option<String>,
    /// The request's method.
    pub method: String,
    /// Its path, without the query, cut after 256 bytes.
    pub path: String,
    /// The id of the latest, as the log and the response have it.
    pub request_id: String,
    /// `deny`, or `would_deny` if the limits only count.
    pub decision: String,
    /// The status of the response. None: the request went on.
    pub status: Option<u16>,
}

/// The latest `most` denials that fit, of those that came after the one with the number `after`.
pub fn denials(shared: &Shared, after: u64, filter: &DenialFilter, most: usize) -> DenialsReport {
    let FoundDenials { entries, latest, left_out } = shared.denials.after(after, filter, most);
    DenialsReport {
        denials: entries.iter().map(|entry| (&**entry).into()).collect(),
        latest,
        left_out,
    }
}

impl From<&DenialEntry> for DenialReport {
    fn from(entry: &DenialEntry) -> Self {
        let decision = if entry.status.is_some() { "deny" } else { "would_deny" };
        DenialReport {
            seq: entry.seq,
            group: entry.group,
            time: entry.time.to_string(),
            last: entry.last.to_string(),
            count: entry.count,
            caller: entry.caller.clone(),
            address: entry.address.to_string(),
            policy: entry.policy.as_deref().map(String::from),
            limit: entry.limit.clone(),
            counters: entry.counters.clone(),
            reason: entry.reason.to_owned(),
            tier: entry.tier.as_deref().map(String::from),
            method: entry.method.clone(),
            path: entry.path.clone(),
            request_id: entry.request_id.clone(),
            decision: decision.to_owned(),
            status: entry.status,
        }
    }
}
