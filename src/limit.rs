//! What a limit decides, as pure functions of (state, cost, now).
//!
//! Each algorithm is a file below this one, and an [`Algorithm`]: it asks a state whether it
//! `admits` a cost, `take`s it, tells the `standing`, and can `give_back`. A store does the first
//! for every limit of a request and the second only if all of them admit: that is what makes
//! several limits all or nothing, and a denied request free.
//!
//! States hold what was used, never what is left, so that a changed rate applies to them at once.

mod calendar;
mod concurrency;
mod count;
mod fixed_window;
mod gcra;
mod hashing;
mod key;
mod owed;
mod sliding_log;
mod sliding_window;
#[cfg(test)]
mod suite;
mod token_bucket;
mod when_full;

use std::time::Duration;

use smallvec::SmallVec;

use crate::clock::Timestamp;

pub(crate) use self::sliding_log::{Entry, Tail};
pub use self::{
    calendar::{Calendar, CalendarUnit},
    concurrency::{Concurrency, Leases},
    count::{Count, Countable},
    fixed_window::{Align, FixedWindow, Window},
    gcra::{Gcra, Level},
    hashing::{Hashing, KeptSecret, Standing as SecretStanding},
    key::{Key, KeyHasher, LimitId},
    owed::{AnyState, Part},
    sliding_log::{Log, SlidingLog},
    sliding_window::{SlidingWindow, Windows},
    token_bucket::{Bucket, TokenBucket},
    when_full::WhenFull,
};

/// A way to count: pure functions of a state, a cost and an instant.
///
/// Whatever they are given, these functions neither panic nor overflow. A clock that is behind the
/// state by no more than [`borne`] never moves a state back: the state's own time counts as now. So
/// clocks that are no further apart, however many take turns, count as one that never goes back.
pub trait Algorithm {
    /// What is kept for a key. The default is that of a key that was never charged, and a state that
    /// is over decides as the default does.
    type State: State;

    /// Units that can be taken at once from an unused key; a cost above it is never admitted.
    fn capacity(&self) -> u32;

    /// Whether `cost` fits. A cost of zero fits unless a lowered limit is already exceeded.
    fn admits(&self, state: &Self::State, cost: u32, now: Timestamp) -> bool;

    /// Takes `cost`, which is not zero. It is taken even if it does not fit: what a response turned
    /// out to cost must be counted.
    fn take(&self, state: &mut Self::State, cost: u32, now: Timestamp) -> Receipt;

    /// How the key stands; `retry` is [`Retry::Now`].
    fn standing(&self, state: &Self::State, now: Timestamp) -> Standing;

    /// When `cost`, which does not fit now, will.
    fn retry(&self, state: &Self::State, cost: u32, now: Timestamp) -> Retry;

    /// What a denial of `cost` by this limit writes, for it writes nothing else: a state whose time
    /// is further ahead of the clock than is [`borne`] is healed, lest every look heal it anew and the
    /// caller stay blocked until the wrong time comes; and a strict bucket starts its wait over.
    fn penalize(&self, state: &mut Self::State, cost: u32, now: Timestamp);

    /// Gives back up to `cost` units of the charge that `receipt` is of: never into another window,
    /// and never so much that the state is better than if the charge had not happened.
    fn give_back(&self, state: &mut Self::State, receipt: Receipt, cost: u32, now: Timestamp);

    /// What `state` holds at `now` beyond `base`, which it was earlier; none if that is nothing.
    fn beyond(
        &self,
        state: &Self::State,
        base: &Self::State,
        now: Timestamp,
    ) -> Option<Self::State>;

    /// Adds what was taken elsewhere under the same limit, whether or not it fits. Nothing of it
    /// counts for a shorter time than it did there; what no longer counts is left out.
    fn add(&self, state: &mut Self::State, other: &Self::State, now: Timestamp);

    /// Has `state` count what `other` does too, where both are of the same charges and either may
    /// have missed some: the greater of both, for what is in both is not counted twice. Tells
    /// whether it counts more units of the present than it did.
    fn join(&self, state: &mut Self::State, other: &Self::State, now: Timestamp) -> bool;
}

/// What is kept for a key.
pub trait State: Default + Clone + PartialEq {
    /// Whether it may be forgotten: it decides as the default does from `now` on.
    fn is_over(&self, now: Timestamp) -> bool;

