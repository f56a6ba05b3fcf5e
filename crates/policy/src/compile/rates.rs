//! The algorithms that count rates: their own fields, and what a rate becomes by each of them.

use std::time::Duration;

use tollgate_identity::Tiers;
use tollgate_limit::{
    AlgorithmKind, Align, Calendar, CalendarUnit, FixedWindow, Gcra, Quota, SlidingLog,
    SlidingWindow, TokenBucket,
};
use tollgate_yaml::{Check, Node, Span, Spanned};

use super::{Compiler, tiers::ByTier};
use crate::{
    file::{RawMeasure, WindowStart},
    rate::Period,
};

/// The message for a month that begins with the first request. It is the same for each tier.
pub(super) const NEEDS_CALENDAR: &str = "a window of a month or a year needs `align: calendar`";

/// So much in each window.
#[derive(Clone, Copy)]
pub(super) struct WindowRate {
    pub(super) limit: u32,
    pub(super) period: Period,
    pub(super) span: Span,
}

/// The algorithm that counts rates, with its own fields.
pub(super) enum RateAlgorithm {
    FixedWindow(Alignment),
    SlidingWindow,
    SlidingLog,
    TokenBucket { capacity: Option<ByTier<Spanned<u32>>>, strict: bool },
    Gcra { burst: Option<ByTier<Spanned<u32>>> },
}

/// Where fixed windows begin.
pub(super) enum Alignment {
    FirstRequest,
    Epoch,
    /// Of this time zone.
    Calendar(String),
}

impl RateAlgorithm {
    /// How much may come at once, and the field that says it; none: it is not written.
    pub(super) fn room(&self) -> Option<(&ByTier<Spanned<u32>>, &'static str)> {
        match self {
            RateAlgorithm::Gcra { burst } => Some((burst.as_ref()?, "burst")),
            RateAlgorithm::TokenBucket { capacity, .. } => Some((capacity.as_ref()?, "capacity")),
            RateAlgorithm::FixedWindow(_)
            | RateAlgorithm::SlidingWindow
            | RateAlgorithm::SlidingLog => None,
        }
    }
}

