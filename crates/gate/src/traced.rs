//! A request's trace, as the gate sees it: where it begins, and what its server span says at the
//! end.

use std::net::IpAddr;

use http::request::Parts;
use tollgate_keyword::Keyword;
use tollgate_observe::trace::{
    EndingTrace, LimitOutcome, RequestHead, RequestOutcome, RequestTrace, StartTime,
};
use tollgate_store::Stores;
use tollgate_upstream::downstream::Peer;

use super::{
    Arrival, Gate, limit_standing::limit_standing, request_state::RequestState, tally::Tally,
};

/// A request's trace, and what its end needs besides.
#[derive(Clone, Copy)]
pub(super) struct TracedRequest<'g> {
    pub(super) trace: &'g RequestTrace<'g>,
    pub(super) stores: &'g Stores,
    /// The client's address.
    pub(super) client: IpAddr,
}

impl Gate {
    /// The trace of a request that has just come; none if there are no traces. Boxed: it takes no
    /// room in the futures of requests without.
    pub(super) fn begin_trace(
        &self,
        parts: &Parts,
        peer: &Peer,
        is_from_trusted: bool,
        arrival: Arrival,
    ) -> Option<Box<RequestTrace<'_>>> {
        let tracer = self.shared().tracer.as_ref()?;
        let head = RequestHead {
            method: &parts.method,
            uri: &parts.uri,
            version: parts.version,
            headers: &parts.headers,
            is_tls: peer.speaks_tls(),
            is_from_trusted,
            started: StartTime { at: arrival.now, instant: arrival.started },
        };
        Some(Box::new(RequestTrace::begin(tracer, &self.span_ids, &head)))
    }

    /// The same, if calls that the request waits for may be exported: those of Redis.
    pub(super) fn recorded<'t>(
        &self,
        trace: Option<&'t RequestTrace<'t>>,
    ) -> Option<&'t RequestTrace<'t>> {
        trace.filter(|trace| trace.may_record() && self.shared().stores.settings().is_shared())
    }
}

impl TracedRequest<'_> {
    /// The spans of a request with this outcome, which a limit may have denied; none if they are
    /// not exported.
    pub(super) fn end(
        &self,
        state: &RequestState<'_>,
        status: u16,
        is_denied: bool,
    ) -> Option<Box<EndingTrace>> {
        let identity = state.identity.as_ref();
        let caller = state.policy.zip(identity.and_then(|identity| identity.caller.as_ref()));
        let caller = caller.map(|(policy, caller)| caller.name(&policy.identity));
        self.trace.end(&RequestOutcome {
            route: state.route.map(|route| &*route.name),
            status,
            is_denied,
            limit: state.tally.as_ref().and_then(|tally| self.limit(tally)),
            caller: caller.as_ref().map(|caller| caller as _),
            client: self.client,
        })
    }

    /// What the limit says that the client sees in headers.
    fn limit<'t>(&self, tally: &'t Tally<'_>) -> Option<LimitOutcome<'t>> {
        let charge = tally.reported()?;
        let own = limit_standing(self.stores, tally, &charge);
        Some(LimitOutcome {
            name: own.name,
            decision: own.decision.keyword(),
            used: own.standing.used,
            max: own.standing.limit,
            store: own.decided_by,
        })
    }
}
