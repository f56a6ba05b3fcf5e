//! Several limits of a request: all are taken, or none.

use tollgate_limit::{Charge, Quota, Scope, Stance, Verdict};

use super::subject::{Home, Subject, fixed, one, quotas};

for_each_store! {
    denied_request_takes_nothing_from_any_limit_of_its_caller,
    denied_request_takes_nothing_from_other_callers_limits,
    denied_request_opens_no_window,
    all_limits_that_deny_are_reported,
    observed_charge_counts_and_never_denies,
    observed_charge_of_a_denied_request_is_not_taken,
}

/// Charges three limits, one of which has nothing left, in every order.
fn assert_nothing_is_taken(store: &Subject, charges: [Charge<'_>; 3]) {
    let [wide, other, tight] = charges;
    assert!(store.allows(&charges));
    let before = store.standings(&charges);
    for order in [[wide, other, tight], [tight, wide, other], [other, tight, wide]] {
        let decision = store.charge(&order);
        assert_eq!(decision.verdict, Verdict::Deny, "{order:?}");
        assert!(decision.outcomes.iter().all(|outcome| outcome.receipt.is_none()), "{order:?}");
        assert_eq!(store.standings(&charges), before, "{order:?}");
    }
}

fn denied_request_takes_nothing_from_any_limit_of_its_caller(home: &Home) {
    let store = home.open();
    let single = fixed(1);
    let nine = fixed(9);
    for (name, quota) in &quotas(5) {
        let owner = format!("alice of the {name}");
        let charge = |limit, quota| one(&owner, limit, quota);
        assert_nothing_is_taken(
            &store,
            [charge("wide", quota), charge("other", &nine), charge("tight", &single)],
        );
    }
}

fn denied_request_takes_nothing_from_other_callers_limits(home: &Home) {
    let store = home.open();
    let single = fixed(1);
    let nine = fixed(9);
    // The one that denies is the first to be charged, or the last.
    for scopes in [[Scope::Address, Scope::Caller], [Scope::Shared, Scope::Address]] {
        for (name, quota) in &quotas(5) {
            let charge = |owner: &str, quota, scope| Charge {
                scope,
                ..one(&format!("{owner} {name} {scopes:?}"), name, quota)
            };
            assert_nothing_is_taken(
                &store,
                [
                    charge("alice", quota, scopes[0]),
                    charge("1.2.3.4", &nine, scopes[1]),
                    charge("all", &single, Scope::Shared),
                ],
            );
        }
    }
}

fn denied_request_opens_no_window(home: &Home) {
    let store = home.open();
    let none = fixed(0);
    for (name, quota) in &quotas(5) {
        let charge = one("alice", name, quota);
        let fresh = store.standing(&charge);
        assert!(!store.allows(&[charge, one("alice", "none", &none)]));
        assert_eq!(store.standing(&charge), fresh, "{name}");
    }
}

fn all_limits_that_deny_are_reported(home: &Home) {
    let store = home.open();
    let one_left = fixed(2);
    let none_left = fixed(1);
    let charge = |limit, quota| one("alice", limit, quota);
    let charges =
        [charge("first", &none_left), charge("second", &one_left), charge("third", &none_left)];
    assert!(store.allows(&charges));
    let decision = store.charge(&charges);
    let fits: Vec<bool> = decision.outcomes.iter().map(|outcome| outcome.fits()).collect();
    assert_eq!(fits, [false, true, false]);
}

fn observed_charge_counts_and_never_denies(home: &Home) {
    let store = home.open();
    let nine = fixed(9);
    for (name, quota) in &quotas(2) {
        let owner = format!("alice of the {name}");
        let observed = Charge { stance: Stance::Observe, ..one(&owner, "observed", quota) };
        let charges = [one(&owner, "core", &nine), observed];
        for request in 1..=4 {
            let decision = store.charge(&charges);
            assert_eq!(decision.verdict, Verdict::Allow, "{name}");
            assert_eq!(decision.outcomes[1].fits(), request <= 2, "{name}, request {request}");
        }
        let used = store.standings(&charges).iter().map(|standing| standing.used).sum::<u32>();
        assert_eq!(used, 4 + 2, "{name}");
    }
}

fn observed_charge_of_a_denied_request_is_not_taken(home: &Home) {
    let store = home.open();
    let (none, quota): (Quota, Quota) = (fixed(0), fixed(2));
    for (caller, address) in [("alice", "alice"), ("bob", "1.2.3.4")] {
        let observed = Charge {
            stance: Stance::Observe,
            scope: Scope::Address,
            ..one(address, "observed", &quota)
        };
        assert!(!store.allows(&[observed, one(caller, "none", &none)]));
        assert_eq!(store.used(&observed), 0);
    }
}
