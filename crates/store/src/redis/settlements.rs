//! Adjustments of charges: collected while the worker's other tasks run, merged where they are
//! about the same charge, and sent without making a request wait.
//!
//! Each is executed at most once, so it is sent again only if it is known not to have been
//! executed. A lost one leaves a caller with slightly less than its limit; one that is executed
//! twice would grant more. Only the end of a lease, which may be repeated safely, is sent until it
//! is answered.

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
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, OwnedCharge};

use super::{RedisStore, script};
use crate::Adjustment;

/// Most adjustments that wait or are being sent; further ones are dropped.
const MAX_WAITING: usize = 4096;

/// How long one adjustment may take in all.
const DEADLINE: Duration = Duration::from_secs(10);

/// How long one attempt may take, and the pause before the next.
const ATTEMPT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(200);

/// Adjustments that wait to be sent.
#[derive(Default)]
pub(super) struct Settlements {
    waiting: RefCell<HashMap<(u128, Adjustment), Settlement>>,
    /// How many are being sent.
    in_flight: Cell<usize>,
    added: Notify,
}

struct Settlement {
    charge: OwnedCharge,
    /// When it was added.
    now: Timestamp,
}

impl Settlements {
    /// Adds one. Costs are added up where it is about a charge, or a window that stands for many
    /// charges, that already has one.
    pub(super) fn add(&self, charge: &Charge<'_>, adjustment: Adjustment, now: Timestamp) {
        let mut waiting = self.waiting.borrow_mut();
        let name = (charge.key.entry, adjustment);
        if let Some(same) = waiting.get_mut(&name) {
            same.charge.cost = same.charge.cost.saturating_add(charge.cost);
        } else if waiting.len() + self.in_flight.get() < MAX_WAITING {
            waiting.insert(name, Settlement { charge: charge.into(), now });
            self.added.notify_one();
        } else {
            tracing::debug!("too many settlements wait: one was dropped");
        }
    }

    /// How many wait or are being sent.
    pub(super) fn len(&self) -> usize {
        self.waiting.borrow().len() + self.in_flight.get()
    }

    /// Whether none waits or is being sent.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Wakes the task that sends them, so that it ends if the store is gone.
    pub(super) fn close(&self) {
        self.added.notify_one();
    }
}

/// Sends adjustments as long as their store lives.
pub(super) async fn send(settlements: Rc<Settlements>, store: Weak<RedisStore>) {
    loop {
        settlements.added.notified().await;
        let Some(store) = store.upgrade() else { return };
        for ((_, adjustment), settlement) in settlements.waiting.take() {
            let in_flight = SettlementInFlight::new(&settlements);
            let store = Rc::downgrade(&store);
            tokio::task::spawn_local(async move {
                settlement.make(adjustment, &store).await;
                drop(in_flight);
            });
        }
    }
}

impl Settlement {
    /// Sends it until it is known to be executed, may have been executed, or time has run out.
    async fn make(&self, adjustment: Adjustment, store: &Weak<RedisStore>) {
        let charge = self.charge.charge();
        // Ending a lease twice has no further effect.
        let is_harmless = charge.quota.holds_leases();
        let deadline = Instant::now() + DEADLINE;
        loop {
            let Some(store) = store.upgrade() else { return };
            let partition = store.partition(charge.key.owner);
            // It may have waited for longer than clocks may be apart.
            let time = store.clock(partition, store.clocks.since(self.now));
            let call = script::settle(&store.settings.prefix, &charge, adjustment, time);
            let soon = deadline.min(Instant::now() + ATTEMPT);
            let error = match store.execute(partition, &call, soon).await {
                Ok(_) => return,
                Err(error) => error,
            };
            if !(error.is_undone() || is_harmless) || Instant::now() + PAUSE >= deadline {
                tracing::debug!(%error, "a settlement was lost");
                return;
            }
            drop(store);
            sleep(PAUSE).await;
        }
    }
}

/// Counts an adjustment as long as it is being sent.
struct SettlementInFlight(Rc<Settlements>);

impl SettlementInFlight {
    fn new(settlements: &Rc<Settlements>) -> Self {
        settlements.in_flight.set(settlements.in_flight.get() + 1);
        SettlementInFlight(Rc::clone(settlements))
    }
}

impl Drop for SettlementInFlight {
    fn drop(&mut self) {
        self.0.in_flight.set(self.0.in_flight.get().saturating_sub(1));
    }
}
