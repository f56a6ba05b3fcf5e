//! The life of a request, from top to bottom: check its form, find its route, find out who is
//! calling, charge the limits, forward, put right what the response turned out to cost, and tell the
//! client where it stands.
//!
//! A request reads the policies once, and is judged at one instant. Whatever goes wrong becomes a
//! [`Rejection`], and rejections become responses in one place.

mod charges;
mod distrust;
mod head;
mod identify;
mod keys;
mod leases;
mod line;
mod request_id;
mod shared;
mod stamp;
mod tally;

use std::{
    cell::Cell,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderName, HeaderValue, Method, Request, Response, Version, header, request::Parts};
use hyper::body::Incoming;

use self::{
    charges::{Asked, Charges},
    distrust::Distrust,
    head::{Head, Target},
    leases::LeaseBook,
    line::{Owed, Seen},
    request_id::RequestIds,
    stamp::stamp,
    tally::{Answer, Tally},
};
use crate::{
    access_log::LogBuffer,
    clock::Timestamp,
    identity::{CallerValue, Client, Identity, client_address},
    limit::Standing,
    policy::{Auth, Policies, Policy, Responses, Route, Upstream},
    response::{Body, Format, Rejection, Telling, options_asterisk, preferred_format, standings},
    server::{Peer, Violation},
    store::Store,
    target::Form,
    upstream::{Forwarding, Upstreams, clean_request, clean_response},
};

pub use self::{
    leases::HeldLeases,
    shared::{NoRandomness, Shared},
};

static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static X_TOLLGATE_SUBJECT: HeaderName = HeaderName::from_static("x-tollgate-subject");
static X_TOLLGATE_TIER: HeaderName = HeaderName::from_static("x-tollgate-tier");

/// A worker's pipeline.
pub struct Gate {
    shared: Arc<Shared>,
    upstreams: Upstreams,
    store: Rc<Store>,
    leases: Rc<LeaseBook>,
    distrust: Distrust,
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

/// What is known about a request once it was judged.
#[derive(Default)]
struct Passage<'p> {
    policy: Option<&'p Policy>,
    route: Option<&'p Route>,
    identity: Option<Identity<'p>>,
    tally: Option<Tally<'p>>,
}

