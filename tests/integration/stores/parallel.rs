//! Many requests at the same time, through one proxy and through several.

use std::{sync::Barrier, thread};

use tollgate_limit::{Charge, Decision, Quota, Scope, Verdict};

use super::subject::{Home, fixed, one, quotas};

for_each_store! {
    exactly_the_limit_passes_of_requests_in_flight_at_once,
    exactly_the_limit_passes_through_several_proxies,
    never_too_much_passes_when_callers_share_limits,
    exactly_the_limit_passes_of_requests_with_several_owners,
    never_too_much_passes_of_requests_with_several_owners_through_several_proxies,
    parallel_refunds_lose_nothing_and_make_nothing,
}

fn exactly_the_limit_passes_of_requests_in_flight_at_once(home: &Home) {
    let store = home.open();
    for (name, quota) in &quotas(50) {
        let decisions = store.charge_at_once([&[one("alice", name, quota)][..]; 80]);
        assert_eq!(passed(&decisions), 50, "{name}");
    }
}

fn exactly_the_limit_passes_through_several_proxies(home: &Home) {
    let passed: usize = thread::scope(|scope| {
        let proxies: Vec<_> = (0..4).map(|_| scope.spawn(|| count_passing(home))).collect();
        proxies.into_iter().map(|proxy| proxy.join().unwrap()).sum()
    });
    assert_eq!(passed, quotas(100).len() * 100);
}

/// Charges the limits of one caller 40 times each. Returns how many passed.
fn count_passing(home: &Home) -> usize {
    let store = home.open();
    let all = quotas(100);
    let charges = all.iter().map(|(name, quota)| one("alice", name, quota));
    let requests: Vec<Charge<'_>> = charges.flat_map(|charge| [charge; 40]).collect();
    passed(&store.charge_at_once(requests.chunks(1)))
}

/// Limits of several owners may deny when they need not, but they never let too much pass, and
/// leave nothing taken that was denied.
fn never_too_much_passes_when_callers_share_limits(home: &Home) {
    let own = fixed(30);
    let shared = fixed(40);
    let passed: u32 = thread::scope(|scope| {
        let proxies: Vec<_> = ["alice", "bob"]
            .map(|caller| {
                let own = &own;
                let shared = &shared;
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

/// Owners of the limits of a request, in the order of their charges.
const OWNERS: [(&str, Scope); 3] =
    [("alice", Scope::Caller), ("1.2.3.4", Scope::Address), ("/page", Scope::Shared)];

/// By each algorithm in turn, a charge to each of the owners. Each of them has the least in turn.
fn charges_of_owners<'q>(
    quotas: &'q [Vec<(&'static str, Quota)>; 3],
) -> Vec<(&'static str, [Charge<'q>; 3])> {
    let charges = |index: usize| {
        let (name, _) = quotas[0][index];
        let charge = |owner: usize| {
            let (who, scope) = OWNERS[owner];
            let (_, quota) = &quotas[(owner + index) % 3][index];
            Charge { scope, ..one(&format!("{who} of the {name}"), name, quota) }
        };
        (name, [0, 1, 2].map(charge))
    };
    (0..9).map(charges).collect()
}

fn passed(decisions: &[Decision]) -> usize {
    decisions.iter().filter(|decision| decision.verdict == Verdict::Allow).count()
}

/// What some owners took of requests that another one denies is not missing to those that it
/// admits.
fn exactly_the_limit_passes_of_requests_with_several_owners(home: &Home) {
    let store = home.open();
    let quotas = [200, 250, 400].map(quotas);
    for (name, charges) in charges_of_owners(&quotas) {
        assert_eq!(passed(&store.charge_at_once([&charges[..]; 300])), 200, "{name}");
        let used = charges.each_ref().map(|charge| store.used(charge));
        assert_eq!(used, [200; 3], "{name}");
    }
}

/// No proxy knows what the others are about to take: requests may be denied that need not have
/// been.
fn never_too_much_passes_of_requests_with_several_owners_through_several_proxies(home: &Home) {
    const PROXIES: usize = 3;
    let quotas = [200, 250, 400].map(quotas);
    let start = Barrier::new(PROXIES);
    let count = || {
        let store = home.open_one_of(PROXIES);
        let count = |(_, charges): &(_, [Charge<'_>; 3])| {
            start.wait();
            passed(&store.charge_at_once([&charges[..]; 100]))
        };
        charges_of_owners(&quotas).iter().map(count).collect()
    };
    let counts: Vec<Vec<usize>> = thread::scope(|scope| {
        let proxies = [(); PROXIES].map(|()| scope.spawn(count));
        proxies.into_iter().map(|proxy| proxy.join().unwrap()).collect()
    });
    let store = home.open();
    for (index, (name, charges)) in charges_of_owners(&quotas).iter().enumerate() {
        let passed: usize = counts.iter().map(|counts| counts[index]).sum();
        assert!(passed <= 200, "{name}: {passed}");
        let used = charges.each_ref().map(|charge| store.used(charge));
        assert_eq!(used, [passed as u32; 3], "{name}");
    }
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
