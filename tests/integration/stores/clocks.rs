//! Clocks that are wrong.

use std::time::Duration;

use tollgate_limit::{Quota, Verdict};

use super::subject::{Home, fixed, one, places, quotas};
use crate::support::{HOUR, MINUTE, SECOND};

for_each_store! {
    clock_that_is_a_little_behind_gives_nothing_back,
    clock_that_was_wrong_by_a_day_denies_for_no_day,
    proxies_with_skewed_clocks_share_one_window,
    proxies_whose_clocks_are_apart_let_no_more_through_by_taking_turns,
}

fn clock_that_is_a_little_behind_gives_nothing_back(home: &Home) {
    let store = home.open();
    for (name, quota) in &quotas(2) {
        let charge = one("alice", name, quota);
        store.take_times(2, &charge);
        store.turn_back(3 * SECOND);
        store.deny(&charge);
        assert_eq!(store.used(&charge), 2, "{name}");
        store.advance(3 * SECOND);
    }
}

fn clock_that_was_wrong_by_a_day_denies_for_no_day(home: &Home) {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let store = home.open();
    for (name, quota) in &quotas(2) {
        let charge = one("alice", name, quota);
        store.advance(DAY);
        store.take_times(2, &charge);
        store.turn_back(DAY);
        // What was used stays used for now.
        store.deny(&charge);
        // The longest is the hour of the calendar, and two refills come in as many minutes.
        store.advance(2 * HOUR);
        store.take(&charge);
        store.turn_back(2 * HOUR);
    }
}

fn proxies_with_skewed_clocks_share_one_window(home: &Home) {
    let first = home.open();
    let second = home.open();
    second.turn_back(2 * SECOND);
    let all: [Quota; 2] = [fixed(6), places(6)];
    for (name, quota) in ["core", "inflight"].into_iter().zip(&all) {
        let charge = one("alice", name, quota);
        let opened = first.take(&charge).standing;
        for used in [2, 4] {
            let later_standing = second.take(&charge).standing;
            assert_eq!(
                (later_standing.used, first.take(&charge).standing.used),
                (used, used + 1),
                "{name}"
            );
            if name == "core" {
                assert_eq!(later_standing.reset, opened.reset);
            }
        }
        second.take(&charge);
        first.deny(&charge);
        second.deny(&charge);
    }
    first.advance(MINUTE);
    second.advance(MINUTE + 2 * SECOND);
    first.take(&one("alice", "core", &all[0]));
}

fn proxies_whose_clocks_are_apart_let_no_more_through_by_taking_turns(home: &Home) {
    for seconds in [2, 6, 60] {
        let ahead = home.open();
        let behind = home.open();
        behind.turn_back(seconds * SECOND);
        for (begins, order) in [("ahead", [&ahead, &behind]), ("behind", [&behind, &ahead])] {
            for (name, quota) in &quotas(20) {
                if quota.holds_leases() {
                    continue;
                }
                let caller = format!("{begins}-{seconds}");
                let charge = one(&caller, name, quota);
                let decisions = (0..100).map(|turn| order[turn % 2].charge(&[charge]).verdict);
                let passed = decisions.filter(|verdict| *verdict == Verdict::Allow).count();
                // By the clock that is ahead, so much time has gone by when its turn comes.
                let most = if begins == "ahead" { 20 } else { 40 };
                assert!((20..=most).contains(&passed), "{passed} by {name}, {seconds} s, {begins}");
            }
        }
    }
}
