//! The guard of a request whose handling may end early, because its client goes away or a panic
//! ends it. The access log still gets a line and, if only the response's head has the cost or
//! the request counts as in flight, the exchange continues without the client.

use std::{cell::Cell, net::IpAddr, pin::pin, rc::Rc, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, header::USER_AGENT, request::Parts};
use smallvec::SmallVec;
use tollgate_clock::Timestamp;
use tollgate_keyword::Keyword;
use tollgate_limit::Hashing;
use tollgate_observe::{
    access_log::{DenialCause, Entry, Facts, LimitStanding, LogBuffer, Tail},
    metrics::RequestMeter,
};
use tollgate_policy::{Protocol, Upstream};
use tollgate_response::{
    Account, BodyTap, CLIENT_CLOSED_REQUEST, DenialReason, Format, INTERNAL_ERROR, Rejection,
};
use tollgate_store::{Decider, HeldLeases, Stores};
use tollgate_upstream::{ClientBody, UpstreamError, Upstreams};

use super::{
    Arrival, Snapshot,
    abandoned::{Abandoned, FollowedBody},
    body_look::BodyFacts,
    cost_tap::{CostTap, Measures},
    counting::CountedSender,
    forward::{DetachedExchange, Outgoing, TimedReply, detached, exchange},
    head::Head,
    kept_names::CounterNames,
    limit_standing::limit_standing,
    request_state::RequestState,
    respond::Reply,
    tally::{DecidedCharge, Tally},
    traced::TracedRequest,
};

/// What is written down of a request: its numbers, and its line in the access log.
pub(super) struct RequestLine<'g> {
    pub(super) meter: RequestMeter,
    /// None: there is no access log.
    pub(super) log: Option<(&'g Rc<LogBuffer>, LoggedRequest)>,
    pub(super) request_id: &'g HeaderValue,
    pub(super) stores: &'g Stores,
    /// None: there are no traces.
    pub(super) traced: Option<TracedRequest<'g>>,
    pub(super) arrival: Arrival,
    /// How another proxy or a program has asked. None: a client's request came in here.
    pub(super) asked_by: Option<&'static str>,
    /// Gets the request's id if handling it panics: the response that follows names it.
    pub(super) panicked: &'g Cell<Option<HeaderValue>>,
}

/// What the log has of a request. It is kept apart because the head itself goes to the upstream.
pub(super) struct LoggedRequest {
    method: Method,
    host: Option<String>,
    path: String,
    address: IpAddr,
    user_agent: Option<HeaderValue>,
    /// What limits count by, once the request is judged.
    facts: Option<Facts>,
    /// The names of the counters that a program's call is about.
    names: CounterNames,
}

/// What became of a request, for the log.
#[derive(Default)]
pub(super) struct ResponseNote {
    pub(super) error: Option<String>,
    pub(super) denied: Option<DeniedBy>,
    /// Redis did not decide, and a limit fails closed.
    pub(super) is_undecided: bool,
    pub(super) upstream_time: Option<Duration>,
}

/// Why a request was denied.
pub(super) struct DeniedBy {
    reason: DenialReason,
    /// The name of the limit, if it was one.
    limit: Option<Box<str>>,
}

impl LoggedRequest {
    /// `head` is none of a request whose form is not sound.
    pub(super) fn of(parts: &Parts, head: Option<&Head<'_>>, address: IpAddr) -> Self {
        let (host, path) = match head {
            Some(head) => (head.host().map(str::to_owned), head.path.to_string()),
            None => (None, parts.uri.path().to_owned()),
        };
        let method = parts.method.clone();
        let user_agent = parts.headers.get(USER_AGENT).cloned();
        let (facts, names) = (None, CounterNames::default());
        LoggedRequest { method, host, path, address, user_agent, facts, names }
    }

