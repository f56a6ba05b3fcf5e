//! A client's connection, from its first byte to its close.
//!
//! Its one deadline serves in turn for whatever the connection is in the middle of: the first byte,
//! the rest of a head, the wait for the next request.

mod http1;
mod http2;
mod read_rate;
mod step;
mod stream;

use std::{
    cell::Cell,
    convert::Infallible,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{HeaderValue, Request, Response, StatusCode, header};
use tollgate_clock::deadline::Ticker;
use tollgate_gate::{Gate, Handling};
use tollgate_observe::panics::{self, Panic};
use tollgate_response::Body;
use tollgate_upstream::{
    ClientBody,
    downstream::{ConnectionPermit, Fault, Handshake, InFlight, Pace, Peer, Writing},
};
use tollgate_wire::Violation;

use super::{
    listener::Accepted,
    opening::{OpenConnection, open},
    socket::{Protocol, Socket},
    tunnel::Tunnel,
};
use crate::decisions::Question;

/// Serves a connection until it closes. A panic outside of any request ends this connection alone.
pub(super) async fn serve(
    accepted: Accepted,
    mut permit: ConnectionPermit,
    gate: Rc<Gate>,
    ticker: Rc<Ticker>,
) {
    let mut serving = pin!(serve_opened(accepted, &mut permit, Rc::clone(&gate), ticker));
    let ended = poll_fn(|context| {
        panics::catch(|| serving.as_mut().poll(context)).unwrap_or_else(|panic| {
            gate.shared().admission.faults().count(Fault::ConnectionPanic);
            log_panic(panic, "a connection has panicked");
            Poll::Ready(())
        })
    });
    ended.await;
}

/// Logs the panic of something that is about no one request.
fn log_panic(panic: Panic, message: &str) {
    let backtrace = panic.backtrace.as_deref();
    tracing::error!(panic = panic.message, place = panic.location, backtrace, "{message}");
}

async fn serve_opened(
    accepted: Accepted,
    permit: &mut ConnectionPermit,
    gate: Rc<Gate>,
    ticker: Rc<Ticker>,
) {
    let deadline = ticker.deadline();
    let listener = Arc::clone(&accepted.listener);
    let OpenConnection { stream, protocol, peer } =
        match open(accepted, permit, gate.shared(), &deadline).await {
            Ok(opened) => opened,
            Err(error) => {
                if let Some(reason) = error.failed_handshake() {
                    gate.shared().admission.handshakes().count(Handshake::Failed(reason));
                }
                if let Some(fault) = error.fault().filter(|_| !ticker.is_draining()) {
                    gate.shared().admission.faults().count(fault);
                }
                if let Some(error) = error.revocation() {
                    let listener = &listener.address;
                    tracing::warn!(%listener, %error, "a client's certificate was refused");
                }
                return tracing::debug!(%error, "connection closed before a request");
            }
        };
    let socket = Socket::new(stream);
    let exchange = Rc::new(Exchange {
        gate,
        peer: Rc::new(peer),
        served: Rc::default(),
        in_flight: Rc::default(),
        tunnel: Cell::default(),
    });
    match protocol {
        Protocol::Http1 => http1::serve(socket, exchange, deadline).await,
        // On the heap, as it would be a part of every connection's task otherwise.
        Protocol::Http2 => Box::pin(http2::serve(socket, exchange, deadline)).await,
    }
}

/// What the requests of one connection share.
struct Exchange {
    gate: Rc<Gate>,
    peer: Rc<Peer>,
    /// Requests that came in.
    served: Rc<Cell<u64>>,
    /// Requests whose response has not ended.
    in_flight: Rc<Cell<usize>>,
    /// What the connection is to become when its response has been sent.
    tunnel: Cell<Option<Box<Tunnel>>>,
}

/// How a client shows that it takes what it is sent.
enum ClientPace {
    Http1(Rc<Writing>),
    Http2(Rc<Pace>),
}

/// What is being done about a request.
enum Answering {
    Request(Handling),
    /// Boxed: it is rare, and keeps the common future small.
    Question(Pin<Box<dyn Future<Output = Response<Body>>>>),
}

/// The response to a request, once it is there. It is small and can be moved at any time, so that
/// the engines keep it without a copy of all that a request may need.
struct PendingResponse {
    exchange: Rc<Exchange>,
    answering: Answering,
    /// Whom the response goes to. None: it was given to the engine.
    client: Option<(ClientPace, InFlight)>,
}

impl Exchange {
    /// Counts one more request. Returns its number.
    fn count(&self) -> u64 {
        self.served.set(self.served.get() + 1);
        self.served.get()
    }

    /// Serves one request, which counts as in flight already, at its client's pace. A panic on the
    /// way is that request's 500 and affects no other.
    fn respond(
        self: Rc<Self>,
        request: Request<ClientBody>,
        framing: Result<(), Violation>,
        pace: ClientPace,
        in_flight: InFlight,
    ) -> PendingResponse {
        let question = Question::of(request.uri().path(), &self.peer);
        let answering = match question.filter(|_| framing.is_ok()) {
            None => Answering::Request(self.gate.handle(request, &self.peer, framing)),
            Some(question) => {
                let asked = Rc::clone(&self);
                Answering::Question(Box::pin(async move {
                    question.answer(&asked.gate, request, &asked.peer).await
                }))
            }
        };
        PendingResponse { exchange: self, answering, client: Some((pace, in_flight)) }
    }

    /// Keeps what the connection is to become, if this response has it leave HTTP.
    fn keep_tunnel(&self, response: &mut Response<Body>) {
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return;
        }
        let Some(server) = response.body_mut().take_switched() else { return };
        let body = std::mem::replace(response.body_mut(), Body::empty());
        let protocol = response.headers().get(header::UPGRADE).map(HeaderValue::as_bytes);
        let is_websocket = protocol.is_some_and(|it| it.eq_ignore_ascii_case(b"websocket"));
        self.tunnel.set(Some(Box::new(Tunnel { server, body, is_websocket })));
    }

    /// The response to a request whose handling panicked.
    fn internal_error(&self, panic: Panic) -> Response<Body> {
        self.gate.shared().admission.faults().count(Fault::RequestPanic);
        self.gate.fail(&self.peer, panic)
    }
}

impl Future for PendingResponse {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let PendingResponse { exchange, answering, client } = &mut *self;
        let polled = panics::catch(|| match answering {
            Answering::Request(handling) => Pin::new(handling).poll(context),
            Answering::Question(answer) => answer.as_mut().poll(context),
        });
        let polled = polled.unwrap_or_else(|panic| Poll::Ready(exchange.internal_error(panic)));
        let mut response = ready!(polled);
        exchange.peer.mark(response.headers_mut());
        if let Some((pace, in_flight)) = client.take() {
            let body = response.body_mut();
            body.set_in_flight(in_flight);
            match pace {
                ClientPace::Http1(writing) => body.set_writing(writing),
                ClientPace::Http2(pace) => {
                    body.set_pace(pace);
                    // Closing is not for one stream to ask for (RFC 9113 section 8.2.2).
                    //= rfc9113#section-8.2.2
                    //# An endpoint MUST NOT generate an HTTP/2 message containing
                    //# connection-specific header fields
                    response.headers_mut().remove(header::CONNECTION);
                }
            }
        }
        Poll::Ready(Ok(response))
    }
}
