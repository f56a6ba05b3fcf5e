//! The exchange with an upstream: the request as it goes there, and what comes back.

use std::{
    cell::Cell,
    future::Future,
    net::IpAddr,
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderValue, Response, StatusCode, header, request::Parts};
use tollgate_observe::trace::{Attempts, RequestTrace};
use tollgate_policy::{Balance, Sharing, Upstream, UpstreamPosition};
use tollgate_response::{Body, Rejection};
use tollgate_upstream::{
    ClientBody, Destination, Sender, Switch, UpstreamError, Upstreams, clean_response,
    downstream::{Peer, client_number},
};
use tollgate_wire::forward_auth::Asker;

use super::{Snapshot, request_state::RequestState, respond::Reply, upgrade};

/// Where a request came from.
#[derive(Clone, Copy)]
pub struct Inbound<'r> {
    /// Who has sent it.
    pub peer: &'r Peer,
    /// The proxy that asks about it; none: a client has sent it here.
    pub asker: Option<Asker>,
    /// The client's address: the peer's, or one that a trusted peer names.
    pub address: IpAddr,
    /// The ID in the log and in the headers.
    pub request_id: &'r HeaderValue,
    /// The trace that it is part of; none: there are no traces.
    pub trace: Option<&'r RequestTrace<'r>>,
}

/// A request as it goes to its upstream.
pub(super) struct Outgoing {
    pub(super) sender: Sender,
    pub(super) head: Parts,
    /// None: the request asks to switch to another protocol.
    pub(super) body: Option<ClientBody>,
    /// When it was ready to go.
    pub(super) started: Instant,
    /// Where attempts are recorded; none: they are not.
    pub(super) attempts: Option<Rc<Attempts>>,
}

/// An exchange with an upstream that can go on without the client's connection.
pub(super) struct DetachedExchange {
    pub(super) response: Pin<Box<dyn Future<Output = TimedReply>>>,
    /// Set once the upstream may have seen something of the request.
    pub(super) is_sent: Rc<Cell<bool>>,
}

/// What a client gets, and how long the upstream took for it.
pub(super) struct TimedReply {
    pub(super) reply: Reply,
    /// None: no upstream was involved.
    pub(super) upstream_time: Option<Duration>,
}

impl From<Reply> for TimedReply {
    fn from(reply: Reply) -> Self {
        TimedReply { reply, upstream_time: None }
    }
}

/// Sends a request and waits for the head of the response.
pub(super) async fn exchange(
    upstreams: &Upstreams,
    destination: Destination<'_>,
    outgoing: Outgoing,
) -> TimedReply {
    let Outgoing { sender, head, body, started, attempts } = outgoing;
    let trace = attempts.as_deref();
    let response = match body {
        Some(body) => {
            let response = pin!(upstreams.forward(destination, sender, head, body, trace)).await;
            response.map(|response| from_upstream(response.map(Body::upstream)))
        }
        None => Box::pin(upstreams.switch(destination, sender, head, trace)).await.map(switched),
    };
    let upstream_time = Some(started.elapsed());
    TimedReply { reply: reply(response, destination.upstream), upstream_time }
}

/// The same, in a form that can go on without the client's connection.
pub(super) fn detached(
    upstreams: Rc<Upstreams>,
    snapshot: Arc<Snapshot>,
    position: UpstreamPosition,
    outgoing: Outgoing,
) -> DetachedExchange {
    // Nothing reports when a request to switch is sent: it counts as sent from the beginning.
    let is_sent = Rc::new(Cell::new(outgoing.body.is_none()));
    let sent = Some(Rc::clone(&is_sent));
    let body = outgoing.body.map(|body| ClientBody { sent, ..body });
    let outgoing = Outgoing { body, ..outgoing };
    let response = Box::pin(async move {
        match snapshot.destination_at(position) {
            Some(destination) => exchange(&upstreams, destination, outgoing).await,
            None => Reply::Refused(Rejection::Internal).into(),
        }
    });
    DetachedExchange { response, is_sent }
}

/// Who sends a request, as far as its upstream's balancing and bounds are concerned.
pub(super) fn sender_of(
    state: &RequestState<'_>,
    upstream: &Upstream,
    inbound: Inbound<'_>,
) -> Sender {
    let Inbound { peer, address, .. } = inbound;
    let caller = match (&state.identity, upstream.balance) {
        (Some(identity), Balance::Caller) => identity.stable_hash("server"),
        _ => 0,
    };
    // A trusted proxy that names no client stands for all its clients, and gets no share of its
    // own.
    let is_one_client = !peer.is_trusted || address != peer.address;
    let is_shared = is_one_client && upstream.bounds.shares == Sharing::Address;
    Sender { caller, client: is_shared.then(|| client_number(address)) }
}

fn switched(switch: Switch) -> Response<Body> {
    match switch {
        Switch::Declined(response) => from_upstream(response.map(Body::declined)),
        Switch::Agreed(response, server) => {
            let protocol = response.headers().get(header::UPGRADE).cloned();
            let mut response = from_upstream(response.map(|()| Body::switched(server)));
            //= rfc9110#section-7.8
            //# A server that sends a 101 (Switching Protocols) response MUST send an Upgrade header
            //# field
            //= rfc9110#section-15.2.2
            //# The server MUST generate an Upgrade header field in the response that indicates
            //# which protocol(s) will be in effect after this response
            if let Some(protocol) = protocol {
                upgrade::name(response.headers_mut(), protocol);
            }
            response
        }
    }
}

fn from_upstream(mut response: Response<Body>) -> Response<Body> {
    let status = response.status();
    let headers = response.headers_mut();
    // The client needs to know which protocol is required (RFC 9110 section 15.5.22).
    let required = match status {
        //= rfc9110#section-15.5.22
        //# The server MUST send an Upgrade header field in a 426 response
        StatusCode::UPGRADE_REQUIRED => headers.get(header::UPGRADE).cloned(),
        _ => None,
    };
    clean_response(headers);
    //= rfc9110#section-8.6
    //# A server MUST NOT send a Content-Length header field in any response with a status code of
    //# 1xx (Informational) or 204 (No Content)
    if status == StatusCode::NO_CONTENT {
        // RFC 9110 section 8.6. Some clients would wait for the body.
        headers.remove(header::CONTENT_LENGTH);
    }
    //= rfc9110#section-7.8
    //# A server that sends a 426 (Upgrade Required) response MUST send an Upgrade header field
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
                //= rfc9110#section-4.3.4
                //# Automated clients MUST log the error to an appropriate audit log (if available)
                //# and SHOULD terminate the connection
                true => tracing::warn!(upstream = %upstream.name, %error, "upstream failed"),
                // A client can cause these as often as it likes.
                false => tracing::debug!(upstream = %upstream.name, %error, "not forwarded"),
            }
            Reply::Refused(Rejection::Upstream(error))
        }
    }
}
