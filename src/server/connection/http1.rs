//! A connection that speaks HTTP/1.
//!
//! A head that the framing check refuses is held back from the protocol engine, which would answer
//! some of them in words of its own. When all that came before is answered, the connection is taken
//! from the engine, and the refusal is sent here.
//!
//! An idle connection is taken from the engine, too: its buffers are several times as large as all
//! that is left then. There is another engine when something comes.

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body_util::BodyExt;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{io::AsyncWriteExt, time::timeout};
use tollgate_clock::deadline::{Deadline, TICK, Ticker};
use tollgate_response::Rejection;
use tollgate_upstream::{
    ClientBody,
    downstream::{Fault, InFlight},
};
use tollgate_wire::framing::{Framing, Phase};

use super::{
    ClientPace, Exchange,
    read_rate::ReadRate,
    step::{Reader, Step},
};
use crate::server::socket::{CLOSE_TIMEOUT, Reading, Socket};

/// How long a connection is idle before its buffers are given back. To make them again takes an
/// eighth of the instructions of a request, which busy connections are to be spared.
const REST_AFTER: Duration = TICK.saturating_mul(2);
/// How long a response that has begun may pause once its client sends nothing more: it may have
/// closed its connection, which is all that this shows.
const PAUSE: Duration = Duration::from_secs(1);
/// Least room for what is read and written. The engine has one bound for both.
const MIN_BUFFER_BYTES: usize = 40 * 1024;
/// What the engine reads beyond a head that is as large as it may be.
const BUFFER_SLACK: usize = 8 * 1024;
/// Fields for which the engine has room by default.
const USUAL_FIELDS: usize = 100;

static CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Why a connection is no more the engine's.
enum ConnectionEnd {
    /// It was closed, or is to be something else.
    Closed,
    /// It broke.
    Broken,
    /// What is left to say is said here.
    Refused(Rejection),
    /// Time has run out in this step.
    Late(Step),
    /// Too much is held for clients, and this one does not read its response.
    CutOff,
    /// It was idle for a while, and the engine has nothing in its buffers: they are given back.
    Resting,
}

