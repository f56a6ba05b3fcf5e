//! The response to another proxy that asks whether it may forward a request (forward-auth).
//!
//! The request is judged like one that came in here. It is forwarded by the proxy that asks, so its
//! response is never seen: nothing is given back, no cost is read, and no lease lasts.

use std::ops::ControlFlow;

use http::{HeaderName, HeaderValue, Response, StatusCode, header, request::Parts};
use tollgate_identity::is_address_readable;
use tollgate_response::{Body, Rejection};
use tollgate_upstream::downstream::Peer;
use tollgate_wire::forward_auth::{AskError, Asker, restore};

use super::{
    forward::Inbound,
    head_changes::HeadChanges,
    prepare::name_caller,
    request_state::{Action, Forward, RequestState},
    respond::Reply,
};

static X_TOLLGATE_STATUS: HeaderName = HeaderName::from_static("x-tollgate-status");
static X_TOLLGATE_BODY: HeaderName = HeaderName::from_static("x-tollgate-body");

/// Makes `parts` the head of the request that is asked about. None: a client has sent it here.
///
/// # Errors
/// The proxy that asks has to be set up otherwise.
pub(super) fn asked_about(parts: &mut Parts, peer: &Peer) -> Result<Option<Asker>, Rejection> {
    let Some(asked) = &peer.listener.asked else { return Ok(None) };
    if !asked.askers.contains(peer.address) {
        return Err(AskError::NotAnAsker.into());
    }
    let asker = restore(parts)?;
    // A client whose address is there and cannot be read would count as the proxy itself.
    match is_address_readable(&parts.headers) {
        true => Ok(Some(asker)),
        false => Err(AskError::Malformed("x-forwarded-for").into()),
    }
}

/// Who has asked about a malformed request: its client is denied that. None: the proxy that asks
/// has to be set up otherwise, and what it makes of the status shows it.
pub(super) fn asker_of_malformed(rejection: &Rejection) -> Option<Asker> {
    match rejection {
        Rejection::Question(AskError::RequestLine { asker, .. }) => Some(*asker),
        _ => None,
    }
}

/// What a client, or the proxy that asks, gets for a judged request; else, where the request is
/// forwarded to.
pub(super) fn reply_to<'p>(
    inbound: Inbound<'_>,
    action: Action<'p>,
    state: &RequestState<'_>,
    parts: &Parts,
) -> ControlFlow<Reply, Forward<'p>> {
    let Some(asker) = inbound.asker else { return Reply::to(action, state, &parts.headers) };
    ControlFlow::Break(match action {
        Action::Forward(_) => {
            let mut response = Response::new(Body::empty());
            match asker {
                Asker::Forward => name_caller(response.headers_mut(), state),
                Asker::Nginx => {
                    *response.status_mut() = StatusCode::NO_CONTENT;
                    name_caller(response.headers_mut(), state);
                }
                Asker::Envoy => {
                    let peer_is_trusted = inbound.peer.is_trusted;
                    let changes =
                        HeadChanges::of(&parts.headers, parts.uri.query(), state, peer_is_trusted);
                    response.extensions_mut().insert(changes);
                }
            }
            Reply::Admitted(response)
        }
        // None of these is a request that the proxy could forward.
        Action::Preflight(_) | Action::Standings | Action::Options | Action::Redirect(..) => {
            Reply::Refused(Rejection::NoRoute)
        }
        Action::Refuse(rejection) => Reply::Refused(rejection),
    })
}

/// Marks a response to a request that the store could not decide about, though it had to.
#[derive(Clone, Copy)]
pub struct Undecided;

/// Makes a response one that the proxy that asks understands.
pub(super) fn translate(asker: Asker, is_undecided: bool, response: &mut Response<Body>) {
    if is_undecided {
        response.extensions_mut().insert(Undecided);
    }
    // The connection is the asker's: what it asked about says nothing of that.
    response.headers_mut().remove(header::CONNECTION);
    if asker == Asker::Nginx && !response.status().is_success() {
        translate_for_nginx(response);
    }
}

/// nginx makes a 500 of any status but 401 and 403, and drops the body.
fn translate_for_nginx(response: &mut Response<Body>) {
    let status = response.status();
    let body = response.body().as_full().map(|body| HeaderValue::from_bytes(body.trim_ascii_end()));
    let headers = response.headers_mut();
    headers.insert(X_TOLLGATE_STATUS.clone(), HeaderValue::from(status.as_u16()));
    if let Some(Ok(body)) = body {
        headers.insert(X_TOLLGATE_BODY.clone(), body);
    }
    if status != StatusCode::UNAUTHORIZED {
        *response.status_mut() = StatusCode::FORBIDDEN;
    }
}
