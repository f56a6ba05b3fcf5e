//! Rates as people write them: `5000/hour`, `10/5s`, `100_000 per day`, `1000/month`, `unlimited`.

use std::{fmt, str::FromStr, time::Duration};

use tollgate_yaml::{DurationError, duration_in_words, parse_duration};

/// What a tier may use of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// The limit does not apply.
    Unlimited,
    /// So much in each window.
    Limited {
        /// Units a window; zero denies always.
        limit: u32,
        /// How long a window is.
        period: Period,
    },
}

/// How long a window is. Months and years differ in length: only a calendar can count by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// A whole number of milliseconds, up to 366 days.
    Length(Duration),
    /// A month of the calendar.
    Month,
    /// A year of the calendar.
    Year,
}

impl Period {
    /// Its length; of a month or a year, that of the longest.
    pub fn longest(self) -> Duration {
        match self {
            Period::Length(length) => length,
            Period::Month => 31 * DAY,
            Period::Year => 366 * DAY,
        }
    }
}

impl fmt::Display for Period {
    /// With the largest unit that fits: `10s`, `1h`, `2w`, `month`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Period::Length(length) => f.write_str(&duration_in_words(*length)),
            Period::Month => f.write_str("month"),
            Period::Year => f.write_str("year"),
        }
    }
}

/// Why a text is no rate. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// Neither `unlimited` nor `count/window`.
    #[error("not a rate")]
    Form,
    /// The part before the slash.
    #[error("`{0}` is not a whole number of requests")]
    Count(String),
    /// More than 2^31 - 1.
    #[error("more than 2147483647 requests a window")]
    CountTooLarge,
    /// The part after the slash.
    #[error("`{0}` is not a window of time")]
    Window(String),
    /// Zero, more than 366 days, or a fraction of a millisecond.
    #[error("a window is from a millisecond to 366 days long")]
    WindowRange,
    /// Several months or years, which no calendar has windows of.
    #[error("a window of several months or years")]
    SeveralPeriods,
}

impl RateError {
    /// What to write instead.
    pub fn help(&self) -> &'static str {
        match self {
            RateError::SeveralPeriods => "write month, year, or days such as 100_000/90d",
            _ => "write a rate such as 5000/hour, 10/5s, 100_000 per day, 0/hour or unlimited",
        }
    }
}

const MAX_COUNT: u64 = (1 << 31) - 1;
const DAY: Duration = Duration::from_secs(86_400);
const MAX_WINDOW: Duration = Duration::from_secs(366 * 86_400);

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let text = text.trim();
        if text == "unlimited" {
            return Ok(Rate::Unlimited);
        }
        let (count, window) =
            text.split_once('/').or_else(|| text.split_once(" per ")).ok_or(RateError::Form)?;
        Ok(Rate::Limited { limit: parse_count(count)?, period: parse_period(window)? })
    }
}

/// Parses `5000` and `5_000`.
pub(super) fn parse_count(text: &str) -> Result<u32, RateError> {
    let text = text.trim();
    let digits = text.replace('_', "");
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || !text.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(RateError::Count(text.to_owned()));
    }
    match digits.parse::<u64>() {
        Ok(count) if count <= MAX_COUNT => Ok(count as u32),
        _ => Err(RateError::CountTooLarge),
    }
}

/// Parses `hour`, `5s`, `30 seconds`, `7d`, `month`.
pub(super) fn parse_period(text: &str) -> Result<Period, RateError> {
    let text = text.trim();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    let period = match unit {
        "M" | "month" | "months" => Period::Month,
        "y" | "yr" | "yrs" | "year" | "years" => Period::Year,
        _ => return parse_window(text).map(Period::Length),
    };
    match text.strip_suffix(unit).map(str::trim_end) {
        Some("" | "1") => Ok(period),
        _ => Err(RateError::SeveralPeriods),
    }
}

fn parse_window(text: &str) -> Result<Duration, RateError> {
    let text = text.trim();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    if !unit.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return Err(RateError::Window(text.to_owned()));
    }
    let window = match text.starts_with(|c: char| c.is_ascii_digit()) {
        true => parse_duration(text),
        false => parse_duration(&format!("1{text}")),
    };
    match window {
        Ok(window) if window.is_zero() || window > MAX_WINDOW => Err(RateError::WindowRange),
        Ok(window) if window.subsec_nanos() % 1_000_000 != 0 => Err(RateError::WindowRange),
        Ok(window) => Ok(window),
        Err(DurationError::OutOfRange) => Err(RateError::WindowRange),
        Err(DurationError::Malformed) => Err(RateError::Window(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, limit, seconds) in [
            ("5000/hour", 5000, 3600),
            ("10/5s", 10, 5),
            ("100_000 per day", 100_000, 86_400),
            ("30 / minute", 30, 60),
            ("7 per 2 weeks", 7, 14 * 86_400),
            ("0/hour", 0, 3600),
            ("1/30 seconds", 1, 30),
            ("2147483647/366d", 2_147_483_647, 366 * 86_400),
        ] {
            let period = Period::Length(Duration::from_secs(seconds));
            assert_eq!(text.parse(), Ok(Rate::Limited { limit, period }), "{text}");
        }
        assert_eq!("unlimited".parse(), Ok(Rate::Unlimited));
    }

    #[test]
    fn months_and_years_are_windows_of_a_calendar() {
        for (text, period) in [
            ("5/month", Period::Month),
            ("5 per 1 month", Period::Month),
            ("5/M", Period::Month),
            ("5/year", Period::Year),
            ("5/1y", Period::Year),
        ] {
            assert_eq!(text.parse(), Ok(Rate::Limited { limit: 5, period }), "{text}");
        }
    }

    #[test]
    fn periods_are_shown_in_their_largest_unit() {
        for (text, expected) in [
            ("5/1500ms", "1500ms"),
            ("5/10s", "10s"),
            ("5/90s", "90s"),
            ("5/minute", "1m"),
            ("5/60m", "1h"),
            ("5/day", "1d"),
            ("5/14d", "2w"),
            ("5/month", "month"),
            ("5/year", "year"),
        ] {
            let Ok(Rate::Limited { period, .. }) = text.parse() else { panic!("{text}") };
            assert_eq!(period.to_string(), expected);
        }
    }

    #[test]
    fn other_texts_are_refused_with_their_fault() {
        use RateError::*;
        for (text, error) in [
            ("", Form),
            ("5000", Form),
            ("lots/hour", Count("lots".into())),
            ("/hour", Count(String::new())),
            ("-1/hour", Count("-1".into())),
            ("+1/hour", Count("+1".into())),
            ("_/hour", Count("_".into())),
            ("1.5/hour", Count("1.5".into())),
            ("2147483648/hour", CountTooLarge),
            ("99999999999999999999999/hour", CountTooLarge),
            ("5/fortnight", Window("fortnight".into())),
            ("5/", Window(String::new())),
            ("5/0s", WindowRange),
            ("5/367d", WindowRange),
            ("5/99999999999999999999s", WindowRange),
            ("100_000/2 months", SeveralPeriods),
            ("5/0 months", SeveralPeriods),
            ("5/10y", SeveralPeriods),
            ("5/hour/day", Window("hour/day".into())),
            ("5/1h 1month", Window("1h 1month".into())),
        ] {
            assert_eq!(text.parse::<Rate>(), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn prop_parsing_never_panics(text in "\\PC{0,24}") {
            let _ = text.parse::<Rate>();
        }
    }
}
