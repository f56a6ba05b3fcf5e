use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::suite::{self, START, Subject, decide, first_instant};

impl Subject for SlidingWindow {
    fn memory(&self) -> Duration {
        2 * self.window
    }

    fn with_capacity(&self, capacity: u32) -> SlidingWindow {
        SlidingWindow { limit: capacity, ..self.clone() }
    }

    fn time_step(&self) -> Duration {
        Duration::from_micros(self.time_grain)
    }
}

impl suite::apart::Bounded for SlidingWindow {
    fn most(&self, span: Duration) -> u64 {
        suite::apart::in_windows(self.limit, self.window, span)
    }

    fn window(&self) -> Duration {
        self.window
    }
}

/// Windows of up to 20 seconds, often a whole number of them, counted in either time grain.
fn any_sliding_window() -> impl Strategy<Value = SlidingWindow> {
    let millis = prop_oneof![1_u64..20_000, (1_u64..20).prop_map(|seconds| seconds * 1000)];
    (0_u32..12, millis, prop::sample::select(vec![1, 1000])).prop_map(
        |(limit, millis, time_grain)| SlidingWindow {
            limit,
            window: Duration::from_millis(millis),
            time_grain,
        },
    )
}

suite::property_tests! { any_sliding_window() }

mod apart {
    use super::*;

    suite::property_tests! { any_sliding_window() => [prop_clocks_that_are_apart_count_once] }
}

#[test]
fn decisions_equal_the_model() {
    suite::assert_equals_model(|numbers| {
        let limit = numbers.below(12) as u32;
        let window =
            Duration::from_millis([numbers.below(20_000) + 1, 1, 1000][numbers.below(3) as usize]);
        let time_grain = [1, 1000][numbers.below(2) as usize];
        let quota = SlidingWindow { limit, window, time_grain };
        (quota.clone(), Model { quota, charges: Vec::new() })
    });
}

/// All charges by the number of their window, and Cloudflare's rule with fractions as pairs.
struct Model {
    quota: SlidingWindow,
    /// The window of each charge, and its cost.
    charges: Vec<(u64, u32)>,
}

impl Model {
    fn window(&self) -> u64 {
        self.quota.window.as_micros() as u64
    }

    fn sum(&self, window: u64) -> i128 {
        self.charges.iter().filter(|(at, _)| *at == window).map(|(_, cost)| *cost as i128).sum()
    }

    /// What counts at `now`, as a numerator over the length of a window.
    fn used(&self, now: Timestamp) -> i128 {
        let micros = now.as_micros() / self.quota.time_grain * self.quota.time_grain;
        let number = micros / self.window();
        let elapsed = micros % self.window();
        let previous = self.sum(number - 1).min(self.quota.limit.into());
        let (window, left) = (self.window() as i128, (self.window() - elapsed) as i128);
        self.sum(number) * window + previous * left
    }

    /// The first instant at which no more than `units` count.
    fn falls_to(&self, units: i128, now: Timestamp) -> Timestamp {
        let holds = |instant| self.used(instant) <= units * self.window() as i128;
        let step = self.quota.time_step();
        let from =
            Timestamp::from_micros(now.as_micros() / self.quota.time_grain * self.quota.time_grain);
        if holds(now) { now } else { first_instant(from, now + 3 * self.quota.window, step, holds) }
    }
}

impl suite::Model for Model {
    fn admits(&self, cost: u32, now: Timestamp) -> bool {
        let limit = i128::from(self.quota.limit);
        self.used(now) + i128::from(cost) * self.window() as i128 <= limit * self.window() as i128
    }

    fn take(&mut self, cost: u32, now: Timestamp) {
        self.charges.push((now.as_micros() / self.window(), cost));
    }

    fn give_back(&mut self, index: usize, _now: Timestamp) {
        self.charges[index].1 = 0;
    }

    fn standing(&self, now: Timestamp) -> Standing {
        let limit = self.quota.limit;
        let used = (self.used(now) as u64).div_ceil(self.window()) as u32;
        let reset = self.falls_to(0, now);
        let next = if limit == 0 {
            now + self.quota.window
        } else {
            self.falls_to(i128::from(limit) - 1, now)
        };
        Standing { limit, remaining: limit - used, used, reset, next, retry: Retry::Now }
    }

    fn retry(&self, cost: u32, now: Timestamp) -> Retry {
        match self.quota.limit.checked_sub(cost) {
            Some(room) => Retry::At(self.falls_to(room.into(), now)),
            None => Retry::Never,
        }
    }
}

