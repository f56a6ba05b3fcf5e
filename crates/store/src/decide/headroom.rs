//! How much room counters have left, as far as this process knows: which of them may deny a
//! request.
//!
//! Counters of several owners are charged at once. When one of them denies, what the others took is
//! given back. Until then, a request that comes meanwhile finds less room than there is, and a
//! caller that is denied again and again could keep others out of the limits that it shares with
//! them. So a counter that may have no room is charged before the others. The estimate is what the
//! counter's store reported last, less the units of calls in flight: of many requests at once, no
//! more go to all counters together than there is room for. Each proxy uses its share of the room
//! only, since it does not know what the others do. Where the estimate is wrong, calls are made in
//! vain, and a request may be denied needlessly.

use std::num::NonZeroU32;

use parking_lot::Mutex;
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, DecidedBy, Decision, Key, Stance, Standing};

use crate::recent::Recent;

/// Most counters that are remembered. One that is not remembered counts as unused.
const CAPACITY: usize = 10_000;

/// The headroom of counters of requests with several owners, for all workers.
#[derive(Debug)]
pub(crate) struct Headrooms {
    by_entry: Mutex<Recent<u128, Headroom, CAPACITY>>,
    /// How many proxies there are.
    instances: NonZeroU32,
}

#[derive(Debug, Default)]
struct Headroom {
    /// The last report of its store.
    last_reply: Option<LastReply>,
    /// Units of calls in flight.
    pending: u32,
}

/// The room that a store reported, by this process' clock.
#[derive(Clone, Copy, Debug)]
struct LastReply {
    left: u32,
    /// When one more unit is available.
    next: Timestamp,
    /// When all units are available.
    full: Timestamp,
}

/// Charges of a call in flight. Dropped when its outcome is known or its request has ended.
pub(crate) struct ChargesInFlight<'a, 'c> {
    headrooms: &'a Headrooms,
    charges: &'a [Charge<'c>],
}

impl Headrooms {
    /// For counters that so many proxies share.
    pub(crate) fn new(instances: NonZeroU32) -> Self {
        Headrooms { by_entry: Mutex::default(), instances }
    }

