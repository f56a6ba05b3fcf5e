//! The table of algorithms: the name of each in policies and its number in stored forms, written
//! once, here.
//!
//! A name is part of every counter's key and a number is part of Redis calls and of snapshots, so
//! neither may change once it is released. A new algorithm gets the next number.

use tollgate_keyword::Keyword;

/// Makes [`AlgorithmKind`] of the table, so that none of its lists can miss an algorithm.
macro_rules! algorithm_kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal;)*) => {
        /// Which algorithm a quota is counted by.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum AlgorithmKind {
            $($(#[$doc])* $kind,)*
        }

        impl AlgorithmKind {
            /// All algorithms, in the order of their numbers.
            pub const ALL: [AlgorithmKind; [$($number),*].len()] = [$(AlgorithmKind::$kind),*];

            /// All algorithms with their names, in the same order.
            pub const BY_NAME: [(&'static str, AlgorithmKind); [$($number),*].len()] =
                [$(($name, AlgorithmKind::$kind)),*];

            /// Its name in policies and in the keys of counters.
            pub const fn name(self) -> &'static str {
                match self {
                    $(AlgorithmKind::$kind => $name,)*
                }
            }

            /// The algorithm with this number.
            pub const fn from_number(number: u8) -> Option<AlgorithmKind> {
                match number {
                    $($number => Some(AlgorithmKind::$kind),)*
                    _ => None,
                }
            }

            /// Its number in Redis scripts and in snapshots. The first is 1, and none is left out.
            pub const fn number(self) -> u8 {
                match self {
                    $(AlgorithmKind::$kind => $number,)*
                }
            }
        }
    };
}

impl Keyword for AlgorithmKind {
    const KEYWORDS: &'static [(&'static str, AlgorithmKind)] = &AlgorithmKind::BY_NAME;

    fn keyword(self) -> &'static str {
        self.name()
    }
}

algorithm_kinds! {
    /// A number of units in a window with a stored end.
    FixedWindow = 1, "fixed_window";
    /// A number of units in the current window and the weighted one before it.
    SlidingWindow = 2, "sliding_window";
    /// A number of units in the time just past, exactly.
    SlidingLog = 3, "sliding_log";
    /// A bucket that is refilled at intervals.
    TokenBucket = 4, "token_bucket";
    /// A meter that drains continuously.
    Gcra = 5, "gcra";
    /// A number of requests at once.
    Concurrency = 6, "concurrency";
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

impl AlgorithmKind {
    /// Whether its [`Count`](super::Count) is a summary, which may count more than the state does.
    pub const fn is_summarized(self) -> bool {
        match self {
            AlgorithmKind::SlidingLog => true,
            AlgorithmKind::FixedWindow
            | AlgorithmKind::SlidingWindow
            | AlgorithmKind::TokenBucket
            | AlgorithmKind::Gcra
            | AlgorithmKind::Concurrency => false,
        }
    }

    /// Whether its state is made of leases. Only the holder of a lease can name it, so a store
    /// neither saves leases nor copies them to another store, and a response neither refunds nor
    /// reprices them.
    pub const fn holds_leases(self) -> bool {
        match self {
            AlgorithmKind::FixedWindow
            | AlgorithmKind::SlidingWindow
            | AlgorithmKind::SlidingLog
            | AlgorithmKind::TokenBucket
            | AlgorithmKind::Gcra => false,
            AlgorithmKind::Concurrency => true,
        }
    }
}
