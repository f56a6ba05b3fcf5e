//! The response to a judged request: the upstream's, or why there is none, with corrected charges
//! and limit headers.

use std::{mem, net::IpAddr, ops::ControlFlow, rc::Rc, sync::Arc};

use http::{HeaderMap, HeaderValue, Response, Version, request::Parts};
use tollgate_clock::Timestamp;
use tollgate_limit::Standing;
use tollgate_observe::metrics::PolicySeries;
use tollgate_response::{
    AllowedOrigin, Body, ErrorDetails, Format, Rejection, expose, is_grpc_call,
    keep_from_shared_caches, options, preferred_format, preflight_answer, standings,
};
use tollgate_usage::mcp::Recipients;

use super::{
    X_REQUEST_ID,
    body_look::BodyFacts,
    charge_plan::ChargeRole,
    cors,
    cost_tap::{CostTap, Measures},
    counting::CountedSender,
    head::Head,
    judge::Judge,
    late_charges::LateCharges,
    redirect::redirection,
    request_state::{Action, Forward, RequestState},
    stamp::stamp,
    tally::{DecidedCharge, ResponseFacts},
};

/// What a client gets for its request.
pub enum Reply {
    /// The upstream's response.
    Forwarded(Response<Body>),
    /// A response of this proxy.
    Made(Response<Body>),
    /// What another proxy gets that asked, and may forward the request.
    Admitted(Response<Body>),
    /// Why there is neither.
    Refused(Rejection),
}

/// What the client of a request decides about the form of the response.
pub struct Audience<'r> {
    pub(super) format: Format,
    /// Whom an error is for, in the form of JSON-RPC.
    recipients: Option<Recipients<'r>>,
    pub(super) request_id: &'r HeaderValue,
    /// The page of another origin that may read responses of this proxy.
    origin: Option<AllowedOrigin>,
    /// Whether the request was authenticated by its URL, which caches know it by.
    has_token_in_url: bool,
}

impl Reply {
    /// What this proxy itself responds to a judged request with these header fields; else, where
    /// the request is forwarded to.
    pub fn to<'p>(
        action: Action<'p>,
        state: &RequestState<'_>,
        fields: &HeaderMap,
    ) -> ControlFlow<Reply, Forward<'p>> {
        ControlFlow::Break(match action {
            Action::Forward(forward) => return ControlFlow::Continue(forward),
            Action::Options => Reply::Made(options()),
            Action::Standings => Reply::Made(standings_of(state)),
            Action::Redirect(status, location) => Reply::Made(redirection(status, location)),
            Action::Preflight(cors) => Reply::Made(preflight_answer(cors, fields)),
            Action::Refuse(rejection) => Reply::Refused(rejection),
        })
    }

    /// Why it is refused, if it is.
    pub fn rejection(&self) -> Option<&Rejection> {
        match self {
            Reply::Refused(rejection) => Some(rejection),
            Reply::Forwarded(_) | Reply::Made(_) | Reply::Admitted(_) => None,
        }
    }
}

impl<'r> Audience<'r> {
    /// The client, at this address, of a judged request. Without a `head`, its form is not
    /// sound.
    pub fn of(
        request: &Parts,
        head: Option<&Head<'_>>,
        state: &RequestState<'_>,
        request_id: &'r HeaderValue,
        address: IpAddr,
    ) -> Audience<'r> {
        let format = match state.may_speak_grpc() && is_grpc_call(request) {
            true => Format::Grpc,
            false => preferred_format(request, state.responses()),
        };
        let origin = cors::reader(state, head, &request.headers, address);
        let has_token_in_url = state.has_token_in(request.uri.query());
        Audience { format, recipients: None, request_id, origin, has_token_in_url }
    }

    /// The same client, which reads errors only as its messages, if the body of its request has
    /// some.
    #[must_use]
    pub fn reading(mut self, body: Option<&'r BodyFacts>) -> Audience<'r> {
        self.recipients = body.and_then(BodyFacts::recipients);
        if self.recipients.is_some() {
            self.format = Format::JsonRpc;
        }
        self
    }
}

