//! What a counter holds beyond what it held earlier: units that were taken where the store could not
//! see them, and that are added to its counter when it can.
//!
//! While a store is away, each process decides by its share of the limit, and goes on from its share
//! of what the store last said. What it takes then is owed: the difference between the two states of
//! its own counter, at the instant at which the store has it. A share drains, or is refilled, at its
//! own part of the rate, so that all differences and what the store has are together no less than
//! one counter that had seen everything.

use super::{Algorithm, Bucket, Leases, Level, Log, Quota, State, Window, Windows, with_algorithm};
use crate::clock::Timestamp;

/// The state of a counter, whichever its algorithm is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnyState {
    /// Of a fixed window.
    FixedWindow(Window),
    /// Of a sliding window.
    SlidingWindow(Windows),
    /// Of a sliding log.
    SlidingLog(Log),
    /// Of a token bucket.
    TokenBucket(Bucket),
    /// Of a meter.
    Gcra(Level),
    /// Of leases.
    Concurrency(Leases),
}

/// A state that is a part of [`AnyState`].
pub trait Part: State {
    /// It, as any state.
    fn to_any(&self) -> AnyState;

    /// The state itself; none if it is another algorithm's.
    fn of_any(state: &AnyState) -> Option<&Self>;
}

macro_rules! part {
    ($($state:ident as $algorithm:ident),*) => {
        $(impl Part for $state {
            fn to_any(&self) -> AnyState {
                AnyState::$algorithm(Clone::clone(self))
            }

            fn of_any(state: &AnyState) -> Option<&Self> {
                match state {
                    AnyState::$algorithm(state) => Some(state),
                    _ => None,
                }
            }
        })*
    };
}

part! {
    Window as FixedWindow,
    Windows as SlidingWindow,
    Log as SlidingLog,
    Bucket as TokenBucket,
    Level as Gcra,
    Leases as Concurrency
}

impl Quota {
    /// What a counter of this quota holds at `now` beyond what it was earlier, which may be nothing;
    /// none if it holds no more.
    pub fn beyond(
        &self,
        state: &AnyState,
        base: Option<&AnyState>,
        now: Timestamp,
    ) -> Option<AnyState> {
        with_algorithm!(self, algorithm => beyond(algorithm, state, base, now))
    }
}

fn beyond<A: Algorithm<State: Part>>(
    algorithm: &A,
    state: &AnyState,
    base: Option<&AnyState>,
    now: Timestamp,
) -> Option<AnyState> {
    let nothing = A::State::default();
    let base = base.and_then(Part::of_any).unwrap_or(&nothing);
    Some(algorithm.beyond(Part::of_any(state)?, base, now)?.to_any())
}

#[cfg(test)]
mod tests;
