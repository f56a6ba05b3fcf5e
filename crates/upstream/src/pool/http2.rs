//! Requests over HTTP/2 connections, which many share.
//!
//! A connection is driven by a task of its own, since any of its streams may be the one that waits.
//! The end of a request, whichever it is, ends its stream and nothing else.

use std::{
    cell::{Cell, RefCell},
    error::Error as _,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::{Rc, Weak},
    task::Poll,
    time::Duration,
};

use http::{HeaderValue, Request, Response, Uri, Version, header, uri::Authority};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tollgate_clock::deadline::Deadline;
use tollgate_policy::{Transport, Upstream};

use super::Pool;
use crate::{
    Member, RequestBody, Stream, UpstreamError,
    body::{BodyState, Timing},
    failure::Failure,
    frames::MAX_STREAMS,
    response_check::is_unsound,
    slots::Slot,
    stream::{MeteredStream, Traffic},
};

/// What a server may send of a response that its client does not read.
pub(crate) const STREAM_WINDOW: u32 = 64 * 1024;
/// Room for all streams at once: a client that does not read must hold up no other client's stream.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * MAX_STREAMS as u32;
const SEND_BUFFER: usize = 64 * 1024;
const MAX_HEADER_LIST: u32 = 64 * 1024;

/// Ticks after which a body that was abandoned has to be gone.
const STUCK_TICKS: u32 = 10;

/// How long nothing may come on a connection with streams before it is asked whether it is alive.
/// Requests have deadlines of their own, so this is for streams that are meant to be silent for
/// long; gRPC servers close on who asks more often than every five minutes.
const PING_AFTER: Duration = Duration::from_secs(310);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

type Driver = http2::Connection<TokioIo<MeteredStream>, RequestBody, LocalExecutor>;

/// A connection in HTTP/2.
pub(crate) struct Connection {
    sender: http2::SendRequest<RequestBody>,
    driven: Rc<Driven>,
    traffic: Rc<Traffic>,
    in_use: Cell<usize>,
    is_retired: Cell<bool>,
    /// The tick since which it has had no stream.
    idle_since: Cell<u32>,
    /// Bodies of requests that are over, and the tick at which they came to be so.
    abandoned: RefCell<Vec<(Weak<BodyState>, u32)>>,
}

/// What a connection shares with its task.
struct Driven {
    /// None once it has ended: requests that it did not take come back when it is dropped.
    driver: RefCell<Option<Driver>>,
}

/// The right to one stream of a connection.
pub(crate) struct Permit {
    connection: Rc<Connection>,
    pool: Rc<Pool>,
}

/// A stream whose response has begun. When it is dropped, whatever is left of the request's body is
/// not sent.
pub(crate) struct OpenStream {
    pub(crate) deadline: Rc<Deadline>,
    body: Rc<BodyState>,
    permit: Permit,
}

