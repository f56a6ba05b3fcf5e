//! What a counter holds, in a form that every store can read: to copy it from one store to another,
//! and to continue from when a store is out of reach.

use std::num::NonZeroU32;

use tollgate_clock::Timestamp;

use super::{
    algorithm::State, concurrency::Leases, fixed_window::Window, gcra::Level, kind::AnyState,
    sliding_log::Log, sliding_window::Windows, token_bucket::Bucket,
};

/// What a counter holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Count {
    /// The whole window.
    FixedWindow(Window),
    /// Both windows.
    SlidingWindow(Windows),
    /// A summary: all charges as if they had been made with the newest, so that nothing is
    /// forgotten too early.
    SlidingLog {
        /// Units that may count.
        used: u32,
        /// When the newest of them was charged.
        newest: Timestamp,
        /// When all of them stop counting.
        expires: Timestamp,
    },
    /// The whole bucket.
    TokenBucket(Bucket),
    /// The whole level.
    Gcra(Level),
    /// How many leases there are. Only their holders can name them, so they cannot be copied.
    Concurrency {
        /// Leases.
        used: u32,
    },
}

/// A state that can be made a [`Count`] and back.
pub trait Countable: State {
    /// What the state holds.
    fn count(&self) -> Count;

    /// The state that holds this; none if it is the count of another algorithm, or of leases.
    fn of(count: &Count) -> Option<Self>;
}

impl Count {
    /// Makes `state` hold this. The state of another algorithm does not change.
    pub fn store_in<S: Countable>(&self, state: &mut S) {
        if let Some(own) = S::of(self) {
            *state = own;
        }
    }

    /// The state that holds this; none for leases.
    pub fn state(&self) -> Option<AnyState> {
        match self {
            Count::FixedWindow(window) => Some(window.to_any()),
            Count::SlidingWindow(windows) => Some(windows.to_any()),
            Count::SlidingLog { .. } => Log::of(self).map(|log| log.to_any()),
            Count::TokenBucket(bucket) => Some(bucket.to_any()),
            Count::Gcra(level) => Some(level.to_any()),
            Count::Concurrency { .. } => None,
        }
    }

    /// When the newest of the charges was made that this is a summary of; none if it is the whole.
    pub fn summarized_at(&self) -> Option<Timestamp> {
        match self {
            Count::SlidingLog { newest, .. } => Some(*newest),
            Count::FixedWindow(_)
            | Count::SlidingWindow(_)
            | Count::TokenBucket(_)
            | Count::Gcra(_)
            | Count::Concurrency { .. } => None,
        }
    }

    /// The share of one of `instances` among which it is divided, rounded up. It ends when the
    /// whole does.
    #[must_use]
    pub fn share(&self, instances: NonZeroU32) -> Count {
        let share = |units: u32| units.div_ceil(instances.get());
        match self {
            Count::FixedWindow(window) => {
                Count::FixedWindow(Window { used: share(window.used), ..*window })
            }
            Count::SlidingWindow(windows) => Count::SlidingWindow(Windows {
                current: share(windows.current),
                previous: share(windows.previous),
                ..*windows
            }),
            Count::SlidingLog { used, newest, expires } => {
                Count::SlidingLog { used: share(*used), newest: *newest, expires: *expires }
            }
            Count::TokenBucket(bucket) => {
                Count::TokenBucket(Bucket { deficit: share(bucket.deficit), ..*bucket })
            }
            Count::Gcra(level) => {
                let share = level.level.div_ceil(instances.get().into());
                Count::Gcra(Level { level: share, ..*level })
            }
            Count::Concurrency { used } => Count::Concurrency { used: share(*used) },
        }
    }
}

impl<S: Countable> From<&S> for Count {
    fn from(state: &S) -> Count {
        state.count()
    }
}

/// Makes a state that is its own count [`Countable`].
macro_rules! countable {
    ($($state:ident as $algorithm:ident),*) => {
        $(impl Countable for $state {
            fn count(&self) -> Count {
                Count::$algorithm(*self)
            }

            fn of(count: &Count) -> Option<Self> {
                let Count::$algorithm(state) = count else { return None };
                Some(*state)
            }
        })*
    };
}

countable! {
    Window as FixedWindow, Windows as SlidingWindow, Bucket as TokenBucket, Level as Gcra
}

impl Countable for Log {
    fn count(&self) -> Count {
        let (used, newest, expires) = self.summary();
        Count::SlidingLog { used, newest, expires }
    }

    fn of(count: &Count) -> Option<Self> {
        let Count::SlidingLog { used, newest, expires } = count else { return None };
        Some(Log::of_one(*used, *newest, *expires))
    }
}

impl Countable for Leases {
    fn count(&self) -> Count {
        Count::Concurrency { used: self.held() }
    }

