//! What every algorithm implements: pure functions of a state, a cost and an instant.

use std::{fmt, num::NonZeroU32, time::Duration};

use tollgate_clock::Timestamp;

use super::{
    align::Align,
    standing::{Retry, Standing},
    terms::Terms,
};

/// A way to count: pure functions of a state, a cost and an instant, and what others must know of
/// it.
///
/// These functions neither panic nor overflow, whatever their arguments. A clock that is behind the
/// state by no more than the [tolerated skew](super::skew::tolerated_skew) never moves a state
/// back: the state's own time counts as now. So clocks that differ by no more than that, taking
/// turns, count as one clock that never goes back.
pub trait Algorithm: Sized {
    /// What is stored for a key. The default is the state of a key that was never charged, and a
    /// state that is over decides as the default does.
    type State: State;

    /// Whether its state is made of leases. Only the holder of a lease can name it, so a store
    /// neither saves leases nor copies them to another store, and a response neither refunds nor
    /// reprices them.
    const HOLDS_LEASES: bool = false;

    /// Whether its state's [`Count`](State::Count) is a summary, which may count more than the
    /// state.
    const IS_SUMMARIZED: bool = false;

    /// Whether a denied request is denied until the instant to retry at, unless something is given
    /// back.
    const DENIES_UNTIL_RETRY: bool = false;

    /// Units that can be taken at once from an unused key. A higher cost is never admitted.
    fn capacity(&self) -> u32;

    /// For how long a unit counts at most, if the limit is never exceeded; [`Duration::MAX`] if it
    /// counts forever.
    fn longest(&self) -> Duration;

    /// The share of one of `instances` that decide each for itself, rounded up so that no caller is
    /// locked out. No number grows, so what was counted exactly still is.
    #[must_use]
    fn share(&self, instances: NonZeroU32) -> Self;

    /// Whether `cost` fits. A cost of zero fits unless a lowered limit is already exceeded.
    fn admits(&self, state: &Self::State, cost: u32, now: Timestamp) -> bool;

    /// Takes `cost`, which is not zero. It is taken even if it does not fit: the cost that a
    /// response reports must be counted.
    fn take(&self, state: &mut Self::State, cost: u32, now: Timestamp) -> Receipt;

    /// How the key stands; `retry` is [`Retry::Now`].
    fn standing(&self, state: &Self::State, now: Timestamp) -> Standing;

    /// When `cost`, which does not fit now, will fit.
    fn retry(&self, state: &Self::State, cost: u32, now: Timestamp) -> Retry;

    /// Updates the state when this limit denies `cost`. This is all that a denial writes. A state
    /// that is further ahead of the clock than the tolerated skew is corrected here: otherwise
    /// every read would correct it again, and the caller would stay blocked until the wrong instant
    /// comes. A strict bucket starts its interval over.
    fn on_denied(&self, state: &mut Self::State, cost: u32, now: Timestamp);

    /// Gives back up to `cost` units of the charge that `receipt` names: never into another window,
    /// and never so much that the state is better than without the charge.
    fn give_back(&self, state: &mut Self::State, receipt: Receipt, cost: u32, now: Timestamp);

    /// The latest instant that the state is known to have been at. Where time comes from clients,
    /// an earlier instant counts as this one: the state neither goes back nor is corrected, as it
    /// would be if the clock of this process had been turned back.
    fn mark(&self, state: &Self::State) -> Timestamp;

    /// Extends the lease that `receipt` names to its full time from `now`. An algorithm without
    /// leases has nothing to extend.
    fn renew(&self, _state: &mut Self::State, _receipt: Receipt, _now: Timestamp) {}

    /// What `state` holds at `now` beyond `base`, its earlier value; none if that is nothing.
    fn beyond(
        &self,
        state: &Self::State,
        base: &Self::State,
        now: Timestamp,
    ) -> Option<Self::State>;

    /// Adds what was taken elsewhere under the same limit, whether or not it fits. Each unit counts
    /// at least as long as it did there; units that no longer count are left out.
    fn add(&self, state: &mut Self::State, other: &Self::State, now: Timestamp);

