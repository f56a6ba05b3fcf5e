//! The life of a request, from top to bottom: check its form, find its route, identify the caller,
//! charge the limits, forward, correct the charges by the response, and report the limits to the
//! client.
//!
//! A request reads one snapshot of the policies, and is judged at one instant. Whatever goes wrong
//! becomes a [`Rejection`], and rejections become responses in one place.
//!
//! This crate knows no sockets and no files: requests, snapshots and connections are handed to it.
//!
//! The types to know first:
//!
//! - [`Gate`]: a worker's pipeline.
//! - [`Shared`]: what all workers share.
//! - [`Snapshot`]: the policies in force, and what a running proxy keeps for them.
//! - [`judge::Judge`]: decides about requests.
//! - [`request_state::RequestState`]: what is known about a request.
//! - [`OpenCall`]: a call of a program, which is counted and logged like a request.

mod abandoned;
mod awaited_cost;
pub mod body_look;
mod built_in_limits;
pub mod charge_context;
pub mod charge_plan;
mod cors;
mod cost_tap;
mod counted_key;
mod counting;
mod denials;
mod distrust;
pub mod dry_run;
mod facts;
mod foresee;
pub mod forward;
mod forward_auth;
mod handling;
pub mod head;
mod head_changes;
mod identify;
mod ignored_chain;
pub mod judge;
pub mod judge_input;
mod kept_names;
mod late_charges;
mod limit_standing;
mod max_forwards;
mod open_call;
mod overrides;
pub mod past_costs;
mod permutation;
mod preflights;
mod prepare;
mod recent_costs;
pub mod redirect;
mod refunds;
mod refuse;
mod request_guard;
mod request_id;
pub mod request_state;
pub mod respond;
mod revalidation;
mod series;
pub mod shared;
mod snapshot;
mod sound_request;
mod stamp;
mod standing_cache;
mod standings;
pub mod tally;
mod traced;
pub mod unfit_claims;
mod unknown_costs;
mod unknown_tiers;
mod unread_scheme;
mod upgrade;

use std::{
    cell::{Cell, OnceCell, RefCell},
    convert::Infallible,
    net::IpAddr,
    ops::ControlFlow,
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::Instant,
};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, request::Parts};
use tollgate_clock::Timestamp;
use tollgate_identity::{address_behind, address_told};
use tollgate_observe::{
    access_log::LogBuffer,
    metrics::{MethodLabel, PolicySeries, RequestMeter},
    trace::{IdSource, RequestTrace},
};
use tollgate_policy::Policy;
use tollgate_response::{Account, Body, Format, Rejection, grpc_status};
use tollgate_store::{LeaseBook, Store};
use tollgate_upstream::{
    ClientBody, UpstreamError, Upstreams,
    downstream::{Fault, Peer},
};
use tollgate_wire::{Violation, forward_auth::Asker};

use self::{
    abandoned::Abandoned,
    body_look::{BodyFacts, BodyInput, ComingBody, LookBounds},
    counting::{NamingRequest, count_decisions},
    denials::{DeniedRequest, WorkerDenials},
    forward::{Inbound, Outgoing, TimedReply, sender_of},
    forward_auth::{asked_about, asker_of_malformed, reply_to, translate},
    handling::{GivenRequest, Handlers, Mailbox},
    ignored_chain::warn_of_ignored_chain,
    judge::Judge,
    judge_input::JudgeInput,
    redirect::redirect,
    request_guard::{LoggedRequest, RequestGuard, RequestLine, ResponseNote},
    request_state::{Action, RequestState},
    respond::{Audience, Reply},
    series::WorkerSeries,
    sound_request::SoundRequest,
    tally::DecidedCharge,
    traced::TracedRequest,
    unknown_tiers::note_unknown_tier,
};

pub use self::charge_context::{
    keys::{hash_descriptor, hash_named_key},
    names::write_key_name,
};
pub use self::{
    counted_key::CountedKey,
    denials::{DenialEntry, DenialFilter, Denials, FoundDenials, KEPT_DENIALS, KEPT_OF_A_CALLER},
    forward_auth::Undecided,
    handling::Handling,
    head_changes::HeadChanges,
    kept_names::CounterNames,
    open_call::{CallHead, Corrected, OpenCall, Program},
    refunds::Refunds,
    request_id::RequestIds,
    series::{LimitTotal, PolicyTotal, RouteTotal, SeriesBook, candidate_name},
    shared::{NoRandomness, Shared},
    snapshot::Snapshot,
    stamp::{rate_limit_fields, stamp_family},
    unread_scheme::UnreadSchemes,
};