    /// Appends its form in a snapshot: integers in little-endian order.
    fn encode(&self, bytes: &mut Vec<u8>);

    /// Takes a state off the front of `bytes`; none if they are no state.
    fn decode(bytes: &mut Bytes<'_>) -> Option<Self>;
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

/// How much a caller may use, and how that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quota {
    /// So much in a window with a stored end.
    FixedWindow(FixedWindow),
    /// So much in the present window and the weighted one before.
    SlidingWindow(SlidingWindow),
    /// So much in the time just past, exactly.
    SlidingLog(SlidingLog),
    /// A bucket that is refilled at intervals.
    TokenBucket(TokenBucket),
    /// A meter that drains all the time.
    Gcra(Gcra),
    /// So many at once.
    Concurrency(Concurrency),
}

/// Evaluates an expression with the algorithm of a [`Quota`], whichever it is.
macro_rules! with_algorithm {
    ($quota:expr, $algorithm:ident => $body:expr) => {
        match $quota {
            Quota::FixedWindow($algorithm) => $body,
            Quota::SlidingWindow($algorithm) => $body,
            Quota::SlidingLog($algorithm) => $body,
            Quota::TokenBucket($algorithm) => $body,
            Quota::Gcra($algorithm) => $body,
            Quota::Concurrency($algorithm) => $body,
        }
    };
}
use with_algorithm;

impl Quota {
    /// Units that can be taken at once from an unused key; a cost above it is never admitted.
    pub fn capacity(&self) -> u32 {
        with_algorithm!(self, algorithm => algorithm.capacity())
    }

    /// For how long a unit counts at most where no more are used than there are; the longest time
    /// there is if it never ceases to.
    pub fn longest(&self) -> Duration {
        match self {
            Quota::FixedWindow(quota) => quota.align.max_length(),
            Quota::SlidingWindow(quota) => quota.window.saturating_mul(2),
            Quota::SlidingLog(quota) => quota.window,
            Quota::TokenBucket(quota) => match quota.refill {
                0 => Duration::MAX,
                refill => quota.interval.saturating_mul(quota.capacity.div_ceil(refill)),
            },
            Quota::Gcra(quota) => match quota.limit {
                0 => quota.window,
                limit => quota.window.saturating_mul(quota.burst.div_ceil(limit)),
            },
            Quota::Concurrency(quota) => quota.lease,
        }
    }
}

/// What a later [`Algorithm::give_back`] needs to know of a charge. What the two say is the
/// algorithm's own affair: the end of a window, the number of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// An instant.
    pub at: Timestamp,
    /// A number.
    pub number: u64,
}

/// One limit, one key, one cost: what a request asks of the store.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'p> {
    /// Which counter.
    pub key: Key,
    /// What the counter may reach.
    pub quota: &'p Quota,
    /// Units to take.
    pub cost: u32,
    /// What becomes of the request if they do not fit.
    pub stance: Stance,
    /// Whose counter it is.
    pub scope: Scope,
    /// Whose word it takes to have such a counter.
    pub origin: Origin,
    /// What becomes of it if the store does not answer.
    pub fallback: Fallback,
    /// What becomes of it if the process has no room for its counter.
    pub full: WhenFull,
}

impl<'p> Charge<'p> {
    /// A charge of `cost` on a verified caller's counter: enforced, and decided in the process if the
    /// store does not answer.
    pub fn new(key: Key, quota: &'p Quota, cost: u32) -> Self {
        Charge {
            key,
            quota,
            cost,
            stance: Stance::Enforce,
            scope: Scope::Caller,
            origin: Origin::Verified,
            fallback: Fallback::Local,
            full: WhenFull::default(),
        }
    }

    /// Whether a decision in its favour takes something.
    pub fn takes(&self) -> bool {
        self.cost > 0
    }
}

/// A [`Charge`] with a quota of its own, for what outlives the request.
#[derive(Clone, Debug)]
pub struct OwnedCharge {
    quota: Quota,
    key: Key,
    /// Units to take.
    pub cost: u32,
    stance: Stance,
    scope: Scope,
    origin: Origin,
    fallback: Fallback,
    full: WhenFull,
}

impl From<&Charge<'_>> for OwnedCharge {
    fn from(charge: &Charge<'_>) -> Self {
        let Charge { key, quota, cost, stance, scope, origin, fallback, full } = *charge;
        OwnedCharge { quota: quota.clone(), key, cost, stance, scope, origin, fallback, full }
    }
}