impl Judge {
    /// The response to a judged request. None for `series`: the request is not counted.
    pub fn respond(
        &self,
        reply: Reply,
        state: &mut RequestState<'_>,
        audience: &Audience<'_>,
        series: Option<&PolicySeries>,
    ) -> Response<Body> {
        let &Audience { format, request_id, .. } = audience;
        let is_forwarded = matches!(reply, Reply::Forwarded(_));
        let is_unseen = matches!(reply, Reply::Admitted(_));
        let is_broken_off = reply.rejection().is_some_and(Rejection::is_broken_off);
        let (mut response, status) = match reply {
            Reply::Forwarded(response) | Reply::Made(response) | Reply::Admitted(response) => {
                let status = response.status();
                (response, status)
            }
            Reply::Refused(rejection) => {
                let status = rejection.status(state.responses());
                let violated = state.violated(format);
                let recipients = audience.recipients.as_ref();
                let details = ErrorDetails { format, request_id, violated, recipients };
                (rejection.into_response(state.responses(), &details), status)
            }
        };
        let facts = ResponseFacts {
            is_broken_off,
            is_unseen,
            ..ResponseFacts::of(state, status, response.headers())
        };
        self.settle(state, facts, series);
        if let (Some(policy), Some(route)) = (state.policy, state.route) {
            // What a request has cost is between the upstream and this proxy.
            for name in policy.cost_headers(route) {
                response.headers_mut().remove(name);
                response.body_mut().hide_trailer(name);
            }
        }
        if is_forwarded {
            self.pass_on(&mut response);
        }
        let headers = response.headers_mut();
        match (state.route, &audience.origin) {
            (Some(route), _) if is_forwarded => route.response_headers.apply(headers),
            (_, Some(origin)) if !is_forwarded => origin.apply(headers),
            _ => {}
        }
        // A proxy that asks sends the client a response of its own.
        if audience.has_token_in_url && !is_unseen {
            keep_from_shared_caches(headers);
        }
        stamp(response.headers_mut(), state, &self.shared);
        let headers = response.headers_mut();
        if !is_forwarded || state.tally.is_some() {
            expose(headers, state.responses().headers);
        }
        headers.insert(X_REQUEST_ID.clone(), request_id.clone());
        response
    }

    /// Makes an upstream's response one that has passed this proxy.
    fn pass_on(&self, response: &mut Response<Body>) {
        // An intermediary speaks its own version (RFC 9112 section 2.3).
        //= rfc9112#section-2.3
        //# MUST send their own HTTP-version in forwarded messages
        let received = mem::replace(response.version_mut(), Version::HTTP_11);
        if let Some(via) = &self.shared.via {
            //= rfc9110#section-7.6.3
            //# A proxy MUST send an appropriate Via header field
            via.append(response.headers_mut(), received);
        }
    }

    /// Corrects what a request of the past was charged, by what the upstream has answered then.
    pub fn settle_past(&self, state: &mut RequestState<'_>, answer: &Response<()>) {
        let facts = ResponseFacts::of(state, answer.status(), answer.headers());
        self.settle(state, facts, None);
    }

    /// Corrects what a simulated request was charged at `begun`, by the whole body of the
    /// upstream's response with this head.
    pub fn settle_body(
        &self,
        state: &RequestState<'_>,
        head: &HeaderMap,
        body: &[u8],
        begun: Timestamp,
    ) {
        let (Some(tally), Some(route)) = (&state.tally, state.route) else { return };
        let costs = tally.body_costs(&route.name, &self.shared, None);
        if costs.is_empty() {
            return;
        }
        let charges = LateCharges::new(Arc::clone(&self.shared), Rc::clone(&self.store));
        let mut tap = CostTap::new(&charges, costs, head, Measures { begun, received: None });
        tap.read(body);
        tap.settle(true);
    }

    /// Corrects what was charged, now that the response's head is known.
    fn settle(
        &self,
        state: &mut RequestState<'_>,
        response: ResponseFacts<'_>,
        series: Option<&PolicySeries>,
    ) {
        let RequestState { tally: Some(tally), policy, identity, kept_names, .. } = state else {
            return;
        };
        let identity = identity.as_ref();
        let name = |own: &DecidedCharge<'_, '_>, to: &mut String| kept_names.write(own, to);
        let sender = series.map(|series| CountedSender::of(series, *policy, identity, Some(&name)));
        if tally.settle(&self.store, response, &self.shared, sender.as_ref())
            && let (Some(policy), Some(identity)) = (*policy, identity)
        {
            self.note_change(policy, identity, self.shared.clock.now());
        }
    }
}

/// The standings of a caller that has queried them, on all enforced limits, also on those that the
/// store could not decide about.
fn standings_of(state: &RequestState<'_>) -> Response<Body> {
    let Some(tally) = &state.tally else { return standings([], None) };
    // A limit of several windows is reported by its last one.
    let mut resources: Vec<(&str, &Standing)> = Vec::new();
    for own in tally.enforced_or_undecided() {
        let name = &*own.planned.limit.name;
        match resources.last_mut() {
            Some(last) if last.0 == name => last.1 = own.standing(),
            _ => resources.push((name, own.standing())),
        }
    }
    let is_primary = |own: &DecidedCharge<'_, '_>| own.planned.role == ChargeRole::Primary;
    let rate = tally.enforced_or_undecided().filter(is_primary).last();
    standings(resources, rate.map(|own| own.standing()))
}
