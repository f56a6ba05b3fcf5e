//! Charges that this process has admitted in fallback mode and that are still to be written to
//! Redis.
//!
//! While a store does not answer, limits are decided from this process' share (`fallback`). What is
//! taken meanwhile is pending: the difference between what the local counter holds and what it held
//! before. The first request that the store can decide writes it back first; counters that no
//! request uses are written back in the background (`write_back`). Until the store has reported the
//! counter again, local decisions go on from the local counter: a second outage grants no second
//! share.
//!
//! Nothing is pending for windows that have ended, nor for leases, which end where they were
//! granted. A write whose reply is late is not repeated until the reply has come or time has run
//! out. A write whose connection broke is repeated: at worst a caller is charged twice for what it
//! used in one outage, and no limit admits too much.

mod write_back;

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::Instant};
use tollgate_limit::{AnyState, Charge, DecidedBy, OwnedCharge};

use super::waiting_refunds::Refunds;

/// Most counters with pending charges. What is admitted locally on other counters is not written
/// back.
const MAX_PENDING: usize = 65_536;

/// Most counters that a worker writes back in one tick.
const COUNTERS_PER_TICK: usize = 256;

/// The pending charges of all workers.
#[derive(Debug, Default)]
pub(crate) struct PendingCharges {
    counters: Mutex<PendingCounters>,
    /// The number of counters. It is mostly zero, and then the lock is not needed.
    count: AtomicUsize,
    /// Notified when a write has ended.
    ended: Notify,
}

/// While a worker holds these, it decides locally, and no other worker writes back or drops a
/// counter.
#[derive(Debug, Default)]
pub(crate) struct PendingCounters {
    by_entry: HashMap<u128, PendingCounter>,
    /// The order in which counters are written back in the background.
    queue: VecDeque<u128>,
}

/// A counter with pending charges, or refunds.
#[derive(Debug)]
pub(super) struct PendingCounter {
    pub(super) charge: OwnedCharge,
    /// The store that is to have the charges.
    to: DecidedBy,
    /// What the local counter held before them; none: it did not exist.
    pub(super) base: Option<AnyState>,
    write: WriteState,
    /// Refunds that came while charges were being written.
    pub(super) unapplied: Refunds,
    /// Refunds that the store is to make.
    pub(super) refunds: Refunds,
    is_queued: bool,
}

/// Whether a counter's charges are being written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteState {
    /// They are not.
    Due,
    /// A task waits for the reply, until this instant at most.
    InFlight(Instant),
    /// The reply is late, and may come until this instant.
    InDoubt(Instant),
}

impl PendingCharges {
    /// How many counters have pending charges.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether no counter has.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The state of a counter's write to a store; none if nothing is pending for it.
    fn write_state(&self, entry: u128, to: DecidedBy) -> Option<WriteState> {
        if self.is_empty() {
            return None;
        }
        let counters = self.lock();
        let counter = counters.by_entry.get(&entry).filter(|counter| counter.to == to);
        counter.map(|counter| counter.write)
    }

    /// Waits until no write of a counter is in flight.
    async fn wait_for_write(&self, entry: u128, to: DecidedBy) {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            if !matches!(self.write_state(entry, to), Some(WriteState::InFlight(_))) {
                return;
            }
            ended.await;
        }
    }

    /// From now on, what the local counter holds beyond `base` is pending for the store `to`. False
    /// if there is no room to record that.
    pub(crate) fn begin(
        &self,
        counters: &mut PendingCounters,
        charge: &Charge<'_>,
        to: DecidedBy,
        base: Option<AnyState>,
    ) -> bool {
        let PendingCounters { by_entry, queue } = counters;
        let entry = charge.key.entry;
        let has_room = by_entry.len() < MAX_PENDING;
        match by_entry.entry(entry) {
            Entry::Occupied(_) => true,
            Entry::Vacant(vacant) if has_room => {
                let charge = OwnedCharge::from(charge);
                vacant.insert(PendingCounter {
                    charge,
                    to,
                    base,
                    write: WriteState::Due,
                    unapplied: Refunds::default(),
                    refunds: Refunds::default(),
                    is_queued: true,
                });
                queue.push_back(entry);
                self.count.fetch_add(1, Ordering::Relaxed);
                true
            }
            Entry::Vacant(_) => false,
        }
    }

    /// Records that a write has ended, and that the store may not have it. These refunds were not
    /// sent.
    fn fail(&self, entry: u128, write: WriteState, refunds: Refunds) {
        let mut counters = self.lock();
        if let Some(counter) = counters.get_mut(entry) {
            counter.refunds.add_all(refunds);
        }
        counters.end_write(entry, write);
        drop(counters);
        self.ended.notify_waiters();
    }

    /// Drops a counter: nothing of it is pending any more.
    pub(crate) fn discard(&self, counters: &mut PendingCounters, entry: u128) {
        if counters.by_entry.remove(&entry).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.ended.notify_waiters();
        }
    }

    /// Drops all counters: the secret has changed, so no caller has these keys any more.
    pub(crate) fn discard_all(&self) {
        let mut counters = self.lock();
        *counters = PendingCounters::default();
        self.count.store(0, Ordering::Relaxed);
        drop(counters);
        self.ended.notify_waiters();
    }

    /// Takes counters to write back from the queue.
    fn due(&self) -> Vec<u128> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut counters = self.lock();
        let PendingCounters { by_entry, queue } = &mut *counters;
        let due: Vec<u128> = queue.drain(..queue.len().min(COUNTERS_PER_TICK)).collect();
        due.into_iter()
            .filter(|entry| {
                let Some(counter) = by_entry.get_mut(entry) else { return false };
                let may_begin = counter.write.may_begin();
                counter.is_queued = !may_begin;
                if !may_begin {
                    queue.push_back(*entry);
                }
                may_begin
            })
            .collect()
    }

    /// Must be held no longer than it takes to decide or settle one request.
    pub(crate) fn lock(&self) -> MutexGuard<'_, PendingCounters> {
        self.counters.lock()
    }
}

impl PendingCounters {
    /// Whether a counter has pending charges.
    pub(crate) fn contains(&self, entry: u128) -> bool {
        self.by_entry.contains_key(&entry)
    }

    pub(super) fn get_mut(&mut self, entry: u128) -> Option<&mut PendingCounter> {
        self.by_entry.get_mut(&entry)
    }

    /// Records how a write ended that left charges pending, and queues these.
    fn end_write(&mut self, entry: u128, write: WriteState) {
        if let Some(counter) = self.by_entry.get_mut(&entry) {
            counter.write = write;
            if !std::mem::replace(&mut counter.is_queued, true) {
                self.queue.push_back(entry);
            }
        }
    }
}

impl PendingCounter {
    /// Whether it is known which of its charges the store has.
    pub(super) fn is_due(&self) -> bool {
        self.write == WriteState::Due
    }

    /// Whether refunds of it wait.
    fn has_refunds(&self) -> bool {
        !self.unapplied.is_empty() || !self.refunds.is_empty()
    }
}

impl WriteState {
    /// Whether a new write may begin: no other one is in flight or in doubt.
    fn may_begin(self) -> bool {
        match self {
            WriteState::Due => true,
            WriteState::InFlight(until) | WriteState::InDoubt(until) => Instant::now() >= until,
        }
    }
}