/// "How we built rate limiting capable of scaling to millions of domains" (Cloudflare, 2017): a
/// limit of 50 a minute, 42 requests in the minute before, 18 in this one, of which 15 seconds have
/// passed. 42 · (60 − 15) / 60 + 18 = 49.5, which is less than 50: they ask whether the limit is
/// reached already, and let one more pass. Here that one has to fit too: 50.5 is above 50, so it
/// passes when the 42 weigh 31, after 60 − 31 · 60 / 42 = 15.714286 seconds.
#[test]
fn published_example_has_half_a_unit_left() {
    let quota = SlidingWindow::new(50, Duration::from_secs(60)).unwrap();
    let minute = Timestamp::from_secs(1_790_000_040);
    let mut windows = Windows::default();
    for cost in [42, 18] {
        let now = minute + Duration::from_secs(if cost == 42 { 30 } else { 75 });
        let (allowed, ..) = decide(&quota, &mut windows, cost, now);
        assert!(allowed);
    }
    let now = minute + Duration::from_secs(75);
    let (allowed, standing, _) = decide(&quota, &mut windows, 1, now);
    assert!(!allowed);
    assert_eq!((standing.used, standing.remaining), (50, 0));
    let fits_from = minute + Duration::from_micros(75_714_286);
    assert_eq!((standing.next, standing.retry), (fits_from, Retry::At(fits_from)));
    assert_eq!(standing.reset, minute + Duration::from_secs(180));
}

#[test]
fn time_grain_is_the_finest_in_which_doubles_are_exact() {
    let hour = Duration::from_secs(3600);
    let day = Duration::from_secs(86_400);
    for (limit, window, expected) in [
        (5000, hour, Some(1)),
        (50_000, day, Some(1)),
        (1_000_000, day, Some(1000)),
        (u32::MAX, Duration::from_secs(1048), Some(1000)),
        (u32::MAX, Duration::from_secs(1049), None),
        (1, Duration::ZERO, None),
        (1, Duration::from_micros(1500), None),
        (0, Duration::from_secs(u64::MAX), None),
    ] {
        let quota = SlidingWindow::new(limit, window);
        assert_eq!(quota.map(|quota| quota.time_grain), expected, "{limit} in {window:?}");
    }
}

/// The time grain follows from the limit, so that changing the limit may change it.
#[test]
fn change_of_the_unit_misreads_nothing() {
    let day = Duration::from_secs(86_400);
    let [fine, coarse] = [50_000, 1_000_000].map(|limit| SlidingWindow::new(limit, day).unwrap());
    let mut windows = Windows::default();
    let receipt = fine.take(&mut windows, 30_000, START + Duration::from_micros(1));
    coarse.take(&mut windows, 10_000, START + Duration::from_micros(2));
    for quota in [&fine, &coarse] {
        assert_eq!(quota.standing(&windows, START).used, 40_000);
        assert_eq!(quota.standing(&windows, START).reset, windows.expires);
    }
    coarse.give_back(&mut windows, receipt, 30_000, START + Duration::from_micros(3));
    assert_eq!(fine.standing(&windows, START).used, 10_000);
}

#[test]
fn refund_in_the_next_window_is_taken_off_what_weighs() {
    let quota = SlidingWindow::new(10, SECOND).unwrap();
    let mut windows = Windows::default();
    let receipt = quota.take(&mut windows, 8, START);
    let now = START + 3 * SECOND / 2;
    quota.take(&mut windows, 1, now);
    assert_eq!(quota.standing(&windows, now).used, 5);
    quota.give_back(&mut windows, receipt, 8, now);
    assert_eq!(quota.standing(&windows, now).used, 1);
}

/// Ten units weigh five in the middle of the next window; two weigh one.
#[test]
fn window_before_weighs_no_more_than_a_lowered_limit() {
    let [former, lowered] = [10, 2].map(|limit| SlidingWindow::new(limit, SECOND).unwrap());
    let mut windows = Windows::default();
    let now = START + 3 * SECOND / 2;
    former.take(&mut windows, 10, START);
    assert_eq!(former.standing(&windows, now).used, 5);
    assert_eq!(lowered.standing(&windows, now).used, 1);
    assert!(lowered.admits(&windows, 1, now));
}

#[test]
fn what_was_taken_beyond_the_limit_denies_for_no_longer_than_two_windows() {
    let quota = SlidingWindow::new(1, SECOND).unwrap();
    let mut windows = Windows::default();
    quota.take(&mut windows, u32::MAX, START);
    quota.take(&mut windows, u32::MAX, START);
    assert_eq!(quota.standing(&windows, START).used, u32::MAX);
    assert_eq!(quota.retry(&windows, 1, START), Retry::At(START + 2 * SECOND));
    assert!(quota.admits(&windows, 1, START + 2 * SECOND));
}

#[test]
fn clock_that_went_back_a_day_moves_what_was_used_to_its_window() {
    let quota = SlidingWindow::new(3, SECOND).unwrap();
    let mut windows = Windows::default();
    let tomorrow = START + Duration::from_secs(86_400);
    quota.take(&mut windows, 1, tomorrow);
    quota.take(&mut windows, 3, tomorrow + SECOND);
    assert!(!decide(&quota, &mut windows, 1, START).0);
    assert_eq!(windows, Windows { current: 3, previous: 0, expires: START + 2 * SECOND });
}

const SECOND: Duration = Duration::from_secs(1);
