//! The table of algorithms: the name of each in policies, its number in stored forms, its state.
//!
//! What differs from algorithm to algorithm, each says in its own file, as
//! [`Algorithm`](super::Algorithm) has it. Whatever must list them all is made from the table.
//!
//! A name is part of every counter's key and a number is part of Redis calls and of snapshots, so
//! neither may change once it is released. A new algorithm gets the next number.

use std::num::NonZeroU32;

use tollgate_clock::Timestamp;
use tollgate_keyword::Keyword;

use super::{
    algorithm::{Algorithm, State},
    concurrency::{Concurrency, Leases},
    fixed_window::{FixedWindow, Window},
    gcra::{Gcra, Level},
    sliding_log::{Log, SlidingLog},
    sliding_window::{SlidingWindow, Windows},
    token_bucket::{Bucket, TokenBucket},
};

/// Calls a macro with some input and the table behind it. A row has what the algorithm is, its
/// type, its number, its name and the type of its states.
#[macro_export]
macro_rules! algorithms {
    ([$($then:tt)+] $($input:tt)*) => {
        $($then)+! {
            $($input)*
            /// A number of units in a window with a stored end.
            FixedWindow = 1, fixed_window, Window;
            /// A number of units in the current window and the weighted one before it.
            SlidingWindow = 2, sliding_window, Windows;
            /// A number of units in the time just past, exactly.
            SlidingLog = 3, sliding_log, Log;
            /// A bucket that is refilled at intervals.
            TokenBucket = 4, token_bucket, Bucket;
            /// A meter that drains continuously.
            Gcra = 5, gcra, Level;
            /// A number of requests at once.
            Concurrency = 6, concurrency, Leases;
        }
    };
}

