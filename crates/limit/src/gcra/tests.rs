//! The suite in either grain, the textbook's decisions, and the published vectors of redis-cell.

use proptest::prelude::*;

use super::*;
use crate::suite::{self, Model, START, Subject, decide};

const SECOND: Duration = Duration::from_secs(1);

impl Subject for Gcra {
    fn memory(&self) -> Duration {
        self.window * self.burst / self.limit + self.time_step()
    }

    fn with_capacity(&self, capacity: u32) -> Gcra {
        Gcra { burst: capacity, ..self.clone() }
    }

    fn time_step(&self) -> Duration {
        Duration::from_micros(self.time_grain)
    }
}

impl suite::apart::Bounded for Gcra {
    fn most(&self, span: Duration) -> u64 {
        let drained = u128::from(self.limit) * span.as_micros() / self.window.as_micros();
        u64::from(self.burst) + drained as u64
    }

    fn window(&self) -> Duration {
        self.window
    }
}

/// Meters that drain within seconds or at once, in either grain.
fn any_gcra() -> impl Strategy<Value = Gcra> {
    let limit = prop_oneof![4 => 1_u32..20, 1 => 1_u32..100_000];
    let millis = prop_oneof![1_u64..5_000, (1_u64..5).prop_map(|seconds| seconds * 1000)];
    let time_grain = prop::sample::select(vec![1, 1000]);
    (limit, millis, 1_u32..12, time_grain).prop_map(|(limit, millis, burst, time_grain)| Gcra {
        limit,
        window: Duration::from_millis(millis),
        burst,
        time_grain,
    })
}

suite::property_tests! { any_gcra() }

mod apart {
    use super::*;

    suite::property_tests! { any_gcra() => [prop_clocks_that_are_apart_count_once] }
}

/// GCRA as textbooks have it: a theoretical arrival time, here as an exact fraction of a grain.
struct Textbook {
    gcra: Gcra,
    /// In grains, times `limit`.
    arrival: i128,
    /// Of each charge, the arrival time after it and its cost.
    charges: Vec<(i128, u32)>,
}

impl Textbook {
    /// The time between two units at the long-run rate: `window / limit` grains, times `limit`.
    fn spacing(&self) -> i128 {
        self.gcra.window.as_micros() as i128 / i128::from(self.gcra.time_grain)
    }

    /// Now, times `limit`.
    fn now(&self, now: Timestamp) -> i128 {
        i128::from(now.as_micros() / self.gcra.time_grain) * i128::from(self.gcra.limit)
    }

    /// The first instant from which on the arrival time is no more than `units` ahead.
    fn comes_within(&self, units: u32, now: Timestamp) -> Timestamp {
        let limit = i128::from(self.gcra.limit);
        let instant = self.arrival - i128::from(units) * self.spacing();
        let grains = (instant + limit - 1) / limit;
        if instant <= self.now(now) {
            now
        } else {
            Timestamp::from_micros(grains as u64 * self.gcra.time_grain)
        }
    }
}

impl Model for Textbook {
    fn admits(&self, cost: u32, now: Timestamp) -> bool {
        let [burst, cost] = [self.gcra.burst, cost].map(i128::from);
        let now = self.now(now);
        self.arrival.max(now) - now <= burst * self.spacing() - self.spacing() * cost
    }

    fn take(&mut self, cost: u32, now: Timestamp) {
        self.arrival = self.arrival.max(self.now(now)) + i128::from(cost) * self.spacing();
        self.charges.push((self.arrival, cost));
    }

    /// Moves the arrival time back by the cost, but not by more than the charge alone would still
    /// have it ahead.
    fn give_back(&mut self, index: usize, now: Timestamp) {
        let (arrival, cost) = self.charges[index];
        let taken = i128::from(cost) * self.spacing();
        let ahead = [arrival, self.arrival].map(|arrival| arrival - self.now(now));
        self.arrival -= ahead.into_iter().fold(taken, i128::min).max(0);
    }

    fn standing(&self, now: Timestamp) -> Standing {
        let burst = self.gcra.burst;
        let remaining = (1..=burst).filter(|cost| self.admits(*cost, now)).count() as u32;
        Standing {
            limit: burst,
            remaining,
            used: burst - remaining,
            reset: self.comes_within(0, now),
            next: self.comes_within(burst - 1, now),
            retry: Retry::Now,
        }
    }

    fn retry(&self, cost: u32, now: Timestamp) -> Retry {
        match self.gcra.burst.checked_sub(cost) {
            Some(units) => Retry::At(self.comes_within(units, now)),
            None => Retry::Never,
        }
    }
}

#[test]
fn decisions_are_the_textbooks() {
    suite::assert_equals_model(|numbers| {
        let gcra = Gcra {
            limit: 1 + numbers.below(30) as u32,
            window: Duration::from_millis(1 + numbers.below(10_000)),
            burst: 1 + numbers.below(12) as u32,
            time_grain: [1, 1000][numbers.below(2) as usize],
        };
        (gcra.clone(), Textbook { gcra, arrival: 0, charges: Vec::new() })
    });
}