/// The field with the id of a request.
pub static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A worker's pipeline.
pub struct Gate {
    judge: Judge,
    /// The worker's number, which no other worker has at the time.
    worker: usize,
    /// Its counters for the policies in force. None: it has had no request yet.
    series: RefCell<Option<WorkerSeries>>,
    upstreams: Rc<Upstreams>,
    leases: Rc<LeaseBook>,
    abandoned: Rc<Abandoned>,
    log: Option<Rc<LogBuffer>>,
    request_ids: RequestIds,
    handlers: Handlers,
    denials: Arc<WorkerDenials>,
    span_ids: Rc<IdSource>,
    /// The id of a request whose handling panicked, until its client gets a response.
    panicked: Cell<Option<HeaderValue>>,
}

/// When a request came.
#[derive(Clone, Copy)]
pub struct Arrival {
    /// The one instant at which it is judged.
    pub now: Timestamp,
    /// For measuring how long it takes.
    pub started: Instant,
}

/// What was decided about a request, and what is still known of it then.
struct Decided<'d, 'i, 'p> {
    action: &'d Action<'p>,
    parts: &'d Parts,
    inbound: Inbound<'i>,
    /// None: its form is not sound.
    named: Option<(&'d SoundRequest<'d, 'p>, &'d Snapshot)>,
    /// What its body says, if that was looked at.
    facts: &'i OnceCell<BodyFacts>,
}

/// What a request is decided about with, besides itself.
#[derive(Clone, Copy)]
struct Given<'g, 'i> {
    inbound: Inbound<'i>,
    snapshot: &'g Snapshot,
    arrival: Arrival,
    body: &'g ComingBody<'g>,
}

/// How this proxy knows a request.
enum Source {
    /// It came in here. Says whether the form in which it arrived is sound.
    Received(Result<(), Violation>),
    /// Another proxy has described its head, in a message.
    Described(Asker),
}

impl Source {
    /// Checks the form in which a request came, and makes `parts` its head. Returns which proxy has
    /// asked about it; none: a client has sent it here.
    ///
    /// # Errors
    /// The form is not sound, or the proxy that asks has to be set up otherwise.
    fn read(self, parts: &mut Parts, peer: &Peer) -> Result<Option<Asker>, Rejection> {
        match self {
            // The form comes first: nothing else about an ambiguous request can be believed.
            Source::Received(framing) => {
                framing?;
                asked_about(parts, peer)
            }
            Source::Described(asker) => Ok(Some(asker)),
        }
    }
}

impl Gate {
    /// A pipeline over what is shared, with a worker's own connections and log buffer. It starts
    /// local tasks of this thread if counters are in Redis. `worker` is the worker's number: of two
    /// pipelines with one number, only one may be in use at a time.
    pub fn new(
        worker: usize,
        shared: Arc<Shared>,
        upstreams: Upstreams,
        log: Option<LogBuffer>,
    ) -> Self {
        let store = Store::start(Arc::clone(&shared.stores));
        Gate {
            leases: LeaseBook::new(Rc::clone(&store), shared.clock.clone()),
            abandoned: Abandoned::new(Arc::clone(&shared), Rc::clone(&store)),
            denials: shared.denials.notes(),
            judge: Judge::new(shared, store),
            worker,
            series: RefCell::default(),
            upstreams: Rc::new(upstreams),
            log: log.map(Rc::new),
            request_ids: RequestIds::default(),
            handlers: Handlers::default(),
            span_ids: Rc::default(),
            panicked: Cell::default(),
        }
    }

    /// The periodic work of a worker: renew leases, sweep counters, close idle connections, hand
    /// over log lines.
    pub fn tick(&self) {
        let now = self.shared().clock.now();
        self.leases.renew(now);
        self.judge.store.tick(now);
        self.upstreams.close_idle();
        if let Some(log) = &self.log {
            log.flush();
        }
    }

    /// The work before the worker accepts requests.
    pub async fn ready(&self) {
        self.judge.store.ready(self.shared().clock.now()).await;
    }

    /// The work at the worker's end.
    pub async fn finish(&self) {
        self.tick();
        // Connections that are cut end only after this, and may still hold leases.
        self.leases.end_all();
        self.abandoned.end_all();
        self.judge.store.finish(self.shared().clock.now()).await;
    }