/// Evaluates an expression with the algorithm of a [`Quota`].
#[macro_export]
macro_rules! with_algorithm {
    (@ $quota:expr, $own:ident, $body:expr;
        $($(#[$doc:meta])* $algorithm:ident = $number:literal, $name:ident, $state:ident;)*
    ) => {
        match $quota {
            $($crate::Quota::$algorithm($own) => $body,)*
        }
    };
    ($quota:expr, $own:ident => $body:expr) => {
        $crate::algorithms! { [$crate::with_algorithm] @ $quota, $own, $body; }
    };
}

/// Evaluates an expression with the type of an [`AlgorithmKind`]'s algorithm.
#[macro_export]
macro_rules! with_kind {
    (@ $kind:expr, $own:ident, $body:expr;
        $($(#[$doc:meta])* $algorithm:ident = $number:literal, $name:ident, $state:ident;)*
    ) => {
        match $kind {
            $($crate::AlgorithmKind::$algorithm => {
                type $own = $crate::$algorithm;
                $body
            })*
        }
    };
    ($kind:expr, $own:ident => $body:expr) => {
        $crate::algorithms! { [$crate::with_kind] @ $kind, $own, $body; }
    };
}

macro_rules! enums {
    ($($(#[$doc:meta])* $algorithm:ident = $number:literal, $name:ident, $state:ident;)*) => {
        /// Which algorithm a quota is counted by.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum AlgorithmKind {
            $($(#[$doc])* $algorithm,)*
        }

        /// How much a caller may use, and how that is counted: the parameters of one algorithm.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Quota {
            $($(#[$doc])* $algorithm($algorithm),)*
        }

        /// The state of a counter of any algorithm.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum AnyState {
            $($(#[$doc])* $algorithm($state),)*
        }

        /// What a counter holds, in a form that every store can read: to copy it from one store to
        /// another, and to continue from when a store is out of reach.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Count {
            $($(#[$doc])* $algorithm(<$state as State>::Count),)*
        }

        impl Count {
            /// The state that holds this; none for leases.
            pub fn state(&self) -> Option<AnyState> {
                match self {
                    $(Count::$algorithm(count) => {
                        Some(AnyState::$algorithm($state::of_count(count)?))
                    })*
                }
            }

            /// As [`State::summarized_at`] says.
            pub fn summarized_at(&self) -> Option<Timestamp> {
                match self {
                    $(Count::$algorithm(count) => $state::summarized_at(count),)*
                }
            }

            /// As [`State::share_of`] says.
            #[must_use]
            pub fn share(&self, instances: NonZeroU32) -> Count {
                match self {
                    $(Count::$algorithm(count) => {
                        Count::$algorithm($state::share_of(count, instances))
                    })*
                }
            }
        }

        impl AlgorithmKind {
            /// All algorithms, in the order of their numbers.
            pub const ALL: [AlgorithmKind; [$($number),*].len()] =
                [$(AlgorithmKind::$algorithm),*];

            /// The algorithm with this number.
            pub const fn from_number(number: u8) -> Option<AlgorithmKind> {
                match number {
                    $($number => Some(AlgorithmKind::$algorithm),)*
                    _ => None,
                }
            }

            /// Its number in Redis scripts and in snapshots. The first is 1, and none is left out.
            pub const fn number(self) -> u8 {
                match self {
                    $(AlgorithmKind::$algorithm => $number,)*
                }
            }
        }

        impl Keyword for AlgorithmKind {
            const KEYWORDS: &'static [(&'static str, AlgorithmKind)] =
                &[$((stringify!($name), AlgorithmKind::$algorithm)),*];

            fn keyword(self) -> &'static str {
                match self {
                    $(AlgorithmKind::$algorithm => stringify!($name),)*
                }
            }
        }

        impl Quota {
            /// Which algorithm it is of.
            pub fn kind(&self) -> AlgorithmKind {
                match self {
                    $(Quota::$algorithm(_) => AlgorithmKind::$algorithm,)*
                }
            }
        }

        $(impl From<$algorithm> for Quota {
            fn from(own: $algorithm) -> Quota {
                Quota::$algorithm(own)
            }
        })*

        $(impl StateVariant for $state {
            fn to_any(&self) -> AnyState {
                AnyState::$algorithm(Clone::clone(self))
            }

            fn to_count(&self) -> Count {
                Count::$algorithm(self.count())
            }

            fn from_any(state: &AnyState) -> Option<&Self> {
                let AnyState::$algorithm(state) = state else { return None };
                Some(state)
            }
        })*
    };
}

algorithms! { [enums] }

/// A state that [`AnyState`] has a variant for.
pub trait StateVariant: State {
    /// Wraps the state.
    fn to_any(&self) -> AnyState;

    /// Wraps what the state holds.
    fn to_count(&self) -> Count;

    /// The wrapped state; none if it is another algorithm's.
    fn from_any(state: &AnyState) -> Option<&Self>;
}

// The set of a script's algorithms is a bit mask of their numbers.
const _: () = {
    let mut rest: &[AlgorithmKind] = &AlgorithmKind::ALL;
    let mut number = 1;
    while let [kind, others @ ..] = rest {
        assert!(kind.number() == number, "numbers have no gaps");
        rest = others;
        number += 1;
    }
};

impl Count {
    /// Makes `state` hold this. The state of another algorithm does not change.
    pub fn store_in<S: StateVariant>(&self, state: &mut S) {
        if let Some(own) = self.state().as_ref().and_then(S::from_any) {
            state.clone_from(own);
        }
    }
}

impl AlgorithmKind {
    /// Its name in policies and in the keys of counters.
    pub fn name(self) -> &'static str {
        self.keyword()
    }

    /// As [`Algorithm::IS_SUMMARIZED`] says.
    pub const fn is_summarized(self) -> bool {
        with_kind!(self, Own => Own::IS_SUMMARIZED)
    }

    /// As [`Algorithm::HOLDS_LEASES`] says.
    pub const fn holds_leases(self) -> bool {
        with_kind!(self, Own => Own::HOLDS_LEASES)
    }
}

#[cfg(test)]
mod tests;
