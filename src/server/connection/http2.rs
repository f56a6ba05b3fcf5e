//! A connection that speaks HTTP/2.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::Poll,
};

use http::Request;
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::TokioIo;
use tollgate_clock::deadline::{Deadline, Ticker};
use tollgate_gate::Gate;
use tollgate_settings::{Http2Limits, Limits};
use tollgate_upstream::{
    ClientBody,
    downstream::{Fault, Faults, InFlight, Pace, Writing},
};
use tollgate_wire::{
    frames::{Frames, Phase},
    head_limits::{LIST_OVERHEAD, head_bytes},
};

use super::{
    ClientPace, Exchange, PendingResponse,
    read_rate::ReadRate,
    step::{Reader, Step},
    stream::DrivenStream,
};
use crate::server::{
    engine_socket::EngineSocket,
    socket::{CLOSE_TIMEOUT, Socket},
};

/// What a stream may hold of a response that the client has room for and the socket has not.
const SEND_BUFFER: usize = 16 * 1024;

/// By how much a list of fields may exceed the limit and still be refused with a response of ours.
const LIST_SLACK: u32 = 16 * 1024;

pub(super) async fn serve(mut socket: Socket, exchange: Rc<Exchange>, deadline: Deadline) {
    let ticker = deadline.ticker();
    let limits = &exchange.gate.shared().limits;
    let list_bytes = list_bytes(limits);
    let frames = Frames::new(ticker.now(), list_bytes, limits.http2.streams);
    let frames = Rc::new(RefCell::new(frames));
    socket.check_http2(Rc::clone(&frames), Rc::clone(ticker));
    let writing = socket.writing();
    let executor = StreamExecutor {
        gate: Rc::clone(&exchange.gate),
        ticker: Rc::clone(ticker),
        begun: Rc::default(),
    };
    let streams = Rc::clone(&exchange);
    let begun = Rc::clone(&executor.begun);
    let paced = Rc::clone(&frames);
    let service = service_fn(move |request: Request<_>| {
        let exchange = Rc::clone(&streams);
        exchange.count();
        paced.borrow_mut().take_fields(head_bytes(&request));
        let pace = Rc::new(Pace::new(&paced));
        begun.set(Some(Rc::clone(&pace)));
        respond(exchange, request, pace)
    });
    let socket = Rc::new(RefCell::new(socket));
    let mut connection = engine(executor, &limits.http2, list_bytes)
        .serve_connection(TokioIo::new(EngineSocket(Rc::clone(&socket))), service);

    let timeouts = &exchange.gate.shared().timeouts;
    let mut step = Step::Busy;
    let mut read_rate = ReadRate::default();
    let mut is_closing = false;
    let ended = poll_fn(|context| {
        let mut connection = Pin::new(&mut connection);
        //= rfc9113#section-6.8
        //# A server that is attempting to gracefully shut down a connection SHOULD send an initial
        //# GOAWAY frame
        //= rfc9113#section-9.1
        //# the terminating endpoint SHOULD first send a GOAWAY (Section 6.8) frame
        if deadline.ticker().is_draining() && !std::mem::replace(&mut is_closing, true) {
            connection.as_mut().graceful_shutdown();
            if exchange.in_flight.get() == 0 {
                deadline.set_at_most(CLOSE_TIMEOUT);
            }
        }
        if connection.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        // All streams that had something to say have said it.
        if let Poll::Ready(Err(_)) = socket.borrow_mut().poll_send(context) {
            return Poll::Ready(None);
        }
        let next = step_of(&writing, frames.borrow().phase(), &exchange);
        if next != step {
            let idle = if is_closing { CLOSE_TIMEOUT } else { timeouts.http2_idle };
            let read_rate = &mut read_rate;
            let reader = Reader { read_rate, writing: &writing, deadline: &deadline, timeouts };
            step.go_on_to(next, reader, idle);
        }
        if !deadline.poll_passed(context) {
            return Poll::Pending;
        }
        if !matches!(step, Step::Idle { .. }) || std::mem::replace(&mut is_closing, true) {
            return Poll::Ready(Some(step));
        }
        //= rfc9113#section-5.4.1
        //# Endpoints SHOULD send a GOAWAY frame when ending a connection
        //= rfc9113#section-6.8
        //# Endpoints SHOULD always send a GOAWAY frame before closing a connection
        // GOAWAY first, and a little time for it to be read.
        connection.graceful_shutdown();
        deadline.set(CLOSE_TIMEOUT);
        context.waker().wake_by_ref();
        Poll::Pending
    });
    let faults = exchange.gate.shared().admission.faults();
    count_faults(ended.await, &writing, faults);
}