/// What is to become of it.
enum Outcome<'p> {
    Forward(&'p Upstream, Target),
    /// `OPTIONS *` asks about this server.
    Options,
    /// The caller asks how it stands.
    Standings,
    Refuse(Rejection),
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
            distrust: Distrust::new(),
            shared,
            upstreams,
            store,
            log: log.map(Rc::new),
            request_ids: RequestIds::default(),
            ticks: Cell::new(0),
        }
    }

    /// What is due from time to time: renew leases, sweep counters, close idle connections, hand over
    /// log lines.
    pub fn tick(&self) {
        let now = self.shared.clock.now();
        self.leases.renew(now);
        let stores = &self.shared.stores;
        self.store.tick(now);
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
        self.store.ready().await;
    }

    /// What is due when the worker ends.
    pub async fn finish(&self) {
        self.tick();
        // Of connections that are cut, which end only after this.
        self.leases.end_all();
        self.store.finish().await;
        self.shared.stores.counts.report();
    }

    /// What this worker shares with the others.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Answers a request. `framing` is the verdict on how it arrived.
    pub async fn handle(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
        framing: Result<(), Violation>,
    ) -> Response<Body> {
        let arrival = Arrival { now: self.shared.clock.now(), started: Instant::now() };
        let policies = self.shared.policies.load_full();
        let (mut parts, body) = request.into_parts();
        let request_id = self.request_ids.of(&parts.headers, peer.is_trusted);
        let address = client_address(peer.address, &parts.headers, &self.shared.trusted_proxies);

        // The form comes first: nothing else about an ambiguous request can be believed.
        let client = Client { address, headers: &parts.headers, query: parts.uri.query() };
        let head = framing.map_err(Rejection::from).and_then(|()| Head::read(&parts));
        let seen = self.log.is_some().then(|| Seen::of(&parts, &head, address));
        let line = self.log.as_ref().zip(seen);
        let (store, clock, request_id) = (&self.store, &self.shared.clock, &request_id);
        let passage = Passage::default();
        // From here on the client may go away while somebody else is waited for.
        let mut owed = Owed { store, clock, line, passage, request_id, arrival, is_begun: false };
        let (passage, outcome) = match head {
            Ok(head) => self.judge(&policies, &head, client, arrival.now).await,
            Err(rejection) => (Passage::default(), Outcome::Refuse(rejection)),
        };
        let leases = passage.tally.as_ref().and_then(|tally| self.leases.hold(tally, arrival.now));
        let format = preferred_format(&parts.headers, passage.responses());
        owed.passage = passage;

        let (answer, upstream_time) = match outcome {
            Outcome::Forward(upstream, target) => {
                parts
                    .headers
                    .entry(header::HOST)
                    .or_insert_with(|| target.host.unwrap_or_else(|| upstream.authority.clone()));
                parts.uri = target.uri;
                self.prepare(&mut parts, &owed.passage, (peer, request_id));
                self.forward(upstream, (parts, body)).await
            }
            Outcome::Options => (Ok(options_asterisk()), None),
            Outcome::Standings => (Ok(standings_of(&owed.passage)), None),
            Outcome::Refuse(rejection) => (Err(rejection), None),
        };
        let (mut response, error) = match answer {
            Ok(response) => (response, None),
            Err(rejection) => {
                let error = self.log.as_ref().map(|_| rejection.to_string());
                let violated = owed.passage.violated(format);
                let telling = Telling { format, request_id, violated };
                (rejection.into_response(owed.passage.responses(), &telling), error)
            }
        };
        self.settle(&mut owed.passage, &mut response);
        stamp(&mut response, &owed.passage, &self.shared);
        response.headers_mut().insert(X_REQUEST_ID.clone(), request_id.clone());
        let tail = owed.begin(response.status().as_u16(), &Note { error, upstream_time });
        response.map(|body| body.with_tail(tail).with_leases(leases))
    }

    /// Route, identity, limits: all that is decided before anything is forwarded.
    async fn judge<'p>(
        &self,
        policies: &'p Policies,
        head: &Head<'_>,
        client: Client<'_>,
        now: Timestamp,
    ) -> (Passage<'p>, Outcome<'p>) {
        let mut passage = Passage::default();
        if head.form == Form::Asterisk {
            return (passage, Outcome::Options);
        }
        let Some(policy) = policies.for_host(head.host()) else {
            return (passage, Outcome::Refuse(Rejection::NoRoute));
        };
        passage.policy = Some(policy);
        if policy.deny.contains_address(client.address) {
            return (passage, Outcome::Refuse(Rejection::Denied));
        }
        let destination = match asks_for_standings(policy, head) {
            true => None,
            false => match policy.route(head.as_route_request()) {
                Some(destination) => Some(destination),
                None => return (passage, Outcome::Refuse(Rejection::NoRoute)),
            },
        };
        passage.route = destination.map(|(route, _)| route);

        let (identifier, route) = (&self.shared.identifier, passage.route);
        let charges = Charges { identifier, policy, route, head, client, now };
        let identity = match self.identify(charges).await {
            Ok(identity) => identity,
            Err((tally, rejection)) => {
                return (Passage { tally, ..passage }, Outcome::Refuse(rejection));
            }
        };
        if policy.deny.contains(&identity) {
            return (passage, Outcome::Refuse(Rejection::Denied));
        }
        let (tally, outcome) = match destination {
            None => {
                let asked = charges.of_caller(&identity);
                let decision = self.store.peek(&asked.charges, now).await;
                (Some(Tally::peeked(asked, decision, now)), Outcome::Standings)
            }
            Some((_, upstream)) => match charges.of(&identity) {
                Ok(asked) => match self.charge(asked, charges, &identity).await {
                    (tally, Some(rejection)) => (tally, Outcome::Refuse(rejection)),
                    // Who lacks a scope has been told so for the price of an answer.
                    (tally, None) => match charges.lacks_scope(&identity) {
                        Some(scopes) => (tally, Outcome::Refuse(Rejection::Scope(scopes.into()))),
                        None => {
                            let target = head.target(&policy.identity.sources);
                            (tally, Outcome::Forward(upstream, target))
                        }
                    },
                },
                Err(rejection) => (None, Outcome::Refuse(rejection)),
            },
        };
        (Passage { identity: Some(identity), tally, ..passage }, outcome)
    }

    /// Takes all charges or none. Tells what came of it, and why the request is denied.
    async fn charge<'p>(
        &self,
        asked: Asked<'p>,
        charges: Charges<'_, 'p>,
        identity: &Identity<'_>,
    ) -> (Option<Tally<'p>>, Option<Rejection>) {
        if asked.charges.is_empty() {
            return (None, None);
        }
        match self.store.charge(&asked.charges, charges.now).await {
            Ok(decision) => {
                let tally = Tally::charged(asked, decision, charges.now);
                let jitter = charges.policy.responses.jitter;
                let rejection = tally.denial(identity, charges.now, jitter);
                (Some(tally), rejection)
            }
            Err(error) => (None, Some(error.into())),
        }
    }

    /// Puts right what was charged, now that the response's head is known.
    fn settle(&self, passage: &mut Passage<'_>, response: &mut Response<Body>) {
        if let Some(tally) = &mut passage.tally {
            let is_authenticated =
                passage.identity.as_ref().is_some_and(|identity| identity.token.is_some());
            let (status, headers) = (response.status(), response.headers());
            let answer = Answer { status, headers, is_authenticated };
            tally.settle(&self.store, answer, &self.shared.clock);
        }
        // What a request has cost is between the upstream and this proxy.
        if let (Some(policy), Some(route)) = (passage.policy, passage.route) {
            for name in policy.cost_headers(route) {
                response.headers_mut().remove(name);
                response.body_mut().hide_trailer(name);
            }
        }
    }

    /// Makes a request's head what the upstream is to see.
    fn prepare(
        &self,
        parts: &mut Parts,
        passage: &Passage<'_>,
        (peer, request_id): (&Peer, &HeaderValue),
    ) {
        parts.version = Version::HTTP_11;
        let headers = &mut parts.headers;
        if let (Some(policy), Some(route)) = (passage.policy, passage.route) {
            policy.identity.forwarded.strip(headers);
            if route.auth != Auth::None {
                policy.identity.sources.strip(headers);
            }
        }
        clean_request(
            headers,
            Forwarding {
                peer: &peer.address_value,
                peer_address: peer.address,
                trusted_field: peer.is_trusted.then(|| self.shared.trusted_proxies.field()),
                write_forwarded: self.shared.write_forwarded,
            },
        );
        // None of these is there any more: a client's own were taken out just now.
        headers.append(X_REQUEST_ID.clone(), request_id.clone());
        if let (Some(policy), Some(identity)) = (passage.policy, &passage.identity)
            && let Some(caller) = &identity.caller
        {
            if let Some(tier) = policy.identity.tiers.get(identity.tier) {
                headers.append(X_TOLLGATE_TIER.clone(), tier.value.clone());
            }
            if let CallerValue::Claim(subject) = &caller.value {
                headers.append(X_TOLLGATE_SUBJECT.clone(), subject.clone());
            }
        }
        let token = passage.identity.as_ref().and_then(|identity| identity.token.as_ref());
        for (name, value) in token.map_or(&[][..], |token| &token.forwarded) {
            headers.append(name.clone(), value.clone());
        }
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
            clean_response(response.headers_mut());
            response
        });
        (answer, upstream_time)
    }
}