impl OwnedCharge {
    /// The charge.
    pub fn charge(&self) -> Charge<'_> {
        let &OwnedCharge { ref quota, key, cost, stance, scope, origin, fallback, full } = self;
        Charge { key, quota, cost, stance, scope, origin, fallback, full }
    }
}

/// What becomes of a request whose charge does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// It is denied, and nothing is charged.
    Enforce,
    /// It goes on, and only this charge is not taken.
    Observe,
}

/// Whose counter a charge is for. Charges that may deny, and that one store call cannot decide
/// together, are asked for in this order: those that are cheapest to deny and shared by the fewest
/// come first, so that little has to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// An address'.
    Address,
    /// A caller's.
    Caller,
    /// Many callers'.
    Shared,
}

/// Whose word it takes to have a counter: what costs a client less to make up comes later, and finds
/// less room in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// An issuer's, a certificate authority's, or the policy's: there are as many as they name.
    Verified,
    /// An IPv4 address: a client has few.
    Address,
    /// An IPv6 network: a client may have millions.
    Network,
    /// Anybody's: the client writes what it is counted by.
    Chosen {
        /// Keyed hash of who does: the verified caller, else the client's address.
        by: u128,
    },
}

/// What becomes of a charge if the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// It is decided in the process, from the last known state and at this process' share of the
    /// rate.
    #[default]
    Local,
    /// The request goes on as if there were no such limit.
    Open,
    /// The request is refused.
    Closed,
}

/// Whether all charges of a request were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All that are enforced fit, and were taken.
    Allow,
    /// One that is enforced did not fit, and none was taken.
    Deny,
}

/// What the store answers: the verdict and how each limit stands, from one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Taken or not.
    pub verdict: Verdict,
    /// One for each charge, in the order of the charges.
    pub outcomes: Outcomes,
    /// The instant at which it was made, by the clock of the store that made it.
    pub now: Timestamp,
}

/// Outcomes of the few charges of a request.
pub type Outcomes = SmallVec<[Outcome; 2]>;

impl Outcome {
    /// Whether the charge fits.
    pub fn fits(&self) -> bool {
        self.standing.retry == Retry::Now
    }
}

/// What became of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How its limit stands now, with what was taken. `retry` says whether the charge fits.
    pub standing: Standing,
    /// What was taken; none: nothing.
    pub receipt: Option<Receipt>,
    /// Who says so.
    pub decided_by: DecidedBy,
}

/// Who decided about a charge: whatever is put right about it later is put right there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecidedBy {
    /// The store.
    #[default]
    Current,
    /// The store that counters are being moved to.
    Next,
    /// The process, because the store did not answer.
    Local,
    /// Nobody, because the store did not answer or the process had no room for the counter, and the
    /// limit is open then. Its standing is not known.
    Nobody,
}

/// How a limit stands for one key, as response headers tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Units that can be used: a window, or at once.
    pub limit: u32,
    /// Units left now.
    pub remaining: u32,
    /// Units used.
    pub used: u32,
    /// When the limit is full again.
    pub reset: Timestamp,
    /// When one more unit can be taken.
    pub next: Timestamp,
    /// When the cost that was asked for can be taken.
    pub retry: Retry,
}

/// When a cost that was denied would be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// It was not denied.
    Now,
    /// From this instant on, if nothing else is charged.
    At(Timestamp),
    /// Not under this quota: the cost exceeds what can ever be left.
    Never,
}

/// How far a stored time may at least lie ahead of the clock before it is taken for a clock that
/// jumped back, and healed.
pub const MAX_SKEW: Duration = Duration::from_secs(5);

/// The most by which clocks differ that are not plainly wrong.
const ORDINARY_SKEW: Duration = Duration::from_secs(120);

/// How far a state of a limit with this window may lie ahead of the clock before it is healed.
///
/// To heal is to take the later time for one that never was. If it was another proxy's, who then goes
/// on from the earlier one, all that lies between counts as time gone by, each time that the two take
/// turns. Not to heal is to have the caller wait that much longer where a clock did jump back: for no
/// more than a window, then, and the time that any limit bears.
pub fn borne(window: Duration) -> Duration {
    MAX_SKEW + window.min(ORDINARY_SKEW)
}
