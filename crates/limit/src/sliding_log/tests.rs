use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::suite::{self, START, Subject, decide};

impl Subject for SlidingLog {
    fn memory(&self) -> Duration {
        self.window
    }

    fn with_capacity(&self, capacity: u32) -> SlidingLog {
        SlidingLog { limit: capacity, ..self.clone() }
    }

    fn take_apart(&self, log: &mut Log, cost: u32, now: Timestamp) {
        self.with_capacity(SlidingLog::MAX_LIMIT).take(log, cost, now);
    }
}

impl suite::apart::Bounded for SlidingLog {
    fn most(&self, span: Duration) -> u64 {
        suite::apart::in_windows(self.limit, self.window, span)
    }

    fn window(&self) -> Duration {
        self.window
    }
}

fn any_sliding_log() -> impl Strategy<Value = SlidingLog> {
    let millis = prop_oneof![1_u64..20_000, (1_u64..20).prop_map(|seconds| seconds * 1000)];
    (0_u32..12, millis)
        .prop_map(|(limit, millis)| SlidingLog { limit, window: Duration::from_millis(millis) })
}

suite::property_tests! { any_sliding_log() }

mod apart {
    use super::*;

    suite::property_tests! { any_sliding_log() => [prop_clocks_that_are_apart_count_once] }
}

#[test]
fn decisions_equal_the_model() {
    suite::assert_equals_model(|numbers| {
        let limit = numbers.below(12) as u32;
        let quota =
            SlidingLog { limit, window: Duration::from_micros(numbers.below(20_000_000) + 1) };
        (quota.clone(), Model { quota, units: Vec::new(), charges: 0 })
    });
}

/// The time of each unit that was ever taken, with the charge it is of.
struct Model {
    quota: SlidingLog,
    units: Vec<(Timestamp, usize)>,
    charges: usize,
}

impl Model {
    /// Times of the units that count at `now`.
    fn live(&self, now: Timestamp) -> Vec<Timestamp> {
        let times = self.units.iter().map(|(at, _)| *at);
        times.filter(|at| *at + self.quota.window > now).collect()
    }

    /// The first instant at which no more than `units` count.
    fn falls_to(&self, units: u32, now: Timestamp) -> Timestamp {
        let live = self.live(now);
        match live.len().checked_sub(units as usize + 1) {
            Some(last_to_leave) => live[last_to_leave] + self.quota.window,
            None => now,
        }
    }
}

impl suite::Model for Model {
    fn admits(&self, cost: u32, now: Timestamp) -> bool {
        self.live(now).len() + cost as usize <= self.quota.limit as usize
    }

    fn take(&mut self, cost: u32, now: Timestamp) {
        self.units.extend((0..cost).map(|_| (now, self.charges)));
        self.charges += 1;
    }

    fn give_back(&mut self, index: usize, _now: Timestamp) {
        self.units.retain(|(_, charge)| *charge != index);
    }

    fn standing(&self, now: Timestamp) -> Standing {
        let limit = self.quota.limit;
        let used = self.live(now).len() as u32;
        let reset = self.falls_to(0, now);
        let next = match limit {
            0 => now + self.quota.window,
            _ => self.falls_to(limit - 1, now),
        };
        Standing { limit, remaining: limit - used, used, reset, next, retry: Retry::Now }
    }

