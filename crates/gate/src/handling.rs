//! Handlers: the futures of a worker that handle its requests, each one request after another.
//!
//! All that a request may need while it waits takes kilobytes. A future of its own for each request
//! would be moved, with all of that, whenever it is handed on: to the code that catches panics, to
//! the protocol engine, to the heap. A handler stays where it is, and what is handed on is a
//! pointer. For the same reason the futures that it awaits are made where they stay, by `pin!`: an
//! `await` moves what it is given.

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use http::{Response, request::Parts};
use tollgate_response::Body;
use tollgate_upstream::{ClientBody, downstream::Peer};

use super::{Gate, Source};

/// A request that a handler is given.
pub(super) struct GivenRequest {
    pub(super) gate: Rc<Gate>,
    pub(super) parts: Parts,
    /// None: another proxy has described the head.
    pub(super) body: Option<ClientBody>,
    pub(super) source: Source,
    pub(super) peer: Rc<Peer>,
}

/// Where a handler finds its next request, and leaves its response.
#[derive(Default)]
pub(super) struct Mailbox {
    request: Cell<Option<GivenRequest>>,
    response: Cell<Option<Response<Body>>>,
}

/// The handlers of a worker that have nothing to do.
#[derive(Default)]
pub(super) struct Handlers(RefCell<Vec<Handler>>);

/// The most that are kept: as many requests as are begun in one turn of a busy worker's loop.
const KEPT_HANDLERS: usize = 128;

struct Handler {
    mailbox: Rc<Mailbox>,
    /// Waits for requests in the mailbox, without end.
    future: Pin<Box<dyn Future<Output = Infallible>>>,
}

/// The response to a request, once it is there. Dropped before that, the request has no response.
pub struct Handling {
    gate: Rc<Gate>,
    /// None: it has responded, or has panicked, and is not to be polled again.
    handler: Option<Handler>,
}

impl Mailbox {
    /// The next request.
    pub(super) async fn next(&self) -> GivenRequest {
        // Nobody needs to be woken: a new `Handling` is polled, and polls this.
        poll_fn(|_| self.request.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// Leaves the response to it.
    pub(super) fn respond(&self, response: Response<Body>) {
        self.response.set(Some(response));
    }
}

impl Handlers {
    fn take(&self) -> Handler {
        self.0.borrow_mut().pop().unwrap_or_else(|| {
            let mailbox = Rc::new(Mailbox::default());
            let future = Box::pin(Gate::handle_each(Rc::clone(&mailbox)));
            Handler { mailbox, future }
        })
    }

    fn put_back(&self, handler: Handler) {
        let mut kept = self.0.borrow_mut();
        if kept.len() < KEPT_HANDLERS {
            kept.push(handler);
        }
    }
}

impl Handling {
    pub(super) fn begin(request: GivenRequest) -> Handling {
        let gate = Rc::clone(&request.gate);
        let handler = gate.handlers.take();
        handler.mailbox.request.set(Some(request));
        Handling { gate, handler: Some(handler) }
    }
}

impl Future for Handling {
    type Output = Response<Body>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response<Body>> {
        // One that panics is dropped by that.
        let Some(mut handler) = self.handler.take() else { return Poll::Pending };
        let Poll::Pending = handler.future.as_mut().poll(context);
        match handler.mailbox.response.take() {
            Some(response) => {
                self.gate.handlers.put_back(handler);
                Poll::Ready(response)
            }
            None => {
                self.handler = Some(handler);
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{IpAddr, Ipv4Addr},
        panic::{AssertUnwindSafe, catch_unwind},
        sync::Arc,
        task::Waker,
        time::Duration,
    };

    use http::{HeaderValue, Request};
    use tollgate_clock::{Clock, deadline::Ticker};
    use tollgate_settings::{ListenAddress, ListenerSettings};
    use tollgate_upstream::Upstreams;
    use tollgate_wire::forward_auth::Asker;

    use super::*;
    use crate::{Shared, X_REQUEST_ID};

    /// Runs a test with a gate that has no policies.
    fn with_gate(test: impl FnOnce(&Rc<Gate>)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build_local(Default::default());
        runtime.unwrap().block_on(async {
            let shared = Arc::new(Shared::offline(None, Clock::System));
            let upstreams = Upstreams::new(Rc::new(Ticker::new(Duration::MAX, None)));
            test(&Rc::new(Gate::new(0, shared, upstreams, None)));
        });
    }

    /// A request with this ID, which the response has, too.
    fn begin(gate: &Rc<Gate>, id: &'static str) -> Handling {
        let request = Request::builder().uri("http://a.example/").header(&X_REQUEST_ID, id);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let address = "127.0.0.1:1".parse().unwrap();
        let peer = Peer {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            address_value: HeaderValue::from_static("127.0.0.1"),
            is_trusted: true,
            client_chain: None,
            certificate_choice: None,
            own_address: None,
            listener: Arc::new(ListenerSettings::plain(ListenAddress::Tcp(address))),
        };
        gate.handle_described(parts, Asker::Envoy, Rc::new(peer))
    }

    /// The ID in the response, which does not need to be waited for.
    fn respond(handling: &mut Handling) -> String {
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(response) = Pin::new(handling).poll(&mut context) else {
            panic!("it waits");
        };
        response.headers()[&X_REQUEST_ID].to_str().unwrap().to_owned()
    }

    fn kept(gate: &Gate) -> usize {
        gate.handlers.0.borrow().len()
    }

    #[test]
    fn handler_handles_one_request_after_another() {
        with_gate(|gate| {
            for id in ["first", "second"] {
                let mut handling = begin(gate, id);
                assert_eq!(kept(gate), 0);
                assert_eq!(respond(&mut handling), id);
                assert_eq!(kept(gate), 1);
            }
        });
    }

    #[test]
    fn requests_at_the_same_time_have_a_handler_each() {
        with_gate(|gate| {
            let (mut one, mut other) = (begin(gate, "one"), begin(gate, "other"));
            assert_eq!(respond(&mut other), "other");
            assert_eq!(respond(&mut one), "one");
            assert_eq!(kept(gate), 2);
        });
    }

    #[test]
    fn handler_of_a_request_that_is_dropped_is_not_used_again() {
        with_gate(|gate| {
            drop(begin(gate, "dropped"));
            assert_eq!(kept(gate), 0);
            assert_eq!(respond(&mut begin(gate, "next")), "next");
        });
    }

    #[test]
    fn handler_that_panics_is_not_used_again() {
        with_gate(|gate| {
            let future = Box::pin(async { panic!("as a handler might") });
            gate.handlers.put_back(Handler { mailbox: Rc::default(), future });
            let mut handling = begin(gate, "unlucky");
            let polled = catch_unwind(AssertUnwindSafe(|| respond(&mut handling)));
            assert!(polled.is_err());
            drop(handling);
            assert_eq!(kept(gate), 0);
            assert_eq!(respond(&mut begin(gate, "next")), "next");
        });
    }

    #[test]
    fn handlers_that_are_kept_are_bounded() {
        with_gate(|gate| {
            let mut handlings: Vec<Handling> =
                (0..=KEPT_HANDLERS).map(|_| begin(gate, "one-of-many")).collect();
            handlings.iter_mut().for_each(|handling| drop(respond(handling)));
            assert_eq!(kept(gate), KEPT_HANDLERS);
        });
    }
}
