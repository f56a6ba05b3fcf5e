//! Servers that fail requests are ejected for a while, twice as long each time, and return with one
//! trial request.
//!
//! Requests read a single atomic, which is zero while the server is not ejected. The caller decides
//! whether a server may be ejected at all: the last one may not, nor more than the policy says.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use tollgate_policy::Ejection;

/// The failures of a server and what follows from them.
#[derive(Debug)]
pub(super) struct Record {
    /// What instants are counted from.
    origin: Instant,
    /// Failures since the last success.
    failures: AtomicU32,
    /// See [`State`].
    state: AtomicU64,
    /// Ejections that still lengthen the next one.
    times: AtomicU32,
    /// When it last returned, in milliseconds after the origin.
    back: AtomicU64,
}

/// Whether a server gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eligibility {
    /// It does.
    Eligible,
    /// It gets none.
    Ejected,
    /// It gets one request, as a trial.
    DueForTrial,
}

/// The decoded `state`; times are in milliseconds after the origin.
#[derive(Clone, Copy)]
enum State {
    In,
    /// Ejected until then.
    Resting(u64),
    /// A trial request is in flight. Some trials end without a result, as when the client goes
    /// away: from that time on another request may be the trial.
    Tried(u64),
}

impl State {
    fn encode(self) -> u64 {
        match self {
            State::In => 0,
            State::Resting(until) => until.max(1) << 1,
            State::Tried(until) => until << 1 | 1,
        }
    }

    fn decode(word: u64) -> State {
        match (word, word & 1) {
            (0, _) => State::In,
            (word, 0) => State::Resting(word >> 1),
            (word, _) => State::Tried(word >> 1),
        }
    }
}

impl Record {
    /// A server without failures.
    pub(super) fn new(origin: Instant) -> Record {
        Record {
            origin,
            failures: AtomicU32::new(0),
            state: AtomicU64::new(State::In.encode()),
            times: AtomicU32::new(0),
            back: AtomicU64::new(0),
        }
    }

    /// Whether it gets requests without restriction; reads no clock.
    pub(super) fn is_clean(&self) -> bool {
        self.state.load(Ordering::Relaxed) == State::In.encode()
    }

    /// Whether it gets requests.
    pub(super) fn eligibility(&self, now: Instant) -> Eligibility {
        match State::decode(self.state.load(Ordering::Relaxed)) {
            State::In => Eligibility::Eligible,
            State::Resting(until) | State::Tried(until) if until <= self.millis(now) => {
                Eligibility::DueForTrial
            }
            State::Resting(_) | State::Tried(_) => Eligibility::Ejected,
        }
    }

    /// Claims the trial for this request. False if another request has it.
    pub(super) fn try_out(&self, now: Instant, rules: &Ejection) -> bool {
        let before = self.state.load(Ordering::Relaxed);
        let (State::Resting(until) | State::Tried(until)) = State::decode(before) else {
            return true;
        };
        let now = self.millis(now);
        let tried = State::Tried(now.saturating_add(millis(*rules.time.start())));
        let set = Ordering::Relaxed;
        let relaxed = Ordering::Relaxed;
        until <= now && self.state.compare_exchange(before, tried.encode(), set, relaxed).is_ok()
    }

    /// Records a success. True if that ends the ejection.
    ///
    /// A response that comes during an ejection belongs to an earlier request and changes nothing.
    pub(super) fn succeed(&self, now: impl FnOnce() -> Instant) -> bool {
        let before = self.state.load(Ordering::Relaxed);
        match State::decode(before) {
            State::In => {
                // Successes are frequent and failures rare: the atomic is written only when needed.
                if self.failures.load(Ordering::Relaxed) != 0 {
                    self.failures.store(0, Ordering::Relaxed);
                }
                false
            }
            State::Resting(_) => false,
            State::Tried(_) => {
                self.back.store(self.millis(now()), Ordering::Relaxed);
                self.failures.store(0, Ordering::Relaxed);
                let set = Ordering::Relaxed;
                let relaxed = Ordering::Relaxed;
                self.state.compare_exchange(before, State::In.encode(), set, relaxed).is_ok()
            }
        }
    }