fn engine(
    executor: StreamExecutor,
    limits: &Http2Limits,
    list_bytes: u32,
) -> http2::Builder<StreamExecutor> {
    let mut engine = http2::Builder::new(executor);
    engine
        .max_concurrent_streams(limits.streams)
        .initial_stream_window_size(limits.stream_window)
        .initial_connection_window_size(limits.connection_window)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(list_bytes)
        .max_pending_accept_reset_streams(limits.resets)
        .max_local_error_reset_streams(limits.local_resets);
    engine
}

/// Counts what was wrong with a client; `cut` is what its connection was at when its time was over.
fn count_faults(cut: Option<Step>, writing: &Writing, faults: &Faults) {
    match cut {
        Some(Step::Head { .. }) => faults.count(Fault::SlowHead),
        Some(Step::Stalled(_)) => faults.count(Fault::SlowReader),
        Some(Step::Idle { .. } | Step::Busy | Step::Lingering) | None => {}
    }
    if writing.was_flooded() {
        faults.count(Fault::Flood);
    }
}

/// Serves one stream.
fn respond(exchange: Rc<Exchange>, request: Request<Incoming>, pace: Rc<Pace>) -> PendingResponse {
    let (head, body) = request.into_parts();
    let limits = &exchange.gate.shared().limits;
    //= rfc9113#section-8.1.1
    //# Intermediaries that process HTTP requests or responses (i.e., any intermediary not acting as
    //# a tunnel) MUST NOT forward a malformed request or response
    let verdict = limits.head.check(&head, limits.http2.header_list as usize);
    let request = Request::from_parts(head, ClientBody::at_pace(body, &pace));
    let in_flight = InFlight::new(&exchange.in_flight);
    exchange.respond(request, verdict, ClientPace::Http2(pace), in_flight)
}

/// What the connection is at.
fn step_of(writing: &Writing, phase: Phase, exchange: &Exchange) -> Step {
    match (writing.stalled(), phase, exchange.in_flight.get()) {
        _ if writing.is_lingering() => Step::Lingering,
        (Some(stall), _, _) => Step::Stalled(stall),
        (None, Phase::Opening, _) => Step::Head { number: 0 },
        (None, Phase::Head(number), _) => Step::Head { number: number.into() },
        (None, Phase::Between, 0) => Step::Idle { served: exchange.served.get() },
        (None, Phase::Between, _) => Step::Busy,
    }
}

/// Largest list of fields that the engine decodes. It is larger than a head may be, so that a head
/// which is too large gets a response of ours: the engine's has neither a body nor a line in the
/// log.
fn list_bytes(limits: &Limits) -> u32 {
    let head = limits.head.head_bytes + limits.head.fields * LIST_OVERHEAD;
    let head = u32::try_from(head).unwrap_or(u32::MAX);
    limits.http2.header_list.max(head).saturating_add(LIST_SLACK)
}

/// Runs a connection's streams on the worker that the connection is on.
#[derive(Clone)]
struct StreamExecutor {
    gate: Rc<Gate>,
    ticker: Rc<Ticker>,
    /// The pace of the stream that is handed over next: the engine calls the service and then this.
    begun: Rc<Cell<Option<Rc<Pace>>>>,
}

impl<F: Future<Output = ()> + Unpin + 'static> hyper::rt::Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        match self.begun.take() {
            Some(pace) => {
                let gate = Rc::clone(&self.gate);
                let ticker = Rc::clone(&self.ticker);
                tokio::task::spawn_local(DrivenStream::new(stream, pace, gate, ticker));
            }
            None => {
                tokio::task::spawn_local(stream);
            }
        }
    }
}