    /// Whether one of these charges may deny its request.
    pub(crate) fn may_deny<'c>(
        &self,
        charges: impl Iterator<Item = &'c Charge<'c>>,
        now: Timestamp,
    ) -> bool {
        let headrooms = self.by_entry.lock();
        let fits = |charge: &Charge<'_>| match headrooms.get(&charge.key.entry) {
            Some(room) => room.fits(charge, self.instances, now),
            None => Headroom::default().fits(charge, self.instances, now),
        };
        charges.filter(|charge| may_deny_request(charge)).any(|charge| !fits(charge))
    }

    /// Counts the units of a call that is about to be made.
    pub(crate) fn begin<'a, 'c>(&'a self, charges: &'a [Charge<'c>]) -> ChargesInFlight<'a, 'c> {
        let mut headrooms = self.by_entry.lock();
        for charge in charges.iter().filter(|charge| may_deny_request(charge)) {
            let pending = &mut headrooms.entry(charge.key.entry).pending;
            *pending = pending.saturating_add(charge.cost);
        }
        ChargesInFlight { headrooms: self, charges }
    }

    /// Records what a store that was charged at `now` has reported about `charges`.
    pub(crate) fn learn(&self, charges: &[Charge<'_>], decision: &Decision, now: Timestamp) {
        let mut headrooms = self.by_entry.lock();
        for (charge, outcome) in charges.iter().zip(&decision.outcomes) {
            let is_of_store = matches!(outcome.decided_by, DecidedBy::Current | DecidedBy::Next);
            if is_of_store && may_deny_request(charge) {
                let Standing { remaining, next, reset, .. } = outcome.standing;
                let here = |instant: Timestamp| now + instant.saturating_since(decision.now);
                let last = LastReply { left: remaining, next: here(next), full: here(reset) };
                headrooms.entry(charge.key.entry).last_reply = Some(last);
            }
        }
    }

    /// Drops what stores have reported about counters that were reset.
    pub(crate) fn forget(&self, keys: &[Key]) {
        let mut headrooms = self.by_entry.lock();
        for key in keys {
            if let Some(room) = headrooms.get_mut(&key.entry) {
                room.last_reply = None;
            }
        }
    }
}

impl Headroom {
    /// Whether a charge fits, with those in flight, into this proxy's share of the room. A share
    /// that is too small for one charge lets one through all the same.
    fn fits(&self, charge: &Charge<'_>, instances: NonZeroU32, now: Timestamp) -> bool {
        let left = match self.last_reply {
            Some(last) if now < last.next => last.left,
            Some(last) if now < last.full => last.left.max(1),
            Some(_) | None => charge.quota.capacity(),
        };
        let part = left / instances;
        let wanted = self.pending.saturating_add(charge.cost);
        wanted <= part || (self.pending == 0 && wanted <= left)
    }
}

impl Drop for ChargesInFlight<'_, '_> {
    fn drop(&mut self) {
        let mut headrooms = self.headrooms.by_entry.lock();
        for charge in self.charges.iter().filter(|charge| may_deny_request(charge)) {
            if let Some(room) = headrooms.get_mut(&charge.key.entry) {
                room.pending = room.pending.saturating_sub(charge.cost);
            }
        }
    }
}

/// Whether a charge can deny its request at all.
fn may_deny_request(charge: &Charge<'_>) -> bool {
    charge.stance == Stance::Enforce && charge.takes()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_limit::{
        Align, FixedWindow, LimitId, Outcome, Quota, Retry, TokenBucket, Verdict,
    };

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    fn key(entry: u128) -> Key {
        Key::new(entry, entry, LimitId::new("p", "l", "", 0))
    }

    fn ten() -> Quota {
        Quota::FixedWindow(FixedWindow { limit: 10, align: Align::FirstRequest(HOUR) })
    }

    fn headrooms(instances: u32) -> Headrooms {
        Headrooms::new(NonZeroU32::new(instances).unwrap())
    }

    fn may_deny(headrooms: &Headrooms, charge: &Charge<'_>, now: Timestamp) -> bool {
        headrooms.may_deny([charge].into_iter(), now)
    }

    /// Records a report of a store whose clock is a minute ahead.
    fn report(headrooms: &Headrooms, charge: &Charge<'_>, left: u32, [next, full]: [Duration; 2]) {
        let now = NOW + Duration::from_secs(60);
        let standing = Standing {
            limit: 10,
            remaining: left,
            used: 10 - left,
            next: now + next,
            reset: now + full,
            retry: Retry::Now,
        };
        let outcome = Outcome { standing, receipt: None, decided_by: DecidedBy::Current };
        let outcomes = [outcome].into_iter().collect();
        let decision = Decision { verdict: Verdict::Allow, outcomes, now };
        headrooms.learn(&[*charge], &decision, NOW);
    }

    #[test]
    fn no_more_calls_are_in_flight_than_there_is_room_for() {
        let quota = ten();
        let headrooms = headrooms(1);
        let charge = Charge::new(key(1), &quota, 4);
        let charges = [charge];
        assert!(!may_deny(&headrooms, &charge, NOW));
        let first = headrooms.begin(&charges);
        assert!(!may_deny(&headrooms, &charge, NOW));
        let second = headrooms.begin(&charges);
        assert!(may_deny(&headrooms, &charge, NOW));
        assert!(!may_deny(&headrooms, &Charge { cost: 2, ..charge }, NOW));
        assert!(!may_deny(&headrooms, &Charge::new(key(2), &quota, 10), NOW), "of another counter");
        drop((first, second));
        assert!(!may_deny(&headrooms, &charge, NOW));
        assert!(may_deny(&headrooms, &Charge { cost: 11, ..charge }, NOW), "it never fits");
    }

    #[test]
    fn proxy_uses_its_share_of_the_room_and_at_least_one_unit() {
        let quota = ten();
        let headrooms = headrooms(4);
        let charge = Charge::new(key(1), &quota, 1);
        let charges = [charge];
        let first = headrooms.begin(&charges);
        assert!(!may_deny(&headrooms, &charge, NOW));
        let second = headrooms.begin(&charges);
        assert!(may_deny(&headrooms, &charge, NOW));
        drop(second);
        report(&headrooms, &charge, 3, [Duration::ZERO, HOUR]);
        assert!(may_deny(&headrooms, &charge, NOW));
        drop(first);
        assert!(!may_deny(&headrooms, &charge, NOW));
        assert!(!may_deny(&headrooms, &Charge { cost: 3, ..charge }, NOW));
    }

    #[test]
    fn used_up_counter_has_room_at_the_instant_that_its_store_reported() {
        let bucket =
            TokenBucket { capacity: 10, refill: 1, interval: HOUR, even: false, strict: false };
        let quota = Quota::TokenBucket(bucket);
        let headrooms = headrooms(1);
        let charge = Charge::new(key(1), &quota, 1);
        report(&headrooms, &charge, 0, [HOUR, 10 * HOUR]);
        let just_before = NOW + (HOUR - Duration::from_micros(1));
        assert!(may_deny(&headrooms, &charge, just_before));
        assert!(!may_deny(&headrooms, &charge, NOW + HOUR));
        let two = Charge { cost: 2, ..charge };
        assert!(may_deny(&headrooms, &two, NOW + HOUR));
        assert!(!may_deny(&headrooms, &two, NOW + 10 * HOUR));
    }

    #[test]
    fn limit_that_observes_and_charge_without_cost_deny_nothing() {
        let quota = ten();
        let headrooms = headrooms(1);
        let charge = Charge::new(key(1), &quota, 1);
        report(&headrooms, &charge, 0, [HOUR, HOUR]);
        assert!(may_deny(&headrooms, &charge, NOW));
        assert!(!may_deny(&headrooms, &Charge { stance: Stance::Observe, ..charge }, NOW));
        assert!(!may_deny(&headrooms, &Charge { cost: 0, ..charge }, NOW));
    }
}