    /// What this worker shares with the others.
    pub fn shared(&self) -> &Shared {
        &self.judge.shared
    }

    /// Responds to a request. `framing` says whether the form in which it arrived is sound.
    pub fn handle(
        self: &Rc<Self>,
        request: Request<ClientBody>,
        peer: &Rc<Peer>,
        framing: Result<(), Violation>,
    ) -> Handling {
        let (parts, body) = request.into_parts();
        let (gate, peer) = (Rc::clone(self), Rc::clone(peer));
        let source = Source::Received(framing);
        Handling::begin(GivenRequest { gate, parts, body: Some(body), source, peer })
    }

    /// The counters, as this worker uses them.
    pub fn store(&self) -> &Rc<Store> {
        &self.judge.store
    }

    /// The worker's source of request ids.
    pub fn request_ids(&self) -> &RequestIds {
        &self.request_ids
    }

    /// Responds to a request whose head another proxy has described.
    pub fn handle_described(
        self: &Rc<Self>,
        parts: Parts,
        asker: Asker,
        peer: Rc<Peer>,
    ) -> Handling {
        let source = Source::Described(asker);
        Handling::begin(GivenRequest { gate: Rc::clone(self), parts, body: None, source, peer })
    }

    /// Responds to one request after another, whichever way this proxy knows it. Each step takes
    /// what is known by then, and returns more.
    async fn handle_each(mailbox: Rc<Mailbox>) -> Infallible {
        loop {
            let GivenRequest { gate, mut parts, body, source, peer } = mailbox.next().await;
            let peer = &*peer;
            let form = source.read(&mut parts, peer);
            let asker = form.as_ref().map_or_else(asker_of_malformed, |asker| *asker);
            let arrival = Arrival { now: gate.shared().clock.now(), started: Instant::now() };
            let snapshot = gate.shared().snapshot();
            // Envoy has made the ids that it tells its own.
            let has_trusted_ids = peer.is_trusted || asker == Some(Asker::Envoy);
            let request_id = &gate.request_ids.of(&parts.headers, has_trusted_ids);
            let address = gate.client_address(peer, asker, &parts.headers, arrival.now);
            let trace = gate.begin_trace(&parts, peer, has_trusted_ids, arrival);
            let inbound = Inbound { peer, asker, address, request_id, trace: trace.as_deref() };
            let request = form.and_then(|_| {
                gate.check_size(&parts, asker)?;
                SoundRequest::check(&parts, &snapshot.policies, inbound, arrival.now)
            });

            let body = gate.coming_body(body);
            // From here on the client may go away during a wait.
            let line = gate.line(&parts, request.as_ref().ok(), inbound, arrival, &snapshot);
            let mut guard = RequestGuard::new(line, &gate.abandoned);
            let (audience, action) = match request {
                Err(rejection) => {
                    let action = Action::Refuse(rejection);
                    let facts = &body.facts;
                    let decided =
                        Decided { action: &action, parts: &parts, inbound, named: None, facts };
                    (gate.note_decision(&mut guard, decided, arrival.now), action)
                }
                Ok(request) => {
                    let state = &mut guard.state;
                    let given = Given { inbound, snapshot: &snapshot, arrival, body: &body };
                    let action = pin!(gate.decide(&request, given, state)).await;
                    let named = Some((&request, &*snapshot));
                    let facts = &body.facts;
                    let decided = Decided { action: &action, parts: &parts, inbound, named, facts };
                    (gate.note_decision(&mut guard, decided, arrival.now), action)
                }
            };

            let reply = match reply_to(inbound, action, &guard.state, &parts) {
                ControlFlow::Break(reply) => reply.into(),
                ControlFlow::Continue(forward) => {
                    let upstream = forward.upstream;
                    let is_upgrade = gate.judge.prepare(&mut parts, &guard.state, forward, inbound);
                    let body = forwarded_body(&body, &guard.state, &mut parts);
                    let body = body.filter(|_| !is_upgrade);
                    let outgoing = Outgoing {
                        sender: sender_of(&guard.state, upstream, inbound),
                        head: parts,
                        body: body.map(|body| guard.client_body(body, upstream, audience.format)),
                        started: Instant::now(),
                        attempts: inbound.trace.and_then(RequestTrace::attempts),
                    };
                    pin!(guard.send(&gate.upstreams, &snapshot, upstream, outgoing)).await
                }
            };
            mailbox.respond(gate.conclude(&mut guard, reply, inbound, arrival, &audience));
        }
    }

