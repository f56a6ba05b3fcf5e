//! Quotas: what a tier may use, from a measure.

use std::time::Duration;

use tollgate_limit::{
    AlgorithmKind, Align, Calendar, CalendarUnit, Concurrency, FixedWindow, Gcra, LimitId, Quota,
    SlidingLog, SlidingWindow, TokenBucket,
};
use tollgate_yaml::{Span, Spanned};

use super::{
    Compiler,
    measure::{Alignment, Measure, RateAlgorithm, Units, WindowRate},
    tiers::ByTier,
};
use crate::{Allowance, Allowances, RefundBound, rate::Period};

/// What the allowances of a measure are made for.
#[derive(Clone, Copy)]
pub(super) struct AllowanceContext<'o> {
    /// The limit's name.
    pub(super) limit: &'o str,
    /// The tier; none: an override, which is the same for all tiers.
    pub(super) tier: Option<usize>,
    /// Whether they are only tried out, with counters of their own.
    pub(super) is_candidate: bool,
    /// Percent of them that may be given back; none: that is not bounded.
    pub(super) refunds: Option<u8>,
    /// Where they are written.
    pub(super) place: Span,
}

/// The message for a month that begins with the first request. It is the same for each tier.
pub(super) const NEEDS_CALENDAR: &str = "a window of a month or a year needs `align: calendar`";

