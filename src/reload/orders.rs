//! Orders to the reload thread. Those that arrived while it was busy are taken together, so that
//! many callers that order a reload at the same time have everything read once, not once each.

use std::sync::mpsc::Receiver;

use tokio::sync::oneshot;

use super::Refused;

/// The outcome of reading: the generation that is in force then, or why the old one still is.
pub(super) type ReloadResult = Result<u64, Refused>;

/// A message to the reload thread.
pub(super) enum Order {
    /// Something may have changed.
    Check,
    /// Read, whether or not anything has changed.
    Read,
    /// Read and send the outcome, unless its receiver has been dropped.
    Answer(oneshot::Sender<ReloadResult>),
    Stop,
}

/// All orders that have arrived.
#[derive(Default)]
pub(super) struct PendingOrders {
    pub(super) to_check: bool,
    pub(super) to_stop: bool,
    to_read: bool,
    waiting: Vec<oneshot::Sender<ReloadResult>>,
}

impl PendingOrders {
    /// The first order, and those that are behind it.
    pub(super) fn take(first: Order, inbox: &Receiver<Order>) -> PendingOrders {
        let mut orders = PendingOrders::default();
        for order in std::iter::once(first).chain(inbox.try_iter()) {
            match order {
                Order::Check => orders.to_check = true,
                Order::Read => orders.to_read = true,
                Order::Answer(waiting) if waiting.is_closed() => {}
                Order::Answer(waiting) => orders.waiting.push(waiting),
                Order::Stop => orders.to_stop = true,
            }
        }
        orders
    }

    pub(super) fn to_read(&self) -> bool {
        self.to_read || !self.waiting.is_empty()
    }

    /// Notifies all callers that wait.
    pub(super) fn answer(self, outcome: &ReloadResult) {
        for waiting in self.waiting {
            let _ = waiting.send(outcome.clone());
        }
    }
}
