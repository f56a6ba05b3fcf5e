use proptest::prelude::*;

use super::*;

fn request(burst: i64, count: i64, period: i64, quantity: i64) -> Request {
    Request::new(burst, count, period, quantity).unwrap()
}

/// What is told, in the order of the reply, with times in milliseconds.
fn outcome(throttled: &Throttled) -> (bool, i64, i64, i64) {
    let millis = |nanos: i64| nanos / MILLISECOND;
    let Throttled { is_limited, remaining, retry_after, reset_after, .. } = *throttled;
    (is_limited, remaining, millis(reset_after), retry_after.map_or(-1, millis))
}

#[test]
fn replies_are_those_of_the_original() {
    let mut arrival = None;
    let table = [
        (0, 6, (true, 5, 0, -1)),
        (0, 1, (false, 4, 1000, -1)),
        (0, 1, (false, 3, 2000, -1)),
        (0, 1, (false, 2, 3000, -1)),
        (0, 1, (false, 1, 4000, -1)),
        (0, 1, (false, 0, 5000, -1)),
        (0, 1, (true, 0, 5000, 1000)),
        (3000, 1, (false, 2, 3000, -1)),
        (3100, 1, (false, 1, 3900, -1)),
        (4000, 1, (false, 1, 4000, -1)),
        (8000, 1, (false, 4, 1000, -1)),
        (9500, 1, (false, 4, 1000, -1)),
        (9500, 0, (false, 4, 1000, -1)),
        (9500, 2, (false, 2, 3000, -1)),
        (9500, 5, (true, 2, 3000, 3000)),
        (15_000, 6, (true, 5, 0, -1)),
    ];
    for (row, (millis, quantity, expected)) in table.into_iter().enumerate() {
        let throttled = request(4, 1, 1, quantity).throttle(arrival, millis * MILLISECOND).unwrap();
        assert_eq!((outcome(&throttled), throttled.limit), (expected, 5), "row {row}");
        arrival = throttled.arrival.or(arrival);
    }
}

#[test]
fn rates_are_those_of_the_original() {
    let hour = 3600;
    for (count, period, seconds) in
        [(24, 24 * hour, 3600), (6, hour, 600), (6, 60, 10), (6, 120, 20)]
    {
        assert_eq!(request(0, count, period, 1).interval, seconds * SECOND);
    }
    assert_eq!(request(0, 5, 1, 1).interval, 200 * MILLISECOND);
    assert_eq!(request(0, 1_000_000_000, 1, 1).interval, 1);
}

#[test]
fn what_cannot_be_counted_is_refused() {
    use Mistake::{NegativeQuantity, TooLarge, ZeroRate};
    for (arguments, mistake) in [
        ([0, 0, 1, 1], ZeroRate),
        ([0, 1, 0, 1], ZeroRate),
        ([0, -1, 1, 1], ZeroRate),
        ([0, 1, -1, 1], ZeroRate),
        ([0, 1_000_000_001, 1, 1], ZeroRate),
        ([0, 1, 1, -1], NegativeQuantity),
        ([i64::MAX, 1, 1, 1], TooLarge),
        ([i64::MAX / SECOND, 1, 1, 1], TooLarge),
        ([0, 1, i64::MAX, 1], TooLarge),
        ([0, 1, 1, i64::MAX], TooLarge),
    ] {
        let [burst, count, period, quantity] = arguments;
        assert_eq!(Request::new(burst, count, period, quantity), Err(mistake), "{arguments:?}");
    }
    let far = request(1 << 32, 1, 1, 1 << 32);
    assert_eq!(far.throttle(None, i64::MAX - 1), Err(TooLarge));
}

#[test]
fn seconds_drop_what_is_below_a_millisecond() {
    for (nanos, seconds) in [
        (0, 0),
        (999_999, 0),
        (MILLISECOND, 1),
        (SECOND, 1),
        (SECOND + 999_999, 1),
        (SECOND + MILLISECOND, 2),
    ] {
        assert_eq!(in_seconds(nanos), seconds, "{nanos} ns");
    }
}

/// resp.md 2.1 word for word, with numbers that cannot overflow.
fn model(stored: &mut Option<i128>, now: i64, request: [i64; 4]) -> (bool, i64, i64, i64) {
    let [burst, count, period, quantity] = request.map(i128::from);
    let now = i128::from(now);
    let interval = period * 1_000_000_000 / count;
    let tolerance = interval * (burst + 1);
    let increment = interval * quantity;
    let before = stored.unwrap_or(now);
    let new = now.max(before) + increment;
    let diff = now - (new - tolerance);
    let (ttl, retry) = if diff < 0 {
        (before - now, if increment <= tolerance { -diff } else { -1 })
    } else {
        *stored = Some(new);
        (new - now, -1)
    };
    // A TAT that is over has gone with its time to live.
    let ttl = ttl.max(0);
    let next = tolerance - ttl;
    let remaining = if next > -interval { (next / interval).max(0) } else { 0 };
    (diff < 0, remaining as i64, ttl as i64, retry as i64)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// 200 histories of 500 commands.
    #[test]
    fn prop_it_replies_as_the_model(
        history in prop::collection::vec(
            (0i64..3, 0i64..6, 1i64..2000, 1i64..90, 0i64..8, 0i64..3_000_000_000), 500
        ),
    ) {
        let mut stored = [None; 3];
        let mut arrivals = [None; 3];
        let mut now = 0;
        for (name, burst, count, period, quantity, step) in history {
            now += step;
            let name = name as usize;
            let expected = model(&mut stored[name], now, [burst, count, period, quantity]);
            let throttled = request(burst, count, period, quantity).throttle(arrivals[name], now);
            let throttled = throttled.unwrap();
            let Throttled { is_limited, remaining, reset_after, retry_after, .. } = throttled;
            let told = (is_limited, remaining, reset_after, retry_after.unwrap_or(-1));
            prop_assert_eq!(told, expected, "at {}", now);
            arrivals[name] = throttled.arrival.or(arrivals[name]);
        }
    }
}