impl Compiler<'_> {
    /// What the owner may use. Empty: without limit.
    pub(super) fn allowances(
        &mut self,
        measure: &Measure,
        owner: AllowanceContext<'_>,
    ) -> Option<Allowances> {
        let (quota, period) = match measure {
            Measure::Rates { rates, algorithm } => {
                return self.allowances_of_rates(rates, algorithm, owner);
            }
            Measure::Refill { capacity, amount, interval, strict } => {
                let capacity = self.of_owner(capacity, "capacity", owner)?.value;
                let Units::Limited(capacity) = capacity else { return Some(Vec::new()) };
                let (interval, strict) = (*interval, *strict);
                let bucket = TokenBucket { capacity, refill: *amount, interval, strict };
                (Quota::TokenBucket(bucket), Some(Period::Length(interval)))
            }
            Measure::Concurrent { limit, lease, retry_after } => {
                let Spanned { value, span } = *self.of_owner(limit, "concurrent", owner)?;
                let Units::Limited(limit) = value else { return Some(Vec::new()) };
                self.check_leases(limit, span)?;
                let (lease, retry_after) = (*lease, *retry_after);
                (Quota::Concurrency(Concurrency { limit, lease, retry_after }), None)
            }
        };
        Some(vec![self.allowance(quota, period, owner)])
    }

    /// A quota of the owner; without a period, it has no window.
    fn allowance(
        &self,
        quota: Quota,
        period: Option<Period>,
        owner: AllowanceContext<'_>,
    ) -> Allowance {
        let tag = match (owner.is_candidate, tag(&quota)) {
            (true, tag) => format!("candidate {tag}"),
            (false, tag) => tag,
        };
        let follows_calendar = matches!(quota.align(), Some(Align::Calendar(_)));
        // A calendar's windows differ in length; the tag names the unit.
        let micros = match period {
            Some(Period::Length(length)) if !follows_calendar => length.as_micros() as u64,
            _ => 0,
        };
        let time_of_all =
            period.map(|period| quota.refill_time().unwrap_or_else(|| period.longest()));
        let refunds = owner.refunds.zip(time_of_all).map(|(percent, time_of_all)| RefundBound {
            quota: refund_quota(&quota, percent, time_of_all),
            id: LimitId::new(&self.name, owner.limit, &format!("refunds of {tag}"), micros),
        });
        Allowance {
            id: LimitId::new(&self.name, owner.limit, &tag, micros),
            limit: quota.capacity().into(),
            name: owner.limit.into(),
            window_secs: time_of_all.map(ceil_secs),
            refunds,
            quota,
        }
    }

    /// What is written for the owner's tier.
    fn of_owner<'t, T>(
        &mut self,
        by_tier: &'t ByTier<T>,
        field: &str,
        owner: AllowanceContext<'_>,
    ) -> Option<&'t T> {
        let found = by_tier.of(owner.tier);
        if found.is_none() {
            self.refuse(
                owner.place,
                format!("the limit's `{field}` depends on the tier, which is not known here"),
                format!("add `{field}`"),
            );
        }
        found
    }

    fn allowances_of_rates(
        &mut self,
        rates: &ByTier<Vec<WindowRate>>,
        algorithm: &RateAlgorithm,
        owner: AllowanceContext<'_>,
    ) -> Option<Allowances> {
        let rates = self.of_owner(rates, "rate", owner)?;
        let room = match algorithm {
            RateAlgorithm::Gcra { burst: Some(burst) } => Some((burst, "burst")),
            RateAlgorithm::TokenBucket { capacity: Some(capacity), .. } => {
                Some((capacity, "capacity"))
            }
            RateAlgorithm::FixedWindow(_)
            | RateAlgorithm::SlidingWindow
            | RateAlgorithm::SlidingLog
            | RateAlgorithm::TokenBucket { capacity: None, .. }
            | RateAlgorithm::Gcra { burst: None } => None,
        };
        let room = match room {
            Some((by_tier, field)) if !rates.is_empty() => {
                let room = *self.of_owner(by_tier, field, owner)?;
                if rates.len() > 1 {
                    self.refuse(
                        room.span,
                        format!("`{field}` beside several rates"),
                        "remove it, or make the other rates limits of their own",
                    );
                }
                Some(room.value)
            }
            _ => None,
        };
        let quotas: Vec<Option<Quota>> =
            rates.iter().map(|rate| self.quota(rate, room, algorithm)).collect();
        let quotas: Vec<Quota> = quotas.into_iter().collect::<Option<_>>()?;
        let windows = quotas.into_iter().zip(rates);
        let mut allowances: Allowances =
            windows.map(|(quota, rate)| self.allowance(quota, Some(rate.period), owner)).collect();
        // The longest window is the one that the limit is known for.
        for (allowance, rate) in allowances.iter_mut().zip(rates).rev().skip(1) {
            allowance.name = format!("{}-{}", owner.limit, rate.period).into();
        }
        Some(allowances)
    }

    /// A rate by its algorithm; `room` is what may come at once, if that is written.
    fn quota(
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
                let strict = *strict;
                let bucket = TokenBucket { capacity: room, refill: limit, interval, strict };
                Quota::TokenBucket(bucket)
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

    fn check_leases(&mut self, limit: u32, span: Span) -> Option<()> {
        const MOST: u32 = Concurrency::MAX_LIMIT;
        if limit <= MOST {
            return Some(());
        }
        let message = format!("more than {MOST} requests at once");
        self.refuse(span, message, format!("write at most {MOST}, or unlimited"));
        None
    }
}

/// What separates the counters of a quota from others of its limit.
fn tag(quota: &Quota) -> String {
    let name = quota.kind().name();
    match quota.align() {
        None | Some(Align::FirstRequest(_)) => name.to_owned(),
        Some(Align::Epoch(_)) => format!("{name} epoch"),
        Some(Align::Calendar(calendar)) => {
            format!("{name} {} {}", calendar.unit.name(), calendar.zone_name())
        }
    }
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

/// What may be given back: so many percent of all that can be used at once, in the time in which
/// that comes back. Fixed windows are the same ones as the quota's.
fn refund_quota(quota: &Quota, percent: u8, time_of_all: Duration) -> Quota {
    let limit = u64::from(quota.capacity()) * u64::from(percent) / 100;
    let align = quota.align().cloned().unwrap_or(Align::FirstRequest(time_of_all));
    Quota::FixedWindow(FixedWindow { limit: limit.try_into().unwrap_or(u32::MAX), align })
}

fn ceil_secs(length: Duration) -> u64 {
    length.as_secs() + u64::from(length.subsec_nanos() != 0)
}