    /// Records a failure. Returns the time of the ejection that it causes, if any.
    ///
    /// The caller must hold the group's lock, so that no other server is ejected meanwhile:
    /// `is_needed` returns whether it must stay, as no other is left or too many are ejected.
    pub(super) fn fail(
        &self,
        now: Instant,
        rules: &Ejection,
        is_needed: impl FnOnce() -> bool,
    ) -> Option<Duration> {
        match State::decode(self.state.load(Ordering::Relaxed)) {
            State::In => {
                let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
                if failures < rules.failures.get() {
                    return None;
                }
            }
            State::Resting(_) => return None,
            State::Tried(_) => {}
        }
        if is_needed() {
            self.state.store(State::In.encode(), Ordering::Relaxed);
            return None;
        }
        let now = self.millis(now);
        let first = *rules.time.start();
        let longest = *rules.time.end();
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
        self.state.store(resting.encode(), Ordering::Relaxed);
        Some(time)
    }

    /// Forgets all failures and ends an ejection.
    pub(super) fn forget(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.times.store(0, Ordering::Relaxed);
        self.state.store(State::In.encode(), Ordering::Relaxed);
    }

    fn millis(&self, now: Instant) -> u64 {
        millis(now.saturating_duration_since(self.origin))
    }
}

fn millis(duration: Duration) -> u64 {
    // Leaves room for the lowest bit, which marks a trial.
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

    struct Server {
        record: Record,
        now: Instant,
    }

    impl Server {
        fn new() -> Server {
            let now = Instant::now();
            Server { record: Record::new(now), now }
        }

        fn eligibility(&self) -> Eligibility {
            self.record.eligibility(self.now)
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
            assert_eq!(self.eligibility(), Eligibility::DueForTrial);
            assert!(self.try_out());
            self.fail()
        }
    }

    #[test]
    fn server_is_left_out_after_failures_in_a_row() {
        let server = Server::new();
        for _ in 0..3 {
            assert_eq!(server.fail(), None);
            assert!(!server.succeed());
        }
        assert_eq!(server.fail(), None);
        assert_eq!(server.eligibility(), Eligibility::Eligible);
        assert_eq!(server.fail(), Some(10 * SECOND));
        assert_eq!(server.eligibility(), Eligibility::Ejected);
    }

    #[test]
    fn server_is_left_out_twice_as_long_each_time_up_to_the_end() {
        let mut server = Server::new();
        server.fail();
        assert_eq!(server.fail(), Some(10 * SECOND));
        assert_eq!(server.fail_after(10 * SECOND), Some(20 * SECOND));
        assert_eq!(server.fail_after(20 * SECOND), Some(30 * SECOND));
        assert_eq!(server.fail_after(30 * SECOND), Some(30 * SECOND));
    }

    #[test]
    fn one_request_tries_a_server_and_its_success_brings_it_back() {
        let mut server = Server::new();
        server.fail();
        server.fail();
        server.now += 10 * SECOND - Duration::from_millis(1);
        assert!(!server.try_out());
        server.now += Duration::from_millis(1);
        assert!(server.try_out());
        assert_eq!(server.eligibility(), Eligibility::Ejected);
        assert!(!server.try_out());
        assert!(server.succeed());
        assert_eq!(server.eligibility(), Eligibility::Eligible);
        assert!(!server.succeed());
    }

    #[test]
    fn what_servers_did_is_forgotten_when_they_have_served_for_long() {
        let mut server = Server::new();
        server.fail();
        server.fail();
        for (served, expected) in [(29 * SECOND, 20 * SECOND), (30 * SECOND, 10 * SECOND)] {
            server.now += 30 * SECOND;
            assert!(server.try_out());
            assert!(server.succeed());
            server.now += served;
            assert_eq!(server.fail(), None);
            assert_eq!(server.fail(), Some(expected));
        }
    }

    #[test]
    fn answers_from_before_change_nothing_for_who_is_left_out() {
        let server = Server::new();
        server.fail();
        server.fail();
        assert!(!server.succeed());
        assert_eq!(server.fail(), None);
        assert_eq!(server.eligibility(), Eligibility::Ejected);
    }

    #[test]
    fn another_may_try_if_nothing_is_heard_of_the_first() {
        let mut server = Server::new();
        server.fail();
        server.fail();
        server.now += 10 * SECOND;
        assert!(server.try_out());
        server.now += 10 * SECOND;
        assert!(server.try_out());
    }

    #[test]
    fn last_server_is_never_left_out() {
        let mut server = Server::new();
        for _ in 0..5 {
            assert_eq!(server.record.fail(server.now, &rules(), || true), None);
            assert_eq!(server.eligibility(), Eligibility::Eligible);
        }
        // Once another is back, its next failure counts.
        assert_eq!(server.fail(), Some(10 * SECOND));
        server.now += 10 * SECOND;
        assert!(server.try_out());
        assert_eq!(server.record.fail(server.now, &rules(), || true), None);
        assert_eq!(server.eligibility(), Eligibility::Eligible);
    }
}