impl Connection {
    /// Opens HTTP/2 on a new stream. Returns once the server has sent its SETTINGS: before that it
    /// is not known how many requests it accepts, or whether it is an HTTP/2 server at all.
    pub(crate) async fn new(stream: Stream, slot: Slot) -> Result<Rc<Connection>, UpstreamError> {
        let (stream, traffic) = MeteredStream::new(stream, slot);
        let (sender, driver) = http2::Builder::new(LocalExecutor)
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(MAX_HEADER_LIST)
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| UpstreamError::Exchange(error.into()))?;
        poll_fn(|context| traffic.poll_first(context)).await;
        if traffic.is_closed() {
            return Err(UpstreamError::Connect(std::io::Error::other("it speaks no HTTP/2")));
        }
        let driven = Rc::new(Driven { driver: RefCell::new(Some(driver)) });
        tokio::task::spawn_local(drive(Rc::clone(&driven)));
        Ok(Rc::new(Connection {
            sender,
            driven,
            traffic,
            in_use: Cell::new(0),
            is_retired: Cell::new(false),
            idle_since: Cell::new(0),
            abandoned: RefCell::default(),
        }))
    }

    /// Whether it has room for one more stream.
    pub(crate) fn has_room(&self) -> bool {
        !self.is_over() && self.in_use.get() < self.max_streams()
    }

    /// Whether it takes no more requests.
    pub(crate) fn is_over(&self) -> bool {
        //= rfc9113#section-6.8
        //# Receivers of a GOAWAY frame MUST NOT open additional streams on the connection
        self.is_retired.get() || self.traffic.is_closed() || self.sender.is_closed()
    }

    /// Requests that it has.
    pub(crate) fn streams(&self) -> usize {
        self.in_use.get()
    }

    /// The tick since which it is unused; none: it is in use.
    pub(crate) fn idle_since(&self) -> Option<u32> {
        (self.in_use.get() == 0).then(|| self.idle_since.get())
    }

    /// Retires a connection on which an abandoned body is stuck.
    ///
    /// hyper does not poll a body while the server takes nothing of it, and so never learns that
    /// the request is over. The stream would stay open for ever, and the bytes received on it would
    /// fill the window that all streams share.
    pub(crate) fn retire_if_stuck(&self, now: u32) {
        let mut abandoned = self.abandoned.borrow_mut();
        abandoned.retain(|(body, _)| body.strong_count() > 0);
        let is_stuck = |(_, since): &(_, u32)| now.saturating_sub(*since) >= STUCK_TICKS;
        let is_any_stuck = abandoned.iter().any(is_stuck);
        drop(abandoned);
        if is_any_stuck {
            self.retire();
            self.cut_if_over();
        }
    }

    /// Closes what nothing but such bodies keeps open.
    fn cut_if_over(&self) {
        let is_stuck = |(body, _): &(Weak<BodyState>, u32)| body.strong_count() > 0;
        if self.is_retired.get()
            && self.in_use.get() == 0
            && self.abandoned.borrow().iter().any(is_stuck)
        {
            self.traffic.cut();
        }
    }

    /// Gives it no more requests.
    pub(crate) fn retire(&self) {
        self.is_retired.set(true);
    }

    /// Streams that it may have at once; none if it is over.
    pub(crate) fn max_streams(&self) -> usize {
        let driver = self.driven.driver.borrow();
        //= rfc9113#section-5.1.2
        //# Endpoints MUST NOT exceed the limit set by their peer
        driver.as_ref().map_or(0, Driver::current_max_send_streams).min(MAX_STREAMS)
    }
}

impl Permit {
    pub(crate) fn new(connection: &Rc<Connection>, pool: &Rc<Pool>) -> Permit {
        connection.in_use.set(connection.in_use.get() + 1);
        Permit { connection: Rc::clone(connection), pool: Rc::clone(pool) }
    }

    /// Sends a request and waits for the head of its response.
    pub(crate) async fn exchange(
        self,
        mut request: Request<RequestBody>,
        upstream: &Upstream,
    ) -> Result<(Response<Incoming>, OpenStream), Failure<Box<Request<RequestBody>>>> {
        let connection = Rc::clone(&self.connection);
        let deadline = Rc::new(self.pool.ticker.deadline());
        address(&mut request, &self.pool.member, upstream);
        let (head, body) = request.into_parts();
        let mut request = Request::from_parts(head.clone(), body);
        let body = request.body_mut().attach_stream(Timing::new(&deadline, upstream));
        let stream = OpenStream { deadline, body: Rc::clone(&body), permit: self };
        let read_before = connection.traffic.bytes_read();
        connection.traffic.expect_response();
        let mut sender = connection.sender.clone();
        let mut sending = pin!(sender.try_send_request(request));
        stream.deadline.set(upstream.response_timeout);

        let outcome = poll_fn(|context| match sending.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending if stream.deadline.poll_passed(context) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let (error, unsent, is_stale) = match outcome.await {
            //= rfc9113#section-8.1.1
            //# Intermediaries that process HTTP requests or responses (i.e., any intermediary not
            //# acting as a tunnel) MUST NOT forward a malformed request or response
            //= rfc9113#section-8.1.1
            //# Clients MUST NOT accept a malformed response
            Some(Ok(response)) if is_unsound(&response) => {
                return Err(Failure::sent(UpstreamError::Unsound));
            }
            Some(Ok(response)) => {
                body.set_answered();
                return Ok((response, stream));
            }
            Some(Err(_)) if connection.traffic.is_storm() => {
                return Err(Failure::sent(UpstreamError::Unsound));
            }
            Some(Err(mut error)) => {
                let untaken = error.take_message();
                let error = error.into_error();
                let is_untaken = untaken.is_some();
                let refusal = Refusal::of(&error);
                let unread = || refusal.and_then(|_| RequestBody::unread(&body));
                let unsent =
                    untaken.or_else(|| unread().map(|body| Request::from_parts(head, body)));
                let is_stale = is_untaken || refusal == Some(Refusal::Leaving);
                if is_stale {
                    connection.retire();
                }
                (body.blame(error), unsent.map(Box::new), is_stale)
            }
            None => {
                // A connection on which nothing at all arrives is dead, though it was not closed:
                // the next requests should not wait as long to find that out. While the client's
                // body is awaited, this cannot be known.
                if connection.traffic.bytes_read() == read_before && !body.is_waiting() {
                    connection.retire();
                }
                (body.timeout(), None, false)
            }
        };
        let (is_unanswered, awaited_client) = (!body.has_failed(), body.is_waiting());
        Err(Failure { error, unsent, is_unanswered, is_stale, awaited_client })
    }
}

impl OpenStream {
    /// Whether more of the client's body is awaited.
    pub(crate) fn awaits_client(&self) -> bool {
        self.body.is_waiting()
    }

