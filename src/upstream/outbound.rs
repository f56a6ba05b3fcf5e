//! A request in the form in which it goes to a server.

use bytes::BytesMut;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header, request::Parts};
use hyper::body::Body as _;

use super::{
    ClientBody, RequestBody,
    http1::{Message, write_head},
};
use crate::policy::{Protocol, Upstream};

static CHUNKED: HeaderValue = HeaderValue::from_static("chunked");

/// A request in the form in which it goes to a server.
pub(super) enum Outbound {
    /// Its head is written already.
    Http1(Message),
    Http2(Box<Request<RequestBody>>),
}

/// A request that may be sent twice: its method is idempotent (RFC 9110 section 9.2.2), and there is
/// no body to lose.
pub(super) enum Original {
    Http1(Message),
    Http2(Head),
}

/// A request's head, for sending it again in HTTP/2.
pub(super) struct Head {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

impl Outbound {
    /// A request to this upstream, and the same for sending it again if it may be.
    pub(super) fn new(
        mut head: Parts,
        body: ClientBody,
        upstream: &Upstream,
        buffer: &mut BytesMut,
    ) -> (Outbound, Option<Original>) {
        let is_empty = body.incoming.is_end_stream();
        let is_repeatable = is_empty && is_idempotent(&head.method);
        match upstream.protocol {
            Protocol::Http1 => {
                let length = head.headers.get(header::CONTENT_LENGTH).and_then(length);
                if !is_empty && length.is_none() {
                    head.headers.insert(header::TRANSFER_ENCODING, CHUNKED.clone());
                }
                write_head(&head, buffer);
                let message = Message {
                    head: buffer.split().freeze(),
                    length,
                    sent: body.sent.clone(),
                    is_head: head.method == Method::HEAD,
                    may_switch: false,
                    body: (!is_empty).then(|| Box::new(RequestBody::new(body, upstream))),
                };
                let original = is_repeatable.then(|| Original::Http1(message.again()));
                (Outbound::Http1(message), original)
            }
            Protocol::Http2 => {
                let body = RequestBody::new(body, upstream);
                let request = Request::from_parts(head, body);
                let original = is_repeatable.then(|| Original::Http2(Head::of(&request)));
                (Outbound::Http2(Box::new(request)), original)
            }
        }
    }
}

fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE].contains(method)
}

/// The length that a head says, which the server part has checked.
fn length(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

impl Original {
    /// The request again, without a body.
    pub(super) fn again(&self) -> Outbound {
        match self {
            Original::Http1(message) => Outbound::Http1(message.again()),
            Original::Http2(head) => Outbound::Http2(Box::new(head.with(RequestBody::empty()))),
        }
    }
}

impl Head {
    pub(super) fn of(request: &Request<RequestBody>) -> Head {
        Head {
            method: request.method().clone(),
            uri: request.uri().clone(),
            headers: request.headers().clone(),
        }
    }

    /// The request again, with this body.
    pub(super) fn with(&self, body: RequestBody) -> Request<RequestBody> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}
