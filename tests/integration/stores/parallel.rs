//! Many requests at the same time, through one proxy and through several.

use std::thread;

use tollgate::limit::{Charge, Scope, Verdict};

use super::subject::{Home, fixed, one, quotas};

for_each_store! {
    exactly_the_limit_passes_of_requests_in_flight_at_once,
    exactly_the_limit_passes_through_several_proxies,
    never_too_much_passes_when_callers_share_limits,
    parallel_refunds_lose_nothing_and_make_nothing,
}

fn exactly_the_limit_passes_of_requests_in_flight_at_once(home: &Home) {
    let store = home.open();
    for (name, quota) in &quotas(50) {
        let decisions = store.charge_at_once(&[one("alice", name, quota); 80]);
        let passed = decisions.iter().filter(|decision| decision.verdict == Verdict::Allow);
        assert_eq!(passed.count(), 50, "{name}");
    }
}

fn exactly_the_limit_passes_through_several_proxies(home: &Home) {
    let passed: usize = thread::scope(|scope| {
        let proxies: Vec<_> = (0..4).map(|_| scope.spawn(|| count_passing(home))).collect();
        proxies.into_iter().map(|proxy| proxy.join().unwrap()).sum()
    });
    assert_eq!(passed, 9 * 100);
}

/// Charges the limits of one caller 40 times each. Tells how many passed.
fn count_passing(home: &Home) -> usize {
    let store = home.open();
    let all = quotas(100);
    let charges = all.iter().map(|(name, quota)| one("alice", name, quota));
    let requests: Vec<Charge<'_>> = charges.flat_map(|charge| [charge; 40]).collect();
    let decisions = store.charge_at_once(&requests);
    decisions.iter().filter(|decision| decision.verdict == Verdict::Allow).count()
}

/// Limits of several owners may deny when they need not, but they never let too much pass, and
/// leave nothing taken that was denied.
fn never_too_much_passes_when_callers_share_limits(home: &Home) {
    let (own, shared) = (fixed(30), fixed(40));
    let passed: u32 = thread::scope(|scope| {
        let proxies: Vec<_> = ["alice", "bob"]
            .map(|caller| {
                let (own, shared) = (&own, &shared);
                scope.spawn(move || {
                    let store = home.open();
                    let charges = [
                        one(caller, "own", own),
                        Charge { scope: Scope::Shared, ..one("all", "shared", shared) },
                    ];
                    (0..40).filter(|_| store.allows(&charges)).count() as u32
                })
            })
            .into_iter()
            .collect();
        proxies.into_iter().map(|proxy| proxy.join().unwrap()).sum()
    });
    let store = home.open();
    assert!(passed <= 40, "{passed} passed");
    assert_eq!(store.used(&one("all", "shared", &shared)), passed);
    let of = |caller| store.used(&one(caller, "own", &own));
    assert_eq!(of("alice") + of("bob"), passed);
}

fn parallel_refunds_lose_nothing_and_make_nothing(home: &Home) {
    let all = quotas(200);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = home.open();
                for (name, quota) in &all {
                    let charge = one("alice", name, quota);
                    let outcomes: Vec<_> = (0..20).map(|_| store.take(&charge)).collect();
                    outcomes[..15].iter().for_each(|outcome| store.give_back(&charge, outcome));
                }
            });
        }
    });
    let store = home.open();
    for (name, quota) in &all {
        assert_eq!(store.used(&one("alice", name, quota)), 4 * 5, "{name}");
    }
}
