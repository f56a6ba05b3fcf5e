//! What is decided about a request before anything is forwarded: its route, who sends it, and what
//! that is charged.
//!
//! Real requests and rehearsed ones come by here alike. What a rehearsal does otherwise is in its
//! [`Script`], and is asked for in three places: who the sender is, whether a charge is taken, and
//! whether an address is remembered for its bad tokens.

use std::{net::IpAddr, rc::Rc, sync::Arc};

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::{
    Shared,
    charges::{Asked, Charges},
    cors::{Preflighted, preflight},
    foresee::foresee,
    head::{Head, Target},
    revalidation::is_revalidation,
    tally::Tally,
};
use crate::{
    clock::Timestamp,
    identity::{AssumedToken, Client, Identity},
    limit::Verdict,
    policy::{self, Cors, Policy, Protocol, Responses, Route, Upstream},
    response::{Format, Rejection},
    store::Store,
    target::Form,
};

/// Decides about requests.
pub(super) struct Judge {
    pub(super) shared: Arc<Shared>,
    pub(super) store: Rc<Store>,
}

/// A request, as far as it is judged by.
#[derive(Clone, Copy)]
pub(super) struct Sent<'r, 'p> {
    pub(super) head: &'r Head<'r>,
    /// The policy for its host, if there is one.
    pub(super) policy: Option<&'p Policy>,
    pub(super) client: Client<'r>,
    /// The one instant at which it is judged.
    pub(super) now: Timestamp,
    /// None: somebody has really sent it.
    pub(super) script: Option<&'r Script>,
}

/// What is otherwise about a request that nobody has sent.
pub(super) struct Script {
    /// Its token, which counts as verified. None: its headers say who sends it.
    pub(super) token: Option<AssumedToken>,
    /// Whether it is charged, or it is only found out what that would come to.
    pub(super) is_charged: bool,
}

/// What is known about a request once it was judged.
#[derive(Default)]
pub(super) struct Passage<'p> {
    pub(super) policy: Option<&'p Policy>,
    pub(super) route: Option<&'p Route>,
    /// Of a browser's question whether it may send a request: whose pages may send it.
    pub(super) cors: Option<&'p Cors>,
    pub(super) identity: Option<Identity<'p>>,
    pub(super) tally: Option<Tally<'p>>,
    /// Whether the client asks if what it has is still current.
    pub(super) is_revalidation: bool,
}

