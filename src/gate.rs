//! The life of a request, from top to bottom: check its form, find its route, find out who is
//! calling, charge the limits, forward, put right what the response turned out to cost, and tell the
//! client where it stands.
//!
//! A request reads the policies once, and is judged at one instant. Whatever goes wrong becomes a
//! [`Rejection`], and rejections become responses in one place.

mod abandoned;
mod charges;
mod cors;
mod dearest;
mod distrust;
mod explanation;
mod foresee;
mod head;
mod identify;
mod ignored_chain;
mod judge;
mod keys;
mod leases;
mod line;
mod lookups;
mod overrides;
mod own_limits;
mod permutation;
mod preflights;
mod prepare;
mod redirect;
mod refunds;
mod refuse;
mod rehearsal;
mod request_id;
mod respond;
mod revalidation;
mod shared;
mod stamp;
mod standings;
mod tally;
mod unfit_claims;
mod unread_scheme;
mod upgrade;

use std::{
    cell::Cell,
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{
    HeaderName, HeaderValue, Request, Response, StatusCode, Version, header, request::Parts,
};
use hyper::body::Body as _;

use self::{
    abandoned::{Abandoned, Answered, Exchange},
    head::Head,
    ignored_chain::warn_of_ignored_chain,
    judge::{Judge, Outcome, Passage, Sent},
    leases::LeaseBook,
    line::{DeniedBy, Owed, Seen},
    redirect::{redirect, redirection},
    request_id::RequestIds,
    respond::{Audience, Reply, standings_of},
    tally::Tally,
};
use crate::{
    access_log::LogBuffer,
    clock::Timestamp,
    downstream::{Fault, Peer, client_number},
    identity::{Client, address_behind},
    policy::{Balance, Policies, Protocol, Sharing, Upstream, UpstreamPlace},
    response::{Body, Format, Rejection, grpc_status, options_asterisk, preflight_answer},
    store::Store,
    upstream::{ClientBody, Sender, Switch, UpstreamError, Upstreams, clean_response},
    wire::Violation,
};

pub use self::{
    explanation::{
        ChosenPolicy, Explanation, FoundCaller, FoundLimit, FoundStanding, FoundWindow,
        PassedRoute, Prospect, TakenRoute, Understood,
    },
    leases::HeldLeases,
    refunds::Refunds,
    rehearsal::{Draft, Rehearsal, Rehearsed},
    shared::{NoRandomness, Shared},
    unread_scheme::UnreadSchemes,
};

static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A worker's pipeline.
pub struct Gate {
    judge: Judge,
    upstreams: Rc<Upstreams>,
    leases: Rc<LeaseBook>,
    abandoned: Rc<Abandoned>,
    log: Option<Rc<LogBuffer>>,
    request_ids: RequestIds,
    /// The id of a request that panicked, until it is answered.
    panicked: Cell<Option<HeaderValue>>,
}

/// When a request came.
#[derive(Clone, Copy)]
struct Arrival {
    /// The one instant at which it is judged.
    now: Timestamp,
    /// For measuring how long it takes.
    started: Instant,
}

/// What happened to it after that, for the log.
#[derive(Default)]
struct Note {
    error: Option<String>,
    denied: Option<DeniedBy>,
    upstream_time: Option<Duration>,
}

impl Gate {
    /// A pipeline over what is shared, with a worker's own connections and log buffer. It starts
    /// local tasks of this thread if counters are in Redis.
    pub fn new(shared: Arc<Shared>, upstreams: Upstreams, log: Option<LogBuffer>) -> Self {
        let store = Store::start(Arc::clone(&shared.stores));
        Gate {
            leases: LeaseBook::new(Rc::clone(&store), shared.clock.clone()),
            abandoned: Abandoned::new(Arc::clone(&shared), Rc::clone(&store)),
            judge: Judge::new(shared, store),
            upstreams: Rc::new(upstreams),
            log: log.map(Rc::new),
            request_ids: RequestIds::default(),
            panicked: Cell::default(),
        }
    }

    /// What is due from time to time: renew leases, sweep counters, close idle connections, hand over
    /// log lines.
    pub fn tick(&self) {
        let now = self.judge.shared.clock.now();
        self.leases.renew(now);
        self.judge.store.tick(now);
        self.upstreams.close_idle();
        if let Some(log) = &self.log {
            log.flush();
        }
    }

    /// What is due before the worker begins.
    pub async fn ready(&self) {
        self.judge.store.ready(self.judge.shared.clock.now()).await;
    }

    /// What is due when the worker ends.
    pub async fn finish(&self) {
        self.tick();
        // Of connections that are cut, which end only after this.
        self.leases.end_all();
        self.abandoned.end_all();
        self.judge.store.finish(self.judge.shared.clock.now()).await;
    }

    /// What this worker shares with the others.
    pub fn shared(&self) -> &Shared {
        &self.judge.shared
    }

    /// Answers a request. `framing` is the verdict on how it arrived.
    pub async fn handle(
        &self,
        request: Request<ClientBody>,
        peer: &Peer,
        framing: Result<(), Violation>,
    ) -> Response<Body> {
        let arrival = Arrival { now: self.judge.shared.clock.now(), started: Instant::now() };
        let policies = self.judge.shared.policies.load_full();
        let (mut parts, body) = request.into_parts();
        let request_id = self.request_ids.of(&parts.headers, peer.is_trusted);
        let address = match peer.is_trusted {
            true => {
                address_behind(peer.address, &parts.headers, &self.judge.shared.trusted_proxies)
            }
            false => {
                warn_of_ignored_chain(&self.judge.shared, peer, &parts.headers, arrival.now);
                peer.address
            }
        };

        // The form comes first: nothing else about an ambiguous request can be believed.
        let head = framing.map_err(Rejection::from).and_then(|()| Head::read(&parts, &policies));
        let certificate = peer.certificate(arrival.now);
        let client = Client {
            address,
            certificate: certificate.unwrap_or_default(),
            headers: &parts.headers,
            query: parts.uri.query(),
        };
        let head = head.and_then(|head| certificate.map(|_| head).map_err(Rejection::from));
        let known = head.as_ref().ok().map(|(head, _)| head);
        let seen = self.log.is_some().then(|| Seen::of(&parts, known, address));
        let line = self.log.as_ref().zip(seen);
        let judge = &self.judge;
        let request_id = &request_id;
        let passage = Passage::default();
        // From here on the client may go away while somebody else is waited for.
        let (is_begun, panicked) = (false, &self.panicked);
        let (leases, exchange, abandoned) = (None, None, &self.abandoned);
        let mut owed = Owed {
            line,
            passage,
            request_id,
            arrival,
            is_begun,
            panicked,
            leases,
            exchange,
            abandoned,
        };
        let (passage, outcome, audience) = match head {
            Ok((head, policy)) => {
                let sent = Sent { head: &head, policy, client, now: arrival.now, script: None };
                let (passage, outcome) = match peer.listener.redirect {
                    Some(elsewhere) => (Passage::default(), redirect(&head, elsewhere)),
                    None => judge.judge(sent).await,
                };
                let audience = Audience::of(&parts, Some(&head), &passage, request_id, address);
                (passage, outcome, audience)
            }
            Err(rejection) => {
                let passage = Passage::default();
                let audience = Audience::of(&parts, None, &passage, request_id, address);
                (passage, Outcome::Refuse(rejection), audience)
            }
        };
        owed.leases = passage.tally.as_ref().and_then(|tally| self.leases.hold(tally, arrival.now));
        owed.passage = passage;

        let (reply, upstream_time) = match outcome {
            Outcome::Forward(upstream, target) => {
                let sender = (peer, request_id);
                let is_upgrade =
                    judge.prepare(&mut parts, &owed.passage, (upstream, target), sender);
                let sender = sender_of(&owed.passage, upstream, (peer, address));
                let started = self.log.as_ref().map(|_| Instant::now());
                let body = (!is_upgrade).then(|| {
                    let max_bytes = match &owed.passage.identity {
                        Some(_) => owed.passage.route.and_then(|route| route.max_body),
                        // A preflight, which takes no token and has no body.
                        None => Some(0),
                    };
                    let counted = owed.line.as_mut().filter(|_| !body.incoming.is_end_stream());
                    let received = counted.map(|(_, seen)| seen.count_body());
                    // A call that streams says something when it has something to say.
                    let may_be_slow =
                        audience.format == Format::Grpc && upstream.protocol == Protocol::Http2;
                    ClientBody { max_bytes, received, may_be_slow, ..body }
                });
                let is_cost_awaited = owed.passage.tally.as_ref().is_some_and(Tally::awaits_cost);
                match body {
                    body if is_cost_awaited => {
                        let place = policies.place_of(upstream);
                        let way = (Rc::clone(&self.upstreams), Arc::clone(&policies), place);
                        owed.answer(detached(way, sender, (parts, body), started)).await
                    }
                    None => switch(&self.upstreams, upstream, (sender, parts), started).await,
                    Some(body) => {
                        forward(&self.upstreams, upstream, (sender, parts, body), started).await
                    }
                }
            }
            Outcome::Options => (Reply::Made(options_asterisk()), None),
            Outcome::Standings => (Reply::Made(standings_of(&owed.passage)), None),
            Outcome::Redirect(status, location) => {
                (Reply::Made(redirection(status, location)), None)
            }
            Outcome::Preflight(cors) => (Reply::Made(preflight_answer(cors, &parts.headers)), None),
            Outcome::Refuse(rejection) => (Reply::Refused(rejection), None),
        };
        if let Some(Rejection::Upstream(
            UpstreamError::RequestBodyTimeout | UpstreamError::RequestBodyTooSlow,
        )) = reply.rejection()
        {
            judge.shared.admission.faults().count(Fault::SlowBody);
        }
        let rejection = reply.rejection().filter(|_| self.log.is_some());
        let (error, denied) =
            (rejection.map(ToString::to_string), rejection.and_then(DeniedBy::of));
        let stands_for = rejection.map(|rejection| rejection.status(owed.passage.responses()));
        let note = Note { error, denied, upstream_time };
        let response = judge.respond(reply, &mut owed.passage, &audience);
        let leases = owed.leases.take();
        let mut tail = owed.begin(response.status().as_u16(), &note);
        if audience.format == Format::Grpc
            && let Some(tail) = &mut tail
            && let Some(status) = grpc_status(response.headers())
        {
            tail.add_grpc_status(status, stands_for);
        }
        response.map(|body| body.with_tail(tail).with_leases(leases))
    }
}

/// What the upstream answers, and how long that took since it `started`.
async fn forward(
    upstreams: &Upstreams,
    upstream: &Upstream,
    (sender, head, body): (Sender, Parts, ClientBody),
    started: Option<Instant>,
) -> Answered {
    let result = upstreams.forward(upstream, sender, (head, body)).await;
    let upstream_time = started.map(|started| started.elapsed());
    let response = result.map(|response| from_upstream(response.map(Body::upstream)));
    (reply(response, upstream), upstream_time)
}

/// The same for a request to switch to another protocol.
async fn switch(
    upstreams: &Upstreams,
    upstream: &Upstream,
    (sender, head): (Sender, Parts),
    started: Option<Instant>,
) -> Answered {
    let result = upstreams.switch(upstream, sender, head).await;
    let upstream_time = started.map(|started| started.elapsed());
    let response = result.map(|switch| match switch {
        Switch::Declined(response) => from_upstream(response.map(Body::declined)),
        Switch::Agreed(response, server) => {
            let protocol = response.headers().get(header::UPGRADE).cloned();
            let mut response = from_upstream(response.map(|()| Body::switched(server)));
            if let Some(protocol) = protocol {
                upgrade::name(response.headers_mut(), protocol);
            }
            response
        }
    });
    (reply(response, upstream), upstream_time)
}

/// Either of the two, in a form that can go on without the client's connection. Without a body it is
/// a request to switch.
fn detached(
    (upstreams, policies, place): (Rc<Upstreams>, Arc<Policies>, Option<UpstreamPlace>),
    sender: Sender,
    (head, body): (Parts, Option<ClientBody>),
    started: Option<Instant>,
) -> Exchange {
    // Whether a request to switch was sent is not told.
    let is_sent = Rc::new(Cell::new(body.is_none()));
    let body = body.map(|body| ClientBody { sent: Some(Rc::clone(&is_sent)), ..body });
    let answer = Box::pin(async move {
        let upstream = place.and_then(|place| policies.upstream_at(place));
        let Some(upstream) = upstream else { return (Reply::Refused(Rejection::Internal), None) };
        match body {
            Some(body) => forward(&upstreams, upstream, (sender, head, body), started).await,
            None => switch(&upstreams, upstream, (sender, head), started).await,
        }
    });
    Exchange { answer, is_sent }
}

fn from_upstream(mut response: Response<Body>) -> Response<Body> {
    // An intermediary speaks its own version (RFC 9112 section 2.3).
    *response.version_mut() = Version::HTTP_11;
    let status = response.status();
    let headers = response.headers_mut();
    // What is required is the point of that status (RFC 9110 section 15.5.22).
    let required = match status {
        StatusCode::UPGRADE_REQUIRED => headers.get(header::UPGRADE).cloned(),
        _ => None,
    };
    clean_response(headers);
    if let Some(required) = required {
        upgrade::name(headers, required);
    }
    response
}

fn reply(result: Result<Response<Body>, UpstreamError>, upstream: &Upstream) -> Reply {
    match result {
        Ok(response) => Reply::Forwarded(response),
        Err(error) => {
            match error.is_servers_fault() {
                true => tracing::warn!(upstream = %upstream.name, %error, "upstream failed"),
                // Who sends half a body may do so often.
                false => tracing::debug!(upstream = %upstream.name, %error, "not forwarded"),
            }
            Reply::Refused(Rejection::Upstream(error))
        }
    }
}

/// Who sends a request, as far as its upstream is concerned.
fn sender_of(
    passage: &Passage<'_>,
    upstream: &Upstream,
    (peer, address): (&Peer, IpAddr),
) -> Sender {
    let caller = match (&passage.identity, upstream.balance) {
        (Some(identity), Balance::Caller) => identity.stable_hash("server"),
        _ => 0,
    };
    // A trusted proxy that names nobody stands for all its clients.
    let is_stranger = !peer.is_trusted || address != peer.address;
    let is_shared = is_stranger && upstream.bounds.shares == Sharing::Address;
    Sender { caller, client: is_shared.then(|| client_number(address)) }
}