    /// A program's call, which is no request, about counters of these names.
    pub(super) fn of_call(
        method: Method,
        path: &str,
        address: IpAddr,
        user_agent: Option<HeaderValue>,
        names: CounterNames,
    ) -> Self {
        LoggedRequest {
            method,
            host: None,
            path: path.to_owned(),
            address,
            user_agent,
            facts: None,
            names,
        }
    }
}

impl DeniedBy {
    /// Why `rejection` denies; none if it is no denial.
    fn of(rejection: &Rejection) -> Option<DeniedBy> {
        let reason = rejection.denied_for()?;
        Some(DeniedBy { reason, limit: rejection.limit().map(Box::from) })
    }

    fn as_logged(&self) -> DenialCause<'_> {
        DenialCause { reason: self.reason.name(), by: self.limit.as_deref() }
    }
}

impl ResponseNote {
    /// What became of a request that was refused for this; none: it was not refused.
    pub(super) fn of(rejection: Option<&Rejection>) -> ResponseNote {
        ResponseNote {
            error: rejection.map(ToString::to_string),
            denied: rejection.and_then(DeniedBy::of),
            is_undecided: rejection.is_some_and(Rejection::is_undecided),
            upstream_time: None,
        }
    }

    /// Whether a limit has denied the request.
    pub(super) fn is_denied_by_limit(&self) -> bool {
        self.denied.as_ref().is_some_and(|denied| denied.reason == DenialReason::Limit)
    }

    fn is_on_deny_list(&self) -> bool {
        self.denied.as_ref().is_some_and(|denied| denied.reason == DenialReason::Deny)
    }
}

/// A request that has no response yet. If this is dropped before there is one, the line reports
/// that, with what is known by then. Charges are not given back then, because only the status of a
/// response can cause a refund. If the response has the cost, the exchange continues without the
/// client.
pub(super) struct RequestGuard<'g, 'p> {
    pub(super) state: RequestState<'p>,
    /// What the request holds of limits on requests in flight.
    pub(super) leases: Option<HeldLeases>,
    /// None: the line was already begun.
    pub(super) line: Option<RequestLine<'g>>,
    /// The exchange with the upstream that is waited for, if its response names the cost or ends a
    /// lease.
    exchange: Option<DetachedExchange>,
    /// Runs the exchange to its end if the client goes away.
    abandoned: &'g Rc<Abandoned>,
    /// Bytes of its body; none: it has none, or nothing counts them.
    received: Option<Rc<Cell<u64>>>,
}

impl<'g, 'p> RequestGuard<'g, 'p> {
    /// A request that nothing was decided about.
    pub(super) fn new(line: RequestLine<'g>, abandoned: &'g Rc<Abandoned>) -> Self {
        let state = RequestState::default();
        RequestGuard {
            state,
            leases: None,
            line: Some(line),
            exchange: None,
            abandoned,
            received: None,
        }
    }

    /// The request's body as it goes to the upstream: with the bound of its route, and counted.
    pub(super) fn client_body(
        &mut self,
        body: ClientBody,
        upstream: &Upstream,
        format: Format,
    ) -> ClientBody {
        // A call that streams sends messages whenever it has some.
        let may_be_slow = format == Format::Grpc && upstream.protocol == Protocol::Http2;
        let counted = self.line.as_mut().filter(|_| !body.is_empty());
        let received = counted.map(|line| line.meter.count_body());
        self.received.clone_from(&received);
        if let Some(interim) = &body.interim {
            interim.set_edits(self.state.interim_edits());
        }
        ClientBody { max_bytes: self.state.max_body(), received, may_be_slow, ..body }
    }

