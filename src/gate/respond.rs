//! What the client is told: the upstream's answer, or why there is none, with what was charged put
//! right and how the limits stand.

use http::{HeaderValue, Response};

use super::{
    X_REQUEST_ID,
    judge::{Judge, Passage},
    stamp::stamp,
    tally::Answer,
};
use crate::{
    limit::Standing,
    response::{Body, Format, Rejection, Telling, standings},
};

impl Judge {
    /// The response to a judged request: `answer`, from the upstream or from here.
    pub(super) fn respond(
        &self,
        answer: Result<Response<Body>, Rejection>,
        passage: &mut Passage<'_>,
        (format, request_id): (Format, &HeaderValue),
    ) -> Response<Body> {
        let mut response = answer.unwrap_or_else(|rejection| {
            let violated = passage.violated(format);
            let telling = Telling { format, request_id, violated };
            rejection.into_response(passage.responses(), &telling)
        });
        self.settle(passage, &mut response);
        stamp(&mut response, passage, &self.shared);
        response.headers_mut().insert(X_REQUEST_ID.clone(), request_id.clone());
        response
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
}

/// How the caller of a judged request stands, as it asked.
pub(super) fn standings_of(passage: &Passage<'_>) -> Response<Body> {
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
