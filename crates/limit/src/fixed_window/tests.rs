use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::Calendar;
use crate::suite::{self, START, Subject, before, decide};

impl Subject for FixedWindow {
    const ANCHORED: bool = true;

    fn memory(&self) -> Duration {
        self.align.max_length()
    }

    fn with_capacity(&self, capacity: u32) -> FixedWindow {
        FixedWindow { limit: capacity, ..self.clone() }
    }
}

impl suite::apart::Bounded for FixedWindow {
    fn most(&self, span: Duration) -> u64 {
        suite::apart::in_windows(self.limit, self.align.max_length(), span)
    }

    fn window(&self) -> Duration {
        self.align.max_length()
    }
}

fn any_fixed_window() -> impl Strategy<Value = FixedWindow> {
    let millis = prop_oneof![1_u64..20_000, (1_u64..20).prop_map(|seconds| seconds * 1000)];
    (0_u32..12, millis, any::<bool>()).prop_map(|(limit, millis, aligned)| {
        let align = if aligned { Align::Epoch } else { Align::FirstRequest };
        FixedWindow { limit, align: align(Duration::from_millis(millis)) }
    })
}

suite::property_tests! { any_fixed_window() }

mod apart {
    use super::*;

    suite::property_tests! { any_fixed_window() => [prop_clocks_that_are_apart_count_once] }
}

#[test]
fn decisions_equal_the_model() {
    suite::assert_equals_model(|numbers| {
        let window = Duration::from_millis(numbers.below(20_000) + 1);
        let align = if numbers.below(2) == 0 { Align::Epoch } else { Align::FirstRequest };
        let quota = FixedWindow { limit: numbers.below(12) as u32, align: align(window) };
        (quota.clone(), Model { quota, charges: Vec::new() })
    });
}

/// All charges that there ever were; each look goes through them again from the first.
struct Model {
    quota: FixedWindow,
    charges: Vec<(Timestamp, u32)>,
}

impl Model {
    /// The end of the window of `now`, and the charges in it.
    fn window(&self, now: Timestamp) -> (Timestamp, Vec<u32>) {
        let length = self.quota.align.max_length();
        let opened_by = |first: Timestamp| match self.quota.align {
            Align::FirstRequest(_) => first,
            _ => {
                before(first, Duration::from_micros(first.as_micros() % length.as_micros() as u64))
            }
        };
        let mut end = Timestamp::default();
        let mut costs = Vec::new();
        for (at, cost) in self.charges.iter().chain([&(now, 0)]) {
            if *at >= end {
                (end, costs) = (opened_by(*at) + length, Vec::new());
            }
            costs.push(*cost);
        }
        (end, costs)
    }

    fn used(&self, now: Timestamp) -> u32 {
        self.window(now).1.iter().sum()
    }
}

impl suite::Model for Model {
    fn admits(&self, cost: u32, now: Timestamp) -> bool {
        self.used(now) + cost <= self.quota.limit
    }

    fn take(&mut self, cost: u32, now: Timestamp) {
        self.charges.push((now, cost));
    }

    fn give_back(&mut self, index: usize, _now: Timestamp) {
        self.charges[index].1 = 0;
    }

    fn standing(&self, now: Timestamp) -> Standing {
        let limit = self.quota.limit;
        let used = self.used(now);
        let reset = self.window(now).0;
        let next = if self.admits(1, now) { now } else { reset };
        Standing { limit, remaining: limit - used, used, reset, next, retry: Retry::Now }
    }

    fn retry(&self, cost: u32, now: Timestamp) -> Retry {
        if cost > self.quota.limit { Retry::Never } else { Retry::At(self.window(now).0) }
    }
}

const MINUTE: Duration = Duration::from_secs(60);

fn from_first_request(limit: u32) -> FixedWindow {
    FixedWindow { limit, align: Align::FirstRequest(MINUTE) }
}

#[test]
fn reset_is_fixed_by_the_first_charge() {
    let quota = from_first_request(3);
    let mut window = Window::default();
    for step in 0..5 {
        let now = START + step * Duration::from_millis(700);
        let (_, standing, _) = decide(&quota, &mut window, 1, now);
        assert_eq!(standing.reset, START + MINUTE);
    }
}

