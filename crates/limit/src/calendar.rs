//! Windows of the calendar: the hours, days, weeks, months and years of a time zone.
//!
//! A window ends at an instant that depends on the zone alone, never on the caller, so all callers'
//! windows end at once, and the end that is stored is the end that anybody computes.

use std::time::Duration;

use jiff::{
    Timestamp as Instant,
    civil::{Date, Weekday},
    tz::{TimeZone, TimeZoneDatabase},
};
use tollgate_clock::Timestamp;

/// Windows that follow each other without a break, each a unit of a time zone's calendar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    /// What a window is.
    pub unit: CalendarUnit,
    /// Never the placeholder for an unknown zone.
    zone: TimeZone,
}

/// What a window of the calendar is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalendarUnit {
    /// An hour, from minute zero.
    Hour,
    /// A day, from midnight.
    Day,
    /// A week of ISO 8601, from Monday.
    Week,
    /// A month, from its first day.
    Month,
    /// A year, from the first of January.
    Year,
}

/// Why there is no such calendar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalendarError {
    /// The time zone database has no zone of this name.
    #[error("`{0}` is not in the time zone database: write a name such as UTC or Europe/Berlin")]
    UnknownZone(String),
}

/// The Gregorian calendar repeats itself, weekdays included, after 400 years.
const CYCLE_MICROS: u64 = 146_097 * 86_400 * 1_000_000;

/// The number of cycles that are distinguished. By then, the year 3970, every
/// zone does the same each year.
const DISTINCT_CYCLES: u64 = 5;

const HOUR_MICROS: i64 = 3600 * 1_000_000;

impl Calendar {
    /// The calendar of a zone of the IANA database; the case of its name does not matter.
    ///
    /// # Errors
    /// If there is no such zone.
    pub fn new(unit: CalendarUnit, time_zone: &str) -> Result<Self, CalendarError> {
        // The database compiled in: a container may have none, and hosts do not differ in theirs.
        match TimeZoneDatabase::bundled().get(time_zone) {
            Ok(zone) if !zone.is_unknown() => Ok(Calendar { unit, zone }),
            _ => Err(CalendarError::UnknownZone(time_zone.to_owned())),
        }
    }

    /// The time zone's name as the database spells it.
    pub fn zone_name(&self) -> &str {
        self.zone.iana_name().unwrap_or_default()
    }

    /// The end of the window that is open at `now`: always later, until time itself saturates.
    ///
    /// A day begins when the zone's clock first shows its midnight or more. It has 23 or 25 hours
    /// where the clock is changed; where there is no midnight it begins with the change; and an
    /// evening that is repeated after midnight belongs to the day that has begun. Weeks, months and
    /// years begin with a day.
    ///
    /// An hour ends when the clock strikes or is changed, whichever is first. So none lasts longer:
    /// an hour that is repeated is two windows, and one that is left out is none.
    pub fn end(&self, now: Timestamp) -> Timestamp {
        let cycles = (now.as_micros() / CYCLE_MICROS).saturating_sub(DISTINCT_CYCLES);
        let left_out = cycles * CYCLE_MICROS;
        let end = self.end_within(now.as_micros() - left_out);
        end.map_or(now + self.unit.max_length(), |end| {
            Timestamp::from_micros(end.saturating_add(left_out))
        })
    }

    /// The end for an instant of the distinct cycles, in microseconds as that is.
    fn end_within(&self, now: u64) -> Option<u64> {
        let now = Instant::from_microsecond(i64::try_from(now).ok()?).ok()?;
        let end = match self.unit {
            CalendarUnit::Hour => self.end_of_hour(now)?,
            CalendarUnit::Day => self.next_beginning(now, Date::tomorrow)?,
            CalendarUnit::Week => {
                self.next_beginning(now, |date| date.nth_weekday(1, Weekday::Monday))?
            }
            CalendarUnit::Month => {
                self.next_beginning(now, |date| date.last_of_month().tomorrow())?
            }
            CalendarUnit::Year => {
                self.next_beginning(now, |date| date.last_of_year().tomorrow())?
            }
        };
        u64::try_from(end.as_microsecond()).ok()
    }

