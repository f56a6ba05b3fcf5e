//! Instants that programs give: when they used what they charge.

use std::time::Duration;

use tollgate_clock::Timestamp;

/// When a charge counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decisions) enum ChargeTime {
    /// When it comes. If it does not fit, when it does, for at most this time.
    Now(Duration),
    /// At the instant that the program gives.
    At(Timestamp),
}

/// The longest time that a call may wait for room.
pub(in crate::decisions) const MAX_WAIT: Duration = Duration::from_secs(300);

/// How far an instant may be ahead of this process' clock. Counters end by the greatest instant, so
/// one program with a wrong clock would end those of all.
pub(super) const MAX_AHEAD: Duration = Duration::from_secs(60);

impl ChargeTime {
    /// The program's instant.
    pub(in crate::decisions) fn at(self) -> Option<Timestamp> {
        match self {
            ChargeTime::Now(_) => None,
            ChargeTime::At(at) => Some(at),
        }
    }
}

/// An instant as programs write it: seconds since 1970, with a fraction or without, or RFC 3339.
pub(in crate::decisions) fn parse_instant(text: &str) -> Option<Timestamp> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match is_number {
        true => instant_of(text.parse().ok()?),
        false => {
            let instant: jiff::Timestamp = text.parse().ok()?;
            u64::try_from(instant.as_microsecond()).ok().map(Timestamp::from_micros)
        }
    }
}

/// The instant that lies so many seconds after the epoch. A later one than there is becomes the
/// last one, which is too far ahead for any clock.
pub(in crate::decisions) fn instant_of(seconds: f64) -> Option<Timestamp> {
    let is_instant = seconds.is_finite() && seconds >= 0.0;
    is_instant.then(|| Timestamp::from_micros((seconds * 1e6).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_seconds_or_rfc_3339() {
        for (text, micros) in [
            ("0", 0),
            ("1790000000", 1_790_000_000_000_000),
            ("1790000000.000001", 1_790_000_000_000_001),
            ("1790000000.1234567", 1_790_000_000_123_457),
            (".5", 500_000),
            ("1970-01-01T00:00:00Z", 0),
            ("2026-09-21T14:13:20.25Z", 1_790_000_000_250_000),
            ("2026-09-21T16:13:20+02:00", 1_790_000_000_000_000),
            ("9999-01-01T00:00:00Z", 253_370_764_800_000_000),
            ("99999999999999999999999", u64::MAX),
        ] {
            assert_eq!(parse_instant(text), Some(Timestamp::from_micros(micros)), "{text}");
        }
    }

    #[test]
    fn what_is_no_instant_is_none() {
        for text in [
            "",
            ".",
            "-1",
            "+1",
            "1e9",
            "inf",
            "nan",
            "1.2.3",
            "0x10",
            " 1",
            "now",
            "2026-09-21",
            "2026-09-21T14:13:20",
            "1969-12-31T23:59:59Z",
            "2026-13-01T00:00:00Z",
        ] {
            assert_eq!(parse_instant(text), None, "{text:?}");
        }
        for seconds in [-0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(instant_of(seconds), None, "{seconds}");
        }
    }
}
