//! The pace of an HTTP/2 response: whether its client grants it room, and what it gives back to the
//! client's budget of frames.
//!
//! A stream without send window is not polled, so nothing of the upstream's response is read
//! meanwhile; but its task, its upstream connection and the bytes already read are held for as long
//! as the client likes. So a client that grants no window for too long, or too little for the bytes
//! that wait, has that stream reset. Its other streams go on.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
};

use http::HeaderMap;

use super::read_rate::ReadRate;
use crate::{
    deadline::{Deadline, Ticker},
    gate::Gate,
    panics::{self, Panic},
    server::{Fault, frames::Frames, head_limits::fields_bytes},
};

/// Largest part of a response that is given to the protocol engine at once: what a stream holds when
/// its client stops reading. It is the largest frame that every client takes.
pub(in crate::server) const PART_BYTES: usize = 16 * 1024;

/// The pace of one response.
#[derive(Debug)]
pub struct Pace {
    frames: Rc<RefCell<Frames>>,
    /// Parts that the client was given.
    parts: Cell<u64>,
    /// Bytes of them.
    bytes: Cell<u64>,
    /// Whether it is the client's turn: the engine has a part and does not ask for more.
    is_waiting: Cell<bool>,
}

impl Pace {
    pub(super) fn new(frames: &Rc<RefCell<Frames>>) -> Self {
        Pace {
            frames: Rc::clone(frames),
            parts: Cell::new(0),
            bytes: Cell::new(0),
            is_waiting: Cell::new(false),
        }
    }

    /// Largest part that may be given at once.
    pub fn part_bytes(&self) -> usize {
        PART_BYTES
    }

    /// Records that a part of the response was given to the engine.
    pub fn give(&self, bytes: usize) {
        self.frames.borrow_mut().pay_part(bytes);
        self.parts.set(self.parts.get().wrapping_add(1));
        self.bytes.set(self.bytes.get().wrapping_add(bytes as u64));
        self.is_waiting.set(true);
    }

    /// Records that the engine wants the next part, which the upstream has not sent yet.
    pub fn ask(&self) {
        self.is_waiting.set(false);
    }

    /// Records the end of the response.
    pub fn end(&self) {
        self.frames.borrow_mut().pay_response();
        self.is_waiting.set(false);
    }

    /// Counts trailers of the request; false if the connection must be closed.
    #[must_use]
    pub fn take_trailers(&self, trailers: &HeaderMap) -> bool {
        self.frames.borrow_mut().take_fields(fields_bytes(trailers));
        !self.is_over()
    }

    /// Whether the connection is being closed for a fault of its client.
    fn is_over(&self) -> bool {
        self.frames.borrow().fault().is_some()
    }

    fn waiting_part(&self) -> Option<u64> {
        self.is_waiting.get().then(|| self.parts.get())
    }
}

/// Runs a stream until it ends, or its client has granted nothing for too long, or too little for the
/// time that it took; then the stream is dropped, which resets it.
pub(super) async fn run(
    stream: impl Future<Output = ()>,
    pace: Rc<Pace>,
    (gate, ticker): (Rc<Gate>, Rc<Ticker>),
) {
    let mut stream = pin!(stream);
    // Most streams end without ever waiting for their client.
    let mut deadline: Option<Deadline> = None;
    let (mut waited_for, mut read_rate) = (None, ReadRate::default());
    let is_ended = poll_fn(|context| {
        if pace.is_over() {
            return Poll::Ready(true);
        }
        let polled = panics::catch(|| stream.as_mut().poll(context));
        let polled = polled.unwrap_or_else(|panic| {
            gate.shared().admission.faults().count(Fault::RequestPanic);
            let Panic { message, location, backtrace } = panic;
            let backtrace = backtrace.as_deref();
            tracing::error!(
                panic = message,
                place = location,
                backtrace,
                "an HTTP/2 stream has panicked"
            );
            Poll::Ready(())
        });
        if polled.is_ready() {
            return Poll::Ready(true);
        }
        let part = pace.waiting_part();
        if part.is_none() {
            if waited_for.take().is_some()
                && let Some(deadline) = &deadline
            {
                read_rate.end_to_wait(ticker.now(), pace.bytes.get(), &gate.shared().timeouts);
                // One that has passed would wake the stream at each tick.
                deadline.clear();
            }
            return Poll::Pending;
        }
        let deadline = deadline.get_or_insert_with(|| ticker.deadline());
        if part != waited_for {
            waited_for = part;
            let timeouts = &gate.shared().timeouts;
            // This counts the latest part, which was not taken yet, in place of the first.
            deadline.set(read_rate.begin_to_wait(ticker.now(), pace.bytes.get(), timeouts));
        }
        if deadline.poll_passed(context) { Poll::Ready(false) } else { Poll::Pending }
    });
    if !is_ended.await {
        gate.shared().admission.faults().count(Fault::SlowReader);
    }
}