/// What is to become of it.
pub(super) enum Outcome<'p> {
    Forward(&'p Upstream, Target),
    /// `OPTIONS *` asks about this server.
    Options,
    /// The caller asks how it stands.
    Standings,
    /// The listener sends every request elsewhere.
    Redirect(StatusCode, HeaderValue),
    /// A browser asks whether it may send another request, and is answered here.
    Preflight(&'p Cors),
    Refuse(Rejection),
}

impl Judge {
    pub(super) fn new(shared: Arc<Shared>, store: Rc<Store>) -> Judge {
        Judge { shared, store }
    }

    /// Route, identity, limits: all that is decided before anything is forwarded.
    pub(super) async fn judge<'p>(&self, sent: Sent<'_, 'p>) -> (Passage<'p>, Outcome<'p>) {
        let Sent { head, policy, client, now, script } = sent;
        let mut passage = Passage::default();
        if head.form == Form::Asterisk {
            return (passage, Outcome::Options);
        }
        let Some(policy) = policy else {
            return (passage, Outcome::Refuse(Rejection::NoRoute));
        };
        passage.policy = Some(policy);
        passage.is_revalidation = is_revalidation(head.method, client.headers, now);
        if policy.deny.contains_address(client.address) {
            return (passage, Outcome::Refuse(Rejection::Denied));
        }
        if let Some(preflighted) = preflight(policy, head, client) {
            return self.judge_preflight(preflighted, sent, passage).await;
        }
        let request = head.as_route_request(client.address);
        let destination = match asks_for_standings(policy, request) {
            true => None,
            false => match policy.route(request) {
                Some(destination) => Some(destination),
                None => return (passage, Outcome::Refuse(Rejection::NoRoute)),
            },
        };
        passage.route = destination.map(|(route, _)| route);
        // Like the policy's deny list, it costs the client nothing: there is nothing to guess.
        if let Some(Err(refusal)) = passage.route.map(|route| route.addresses.admit(client.address))
        {
            return (passage, Outcome::Refuse(refusal.into()));
        }
        // A body that will not be taken is not charged for, and nobody is asked who sends it.
        if let Some(max_bytes) = passage.route.and_then(|route| route.max_body)
            && declared_bytes(client.headers) > max_bytes
        {
            return (passage, Outcome::Refuse(Rejection::BodyTooLarge));
        }

        let (identifier, route) = (&self.shared.identifier, passage.route);
        let charges = Charges { identifier, policy, route, head, client, now, script };
        if let Err(rejection) = charges.check_fields() {
            return (passage, Outcome::Refuse(rejection));
        }
        let identity = match self.identify(charges).await {
            Ok(identity) => identity,
            Err((tally, rejection)) => {
                return (Passage { tally, ..passage }, Outcome::Refuse(rejection));
            }
        };
        if policy.deny.contains(&identity) {
            let identity = Some(identity);
            return (Passage { identity, ..passage }, Outcome::Refuse(Rejection::Denied));
        }
        let (tally, outcome) = match destination {
            None => self.look_up(charges, &identity).await,
            Some((route, upstream)) => match charges.of(&identity) {
                Ok(asked) => match self.charge(asked, charges, &identity).await {
                    (tally, Some(rejection)) => {
                        if identity.has_bad_token {
                            self.distrust(&charges, tally.as_ref());
                        }
                        (tally, Outcome::Refuse(rejection))
                    }
                    // Who lacks a scope has been told so for the price of an answer.
                    (tally, None) => match charges.lacks_scope(&identity) {
                        Some(scopes) => (tally, Outcome::Refuse(Rejection::Scope(scopes.into()))),
                        None => {
                            let target = head.target(&policy.identity.sources, &route.rewrite);
                            (tally, Outcome::Forward(upstream, target))
                        }
                    },
                },
                Err(rejection) => (None, Outcome::Refuse(rejection)),
            },
        };
        (Passage { identity: Some(identity), tally, ..passage }, outcome)
    }

    /// The same for a browser's question whether it may send a request.
    async fn judge_preflight<'p>(
        &self,
        preflighted: Preflighted<'p>,
        sent: Sent<'_, 'p>,
        passage: Passage<'p>,
    ) -> (Passage<'p>, Outcome<'p>) {
        let Preflighted { route, cors, course } = preflighted;
        let Sent { head, client, now, script, .. } = sent;
        let passage = Passage { route, cors: Some(cors), ..passage };
        if let Some(Err(refusal)) = route.map(|route| route.addresses.admit(client.address)) {
            return (passage, Outcome::Refuse(refusal.into()));
        }
        let (Some(policy), Outcome::Forward(..)) = (passage.policy, &course) else {
            return (passage, course);
        };
        let identifier = &self.shared.identifier;
        let charges = Charges { identifier, policy, route, head, client, now, script };
        let (tally, denied) = self.charge_preflight(charges).await;
        (Passage { tally, ..passage }, denied.map_or(course, Outcome::Refuse))
    }

    /// Takes all charges or none. Tells what came of it, and why the request is denied.
    pub(super) async fn charge<'p>(
        &self,
        asked: Asked<'p>,
        charges: Charges<'_, 'p>,
        identity: &Identity<'_>,
    ) -> (Option<Tally<'p>>, Option<Rejection>) {
        if asked.charges.is_empty() {
            return (None, None);
        }
        let tally = match charges.is_charged() {
            true => {
                let decision = self.store.charge(&asked.charges, charges.now).await;
                if matches!(&decision, Ok(decision) if decision.verdict == Verdict::Allow) {
                    self.note_change(charges.policy, identity, charges.now);
                }
                let unsettled = self.store.unsettled();
                decision.map(|decision| Tally::charged(asked, decision, charges.now, unsettled))
            }
            false => {
                let peeked = self.store.peek(&asked.charges, charges.now).await;
                let decision = foresee(&asked.charges, peeked);
                Ok(Tally::peeked(asked, decision, charges.now))
            }
        };
        match tally {
            Ok(tally) => {
                let jitter = charges.policy.responses.jitter;
                let rejection = tally.denial(identity, charges.now, jitter);
                (Some(tally), rejection)
            }
            Err(error) => (None, Some(error.into())),
        }
    }
}

impl<'p> Passage<'p> {
    /// What a denial is to name, if it is told in a form that does.
    pub(super) fn violated(&self, format: Format) -> Vec<&str> {
        match (format, &self.tally) {
            (Format::Problem, Some(tally)) => tally.violated().collect(),
            _ => Vec::new(),
        }
    }

    /// Whether the route leads to servers that are spoken to in HTTP/2, as gRPC needs it.
    pub(super) fn may_speak_grpc(&self) -> bool {
        let upstream = self
            .policy
            .zip(self.route)
            .and_then(|(policy, route)| policy.upstreams.get(route.upstream));
        upstream.is_some_and(|upstream| upstream.protocol == Protocol::Http2)
    }

    /// Whether the policy exempts the client from all limits.
    pub(super) fn is_exempt(&self, address: IpAddr) -> bool {
        let Some(policy) = self.policy else { return false };
        match &self.identity {
            Some(identity) => policy.exempt.contains(identity),
            None => policy.exempt.contains_address(address),
        }
    }

    /// Whether `User-Agent` holds no credentials.
    pub(super) fn may_log_user_agent(&self) -> bool {
        self.policy.is_none_or(|policy| !policy.identity.sources.reads(&header::USER_AGENT))
    }

    pub(super) fn responses(&self) -> &'p Responses {
        self.policy.map_or(&Responses::DEFAULT, |policy| &policy.responses)
    }
}

/// Whether a request is for the caller's own standings, which are told here.
pub(super) fn asks_for_standings(policy: &Policy, request: policy::Request<'_>) -> bool {
    let path = request.path.strip_suffix('/').unwrap_or(request.path);
    policy.responses.rate_limit_path.as_deref() == Some(path)
        && matches!(*request.method, Method::GET | Method::HEAD)
}

/// How long a request says that its body is; a body that comes in pieces says nothing.
fn declared_bytes(headers: &HeaderMap) -> u64 {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|digits| digits.parse().ok()).unwrap_or_default()
}
