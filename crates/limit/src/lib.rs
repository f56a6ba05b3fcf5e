//! Limits as pure functions of a state, a cost and an instant.
//!
//! Each algorithm has a file here and implements [`Algorithm`]: it decides whether a state `admits`
//! a cost, `take`s it, reports the `standing`, and can `give_back`. A store calls `admits` for
//! every limit of a request, and `take` only if all of them admit: that makes several limits all or
//! nothing, and a denied request free.
//!
//! States hold what was used, never what is left, so that a changed rate applies to them at once.
//!
//! The table of algorithms is in `kind`. To add one, add a row there and follow the compiler.
//!
//! Nothing here knows a request, a route or a store, or asks for the time.
//!
//! The types to know first:
//!
//! - [`Quota`]: how much a caller may use, and how that is counted.
//! - [`AnyState`]: the state of a counter of any algorithm.
//! - [`Charge`]: one limit, one key, one cost.
//! - [`Decision`]: the verdict and how each limit stands, from one read.
//! - [`Standing`]: how a limit stands for one key.

mod algorithm;
mod align;
mod any_state;
mod calendar;
mod charge;
mod concurrency;
mod decision;
mod fixed_window;
mod gcra;
mod hashing;
mod key;
mod kind;
mod quota;
mod skew;
mod sliding_log;
mod sliding_window;
mod standing;
mod terms;
#[cfg(test)]
mod tests;
mod token_bucket;
mod when_full;

#[cfg(test)]
use self::tests::suite;

pub use self::{
    algorithm::{Algorithm, Bytes, Receipt, State},
    align::Align,
    calendar::{Calendar, CalendarUnit},
    charge::{Charge, Fallback, Later, Origin, OwnedCharge, Scope, Stance},
    concurrency::{Concurrency, Leases},
    decision::{DecidedBy, Decision, Outcome, Outcomes, Verdict},
    fixed_window::{FixedWindow, Window},
    gcra::{Gcra, Level},
    hashing::{Hashing, KeptSecret, SecretStatus},
    key::{Key, KeyHasher, LimitId},
    kind::{AlgorithmKind, AnyState, Count, Quota, StateVariant},
    skew::{MAX_SKEW, tolerated_skew},
    sliding_log::{Entry, Log, LogSummary, SlidingLog, Tail},
    sliding_window::{SlidingWindow, Windows},
    standing::{Retry, Standing},
    terms::{Detail, Terms},
    token_bucket::{Bucket, TokenBucket},
    when_full::WhenFull,
};
