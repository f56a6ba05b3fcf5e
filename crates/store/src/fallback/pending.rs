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

use super::waiting_refunds::{MAX_REFUNDS, Refunds};

/// Most counters with pending charges, or with room for them. What is admitted locally on other
/// counters is not written back.
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
    /// Counters that have room though nothing is pending for them yet: how many corrections are
    /// about to be made of each.
    reserved: HashMap<u128, usize>,
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
    /// How many refunds are being sent, and come back if the store does not answer.
    sent: usize,
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
        let entry = charge.key.entry;
        let has_room = counters.has_room(entry);
        let PendingCounters { by_entry, queue, .. } = counters;
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
                    sent: 0,
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
        counters.by_entry = HashMap::new();
        counters.queue = VecDeque::new();
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
        let PendingCounters { by_entry, queue, .. } = &mut *counters;
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
    /// How many counters there are with room for something, and how many of their refunds wait.
    pub(crate) fn census(&self) -> (usize, usize) {
        let refunds = self.by_entry.values().map(PendingCounter::waiting_refunds).sum();
        (self.by_entry.len() + self.reserved.len(), refunds)
    }

    /// Whether a counter has pending charges.
    pub(crate) fn contains(&self, entry: u128) -> bool {
        self.by_entry.contains_key(&entry)
    }

    /// Whether something of a counter may be pending.
    fn has_room(&self, entry: u128) -> bool {
        let is_known = self.by_entry.contains_key(&entry) || self.reserved.contains_key(&entry);
        // A counter that is in both counts twice, but is not for long.
        is_known || self.by_entry.len() + self.reserved.len() < MAX_PENDING
    }

    /// Keeps room for a correction of a counter until [`PendingCounters::release`]. False: there is
    /// none.
    pub(super) fn reserve(&mut self, entry: u128) -> bool {
        let waiting = self.by_entry.get(&entry).map_or(0, PendingCounter::waiting_refunds);
        let reserved = self.reserved.get(&entry).copied().unwrap_or_default();
        let has_room = waiting + reserved < MAX_REFUNDS && self.has_room(entry);
        if has_room {
            self.reserved.insert(entry, reserved + 1);
        }
        has_room
    }

    /// Ends a reservation.
    pub(super) fn release(&mut self, entry: u128) {
        if let Entry::Occupied(mut reserved) = self.reserved.entry(entry) {
            *reserved.get_mut() -= 1;
            if *reserved.get() == 0 {
                reserved.remove();
            }
        }
    }

    pub(super) fn get_mut(&mut self, entry: u128) -> Option<&mut PendingCounter> {
        self.by_entry.get_mut(&entry)
    }

    /// Records how a write ended that left charges pending, and queues these.
    fn end_write(&mut self, entry: u128, write: WriteState) {
        if let Some(counter) = self.by_entry.get_mut(&entry) {
            counter.write = write;
            counter.sent = 0;
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

    /// How many refunds of it wait or are being sent.
    fn waiting_refunds(&self) -> usize {
        self.unapplied.len() + self.refunds.len() + self.sent
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_clock::Timestamp;
    use tollgate_limit::{AlgorithmKind, Key, LimitId, Quota, Receipt};

    use super::*;
    use crate::fallback::waiting_refunds::Refund;

    fn begin(pending: &PendingCharges, entry: u128) -> bool {
        let quota = Quota::plain(AlgorithmKind::FixedWindow, 5, Duration::from_secs(60)).unwrap();
        let key = Key::new(1, entry, LimitId::new("test", "a", "fixed_window", 60));
        let charge = Charge::new(Key { entry, ..key }, &quota, 1);
        pending.begin(&mut pending.lock(), &charge, DecidedBy::Current, None)
    }

    #[test]
    fn reserved_room_is_not_taken_by_others() {
        let pending = PendingCharges::default();
        let most = MAX_PENDING as u128;
        assert!((1..most).all(|entry| begin(&pending, entry)));
        assert!(pending.lock().reserve(most), "one more has room");
        assert!(!begin(&pending, most + 1) && !pending.lock().reserve(most + 1));
        assert!(pending.lock().reserve(most), "two corrections of a counter share its room");
        pending.lock().release(most);
        assert!(!begin(&pending, most + 1), "the other one is still to come");
        assert!(begin(&pending, most) && pending.len() == MAX_PENDING);
        pending.lock().release(most);
        assert!(pending.lock().reserve(1), "what waits has room");
        pending.discard(&mut pending.lock(), 1);
        assert!(!begin(&pending, most + 1));
        pending.lock().release(1);
        assert!(begin(&pending, most + 1) && pending.len() == MAX_PENDING);
    }

    #[test]
    fn refunds_of_one_counter_have_room_until_too_many_wait_or_are_being_sent() {
        let pending = PendingCharges::default();
        assert!(begin(&pending, 1));
        for number in 0..MAX_REFUNDS {
            assert!(pending.lock().reserve(1), "{number}");
            let mut counters = pending.lock();
            let counter = counters.get_mut(1).unwrap();
            let receipt = Receipt { at: Timestamp::default(), number: number as u64 };
            let refund = Refund { receipt, units: 1, from: None };
            match number % 3 {
                0 => counter.unapplied.add(refund),
                1 => counter.refunds.add(refund),
                _ => counter.sent += 1,
            }
            counters.release(1);
        }
        assert!(!pending.lock().reserve(1));
        pending.lock().end_write(1, WriteState::Due);
        assert!(pending.lock().reserve(1), "what was sent is there");
    }
}
