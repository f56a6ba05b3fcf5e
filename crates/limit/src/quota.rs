//! A quota: the parameters of one algorithm.

use std::{num::NonZeroU32, time::Duration};

use tollgate_clock::Timestamp;

use super::{
    algorithm::{Algorithm, Receipt},
    concurrency::Concurrency,
    fixed_window::FixedWindow,
    gcra::Gcra,
    kind::AlgorithmKind,
    sliding_log::SlidingLog,
    sliding_window::SlidingWindow,
    standing::Standing,
    token_bucket::TokenBucket,
};

/// How much a caller may use, and how that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quota {
    /// See [`AlgorithmKind::FixedWindow`].
    FixedWindow(FixedWindow),
    /// See [`AlgorithmKind::SlidingWindow`].
    SlidingWindow(SlidingWindow),
    /// See [`AlgorithmKind::SlidingLog`].
    SlidingLog(SlidingLog),
    /// See [`AlgorithmKind::TokenBucket`].
    TokenBucket(TokenBucket),
    /// See [`AlgorithmKind::Gcra`].
    Gcra(Gcra),
    /// See [`AlgorithmKind::Concurrency`].
    Concurrency(Concurrency),
}

/// Evaluates an expression with the algorithm of a [`Quota`].
#[macro_export]
macro_rules! with_algorithm {
    ($quota:expr, $algorithm:ident => $body:expr) => {
        match $quota {
            $crate::Quota::FixedWindow($algorithm) => $body,
            $crate::Quota::SlidingWindow($algorithm) => $body,
            $crate::Quota::SlidingLog($algorithm) => $body,
            $crate::Quota::TokenBucket($algorithm) => $body,
            $crate::Quota::Gcra($algorithm) => $body,
            $crate::Quota::Concurrency($algorithm) => $body,
        }
    };
}

impl Quota {
    /// Which algorithm it is of.
    pub fn kind(&self) -> AlgorithmKind {
        match self {
            Quota::FixedWindow(_) => AlgorithmKind::FixedWindow,
            Quota::SlidingWindow(_) => AlgorithmKind::SlidingWindow,
            Quota::SlidingLog(_) => AlgorithmKind::SlidingLog,
            Quota::TokenBucket(_) => AlgorithmKind::TokenBucket,
            Quota::Gcra(_) => AlgorithmKind::Gcra,
            Quota::Concurrency(_) => AlgorithmKind::Concurrency,
        }
    }

    /// A receipt for units of the window that is open at `now`, whoever took them; none: this
    /// algorithm knows each charge apart. `standing` is that of the counter, and `cost` what is to be
    /// given back.
    pub fn open_receipt(&self, standing: &Standing, cost: u32, now: Timestamp) -> Option<Receipt> {
        match self {
            Quota::FixedWindow(_) | Quota::Gcra(_) => {
                Some(Receipt { at: standing.reset, number: 0 })
            }
            Quota::SlidingWindow(algorithm) => Some(algorithm.open_receipt(now)),
            Quota::TokenBucket(_) => Some(Receipt { at: now, number: cost.into() }),
            Quota::SlidingLog(_) | Quota::Concurrency(_) => None,
        }
    }

    /// Whether its counters are made of leases, as in [`AlgorithmKind::holds_leases`].
    pub fn holds_leases(&self) -> bool {
        self.kind().holds_leases()
    }

    /// Units that can be taken at once from an unused key. A higher cost is never admitted.
    pub fn capacity(&self) -> u32 {
        with_algorithm!(self, algorithm => algorithm.capacity())
    }

    /// For how long a unit counts at most, as in [`Algorithm::longest`].
    pub fn longest(&self) -> Duration {
        with_algorithm!(self, algorithm => algorithm.longest())
    }

    /// The share of one of `instances` that decide each for itself, as in [`Algorithm::share`].
    #[must_use]
    pub fn share(&self, instances: NonZeroU32) -> Quota {
        match self {
            Quota::FixedWindow(quota) => Quota::FixedWindow(quota.share(instances)),
            Quota::SlidingWindow(quota) => Quota::SlidingWindow(quota.share(instances)),
            Quota::SlidingLog(quota) => Quota::SlidingLog(quota.share(instances)),
            Quota::TokenBucket(quota) => Quota::TokenBucket(quota.share(instances)),
            Quota::Gcra(quota) => Quota::Gcra(quota.share(instances)),
            Quota::Concurrency(quota) => Quota::Concurrency(quota.share(instances)),
        }
    }

    /// How a counter that was never charged stands at `now`.
    pub fn standing_of_unused(&self, now: Timestamp) -> Standing {
        with_algorithm!(self, algorithm => algorithm.standing(&Default::default(), now))
    }
}
