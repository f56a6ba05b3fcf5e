//! What is to be put right about charges: collected while the worker's other tasks run, made one
//! where it is about the same charge, and sent without anybody waiting.
//!
//! Each is sent at most once. One that is lost leaves a caller with a little less than it is due, or
//! a lease to expire by itself; one that is done twice would be a gift.

use std::{
    cell::RefCell,
    collections::HashMap,
    rc::{Rc, Weak},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::{RedisStore, script};
use crate::{
    clock::Timestamp,
    limit::{Charge, OwnedCharge},
    store::Adjustment,
};

/// Settlements that wait to be sent at most; what comes beyond is dropped.
const MAX_WAITING: usize = 4096;

/// How long one may wait for its server: there is no hurry, but an end.
const DEADLINE: Duration = Duration::from_secs(1);

/// Settlements that wait to be sent.
#[derive(Default)]
pub(super) struct Settlements {
    waiting: RefCell<HashMap<(u128, Adjustment), Settlement>>,
    added: Notify,
}

struct Settlement {
    charge: OwnedCharge,
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
        } else if waiting.len() < MAX_WAITING {
            waiting.insert(name, Settlement { charge: charge.into(), now });
            self.added.notify_one();
        } else {
            tracing::debug!("too many settlements wait: one was dropped");
        }
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
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
        for ((_, adjustment), Settlement { charge, now }) in settlements.waiting.take() {
            let store = Rc::clone(&store);
            tokio::task::spawn_local(async move {
                let charge = charge.charge();
                let place = store.place(charge.key.owner);
                let prefix = &store.settings.prefix;
                let clock = (store.clock(now), now);
                let call = script::settle(prefix, &charge, adjustment, clock);
                let deadline = Instant::now() + DEADLINE;
                if let Err(error) = store.execute(place, &call, (deadline, &|| None)).await {
                    tracing::debug!(%error, "a settlement was lost");
                }
            });
        }
    }
}
