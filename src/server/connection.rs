//! A client's connection, from its first byte to its close.
//!
//! Its one deadline serves in turn for whatever the connection is in the middle of: the first byte,
//! the rest of a head, the wait for the next request.

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    rc::Rc,
    task::Poll,
    time::Duration,
};

use http::{HeaderValue, Request, Response, header};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{io::AsyncWriteExt, net::TcpStream, time::timeout};

use super::{
    Peer,
    framing::{Framing, HeadLimits, Phase, Violation},
    socket::{Protocol, Socket},
};
use crate::{
    deadline::{Deadline, Ticker},
    gate::Gate,
    policy::Responses,
    response::{Body, Format, Rejection, Telling},
};

/// How long a client may take for its first byte, and for a head that it has begun.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may wait for its next request.
const HTTP1_IDLE: Duration = Duration::from_secs(30);
const HTTP2_IDLE: Duration = Duration::from_secs(60);

/// Limits of an HTTP/2 connection.
const HTTP2_STREAMS: u32 = 100;
const HTTP2_STREAM_WINDOW: u32 = 64 * 1024;
const HTTP2_CONNECTION_WINDOW: u32 = 1024 * 1024;
const HTTP2_SEND_BUFFER: usize = 64 * 1024;
const HTTP2_HEADER_LIST: u32 = 32 * 1024;
const HTTP2_PENDING_RESETS: usize = 20;
const HTTP2_LOCAL_RESETS: usize = 100;

/// How long a client may read nothing of a response.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the last words to a client may take.
const HANGUP_TIMEOUT: Duration = Duration::from_secs(1);

/// Fields of a head. The framing check refuses more, with a body that says so; this is for heads
/// that it never sees whole.
const MAX_FIELDS: usize = 100;
const MAX_BUFFER_BYTES: usize = 64 * 1024;

/// What a client hears whose head did not arrive in time.
const REQUEST_TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Serves a connection until it closes.
pub(super) async fn serve(stream: TcpStream, peer: Peer, gate: Rc<Gate>, ticker: Rc<Ticker>) {
    let deadline = ticker.deadline();
    deadline.set(HEAD_TIMEOUT);
    let opened = {
        let mut opening = pin!(Socket::open(stream));
        poll_fn(|context| match opening.as_mut().poll(context) {
            Poll::Ready(opened) => Poll::Ready(opened.ok().flatten()),
            Poll::Pending if deadline.poll_passed(context) || ticker.is_draining() => {
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        })
        .await
    };
    let exchange =
        Rc::new(Exchange { gate, peer, served: Rc::default(), in_flight: Rc::default() });
    match opened {
        Some((socket, Protocol::Http1)) => serve_http1(socket, exchange, deadline).await,
        Some((socket, Protocol::Http2)) => serve_http2(socket, exchange, deadline).await,
        None => {}
    }
}

/// What the requests of one connection share.
struct Exchange {
    gate: Rc<Gate>,
    peer: Peer,
    /// Requests that came in.
    served: Rc<Cell<u64>>,
    /// Requests whose response has not ended.
    in_flight: Rc<Cell<usize>>,
}

/// Counts a request until its response has ended or was given up.
pub struct InFlight(Rc<Cell<usize>>);

impl InFlight {
    fn new(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        InFlight(Rc::clone(count))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Exchange {
    /// Counts one more request and tells which it is.
    fn count(&self) -> u64 {
        self.served.set(self.served.get() + 1);
        self.served.get()
    }

    /// Answers one request. A panic on the way is that request's 500 and nobody else's.
    async fn respond(
        self: Rc<Self>,
        request: Request<Incoming>,
        framing: Result<(), Violation>,
    ) -> Result<Response<Body>, Infallible> {
        let in_flight = InFlight::new(&self.in_flight);
        let mut handling = pin!(self.gate.handle(request, &self.peer, framing));
        let response = poll_fn(|context| {
            catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(context))).unwrap_or_else(
                |_| {
                    tracing::error!("panic while handling a request");
                    Poll::Ready(internal_error())
                },
            )
        });
        Ok(response.await.map(|body| body.in_flight(in_flight)))
    }
}

/// What the client of a request hears whose handling failed, whatever it was in the middle of.
fn internal_error() -> Response<Body> {
    let request_id = &HeaderValue::from_static("");
    let telling = Telling { format: Format::Json, request_id, violated: Vec::new() };
    Rejection::Internal.into_response(&Responses::DEFAULT, &telling)
}

/// What a connection is in the middle of, as far as time is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Waiting for the next request, after so many.
    Idle { served: u64 },
    /// A head has begun, after so many requests.
    Head { served: u64 },
    /// A request is being served; it has deadlines of its own.
    Busy,
    /// The client does not read what it asked for. The number tells stalls apart.
    Stalled(u64),
}

