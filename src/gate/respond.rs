//! What the client is told: the upstream's answer, or why there is none, with what was charged put
//! right and how the limits stand.

use std::net::IpAddr;

use http::{HeaderValue, Response, StatusCode, request::Parts};

use super::{
    X_REQUEST_ID,
    charges::Role,
    cors,
    head::Head,
    judge::{Judge, Passage},
    stamp::stamp,
    tally::Answer,
};
use crate::{
    limit::Standing,
    response::{
        AllowedOrigin, Body, Format, Rejection, Telling, expose, is_grpc_call, preferred_format,
        standings,
    },
};

/// What a request is answered with.
pub(super) enum Reply {
    /// What the upstream says.
    Forwarded(Response<Body>),
    /// What is known here.
    Made(Response<Body>),
    /// Why it is not answered.
    Refused(Rejection),
}

/// Who is told, as far as that matters to how.
pub(super) struct Audience<'r> {
    pub(super) format: Format,
    pub(super) request_id: &'r HeaderValue,
    /// The page of another origin that may read what is answered here.
    origin: Option<AllowedOrigin>,
}

impl Reply {
    pub(super) fn rejection(&self) -> Option<&Rejection> {
        match self {
            Reply::Refused(rejection) => Some(rejection),
            Reply::Forwarded(_) | Reply::Made(_) => None,
        }
    }
}

impl<'r> Audience<'r> {
    /// The sender, at this address, of a judged request. `head` is none if the request's form is not
    /// sound.
    pub(super) fn of(
        request: &Parts,
        head: Option<&Head<'_>>,
        passage: &Passage<'_>,
        request_id: &'r HeaderValue,
        address: IpAddr,
    ) -> Audience<'r> {
        let format = match passage.may_speak_grpc() && is_grpc_call(request) {
            true => Format::Grpc,
            false => preferred_format(request, passage.responses()),
        };
        Audience {
            format,
            request_id,
            origin: cors::reader(passage, head, &request.headers, address),
        }
    }
}

impl Judge {
    /// The response to a judged request.
    pub(super) fn respond(
        &self,
        reply: Reply,
        passage: &mut Passage<'_>,
        audience: &Audience<'_>,
    ) -> Response<Body> {
        let &Audience { format, request_id, .. } = audience;
        let is_forwarded = matches!(reply, Reply::Forwarded(_));
        let is_broken_off = reply.rejection().is_some_and(Rejection::is_broken_off);
        let (mut response, status) = match reply {
            Reply::Forwarded(response) | Reply::Made(response) => {
                let status = response.status();
                (response, status)
            }
            Reply::Refused(rejection) => {
                let status = rejection.status(passage.responses());
                let telling = Telling { format, request_id, violated: passage.violated(format) };
                (rejection.into_response(passage.responses(), &telling), status)
            }
        };
        self.settle(passage, &mut response, (status, is_broken_off));
        let headers = response.headers_mut();
        match (passage.route, &audience.origin) {
            (Some(route), _) if is_forwarded => route.response_headers.apply(headers),
            (_, Some(origin)) if !is_forwarded => origin.tell(headers),
            _ => {}
        }
        stamp(&mut response, passage, &self.shared);
        let headers = response.headers_mut();
        if !is_forwarded || passage.tally.is_some() {
            expose(headers);
        }
        headers.insert(X_REQUEST_ID.clone(), request_id.clone());
        response
    }

    /// Puts right what was charged, now that the response's head is known. `status` is the one that
    /// stands for it: some clients are told all of them with a 200.
    fn settle(
        &self,
        passage: &mut Passage<'_>,
        response: &mut Response<Body>,
        (status, is_broken_off): (StatusCode, bool),
    ) {
        if let Some(tally) = &mut passage.tally {
            let is_authenticated =
                passage.identity.as_ref().is_some_and(|identity| identity.token.is_some());
            let is_revalidation = passage.is_revalidation;
            let headers = response.headers();
            let route = passage.route.map_or("", |route| &*route.name);
            let answer =
                Answer { status, headers, route, is_authenticated, is_revalidation, is_broken_off };
            if tally.settle(&self.store, answer, &self.shared)
                && let (Some(policy), Some(identity)) = (passage.policy, &passage.identity)
            {
                self.note_change(policy, identity, self.shared.clock.now());
            }
        }
        // What a request has cost is between the upstream and this proxy.
        if let (Some(policy), Some(route)) = (passage.policy, passage.route) {
            for name in policy.cost_headers(route) {
                response.headers_mut().remove(name);
                response.body_mut().hide_trailer(name);
            }
        }
    }
}

/// How the caller of a judged request stands, as it asked, on all limits that are enforced: one that
/// nobody decides about for the moment is one all the same.
pub(super) fn standings_of(passage: &Passage<'_>) -> Response<Body> {
    let Some(tally) = &passage.tally else { return standings([], None) };
    // Of several windows, the last is the one that a limit is known by.
    let mut resources: Vec<(&str, &Standing)> = Vec::new();
    for item in tally.asked_for() {
        let name = &*item.asked.limit.name;
        match resources.last_mut() {
            Some(last) if last.0 == name => last.1 = item.standing(),
            _ => resources.push((name, item.standing())),
        }
    }
    let rate = tally.asked_for().filter(|item| item.asked.role == Role::Primary).last();
    standings(resources, rate.map(|item| item.standing()))
}