    /// Whether the client has broken off the body that it sends.
    pub(crate) fn client_has_failed(&self) -> bool {
        self.body.has_failed()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.in_use.set(connection.in_use.get().saturating_sub(1));
        if connection.in_use.get() == 0 {
            connection.idle_since.set(self.pool.ticker.now());
            connection.traffic.rest();
            connection.cut_if_over();
        }
        self.pool.stream_ended();
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.body.abandon();
        // Most are over already.
        if Rc::strong_count(&self.body) > 1 {
            let Permit { connection, pool } = &self.permit;
            let stuck = (Rc::downgrade(&self.body), pool.ticker.now());
            connection.abandoned.borrow_mut().push(stuck);
        }
    }
}

/// Sees a connection to its end.
async fn drive(driven: Rc<Driven>) {
    let ended = poll_fn(|context| match &mut *driven.driver.borrow_mut() {
        Some(driver) => Pin::new(driver).poll(context),
        None => Poll::Ready(Ok(())),
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "connection to an upstream failed");
    }
    let ended = driven.driver.take();
    drop(ended);
}

/// Gives a request the form that HTTP/2 has for what was its target and its `Host`.
fn address(request: &mut Request<RequestBody>, member: &Member, upstream: &Upstream) {
    //= rfc9113#section-8.3.1
    //# Clients MUST NOT generate a request with a "Host" header field that differs from the
    //# ":authority" pseudo-header field
    let host = request.headers_mut().remove(header::HOST);
    //= rfc9113#section-8.2.2
    //# An endpoint MUST NOT generate an HTTP/2 message containing connection-specific header fields
    request.headers_mut().remove(header::TRANSFER_ENCODING);
    *request.version_mut() = Version::HTTP_2;
    // It may have been here before.
    if request.uri().authority().is_some() {
        return;
    }
    let authority = |host: &HeaderValue| Authority::try_from(host.as_bytes()).ok();
    let own = || authority(&member.server.authority);
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    //= rfc9113#section-8.3.1
    //# An intermediary that forwards a request over HTTP/2 MUST construct an ":authority"
    //# pseudo-header field using the authority information from the control data of the original
    //# request
    parts.authority = host.as_ref().and_then(authority).or_else(own);
    parts.scheme = Some(match upstream.transport {
        Transport::Plain => http::uri::Scheme::HTTP,
        Transport::Tls(_) => http::uri::Scheme::HTTPS,
    });
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
}

/// How a server says that it did not look at a request (RFC 9113 section 8.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// It refuses the stream.
    Stream,
    /// It is going away, and names an earlier stream as its last.
    Leaving,
}

impl Refusal {
    fn of(error: &hyper::Error) -> Option<Refusal> {
        let error = error.source()?.downcast_ref::<h2::Error>()?;
        match error.reason()? {
            _ if !error.is_remote() => None,
            h2::Reason::REFUSED_STREAM if error.is_reset() => Some(Refusal::Stream),
            //= rfc9113#section-7
            //# Unknown or unsupported error codes MUST NOT trigger any special behavior
            h2::Reason::NO_ERROR if error.is_go_away() => Some(Refusal::Leaving),
            _ => None,
        }
    }
}

/// Runs a connection's tasks on the worker that the connection is on.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}
