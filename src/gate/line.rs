//! The access log's line about a request.

use std::{cell::Cell, net::IpAddr, rc::Rc};

use http::{HeaderValue, Method, header::USER_AGENT, request::Parts};
use smallvec::SmallVec;

use super::{
    Arrival, HeldLeases, Note, Passage,
    abandoned::{Abandoned, Answered, Exchange},
    charges::Role,
    head::Head,
    tally::{Item, Tally},
};
use crate::{
    access_log::{Decision, Denied, Entry, LimitStanding, LogBuffer, Mode, Tail},
    response::{CLIENT_CLOSED_REQUEST, DenialReason, INTERNAL_ERROR, Rejection, told_reset},
};

/// What the log tells of a request whose head has gone to the upstream by the time it is told.
pub(super) struct Seen {
    method: Method,
    host: Option<String>,
    path: String,
    address: IpAddr,
    user_agent: Option<HeaderValue>,
    /// Bytes of its body so far. None: nobody reads it.
    received: Option<Rc<Cell<u64>>>,
}

impl Seen {
    /// `head` is none of a request whose form is not sound.
    pub(super) fn of(parts: &Parts, head: Option<&Head<'_>>, address: IpAddr) -> Self {
        let (host, path) = match head {
            Some(head) => (head.host().map(str::to_owned), head.path.to_string()),
            None => (None, parts.uri.path().to_owned()),
        };
        let (method, user_agent) = (parts.method.clone(), parts.headers.get(USER_AGENT).cloned());
        Seen { method, host, path, address, user_agent, received: None }
    }

    /// A count of what is read of its body, for who reads it.
    pub(super) fn count_body(&mut self) -> Rc<Cell<u64>> {
        Rc::clone(self.received.insert(Rc::default()))
    }
}

/// Why a request was denied.
pub(super) struct DeniedBy {
    reason: DenialReason,
    /// The name of the limit, if it was one.
    limit: Option<Box<str>>,
}

impl DeniedBy {
    /// Why `rejection` denies; none if it is no denial.
    pub(super) fn of(rejection: &Rejection) -> Option<DeniedBy> {
        let reason = rejection.denied_for()?;
        Some(DeniedBy { reason, limit: rejection.limit().map(Box::from) })
    }

    fn shown(&self) -> Denied<'_> {
        Denied { reason: self.reason.name(), by: self.limit.as_deref() }
    }
}

impl Note {
    /// `deny` wins over `exempt`.
    fn is_on_deny_list(&self) -> bool {
        self.denied.as_ref().is_some_and(|denied| denied.reason == DenialReason::Deny)
    }
}

/// A request that was judged, and the line that is due about it. If it is dropped before the line was
/// begun, the client has gone, and the line says so. Nothing is given back then by what its response
/// would have been; where that tells the cost, the exchange goes on without the client.
pub(super) struct Owed<'g, 'p> {
    /// None: there is no access log.
    pub(super) line: Option<(&'g Rc<LogBuffer>, Seen)>,
    pub(super) passage: Passage<'p>,
    pub(super) request_id: &'g HeaderValue,
    pub(super) arrival: Arrival,
    pub(super) is_begun: bool,
    /// Where a request is named that panicked, after its line was written.
    pub(super) panicked: &'g Cell<Option<HeaderValue>>,
    /// What it holds of limits on requests in flight.
    pub(super) leases: Option<HeldLeases>,
    /// The exchange with the upstream, if its response tells the cost.
    pub(super) exchange: Option<Exchange>,
    /// Where that goes on if the client goes away.
    pub(super) abandoned: &'g Rc<Abandoned>,
}

impl Owed<'_, '_> {
    /// What the upstream answers, whose head tells the cost.
    pub(super) async fn answer(&mut self, exchange: Exchange) -> Answered {
        let answered = (&mut self.exchange.insert(exchange).answer).await;
        self.exchange = None;
        answered
    }