/// A meter in microseconds.
fn gcra(limit: u32, window: Duration, burst: u32) -> Gcra {
    let gcra = Gcra::new(limit, window, burst, burst).unwrap();
    assert_eq!(gcra.time_grain, 1);
    gcra
}

/// A meter with the parameters of `CL.THROTTLE key max_burst count period`: one request passes even
/// with no burst at all.
fn cell(max_burst: u32, count: u32, period: u64) -> Gcra {
    gcra(count, Duration::from_secs(period), max_burst + 1)
}

/// The fields of a CL.THROTTLE reply: limited, limit, remaining, time until a retry and until the
/// reset.
fn throttle(
    gcra: &Gcra,
    state: &mut Level,
    quantity: u32,
    now: Timestamp,
) -> (bool, u32, u32, Option<Duration>, Duration) {
    let (allowed, standing, _) = decide(gcra, state, quantity, now);
    let retry = match standing.retry {
        Retry::At(instant) => Some(instant.saturating_since(now)),
        Retry::Now | Retry::Never => None,
    };
    let reset = standing.reset.saturating_since(now);
    (!allowed, standing.limit, standing.remaining, retry, reset)
}

/// Seconds as redis-cell rounds them: a fraction counts as one second more, but not if it is less
/// than a millisecond, so a reply of redis-cell may say that a client can retry at once. Tollgate
/// reports instants, and `ceil_secs` always rounds up.
fn cell_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_millis() > 0)
}

#[test]
fn redis_cell_it_rates_limits() {
    let gcra = cell(4, 1, 1);
    let mut state = Level::default();
    for (row, (at, quantity, limited, remaining, reset, retry)) in [
        (0, 6, true, 5, 0, None),
        (0, 1, false, 4, 1000, None),
        (0, 1, false, 3, 2000, None),
        (0, 1, false, 2, 3000, None),
        (0, 1, false, 1, 4000, None),
        (0, 1, false, 0, 5000, None),
        (0, 1, true, 0, 5000, Some(1000)),
        (3000, 1, false, 2, 3000, None),
        (3100, 1, false, 1, 3900, None),
        (4000, 1, false, 1, 4000, None),
        (8000, 1, false, 4, 1000, None),
        (9500, 1, false, 4, 1000, None),
        (9500, 0, false, 4, 1000, None),
        (9500, 2, false, 2, 3000, None),
        (9500, 5, true, 2, 3000, Some(3000)),
        (15_000, 6, true, 5, 0, None),
    ]
    .into_iter()
    .enumerate()
    {
        let now = START + Duration::from_millis(at);
        let retry = retry.map(Duration::from_millis);
        let reset = Duration::from_millis(reset);
        assert_eq!(
            throttle(&gcra, &mut state, quantity, now),
            (limited, 5, remaining, retry, reset),
            "row {row}"
        );
    }
}

#[test]
fn redis_cell_end_to_end() {
    let gcra = cell(0, 1, 2);
    let mut state = Level::default();
    for (at, expected) in
        [(0, (false, 1, 0, None, 2)), (0, (true, 1, 0, Some(2), 2)), (2, (false, 1, 0, None, 2))]
    {
        let now = START + Duration::from_secs(at);
        let (limited, limit, remaining, retry, reset) = throttle(&gcra, &mut state, 1, now);
        let reply = (limited, limit, remaining, retry.map(cell_seconds), cell_seconds(reset));
        assert_eq!(reply, expected);
    }
    let readme = throttle(&cell(15, 30, 60), &mut Level::default(), 1, START);
    assert_eq!(readme, (false, 16, 15, None, 2 * SECOND));
}

#[test]
fn waits_below_a_millisecond_are_reported_where_redis_cell_rounds_to_zero() {
    let gcra = cell(0, 2_000, 1);
    let mut state = Level::default();
    throttle(&gcra, &mut state, 1, START);
    let (limited, _, _, retry, _) = throttle(&gcra, &mut state, 1, START);
    assert_eq!((limited, retry), (true, Some(Duration::from_micros(500))));
    assert_eq!(retry.map(cell_seconds), Some(0));
}

#[test]
fn units_of_a_rate_are_spaced_evenly() {
    for (count, period, spacing) in [
        (24, 86_400, 3_600_000),
        (6, 3_600, 600_000),
        (6, 60, 10_000),
        (6, 120, 20_000),
        (5, 1, 200),
    ] {
        let gcra = cell(0, count, period);
        let mut state = Level::default();
        let (_, standing, _) = decide(&gcra, &mut state, 1, START);
        assert_eq!(standing.next, START + Duration::from_millis(spacing), "{count} in {period} s");
    }
}