    /// Sends the request and waits for the head of the response: where only that names the cost, or
    /// the request counts as in flight until the upstream has answered, in a form that can go on
    /// without the client.
    pub(super) async fn send(
        &mut self,
        upstreams: &Rc<Upstreams>,
        snapshot: &Arc<Snapshot>,
        upstream: &Upstream,
        outgoing: Outgoing,
    ) -> TimedReply {
        let awaits_cost = self.state.tally.as_ref().is_some_and(Tally::awaits_cost);
        if !awaits_cost && self.leases.is_none() {
            return match snapshot.groups.destination(upstream) {
                Some(destination) => pin!(exchange(upstreams, destination, outgoing)).await,
                None => Reply::Refused(UpstreamError::NoAddress.into()).into(),
            };
        }
        let position = upstream.position;
        let detached = detached(Rc::clone(upstreams), Arc::clone(snapshot), position, outgoing);
        let reply = (&mut self.exchange.insert(detached).response).await;
        self.exchange = None;
        reply
    }

    /// Writes everything down except for what is known only when the response has ended.
    pub(super) fn account(&mut self, status: u16, note: &ResponseNote) -> Option<Account> {
        Some(self.line.take()?.account(&self.state, status, note))
    }

    /// What follows the body of the response, if that or its length has the cost of something.
    pub(super) fn tap(&self, begun: Timestamp, headers: &HeaderMap) -> Option<Box<dyn BodyTap>> {
        let tally = self.state.tally.as_ref().filter(|tally| tally.awaits_cost())?;
        let (line, route) = (self.line.as_ref()?, self.state.route?);
        let names = &self.state.kept_names;
        let name = |own: &DecidedCharge<'_, '_>, to: &mut String| names.write(own, to);
        let identity = self.state.identity.as_ref();
        let series = line.meter.series();
        let sender = CountedSender::of(series, self.state.policy, identity, Some(&name));
        let costs = tally.body_costs(&route.name, self.abandoned.charges().shared(), Some(&sender));
        if costs.is_empty() {
            return None;
        }
        let measures = Measures { begun, received: self.received.clone() };
        let tap = CostTap::new(self.abandoned.charges(), costs, headers, measures);
        Some(Box::new(FollowedBody::new(self.abandoned, tap)))
    }

    /// Has the exchange go on, if the upstream has the request and the client has gone.
    fn abandon(&mut self, line: &RequestLine<'_>) {
        let series = line.meter.series();
        let Some(exchange) = self.exchange.take().filter(|exchange| exchange.is_sent.get()) else {
            return;
        };
        if let (Some(tally), Some(route)) = (&self.state.tally, self.state.route) {
            let identity = self.state.identity.as_ref();
            let names = &self.state.kept_names;
            let name = |own: &DecidedCharge<'_, '_>, to: &mut String| names.write(own, to);
            let sender = CountedSender::of(series, self.state.policy, identity, Some(&name));
            let begun = line.arrival.now;
            let measures = Measures { begun, received: self.received.take() };
            let about = (tally, &*route.name);
            self.abandoned.follow(exchange, measures, about, &sender, self.leases.take());
        }
    }
}

impl Drop for RequestGuard<'_, '_> {
    fn drop(&mut self) {
        let Some(line) = self.line.take() else { return };
        if !std::thread::panicking() {
            self.abandon(&line);
        }
        line.end_early(&self.state);
    }
}

