//! Times as people write them: `500ms`, `2s`, `1h 30m`.

use std::{ops::RangeInclusive, time::Duration};

/// Why a text is no usable time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// It is not a number with a unit.
    #[error("not a time: write a number and a unit, such as 30s")]
    Malformed,
    /// It is too long or too short.
    #[error("out of range")]
    OutOfRange,
}

/// Parses a time.
///
/// # Errors
/// It is malformed, or longer than a [`Duration`] can be.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    humantime::parse_duration(text).map_err(|error| match error {
        humantime::DurationError::NumberOverflow => DurationError::OutOfRange,
        _ => DurationError::Malformed,
    })
}

/// Parses a time that must be in `range`.
///
/// # Errors
/// It is malformed or not in the range.
pub(super) fn parse_duration_within(
    text: &str,
    range: &RangeInclusive<Duration>,
) -> Result<Duration, DurationError> {
    let duration = parse_duration(text)?;
    range.contains(&duration).then_some(duration).ok_or(DurationError::OutOfRange)
}

/// A time by the largest unit that it is a whole number of: `10s`, `1h`, `2w`.
pub fn duration_in_words(time: Duration) -> String {
    const UNITS: [(&str, Duration); 7] = [
        ("w", Duration::from_secs(604_800)),
        ("d", Duration::from_secs(86_400)),
        ("h", Duration::from_secs(3600)),
        ("m", Duration::from_secs(60)),
        ("s", Duration::from_secs(1)),
        ("ms", Duration::from_millis(1)),
        ("us", Duration::from_micros(1)),
    ];
    let nanos = time.as_nanos();
    let is_whole = |unit: &Duration| time >= *unit && nanos.is_multiple_of(unit.as_nanos());
    let unit = UNITS.iter().find(|(_, unit)| is_whole(unit));
    unit.map_or("0s".to_owned(), |(name, unit)| format!("{}{name}", nanos / unit.as_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, expected) in [
            ("500ms", Ok(Duration::from_millis(500))),
            ("1h 30m", Ok(Duration::from_secs(5400))),
            ("0s", Ok(Duration::ZERO)),
            ("2", Err(DurationError::Malformed)),
            ("soon", Err(DurationError::Malformed)),
            ("", Err(DurationError::Malformed)),
            ("-1s", Err(DurationError::Malformed)),
            ("99999999999999999999s", Err(DurationError::OutOfRange)),
        ] {
            assert_eq!(parse_duration(text), expected, "{text:?}");
        }
    }

    #[test]
    fn ends_of_a_range_are_in_it() {
        let range = Duration::from_secs(1)..=Duration::from_secs(60);
        for (text, expected) in [
            ("1s", Ok(Duration::from_secs(1))),
            ("1m", Ok(Duration::from_secs(60))),
            ("999ms", Err(DurationError::OutOfRange)),
            ("61s", Err(DurationError::OutOfRange)),
            ("1", Err(DurationError::Malformed)),
        ] {
            assert_eq!(parse_duration_within(text, &range), expected, "{text:?}");
        }
    }
}
