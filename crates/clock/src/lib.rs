//! Time as a value: the only crate that asks the system what time it is.
//!
//! Everything that decides takes a [`Timestamp`] as an argument, so that a test passes an hour by
//! adding one.
//!
//! This crate knows nothing of what is measured. [`deadline`] is one timer a worker, for all
//! deadlines of its connections.
//!
//! The types to know first:
//!
//! - [`Clock`]: where the time comes from.
//! - [`Timestamp`]: an instant.
//! - [`Throttle`]: lets something happen at most once in a while.
//! - [`deadline::Ticker`]: the timer of a worker.
//! - [`deadline::Deadline`]: one deadline, kept with a connection.

pub mod deadline;
mod throttle;

use std::{
    fmt,
    ops::Add,
    panic::RefUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub use self::throttle::Throttle;

/// An instant, in whole microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The instant that lies `micros` microseconds after the epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The instant that lies `seconds` seconds after the epoch.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Seconds since the epoch, rounded up: a client that waits until then is never early.
    pub const fn ceil_secs(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// The instant that lies so many microseconds later, or earlier if they are negative.
    pub const fn saturating_add_signed(self, micros: i64) -> Self {
        Self(self.0.saturating_add_signed(micros))
    }

    /// The instant that lies so much earlier, the epoch at the earliest.
    pub const fn saturating_sub(self, duration: Duration) -> Self {
        let micros = duration.as_micros();
        Self(if micros < self.0 as u128 { self.0 - micros as u64 } else { 0 })
    }

    /// Time from `earlier` to `self`, zero if `earlier` is later.
    pub const fn saturating_since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Timestamp {
    /// The first instant of a day in UTC (`2026-12-31`), or the instant that is written
    /// (`2026-12-31T18:00:00Z`): what people mean by "from".
    pub fn parse_start(text: &str) -> Option<Timestamp> {
        let instant = match parse_date(text) {
            Some(date) => date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp(),
            None => text.parse::<jiff::Timestamp>().ok()?,
        };
        u64::try_from(instant.as_microsecond()).ok().map(Timestamp)
    }

    /// The first instant after a day in UTC (`2026-12-31`), or the instant that is written
    /// (`2026-12-31T18:00:00Z`): what people mean by "until".
    pub fn parse_end(text: &str) -> Option<Timestamp> {
        let instant = match parse_date(text) {
            Some(date) => date.tomorrow().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp(),
            None => text.parse::<jiff::Timestamp>().ok()?,
        };
        u64::try_from(instant.as_microsecond()).ok().map(Timestamp)
    }
}

/// A day as people write it. The parser would take other forms, too.
fn parse_date(text: &str) -> Option<jiff::civil::Date> {
    let is_date = text.len() == "2026-12-31".len();
    text.parse().ok().filter(|_| is_date)
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    /// Saturates: no configured window reaches the year 586,912.
    fn add(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds, as logs want it: `2026-11-21T08:41:00.123Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0 / 86_400_000_000;
        let second_of_day = self.0 / 1_000_000 % 86_400;
        let (year, month, day) = civil_from_days(days);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
            second_of_day / 3600,
            second_of_day / 60 % 60,
            second_of_day % 60,
            self.0 / 1000 % 1000
        )
    }
}

/// Year, month and day of a day count since 1970-01-01 in the proleptic Gregorian calendar.
///
/// The year is taken to begin in March, so that the leap day is its last (Hinnant, "chrono-
/// compatible low-level date algorithms").
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Where the time comes from.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The system's wall clock.
    #[default]
    System,
    /// Microseconds since the epoch, moved by a test that holds the other end.
    Manual(Arc<AtomicU64>),
    /// The system's wall clock, so many microseconds ahead: for tests of clocks that differ.
    Ahead(Arc<AtomicI64>),
    /// The clock of a machine in a simulation. It goes as the simulation's time does.
    Simulated(SimulatedClock),
}

/// Says what a machine of a simulation takes for the present instant.
#[derive(Clone)]
pub struct SimulatedClock(pub Arc<dyn Fn() -> Timestamp + Send + Sync + RefUnwindSafe>);

impl fmt::Debug for SimulatedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedClock")
    }
}

impl Clock {
    /// The present instant. A request asks once and keeps the answer.
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System => {
                #[expect(clippy::disallowed_methods, reason = "this is the one place that asks")]
                let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
            }
            Clock::Manual(micros) => Timestamp(micros.load(Ordering::Relaxed)),
            Clock::Ahead(micros) => {
                Clock::System.now().saturating_add_signed(micros.load(Ordering::Relaxed))
            }
            Clock::Simulated(SimulatedClock(now)) => now(),
        }
    }

    /// Whether it goes by itself, so that it can be compared with another clock.
    pub fn goes(&self) -> bool {
        !matches!(self, Clock::Manual(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_print_as_rfc_3339() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp::from_secs(seconds).to_string(), expected);
        }
        assert_eq!(Timestamp::from_micros(1_500).to_string(), "1970-01-01T00:00:00.001Z");
    }

    #[test]
    fn seconds_round_up_so_that_waiting_is_never_too_short() {
        assert_eq!(Timestamp::from_micros(1_000_000).ceil_secs(), 1);
        assert_eq!(Timestamp::from_micros(1_000_001).ceil_secs(), 2);
    }
}
