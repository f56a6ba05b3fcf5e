//! What a counter holds, in a form that every store knows: to carry it from one store to another,
//! and to go on from when a store has gone away.

use std::num::NonZeroU32;

use super::{
    Algorithm, AnyState, Bucket, FixedWindow, Leases, Level, Log, Part, Quota, SlidingLog,
    Standing, State, TokenBucket, Window, Windows, concurrency::Concurrency, with_algorithm,
};
use crate::clock::Timestamp;

/// What a counter holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Count {
    /// The whole of it.
    FixedWindow(Window),
    /// The whole of it.
    SlidingWindow(Windows),
    /// Not each charge, but all of them as if they had been made with the newest: nothing is
    /// forgotten too early.
    SlidingLog {
        /// Units that may count.
        used: u32,
        /// When the newest of them was charged.
        newest: Timestamp,
        /// When none counts any more.
        expires: Timestamp,
    },
    /// The whole of it.
    TokenBucket(Bucket),
    /// The whole of it.
    Gcra(Level),
    /// How many leases there are. Only who holds them knows which, so they cannot be carried over.
    Concurrency {
        /// Leases.
        used: u32,
    },
}

/// A state that can be made a [`Count`] and back.
pub trait Countable: State {
    /// What it holds.
    fn count(&self) -> Count;

    /// The state that holds this; none if it is the count of another algorithm.
    fn of(count: &Count) -> Option<Self>;
}

impl Count {
    /// Makes `state` hold this; one of another algorithm stays as it is.
    pub fn store_in<S: Countable>(&self, state: &mut S) {
        if let Some(counted) = S::of(self) {
            *state = counted;
        }
    }

    /// The state that holds this; none of leases, which only who holds them knows.
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

    /// The part of one of so many instances among which it is divided, rounded up. What it holds
    /// ends when it did.
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
                let part = level.level.div_ceil(instances.get().into());
                Count::Gcra(Level { level: part, ..*level })
            }
            Count::Concurrency { used } => Count::Concurrency { used: share(*used) },
        }
    }
}

fn standing_of<A: Algorithm<State: Part>>(
    algorithm: &A,
    state: &AnyState,
    now: Timestamp,
) -> Option<Standing> {
    Some(algorithm.standing(Part::of_any(state)?, now))
}

impl<S: Countable> From<&S> for Count {
    fn from(state: &S) -> Count {
        state.count()
    }
}

impl Quota {
    /// How a counter that holds this stands at `now`; none if it is the state of another algorithm.
    pub fn standing_of(&self, state: &AnyState, now: Timestamp) -> Option<Standing> {
        with_algorithm!(self, algorithm => standing_of(algorithm, state, now))
    }

    /// How a counter that was never charged stands at `now`.
    pub fn standing_of_unused(&self, now: Timestamp) -> Standing {
        with_algorithm!(self, algorithm => algorithm.standing(&Default::default(), now))
    }

    /// The part of one of so many instances that decide each for itself, rounded up: nobody is
    /// locked out. What can be counted exactly still can, for no number grows.
    #[must_use]
    pub fn share(&self, instances: NonZeroU32) -> Quota {
        let share = |units: u32| units.div_ceil(instances.get());
        match self.clone() {
            Quota::FixedWindow(quota) => {
                Quota::FixedWindow(FixedWindow { limit: share(quota.limit), ..quota })
            }
            Quota::SlidingWindow(mut quota) => {
                quota.limit = share(quota.limit);
                Quota::SlidingWindow(quota)
            }
            Quota::SlidingLog(quota) => {
                Quota::SlidingLog(SlidingLog { limit: share(quota.limit), ..quota })
            }
            Quota::TokenBucket(quota) => {
                let (capacity, refill) = (share(quota.capacity), share(quota.refill));
                Quota::TokenBucket(TokenBucket { capacity, refill, ..quota })
            }
            Quota::Gcra(mut quota) => {
                (quota.limit, quota.burst) = (share(quota.limit), share(quota.burst));
                Quota::Gcra(quota)
            }
            Quota::Concurrency(quota) => {
                Quota::Concurrency(Concurrency { limit: share(quota.limit), ..quota })
            }
        }
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
                match count {
                    Count::$algorithm(state) => Some(*state),
                    _ => None,
                }
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
        match count {
            Count::SlidingLog { used, newest, expires } => {
                Some(Log::of_one(*used, *newest, *expires))
            }
            _ => None,
        }
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
    use crate::limit::{Algorithm, Align, Gcra, SlidingWindow};

    const HOUR: Duration = Duration::from_secs(3600);
    const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);

    fn four() -> NonZeroU32 {
        NonZeroU32::new(4).unwrap()
    }

    /// Takes five units of `whole`, and tells what a quarter of that uses of `part` and may use.
    fn quarter<A: Algorithm<State: Countable>>(whole: &A, part: &A) -> [u32; 2] {
        let (mut state, mut share) = (A::State::default(), A::State::default());
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
    fn nobody_is_locked_out_of_a_share() {
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
            let (mut log, mut now) = (Log::default(), NOW);
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
