//! Charges of programs at instants that they give, as a worker makes them.

use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, Decision, Standing};

use super::{Adjustment, Store, StoreError, Stores};

impl Stores {
    /// How many client-timed counters there are.
    pub fn client_timed(&self) -> usize {
        self.client_timed.len()
    }

    /// The greatest instant that was charged; none: there are no client-timed counters.
    pub fn watermark(&self) -> Option<Timestamp> {
        self.client_timed.watermark()
    }
}

impl Store {
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
        match &decision {
            Ok(decision) => self.count_left_out(decision),
            Err(reason) => self.stores.counts.count_no_room(*reason),
        }
        let decision = decision.map_err(StoreError::from);
        self.count_decision(&decision);
        decision
    }

    /// How the limits of `charges` stand in client-timed counters at `at`.
    pub fn peek_at(&self, charges: &[Charge<'_>], at: Timestamp) -> Decision {
        self.stores.client_timed.peek(charges, at)
    }

    /// Corrects a charge that was made at `at`. It counts at that instant, or at the mark of its
    /// counter. Returns how its limit stands then; none if the counter is gone.
    pub fn settle_at(
        &self,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        at: Timestamp,
        now: Timestamp,
    ) -> Option<Standing> {
        self.stores.client_timed.settle(charge, adjustment, at, now)
    }

    /// Whether charges that count until `ends` cannot be corrected any more: all their counters
    /// have gone past that, or counters that ended then may have been dropped.
    pub fn has_ended(&self, charges: &[Charge<'_>], ends: Timestamp) -> bool {
        self.stores.client_timed.has_ended(charges, ends)
    }
}
