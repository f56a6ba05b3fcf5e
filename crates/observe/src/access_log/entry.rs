//! What a line says of a request.

use std::{fmt::Display, net::IpAddr, time::Duration};

use tollgate_clock::Timestamp;
use tollgate_keyword::keywords;
use tollgate_limit::Standing;

use super::Facts;

/// What a line says, but for what is known only when the response has ended.
#[derive(Clone)]
pub struct Entry<'e> {
    /// When the request came.
    pub time: Timestamp,
    /// Its `x-request-id`.
    pub request_id: &'e str,
    /// Its trace; none: there are no traces, or it never became a request.
    pub trace_id: Option<&'e dyn Display>,
    /// The client's address.
    pub client: IpAddr,
    /// Who called: the whole name, as `tollgate look` takes it.
    pub caller: Option<&'e dyn Display>,
    /// The caller's tier.
    pub tier: Option<&'e str>,
    /// The request's method.
    pub method: &'e str,
    /// The host it was for.
    pub host: Option<&'e str>,
    /// Its path in normal form, without the query.
    pub path: &'e str,
    /// The route's pattern.
    pub route: Option<&'e str>,
    /// How another proxy has asked about it, `forward` or `nginx`, or how a program has called,
    /// `http` or `redis`. None: a client's request.
    pub asked_by: Option<&'static str>,
    /// The response's status.
    pub status: u16,
    /// Whether the policy exempts the client from all limits.
    pub is_exempt: bool,
    /// Who decided about its charges, as metrics call it: `memory`, `redis`, `memo`, `local`,
    /// `open`, `closed`. None: it was charged nothing.
    pub decided_by: Option<&'static str>,
    /// Why it was denied.
    pub denied: Option<DenialCause<'e>>,
    /// Limits that only count and would have denied it: `core, search;candidate`.
    pub would_deny: Option<&'e str>,
    /// Why it was not forwarded, or what went wrong.
    pub error: Option<&'e dyn Display>,
    /// The limit that clients see in headers: the one that denied, else the first.
    pub limit: Option<LimitStanding<'e>>,
    /// The name of the counter of that limit which a program has named. Of a call that charges
    /// nothing: of the first counter that it is about.
    pub key: Option<&'e str>,
    /// All limits that were asked, the one above among them.
    pub limits: &'e [LimitStanding<'e>],
    /// The request's `User-Agent`, as it came.
    pub user_agent: Option<&'e [u8]>,
    /// What limits count by. None: the settings do not ask for it, or the request was refused
    /// before anything was counted.
    pub facts: Option<&'e Facts>,
    /// Until the upstream's response head came.
    pub upstream: Option<Duration>,
}

impl Entry<'_> {
    /// Whether it is about a request that was denied, or would be if all limits were enforced.
    pub fn is_denied(&self) -> bool {
        self.denied.is_some() || self.would_deny.is_some()
    }
}

/// Why a request was denied.
#[derive(Clone, Copy, Debug)]
pub struct DenialCause<'e> {
    /// The reason in one word.
    pub reason: &'static str,
    /// The name of the limit, if it was one.
    pub by: Option<&'e str>,
}

/// A limit that a request was charged to, in one of its windows, and how it stands after that.
#[derive(Clone, Copy, Debug)]
pub struct LimitStanding<'e> {
    /// The limit's name.
    pub name: &'e str,
    /// Whether it may deny.
    pub mode: Mode,
    /// Length of the window. None: it is of requests in flight, and when one ends is unknown.
    pub window_seconds: Option<u64>,
    /// How it stands.
    pub standing: Standing,
    /// Units that this request has cost in the end.
    pub cost: u32,
    /// What it says of this request.
    pub decision: Decision,
    /// Who says it, as metrics call it: `memory`, `redis`, `memo`, `local`.
    pub decided_by: &'static str,
    /// The name of its counter, if a program has named it.
    pub key: Option<&'e str>,
    /// Its position among the charges of the request, if the rest of the response tells its cost.
    pub awaited: Option<usize>,
}

/// What a request has cost a limit, known when its response has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalCost {
    /// The position of the charge among those of the request.
    pub position: usize,
    /// Units that it has cost in the end.
    pub units: u32,
    /// Units that were charged before.
    pub reserved: u32,
    /// What has told it.
    pub source: &'static str,
}

/// Whether a limit may deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It may.
    Enforce,
    /// It only counts.
    Shadow,
    /// It only counts, and is another measure beside the one in force.
    Candidate,
}

keywords! { Mode { Enforce = "enforce", Shadow = "shadow", Candidate = "candidate" } }

/// What a limit says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// There is room for it.
    Allow,
    /// There is none, and so the request is denied.
    Deny,
    /// There is none, and the request goes on since the limit only counts.
    WouldDeny,
}

keywords! { Decision { Allow = "allow", Deny = "deny", WouldDeny = "would_deny" } }
