//! One stream of HTTP/2, driven until it ends or its client is too slow.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use tollgate_clock::deadline::{Deadline, Ticker};
use tollgate_gate::Gate;
use tollgate_observe::panics;
use tollgate_upstream::downstream::{Fault, Pace};

use super::{log_panic, read_rate::ReadRate};

/// A stream that runs until it ends, or its client has granted nothing for too long, or too little
/// for the time that it took, or is one of those for whom too much is held; then the stream is to
/// be dropped, which resets it.
pub(super) struct DrivenStream<S> {
    stream: S,
    pace: Rc<Pace>,
    gate: Rc<Gate>,
    ticker: Rc<Ticker>,
    /// Most streams end without ever waiting for their client.
    deadline: Option<Deadline>,
    /// The part of the response that the client was waited for.
    waited_for: Option<u64>,
    read_rate: ReadRate,
}

impl<S> DrivenStream<S> {
    pub(super) fn new(
        stream: S,
        pace: Rc<Pace>,
        gate: Rc<Gate>,
        ticker: Rc<Ticker>,
    ) -> DrivenStream<S> {
        let read_rate = ReadRate::default();
        DrivenStream { stream, pace, gate, ticker, deadline: None, waited_for: None, read_rate }
    }
}

impl<S: Future<Output = ()> + Unpin> DrivenStream<S> {
    /// Why it is given up; none: it has ended.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Option<Fault>> {
        let DrivenStream { stream, pace, gate, ticker, deadline, waited_for, read_rate } = self;
        if pace.is_over() {
            return Poll::Ready(None);
        }
        let polled = panics::catch(|| Pin::new(stream).poll(context));
        let polled = polled.unwrap_or_else(|panic| {
            gate.shared().admission.faults().count(Fault::RequestPanic);
            log_panic(panic, "an HTTP/2 stream has panicked");
            Poll::Ready(())
        });
        if polled.is_ready() {
            return Poll::Ready(None);
        }
        if pace.is_cut_off() {
            return Poll::Ready(Some(Fault::Unread));
        }
        let part = pace.waiting_part();
        if part.is_none() {
            if waited_for.take().is_some()
                && let Some(deadline) = deadline
            {
                read_rate.end_to_wait(ticker.now(), pace.bytes(), &gate.shared().timeouts);
                // One that has passed would wake the stream at each tick.
                deadline.clear();
            }
            return Poll::Pending;
        }
        let deadline = deadline.get_or_insert_with(|| ticker.deadline());
        if part != *waited_for {
            *waited_for = part;
            let timeouts = &gate.shared().timeouts;
            // This counts the latest part, which was not taken yet, in place of the first.
            deadline.set(read_rate.begin_to_wait(ticker.now(), pace.bytes(), timeouts));
        }
        match deadline.poll_passed(context) {
            true => Poll::Ready(Some(Fault::SlowReader)),
            false => Poll::Pending,
        }
    }
}

impl<S: Future<Output = ()> + Unpin> Future for DrivenStream<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(fault) = ready!(self.poll_end(context)) {
            self.gate.shared().admission.faults().count(fault);
        }
        Poll::Ready(())
    }
}
