//! One stream of HTTP/2, driven until it ends or its client is too slow.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
};

use tollgate_clock::deadline::{Deadline, Ticker};
use tollgate_gate::Gate;
use tollgate_observe::panics;
use tollgate_upstream::downstream::{Fault, Pace};

use super::{log_panic, read_rate::ReadRate};

/// Runs a stream until it ends, or its client has granted nothing for too long, or too little for
/// the time that it took, or is one of those for whom too much is held; then the stream is dropped,
/// which resets it.
pub(super) async fn run(
    stream: impl Future<Output = ()>,
    pace: Rc<Pace>,
    gate: Rc<Gate>,
    ticker: Rc<Ticker>,
) {
    let mut stream = pin!(stream);
    // Most streams end without ever waiting for their client.
    let mut deadline: Option<Deadline> = None;
    let mut waited_for = None;
    let mut read_rate = ReadRate::default();
    let ended = poll_fn(|context| {
        if pace.is_over() {
            return Poll::Ready(None);
        }
        let polled = panics::catch(|| stream.as_mut().poll(context));
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
                && let Some(deadline) = &deadline
            {
                read_rate.end_to_wait(ticker.now(), pace.bytes(), &gate.shared().timeouts);
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
            deadline.set(read_rate.begin_to_wait(ticker.now(), pace.bytes(), timeouts));
        }
        match deadline.poll_passed(context) {
            true => Poll::Ready(Some(Fault::SlowReader)),
            false => Poll::Pending,
        }
    });
    if let Some(fault) = ended.await {
        gate.shared().admission.faults().count(fault);
    }
}
