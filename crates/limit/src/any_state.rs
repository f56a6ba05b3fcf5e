//! The state of a counter of any algorithm, and what it holds beyond an earlier state: the units
//! that were taken while the store could not be reached, and that are added to its counter later.
//!
//! While a store is out of reach, each process decides by its share of the limit, starting from its
//! share of the last known state. What it takes then is pending: the difference between the two
//! states of its own counter at the instant when the store is reachable again. A share drains, or
//! is refilled, at its own part of the rate, so all differences and the store's state together are
//! no less than one counter that had seen every charge.

use tollgate_clock::Timestamp;

use super::{
    algorithm::{Algorithm, Receipt},
    kind::{AnyState, Quota, StateVariant},
    standing::Standing,
    with_algorithm,
};

impl Quota {
    /// How a counter in this state stands at `now`; none if it is the state of another algorithm.
    pub fn standing_of(&self, state: &AnyState, now: Timestamp) -> Option<Standing> {
        with_algorithm!(self, algorithm => standing_of(algorithm, state, now))
    }

    /// The receipt of a charge that was made elsewhere and added to a counter in this state, as in
    /// [`Algorithm::receipt_in`]; none if it is the state of another algorithm, too.
    pub fn receipt_in(&self, state: &AnyState, receipt: Receipt, cost: u32) -> Option<Receipt> {
        with_algorithm!(self, algorithm => receipt_in(algorithm, state, receipt, cost))
    }

    /// What a counter of this quota holds at `now` beyond `base`, its earlier state, which may be
    /// nothing; none if it holds no more.
    pub fn beyond(
        &self,
        state: &AnyState,
        base: Option<&AnyState>,
        now: Timestamp,
    ) -> Option<AnyState> {
        with_algorithm!(self, algorithm => beyond(algorithm, state, base, now))
    }
}

fn standing_of<A: Algorithm<State: StateVariant>>(
    algorithm: &A,
    state: &AnyState,
    now: Timestamp,
) -> Option<Standing> {
    Some(algorithm.standing(StateVariant::from_any(state)?, now))
}

fn receipt_in<A: Algorithm<State: StateVariant>>(
    algorithm: &A,
    state: &AnyState,
    receipt: Receipt,
    cost: u32,
) -> Option<Receipt> {
    algorithm.receipt_in(StateVariant::from_any(state)?, receipt, cost)
}

fn beyond<A: Algorithm<State: StateVariant>>(
    algorithm: &A,
    state: &AnyState,
    base: Option<&AnyState>,
    now: Timestamp,
) -> Option<AnyState> {
    let nothing = A::State::default();
    let base = base.and_then(StateVariant::from_any).unwrap_or(&nothing);
    Some(algorithm.beyond(StateVariant::from_any(state)?, base, now)?.to_any())
}

#[cfg(test)]
mod tests;
