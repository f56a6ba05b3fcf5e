//! Servers that fail requests are left out for a while, twice as long each time, and come back with
//! one request that tries them.
//!
//! All that requests read of this is one word, and it is zero while all is well. Whether a server may
//! be left out at all, since others are left, is up to whoever asks.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::policy::Ejection;

/// What a server's failures have come to.
#[derive(Debug)]
pub(super) struct Record {
    /// What instants are counted from.
    origin: Instant,
    /// Failures since the last success.
    failures: AtomicU32,
    /// See [`State`].
    state: AtomicU64,
    /// How often it was left out, as far as that is held against it.
    times: AtomicU32,
    /// When it came back last, in milliseconds after the origin.
    back: AtomicU64,
}

/// Whether a server gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It does.
    In,
    /// It gets none.
    Out,
    /// One may try it.
    Due,
}

/// What the word says, in milliseconds after the origin.
#[derive(Clone, Copy)]
enum State {
    In,
    /// Left out until then.
    Resting(u64),
    /// Somebody tries it. Nothing is heard of some tries, as when the client goes away: from then on
    /// another may.
    Tried(u64),
}

impl State {
    fn word(self) -> u64 {
        match self {
            State::In => 0,
            State::Resting(until) => until.max(1) << 1,
            State::Tried(until) => until << 1 | 1,
        }
    }

    fn of(word: u64) -> State {
        match (word, word & 1) {
            (0, _) => State::In,
            (word, 0) => State::Resting(word >> 1),
            (word, _) => State::Tried(word >> 1),
        }
    }
}

impl Record {
    /// Nothing is held against it.
    pub(super) fn new(origin: Instant) -> Record {
        Record {
            origin,
            failures: AtomicU32::new(0),
            state: AtomicU64::new(State::In.word()),
            times: AtomicU32::new(0),
            back: AtomicU64::new(0),
        }
    }

    /// Whether it gets requests, without a look at a clock.
    pub(super) fn is_clean(&self) -> bool {
        self.state.load(Ordering::Relaxed) == State::In.word()
    }

    /// Whether it gets requests.
    pub(super) fn standing(&self, now: Instant) -> Standing {
        match State::of(self.state.load(Ordering::Relaxed)) {
            State::In => Standing::In,
            State::Resting(until) | State::Tried(until) if until <= self.millis(now) => {
                Standing::Due
            }
            State::Resting(_) | State::Tried(_) => Standing::Out,
        }
    }

    /// Takes the one request that may try it for oneself. False if another has it.
    pub(super) fn try_out(&self, now: Instant, rules: &Ejection) -> bool {
        let before = self.state.load(Ordering::Relaxed);
        let (State::Resting(until) | State::Tried(until)) = State::of(before) else { return true };
        let now = self.millis(now);
        let tried = State::Tried(now.saturating_add(millis(*rules.time.start())));
        let (set, relaxed) = (Ordering::Relaxed, Ordering::Relaxed);
        until <= now && self.state.compare_exchange(before, tried.word(), set, relaxed).is_ok()
    }

    /// It has answered a request. True if it is back by that.
    ///
    /// An answer that comes while it rests is to a request from before, and says nothing new.
    pub(super) fn succeed(&self, now: impl FnOnce() -> Instant) -> bool {
        let before = self.state.load(Ordering::Relaxed);
        match State::of(before) {
            State::In => {
                // Requests are many, failures few: the word is not written without need.
                if self.failures.load(Ordering::Relaxed) != 0 {
                    self.failures.store(0, Ordering::Relaxed);
                }
                false
            }
            State::Resting(_) => false,
            State::Tried(_) => {
                self.back.store(self.millis(now()), Ordering::Relaxed);
                self.failures.store(0, Ordering::Relaxed);
                let (set, relaxed) = (Ordering::Relaxed, Ordering::Relaxed);
                self.state.compare_exchange(before, State::In.word(), set, relaxed).is_ok()
            }
        }
    }

    /// It has failed a request. Returns for how long it is left out, if it is by that.
    ///
    /// Whoever calls this sees to it that no other server of the group is judged meanwhile: `is_last`
    /// says that no other one is left.
    pub(super) fn fail(
        &self,
        now: Instant,
        rules: &Ejection,
        is_last: impl FnOnce() -> bool,
    ) -> Option<Duration> {
        match State::of(self.state.load(Ordering::Relaxed)) {
            State::In => {
                let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
                if failures < rules.failures.get() {
                    return None;
                }
            }
            State::Resting(_) => return None,
            State::Tried(_) => {}
        }
        if is_last() {
            self.state.store(State::In.word(), Ordering::Relaxed);
            return None;
        }
        let now = self.millis(now);
        let (first, longest) = (*rules.time.start(), *rules.time.end());
        let served = now.saturating_sub(self.back.load(Ordering::Relaxed));
        let is_tried = !self.is_clean();
        let times = match self.times.load(Ordering::Relaxed) {
            times if is_tried || served < millis(longest) => times,
            _ => 0,
        };
        let time = first.saturating_mul(2_u32.saturating_pow(times)).min(longest);
        self.times.store(times.saturating_add(1), Ordering::Relaxed);
        self.failures.store(0, Ordering::Relaxed);
        let resting = State::Resting(now.saturating_add(millis(time)));
        self.state.store(resting.word(), Ordering::Relaxed);
        Some(time)
    }