impl Compiler<'_> {
    pub(super) fn rate_algorithm(
        &mut self,
        raw: &RawMeasure,
        algorithm: AlgorithmKind,
        tiers: &Tiers,
    ) -> Option<RateAlgorithm> {
        let mut number = |node: &Option<Node>, what: &str| match node {
            None => Some(None),
            Some(node) => self.by_tier(node, what, tiers, Self::some).map(Some),
        };
        match algorithm {
            AlgorithmKind::FixedWindow => self.alignment(raw).map(RateAlgorithm::FixedWindow),
            AlgorithmKind::SlidingWindow => Some(RateAlgorithm::SlidingWindow),
            AlgorithmKind::SlidingLog => Some(RateAlgorithm::SlidingLog),
            AlgorithmKind::TokenBucket => {
                let capacity = number(&raw.capacity, "capacity")?;
                Some(RateAlgorithm::TokenBucket { capacity, strict: is_strict(raw) })
            }
            AlgorithmKind::Gcra => {
                Some(RateAlgorithm::Gcra { burst: number(&raw.burst, "burst")? })
            }
            AlgorithmKind::Concurrency => None,
        }
    }

    fn alignment(&mut self, raw: &RawMeasure) -> Option<Alignment> {
        let zone = raw.timezone.as_ref();
        let start = self.keyword_or_default(raw.align.as_ref())?;
        if let Some(zone) = zone.filter(|_| start != WindowStart::Calendar) {
            self.refuse(zone.span, "`timezone` needs `align: calendar`", "remove it");
            return None;
        }
        if let Some(zone) = zone
            && let Err(error) = Calendar::new(CalendarUnit::Day, &zone.value)
        {
            self.note(zone.span, error.to_string(), "");
            return None;
        }
        Some(match start {
            WindowStart::FirstRequest => Alignment::FirstRequest,
            WindowStart::Epoch => Alignment::Epoch,
            WindowStart::Calendar => {
                Alignment::Calendar(zone.map_or("UTC".to_owned(), |zone| zone.value.clone()))
            }
        })
    }

    /// A rate by its algorithm; `room` is what may come at once, if that is written.
    pub(super) fn quota(
        &mut self,
        rate: &WindowRate,
        room: Option<u32>,
        algorithm: &RateAlgorithm,
    ) -> Option<Quota> {
        let limit = rate.limit;
        // What may never come may not come at once either.
        let room = if limit == 0 { 0 } else { room.unwrap_or(limit) };
        Some(match algorithm {
            RateAlgorithm::FixedWindow(alignment) => {
                let align = self.align(rate, alignment)?;
                Quota::FixedWindow(FixedWindow { limit, align })
            }
            RateAlgorithm::SlidingWindow => {
                let window = SlidingWindow::new(limit, self.length(rate)?);
                Quota::SlidingWindow(self.exact(window, rate, AlgorithmKind::SlidingWindow)?)
            }
            RateAlgorithm::SlidingLog => {
                let window = self.length(rate)?;
                if limit > SlidingLog::MAX_LIMIT {
                    let most = SlidingLog::MAX_LIMIT;
                    self.refuse(
                        rate.span,
                        format!("a sliding log remembers each of {most} requests at most"),
                        format!("write at most {most}, or `algorithm: sliding_window`"),
                    );
                }
                Quota::SlidingLog(SlidingLog { limit, window })
            }
            RateAlgorithm::TokenBucket { strict, .. } => {
                let interval = self.length(rate)?;
                let (capacity, refill, strict) = (room, limit, *strict);
                let even = true;
                Quota::TokenBucket(TokenBucket { capacity, refill, interval, even, strict })
            }
            RateAlgorithm::Gcra { .. } => {
                // A cost above the burst is never admitted, so none is larger.
                let meter = Gcra::new(limit, self.length(rate)?, room, room);
                Quota::Gcra(self.exact(meter, rate, AlgorithmKind::Gcra)?)
            }
        })
    }

    /// Where a fixed window begins and ends.
    fn align(&mut self, rate: &WindowRate, alignment: &Alignment) -> Option<Align> {
        let zone = match (alignment, rate.period) {
            (Alignment::FirstRequest, Period::Length(length)) => {
                return Some(Align::FirstRequest(length));
            }
            (Alignment::Epoch, Period::Length(length)) => {
                return Some(Align::Epoch(length));
            }
            (Alignment::FirstRequest | Alignment::Epoch, Period::Month | Period::Year) => {
                self.refuse_calendar(rate, "write `align: calendar`");
                return None;
            }
            (Alignment::Calendar(zone), _) => zone,
        };
        let Some(unit) = calendar_unit(rate.period) else {
            self.refuse(
                rate.span,
                format!("no calendar has windows of {}", rate.period),
                "write hour, day, week, month or year, or `align: epoch`",
            );
            return None;
        };
        Calendar::new(unit, zone).ok().map(Align::Calendar)
    }

    fn length(&mut self, rate: &WindowRate) -> Option<Duration> {
        match rate.period {
            Period::Length(length) => Some(length),
            Period::Month | Period::Year => {
                self.refuse_calendar(
                    rate,
                    "write days, such as 100_000/30d, or count by fixed_window with `align: calendar`",
                );
                None
            }
        }
    }

    fn refuse_calendar(&mut self, rate: &WindowRate, help: &str) {
        self.refuse(rate.span, NEEDS_CALENDAR, help);
    }

    /// Refuses numbers whose products are beyond what every store counts exactly.
    fn exact<T>(
        &mut self,
        made: Option<T>,
        rate: &WindowRate,
        algorithm: AlgorithmKind,
    ) -> Option<T> {
        if made.is_none() {
            self.refuse(
                rate.span,
                format!("too much for {} to count exactly", algorithm.name()),
                "write a smaller number or a shorter window, or count by fixed_window",
            );
        }
        made
    }
}

pub(super) fn is_strict(raw: &RawMeasure) -> bool {
    raw.strict.is_some_and(|strict| strict.value)
}

fn calendar_unit(period: Period) -> Option<CalendarUnit> {
    match period {
        Period::Length(length) => match length.as_secs() {
            _ if length.subsec_nanos() != 0 => None,
            3600 => Some(CalendarUnit::Hour),
            86_400 => Some(CalendarUnit::Day),
            604_800 => Some(CalendarUnit::Week),
            _ => None,
        },
        Period::Month => Some(CalendarUnit::Month),
        Period::Year => Some(CalendarUnit::Year),
    }
}
