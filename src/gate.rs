//! The life of a request, from top to bottom: check its form, find its route, find out who is
//! calling, charge the limits, forward, and tell the client where it stands.
//!
//! A request reads the policies once and the clock once. Whatever goes wrong becomes a
//! [`Rejection`], and rejections become responses in one place.

mod charges;
mod head;
mod line;
mod request_id;

use std::{
    cell::Cell,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use http::{HeaderName, HeaderValue, Request, Response, Version, header, request::Parts};
use hyper::body::Incoming;

use self::{
    charges::{Asked, AskedLimit, Charges},
    head::{Head, Target},
    line::{Owed, Seen},
    request_id::RequestIds,
};
use crate::{
    access_log::LogBuffer,
    clock::{Clock, Timestamp},
    identity::{
        CallerValue, Client, Identifier, Identity, IdentityError, TokenCache, TrustedProxies,
        client_address,
    },
    limit::{KeyHasher, Standing, Verdict},
    policy::{Auth, Policies, Policy, Responses, Route, Upstream},
    response::{Body, Denial, LimitHeaders, Rejection, options_asterisk},
    server::{Peer, Violation},
    settings::Configuration,
    store::MemoryStore,
    target::Form,
    upstream::{Forwarding, Upstreams, clean_request, clean_response},
};

static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static X_TOLLGATE_SUBJECT: HeaderName = HeaderName::from_static("x-tollgate-subject");
static X_TOLLGATE_TIER: HeaderName = HeaderName::from_static("x-tollgate-tier");

/// What all workers share.
pub struct Shared {
    /// The policies in force.
    pub policies: ArcSwap<Policies>,
    /// The counters.
    pub store: MemoryStore,
    /// Finds out who is calling.
    pub identifier: Identifier,
    /// What time it is.
    pub clock: Clock,
    /// Whose word about a client's address is taken.
    pub trusted_proxies: TrustedProxies,
    /// Whether upstreams get a `Forwarded` field.
    pub write_forwarded: bool,
}

impl Shared {
    /// What `configuration` describes, with no counters yet, at the time that `clock` tells.
    ///
    /// # Errors
    /// The system has no random numbers to key the counters with.
    pub fn new(configuration: Configuration, clock: Clock) -> Result<Shared, NoRandomness> {
        let Configuration { settings, policies } = configuration;
        let mut secret = [0; 16];
        aws_lc_rs::rand::fill(&mut secret).map_err(|_| NoRandomness)?;
        Ok(Shared {
            policies: ArcSwap::from_pointee(policies),
            store: MemoryStore::new(settings.max_keys),
            identifier: Identifier {
                tokens: TokenCache::new(settings.token_cache_bytes),
                hasher: KeyHasher::new(secret),
            },
            clock,
            trusted_proxies: settings.trusted_proxies,
            write_forwarded: settings.write_forwarded,
        })
    }
}

/// The system has no random numbers.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the system has no random numbers")]
pub struct NoRandomness;

/// A worker's pipeline.
pub struct Gate {
    shared: Arc<Shared>,
    upstreams: Upstreams,
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
    /// The limit that the client is told about: the primary one, or the one that denied.
    told: Option<Told<'p>>,
}

/// A limit and how it stands.
type Told<'p> = (AskedLimit<'p>, Standing);

/// What is to become of it.
enum Outcome<'p> {
    Forward(&'p Upstream, Target),
    /// `OPTIONS *` asks about this server.
    Options,
    Refuse(Rejection),
}

/// What happened to it after that, for the log.
#[derive(Default)]
struct Note {
    error: Option<String>,
    upstream_time: Option<Duration>,
}

impl Gate {
    /// A pipeline over what is shared, with a worker's own connections and log buffer.
    pub fn new(shared: Arc<Shared>, upstreams: Upstreams, log: Option<LogBuffer>) -> Self {
        let log = log.map(Rc::new);
        Gate { shared, upstreams, log, request_ids: RequestIds::default(), ticks: Cell::new(0) }
    }

    /// What is due from time to time: sweep counters, close idle connections, hand over log lines.
    pub fn tick(&self) {
        self.shared.store.sweep(self.shared.clock.now());
        self.ticks.set(self.ticks.get().wrapping_add(1));
        if self.ticks.get().is_multiple_of(TICKS_A_REPORT) {
            let refused = self.shared.store.take_refused();
            if refused > 0 {
                tracing::warn!(refused, "no room for new counters: raise store.memory.max_keys");
            }
        }
        self.upstreams.close_idle();
        if let Some(log) = &self.log {
            log.flush();
        }
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
        let client = Client { address, headers: &parts.headers };
        let head = framing.map_err(Rejection::from).and_then(|()| Head::read(&parts));
        let seen = self.log.is_some().then(|| Seen::of(&parts, &head, address));
        let (passage, outcome) = match head {
            Ok(head) => self.judge(&policies, &head, client, arrival.now),
            Err(rejection) => (Passage::default(), Outcome::Refuse(rejection)),
        };
        let owed = self.log.as_ref().zip(seen).map(|(log, seen)| {
            let (passage, request_id) = (&passage, &request_id);
            Owed { log, seen, passage, request_id, arrival, is_begun: false }
        });

        let (mut response, note) = match outcome {
            Outcome::Forward(upstream, target) => {
                parts
                    .headers
                    .entry(header::HOST)
                    .or_insert_with(|| target.host.unwrap_or_else(|| upstream.authority.clone()));
                parts.uri = target.uri;
                self.prepare(&mut parts, &passage, (peer, &request_id));
                self.forward(upstream, (parts, body), &passage).await
            }
            Outcome::Options => (options_asterisk(), Note::default()),
            Outcome::Refuse(rejection) => self.refuse(rejection, &passage),
        };
        if let Some((asked, standing)) = &passage.told
            && passage.responses().headers.shows_limits()
        {
            LimitHeaders::new(asked.limit, asked.allowance, standing).stamp(response.headers_mut());
        }
        response.headers_mut().insert(X_REQUEST_ID.clone(), request_id.clone());
        match owed.map(|owed| owed.begin(response.status().as_u16(), &note)) {
            Some(tail) => response.map(|body| body.with_tail(tail)),
            None => response,
        }
    }

