//! Counters that are charged at instants which clients give: for replays of history, and for
//! programs that charge later than they use.
//!
//! They are a space of their own, in this process whatever the store of live traffic is, and with a
//! room of their own: live traffic and a replay change nothing about each other. An instant before
//! a counter's mark counts as the mark, so no counter goes back. Counters end by the watermark, the
//! greatest instant that was charged, and not by the clock, so a replay gets the same answers at
//! any speed. They are dropped only for want of room: while half of it is free, a second replay,
//! which begins before the watermark, gets the answers of the first.

use std::sync::{Arc, OnceLock};

use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, DecidedBy, Decision, Key, Standing};
use tollgate_settings::MemoryBounds;

use super::groups::attribute;
use crate::{Adjustment, MemoryStore, NoRoom, Store, StoreError, memory::watermark::Watermark};

/// The counters that clients' times are for. They take no memory before the first charge.
pub struct ClientTimed {
    bounds: MemoryBounds,
    space: OnceLock<Space>,
}

struct Space {
    counters: MemoryStore,
    watermark: Arc<Watermark>,
}

impl ClientTimed {
    pub(crate) fn new(bounds: MemoryBounds) -> ClientTimed {
        ClientTimed { bounds, space: OnceLock::new() }
    }

    fn space(&self) -> &Space {
        self.space.get_or_init(|| {
            let watermark = Arc::<Watermark>::default();
            let counters = MemoryStore::client_timed(self.bounds, Arc::clone(&watermark));
            Space { counters, watermark }
        })
    }

    /// Takes all charges or none at `at`, when the clock of this process has `now`.
    pub(crate) fn charge(
        &self,
        charges: &[Charge<'_>],
        at: Timestamp,
        now: Timestamp,
    ) -> Result<Decision, NoRoom> {
        let Space { counters, watermark } = self.space();
        watermark.advance(at);
        let decision = counters.charge_at(charges, at, now)?;
        Ok(attribute(decision, DecidedBy::ClientTime))
    }

    /// How the limits of `charges` stand at `at`, with nothing taken.
    pub fn peek(&self, charges: &[Charge<'_>], at: Timestamp) -> Decision {
        attribute(self.space().counters.peek_at(charges, at), DecidedBy::ClientTime)
    }

    /// Corrects a charge that was made at `at`. It counts at that instant, or at the mark of its
    /// counter. Returns how its limit stands then; none if the counter is gone.
    pub fn settle(
        &self,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        at: Timestamp,
        now: Timestamp,
    ) -> Option<Standing> {
        self.space().counters.settle_at(charge, adjustment, at, now)
    }

    /// Whether charges that count until `ends` cannot be corrected any more: all their counters
    /// have gone past that, or counters that ended then may have been dropped.
    pub fn has_ended(&self, charges: &[Charge<'_>], ends: Timestamp) -> bool {
        let Space { counters, watermark } = self.space();
        let is_past = |own: &Charge<'_>| counters.mark_of(own).is_none_or(|mark| mark >= ends);
        ends <= watermark.swept() || charges.iter().all(is_past)
    }

    /// How many counters there are.
    pub fn count(&self) -> usize {
        self.space.get().map_or(0, |space| space.counters.len())
    }

    /// The greatest instant that was charged; none: there are no counters.
    pub fn watermark(&self) -> Option<Timestamp> {
        let space = self.space.get().filter(|space| !space.counters.is_empty());
        space.map(|space| space.watermark.latest())
    }

    /// Drops some of the counters that are over, once half of the room is used.
    pub(crate) fn sweep(&self, now: Timestamp) {
        if let Some(Space { counters, .. }) = self.space.get()
            && counters.len() > self.bounds.max_keys / 2
        {
            counters.sweep(now);
        }
    }

    pub(crate) fn forget(&self, key: Key) {
        if let Some(space) = self.space.get() {
            space.counters.remove_key(key);
        }
    }
}

impl Store {
    /// The counters that are charged at instants which clients give.
    pub fn client_timed(&self) -> &ClientTimed {
        &self.stores.client_timed
    }

    /// Takes all `charges` or none from client-timed counters, at the client's instant `at`.
    ///
    /// # Errors
    /// [`StoreError::NoRoom`] as of [`Store::charge`].
    pub fn charge_at(
        &self,
        charges: &[Charge<'_>],
        at: Timestamp,
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let decision = self.stores.client_timed.charge(charges, at, now);
        let decision = decision.map_err(StoreError::from);
        if let Ok(decision) = &decision {
            self.count_left_out(decision);
        }
        self.count_decision(&decision);
        decision
    }
}

#[cfg(test)]
mod tests;