    fn retry(&self, cost: u32, now: Timestamp) -> Retry {
        match self.quota.limit.checked_sub(cost) {
            Some(room) => Retry::At(self.falls_to(room, now)),
            None => Retry::Never,
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn limit_holds_in_every_window_and_has_no_edge() {
    let quota = SlidingLog { limit: 3, window: 10 * SECOND };
    let mut log = Log::default();
    let admitted: Vec<u32> =
        (0..30).filter(|second| decide(&quota, &mut log, 1, START + *second * SECOND).0).collect();
    assert_eq!(admitted, [0, 1, 2, 10, 11, 12, 20, 21, 22]);
}

#[test]
fn what_is_taken_beyond_the_limit_counts_in_bounded_memory() {
    let quota = SlidingLog { limit: 4, window: 10 * SECOND };
    let mut log = Log::default();
    for millis in 0..1000 {
        quota.take(&mut log, 2, START + Duration::from_millis(millis));
    }
    assert_eq!(log.entries.len(), 4);
    let now = START + SECOND;
    assert_eq!(quota.standing(&log, now).used, 2000);
    let last = START + Duration::from_millis(999);
    assert_eq!(quota.retry(&log, 1, now), Retry::At(last + quota.window));
}

#[test]
fn refund_of_a_charge_that_another_joined_gives_nothing_back_too_early() {
    let quota = SlidingLog { limit: 1, window: 10 * SECOND };
    let mut log = Log::default();
    let first = quota.take(&mut log, 1, START);
    let joined = quota.take(&mut log, 1, START + SECOND);
    let before = log.clone();
    quota.give_back(&mut log, first, 1, START + SECOND);
    assert_eq!(log, before);
    quota.give_back(&mut log, joined, 1, START + SECOND);
    assert_eq!(quota.standing(&log, START + SECOND).used, 1);
}

/// A store may drop a log that is over, and start one anew with the same numbers.
#[test]
fn refund_of_a_charge_of_a_former_log_changes_nothing() {
    let quota = SlidingLog { limit: 2, window: SECOND };
    let receipt = quota.take(&mut Log::default(), 1, START);
    let mut log = Log::default();
    assert_eq!(quota.take(&mut log, 1, START + SECOND).number, receipt.number);
    let before = log.clone();
    quota.give_back(&mut log, receipt, 1, START + SECOND);
    assert_eq!(log, before);
}

#[test]
fn look_leaves_what_has_left_and_a_charge_drops_it() {
    let quota = SlidingLog { limit: 5, window: SECOND };
    let mut log = Log::default();
    for _ in 0..5 {
        quota.take(&mut log, 1, START);
    }
    assert_eq!(quota.standing(&log, START + SECOND).used, 0);
    assert_eq!(log.entries.len(), 5);
    quota.take(&mut log, 1, START + SECOND);
    assert_eq!((log.entries.len(), log.units), (1, 1));
}

#[test]
fn clock_that_went_back_a_day_is_healed_by_a_denial() {
    let quota = SlidingLog { limit: 2, window: 10 * SECOND };
    let mut log = Log::default();
    let tomorrow = START + Duration::from_secs(86_400);
    quota.take(&mut log, 1, tomorrow);
    quota.take(&mut log, 1, tomorrow + SECOND);
    assert_eq!(quota.standing(&log, START).next, START + quota.window);
    assert!(!decide(&quota, &mut log, 1, START).0);
    assert!(decide(&quota, &mut log.clone(), 2, START + quota.window).0);
    assert!(log.is_over(START + quota.window));
}

proptest! {
    #[test]
    fn prop_joined_logs_count_the_greater_of_both_at_any_time(
        charges in prop::collection::vec((0..900_000_u64, 1..3_u32, 0..4_u8, 0..3_000_u64), 0..20),
        wait in 0..12_000_000_u64,
    ) {
        let quota = SlidingLog { limit: 100, window: Duration::from_secs(6) };
        let mut ours = Log::default();
        let mut theirs = Log::default();
        let mut now = START;
        for (advance, cost, who, late) in charges {
            now = now + Duration::from_micros(advance);
            // Some are charged in both, where the clocks may differ; some are missed by one.
            if who != 0 {
                quota.take(&mut ours, cost, now);
            }
            if who != 1 {
                quota.take(&mut theirs, cost, now + Duration::from_micros(late));
            }
        }
        now = now + Duration::from_millis(3);
        let mut joined = ours.clone();
        let is_more = quota.join(&mut joined, &theirs, now);
        let [mine, their] = [&ours, &theirs].map(|log| quota.standing(log, now).used);
        prop_assert_eq!(is_more, their > mine);
        for at in [now, now + Duration::from_micros(wait), now + quota.window] {
            let [joined, mine, their] =
                [&joined, &ours, &theirs].map(|log| quota.standing(log, at).used);
            prop_assert_eq!(joined, mine.max(their), "at {:?}", at);
        }
    }
}

#[test]
fn charge_that_both_logs_have_is_given_back_once_they_are_joined() {
    let quota = SlidingLog { limit: 10, window: Duration::from_secs(60) };
    let mut ours = Log::default();
    let mut theirs = Log::default();
    for seconds in 0..5 {
        quota.take(&mut theirs, 1, START + Duration::from_secs(seconds));
    }
    let second = Duration::from_secs(1);
    let early = quota.take(&mut ours, 1, START + 6 * second);
    let late = quota.take(&mut ours, 2, START + 7 * second);
    assert!(quota.join(&mut ours, &theirs, START + 8 * second));
    // Three of the five are taken for what is here already.
    let used = |log: &Log| quota.standing(log, START + 8 * second).used;
    assert_eq!(used(&ours), 5);
    quota.give_back(&mut ours, late, 2, START + 8 * second);
    assert_eq!(used(&ours), 3);
    quota.give_back(&mut ours, early, 1, START + 8 * second);
    assert_eq!(used(&ours), 2);
    quota.give_back(&mut ours, early, 1, START + 8 * second);
    assert_eq!(used(&ours), 2);
}

#[test]
fn joined_log_has_no_more_entries_than_the_limit() {
    let quota = SlidingLog { limit: 5, window: Duration::from_secs(60) };
    let mut ours = Log::default();
    let mut theirs = Log::default();
    for number in 0..5 {
        let at = START + Duration::from_millis(number);
        quota.take(&mut ours, 3, at);
        quota.take(&mut theirs, 2, at + Duration::from_micros(10));
    }
    quota.join(&mut ours, &theirs, START);
    assert!(ours.entries.len() <= 5, "{ours:?}");
    assert_eq!(quota.standing(&ours, START).used, 15);
}