    /// Has the exchange go on, if the upstream has the request and its client has gone.
    fn abandon(&mut self) {
        let Some(exchange) = self.exchange.take().filter(|exchange| exchange.is_sent.get()) else {
            return;
        };
        if let (Some(tally), Some(route)) = (&self.passage.tally, self.passage.route) {
            self.abandoned.follow(exchange, (tally, &route.name), self.leases.take());
        }
    }

    /// The line, but for what is known only when the response has ended.
    pub(super) fn begin(mut self, status: u16, note: &Note) -> Option<Tail> {
        self.is_begun = true;
        self.write(status, note)
    }

    fn write(&self, status: u16, note: &Note) -> Option<Tail> {
        let Owed { line, passage, request_id, arrival, .. } = self;
        let (log, seen) = line.as_ref()?;
        let identity = passage.identity.as_ref();
        let caller = identity.and_then(|identity| identity.caller.as_ref());
        let tier = passage.policy.zip(identity).and_then(|(policy, identity)| {
            policy.identity.tiers.get(identity.tier).map(|tier| &*tier.name)
        });
        let tally = passage.tally.as_ref();
        let shadowed = tally.and_then(Tally::would_deny_names);
        let user_agent = seen.user_agent.as_ref().filter(|_| passage.may_log_user_agent());
        let limits: SmallVec<[LimitStanding<'_>; 4]> = tally
            .into_iter()
            .flat_map(|tally| tally.items().map(|item| standing(tally, &item)))
            .collect();
        let line = log.begin(&Entry {
            time: arrival.now,
            request_id: request_id.to_str().unwrap_or_default(),
            client: seen.address,
            caller: caller.map(|caller| (caller.kind, &caller.value as _)),
            tier,
            method: seen.method.as_str(),
            host: seen.host.as_deref(),
            path: &seen.path,
            route: passage.route.map(|route| &*route.name),
            status,
            is_exempt: passage.is_exempt(seen.address) && !note.is_on_deny_list(),
            denied: note.denied.as_ref().map(|denied| denied.shown()),
            would_deny: shadowed.as_deref(),
            error: note.error.as_ref().map(|error| error as _),
            limit: tally.and_then(|tally| Some(standing(tally, &tally.told()?))),
            limits: &limits,
            user_agent: user_agent.map(HeaderValue::as_bytes),
            upstream: note.upstream_time,
        })?;
        Some(Tail::new(Rc::clone(log), line, arrival.started, seen.received.clone()))
    }
}

/// How one of a request's charges came out, as the log has it.
fn standing<'t, 'p>(tally: &Tally<'p>, item: &Item<'t, 'p>) -> LimitStanding<'t> {
    let (standing, role) = (item.standing(), item.asked.role);
    let is_window = !item.charge.quota.holds_leases();
    LimitStanding {
        name: &item.asked.limit.name,
        mode: match role {
            Role::Primary | Role::Secondary => Mode::Enforce,
            Role::Shadow => Mode::Shadow,
            Role::Candidate | Role::Refund => Mode::Candidate,
        },
        window_seconds: item.asked.allowance.window_secs.filter(|_| is_window),
        limit: standing.limit,
        used: standing.used,
        remaining: standing.remaining,
        reset: is_window.then(|| told_reset(standing).ceil_secs()),
        cost: tally.cost_of(item),
        decision: match role {
            _ if item.outcome.fits() => Decision::Allow,
            Role::Primary | Role::Secondary => Decision::Deny,
            Role::Shadow | Role::Candidate | Role::Refund => Decision::WouldDeny,
        },
    }
}

impl Drop for Owed<'_, '_> {
    fn drop(&mut self) {
        if self.is_begun {
            return;
        }
        // What panics ends here as well.
        let (status, note) = match std::thread::panicking() {
            true => {
                self.panicked.set(Some(self.request_id.clone()));
                let error = Some(Rejection::Internal.to_string());
                (INTERNAL_ERROR, Note { error, ..Note::default() })
            }
            false => {
                self.abandon();
                (CLIENT_CLOSED_REQUEST, Note::default())
            }
        };
        if let Some(tail) = self.write(status, &note) {
            tail.end(false);
        }
    }
}
