//! The suite, a model that refills one interval at a time, and the published vectors of Smyte's
//! RL.* commands and the intended differences.

use proptest::prelude::*;

use super::*;
use crate::{
    MAX_SKEW,
    suite::{self, Model, START, Subject, decide},
};

const SECOND: Duration = Duration::from_secs(1);

impl Subject for TokenBucket {
    const ANCHORED: bool = true;

    fn memory(&self) -> Duration {
        self.longest()
    }

    fn with_capacity(&self, capacity: u32) -> TokenBucket {
        TokenBucket { capacity, ..self.clone() }
    }
}

impl suite::apart::Bounded for TokenBucket {
    fn most(&self, span: Duration) -> u64 {
        let (micros, interval) = (span.as_micros() as u64, self.interval_micros());
        let come = match self.even {
            true => micros * u64::from(self.refill) / interval + 1,
            false => u64::from(self.refill) * (micros / interval + 1),
        };
        u64::from(self.capacity) + come
    }

    fn window(&self) -> Duration {
        self.interval
    }
}

/// Buckets that fill up within seconds or at once.
fn any_bucket(even: bool, strict: bool) -> impl Strategy<Value = TokenBucket> {
    let micros = prop_oneof![
        1 => 1_u64..1_000,
        2 => 1_u64..5_000_000,
        2 => (1_u64..10).prop_map(|halves| halves * 500_000),
    ];
    (1_u32..12, 1_u32..8, micros).prop_map(move |(capacity, refill, micros)| TokenBucket {
        capacity,
        refill,
        interval: Duration::from_micros(micros),
        even,
        strict,
    })
}

suite::property_tests! { any_bucket(false, false) }

mod apart {
    use super::*;

    suite::property_tests! { any_bucket(false, false) => [prop_clocks_that_are_apart_count_once] }
}

mod even;

mod strict {
    use super::*;

    // A strict bucket changes when it denies, its wait depends on its capacity, and a refund does
    // not take penalties back. Its wait starts again at the clock's time, so the wait is shorter
    // with a clock that is behind.
    suite::property_tests! { any_bucket(false, true) => [
        prop_clocks_that_are_apart_count_once,
        prop_used_and_remaining_make_up_the_limit,
        prop_waiting_until_retry_is_enough_and_less_is_not,
        prop_cost_above_the_capacity_is_never_admitted,
        prop_limit_is_full_at_reset_and_not_before,
        prop_refund_never_leaves_more_than_had_the_charge_not_been,
        prop_refund_of_a_forgotten_charge_changes_nothing,
        prop_service_resumes_after_the_clock_went_back_a_day,
        prop_no_instant_before_its_mark_moves_a_state_back,
        prop_state_that_is_over_decides_as_an_unused_one,
        prop_state_survives_a_snapshot,
        prop_no_input_panics_or_overflows,
    ] }
}

/// A bucket that stores the time of the next refill, and applies refills one by one.
#[derive(Clone)]
struct Ticking {
    bucket: TokenBucket,
    missing: u32,
    tick: Timestamp,
}

impl Ticking {
    fn full(bucket: &TokenBucket) -> Ticking {
        Ticking { bucket: bucket.clone(), missing: 0, tick: START }
    }

    fn tick(&mut self) {
        self.missing = self.missing.saturating_sub(self.bucket.refill);
        self.tick = self.tick + self.bucket.interval;
    }

    fn at(&self, now: Timestamp) -> Ticking {
        let mut later = self.clone();
        while later.missing > 0 && later.tick <= now {
            later.tick();
        }
        later
    }

    fn charged(&self, cost: u32, now: Timestamp) -> Ticking {
        let mut charged = self.at(now);
        if charged.missing == 0 {
            charged.tick = now + self.bucket.interval;
        }
        charged.missing += cost;
        if charged.missing >= self.bucket.capacity {
            charged.wait_if_strict(now);
        }
        charged
    }