#[test]
fn grain_is_as_fine_as_can_be_counted_exactly() {
    let day = 86_400 * SECOND;
    let largest = (1_u32 << 31) - 1;
    for (limit, window, burst, max_cost, expected) in [
        (5_000, 3600 * SECOND, 5_000, 5_000, Some(1)),
        (1_000_000, day, 1_000_000, 1_000_000, Some(1000)),
        (largest, 366 * day, largest, 1, None),
        (1, day, 1, 104_248, Some(1)),
        (1, day, 1, 104_249, Some(1000)),
        (1, Duration::ZERO, 1, 1, None),
        (1, Duration::MAX, u32::MAX, u32::MAX, None),
    ] {
        let time_grain = Gcra::new(limit, window, burst, max_cost).map(|gcra| gcra.time_grain);
        assert_eq!(time_grain, expected, "{limit} in {window:?}, {burst} at once, cost {max_cost}");
    }
}

#[test]
fn greater_of_two_levels_is_kept_if_both_drain_within_one_step_of_time() {
    let quick = gcra(3_000_000, SECOND, 10);
    let levels = [1, 3].map(|units| {
        let mut level = Level::default();
        quick.take(&mut level, units, START);
        level
    });
    let [mut fewer, mut more] = levels;
    assert_eq!(fewer.full, more.full);
    assert!(quick.join(&mut fewer, &more, START));
    assert_eq!(quick.standing(&fewer, START).used, 3);
    assert!(!quick.join(&mut more, &levels[0], START));
    assert_eq!(more, levels[1]);
}

#[test]
fn changed_grain_misreads_nothing() {
    let [micros, millis] = [1, 1000].map(|time_grain| Gcra { time_grain, ..gcra(7, SECOND, 7) });
    let now = START + Duration::from_micros(1_234);
    let mut state = Level::default();
    micros.take(&mut state, 4, now);
    let standings = [&micros, &millis].map(|gcra| gcra.standing(&state, now));
    assert_eq!(standings.map(|standing| standing.used), [4, 4]);
    assert_eq!(standings.map(|standing| standing.reset), [state.full; 2]);
    millis.take(&mut state, 1, now);
    let used = [&micros, &millis].map(|gcra| gcra.standing(&state, now).used);
    assert_eq!(used, [5, 5]);
}

#[test]
fn changed_rate_drains_what_was_used_at_the_new_rate() {
    let mut state = Level::default();
    gcra(10, SECOND, 10).take(&mut state, 10, START);
    for (limit, next) in [(10, 100), (1, 1000), (100, 10)] {
        let standing = gcra(limit, SECOND, 10).standing(&state, START);
        assert_eq!(standing.next, START + Duration::from_millis(next), "{limit} a second");
    }
}

#[test]
fn changed_burst_keeps_what_was_used() {
    let mut state = Level::default();
    gcra(10, SECOND, 10).take(&mut state, 4, START);
    for (burst, remaining) in [(20, 16), (10, 6), (3, 0)] {
        let standing = gcra(10, SECOND, burst).standing(&state, START);
        assert_eq!((standing.used, standing.remaining), (4, remaining), "{burst} at once");
    }
}

#[test]
fn reported_reset_stays_even_if_the_rate_was_lowered() {
    let former = gcra(10, SECOND, 5);
    let lowered = gcra(1, SECOND, 5);
    let mut state = Level::default();
    let receipt = former.take(&mut state, 5, START);
    let reset = former.standing(&state, START).reset;
    assert_eq!(lowered.standing(&state, START).reset, reset);
    assert_eq!(lowered.retry(&state, 3, START), Retry::At(reset));
    assert!(!lowered.admits(&state, 1, suite::before(reset, lowered.time_step())));
    assert!(lowered.admits(&state, 5, reset));

    lowered.give_back(&mut state, receipt, 1, START);
    assert_eq!(lowered.standing(&state, START).reset, reset, "a refund makes it no later");
}

#[test]
fn limit_of_zero_denies_always() {
    let gcra = gcra(0, SECOND, 10);
    let mut state = Level::default();
    let (allowed, standing, _) = decide(&gcra, &mut state, 1, START);
    assert!(!allowed);
    assert_eq!((standing.limit, standing.remaining, standing.retry), (0, 0, Retry::Never));
    assert_eq!((standing.reset, standing.next), (START, START + SECOND));

    let receipt = gcra.take(&mut state, 3, START);
    assert_eq!(gcra.standing(&state, START).used, 3);
    assert!(!state.is_over(START + SECOND / 2) && state.is_over(START + SECOND));
    gcra.give_back(&mut state, receipt, 2, START + SECOND / 2);
    assert_eq!(gcra.standing(&state, START + SECOND / 2).used, 1);
}

#[test]
fn charge_beyond_the_capacity_is_counted_up_to_the_end_of_numbers() {
    let gcra = gcra(1, 366 * 86_400 * SECOND, 100);
    let mut state = Level::default();
    gcra.take(&mut state, 150, START);
    let standing = gcra.standing(&state, START);
    assert_eq!((standing.used, standing.remaining), (150, 0));
    for _ in 0..3 {
        gcra.take(&mut state, u32::MAX, START);
    }
    assert_eq!(state.level, u64::MAX);
    assert!(!gcra.admits(&state, 1, START + 36_500 * 86_400 * SECOND));
}
