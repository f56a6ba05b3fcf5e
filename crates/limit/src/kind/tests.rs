//! Counts: their shares, and what they become again.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);

fn four() -> NonZeroU32 {
    NonZeroU32::new(4).unwrap()
}

/// Takes five units of `whole`. Returns how many of them a quarter uses of its share, and the
/// capacity of that.
fn quarter<A: Algorithm<State: StateVariant>>(whole: &A) -> [u32; 2] {
    let part = whole.share(four());
    let mut state = A::State::default();
    let mut share = A::State::default();
    whole.take(&mut state, 5, NOW);
    state.to_count().share(four()).store_in(&mut share);
    for minutes in 0..180 {
        let then = NOW + Duration::from_secs(60 * minutes);
        assert_eq!(share.is_over(then), state.is_over(then), "after {minutes} minutes");
    }
    [part.standing(&share, NOW).used, part.capacity()]
}

#[test]
fn shares_are_rounded_up_and_end_when_the_whole_does() {
    for kind in AlgorithmKind::ALL.into_iter().filter(|kind| !kind.holds_leases()) {
        let quota = Quota::plain(kind, 10, HOUR).unwrap();
        let found = with_algorithm!(&quota, whole => quarter(whole));
        assert_eq!(found, [2, 3], "{quota:?}");
    }
}

#[test]
fn no_caller_is_locked_out_of_a_share() {
    let many = NonZeroU32::MAX;
    let quota = Quota::Concurrency(Concurrency { limit: 7, lease: HOUR, retry_after: HOUR });
    assert_eq!(quota.share(many).capacity(), 1);
    let quota = Quota::Gcra(Gcra::new(7, HOUR, 20, 1).unwrap());
    assert_eq!(quota.share(many).capacity(), 1);
}

#[test]
fn count_of_another_algorithm_changes_nothing() {
    let mut window = Window { used: 3, reset: NOW };
    Count::Gcra(Level::default()).store_in(&mut window);
    assert_eq!(window, Window { used: 3, reset: NOW });
    let mut leases = Leases::default();
    Count::Concurrency(3).store_in(&mut leases);
    assert_eq!(leases, Leases::default());
}

proptest! {
    #[test]
    fn prop_all_shares_together_hold_no_less_than_the_whole(used: u32, instances: u32) {
        let instances = NonZeroU32::new(instances.max(1)).unwrap();
        let window = Window { used, reset: NOW };
        let Count::FixedWindow(part) = window.to_count().share(instances) else {
            unreachable!()
        };
        let all = u64::from(part.used) * u64::from(instances.get());
        prop_assert!(all >= used.into() && part.used <= used);
        prop_assert_eq!(part.reset, window.reset);
    }

    #[test]
    fn prop_log_of_a_count_frees_nothing_early(
        costs in prop::collection::vec((0..2_000_000_u64, 1..4_u32), 1..8), wait in 0..6_u64,
    ) {
        let quota = SlidingLog { limit: 9, window: Duration::from_secs(3) };
        let mut log = Log::default();
        let mut now = NOW;
        for (advance, cost) in costs {
            now = now + Duration::from_micros(advance);
            if quota.admits(&log, cost, now) {
                quota.take(&mut log, cost, now);
            }
        }
        let copy = Log::of_count(&log.count()).unwrap();
        let later = now + Duration::from_secs(wait);
        let [original, copied] = [&log, &copy].map(|log| quota.standing(log, later));
        prop_assert!(copied.used >= original.used);
        prop_assert!(copied.reset >= original.reset);
        prop_assert_eq!(copy.is_over(later), log.is_over(later));
    }
}
