//! What each algorithm counts, and what it reports.

use std::time::Duration;

use tollgate_limit::{Charge, Retry};

use super::subject::{Home, fixed, fixed_windows, one, places, quotas, without_leases};
use crate::support::{MINUTE, SECOND, eventually};

for_each_store! {
    exactly_the_limit_passes,
    charge_passes_after_the_reported_wait_and_not_a_moment_earlier,
    denied_request_is_not_counted,
    strict_bucket_makes_who_does_not_wait_wait_again,
    window_reopens_at_its_reset_and_not_a_moment_earlier,
    reset_does_not_wobble_within_a_window,
    costs_are_counted_in_units,
    cost_of_zero_opens_nothing_and_passes_when_nothing_is_left,
    cost_above_the_limit_is_never_admitted_and_takes_nothing,
    limit_of_zero_denies_always,
    limits_and_callers_have_counters_of_their_own,
    peek_tells_what_was_charged_and_takes_nothing,
    counter_of_the_largest_limit_is_exact,
}

fn exactly_the_limit_passes(home: &Home) {
    let store = home.open();
    for (name, quota) in &quotas(3) {
        let charge = one("alice", name, quota);
        for used in 1..=3 {
            let standing = store.take(&charge).standing;
            assert_eq!((standing.limit, standing.used), (3, used), "{name}");
            assert_eq!((standing.remaining, standing.retry), (3 - used, Retry::Now), "{name}");
        }
        let denied = store.deny(&charge);
        assert_eq!((denied.limit, denied.used, denied.remaining), (3, 3, 0), "{name}");
        assert!(matches!(denied.retry, Retry::At(at) if at > store.now()), "{name}");
    }
}

fn charge_passes_after_the_reported_wait_and_not_a_moment_earlier(home: &Home) {
    const MOMENT: Duration = Duration::from_micros(1);
    let store = home.open();
    // A strict bucket also charges denied attempts, and the end of requests in flight is unknown.
    for (name, quota) in without_leases(3).iter().filter(|(_, quota)| !quota.writes_denials()) {
        let charge = one("alice", name, quota);
        store.take_times(3, &charge);
        let Retry::At(retry) = store.deny(&charge).retry else { panic!("{name}: no instant") };
        let begun = store.now();
        store.set_clock(retry);
        store.turn_back(MOMENT);
        assert_eq!(store.deny(&charge).retry, Retry::At(retry), "{name}");
        store.set_clock(retry);
        store.take(&charge);
        store.set_clock(begun);
    }
}

fn denied_request_is_not_counted(home: &Home) {
    let store = home.open();
    for (name, quota) in &quotas(2) {
        let charge = one("alice", name, quota);
        store.take_times(2, &charge);
        store.deny_times(5, &charge);
        assert_eq!(store.used(&charge), 2, "{name}");
    }
}

fn strict_bucket_makes_who_does_not_wait_wait_again(home: &Home) {
    let store = home.open();
    let quotas = quotas(1);
    let (_, strict) = quotas.iter().find(|(name, _)| *name == "strict token bucket").unwrap();
    let charge = one("alice", "strict", strict);
    store.take(&charge);
    for _ in 0..3 {
        store.advance(MINUTE - SECOND);
        assert_eq!(store.deny(&charge).retry, Retry::At(store.now() + MINUTE));
    }
    store.advance(MINUTE);
    store.take(&charge);
}

fn window_reopens_at_its_reset_and_not_a_moment_earlier(home: &Home) {
    let store = home.open();
    let quota = fixed(1);
    let charge = one("alice", "core", &quota);
    let opened = store.now();
    assert_eq!(store.take(&charge).standing.reset, opened + MINUTE);
    store.advance(MINUTE - Duration::from_micros(1));
    store.deny(&charge);
    store.advance(Duration::from_micros(1));
    assert_eq!(store.take(&charge).standing.reset, opened + 2 * MINUTE);
}

