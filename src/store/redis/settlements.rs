//! What is to be put right about charges: collected while the worker's other tasks run, made one
//! where it is about the same charge, and sent without anybody waiting.
//!
//! Each is executed at most once, and so sent again only when it is known not to have been. One that
//! is lost leaves a caller with a little less than it is due; one that is done twice would be a gift.
//! Only the end of a lease, which is the same however often it comes, is sent until it is answered.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::{Rc, Weak},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use super::{RedisStore, script};
use crate::{
    clock::Timestamp,
    limit::{Charge, OwnedCharge},
    store::{Adjustment, Unanswered},
};

/// Settlements that wait to be sent, or are being sent, at most; what comes beyond is dropped.
const MAX_WAITING: usize = 4096;

/// How long one may take in all: there is no hurry, but an end.
const DEADLINE: Duration = Duration::from_secs(10);

/// How long one attempt may take, and the time to the next.
const ATTEMPT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(200);

/// Settlements that wait to be sent.
#[derive(Default)]
pub(super) struct Settlements {
    waiting: RefCell<HashMap<(u128, Adjustment), Settlement>>,
    /// How many are being sent.
    under_way: Cell<usize>,
    added: Notify,
}

struct Settlement {
    charge: OwnedCharge,
    /// When it was added.
    now: Timestamp,
}

impl Settlements {
    /// Adds one. Of the same charge, and of the same window where one stands for many charges, costs
    /// add up.
    pub(super) fn add(&self, charge: &Charge<'_>, adjustment: Adjustment, now: Timestamp) {
        let mut waiting = self.waiting.borrow_mut();
        let name = (charge.key.entry, adjustment);
        if let Some(same) = waiting.get_mut(&name) {
            same.charge.cost = same.charge.cost.saturating_add(charge.cost);
        } else if waiting.len() + self.under_way.get() < MAX_WAITING {
            waiting.insert(name, Settlement { charge: charge.into(), now });
            self.added.notify_one();
        } else {
            tracing::debug!("too many settlements wait: one was dropped");
        }
    }

    /// Whether none waits, or is being sent.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty() && self.under_way.get() == 0
    }

    /// Has the task that sends them look whether it is still needed.
    pub(super) fn close(&self) {
        self.added.notify_one();
    }
}

/// Sends settlements for as long as their store lives.
pub(super) async fn send(settlements: Rc<Settlements>, store: Weak<RedisStore>) {
    loop {
        settlements.added.notified().await;
        let Some(store) = store.upgrade() else { return };
        for ((_, adjustment), settlement) in settlements.waiting.take() {
            let under_way = UnderWay::new(&settlements);
            let store = Rc::downgrade(&store);
            tokio::task::spawn_local(async move {
                settlement.make(adjustment, &store).await;
                drop(under_way);
            });
        }
    }
}

impl Settlement {
    /// Sends it until it is known to be executed, or may have been, or there is no time left.
    async fn make(&self, adjustment: Adjustment, store: &Weak<RedisStore>) {
        let charge = self.charge.charge();
        // To end a lease twice is to end it once.
        let is_harmless = charge.quota.holds_leases();
        let deadline = Instant::now() + DEADLINE;
        loop {
            let Some(store) = store.upgrade() else { return };
            let place = store.place(charge.key.owner);
            // It may have waited for longer than clocks may be apart.
            let time = store.clock(place, store.clocks.since(self.now));
            let call = script::settle(&store.settings.prefix, &charge, adjustment, time);
            let soon = deadline.min(Instant::now() + ATTEMPT);
            let error = match store.execute(place, &call, soon).await {
                Ok(_) => return,
                Err(error) => error,
            };
            let is_undone = match error {
                Unanswered::Away | Unanswered::Busy | Unanswered::Refused => true,
                Unanswered::Timeout | Unanswered::Lost | Unanswered::BadReply => false,
            };
            if !(is_undone || is_harmless) || Instant::now() + PAUSE >= deadline {
                tracing::debug!(%error, "a settlement was lost");
                return;
            }
            drop(store);
            sleep(PAUSE).await;
        }
    }
}

/// Counts a settlement for as long as it is being sent.
struct UnderWay(Rc<Settlements>);

impl UnderWay {
    fn new(settlements: &Rc<Settlements>) -> Self {
        settlements.under_way.set(settlements.under_way.get() + 1);
        UnderWay(Rc::clone(settlements))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get().saturating_sub(1));
    }
}