    /// Holds nothing against it any more.
    pub(super) fn forget(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.times.store(0, Ordering::Relaxed);
        self.state.store(State::In.word(), Ordering::Relaxed);
    }

    fn millis(&self, now: Instant) -> u64 {
        millis(now.saturating_duration_since(self.origin))
    }
}

fn millis(duration: Duration) -> u64 {
    // Room for the lowest bit of the word.
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(u64::MAX >> 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Left out after two failures, for 10 s, 20 s, at most 30 s.
    fn rules() -> Ejection {
        let failures = 2.try_into().unwrap();
        Ejection { failures, time: 10 * SECOND..=30 * SECOND, ..Ejection::default() }
    }

    struct Case {
        record: Record,
        now: Instant,
    }

    impl Case {
        fn new() -> Case {
            let now = Instant::now();
            Case { record: Record::new(now), now }
        }

        fn standing(&self) -> Standing {
            self.record.standing(self.now)
        }

        fn succeed(&self) -> bool {
            self.record.succeed(|| self.now)
        }

        fn fail(&self) -> Option<Duration> {
            self.record.fail(self.now, &rules(), || false)
        }

        fn try_out(&self) -> bool {
            self.record.try_out(self.now, &rules())
        }

        /// Lets time pass, and the one request that may try it fails.
        fn fail_after(&mut self, time: Duration) -> Option<Duration> {
            self.now += time;
            assert_eq!(self.standing(), Standing::Due);
            assert!(self.try_out());
            self.fail()
        }
    }

    #[test]
    fn server_is_left_out_after_failures_in_a_row() {
        let case = Case::new();
        for _ in 0..3 {
            assert_eq!(case.fail(), None);
            assert!(!case.succeed());
        }
        assert_eq!(case.fail(), None);
        assert_eq!(case.standing(), Standing::In);
        assert_eq!(case.fail(), Some(10 * SECOND));
        assert_eq!(case.standing(), Standing::Out);
    }

    #[test]
    fn server_is_left_out_twice_as_long_each_time_up_to_the_end() {
        let mut case = Case::new();
        case.fail();
        assert_eq!(case.fail(), Some(10 * SECOND));
        assert_eq!(case.fail_after(10 * SECOND), Some(20 * SECOND));
        assert_eq!(case.fail_after(20 * SECOND), Some(30 * SECOND));
        assert_eq!(case.fail_after(30 * SECOND), Some(30 * SECOND));
    }

    #[test]
    fn one_request_tries_a_server_and_its_success_brings_it_back() {
        let mut case = Case::new();
        case.fail();
        case.fail();
        case.now += 10 * SECOND - Duration::from_millis(1);
        assert!(!case.try_out());
        case.now += Duration::from_millis(1);
        assert!(case.try_out());
        assert_eq!(case.standing(), Standing::Out);
        assert!(!case.try_out());
        assert!(case.succeed());
        assert_eq!(case.standing(), Standing::In);
        assert!(!case.succeed());
    }

    #[test]
    fn what_servers_did_is_forgotten_when_they_have_served_for_long() {
        let mut case = Case::new();
        case.fail();
        case.fail();
        for (served, expected) in [(29 * SECOND, 20 * SECOND), (30 * SECOND, 10 * SECOND)] {
            case.now += 30 * SECOND;
            assert!(case.try_out());
            assert!(case.succeed());
            case.now += served;
            assert_eq!(case.fail(), None);
            assert_eq!(case.fail(), Some(expected));
        }
    }

    #[test]
    fn answers_from_before_change_nothing_for_who_is_left_out() {
        let case = Case::new();
        case.fail();
        case.fail();
        assert!(!case.succeed());
        assert_eq!(case.fail(), None);
        assert_eq!(case.standing(), Standing::Out);
    }

    #[test]
    fn another_may_try_if_nothing_is_heard_of_the_first() {
        let mut case = Case::new();
        case.fail();
        case.fail();
        case.now += 10 * SECOND;
        assert!(case.try_out());
        case.now += 10 * SECOND;
        assert!(case.try_out());
    }

    #[test]
    fn last_server_is_never_left_out() {
        let mut case = Case::new();
        for _ in 0..5 {
            assert_eq!(case.record.fail(case.now, &rules(), || true), None);
            assert_eq!(case.standing(), Standing::In);
        }
        // Once another is back, its next failure counts.
        assert_eq!(case.fail(), Some(10 * SECOND));
        case.now += 10 * SECOND;
        assert!(case.try_out());
        assert_eq!(case.record.fail(case.now, &rules(), || true), None);
        assert_eq!(case.standing(), Standing::In);
    }
}