    /// The body of a request, of which limits may have something read ahead.
    fn coming_body(&self, body: Option<ClientBody>) -> ComingBody<'_> {
        let shared = self.shared();
        let bounds = LookBounds { bytes: shared.limits.body_peek, time: shared.timeouts.head };
        ComingBody::new(body, self.upstreams.ticker(), bounds)
    }

    /// Holds a head that another proxy tells to what one that comes in here is held to.
    ///
    /// # Errors
    /// The [`Violation`].
    fn check_size(&self, parts: &Parts, asker: Option<Asker>) -> Result<(), Violation> {
        let limits = &self.shared().limits;
        match asker {
            None => Ok(()),
            Some(_) => limits.head.check(parts, limits.http2.header_list as usize),
        }
    }

    /// What is written down of a request; none for `request`: its form is not sound.
    fn line<'g>(
        &'g self,
        parts: &Parts,
        request: Option<&SoundRequest<'_, '_>>,
        inbound: Inbound<'g>,
        arrival: Arrival,
        snapshot: &Snapshot,
    ) -> RequestLine<'g> {
        let Inbound { peer: _, asker, address, request_id, trace } = inbound;
        let head = request.map(|request| &request.head);
        let logged = self.log.is_some().then(|| LoggedRequest::of(parts, head, address));
        let series = self.series(snapshot, request.and_then(|request| request.policy));
        let method = MethodLabel::of(&parts.method);
        let stores = &self.shared().stores;
        RequestLine {
            meter: RequestMeter::begin(series, method, arrival.started),
            log: self.log.as_ref().zip(logged),
            request_id,
            stores,
            traced: trace.map(|trace| TracedRequest { trace, stores, client: address }),
            arrival,
            asked_by: asker.map(Asker::name),
            panicked: &self.panicked,
        }
    }

    /// Decides what is to be done with a request.
    async fn decide<'p>(
        &self,
        request: &SoundRequest<'_, 'p>,
        given: Given<'_, '_>,
        state: &mut RequestState<'p>,
    ) -> Action<'p> {
        let &SoundRequest { ref head, policy, .. } = request;
        let Given { inbound, snapshot, arrival, body } = given;
        if let Some(elsewhere) = inbound.peer.listener.redirect {
            return redirect(head, elsewhere);
        }
        let input = JudgeInput {
            body: match inbound.asker {
                None => BodyInput::Coming(body),
                Some(_) => BodyInput::Elsewhere,
            },
            ..judge_input(request, snapshot, inbound, &body.facts, arrival.now)
        };
        match self.recorded(inbound.trace) {
            None => pin!(self.judge.judge(&input, policy, state)).await,
            // Boxed: it takes no room in the future of the others.
            Some(trace) => {
                let judging = Box::pin(self.judge.judge(&input, policy, state));
                trace.recording(judging).await
            }
        }
    }

    /// Notes what was decided: in the guard, in the counts, and among the denials. Returns what
    /// the client has to say about the response.
    fn note_decision<'i, 'p>(
        &self,
        guard: &mut RequestGuard<'_, 'p>,
        decided: Decided<'_, 'i, 'p>,
        now: Timestamp,
    ) -> Audience<'i> {
        let Decided { action, parts, inbound, named, facts } = decided;
        let Inbound { address, request_id, .. } = inbound;
        let RequestGuard { state, leases, line, .. } = guard;
        let head = named.map(|(request, _)| &request.head);
        let audience = Audience::of(parts, head, state, request_id, address);
        let audience = audience.reading(facts.get());
        *leases = state.tally.as_ref().and_then(|tally| self.leases.hold(tally.granted(), now));
        if let Some(line) = line {
            let identifier = &self.shared().identifier;
            line.note_facts(state, &parts.headers, facts.get(), &identifier.hasher);
            let input = named
                .map(|(request, snapshot)| judge_input(request, snapshot, inbound, facts, now));
            let named = input.as_ref().map(|input| NamingRequest { identifier, input });
            let series = line.meter.series();
            state.kept_names = count_decisions(series, state, action, address, named);
            note_unknown_tier(series, state, identifier, now);
            let name = |own: &DecidedCharge<'_, '_>, to: &mut String| {
                named.iter().for_each(|request| request.name(state, own, to));
            };
            let name = &name;
            let denied = DeniedRequest { parts, state, action, address, request_id, name };
            self.shared().denials.note(&self.denials, &denied, now);
        }
        audience
    }

    /// The worker's counters of a policy of this snapshot; none: of requests that no policy is for.
    fn series(&self, snapshot: &Snapshot, policy: Option<&Policy>) -> Rc<PolicySeries> {
        let mut series = self.series.borrow_mut();
        let current = series.take().filter(|own| own.generation() == snapshot.generation);
        let current =
            current.unwrap_or_else(|| self.shared().series.of_worker(self.worker, snapshot));
        Rc::clone(series.insert(current).policy(policy))
    }

    /// The address of the client: the peer's, or the one that a trusted peer names.
    fn client_address(
        &self,
        peer: &Peer,
        asker: Option<Asker>,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> IpAddr {
        let shared = self.shared();
        match asker {
            // It was read from the question.
            Some(Asker::Envoy) => return peer.address,
            Some(Asker::Forward | Asker::Nginx) => {
                return address_told(peer.address, headers, &shared.trusted_proxies);
            }
            None => {}
        }
        if peer.is_trusted {
            return address_behind(peer.address, headers, &shared.trusted_proxies);
        }
        warn_of_ignored_chain(shared, peer, headers, now);
        peer.address
    }

    /// Corrects the charges by the reply and makes the response, which finishes the log's line at
    /// its end.
    fn conclude(
        &self,
        guard: &mut RequestGuard<'_, '_>,
        reply: TimedReply,
        inbound: Inbound<'_>,
        arrival: Arrival,
        audience: &Audience<'_>,
    ) -> Response<Body> {
        let TimedReply { reply, upstream_time } = reply;
        if let Some(Rejection::Upstream(
            UpstreamError::RequestBodyTimeout | UpstreamError::RequestBodyTooSlow,
        )) = reply.rejection()
        {
            self.shared().admission.faults().count(Fault::SlowBody);
        }
        let RequestGuard { state, line, .. } = guard;
        if let (Some(line), Reply::Forwarded(response)) = (&mut *line, &reply) {
            line.note_costs(state, response.headers());
        }
        let series = line.as_ref().map(|line| line.meter.series());
        if let Some(series) = series {
            let upstream_time = upstream_time.unwrap_or_default();
            let added = arrival.started.elapsed().saturating_sub(upstream_time);
            series.own.added.record(added);
        }
        let is_undecided = reply.rejection().is_some_and(Rejection::is_undecided);
        let rejection = reply.rejection().filter(|_| self.log.is_some());
        let http_status = rejection.map(|rejection| rejection.status(state.responses()));
        let note = ResponseNote { is_undecided, upstream_time, ..ResponseNote::of(rejection) };
        let is_forwarded = matches!(reply, Reply::Forwarded(_));
        let mut response = self.judge.respond(reply, state, audience, series);
        let tap = match is_forwarded {
            true => guard.tap(arrival.now, response.headers()),
            false => None,
        };
        let leases = guard.leases.take();
        let mut account = guard.account(response.status().as_u16(), &note);
        if audience.format == Format::Grpc
            && let Some(tail) = account.as_mut().and_then(Account::tail_mut)
            && let Some(status) = grpc_status(response.headers())
        {
            tail.add_grpc_status(status, http_status);
        }
        let body = response.body_mut();
        body.set_account(account);
        body.set_tap(tap);
        body.set_leases(leases);
        if let Some(asker) = inbound.asker {
            translate(asker, note.is_undecided, &mut response);
        }
        response
    }
}

/// The body that goes on with this head, which may be changed for it.
fn forwarded_body(
    body: &ComingBody<'_>,
    state: &RequestState<'_>,
    parts: &mut Parts,
) -> Option<ClientBody> {
    match state.asks_for_usage(body.facts.get()) {
        false => body.take(),
        true => {
            let max_bytes = state.max_body().unwrap_or(u64::MAX);
            body.take_asking_for_usage(&mut parts.headers, max_bytes)
        }
    }
}

/// What a real request is judged by.
fn judge_input<'r>(
    request: &'r SoundRequest<'r, '_>,
    snapshot: &'r Snapshot,
    inbound: Inbound<'_>,
    facts: &'r OnceCell<BodyFacts>,
    now: Timestamp,
) -> JudgeInput<'r> {
    JudgeInput {
        head: &request.head,
        client: request.client,
        published_keys: &snapshot.keys,
        now,
        is_asked: inbound.asker.is_some(),
        dry_run: None,
        body: BodyInput::Elsewhere,
        facts,
    }
}
