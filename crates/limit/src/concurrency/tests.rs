use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{
    MAX_SKEW,
    suite::{self, START, Subject, decide},
};

impl Subject for Concurrency {
    const DIVISIBLE: bool = false;

    fn memory(&self) -> Duration {
        self.lease
    }

    fn with_capacity(&self, capacity: u32) -> Concurrency {
        Concurrency { limit: capacity, ..self.clone() }
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn any_concurrency() -> impl Strategy<Value = Concurrency> {
    (0_u32..12, 1_u64..20_000).prop_map(|(limit, millis)| Concurrency {
        limit,
        lease: Duration::from_millis(millis),
        retry_after: SECOND,
    })
}

// The end of a request is not known in advance, so no property of `reset`, `next` and `retry` is
// required. A lease begins at the time of the clock that grants it, even if that clock is wrong.
suite::property_tests! { any_concurrency() => [
    prop_used_and_remaining_make_up_the_limit,
    prop_denial_leaves_the_state_as_it_was,
    prop_cost_above_the_capacity_is_never_admitted,
    prop_refund_never_leaves_more_than_had_the_charge_not_been,
    prop_refund_with_no_charge_in_between_is_exact,
    prop_refund_of_a_forgotten_charge_changes_nothing,
    prop_no_instant_before_its_mark_moves_a_state_back,
    prop_states_do_not_know_the_limit,
    prop_state_that_is_over_decides_as_an_unused_one,
    prop_state_survives_a_snapshot,
    prop_no_input_panics_or_overflows,
] }

#[test]
fn decisions_equal_the_model() {
    suite::assert_equals_model(|numbers| {
        let lease = Duration::from_micros(numbers.below(20_000_000) + 1);
        let retry_after = Duration::from_millis(numbers.below(3_000) + 1);
        let quota = Concurrency { limit: numbers.below(12) as u32, lease, retry_after };
        (quota.clone(), Model { quota, held: Vec::new() })
    });
}

/// The time during which each lease is held, for all leases ever granted.
struct Model {
    quota: Concurrency,
    held: Vec<std::ops::Range<Timestamp>>,
}

impl Model {
    fn used(&self, now: Timestamp) -> u32 {
        self.held.iter().filter(|held| held.contains(&now)).count() as u32
    }
}

impl suite::Model for Model {
    fn admits(&self, cost: u32, now: Timestamp) -> bool {
        self.used(now) + cost <= self.quota.limit
    }

    fn take(&mut self, _cost: u32, now: Timestamp) {
        self.held.push(now..now + self.quota.lease);
    }

    fn give_back(&mut self, index: usize, now: Timestamp) {
        let held = &mut self.held[index];
        held.end = held.end.min(now);
    }

    fn standing(&self, now: Timestamp) -> Standing {
        let limit = self.quota.limit;
        let used = self.used(now);
        let later = |busy: bool| if busy { now + self.quota.retry_after } else { now };
        let reset = later(used > 0);
        let next = later(used >= limit);
        Standing { limit, remaining: limit - used, used, reset, next, retry: Retry::Now }
    }

    fn retry(&self, cost: u32, now: Timestamp) -> Retry {
        if cost > self.quota.limit { Retry::Never } else { Retry::At(now + self.quota.retry_after) }
    }
}

fn quota(limit: u32) -> Concurrency {
    Concurrency { limit, lease: 60 * SECOND, retry_after: SECOND }
}

#[test]
fn request_that_ends_lets_another_in() {
    let quota = quota(2);
    let mut leases = Leases::default();
    let receipts: Vec<Receipt> =
        (0..2).map(|_| decide(&quota, &mut leases, 1, START).2.unwrap()).collect();
    let (allowed, standing, _) = decide(&quota, &mut leases, 1, START);
    assert!(!allowed);
    assert_eq!(standing.retry, Retry::At(START + SECOND));

    quota.give_back(&mut leases, receipts[0], 1, START);
    assert!(decide(&quota, &mut leases, 1, START).0);
    assert!(!decide(&quota, &mut leases, 1, START).0);
}

#[test]
fn lease_is_given_back_once() {
    let quota = quota(2);
    let mut leases = Leases::default();
    let receipt = quota.take(&mut leases, 1, START);
    quota.take(&mut leases, 1, START);
    quota.give_back(&mut leases, receipt, 1, START);
    quota.give_back(&mut leases, receipt, 1, START);
    assert_eq!(quota.standing(&leases, START).used, 1);
}

#[test]
fn lease_that_is_not_given_back_expires() {
    let quota = quota(1);
    let mut leases = Leases::default();
    quota.take(&mut leases, 1, START);
    assert!(!quota.admits(&leases, 1, START + Duration::from_micros(59_999_999)));
    assert!(quota.admits(&leases, 1, START + 60 * SECOND));
    assert!(leases.is_over(START + 60 * SECOND));
}

#[test]
fn renewed_lease_is_good_for_its_full_time_again() {
    let quota = quota(1);
    let mut leases = Leases::default();
    let receipt = quota.take(&mut leases, 1, START);
    quota.renew(&mut leases, receipt, START + 40 * SECOND);
    assert!(!quota.admits(&leases, 1, START + 99 * SECOND));
    assert!(quota.admits(&leases, 1, START + 100 * SECOND));
}

/// Its place may be taken already.
#[test]
fn lease_that_is_over_cannot_be_renewed() {
    let quota = quota(1);
    let mut leases = Leases::default();
    let receipt = quota.take(&mut leases, 1, START);
    quota.renew(&mut leases, receipt, START + 60 * SECOND);
    assert_eq!(quota.standing(&leases, START + 60 * SECOND).used, 0);
}

#[test]
fn renewal_by_a_clock_that_is_behind_shortens_nothing() {
    let quota = quota(1);
    let mut leases = Leases::default();
    let receipt = quota.take(&mut leases, 1, START + MAX_SKEW);
    let before = leases.clone();
    quota.renew(&mut leases, receipt, START);
    assert_eq!(leases, before);
}

#[test]
fn lowered_limit_denies_until_enough_requests_have_ended() {
    let mut leases = Leases::default();
    let receipts: Vec<Receipt> = (0..3).map(|_| quota(3).take(&mut leases, 1, START)).collect();
    let lowered = quota(2);
    assert_eq!(lowered.standing(&leases, START).used, 3);
    assert_eq!(lowered.standing(&leases, START).remaining, 0);
    for (receipt, admits) in receipts.into_iter().zip([false, true, true]) {
        lowered.give_back(&mut leases, receipt, 1, START);
        assert_eq!(lowered.admits(&leases, 1, START), admits);
    }
}

#[test]
fn clock_that_went_back_a_day_is_healed_by_a_denial() {
    let quota = quota(1);
    let mut leases = Leases::default();
    quota.take(&mut leases, 1, START + Duration::from_secs(86_400));
    assert!(!decide(&quota, &mut leases, 1, START).0);
    assert!(decide(&quota, &mut leases, 1, START + 60 * SECOND).0);
}

#[test]
fn clock_that_is_a_little_behind_shortens_no_lease() {
    let quota = quota(1);
    let mut leases = Leases::default();
    quota.take(&mut leases, 1, START + MAX_SKEW);
    let before = leases.clone();
    assert!(!decide(&quota, &mut leases, 1, START).0);
    assert_eq!(leases, before);
}

#[test]
fn leases_that_are_over_are_dropped_by_the_next_one() {
    let quota = quota(3);
    let mut leases = Leases::default();
    for _ in 0..3 {
        quota.take(&mut leases, 1, START);
    }
    quota.take(&mut leases, 1, START + 60 * SECOND);
    assert_eq!(leases.leases.len(), 1);
}
