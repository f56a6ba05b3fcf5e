//! A request in the form in which it goes to a server.

use bytes::BytesMut;
use http::{HeaderValue, Method, Request, header, request::Parts};
use tollgate_policy::{Protocol, Upstream};

use super::{
    ClientBody, RequestBody,
    http1::{Message, write_head},
};

static CHUNKED: HeaderValue = HeaderValue::from_static("chunked");

/// A request in the form in which it goes to a server.
pub(super) enum Outbound {
    /// Its head is written already.
    Http1(Message),
    Http2(Box<Request<RequestBody>>),
}

impl Outbound {
    /// Has its `traceparent` name another span by these digits, if it has one.
    pub(super) fn set_parent(&mut self, digits: &[u8; 16]) {
        match self {
            Outbound::Http1(message) => {
                let field = memchr::memmem::find(&message.head, TRACEPARENT_LINE);
                let start = field.map(|start| start + TRACEPARENT_LINE.len());
                if let Some(head) = start.and_then(|start| renamed(&message.head, start, digits)) {
                    message.head = head.into();
                }
            }
            Outbound::Http2(request) => {
                let headers = request.headers_mut();
                let value = headers.get(TRACEPARENT).map(HeaderValue::as_bytes);
                let value = value.and_then(|value| renamed(value, 0, digits));
                if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
                    headers.insert(TRACEPARENT, value);
                }
            }
        }
    }
}

const TRACEPARENT: &str = "traceparent";

/// How the field begins in a head in HTTP/1.1. Nothing else in a head has a line's end before it.
const TRACEPARENT_LINE: &[u8] = b"\r\ntraceparent: ";

/// Where the span is in the field.
const SPAN: std::ops::Range<usize> = 36..52;

/// A copy in which the `traceparent` at `start` names another span.
fn renamed(text: &[u8], start: usize, digits: &[u8; 16]) -> Option<Vec<u8>> {
    let mut text = text.to_vec();
    text.get_mut(start + SPAN.start..start + SPAN.end)?.copy_from_slice(digits);
    Some(text)
}

/// A request that may be sent twice: its method is idempotent (RFC 9110 section 9.2.2), and there
/// is no body to lose.
pub(super) enum Original {
    Http1(Message),
    Http2(Parts),
}

impl Outbound {
    /// A request to this upstream, and the same for sending it again if it may be.
    pub(super) fn new(
        mut head: Parts,
        body: ClientBody,
        upstream: &Upstream,
        buffer: &mut BytesMut,
    ) -> (Outbound, Option<Original>) {
        let is_empty = body.is_empty();
        //= rfc9110#section-9.2.2
        //# A client SHOULD NOT automatically retry a request with a non-idempotent method unless it
        //# has some means to know that the request semantics are actually idempotent
        //= rfc9110#section-9.2.2
        //# A proxy MUST NOT automatically retry non-idempotent requests
        let is_repeatable = is_empty && is_idempotent(&head.method);
        match upstream.protocol {
            //= rfc9112#section-6.1
            //# A client MUST NOT send a request containing Transfer-Encoding unless it knows the
            //# server will handle HTTP/1.1 requests
            //= rfc9112#section-6.3
            //# A client MUST NOT use the chunked transfer coding unless it knows the server will
            //# handle HTTP/1.1 (or later) requests
            Protocol::Http1 => {
                //= rfc9112#section-6.3
                //# a client that sends a request containing a message body SHOULD use a valid
                //# Content-Length header field if the message body length is known in advance
                let length = head.headers.get(header::CONTENT_LENGTH).and_then(length);
                //= rfc9112#section-6.2
                //# A sender MUST NOT send a Content-Length header field in any message that
                //# contains a Transfer-Encoding header field
                if !is_empty && length.is_none() {
                    //= rfc9112#section-6.1
                    //# A sender MUST NOT apply the chunked transfer coding more than once to a
                    //# message body
                    head.headers.insert(header::TRANSFER_ENCODING, CHUNKED.clone());
                }
                write_head(&head, buffer);
                let message = Message {
                    head: buffer.split().freeze(),
                    length,
                    sent: body.sent.clone(),
                    is_head: head.method == Method::HEAD,
                    may_switch: false,
                    interim: body.interim.clone(),
                    body: (!is_empty).then(|| Box::new(RequestBody::new(body, upstream))),
                };
                let original = is_repeatable.then(|| Original::Http1(message.again()));
                (Outbound::Http1(message), original)
            }
            Protocol::Http2 => {
                let original = is_repeatable.then(|| Original::Http2(head.clone()));
                let request = Request::from_parts(head, RequestBody::new(body, upstream));
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
            Original::Http2(head) => {
                let request = Request::from_parts(head.clone(), RequestBody::empty());
                Outbound::Http2(Box::new(request))
            }
        }
    }
}