pub(super) async fn serve(mut socket: Socket, exchange: Rc<Exchange>, deadline: Deadline) {
    let limits = exchange.gate.shared().limits.head;
    let framing = Rc::new(RefCell::new(Framing::new(limits)));
    let (served, in_flight) = (Rc::clone(&exchange.served), Rc::clone(&exchange.in_flight));
    // A program that closes its connection leaves the line that it waits in.
    let may_half_close = exchange.peer.listener.asked.is_none();
    let Reading { is_awaited, is_half_closed, interim } =
        socket.check_http1(Rc::clone(&framing), served, in_flight, may_half_close);
    let writing = socket.writing();
    let ticker = Rc::clone(deadline.ticker());
    // Requests whose response has begun.
    let begun = Rc::new(Cell::new(0));
    let service = service_fn(|request: Request<_>| {
        let ordinal = exchange.count();
        let begun = Rc::clone(&begun);
        let verdict = framing.borrow().verdict(ordinal);
        let exchange = Rc::clone(&exchange);
        let ticker = Rc::clone(&ticker);
        let writing = Rc::clone(&writing);
        // HTTP/1.0 has no interim responses.
        //= rfc9110#section-15.2
        //# a server MUST NOT send a 1xx response to an HTTP/1.0 client
        let interim = (request.version() == Version::HTTP_11).then(|| Rc::clone(&interim));
        let request = request.map(|body| ClientBody { interim, ..ClientBody::from(body) });
        // Before the engine reads on: it may find the end of what the client sends.
        let in_flight = InFlight::new(&exchange.in_flight);
        let pace = ClientPace::Http1(writing);
        let responding = Rc::clone(&exchange).respond(request, verdict, pace, in_flight);
        async move {
            let Ok(mut response) = responding.await;
            exchange.keep_tunnel(&mut response);
            begun.set(ordinal);
            if ticker.is_draining() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                //= rfc9112#section-9.6
                //# A sender SHOULD send a Connection header field (Section 7.6.1 of [HTTP])
                //# containing the "close" connection option when it intends to close a connection
                response.headers_mut().insert(header::CONNECTION, CLOSE.clone());
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MIN_BUFFER_BYTES.max(limits.head_bytes + BUFFER_SLACK));
    if limits.fields > USUAL_FIELDS {
        builder.max_headers(limits.fields);
    }

    let timeouts = &exchange.gate.shared().timeouts;
    let mut step = Step::Head { number: 0 };
    let mut read_rate = ReadRate::default();
    let mut is_draining = false;
    let mut pause = Pause::default();
    let faults = exchange.gate.shared().admission.faults();
    loop {
        let mut connection = builder.serve_connection(TokioIo::new(socket), &service);
        let rest = ticker.deadline();
        rest.set(REST_AFTER);
        let ended = poll_fn(|context| {
            let mut connection = Pin::new(&mut connection);
            if let Some(linger) = deadline.ticker().linger()
                && !std::mem::replace(&mut is_draining, true)
            {
                match (exchange.in_flight.get(), framing.borrow().phase()) {
                    // Its next request may be on the way.
                    (0, Phase::Idle) if !linger.is_zero() => deadline.set_at_most(linger),
                    // Half of it is here, of which the engine knows nothing yet: the answer says
                    // that it is the last, and there is a deadline for the rest.
                    (0, Phase::Head) => {}
                    // A response that begins from now on says that it is the last. After one that
                    // has begun, the next request may be on the way.
                    _ if !linger.is_zero() => {}
                    _ => connection.as_mut().graceful_shutdown(),
                }
            }
            match connection.poll(context) {
                Poll::Ready(Ok(())) => return Poll::Ready(ConnectionEnd::Closed),
                Poll::Ready(Err(_)) => return Poll::Ready(ConnectionEnd::Broken),
                Poll::Pending if writing.cut_off().is_cut() => {
                    return Poll::Ready(ConnectionEnd::CutOff);
                }
                Poll::Pending => {}
            }
            match (is_half_closed.get(), exchange.in_flight.get()) {
                (false, _) => {}
                // The engine is to read the end that was kept from it.
                (true, 0) => {
                    is_half_closed.set(false);
                    context.waker().wake_by_ref();
                }
                (true, _) if begun.get() < exchange.served.get() || writing.stalled().is_some() => {
                    pause = Pause::default();
                }
                (true, _) if pause.poll_over(writing.bytes(), &ticker, context) => {
                    return Poll::Ready(ConnectionEnd::Broken);
                }
                (true, _) => {}
            }
            let framing = framing.borrow();
            let number = exchange.served.get();
            let next = match (writing.stalled(), exchange.in_flight.get(), framing.phase()) {
                _ if writing.is_lingering() => Step::Lingering,
                (Some(stall), _, _) => Step::Stalled(stall),
                (None, 0, Phase::Idle) => Step::Idle { served: number },
                (None, 0, _) => match framing.refused_head() {
                    Some(violation) if number == framing.heads() => {
                        return Poll::Ready(ConnectionEnd::Refused(violation.into()));
                    }
                    _ => Step::Head { number },
                },
                (None, _, _) => Step::Busy,
            };
            if next != step {
                let idle = deadline.ticker().linger().unwrap_or(timeouts.keep_alive);
                let read_rate = &mut read_rate;
                let reader = Reader { read_rate, writing: &writing, deadline: &deadline, timeouts };
                step.go_on_to(next, reader, idle);
                match step {
                    Step::Idle { .. } => rest.set(REST_AFTER),
                    // One that has passed would wake the connection at each tick.
                    _ => rest.clear(),
                }
            }
            // The engine has nothing in its buffers: what it has written was taken, or the client
            // would stall; what came was handed on whole, and it asks for the first byte of a head.
            let is_at_rest = matches!(step, Step::Idle { .. })
                && is_awaited.get()
                && framing.is_between()
                && framing.heads() == number;
            if is_at_rest && rest.poll_passed(context) {
                return Poll::Ready(ConnectionEnd::Resting);
            }
            if !deadline.poll_passed(context) {
                return Poll::Pending;
            }
            Poll::Ready(match (step, framing.phase()) {
                (Step::Head { .. }, Phase::Head) => ConnectionEnd::Refused(Rejection::HeadTimeout),
                _ => ConnectionEnd::Late(step),
            })
        });
        let ended = ended.await;
        drop(rest);
        match ended {
            ConnectionEnd::Resting => {}
            ConnectionEnd::Closed => {
                let Some(tunnel) = exchange.tunnel.take() else { return };
                let http1::Parts { io, read_buf, .. } = connection.into_parts();
                let tunnel = tunnel.run(io.into_inner(), read_buf, deadline, timeouts.tunnel_idle);
                return Box::pin(tunnel).await;
            }
            ConnectionEnd::Broken => return,
            ConnectionEnd::CutOff => return faults.count(Fault::Unread),
            ConnectionEnd::Late(Step::Stalled(_)) => return faults.count(Fault::SlowReader),
            ConnectionEnd::Late(Step::Head { .. } | Step::Idle { served: 0 }) => {
                return faults.count(Fault::SlowHead);
            }
            ConnectionEnd::Late(_) => return,
            ConnectionEnd::Refused(rejection) => {
                if let Rejection::HeadTimeout = rejection {
                    faults.count(Fault::SlowHead);
                }
                let socket = connection.into_parts().io.into_inner();
                let refusing = Box::pin(refuse(socket, &exchange, rejection));
                let _ = timeout(CLOSE_TIMEOUT, refusing).await;
                return;
            }
        }
        socket = connection.into_parts().io.into_inner();
        wait_without_engine(&mut socket, &deadline, is_draining).await;
    }
}

/// How long a response writes nothing whose client sends nothing more.
#[derive(Default)]
struct Pause {
    /// None: no such response was seen.
    deadline: Option<Deadline>,
    /// Bytes that the client had taken when it began.
    since: u64,
}

impl Pause {
    /// Whether it lasts too long, with so many bytes taken by now.
    fn poll_over(&mut self, bytes: u64, ticker: &Rc<Ticker>, context: &mut Context<'_>) -> bool {
        let is_known = self.deadline.is_some();
        let deadline = self.deadline.get_or_insert_with(|| ticker.deadline());
        if !is_known || self.since != bytes {
            self.since = bytes;
            deadline.set(PAUSE);
        }
        deadline.poll_passed(context)
    }
}

/// Waits until something has come, the deadline has passed, or a drain begins that was not noticed
/// yet. The next engine sees to it as the one before would have done.
async fn wait_without_engine(socket: &mut Socket, deadline: &Deadline, is_draining: bool) {
    poll_fn(|context| {
        let is_over = socket.poll_readable(context).is_ready()
            || deadline.poll_passed(context)
            || deadline.ticker().is_draining() != is_draining;
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Sends the refusal of a request, and closes the connection.
async fn refuse(
    mut socket: Socket,
    exchange: &Exchange,
    rejection: Rejection,
) -> std::io::Result<()> {
    let line = socket.refused_line();
    let response = exchange.gate.refuse(rejection, &exchange.peer, &line);
    let (mut response, body) = response.into_parts();
    exchange.peer.mark(&mut response.headers);
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let message = write_head(&Response::from_parts(response, ()), body.len());
    socket.write_all(&[&message, &body[..]].concat()).await?;
    socket.shutdown().await
}

/// A response's head as HTTP/1.1 writes it.
fn write_head(response: &Response<()>, length: usize) -> Vec<u8> {
    let status = response.status();
    //= rfc9112#section-4
    //# A server MUST send the space that separates the status-code from the reason-phrase even when
    //# the reason-phrase is absent
    let reason = status.canonical_reason().unwrap_or_default();
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
    for (name, value) in response.headers() {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    //= rfc9110#section-8.6
    //# an origin server SHOULD send a Content-Length header field when the content size is known
    head.extend_from_slice(format!("content-length: {length}\r\n\r\n").as_bytes());
    head
}

#[cfg(test)]
mod tests;