    fn of(_count: &Count) -> Option<Self> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        Algorithm, Align, Concurrency, FixedWindow, Gcra, Quota, SlidingLog, SlidingWindow,
        TokenBucket,
    };

    const HOUR: Duration = Duration::from_secs(3600);
    const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);

    fn four() -> NonZeroU32 {
        NonZeroU32::new(4).unwrap()
    }

    /// Takes five units of `whole`. Returns how many of them a quarter uses of `part`, and its
    /// capacity.
    fn quarter<A: Algorithm<State: Countable>>(whole: &A, part: &A) -> [u32; 2] {
        let mut state = A::State::default();
        let mut share = A::State::default();
        whole.take(&mut state, 5, NOW);
        let count = Count::from(&state);
        count.share(four()).store_in(&mut share);
        assert_eq!(end(&count.share(four())), end(&count));
        [part.standing(&share, NOW).used, part.capacity()]
    }

    fn end(count: &Count) -> Timestamp {
        match count {
            Count::FixedWindow(window) => window.reset,
            Count::SlidingWindow(windows) => windows.expires,
            Count::SlidingLog { expires, .. } => *expires,
            Count::TokenBucket(bucket) => bucket.full,
            Count::Gcra(level) => level.full,
            Count::Concurrency { .. } => NOW,
        }
    }

    #[test]
    fn shares_are_rounded_up_and_end_when_the_whole_does() {
        let bucket = TokenBucket { capacity: 10, refill: 1, interval: HOUR, strict: false };
        for quota in [
            Quota::FixedWindow(FixedWindow { limit: 10, align: Align::FirstRequest(HOUR) }),
            Quota::SlidingWindow(SlidingWindow::new(10, HOUR).unwrap()),
            Quota::SlidingLog(SlidingLog { limit: 10, window: HOUR }),
            Quota::TokenBucket(bucket),
            Quota::Gcra(Gcra::new(10, HOUR, 10, 10).unwrap()),
        ] {
            let found = match (&quota, &quota.share(four())) {
                (Quota::FixedWindow(whole), Quota::FixedWindow(part)) => quarter(whole, part),
                (Quota::SlidingWindow(whole), Quota::SlidingWindow(part)) => quarter(whole, part),
                (Quota::SlidingLog(whole), Quota::SlidingLog(part)) => quarter(whole, part),
                (Quota::TokenBucket(whole), Quota::TokenBucket(part)) => quarter(whole, part),
                (Quota::Gcra(whole), Quota::Gcra(part)) => quarter(whole, part),
                _ => unreachable!("a share is of the same algorithm"),
            };
            assert_eq!(found, [2, 3], "{quota:?}");
        }
    }

    #[test]
    fn no_caller_is_locked_out_of_a_share() {
        let many = NonZeroU32::MAX;
        let quota = Quota::Concurrency(Concurrency { limit: 7, lease: HOUR, retry_after: HOUR });
        assert_eq!(quota.share(many).capacity(), 1);
        let quota = Quota::Gcra(Gcra::new(7, HOUR, 20, 1).unwrap());
        assert_eq!(quota.share(many).capacity(), 1);
    }

    #[test]
    fn count_of_another_algorithm_changes_nothing() {
        let mut window = Window { used: 3, reset: NOW };
        Count::Gcra(Level::default()).store_in(&mut window);
        assert_eq!(window, Window { used: 3, reset: NOW });
        let mut leases = Leases::default();
        Count::Concurrency { used: 3 }.store_in(&mut leases);
        assert_eq!(leases, Leases::default());
    }

    proptest! {
        #[test]
        fn prop_all_shares_together_hold_no_less_than_the_whole(used: u32, instances: u32) {
            let instances = NonZeroU32::new(instances.max(1)).unwrap();
            let window = Window { used, reset: NOW };
            let Count::FixedWindow(part) = Count::from(&window).share(instances) else {
                unreachable!()
            };
            let all = u64::from(part.used) * u64::from(instances.get());
            prop_assert!(all >= used.into() && part.used <= used);
            prop_assert_eq!(part.reset, window.reset);
        }

        #[test]
        fn prop_log_of_a_count_frees_nothing_early(
            costs in prop::collection::vec((0..2_000_000_u64, 1..4_u32), 1..8), wait in 0..6_u64,
        ) {
            let quota = SlidingLog { limit: 9, window: Duration::from_secs(3) };
            let mut log = Log::default();
            let mut now = NOW;
            for (advance, cost) in costs {
                now = now + Duration::from_micros(advance);
                if quota.admits(&log, cost, now) {
                    quota.take(&mut log, cost, now);
                }
            }
            let copy = Log::of(&Count::from(&log)).unwrap();
            let later = now + Duration::from_secs(wait);
            let [original, copied] = [&log, &copy].map(|log| quota.standing(log, later));
            prop_assert!(copied.used >= original.used);
            prop_assert!(copied.reset >= original.reset);
            prop_assert_eq!(copy.is_over(later), log.is_over(later));
        }
    }
}
