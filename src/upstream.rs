//! Forwarding: one request to an upstream over a kept connection, and its response back.
//!
//! Each worker has its own connections, so nothing here is shared or locked. A connection has no
//! task of its own: whoever waits for its response drives it ([`Connection::poll_drive`]), and the
//! response's body drives it on until it is finished and the connection can be kept. That saves a
//! task switch each way, and dropping a request drops its connection with it.

mod body;
mod headers;
mod pool;

use std::{
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use http::{Method, Request, Response, request::Parts};
use http_body::Body as _;
use hyper::body::Incoming;

use self::pool::Pools;
use crate::{deadline::Ticker, policy::Upstream};

pub use self::{
    body::{RequestBody, UpstreamBody, UpstreamBodyError},
    headers::{
        ConnectionNamesProtectedField, Forwarding, check_connection, clean_request, clean_response,
    },
    pool::Connection,
};

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
    /// The client's body broke off or was malformed.
    #[error("request body failed: {0}")]
    RequestBody(#[source] hyper::Error),
    /// The client's body made no progress.
    #[error("request body made no progress")]
    RequestBodyTimeout,
}

/// What became of an attempt: the error, and the request if it can be sent again.
struct Failure {
    error: UpstreamError,
    request: Option<Request<RequestBody>>,
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
        (parts, incoming): (Parts, Incoming),
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let request = |body| Request::from_parts(parts, body);
        let pool = self.pools.of(&upstream.server);

        let Some(connection) = pool.take() else {
            let connection = pool.connect(upstream).await?;
            let body = RequestBody::new(incoming, Rc::clone(&connection.deadline));
            let exchange = exchange(connection, request(body), upstream);
            return exchange.await.map_err(|failure| failure.error);
        };

        let body = RequestBody::new(incoming, Rc::clone(&connection.deadline));
        let request = request(body);
        let copy = is_repeatable(&request).then(|| copy_of(&request));
        let failure = match exchange(connection, request, upstream).await {
            Ok(response) => return Ok(response),
            Err(failure) => failure,
        };
        let was_closed = matches!(
            &failure.error,
            UpstreamError::Exchange(error)
                if error.is_incomplete_message() || error.is_canceled() || error.is_closed() || is_reset(error)
        );
        let Some(mut request) = failure.request.or(copy).filter(|_| was_closed) else {
            return Err(failure.error);
        };
        let connection = pool.connect(upstream).await?;
        request.body_mut().attach(Rc::clone(&connection.deadline));
        exchange(connection, request, upstream).await.map_err(|failure| failure.error)
    }
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

/// Whether the peer closed the connection by a reset, as servers do that still had unread bytes.
fn is_reset(error: &hyper::Error) -> bool {
    use std::error::Error;
    let cause = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|io| {
        use std::io::ErrorKind::*;
        matches!(io.kind(), ConnectionReset | BrokenPipe | ConnectionAborted | UnexpectedEof)
    })
}

/// One attempt on one connection.
async fn exchange(
    mut connection: Connection,
    request: Request<RequestBody>,
    upstream: &Upstream,
) -> Result<Response<UpstreamBody>, Failure> {
    let body_state = request.body().state();
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
        if closed || connection.deadline.poll_passed(context) {
            return Poll::Ready(None);
        }
        Poll::Pending
    });
    match outcome.await {
        Some(Ok(response)) => {
            Ok(response.map(|body| UpstreamBody::new(body, connection, upstream.idle_timeout)))
        }
        Some(Err(mut error)) => {
            let request = error.take_message();
            let error = error.into_error();
            let error = match body_state.has_failed() {
                true => UpstreamError::RequestBody(error),
                false => UpstreamError::Exchange(error),
            };
            Err(Failure { error, request })
        }
        None => {
            let error = match body_state.is_waiting() {
                true => UpstreamError::RequestBodyTimeout,
                false => UpstreamError::ResponseTimeout,
            };
            Err(Failure { error, request: None })
        }
    }
}