    /// Merges `other`, which counts the same charges, into `state`; either may have missed some.
    /// The result is the greater of both, so that no charge is counted twice. Returns whether the
    /// state counts more units at present than before.
    fn join(&self, state: &mut Self::State, other: &Self::State, now: Timestamp) -> bool;

    /// Its plain form: so many units in a window, or at once; none: too much to count exactly.
    fn plain(units: u32, window: Duration) -> Option<Self>;

    /// What a policy says of it.
    fn terms(&self) -> Terms;

    /// Where windows begin and end; none: they have no fixed ends.
    fn align(&self) -> Option<&Align> {
        None
    }

    /// The time in which all that can be used at once comes back; none: a window.
    fn refill_time(&self) -> Option<Duration> {
        None
    }

    /// How long a lease lasts unless it is renewed; none: there are no leases.
    fn lease(&self) -> Option<Duration> {
        None
    }

    /// Whether every denial changes the counter, and so has to reach its store.
    fn writes_denials(&self) -> bool {
        false
    }

    /// The receipt of a charge on the [share](Algorithm::share) of one of `instances`, as it holds
    /// from `now` on for a counter of this limit that the charge was added to.
    fn receipt_of_share(
        &self,
        receipt: Receipt,
        _instances: NonZeroU32,
        _now: Timestamp,
    ) -> Receipt {
        receipt
    }

    /// The receipt by which `state` gives back `cost` units of a charge that was made on another
    /// counter and [added](Algorithm::add) to this one, or merged with it; none if they cannot be
    /// told from later charges.
    fn receipt_in(&self, _state: &Self::State, receipt: Receipt, _cost: u32) -> Option<Receipt> {
        Some(receipt)
    }

    /// When `cost`, which does not fit a counter with this standing, will fit. Not always exact:
    /// for a cost of several units it is the end of the window.
    fn foresee(&self, standing: &Standing, cost: u32, _now: Timestamp) -> Retry {
        match cost {
            _ if cost > standing.limit => Retry::Never,
            1 if standing.used <= standing.limit => Retry::At(standing.next),
            _ => Retry::At(standing.reset),
        }
    }

    /// A receipt for units of the window that is open at `now`, of any charge; none: it knows each
    /// charge apart. `standing` is that of the counter, and `cost` is what will be given back.
    fn open_receipt(&self, _standing: &Standing, _cost: u32, _now: Timestamp) -> Option<Receipt> {
        None
    }
}

/// What is stored for a key.
pub trait State: Default + Clone + PartialEq {
    /// What it holds, in a form that every store can read: itself, or a summary of it.
    type Count: Clone + fmt::Debug + PartialEq + Eq;

    /// Whether it holds memory besides its own.
    const HOLDS_MEMORY: bool = false;

    /// Bytes of memory that it holds besides its own.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Whether it may be forgotten: it decides as the default does from `now` on.
    fn is_over(&self, now: Timestamp) -> bool;

    /// What it holds.
    fn count(&self) -> Self::Count;

    /// The state that holds this; none for leases, which only their holders can name.
    fn of_count(count: &Self::Count) -> Option<Self>;

    /// The share of one of `instances` among which a count is divided, rounded up. It ends when the
    /// whole does.
    fn share_of(count: &Self::Count, instances: NonZeroU32) -> Self::Count;

    /// When the newest of the charges was made that a count is a summary of; none if it is the
    /// whole.
    fn summarized_at(_count: &Self::Count) -> Option<Timestamp> {
        None
    }

    /// Appends its form in a snapshot: integers in little-endian order.
    fn encode(&self, bytes: &mut Vec<u8>);

    /// Reads a state from the front of `bytes`; none if there is no valid state.
    fn decode(bytes: &mut Bytes<'_>) -> Option<Self>;
}

/// What a later [`Algorithm::give_back`] needs to know of a charge. Each algorithm gives the fields
/// its own meaning: the end of a window, the number of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// An instant.
    pub at: Timestamp,
    /// A number.
    pub number: u64,
}

/// The rest of a snapshot.
pub struct Bytes<'b>(pub &'b [u8]);

impl Bytes<'_> {
    /// The next four bytes as a number.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes as a number.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }
}
