//! Times as logs write them.
//!
//! The forms that hot formats use are read by hand, since a log has millions of them; `jiff` reads
//! what is left.

use std::time::Duration;

use jiff::{civil::Date, tz::Offset};
use tollgate_clock::Timestamp;

/// Bytes that are read from the front.
struct Scan<'t> {
    bytes: &'t [u8],
}

impl<'t> Scan<'t> {
    fn new(text: &'t str) -> Scan<'t> {
        Scan { bytes: text.as_bytes() }
    }

    /// A number of exactly so many digits.
    fn number(&mut self, digits: usize) -> Option<i64> {
        let (number, rest) = self.bytes.split_at_checked(digits)?;
        self.bytes = rest;
        number.iter().try_fold(0, |sum, byte| {
            byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'))
        })
    }

    /// One of these bytes.
    fn one_of(&mut self, expected: &[u8]) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        expected.contains(first).then(|| self.bytes = rest)?;
        Some(*first)
    }

    /// `.123` or `,123`, in microseconds; what is finer is cut off. Zero if there is none.
    fn fraction(&mut self) -> i64 {
        if self.one_of(b".,").is_none() {
            return 0;
        }
        let mut micros = 0;
        let mut unit = 100_000;
        while let Some((digit @ b'0'..=b'9', rest)) = self.bytes.split_first() {
            micros += i64::from(digit - b'0') * unit;
            unit /= 10;
            self.bytes = rest;
        }
        micros
    }

    /// `Z`, `UTC`, `GMT`, `+02:00`, `+0200` or `+02`, in seconds.
    fn offset(&mut self) -> Option<i64> {
        if let b"UTC" | b"GMT" = self.bytes {
            self.bytes = &[];
            return Some(0);
        }
        let sign = match self.one_of(b"Zz+-")? {
            b'+' => 1,
            b'-' => -1,
            _ => return Some(0),
        };
        let hours = self.number(2)?;
        self.one_of(b":");
        let minutes = if self.bytes.is_empty() { 0 } else { self.number(2)? };
        (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
    }

    /// `08:41:00` or `08:41`, in seconds of the day. A leap second is the one before it.
    fn time_of_day(&mut self) -> Option<i64> {
        let hour = self.number(2)?;
        self.one_of(b":")?;
        let minute = self.number(2)?;
        let second = if self.one_of(b":").is_some() { self.number(2)? } else { 0 };
        (hour < 24 && minute < 60 && second <= 60)
            .then_some(hour * 3600 + minute * 60 + second.min(59))
    }

    fn end(&self) -> Option<()> {
        self.bytes.is_empty().then_some(())
    }
}

/// A time and whether it says its offset from UTC; without one, UTC is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instant {
    pub(super) time: Timestamp,
    pub(super) has_offset: bool,
}

impl Instant {
    fn in_utc(time: Timestamp) -> Instant {
        Instant { time, has_offset: true }
    }
}

/// `2026-11-21T08:41:00.123Z`, with any offset or none, with a space for the `T`, and with slashes,
/// as Caddy's `wall` has it.
pub(super) fn iso(text: &str) -> Option<Instant> {
    iso_by_hand(text).or_else(|| {
        let time = text.parse::<jiff::Timestamp>().ok()?;
        Some(Instant::in_utc(Timestamp::from_micros(u64::try_from(time.as_microsecond()).ok()?)))
    })
}

fn iso_by_hand(text: &str) -> Option<Instant> {
    let mut scan = Scan::new(text);
    let year = scan.number(4)?;
    let separator = [scan.one_of(b"-/")?];
    let month = scan.number(2)?;
    scan.one_of(&separator)?;
    let day = scan.number(2)?;
    scan.one_of(b"Tt ")?;
    let second = scan.time_of_day()?;
    let fraction = scan.fraction();
    scan.one_of(b" ");
    instant((year, month, day), second, fraction, scan)
}

/// `21/Nov/2026:08:41:00 +0000`, with a fraction or without, and without an offset, as HAProxy has
/// it.
pub(super) fn clf(text: &str) -> Option<Instant> {
    let mut scan = Scan::new(text);
    let day = scan.number(2)?;
    scan.one_of(b"/")?;
    let (month, rest) = scan.bytes.split_at_checked(3)?;
    scan.bytes = rest;
    let month = MONTHS.iter().zip(1..).find(|(name, _)| name.as_bytes() == month)?.1;
    scan.one_of(b"/")?;
    let year = scan.number(4)?;
    scan.one_of(b":")?;
    let second = scan.time_of_day()?;
    let fraction = scan.fraction();
    scan.one_of(b" ");
    instant((year, month, day), second, fraction, scan)
}

/// The months as logs name them.
pub(super) const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The instant of a date (year, month, day), a second of the day, and microseconds; `scan` is at
/// the offset.
fn instant(
    (year, month, day): (i64, i64, i64),
    second: i64,
    micros: i64,
    mut scan: Scan<'_>,
) -> Option<Instant> {
    let has_offset = !scan.bytes.is_empty();
    let offset = if has_offset { scan.offset()? } else { 0 };
    scan.end()?;
    let seconds = seconds_before(year, month, day)? + second - offset;
    let time = Timestamp::from_micros(u64::try_from(seconds * 1_000_000 + micros).ok()?);
    Some(Instant { time, has_offset })
}

