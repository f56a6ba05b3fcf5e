//! Random histories: every store decides as the one in the process does, which is that of the pure
//! functions.

use std::time::Duration;

use proptest::{
    prelude::Rng,
    test_runner::{Config, RngSeed, TestRunner},
};
use tollgate_limit::{Charge, Outcome, Quota, Receipt, Stance, Verdict};
use tollgate_store::Adjustment;

use super::subject::{Home, Subject, one, quotas, receipt};
use crate::support::SECOND;

for_each_store! { any_history_is_decided_as_in_the_process }

const STEPS: usize = 400;

const OWNERS: [&str; 3] = ["alice", "bob", "carol"];

fn any_history_is_decided_as_in_the_process(home: &Home) {
    let config = Config { rng_seed: RngSeed::Fixed(4), ..Default::default() };
    let mut random = TestRunner::new(config).new_rng();
    let mut below = |bound: usize| (random.next_u64() % bound as u64) as usize;
    let process = Home::memory();
    let store = home.open();
    let model = process.open();
    let rates = [quotas(2), quotas(3), quotas(7)];
    let both = [&store, &model];
    let mut taken: Vec<(Charge<'_>, [Outcome; 2])> = Vec::new();
    for step in 0..STEPS {
        let charges = any_charges(&rates, &mut below);
        let actual = store.charge(&charges);
        let expected = model.charge(&charges);
        assert_eq!(actual.verdict, expected.verdict, "step {step}: {charges:?}");
        let outcomes = actual.outcomes.iter().zip(&expected.outcomes);
        for (charge, (actual, expected)) in charges.iter().zip(outcomes) {
            assert_eq!(alike(charge, actual), alike(charge, expected), "step {step}: {charge:?}");
            taken.extend(actual.receipt.map(|_| (*charge, [*actual, *expected])));
        }
        if below(3) == 0 && !taken.is_empty() {
            let (charge, outcomes) = taken.swap_remove(below(taken.len()));
            let kind = below(4);
            for (subject, outcome) in both.into_iter().zip(&outcomes) {
                subject.settle(&charge, outcome, adjustment(kind, &charge, outcome));
            }
        }
        if below(10) == 0 {
            both.iter().for_each(|subject| subject.reset(&charges));
            // What was taken before is given back to no window.
            let is_reset =
                |taken: &Charge<'_>| charges.iter().any(|charge| charge.key == taken.key);
            taken.retain(|(charge, _)| !is_reset(charge));
        }
        if actual.verdict == Verdict::Deny {
            // A proxy may remember a denial for so long, and report it as it was then.
            pass_time(&both, SECOND);
        }
        any_time(&both, &mut below);
    }
}

/// What two stores report alike: all but how the entries of a log and leases are numbered, which
/// one of them may begin anew when it has forgotten what is over.
pub(super) fn alike(charge: &Charge<'_>, outcome: &Outcome) -> Outcome {
    let Outcome { standing, receipt, .. } = outcome;
    let is_numbered = charge.quota.open_receipt(standing, charge.cost, standing.reset).is_none();
    let receipt = receipt.map(|receipt| match is_numbered {
        true => Receipt { number: 0, ..receipt },
        false => receipt,
    });
    Outcome { receipt, ..*outcome }
}

fn adjustment(kind: usize, charge: &Charge<'_>, outcome: &Outcome) -> Adjustment {
    match kind {
        0 => Adjustment::Take,
        1 if charge.quota.holds_leases() => Adjustment::Renew(receipt(outcome)),
        _ => Adjustment::GiveBack(receipt(outcome)),
    }
}

/// Charges of one to three limits of a caller: those of several callers may be decided in turn, and
/// then not quite as if at once.
fn any_charges<'q>(
    rates: &'q [Vec<(&'static str, Quota)>; 3],
    below: &mut impl FnMut(usize) -> usize,
) -> Vec<Charge<'q>> {
    let owner = OWNERS[below(OWNERS.len())];
    let first = below(rates[0].len());
    let charge = |index: usize| {
        let (name, quota) = &rates[below(rates.len())][(first + index) % rates[0].len()];
        let cost = if quota.holds_leases() { 1 } else { below(4) as u32 };
        let stance = if below(5) == 0 { Stance::Observe } else { Stance::Enforce };
        Charge { cost, stance, ..one(owner, name, quota) }
    };
    let count = 1 + first % 3;
    (0..count).map(charge).collect()
}

/// Often none, sometimes a window. Never back: what is over may be forgotten at once, by one store
/// and not by the other.
fn any_time(both: &[&Subject; 2], below: &mut impl FnMut(usize) -> usize) {
    let micros = match below(12) {
        0..4 => 0,
        4..7 => below(1_000_000),
        7..10 => below(30_000_000),
        10 => 60_000_000,
        _ => below(200_000_000),
    };
    pass_time(both, Duration::from_micros(micros as u64));
}

fn pass_time(both: &[&Subject; 2], time: Duration) {
    for subject in both {
        subject.advance(time);
    }
}
