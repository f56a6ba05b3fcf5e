//! Forwarding: one request to an upstream over a kept connection, and its response back.
//!
//! Each worker has its own connections, so nothing here is shared or locked. A connection has no
//! task of its own: whoever waits for its response drives it (`Connection::poll_drive`), and the
//! response's body drives it on until it is finished and the connection can be kept. That saves a
//! task switch each way, and dropping a request drops its connection with it.

mod body;
mod group;
mod headers;
mod pool;

use std::{
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body::Body as _;
use hyper::body::Incoming;

use self::{body::Timing, pool::Pools};
use crate::{deadline::Ticker, policy::Upstream};

pub use self::{
    body::{RequestBody, UpstreamBody, UpstreamBodyError},
    group::{Choice, Endpoint, Group, Loaded},
    headers::{
        ConnectionNamesProtectedField, Forwarding, check_connection, clean_request, clean_response,
        is_reserved,
    },
    pool::Connection,
};

static CHUNKED: HeaderValue = HeaderValue::from_static("chunked");

/// A worker's way to all upstreams.
pub struct Upstreams {
    pools: Pools,
}

/// Why there is no response from the upstream.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// No connection could be made.
    #[error("cannot connect: {0}")]
    Connect(#[source] std::io::Error),
    /// No connection was made in time.
    #[error("connecting took too long")]
    ConnectTimeout,
    /// The upstream did not answer in time.
    #[error("no response in time")]
    ResponseTimeout,
    /// The connection broke, or what came was no HTTP.
    #[error("exchange failed: {0}")]
    Exchange(#[source] hyper::Error),
    /// The response is ambiguous, switches to a protocol that was not asked for, or never begins for
    /// all that is sent.
    #[error("unsound response")]
    Unsound,
    /// The client's body broke off or was malformed.
    #[error("request body failed: {0}")]
    RequestBody(#[source] hyper::Error),
    /// The client's body made no progress.
    #[error("request body made no progress")]
    RequestBodyTimeout,
}

/// What became of an attempt.
struct Failure {
    error: UpstreamError,
    /// The request, if it was never sent.
    request: Option<Request<RequestBody>>,
    /// The connection was closed, and not a byte of a response had come.
    was_unanswered: bool,
}

impl Upstreams {
    /// No connections yet.
    pub fn new(ticker: Rc<Ticker>) -> Self {
        Upstreams { pools: Pools::new(ticker) }
    }

    /// Closes connections that nobody has needed for a while.
    pub fn close_idle(&self) {
        self.pools.close_idle();
    }

    /// Sends `request` and waits for the head of its response.
    ///
    /// A kept connection may have been closed by the upstream just now. If not a byte of a response
    /// came, the request is tried once more on a new connection, provided that it was never sent or
    /// may be sent twice (RFC 9110 section 9.2.2).
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn forward(
        &self,
        upstream: &Upstream,
        (mut parts, incoming): (Parts, Incoming),
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        if !incoming.is_end_stream() && !parts.headers.contains_key(header::CONTENT_LENGTH) {
            // hyper would take a GET for one without a body.
            parts.headers.insert(header::TRANSFER_ENCODING, CHUNKED.clone());
        }
        let request = |body| Request::from_parts(parts, body);
        let [server, ..] = upstream.servers.as_slice() else {
            return Err(UpstreamError::ConnectTimeout);
        };
        let pool = self.pools.of(server);

        let Some(connection) = pool.take() else {
            let connection = pool.connect(upstream).await?;
            let body = RequestBody::new(incoming, timing(&connection, upstream), upstream);
            let exchange = exchange(connection, request(body), upstream);
            return exchange.await.map_err(|failure| failure.error);
        };

        let request = request(RequestBody::new(incoming, timing(&connection, upstream), upstream));
        let copy = is_repeatable(&request).then(|| copy_of(&request));
        let failure = match exchange(connection, request, upstream).await {
            Ok(response) => return Ok(response),
            Err(failure) => failure,
        };
        let again = failure.request.or(copy).filter(|_| failure.was_unanswered);
        let Some(mut request) = again else { return Err(failure.error) };
        let connection = pool.connect(upstream).await?;
        request.body_mut().attach(timing(&connection, upstream));
        exchange(connection, request, upstream).await.map_err(|failure| failure.error)
    }
}

fn timing(connection: &Connection, upstream: &Upstream) -> Timing {
    let deadline = Rc::clone(&connection.deadline);
    Timing { deadline, response_timeout: upstream.response_timeout }
}

/// Whether a request may be sent twice: its method is idempotent and there is no body to lose.
fn is_repeatable(request: &Request<RequestBody>) -> bool {
    const IDEMPOTENT: [Method; 5] =
        [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE];
    request.body().is_end_stream() && IDEMPOTENT.contains(request.method())
}

fn copy_of(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

/// One attempt on one connection.
async fn exchange(
    mut connection: Connection,
    request: Request<RequestBody>,
    upstream: &Upstream,
) -> Result<Response<UpstreamBody>, Failure> {
    let body_state = request.body().state();
    let read_before = connection.bytes_read();
    let sending = connection.sender.try_send_request(request);
    let mut sending = pin!(sending);
    connection.deadline.set(upstream.response_timeout);

    let outcome = poll_fn(|context| {
        // The connection is what produces the response, in this same task: the response itself
        // needs no waker, and one would only wake this task a second time.
        let closed = connection.poll_drive(context).is_ready();
        let mut without_waker = Context::from_waker(Waker::noop());
        if let Poll::Ready(result) = sending.as_mut().poll(&mut without_waker) {
            return Poll::Ready(Some(result));
        }
        // The deadline runs from the last progress of the request's body, see `RequestBody`.
        let is_storm = connection.bytes_read() - read_before > MAX_INTERIM_BYTES;
        let passed = connection.deadline.poll_passed(context);
        if closed || passed || is_storm { Poll::Ready(None) } else { Poll::Pending }
    });
    let outcome = outcome.await;
    let was_unanswered = connection.bytes_read() == read_before && !body_state.has_failed();
    let failure = |error, request| Failure { error, request, was_unanswered };
    let ended = match outcome {
        Some(Ok(response)) if is_unsound(&response) => {
            return Err(failure(UpstreamError::Unsound, None));
        }
        Some(Ok(response)) => {
            body_state.set_answered();
            let body = |body| UpstreamBody::new(body, connection, upstream.idle_timeout);
            return Ok(response.map(body));
        }
        Some(Err(error)) => Some(error),
        None if connection.deadline.has_passed() => {
            let error = match body_state.is_waiting() {
                true => UpstreamError::RequestBodyTimeout,
                false => UpstreamError::ResponseTimeout,
            };
            return Err(failure(error, None));
        }
        None => {
            // With the connection goes its end of the queue, and a request that it never took comes
            // back.
            drop(connection);
            let mut without_waker = Context::from_waker(Waker::noop());
            match sending.as_mut().poll(&mut without_waker) {
                Poll::Ready(Err(error)) => Some(error),
                _ => None,
            }
        }
    };
    let Some(mut error) = ended else { return Err(failure(UpstreamError::Unsound, None)) };
    let request = error.take_message();
    let error = match body_state.has_failed() {
        true => UpstreamError::RequestBody(error.into_error()),
        false => UpstreamError::Exchange(error.into_error()),
    };
    Err(failure(error, request))
}

/// Bytes that may come before a response's head is complete: interim responses (1xx) and the head.
const MAX_INTERIM_BYTES: u64 = 128 * 1024;

/// Whether a response cannot be passed on: it says its length in two ways, in a coding that was not
/// asked for, switches to a protocol that was not, or has a head of outrageous size.
fn is_unsound(response: &Response<Incoming>) -> bool {
    let headers = response.headers();
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let framing_is_unsound = codings.next().is_some_and(|coding| {
        !coding.as_bytes().eq_ignore_ascii_case(b"chunked")
            || codings.next().is_some()
            || headers.contains_key(header::CONTENT_LENGTH)
    });
    framing_is_unsound
        || response.status() == StatusCode::SWITCHING_PROTOCOLS
        || head_bytes(headers) > MAX_HEAD_BYTES
}

/// Bytes of a head's fields, with their separators.
fn head_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

/// Largest head of a response that is passed on.
const MAX_HEAD_BYTES: usize = 64 * 1024;
