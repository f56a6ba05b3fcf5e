//! What is to happen at most once in a while.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::Timestamp;

/// Lets something happen at most once in a while, whichever thread asks.
#[derive(Debug)]
pub struct Throttle {
    pause: Duration,
    /// When it last happened, in microseconds since the epoch; zero: never.
    last: AtomicU64,
}

impl Throttle {
    /// One that lets something happen every `pause`.
    pub const fn new(pause: Duration) -> Self {
        Throttle { pause, last: AtomicU64::new(0) }
    }

    /// Whether it may happen again. To ask costs one read.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.is_due_after(self.last.load(Ordering::Relaxed), now)
    }

    /// Whether it happens now: of concurrent callers, one gets true.
    pub fn take(&self, now: Timestamp) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        let order = Ordering::Relaxed;
        let now_micros = now.as_micros();
        self.is_due_after(last, now)
            && self.last.compare_exchange(last, now_micros, order, order).is_ok()
    }

    /// A clock that was turned back does not make it wait for the old time.
    fn is_due_after(&self, last: u64, now: Timestamp) -> bool {
        last == 0 || u128::from(now.as_micros().abs_diff(last)) >= self.pause.as_micros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn it_happens_once_in_each_pause() {
        let throttle = Throttle::new(HOUR);
        for (seconds, expected) in [(5, true), (5, false), (3604, false), (3605, true), (1, true)] {
            let now = Timestamp::from_secs(seconds);
            assert_eq!(throttle.is_due(now), expected, "after {seconds} s");
            assert_eq!(throttle.take(now), expected, "after {seconds} s");
        }
    }

    #[test]
    fn of_many_threads_one_takes_it() {
        let throttle = Throttle::new(HOUR);
        let now = Timestamp::from_secs(1);
        let taken = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..8).map(|_| scope.spawn(|| throttle.take(now))).collect();
            takers.into_iter().filter_map(|taker| taker.join().unwrap().then_some(())).count()
        });
        assert_eq!(taken, 1);
    }
}
