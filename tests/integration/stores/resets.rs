//! Counters that are reset: as never used, on every proxy.

use std::slice;

use tollgate_limit::{Charge, Quota};

use super::subject::{Home, Subject, fixed, one, quotas, receipt};
use crate::support::SECOND;

for_each_store! {
    reset_counter_is_as_never_used,
    other_counters_of_the_caller_stay,
    unused_counter_can_be_reset,
    denied_request_passes_at_once_after_a_reset_by_another_worker,
    other_proxy_lets_a_denied_request_pass_after_a_second,
    other_proxy_that_does_its_work_forgets_the_denial_at_once,
    what_is_given_back_late_grants_nothing,
    look_sees_the_latest_count_and_opens_no_window,
}

const LIMIT: u32 = 3;

/// Charges of all of a caller's limits.
fn all<'q>(quotas: &'q [(&'static str, Quota)]) -> Vec<Charge<'q>> {
    quotas.iter().map(|(name, quota)| one("alice", name, quota)).collect()
}

fn use_up(subject: &Subject, charges: &[Charge<'_>]) {
    for charge in charges {
        subject.take_times(LIMIT, charge);
        subject.deny_times(2, charge);
    }
}

fn reset_counter_is_as_never_used(home: &Home) {
    let quotas = quotas(LIMIT);
    let charges = all(&quotas);
    let [used, never_used] = [home.open(), Home::memory().open()];
    use_up(&used, &charges);
    [&used, &never_used].iter().for_each(|subject| subject.advance(7 * SECOND));
    used.reset(&charges);
    assert_eq!(used.standings(&charges), never_used.standings(&charges));
    for charge in &charges {
        assert_eq!(used.take(charge).standing, never_used.take(charge).standing, "{charge:?}");
    }
    used.advance(SECOND);
    for charge in &charges {
        used.take_times(LIMIT - 1, charge);
        used.deny(charge);
    }
}

fn other_counters_of_the_caller_stay(home: &Home) {
    let quotas = quotas(LIMIT);
    let charges = all(&quotas);
    let subject = home.open();
    use_up(&subject, &charges);
    for (at, charge) in charges.iter().enumerate() {
        subject.reset(slice::from_ref(charge));
        subject.take(charge);
        charges[at + 1..].iter().for_each(|other| subject.deny_times(1, other));
        subject.take_times(LIMIT - 1, charge);
    }
    let bob = one("bob", "fixed window", &quotas[0].1);
    subject.take(&bob);
    subject.reset(&charges);
    assert_eq!(subject.used(&bob), 1);
}

fn unused_counter_can_be_reset(home: &Home) {
    let quotas = quotas(LIMIT);
    let charges = all(&quotas);
    let subject = home.open();
    subject.reset(&charges);
    subject.reset(&charges);
    use_up(&subject, &charges);
}

fn denied_request_passes_at_once_after_a_reset_by_another_worker(home: &Home) {
    let quotas = quotas(LIMIT);
    let charges = all(&quotas);
    let worker = home.open();
    let other = worker.other_worker();
    use_up(&worker, &charges);
    other.reset(&charges);
    charges.iter().for_each(|charge| worker.take_times(LIMIT, charge));
    charges.iter().for_each(|charge| other.deny_times(2, charge));
    worker.reset(&charges);
    charges.iter().for_each(|charge| other.take_times(LIMIT, charge));
}

fn other_proxy_lets_a_denied_request_pass_after_a_second(home: &Home) {
    let quotas = quotas(LIMIT);
    let charges = all(&quotas);
    let [proxy, other] = [home.open_one_of(2), home.open_one_of(2)];
    use_up(&proxy, &charges);
    // It remembers these denials.
    charges.iter().for_each(|charge| other.deny_times(2, charge));
    proxy.reset(&charges);
    other.advance(SECOND);
    charges.iter().for_each(|charge| other.take_times(LIMIT, charge));
}

fn other_proxy_that_does_its_work_forgets_the_denial_at_once(home: &Home) {
    let quota = fixed(1);
    let charge = [one("alice", "core", &quota)];
    let [proxy, other] = [home.open_one_of(2), home.open_one_of(2)];
    // What was reset before it began is no news.
    proxy.take(&charge[0]);
    other.deny_times(2, &charge[0]);
    proxy.reset(&charge);
    other.tick_until(|| other.allows(&charge));
}

fn what_is_given_back_late_grants_nothing(home: &Home) {
    let quotas = quotas(LIMIT);
    let charges = all(&quotas);
    let subject = home.open();
    let taken: Vec<_> = charges.iter().map(|charge| subject.take(charge)).collect();
    subject.advance(SECOND);
    subject.reset(&charges);
    for (charge, outcome) in charges.iter().zip(&taken) {
        assert!(receipt(outcome).at <= subject.now() + 24 * 3600 * SECOND);
        subject.give_back(charge, outcome);
        subject.take_times(LIMIT, charge);
        subject.deny(charge);
    }
}

fn look_sees_the_latest_count_and_opens_no_window(home: &Home) {
    let quotas = quotas(LIMIT);
    let charges = all(&quotas);
    let subject = home.open();
    let before = subject.look(&charges);
    assert!(before.iter().all(|standing| standing.used == 0 && standing.remaining == LIMIT));
    subject.advance(7 * SECOND);
    let fresh = Home::memory().open();
    fresh.advance(7 * SECOND);
    for charge in &charges {
        assert_eq!(subject.take(charge).standing, fresh.take(charge).standing, "{charge:?}");
    }
    assert!(subject.look(&charges).iter().all(|standing| standing.used == 1));
    subject.reset(&charges);
    assert!(subject.look(&charges).iter().all(|standing| standing.used == 0));
}
