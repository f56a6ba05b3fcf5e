//! The life of a request, from top to bottom: check its form, find its route, find out who is
//! calling, charge the limits, forward, put right what the response turned out to cost, and tell the
//! client where it stands.
//!
//! A request reads the policies once, and is judged at one instant. Whatever goes wrong becomes a
//! [`Rejection`], and rejections become responses in one place.

mod charges;
mod distrust;
mod explanation;
mod foresee;
mod head;
mod identify;
mod judge;
mod keys;
mod leases;
mod line;
mod prepare;
mod rehearsal;
mod request_id;
mod respond;
mod shared;
mod stamp;
mod tally;

use std::{
    cell::Cell,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderName, Request, Response, Version, request::Parts};
use hyper::body::Incoming;

use self::{
    head::Head,
    judge::{Judge, Outcome, Passage, Sent},
    leases::LeaseBook,
    line::{Owed, Seen},
    request_id::RequestIds,
    respond::standings_of,
};
use crate::{
    access_log::LogBuffer,
    clock::Timestamp,
    identity::{Client, client_address},
    policy::Upstream,
    response::{Body, Rejection, options_asterisk, preferred_format},
    server::{Peer, Violation},
    store::Store,
    upstream::{Upstreams, clean_response},
};

pub use self::{
    explanation::{
        ChosenPolicy, Explanation, FoundCaller, FoundLimit, FoundStanding, FoundWindow,
        PassedRoute, Prospect, TakenRoute, Understood,
    },
    leases::HeldLeases,
    rehearsal::{Draft, Rehearsal, Rehearsed},
    shared::{NoRandomness, Shared},
};

static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A worker's pipeline.
pub struct Gate {
    judge: Judge,
    upstreams: Upstreams,
    leases: Rc<LeaseBook>,
    log: Option<Rc<LogBuffer>>,
    request_ids: RequestIds,
    ticks: Cell<u32>,
}

/// Ticks between two events about the same thing.
const TICKS_A_REPORT: u32 = 10;

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
    upstream_time: Option<Duration>,
}

impl Gate {
    /// A pipeline over what is shared, with a worker's own connections and log buffer. It starts
    /// local tasks of this thread if counters are in Redis.
    pub fn new(shared: Arc<Shared>, upstreams: Upstreams, log: Option<LogBuffer>) -> Self {
        let store = Store::start(Arc::clone(&shared.stores));
        Gate {
            leases: LeaseBook::new(Rc::clone(&store), shared.clock.clone()),
            judge: Judge::new(shared, store),
            upstreams,
            log: log.map(Rc::new),
            request_ids: RequestIds::default(),
            ticks: Cell::new(0),
        }
    }

    /// What is due from time to time: renew leases, sweep counters, close idle connections, hand over
    /// log lines.
    pub fn tick(&self) {
        let now = self.judge.shared.clock.now();
        self.leases.renew(now);
        let stores = &self.judge.shared.stores;
        self.judge.store.tick(now);
        self.ticks.set(self.ticks.get().wrapping_add(1));
        if self.ticks.get().is_multiple_of(TICKS_A_REPORT) {
            stores.counts.report();
            let refused = stores.memory.take_refused();
            if refused > 0 {
                tracing::warn!(refused, "no room for new counters: raise store.memory.max_keys");
            }
        }
        self.upstreams.close_idle();
        if let Some(log) = &self.log {
            log.flush();
        }
    }

    /// What is due before the worker begins.
    pub async fn ready(&self) {
        self.judge.store.ready().await;
    }

    /// What is due when the worker ends.
    pub async fn finish(&self) {
        self.tick();
        // Of connections that are cut, which end only after this.
        self.leases.end_all();
        self.judge.store.finish().await;
        self.judge.shared.stores.counts.report();
    }

    /// What this worker shares with the others.
    pub fn shared(&self) -> &Shared {
        &self.judge.shared
    }

    /// Answers a request. `framing` is the verdict on how it arrived.
    pub async fn handle(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
        framing: Result<(), Violation>,
    ) -> Response<Body> {
        let arrival = Arrival { now: self.judge.shared.clock.now(), started: Instant::now() };
        let policies = self.judge.shared.policies.load_full();
        let (mut parts, body) = request.into_parts();
        let request_id = self.request_ids.of(&parts.headers, peer.is_trusted);
        let address =
            client_address(peer.address, &parts.headers, &self.judge.shared.trusted_proxies);

        // The form comes first: nothing else about an ambiguous request can be believed.
        let client = Client { address, headers: &parts.headers, query: parts.uri.query() };
        let head = framing.map_err(Rejection::from).and_then(|()| Head::read(&parts));
        let seen = self.log.is_some().then(|| Seen::of(&parts, &head, address));
        let line = self.log.as_ref().zip(seen);
        let judge = &self.judge;
        let (store, clock, request_id) = (&judge.store, &judge.shared.clock, &request_id);
        let passage = Passage::default();
        // From here on the client may go away while somebody else is waited for.
        let mut owed = Owed { store, clock, line, passage, request_id, arrival, is_begun: false };
        let (passage, outcome) = match head {
            Ok(head) => {
                let sent = Sent { head: &head, client, now: arrival.now, script: None };
                judge.judge(&policies, sent).await
            }
            Err(rejection) => (Passage::default(), Outcome::Refuse(rejection)),
        };
        let leases = passage.tally.as_ref().and_then(|tally| self.leases.hold(tally, arrival.now));
        let format = preferred_format(&parts.headers, passage.responses());
        owed.passage = passage;

        let (answer, upstream_time) = match outcome {
            Outcome::Forward(upstream, target) => {
                let sender = (peer, request_id);
                judge.prepare(&mut parts, &owed.passage, (upstream, target), sender);
                self.forward(upstream, (parts, body)).await
            }
            Outcome::Options => (Ok(options_asterisk()), None),
            Outcome::Standings => (Ok(standings_of(&owed.passage)), None),
            Outcome::Refuse(rejection) => (Err(rejection), None),
        };
        let error = answer.as_ref().err().filter(|_| self.log.is_some()).map(ToString::to_string);
        let response = judge.respond(answer, &mut owed.passage, (format, request_id));
        let tail = owed.begin(response.status().as_u16(), &Note { error, upstream_time });
        response.map(|body| body.with_tail(tail).with_leases(leases))
    }

    /// What the upstream answers.
    ///
    /// # Errors
    /// [`Rejection::Upstream`] if it gives no answer.
    async fn forward(
        &self,
        upstream: &Upstream,
        request: (Parts, Incoming),
    ) -> (Result<Response<Body>, Rejection>, Option<Duration>) {
        let started = self.log.as_ref().map(|_| Instant::now());
        let result = self.upstreams.forward(upstream, request).await;
        let upstream_time = started.map(|started| started.elapsed());
        let answer = result.map_err(|error| {
            tracing::warn!(upstream = %upstream.name, %error, "upstream failed");
            Rejection::Upstream(error)
        });
        let answer = answer.map(|response| {
            let mut response = response.map(Body::upstream);
            // An intermediary speaks its own version (RFC 9112 section 2.3).
            *response.version_mut() = Version::HTTP_11;
            clean_response(response.headers_mut());
            response
        });
        (answer, upstream_time)
    }
}