impl RequestLine<'_> {
    /// Notes what limits count by, if the log is to have it, of a request that was judged and has
    /// these headers.
    pub(super) fn note_facts(
        &mut self,
        state: &RequestState<'_>,
        headers: &HeaderMap,
        body: Option<&BodyFacts>,
        hashing: &Hashing,
    ) {
        if let Some((log, logged)) = &mut self.log
            && log.wants_facts()
        {
            logged.facts = state.facts(headers, body, hashing);
        }
    }

    /// Notes the costs that the response of the upstream names, if the log is to have them.
    pub(super) fn note_costs(&mut self, state: &RequestState<'_>, headers: &HeaderMap) {
        if let Some((_, LoggedRequest { facts: Some(facts), .. })) = &mut self.log {
            state.add_costs(facts, headers);
        }
    }

    /// Writes the line of a request whose client has gone, or whose handling panics.
    fn end_early(self, state: &RequestState<'_>) {
        let (status, error) = match std::thread::panicking() {
            true => {
                self.panicked.set(Some(self.request_id.clone()));
                (INTERNAL_ERROR, Some(Rejection::Internal.to_string()))
            }
            false => (CLIENT_CLOSED_REQUEST, None),
        };
        let note = ResponseNote { error, ..ResponseNote::default() };
        self.account(state, status, &note).end(false);
    }

    fn account(self, state: &RequestState<'_>, status: u16, note: &ResponseNote) -> Account {
        let tail = self.write(state, status, note);
        let trace =
            self.traced.and_then(|traced| traced.end(state, status, note.is_denied_by_limit()));
        let route = state.route.map(|route| route.position);
        Account::new(self.meter, route, status, tail).with_trace(trace)
    }

    fn write(&self, state: &RequestState<'_>, status: u16, note: &ResponseNote) -> Option<Tail> {
        let (log, logged) = self.log.as_ref()?;
        let identity = state.identity.as_ref();
        let caller = state.policy.zip(identity.and_then(|identity| identity.caller.as_ref()));
        let caller = caller.map(|(policy, caller)| caller.name(&policy.identity));
        let tier = state.policy.zip(identity).and_then(|(policy, identity)| {
            policy.identity.tiers.get(identity.tier).map(|tier| &*tier.name)
        });
        let tally = state.tally.as_ref();
        let would_deny = tally.and_then(Tally::would_deny_names);
        let user_agent = logged.user_agent.as_ref().filter(|_| state.may_log_user_agent());
        let stores = self.stores;
        let limits: SmallVec<[LimitStanding<'_>; 4]> = tally
            .into_iter()
            .flat_map(|tally| {
                tally.charges().enumerate().map(move |(position, own)| LimitStanding {
                    key: logged.names.of(&own),
                    awaited: Some(position).filter(|_| own.is_awaited()),
                    ..limit_standing(stores, tally, &own)
                })
            })
            .collect();
        let limit = tally.and_then(|tally| {
            let own = tally.reported()?;
            let is_it = |other: &DecidedCharge<'_, '_>| std::ptr::eq(other.charge, own.charge);
            Some(LimitStanding {
                key: logged.names.of(&own),
                awaited: tally
                    .charges()
                    .position(|other| is_it(&other))
                    .filter(|_| own.is_awaited()),
                ..limit_standing(stores, tally, &own)
            })
        });
        let decider = match note.is_undecided {
            true => Some(Decider::Closed),
            false => tally.and_then(|tally| tally.decider(stores)),
        };
        let trace_id = self.traced.map(|traced| traced.trace.id());
        let line = log.begin(&Entry {
            time: self.arrival.now,
            request_id: self.request_id.to_str().unwrap_or_default(),
            trace_id: trace_id.as_ref().map(|id| id as _),
            client: logged.address,
            caller: caller.as_ref().map(|caller| caller as _),
            tier,
            method: logged.method.as_str(),
            host: logged.host.as_deref(),
            path: &logged.path,
            route: state.route.map(|route| &*route.name),
            asked_by: self.asked_by,
            status,
            // The deny list wins over the list of exempt callers.
            is_exempt: state.is_exempt(logged.address) && !note.is_on_deny_list(),
            decided_by: decider.map(Decider::keyword),
            denied: note.denied.as_ref().map(DeniedBy::as_logged),
            would_deny: would_deny.as_deref(),
            error: note.error.as_ref().map(|error| error as _),
            key: limit.map_or(logged.names.first(), |limit| limit.key),
            limit,
            limits: &limits,
            user_agent: user_agent.map(HeaderValue::as_bytes),
            facts: logged.facts.as_ref(),
            upstream: note.upstream_time,
        })?;
        Some(Tail::new(Rc::clone(log), line))
    }
}