    fn wait_if_strict(&mut self, now: Timestamp) {
        if self.bucket.strict {
            self.tick = self.tick.max(now + self.bucket.interval);
        }
    }

    /// When no more than `missing` units are missing.
    fn rises(&self, missing: u32, now: Timestamp) -> Timestamp {
        let mut instant = now;
        let mut bucket = self.at(now);
        while bucket.missing > missing {
            instant = bucket.tick;
            bucket.tick();
        }
        instant
    }
}

/// A bucket, its state after each charge, and the cost of that charge.
struct Ledger(Ticking, Vec<(Ticking, u32)>);

impl Model for Ledger {
    fn admits(&self, cost: u32, now: Timestamp) -> bool {
        self.0.at(now).missing + cost <= self.0.bucket.capacity
    }

    fn take(&mut self, cost: u32, now: Timestamp) {
        self.0 = self.0.charged(cost, now);
        self.1.push((self.0.clone(), cost));
    }

    fn give_back(&mut self, index: usize, now: Timestamp) {
        let (charged, cost) = &self.1[index];
        let missing = charged.at(now).missing;
        self.0 = self.0.at(now);
        self.0.missing = self.0.missing.saturating_sub(missing.min(*cost));
    }

    fn standing(&self, now: Timestamp) -> Standing {
        let capacity = self.0.bucket.capacity;
        let used = self.0.at(now).missing;
        Standing {
            limit: capacity,
            remaining: capacity.saturating_sub(used),
            used,
            reset: self.0.rises(0, now),
            next: self.0.rises(capacity - 1, now),
            retry: Retry::Now,
        }
    }

    fn retry(&self, cost: u32, now: Timestamp) -> Retry {
        match self.0.bucket.capacity.checked_sub(cost) {
            Some(missing) => Retry::At(self.0.rises(missing, now)),
            None => Retry::Never,
        }
    }
}

