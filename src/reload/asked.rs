//! What was asked for while the thread was at something else: all of it at once, so that many who
//! ask at the same time have everything read once, not once each.

use std::sync::mpsc::Receiver;

use tokio::sync::oneshot;

use super::Refused;

/// What comes of reading: the generation that is in force then, or why the old one still is.
pub(super) type Outcome = Result<u64, Refused>;

/// A message to the reload thread.
pub(super) enum Order {
    /// Something may have changed.
    Look,
    /// Read, whether or not anything has changed.
    Read,
    /// The same, and tell what came of it; not if nobody waits for that any more.
    Answer(oneshot::Sender<Outcome>),
    Stop,
}

/// All orders that have come.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) to_look: bool,
    pub(super) to_stop: bool,
    to_read: bool,
    waiting: Vec<oneshot::Sender<Outcome>>,
}

impl Asked {
    /// The first order, and those that are behind it.
    pub(super) fn take(first: Order, inbox: &Receiver<Order>) -> Asked {
        let mut asked = Asked::default();
        for order in std::iter::once(first).chain(inbox.try_iter()) {
            match order {
                Order::Look => asked.to_look = true,
                Order::Read => asked.to_read = true,
                Order::Answer(waiting) if waiting.is_closed() => {}
                Order::Answer(waiting) => asked.waiting.push(waiting),
                Order::Stop => asked.to_stop = true,
            }
        }
        asked
    }

    pub(super) fn to_read(&self) -> bool {
        self.to_read || !self.waiting.is_empty()
    }

    /// Notifies all callers that wait.
    pub(super) fn answer(self, outcome: &Outcome) {
        for waiting in self.waiting {
            let _ = waiting.send(outcome.clone());
        }
    }
}