    fn end_of_hour(&self, now: Instant) -> Option<Instant> {
        let offset = self.zone.to_offset(now);
        let local = now.as_microsecond() + i64::from(offset.seconds()) * 1_000_000;
        let left = HOUR_MICROS - local.rem_euclid(HOUR_MICROS);
        let stroke = Instant::from_microsecond(now.as_microsecond() + left).ok()?;
        let change = self
            .zone
            .following(now)
            .take_while(|transition| transition.timestamp() < stroke)
            .find(|transition| transition.offset() != offset);
        Some(change.map_or(stroke, |transition| transition.timestamp()))
    }

    /// The first instant after `now` at which a period begins; `following` gives the first day of
    /// the period after a date's.
    fn next_beginning(
        &self,
        now: Instant,
        following: impl Fn(Date) -> Result<Date, jiff::Error>,
    ) -> Option<Instant> {
        let mut date = self.zone.to_datetime(now).date();
        loop {
            date = following(date).ok()?;
            let beginning = self.beginning(date)?;
            // In a repeated evening the date is one whose successor has begun already.
            if beginning > now {
                return Some(beginning);
            }
        }
    }

    /// When the zone's clock first shows this date or a later one.
    fn beginning(&self, date: Date) -> Option<Instant> {
        let midnight = date.at(0, 0, 0, 0);
        let shown = self.zone.to_ambiguous_timestamp(midnight).earlier().ok()?;
        if self.zone.to_datetime(shown) == midnight {
            return Some(shown);
        }
        // There is no such midnight: `shown` is a little before the clock is put forward over it.
        self.zone
            .following(shown)
            .map(|transition| transition.timestamp())
            .find(|instant| self.zone.to_datetime(*instant) >= midnight)
    }
}

impl CalendarUnit {
    /// No window is longer than this: what the calendar says, and for the clock that is put back
    /// (since 1970 by 7 hours at most) half a day.
    pub const fn max_length(self) -> Duration {
        let days = match self {
            CalendarUnit::Hour => return Duration::from_secs(3600),
            CalendarUnit::Day => 1,
            CalendarUnit::Week => 7,
            CalendarUnit::Month => 31,
            CalendarUnit::Year => 366,
        };
        Duration::from_secs(days * 86_400 + 43_200)
    }

    /// What the unit is called.
    pub const fn name(self) -> &'static str {
        match self {
            CalendarUnit::Hour => "hour",
            CalendarUnit::Day => "day",
            CalendarUnit::Week => "week",
            CalendarUnit::Month => "month",
            CalendarUnit::Year => "year",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::select};

    use super::{CalendarUnit::*, *};

    const UNITS: [CalendarUnit; 5] = [Hour, Day, Week, Month, Year];

    fn at(text: &str) -> Timestamp {
        let instant: Instant = text.parse().unwrap();
        Timestamp::from_micros(instant.as_microsecond().try_into().unwrap())
    }

    fn calendar(unit: CalendarUnit, zone: &str) -> Calendar {
        Calendar::new(unit, zone).unwrap()
    }