fn reset_does_not_wobble_within_a_window(home: &Home) {
    let store = home.open();
    for (name, quota) in &fixed_windows(20) {
        let charge = one("alice", name, quota);
        let begun = store.now();
        let reset = store.take(&charge).standing.reset;
        for request in 0..30 {
            let decision = store.charge(&[charge]);
            assert_eq!(decision.outcomes[0].standing.reset, reset, "{name}, request {request}");
            store.advance(Duration::from_micros(333_333));
        }
        store.set_clock(begun);
    }
}

fn costs_are_counted_in_units(home: &Home) {
    let store = home.open();
    for (name, quota) in &without_leases(10) {
        let charge = |cost| Charge { cost, ..one("alice", name, quota) };
        assert_eq!(store.take(&charge(7)).standing.remaining, 3, "{name}");
        assert_eq!(store.deny(&charge(4)).remaining, 3, "{name}");
        assert_eq!(store.take(&charge(3)).standing.remaining, 0, "{name}");
    }
}

fn cost_of_zero_opens_nothing_and_passes_when_nothing_is_left(home: &Home) {
    let store = home.open();
    for (name, quota) in &quotas(1) {
        let charge = one("alice", name, quota);
        let free = Charge { cost: 0, ..charge };
        let outcome = store.take(&free);
        assert_eq!((outcome.receipt, outcome.standing.used), (None, 0), "{name}");
        store.take(&charge);
        assert_eq!(store.take(&free).standing.remaining, 0, "{name}");
    }
    let quota = fixed(1);
    let late = one("bob", "core", &quota);
    store.take(&Charge { cost: 0, ..late });
    store.advance(SECOND);
    assert_eq!(store.take(&late).standing.reset, store.now() + MINUTE);
}

fn cost_above_the_limit_is_never_admitted_and_takes_nothing(home: &Home) {
    let store = home.open();
    for (name, quota) in &quotas(3) {
        let charge = Charge { cost: 4, ..one("alice", name, quota) };
        assert_eq!(store.deny(&charge).retry, Retry::Never, "{name}");
        assert_eq!(store.standing(&charge).remaining, 3, "{name}");
    }
}

fn limit_of_zero_denies_always(home: &Home) {
    let store = home.open();
    let none = [fixed(0), places(0)];
    for (name, quota) in ["fixed", "places"].into_iter().zip(&none) {
        let denied = store.deny(&one("alice", name, quota));
        assert_eq!((denied.limit, denied.used, denied.retry), (0, 0, Retry::Never), "{name}");
    }
}

fn limits_and_callers_have_counters_of_their_own(home: &Home) {
    let store = home.open();
    let quota = fixed(1);
    for owner in ["alice", "bob", "", "{alice}", "1.2.3.4", "a\r\nb", "\u{1f980}"] {
        for limit in ["core", "search", "{core}"] {
            let charge = one(owner, limit, &quota);
            store.take(&charge);
            store.deny(&charge);
        }
    }
}

fn peek_tells_what_was_charged_and_takes_nothing(home: &Home) {
    let store = home.open();
    for (name, quota) in &quotas(5) {
        let charge = one("alice", name, quota);
        let other = one("bob", name, quota);
        store.take_times(2, &charge);
        let exact = store.standings(&[charge, other]);
        // The reply may come from a replica.
        let is_exact = || store.peek(&[charge, other]) == exact;
        eventually("the charges are reported", || is_exact().then_some(()));
        assert_eq!(store.standings(&[charge, other]), exact, "{name}");
    }
}

fn counter_of_the_largest_limit_is_exact(home: &Home) {
    const MOST: u32 = i32::MAX as u32;
    let store = home.open();
    for (name, quota) in without_leases(MOST).iter().filter(|(name, _)| !name.contains("log")) {
        let charge = |cost| Charge { cost, ..one("alice", name, quota) };
        assert_eq!(store.take(&charge(MOST - 1)).standing.remaining, 1, "{name}");
        assert_eq!(store.deny(&charge(2)).remaining, 1, "{name}");
        store.take(&charge(1));
        store.deny(&charge(1));
    }
}