impl Step {
    fn set(self, deadline: &Deadline, idle: Duration) {
        match self {
            Step::Idle { .. } => deadline.set(idle),
            Step::Head { .. } => deadline.set(HEAD_TIMEOUT),
            Step::Busy => deadline.clear(),
            Step::Stalled(_) => deadline.set(STALL_TIMEOUT),
        }
    }
}

async fn serve_http1(mut socket: Socket, exchange: Rc<Exchange>, deadline: Deadline) {
    let framing = Rc::new(RefCell::new(Framing::new(HeadLimits::default())));
    socket.check(Rc::clone(&framing), Rc::clone(&exchange.served));
    let writing = socket.writing();
    let service = service_fn(|request| {
        let ordinal = exchange.count();
        Rc::clone(&exchange).respond(request, framing.borrow().verdict(ordinal))
    });
    let mut connection = http1::Builder::new()
        .max_headers(MAX_FIELDS)
        .max_buf_size(MAX_BUFFER_BYTES)
        .serve_connection(TokioIo::new(socket), service);

    let mut step = Step::Head { served: 0 };
    let mut is_draining = false;
    let ended = poll_fn(|context| {
        let mut connection = Pin::new(&mut connection);
        if deadline.ticker().is_draining() && !std::mem::replace(&mut is_draining, true) {
            connection.as_mut().graceful_shutdown();
        }
        if connection.poll(context).is_ready() {
            return Poll::Ready(None);
        }
        let served = exchange.served.get();
        let next = match (writing.stalled(), exchange.in_flight.get(), framing.borrow().phase()) {
            (Some(stall), _, _) => Step::Stalled(stall),
            (None, 0, Phase::Idle) => Step::Idle { served },
            (None, 0, _) => Step::Head { served },
            (None, _, _) => Step::Busy,
        };
        if next != step {
            next.set(&deadline, HTTP1_IDLE);
            step = next;
        }
        if deadline.poll_passed(context) { Poll::Ready(Some(step)) } else { Poll::Pending }
    });
    let step = ended.await;
    if matches!(step, Some(Step::Head { .. })) && framing.borrow().phase() == Phase::Head {
        let mut socket = connection.into_parts().io.into_inner();
        let _ = timeout(HANGUP_TIMEOUT, socket.write_all(REQUEST_TIMEOUT)).await;
    }
}

async fn serve_http2(socket: Socket, exchange: Rc<Exchange>, deadline: Deadline) {
    let writing = socket.writing();
    let streams = Rc::clone(&exchange);
    let service = service_fn(move |request| {
        let exchange = Rc::clone(&streams);
        exchange.count();
        async move {
            let mut response = exchange.respond(request, Ok(())).await?;
            // Closing is not for one stream to ask for (RFC 9113 section 8.2.2).
            response.headers_mut().remove(header::CONNECTION);
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = http2::Builder::new(LocalExecutor)
        .max_concurrent_streams(HTTP2_STREAMS)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
        .max_send_buf_size(HTTP2_SEND_BUFFER)
        .max_header_list_size(HTTP2_HEADER_LIST)
        .max_pending_accept_reset_streams(HTTP2_PENDING_RESETS)
        .max_local_error_reset_streams(HTTP2_LOCAL_RESETS)
        .serve_connection(TokioIo::new(socket), service);

    let mut step = Step::Busy;
    let mut is_closing = false;
    poll_fn(|context| {
        let mut connection = Pin::new(&mut connection);
        if deadline.ticker().is_draining() && !std::mem::replace(&mut is_closing, true) {
            connection.as_mut().graceful_shutdown();
        }
        if connection.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let next = match (writing.stalled(), exchange.in_flight.get()) {
            (Some(stall), _) => Step::Stalled(stall),
            (None, 0) => Step::Idle { served: exchange.served.get() },
            (None, _) => Step::Busy,
        };
        if next != step {
            next.set(&deadline, HTTP2_IDLE);
            step = next;
        }
        if !deadline.poll_passed(context) {
            return Poll::Pending;
        }
        if !matches!(step, Step::Idle { .. }) || std::mem::replace(&mut is_closing, true) {
            return Poll::Ready(());
        }
        // GOAWAY first, and a little time for it to be read.
        connection.graceful_shutdown();
        deadline.set(HEAD_TIMEOUT);
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs an HTTP/2 connection's streams on the worker that the connection is on.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(stream);
    }
}
