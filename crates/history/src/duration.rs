//! Durations as logs write them: a number of a known unit, or as Go writes them (`1m2.5s`).

use std::time::Duration;

/// The units of durations, in nanoseconds.
pub(super) const SECONDS: f64 = 1e9;
pub(super) const MILLIS: f64 = 1e6;
pub(super) const NANOS: f64 = 1.0;

/// A duration in units of so many nanoseconds, or with units of its own; none: it is in no form
/// that is read, or is negative.
pub(super) fn duration(text: &str, unit_nanos: f64) -> Option<Duration> {
    let text = text.trim();
    match text.ends_with(|c: char| c.is_ascii_digit() || c == '.') {
        true => of_nanos(text.parse::<f64>().ok()? * unit_nanos),
        false => with_units(text),
    }
}

/// Seconds as a decimal number: `0.004`.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    duration(text, SECONDS)
}

/// Milliseconds as a decimal number: `1.377`, with or without a unit.
pub(super) fn millis(text: &str) -> Option<Duration> {
    duration(text, MILLIS)
}

/// Numbers with a unit each, one after the other: `1h0m1s`, `1.5ms`.
fn with_units(text: &str) -> Option<Duration> {
    let mut nanos = None;
    let mut rest = text;
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let (number, behind) = rest.split_at_checked(rest.find(|c| !is_number(c))?)?;
        let end = behind.find(is_number).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at_checked(end)?;
        let unit = match unit.trim() {
            "ns" => NANOS,
            // The micro sign, and the letter that looks like it.
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e3,
            "ms" => MILLIS,
            "s" => SECONDS,
            "m" => 60.0 * SECONDS,
            "h" => 3600.0 * SECONDS,
            _ => return None,
        };
        nanos = Some(nanos.unwrap_or(0.0) + number.trim().parse::<f64>().ok()? * unit);
        rest = behind;
    }
    of_nanos(nanos?)
}

fn of_nanos(nanos: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(nanos / SECONDS).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_each_form() {
        for (text, expected) in [
            ("0.25", Some(0.25)),
            (" 2 ", Some(2.0)),
            ("1e-3", Some(0.001)),
            ("1.5ms", Some(0.0015)),
            ("12 ms", Some(0.012)),
            ("250\u{b5}s", Some(0.000_25)),
            ("250\u{3bc}s", Some(0.000_25)),
            ("7ns", Some(7e-9)),
            ("1m2.5s", Some(62.5)),
            ("1h0m1s", Some(3601.0)),
            ("-5", None),
            ("-5s", None),
            ("1,5", None),
            ("abc", None),
            ("s", None),
            ("5x", None),
            ("inf", None),
            ("", None),
        ] {
            let expected = expected.map(Duration::from_secs_f64);
            assert_eq!(duration(text, SECONDS), expected, "{text}");
        }
        assert_eq!(duration("2000000000", NANOS), Some(Duration::from_secs(2)));
        assert_eq!(millis("1.377"), Some(Duration::from_micros(1377)));
    }
}