    /// Route, identity, limits: all that is decided before anything is forwarded.
    fn judge<'p>(
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
        let Some((route, upstream)) = policy.route(head.as_route_request()) else {
            return (passage, Outcome::Refuse(Rejection::NoRoute));
        };
        passage.route = Some(route);

        let identifier = &self.shared.identifier;
        let charges = Charges { identifier, policy, route, head, client };
        let identity = match identifier.identify(&policy.identity, &route.auth, client, now) {
            Ok(identity) => identity,
            Err(error) => {
                let (told, rejection) = self.charge_address(charges, error, now);
                return (Passage { told, ..passage }, Outcome::Refuse(rejection));
            }
        };
        let (told, denied) = self.charge(&charges.of(&identity), &identity, now);
        let outcome = match denied {
            None => Outcome::Forward(upstream, head.target()),
            Some(rejection) => Outcome::Refuse(rejection),
        };
        (Passage { identity: Some(identity), told, ..passage }, outcome)
    }

    /// A request whose sender could not be identified is charged to its address where the route has
    /// a limit by address, and to nobody else: whoever it claims to be must not pay for it. Without
    /// that, guessing tokens would be free.
    fn charge_address<'p>(
        &self,
        charges: Charges<'_, 'p>,
        error: IdentityError,
        now: Timestamp,
    ) -> (Option<Told<'p>>, Rejection) {
        let rules = &charges.policy.identity;
        let nobody = self.shared.identifier.unidentified(rules, charges.client.address);
        let (told, denied) = self.charge(&charges.by_address(&nobody), &nobody, now);
        (told, denied.unwrap_or(Rejection::Identity(error)))
    }

    /// Takes all charges or none. Tells the limit that the client hears of, and why not.
    fn charge<'p>(
        &self,
        asked: &Asked<'p>,
        identity: &Identity<'_>,
        now: Timestamp,
    ) -> (Option<Told<'p>>, Option<Rejection>) {
        if asked.charges.is_empty() {
            return (None, None);
        }
        let decision = match self.shared.store.charge(&asked.charges, now) {
            Ok(decision) => decision,
            Err(error) => return (None, Some(error.into())),
        };
        let told = |at: usize| Some((*asked.limits.get(at)?, *decision.standings.get(at)?));
        match decision.verdict {
            Verdict::Allow => (told(0), None),
            Verdict::Deny(at) => {
                let denial = Denial::new(identity, decision.retry(), now);
                let rejection = match asked.limits.get(at) {
                    Some(AskedLimit { is_primary: false, .. }) => Rejection::Secondary(denial),
                    _ => Rejection::Primary(denial),
                };
                (told(at), Some(rejection))
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
        if let (Some(policy), Some(route)) = (passage.policy, passage.route)
            && route.auth != Auth::None
        {
            policy.identity.sources.strip(headers);
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
    }

    async fn forward(
        &self,
        upstream: &Upstream,
        request: (Parts, Incoming),
        passage: &Passage<'_>,
    ) -> (Response<Body>, Note) {
        let started = self.log.as_ref().map(|_| Instant::now());
        let result = self.upstreams.forward(upstream, request).await;
        let upstream_time = started.map(|started| started.elapsed());
        match result {
            Ok(response) => {
                let mut response = response.map(Body::upstream);
                clean_response(response.headers_mut());
                (response, Note { upstream_time, error: None })
            }
            Err(error) => {
                tracing::warn!(upstream = %upstream.name, %error, "upstream failed");
                let (response, note) = self.refuse(error.into(), passage);
                (response, Note { upstream_time, ..note })
            }
        }
    }

    fn refuse(&self, rejection: Rejection, passage: &Passage<'_>) -> (Response<Body>, Note) {
        let error = self.log.as_ref().map(|_| rejection.to_string());
        let response = rejection.into_response(passage.responses());
        (response, Note { error, upstream_time: None })
    }
}

impl<'p> Passage<'p> {
    fn responses(&self) -> &'p Responses {
        self.policy.map_or(&Responses::DEFAULT, |policy| &policy.responses)
    }
}
