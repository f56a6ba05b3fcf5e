//! Shares, turns and callers of servers with weights.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;

fn shares(weights: &[f64]) -> Weights {
    Weights::new(weights.iter().copied())
}

fn count(choices: impl Iterator<Item = usize>, servers: usize) -> Vec<usize> {
    let mut counts = vec![0; servers];
    choices.for_each(|at| counts[at] += 1);
    counts
}

/// That each has about its share.
fn assert_shares(counts: &[usize], weights: &[f64]) {
    let (all, total): (usize, f64) = (counts.iter().sum(), weights.iter().sum());
    for (count, weight) in counts.iter().zip(weights) {
        let share = *count as f64 / all as f64;
        let expected = weight / total;
        assert!((share - expected).abs() < 0.02, "{counts:?} of {weights:?}");
    }
}

#[test]
fn idle_servers_get_requests_by_weight() {
    for weights in [&[1.0, 1.0, 1.0][..], &[3.0, 1.0], &[5.0, 0.5, 0.5, 4.0]] {
        let shares = shares(weights);
        let choose = |_| shares.less_loaded([chance(), chance()], |_| true, |_| 0).unwrap();
        assert_shares(&count((0..20_000).map(choose), weights.len()), weights);
    }
}

#[test]
fn busier_one_of_two_gets_nothing() {
    let shares = shares(&[1.0, 1.0]);
    for _ in 0..1000 {
        let chosen = shares.less_loaded([chance(), chance()], |_| true, |at| [5, 4][at]);
        assert_eq!(chosen, Some(1));
    }
}

#[test]
fn load_counts_by_weight() {
    let shares = shares(&[10.0, 1.0]);
    for _ in 0..1000 {
        let chosen = shares.less_loaded([chance(), chance()], |_| true, |at| [9, 1][at]);
        assert_eq!(chosen, Some(0));
    }
}

#[test]
fn loads_of_requests_that_last_even_out_by_weight() {
    let weights = [4.0, 2.0, 1.0, 1.0];
    let shares = shares(&weights);
    let mut loads = vec![0; weights.len()];
    for _ in 0..8000 {
        let chosen = shares.less_loaded([chance(), chance()], |_| true, |at| loads[at]).unwrap();
        loads[chosen] += 1;
    }
    assert_shares(&loads, &weights);
}

#[test]
fn turns_are_taken_by_weight_and_far_apart() {
    for (weights, expected) in [
        (&[1.0, 1.0, 1.0][..], &[0, 1, 2][..]),
        (&[3.0, 1.0], &[0, 0, 1, 0]),
        (&[0.5, 0.5, 1.0], &[2, 0, 1, 2]),
        (&[2.0, 2.0], &[0, 1]),
        (&[7.0], &[0]),
    ] {
        let order: Vec<usize> =
            Schedule::new(&shares(weights)).0.iter().map(|at| *at as usize).collect();
        assert_eq!(order, expected, "{weights:?}");
    }
}

#[test]
fn who_misses_a_turn_leaves_even_shares_to_the_others() {
    let schedule = Schedule::new(&shares(&[1.0, 1.0, 1.0]));
    let turn = AtomicUsize::new(0);
    let next = |_| schedule.next(|| turn.fetch_add(1, Ordering::Relaxed), |at| at != 1).unwrap();
    let taken: Vec<usize> = (0..6).map(next).collect();
    assert_eq!(taken, [0, 2, 0, 2, 0, 2]);
}

#[test]
fn callers_are_shared_by_weight() {
    let weights = [1.0, 2.0, 1.0];
    let shares = shares(&weights);
    let choose = |caller: u128| shares.rendezvous(wide(caller), name, |_| true).unwrap();
    assert_shares(&count((0..20_000).map(choose), 3), &weights);
}

/// Callers' hashes are as wide as a hash.
fn wide(number: u128) -> u128 {
    u128::from(mix(number as u64 + 1)) << 64 | u128::from(mix(number as u64 + (1 << 32)))
}

fn name(at: usize) -> u64 {
    mix(at as u64 + 1000)
}

fn weights() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec((1_u32..=1000).prop_map(f64::from), 1..12)
}

proptest! {
    #[test]
    fn prop_only_who_is_eligible_is_chosen(
        weights in weights(),
        mask: u16,
        chances: [u64; 2],
        caller: u128,
    ) {
        let shares = shares(&weights);
        let schedule = Schedule::new(&shares);
        let is_eligible = |at: usize| mask & (1 << at) != 0;
        let turn = Cell::new(chances[0] as usize);
        let choices = [
            shares.less_loaded(chances, is_eligible, |_| 0),
            shares.rendezvous(caller, name, is_eligible),
            schedule.next(|| turn.replace(turn.get().wrapping_add(1)), is_eligible),
        ];
        let is_anybody = (0..weights.len()).any(is_eligible);
        for choice in choices {
            prop_assert_eq!(choice.is_some(), is_anybody);
            prop_assert!(choice.is_none_or(is_eligible));
        }
    }

    #[test]
    fn prop_only_callers_of_a_server_that_goes_away_get_another(
        weights in weights(),
        gone: usize,
        callers in prop::collection::vec(any::<u128>(), 1..50),
    ) {
        let shares = shares(&weights);
        let gone = gone % weights.len();
        for caller in callers {
            let before = shares.rendezvous(caller, name, |_| true).unwrap();
            let after = shares.rendezvous(caller, name, |at| at != gone);
            if before != gone {
                prop_assert_eq!(after, Some(before));
            }
        }
    }

    #[test]
    fn prop_turns_are_as_many_as_weights_say(weights in weights()) {
        let schedule = Schedule::new(&shares(&weights));
        let counts = count(schedule.0.iter().map(|at| *at as usize), weights.len());
        let turns = schedule.0.len() as f64;
        let total = weights.iter().sum::<f64>();
        for (count, weight) in counts.iter().zip(&weights) {
            let expected = weight / total * turns;
            prop_assert!((*count as f64 - expected).abs() <= 1.0 + expected * 0.01);
        }
    }
}