#[test]
fn look_opens_no_window() {
    let quota = from_first_request(3);
    let mut window = Window::default();
    decide(&quota, &mut window, 0, START);
    assert_eq!(window, Window::default());
    let (_, standing, _) = decide(&quota, &mut window, 1, START + MINUTE);
    assert_eq!(standing.reset, START + 2 * MINUTE);
}

#[test]
fn aligned_windows_end_for_all_at_once() {
    let quota = FixedWindow { limit: 3, align: Align::Epoch(MINUTE) };
    let end = Timestamp::from_secs(1_790_000_040);
    for ahead in [Duration::from_micros(1), Duration::from_secs(59), MINUTE] {
        let mut window = Window::default();
        let (_, standing, _) = decide(&quota, &mut window, 1, before(end, ahead));
        assert_eq!(standing.reset, end);
    }
    let (_, standing, _) = decide(&quota, &mut Window::default(), 1, end);
    assert_eq!(standing.reset, end + MINUTE);
}

#[test]
fn raising_a_limit_keeps_the_count_and_the_reset() {
    let mut window = Window::default();
    decide(&from_first_request(3), &mut window, 3, START);
    let now = START + MINUTE / 2;
    let (allowed, standing, _) = decide(&from_first_request(10), &mut window, 1, now);
    assert!(allowed);
    assert_eq!((standing.used, standing.remaining), (4, 6));
    assert_eq!(standing.reset, START + MINUTE);
}

#[test]
fn lowering_a_limit_below_what_was_used_denies_until_reset() {
    let mut window = Window::default();
    decide(&from_first_request(5), &mut window, 5, START);
    let now = START + MINUTE / 2;
    let (allowed, standing, _) = decide(&from_first_request(2), &mut window, 1, now);
    assert!(!allowed);
    assert_eq!((standing.used, standing.remaining), (5, 0));
    assert_eq!(standing.retry, Retry::At(START + MINUTE));
}

#[test]
fn zero_limit_denies_always() {
    let (allowed, standing, _) = decide(&from_first_request(0), &mut Window::default(), 1, START);
    assert!(!allowed);
    assert_eq!((standing.retry, standing.remaining, standing.used), (Retry::Never, 0, 0));
}

#[test]
fn clock_that_went_back_a_day_is_healed_by_a_denial() {
    let quota = from_first_request(3);
    let mut window = Window::default();
    decide(&quota, &mut window, 3, START + Duration::from_secs(86_400));
    let (allowed, ..) = decide(&quota, &mut window, 1, START);
    assert!(!allowed);
    assert_eq!(window, Window { used: 3, reset: START + MINUTE });
}

#[test]
fn clock_that_is_behind_by_more_than_the_skew_went_back() {
    let quota = from_first_request(1);
    let mut window = Window::default();
    let ahead = START + tolerated_skew(MINUTE);
    decide(&quota, &mut window, 1, ahead);
    decide(&quota, &mut window, 1, START);
    assert_eq!(window.reset, ahead + MINUTE);
    let further = before(START, Duration::from_micros(1));
    decide(&quota, &mut window, 1, further);
    assert_eq!(window.reset, further + MINUTE);
}

#[test]
fn next_window_that_a_clock_ahead_has_opened_is_tolerated() {
    let hour = Duration::from_secs(3600);
    let month = Calendar::new(crate::CalendarUnit::Month, "UTC").unwrap();
    for (align, far) in [(Align::Epoch(hour), 1000), (Align::Calendar(month), 86_400)] {
        let quota = FixedWindow { limit: 3, align };
        let end = quota.align.end(START);
        for (behind, is_tolerated) in [(100, true), (125, true), (far, false)] {
            let mut window = Window::default();
            quota.take(&mut window, 3, end);
            let next = window.reset;
            let earlier = before(end, Duration::from_secs(behind));
            decide(&quota, &mut window, 1, earlier);
            let expected = if is_tolerated { next } else { end };
            assert_eq!(window, Window { used: 3, reset: expected }, "{behind} s before the end");
        }
    }
}

#[test]
fn refunded_window_stays_open() {
    let quota = from_first_request(3);
    let mut window = Window::default();
    let receipt = quota.take(&mut window, 1, START);
    quota.give_back(&mut window, receipt, 1, START + MINUTE / 2);
    assert_eq!(window, Window { used: 0, reset: START + MINUTE });
}