#[test]
fn decisions_are_those_of_a_bucket_that_ticks() {
    suite::assert_equals_model(|numbers| {
        let bucket = TokenBucket {
            capacity: 1 + numbers.below(12) as u32,
            refill: 1 + numbers.below(8) as u32,
            interval: Duration::from_micros(1 + numbers.below(5_000_000)),
            even: false,
            strict: false,
        };
        (bucket.clone(), Ledger(Ticking::full(&bucket), Vec::new()))
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Some charges are taken although they do not fit, and the clock is sometimes behind.
    #[test]
    fn prop_strict_decisions_are_those_of_a_strict_bucket_that_ticks(
        bucket in any_bucket(false, true),
        requests in prop::collection::vec((0_u32..40, 0_u32..12, 0_u32..14, 0_u32..20), 200),
    ) {
        let mut state = Bucket::default();
        let mut model = Ledger(Ticking::full(&bucket), vec![]);
        let mut clock = START;
        for (position, (advance, behind, cost, force)) in requests.into_iter().enumerate() {
            clock = clock + bucket.interval / 4 * advance.saturating_sub(20);
            let now = suite::before(clock, MAX_SKEW / 10 * behind.saturating_sub(8));
            if cost > 0 && force == 0 {
                bucket.take(&mut state, cost, now);
                model.take(cost, now);
            }
            let fits = model.admits(cost, now);
            if fits && cost > 0 {
                model.take(cost, now);
            } else if cost > 0 && cost <= bucket.capacity {
                model.0 = model.0.at(now);
                model.0.wait_if_strict(now);
            }
            let retry = if fits { Retry::Now } else { model.retry(cost, now) };
            let standing = Standing { retry, ..model.standing(now) };

            let (allowed, found, _) = decide(&bucket, &mut state, cost, now);
            prop_assert_eq!((allowed, found), (fits, standing), "request {}", position);
        }
    }
}

/// A bucket with the parameters of `RL.REDUCE key max refilltime REFILL refill`.
fn rl(capacity: u32, interval: u64, refill: u32, strict: bool) -> TokenBucket {
    let interval = Duration::from_secs(interval);
    TokenBucket { capacity, refill, interval, even: false, strict }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_secs(seconds)
}

/// Takes `cost` if it fits. Like RL.REDUCE, it returns what remained before.
fn reduce(bucket: &TokenBucket, state: &mut Bucket, cost: u32, now: Timestamp) -> u32 {
    let before = bucket.standing(state, now).remaining;
    decide(bucket, state, cost, now);
    before
}

/// RL.* empties a bucket that has less than a request needs; here such a request is denied and
/// takes nothing. So the two agree until row 13, whose request is the first that needs too much.
#[test]
fn smyte_sequence_with_nothing_taken_by_denied_requests() {
    let mut state = Bucket::default();
    for (row, now, cost, strict, rl_reply, reply) in [
        (1, 2, 1, false, 10, 10),
        (2, 2, 1, false, 9, 9),
        (3, 2, 0, false, 8, 8),
        (4, 2, 0, false, 8, 8),
        (5, 2, 5, false, 8, 8),
        (6, 2, 5, false, 3, 3),
        (7, 2, 0, false, 0, 3),
        (8, 8, 0, false, 3, 6),
        (9, 8, 2, false, 3, 6),
        (10, 8, 1, false, 1, 4),
        (11, 9, 1, false, 0, 3),
        (12, 13, 0, false, 3, 5),
        (13, 14, 4, true, 3, 5),
        (14, 16, 4, true, 0, 1),
        (15, 18, 1, true, 0, 1),
        (16, 23, 2, true, 3, 3),
    ] {
        let remaining = reduce(&rl(10, 5, 3, strict), &mut state, cost, at(now));
        assert_eq!(remaining, reply, "row {row}: RL.* returns {rl_reply}");
    }
}

/// The same sequence, where each request needs no more than RL.* would grant: all rows agree.
#[test]
fn smyte_sequence_with_requests_that_fit() {
    let mut state = Bucket::default();
    for (row, now, cost, strict, reply) in [
        (1, 2, 1, false, 10),
        (2, 2, 1, false, 9),
        (3, 2, 0, false, 8),
        (4, 2, 0, false, 8),
        (5, 2, 5, false, 8),
        (6, 2, 3, false, 3),
        (7, 2, 0, false, 0),
        (8, 8, 0, false, 3),
        (9, 8, 2, false, 3),
        (10, 8, 1, false, 1),
        (11, 9, 1, false, 0),
        (12, 13, 0, false, 3),
        (13, 14, 3, true, 3),
        (14, 16, 4, true, 0),
        (15, 18, 1, true, 0),
        (16, 23, 2, true, 3),
    ] {
        let remaining = reduce(&rl(10, 5, 3, strict), &mut state, cost, at(now));
        assert_eq!(remaining, reply, "row {row}");
    }
}

#[test]
fn smyte_strict_session_ends_after_an_hour_without_requests() {
    let bucket = rl(1, 3600, 1, true);
    let mut state = Bucket::default();
    for (now, reply) in [(0, 1), (1, 0), (1000, 0), (3605, 0), (7205, 1)] {
        assert_eq!(reduce(&bucket, &mut state, 1, at(now)), reply, "at {now}");
    }
}

/// RL.* keeps the phase of a full bucket (mark 1262 in the last row); here a full bucket has none.
#[test]
fn smyte_refill_arithmetic() {
    let bucket = rl(1000, 60, 100, false);
    let state = bucket.refilling(900, at(2));
    for (now, remaining, mark) in [(53, 100, 2), (123, 300, 122), (1312, 1000, 1312)] {
        let refilled = bucket.refilled(&state, at(now));
        assert_eq!((1000 - refilled.deficit, refilled.mark), (remaining, at(mark)), "at {now}");
    }
}

#[test]
fn smyte_readme_two_a_minute() {
    let bucket = rl(2, 60, 2, false);
    let mut state = Bucket::default();
    let replies = [(); 3].map(|()| reduce(&bucket, &mut state, 1, START));
    assert_eq!(replies, [2, 1, 0]);
}

/// `rl.reduce k 5 60 take 9` and `rl.get k 5 60`: RL.* returns 5 and 0.
#[test]
fn cost_above_the_capacity_does_not_drain() {
    let bucket = rl(5, 60, 5, false);
    let mut state = Bucket::default();
    assert_eq!(reduce(&bucket, &mut state, 9, START), 5);
    assert_eq!(reduce(&bucket, &mut state, 0, START), 5);
}

#[test]
fn full_bucket_has_no_phase() {
    for refill in [1, 2] {
        let mut state = Bucket::default();
        rl(2, 5, 1, false).take(&mut state, 2, at(100));
        // Full at 110, or at 105 by a rate that was raised since.
        let bucket = rl(2, 5, refill, false);
        let now = at(if refill == 1 { 113 } else { 108 });
        bucket.take(&mut state, 2, now);
        assert_eq!(bucket.standing(&state, now).next, now + 5 * SECOND, "{refill} at a time");
    }
}

#[test]
fn strict_bucket_starts_over_when_it_denies_and_when_it_is_emptied() {
    let bucket = rl(2, 10, 1, true);
    let mut state = Bucket::default();
    bucket.take(&mut state, 1, at(100));
    let (_, standing, _) = decide(&bucket, &mut state, 1, at(104));
    assert_eq!((standing.next, standing.reset), (at(114), at(124)));
    let (allowed, standing, _) = decide(&bucket, &mut state, 1, at(109));
    assert!(!allowed);
    assert_eq!((standing.retry, standing.reset), (Retry::At(at(119)), at(129)));
    let (_, standing, _) = decide(&bucket, &mut state, 3, at(112));
    assert_eq!((standing.retry, standing.next), (Retry::Never, at(119)), "no wait would help");
}

#[test]
fn bucket_without_refills_stays_as_it_is() {
    let bucket = rl(2, 10, 0, false);
    let mut state = Bucket::default();
    bucket.take(&mut state, 2, START);
    let later = START + 366 * 86_400 * SECOND;
    let (allowed, standing, _) = decide(&bucket, &mut state, 1, later);
    assert_eq!((allowed, standing.retry), (false, Retry::Never));
    assert_eq!((standing.next, standing.reset, state.is_over(later)), (NEVER, NEVER, false));
    let refilled = rl(2, 10, 1, false);
    assert_eq!(refilled.standing(&state, START).next, START + 10 * SECOND);
}

#[test]
fn changed_refill_applies_at_once_but_makes_no_reported_instant_later() {
    let mut state = Bucket::default();
    let receipt = rl(8, 10, 4, false).take(&mut state, 8, at(100));
    for (refill, next, reset) in [(4, 110, 120), (8, 110, 110), (1, 110, 120)] {
        let standing = rl(8, 10, refill, false).standing(&state, at(100));
        assert_eq!((standing.next, standing.reset), (at(next), at(reset)), "{refill} at a time");
    }
    let lowered = rl(8, 10, 1, false);
    assert_eq!(lowered.retry(&state, 4, at(100)), Retry::At(at(120)));
    lowered.give_back(&mut state, receipt, 1, at(100));
    assert_eq!(lowered.standing(&state, at(100)).reset, at(120), "a refund makes it no later");
}

#[test]
fn charge_beyond_the_capacity_is_counted_up_to_the_end_of_numbers() {
    let bucket = rl(2, 366 * 86_400, 1, false);
    let mut state = Bucket::default();
    bucket.take(&mut state, 5, START);
    let standing = bucket.standing(&state, START);
    assert_eq!((standing.used, standing.remaining), (5, 0));
    bucket.take(&mut state, u32::MAX, START);
    assert_eq!(bucket.standing(&state, START).used, u32::MAX);
}
