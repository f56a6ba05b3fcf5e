//! What is put right after the decision: given back, taken later, renewed.

use tollgate_limit::Charge;
use tollgate_store::Adjustment;

use super::subject::{Home, fixed, fixed_windows, one, places, quotas, receipt, without_leases};
use crate::support::{MINUTE, SECOND};

for_each_store! {
    what_is_given_back_can_be_taken_again,
    whole_cost_is_given_back_and_no_more,
    window_stays_where_the_charge_that_was_given_back_has_opened_it,
    nothing_is_given_back_into_another_window,
    what_has_drained_is_not_given_back,
    part_of_a_cost_can_be_given_back,
    what_is_taken_later_counts_beyond_the_limit,
    place_that_is_given_back_lets_another_in,
    lease_that_is_not_given_back_expires,
    renewed_lease_is_good_for_its_full_time_again,
    lease_that_is_over_is_not_renewed,
}

fn what_is_given_back_can_be_taken_again(home: &Home) {
    let store = home.open();
    for (name, quota) in &quotas(3) {
        let charge = one("alice", name, quota);
        store.take_times(2, &charge);
        let last = store.take(&charge);
        store.deny(&charge);
        store.give_back(&charge, &last);
        assert_eq!(store.used(&charge), 2, "{name}");
        store.take(&charge);
        store.deny(&charge);
    }
}

fn whole_cost_is_given_back_and_no_more(home: &Home) {
    let store = home.open();
    for (name, quota) in &without_leases(10) {
        let charge = |cost| Charge { cost, ..one("alice", name, quota) };
        store.take(&charge(2));
        let outcome = store.take(&charge(5));
        store.give_back(&charge(5), &outcome);
        assert_eq!(store.used(&charge(1)), 2, "{name}");
    }
}

fn window_stays_where_the_charge_that_was_given_back_has_opened_it(home: &Home) {
    let store = home.open();
    let quota = fixed(3);
    let charge = one("alice", "core", &quota);
    let first = store.take(&charge);
    store.advance(SECOND);
    store.give_back(&charge, &first);
    let standing = store.standing(&charge);
    assert_eq!((standing.used, standing.reset), (0, first.standing.reset));
    store.advance(SECOND);
    assert_eq!(store.take(&charge).standing.reset, first.standing.reset);
}

fn nothing_is_given_back_into_another_window(home: &Home) {
    let store = home.open();
    for (name, quota) in &fixed_windows(3) {
        let charge = one("alice", name, quota);
        let begun = store.now();
        let old = store.take(&charge);
        store.set_clock(old.standing.reset);
        store.take(&charge);
        store.give_back(&charge, &old);
        assert_eq!(store.used(&charge), 1, "{name}");
        store.set_clock(begun);
    }
}

fn what_has_drained_is_not_given_back(home: &Home) {
    let store = home.open();
    for (name, quota) in without_leases(3).iter().filter(|(_, quota)| quota.align().is_none()) {
        let charge = one("alice", name, quota);
        let begun = store.now();
        let old = store.take(&charge);
        store.advance(2 * MINUTE);
        store.take_times(2, &charge);
        store.give_back(&charge, &old);
        assert_eq!(store.used(&charge), 2, "{name}");
        store.set_clock(begun);
    }
}

fn part_of_a_cost_can_be_given_back(home: &Home) {
    let store = home.open();
    for (name, quota) in &without_leases(10) {
        let reserve = Charge { cost: 5, ..one("alice", name, quota) };
        let outcome = store.take(&reserve);
        store.give_back(&Charge { cost: 3, ..reserve }, &outcome);
        assert_eq!(store.used(&reserve), 2, "{name}");
    }
}

fn what_is_taken_later_counts_beyond_the_limit(home: &Home) {
    let store = home.open();
    for (name, quota) in &without_leases(2) {
        let charge = one("alice", name, quota);
        let taken = store.take(&charge);
        store.settle(&Charge { cost: 4, ..charge }, &taken, Adjustment::Take);
        let standing = store.standing(&charge);
        assert_eq!((standing.used, standing.remaining), (5, 0), "{name}");
    }
}

fn place_that_is_given_back_lets_another_in(home: &Home) {
    let store = home.open();
    let quota = places(2);
    let charge = one("alice", "inflight", &quota);
    let first = store.take(&charge);
    let _second = store.take(&charge);
    store.deny(&charge);
    // Once, however often it is said.
    (0..2).for_each(|_| store.give_back(&charge, &first));
    store.take(&charge);
    store.deny(&charge);
}

fn lease_that_is_not_given_back_expires(home: &Home) {
    let store = home.open();
    let quota = places(1);
    let charge = one("alice", "inflight", &quota);
    store.take(&charge);
    store.advance(MINUTE - SECOND);
    store.deny(&charge);
    store.advance(SECOND);
    store.take(&charge);
}

fn renewed_lease_is_good_for_its_full_time_again(home: &Home) {
    let store = home.open();
    let quota = places(1);
    let charge = one("alice", "inflight", &quota);
    let lease = store.take(&charge);
    for _ in 0..3 {
        store.advance(MINUTE - SECOND);
        store.settle(&charge, &lease, Adjustment::Renew(receipt(&lease)));
    }
    store.advance(MINUTE - SECOND);
    store.deny(&charge);
    store.advance(SECOND);
    store.take(&charge);
}

fn lease_that_is_over_is_not_renewed(home: &Home) {
    let store = home.open();
    let quota = places(1);
    let charge = one("alice", "inflight", &quota);
    let lease = store.take(&charge);
    store.advance(MINUTE);
    store.settle(&charge, &lease, Adjustment::Renew(receipt(&lease)));
    assert_eq!(store.used(&charge), 0);
}