/// Seconds from the epoch to a date in UTC, if there is such a date.
fn seconds_before(year: i64, month: i64, day: i64) -> Option<i64> {
    let (year, month, day) = (year.try_into().ok()?, month.try_into().ok()?, day.try_into().ok()?);
    let midnight = Date::new(year, month, day).ok()?.at(0, 0, 0, 0);
    Some(Offset::UTC.to_timestamp(midnight).ok()?.as_second())
}

/// Seconds since the epoch with a fraction; from their size also milliseconds, microseconds and
/// nanoseconds, which no log has of the years for which the sizes overlap (before 1973).
pub(super) fn epoch(text: &str) -> Option<Instant> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    // Not as a floating-point number: of 16 digits it keeps microseconds only just.
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) {
        return by_exponent(text);
    }
    let whole: u64 = whole.parse().ok()?;
    let micros = match whole {
        0..100_000_000_000 => {
            let mut scan = Scan::new(text.trim_start_matches(|digit: char| digit.is_ascii_digit()));
            whole * 1_000_000 + scan.fraction().unsigned_abs()
        }
        100_000_000_000..100_000_000_000_000 => whole * 1000,
        100_000_000_000_000..100_000_000_000_000_000 => whole,
        _ => whole / 1000,
    };
    Some(Instant::in_utc(Timestamp::from_micros(micros)))
}

/// Seconds as in `1.7952505e9`, which is how a number of JSON may be written.
fn by_exponent(text: &str) -> Option<Instant> {
    text.contains(['e', 'E']).then_some(())?;
    let seconds = Duration::try_from_secs_f64(text.parse().ok()?).ok()?;
    Some(Instant::in_utc(Timestamp::default() + seconds))
}

/// A time in any of these forms.
pub(super) fn any(text: &str) -> Option<Instant> {
    let text = text.trim();
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    iso(text).or_else(|| epoch(text)).or_else(|| clf(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The instant as it is printed, with its microseconds below a millisecond.
    fn shown(instant: Option<Instant>) -> String {
        instant.map_or("none".to_owned(), |Instant { time, has_offset }| {
            let micros = time.as_micros() % 1000;
            format!(
                "{time}{}{}",
                if micros > 0 { format!(" +{micros}") } else { String::new() },
                if has_offset { "" } else { " no offset" }
            )
        })
    }

    #[test]
    fn times_are_read_in_each_form() {
        for (text, expected) in [
            ("2026-11-21T08:41:00.123Z", "2026-11-21T08:41:00.123Z"),
            ("2026-11-21T08:41:00Z", "2026-11-21T08:41:00.000Z"),
            ("2026-11-21T08:41:00.123456789Z", "2026-11-21T08:41:00.123Z +456"),
            ("2026-11-21T08:41:00+02:00", "2026-11-21T06:41:00.000Z"),
            ("2026-11-21 08:41:00,5 -0330", "2026-11-21T12:11:00.500Z"),
            ("2026-11-21 08:41:00", "2026-11-21T08:41:00.000Z no offset"),
            ("2026/11/21 08:41:00", "2026-11-21T08:41:00.000Z no offset"),
            ("2026/11/21 08:41:00.123", "2026-11-21T08:41:00.123Z no offset"),
            ("2026-11-21 08:41:00 UTC", "2026-11-21T08:41:00.000Z"),
            ("2026-11-21 08:41:00 GMT", "2026-11-21T08:41:00.000Z"),
            ("2026-11-21T08:41Z", "2026-11-21T08:41:00.000Z"),
            ("2026/11-21 08:41:00", "none"),
            ("2026-11-21 08:41:00 CET", "none"),
            ("2026-12-31T23:59:60Z", "2026-12-31T23:59:59.000Z"),
            ("2027-01-01T00:30:00+01:00", "2026-12-31T23:30:00.000Z"),
            ("21/Nov/2026:08:41:00 +0000", "2026-11-21T08:41:00.000Z"),
            ("[29/Feb/2024:23:59:59 -0800]", "2024-03-01T07:59:59.000Z"),
            ("06/Feb/2009:12:14:14.655", "2009-02-06T12:14:14.655Z no offset"),
            ("1795250520.123", "2026-11-21T08:42:00.123Z"),
            ("1795250520", "2026-11-21T08:42:00.000Z"),
            ("1795250520.1234567", "2026-11-21T08:42:00.123Z +456"),
            ("1795250520123", "2026-11-21T08:42:00.123Z"),
            ("1795250520123456", "2026-11-21T08:42:00.123Z +456"),
            ("1.79525052e9", "2026-11-21T08:42:00.000Z"),
            ("29/Feb/2023:00:00:00 +0000", "none"),
            ("2026-13-01T00:00:00Z", "none"),
            ("2026-11-21T24:00:00Z", "none"),
            ("1960-01-01T00:00:00Z", "none"),
            ("yesterday", "none"),
            ("-", "none"),
            ("", "none"),
        ] {
            assert_eq!(shown(any(text)), expected, "{text}");
        }
    }

    proptest::proptest! {
        /// The hand-made reader agrees with jiff.
        #[test]
        fn prop_instants_are_those_of_jiff(micros in 0..4_102_444_800_000_000_i64) {
            let time = jiff::Timestamp::from_microsecond(micros).unwrap();
            let expected = Timestamp::from_micros(u64::try_from(micros).unwrap());
            proptest::prop_assert_eq!(iso_by_hand(&time.to_string()).unwrap().time, expected);
            let clf_text = time.strftime("%d/%b/%Y:%H:%M:%S%.f +0000").to_string();
            proptest::prop_assert_eq!(clf(&clf_text).unwrap().time, expected);
        }
    }
}