    #[test]
    fn windows_end_where_the_zone_says() {
        for (zone, unit, now, end) in [
            ("UTC", Hour, "2026-11-21T12:34:56.789Z", "2026-11-21T13:00:00Z"),
            ("UTC", Day, "2026-11-21T12:34:56.789Z", "2026-11-22T00:00:00Z"),
            ("UTC", Week, "2026-11-21T12:34:56.789Z", "2026-11-23T00:00:00Z"),
            ("UTC", Month, "2026-11-21T12:34:56.789Z", "2026-12-01T00:00:00Z"),
            ("UTC", Year, "2026-11-21T12:34:56.789Z", "2027-01-01T00:00:00Z"),
            ("UTC", Week, "2026-11-22T23:59:59.999999Z", "2026-11-23T00:00:00Z"),
            ("UTC", Week, "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"),
            ("UTC", Day, "2026-12-31T23:59:59.999999Z", "2027-01-01T00:00:00Z"),
            ("UTC", Week, "2026-12-31T12:00:00Z", "2027-01-04T00:00:00Z"),
            ("UTC", Year, "2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"),
            ("UTC", Hour, "1970-01-01T00:00:00Z", "1970-01-01T01:00:00Z"),
            // The last of February.
            ("UTC", Day, "2028-02-28T12:00:00Z", "2028-02-29T00:00:00Z"),
            ("UTC", Day, "2028-02-29T12:00:00Z", "2028-03-01T00:00:00Z"),
            ("UTC", Month, "2028-02-29T12:00:00Z", "2028-03-01T00:00:00Z"),
            ("UTC", Day, "2100-02-28T12:00:00Z", "2100-03-01T00:00:00Z"),
            // The year begins elsewhere at another time; so does time.
            ("America/New_York", Year, "2026-12-31T12:00:00Z", "2027-01-01T05:00:00Z"),
            ("America/New_York", Year, "1970-01-01T00:00:00Z", "1970-01-01T05:00:00Z"),
            // Days of 23 and 25 hours.
            ("Europe/Berlin", Day, "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
            ("Europe/Berlin", Day, "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
            ("Europe/Berlin", Week, "2026-10-20T12:00:00Z", "2026-10-25T23:00:00Z"),
            ("Europe/Berlin", Month, "2026-10-20T12:00:00Z", "2026-10-31T23:00:00Z"),
            ("America/New_York", Day, "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"),
            ("America/New_York", Day, "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"),
            ("America/New_York", Month, "2026-11-01T04:00:00Z", "2026-12-01T05:00:00Z"),
            // The hour from two to three is left out, and repeated.
            ("Europe/Berlin", Hour, "2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z"),
            ("Europe/Berlin", Hour, "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"),
            ("Europe/Berlin", Hour, "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z"),
            ("Europe/Berlin", Hour, "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"),
            // Forward by half an hour, and back.
            ("Australia/Lord_Howe", Hour, "2026-10-03T15:00:00Z", "2026-10-03T15:30:00Z"),
            ("Australia/Lord_Howe", Hour, "2026-10-03T15:30:00Z", "2026-10-03T16:00:00Z"),
            ("Australia/Lord_Howe", Hour, "2026-04-04T14:00:00Z", "2026-04-04T15:00:00Z"),
            ("Australia/Lord_Howe", Hour, "2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z"),
            // Five hours and three quarters ahead.
            ("Asia/Kathmandu", Hour, "2026-11-21T12:00:00Z", "2026-11-21T12:15:00Z"),
            ("Asia/Kathmandu", Hour, "2026-11-21T12:15:00Z", "2026-11-21T13:15:00Z"),
            ("Asia/Kathmandu", Day, "2026-11-21T12:00:00Z", "2026-11-21T18:15:00Z"),
            // There is no midnight, and one clock shows 23 o'clock twice.
            ("America/Sao_Paulo", Day, "2018-11-04T02:59:59Z", "2018-11-04T03:00:00Z"),
            ("America/Sao_Paulo", Day, "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"),
            ("America/Sao_Paulo", Day, "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"),
            // Midnight comes twice: at one o'clock, and at one minute past twelve, the clock is put
            // back by an hour.
            ("America/Havana", Day, "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"),
            ("America/Havana", Day, "2026-11-01T05:00:00Z", "2026-11-02T05:00:00Z"),
            ("America/St_Johns", Day, "2010-11-07T02:29:00Z", "2010-11-07T02:30:00Z"),
            ("America/St_Johns", Day, "2010-11-07T02:45:00Z", "2010-11-08T03:30:00Z"),
            ("America/St_Johns", Hour, "2010-11-07T02:30:30Z", "2010-11-07T02:31:00Z"),
            ("America/St_Johns", Hour, "2010-11-07T02:31:00Z", "2010-11-07T03:30:00Z"),
            // A day that was left out.
            ("Pacific/Apia", Day, "2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z"),
            ("Pacific/Apia", Day, "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"),
        ] {
            let found = calendar(unit, zone).end(at(now));
            assert_eq!(found, at(end), "{zone} {unit:?} {now}: {found}");
        }
    }

    #[test]
    fn zones_are_found_by_their_names_only() {
        assert_eq!(calendar(Day, "europe/BERLIN").zone_name(), "Europe/Berlin");
        assert_eq!(calendar(Day, "utc").zone_name(), "UTC");
        assert_eq!(calendar(Day, "utc"), calendar(Day, "UTC"));
        assert_ne!(calendar(Day, "UTC"), calendar(Day, "Europe/Berlin"));
        for name in ["", " UTC", "Etc/Unknown", "Europe/Berln", "+02:00", "CET-1CEST"] {
            let error = Calendar::new(Day, name).unwrap_err();
            assert_eq!(error, CalendarError::UnknownZone(name.into()));
        }
        assert_eq!(
            CalendarError::UnknownZone("Europe/Berln".into()).to_string(),
            "`Europe/Berln` is not in the time zone database: \
             write a name such as UTC or Europe/Berlin"
        );
    }

    #[test]
    fn every_zone_of_the_database_makes_a_calendar() {
        for name in names() {
            assert_eq!(calendar(Month, &name).zone_name(), name);
        }
    }

    #[test]
    fn the_last_window_never_ends() {
        let last = Timestamp::from_micros(u64::MAX);
        for unit in UNITS {
            assert_eq!(calendar(unit, "Europe/Berlin").end(last), last, "{unit:?}");
        }
    }

    fn names() -> Vec<String> {
        TimeZoneDatabase::bundled().available().map(|name| name.as_str().to_owned()).collect()
    }

    mod arbitrary {
        use super::*;

        pub(super) fn calendar() -> impl Strategy<Value = Calendar> {
            (select(&UNITS[..]), select(names()))
                .prop_map(|(unit, name)| super::calendar(unit, &name))
        }

        /// An instant of the years 1970 to 2100 in a calendar, every other one within ten days of a
        /// change of its clock.
        pub(super) fn calendar_and_now() -> impl Strategy<Value = (Calendar, Timestamp)> {
            let near = -864_000_000_000..864_000_000_000_i64;
            (calendar(), 0..4_102_444_800_000_000_i64, proptest::option::of(near)).prop_map(
                |(calendar, micros, near)| {
                    let any = Instant::from_microsecond(micros).unwrap();
                    let change = calendar.zone.following(any).next();
                    let now = match (change, near) {
                        (Some(change), Some(near)) => change.timestamp().as_microsecond() + near,
                        _ => micros,
                    };
                    (calendar, Timestamp::from_micros(now.max(0) as u64))
                },
            )
        }
    }

    proptest! {
        #[test]
        fn prop_a_window_is_open_until_its_end_and_not_too_long(
            (calendar, now) in arbitrary::calendar_and_now()
        ) {
            let end = calendar.end(now);
            prop_assert!(end > now);
            prop_assert!(end.saturating_since(now) <= calendar.unit.max_length());
            prop_assert_eq!(calendar.end(Timestamp::from_micros(end.as_micros() - 1)), end);
            let next = calendar.end(end);
            prop_assert!(next.saturating_since(end) <= calendar.unit.max_length());
        }

        /// A naive reading of the rule: at the end the clock shows more than ever before.
        #[test]
        fn prop_a_window_ends_when_the_clock_first_shows_the_next(
            (calendar, now) in arbitrary::calendar_and_now(), part in 0.0..1.0
        ) {
            let (now, end) = (now.as_micros(), calendar.end(now).as_micros());
            let instant = |micros: u64| Instant::from_microsecond(micros as i64).unwrap();
            let shown = |micros: u64| calendar.zone.to_datetime(instant(micros));
            let offset = |micros: u64| calendar.zone.to_offset(instant(micros));
            let period = |micros: u64| {
                let date = shown(micros).date();
                match calendar.unit {
                    Hour | Day => (date.year(), date.day_of_year()),
                    Week => (date.iso_week_date().year(), date.iso_week_date().week().into()),
                    Month => (date.year(), date.month().into()),
                    Year => (date.year(), 0),
                }
            };
            let before = now + ((end - now) as f64 * part) as u64;
            if calendar.unit == Hour {
                let strikes = (shown(end).minute(), shown(end).second()) == (0, 0);
                prop_assert!(strikes || offset(end) != offset(end - 1));
                prop_assert_eq!(offset(before), offset(end - 1));
                prop_assert_eq!(shown(before).hour(), shown(end - 1).hour());
            } else {
                prop_assert!(period(before) < period(end));
                prop_assert!(period(end - 1) < period(end));
            }
        }

        #[test]
        fn prop_far_years_are_like_near_ones(
            calendar in arbitrary::calendar(),
            micros in DISTINCT_CYCLES * CYCLE_MICROS..(DISTINCT_CYCLES + 1) * CYCLE_MICROS,
            cycles in 1..1400_u64,
        ) {
            let later = |now: Timestamp| {
                Timestamp::from_micros(now.as_micros() + cycles * CYCLE_MICROS)
            };
            let now = Timestamp::from_micros(micros);
            prop_assert_eq!(calendar.end(later(now)), later(calendar.end(now)));
        }

        #[test]
        fn prop_no_instant_makes_it_panic(calendar in arbitrary::calendar(), micros: u64) {
            let now = Timestamp::from_micros(micros);
            prop_assert!(calendar.end(now) > now);
        }
    }
}