impl<'p> Passage<'p> {
    /// What a denial is to name, if it is told in a form that does.
    fn violated(&self, format: Format) -> Vec<&str> {
        match (format, &self.tally) {
            (Format::Problem, Some(tally)) => tally.violated().collect(),
            _ => Vec::new(),
        }
    }

    fn responses(&self) -> &'p Responses {
        self.policy.map_or(&Responses::DEFAULT, |policy| &policy.responses)
    }
}

/// How the caller of a judged request stands, as it asked.
fn standings_of(passage: &Passage<'_>) -> Response<Body> {
    let Some(tally) = &passage.tally else { return standings([], None) };
    // Of several windows, the last is the one that a limit is known by.
    let mut resources: Vec<(&str, &Standing)> = Vec::new();
    for item in tally.enforced() {
        let name = &*item.asked.limit.name;
        match resources.last_mut() {
            Some(last) if last.0 == name => last.1 = item.standing(),
            _ => resources.push((name, item.standing())),
        }
    }
    standings(resources, tally.told().map(|item| item.standing()))
}

/// Whether a request is for the caller's own standings, which are told here.
fn asks_for_standings(policy: &Policy, head: &Head<'_>) -> bool {
    let path = head.path.strip_suffix('/').unwrap_or(&head.path);
    policy.responses.rate_limit_path.as_deref() == Some(path)
        && matches!(*head.method, Method::GET | Method::HEAD)
}
