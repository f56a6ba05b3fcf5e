//! Quotas: what a tier may use, from a measure.

use std::time::Duration;

use tollgate_limit::{
    AlgorithmKind, Align, Calendar, CalendarUnit, Concurrency, FixedWindow, Gcra, LimitId, Quota,
    SlidingLog, SlidingWindow, TokenBucket,
};
use tollgate_yaml::{Span, Spanned};

use super::{
    Compiler,
    measure::{Alignment, Measure, RateAlgorithm, Units},
    tiers::ByTier,
};
use crate::{Allowance, Allowances, Rate, RefundBound, rate::Period};

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

/// A rate of a tier, with what else the algorithm needs to know of the tier.
struct TierRate {
    limit: u32,
    period: Period,
    span: Span,
}

/// A quota, with the tag that separates its counters from others of the limit.
struct TaggedQuota {
    quota: Quota,
    /// The algorithm and its alignment.
    tag: String,
    /// None: it has no window.
    period: Option<Period>,
}

impl TaggedQuota {
    fn of(quota: Quota, period: Option<Period>) -> TaggedQuota {
        let name = quota.kind().name();
        let tag = match alignment_of(&quota) {
            None | Some(Align::FirstRequest(_)) => name.to_owned(),
            Some(Align::Epoch(_)) => format!("{name} epoch"),
            Some(Align::Calendar(calendar)) => {
                format!("{name} {} {}", calendar.unit.name(), calendar.zone_name())
            }
        };
        TaggedQuota { quota, tag, period }
    }
}

impl Compiler<'_> {
    /// What may be used. Empty: without limit.
    pub(super) fn allowances(
        &mut self,
        measure: &Measure,
        context: AllowanceContext<'_>,
    ) -> Option<Allowances> {
        let counted = match measure {
            Measure::Rates { rates, algorithm } => self.counted_rates(rates, algorithm, context)?,
            Measure::Refill { capacity, amount, interval, strict } => {
                match self.of_tier(capacity, "capacity", context)?.value {
                    Units::Unlimited => Vec::new(),
                    Units::Limited(capacity) => {
                        let bucket = TokenBucket {
                            capacity,
                            refill: *amount,
                            interval: *interval,
                            strict: *strict,
                        };
                        let period = Some(Period::Length(*interval));
                        vec![TaggedQuota::of(Quota::TokenBucket(bucket), period)]
                    }
                }
            }
            Measure::Concurrent { limit, lease, retry_after } => {
                let limit = *self.of_tier(limit, "concurrent", context)?;
                self.counted_leases(limit, *lease, *retry_after)?
            }
        };
        let last = counted.len().saturating_sub(1);
        let named = counted.into_iter().enumerate().map(|(at, counted)| {
            let name = match counted.period {
                Some(period) if at < last => format!("{}-{period}", context.limit),
                _ => context.limit.to_owned(),
            };
            self.allowance(counted, name, context)
        });
        Some(named.collect())
    }

    fn allowance(
        &self,
        counted: TaggedQuota,
        name: String,
        context: AllowanceContext<'_>,
    ) -> Allowance {
        let TaggedQuota { quota, tag, period } = counted;
        let tag = if context.is_candidate { format!("candidate {tag}") } else { tag };
        let follows_calendar =
            alignment_of(&quota).is_some_and(|align| matches!(align, Align::Calendar(_)));
        // A calendar's windows differ in length; the tag names the unit.
        let micros = match period {
            Some(Period::Length(length)) if !follows_calendar => length.as_micros() as u64,
            _ => 0,
        };
        let time_of_all = period.map(|period| time_of_all(&quota, period));
        let refunds = context.refunds.zip(time_of_all).map(|(percent, time_of_all)| RefundBound {
            quota: refund_quota(&quota, percent, time_of_all),
            id: LimitId::new(&self.name, context.limit, &format!("refunds of {tag}"), micros),
        });
        Allowance {
            id: LimitId::new(&self.name, context.limit, &tag, micros),
            limit: quota.capacity().into(),
            name: name.into(),
            window_secs: time_of_all.map(ceil_secs),
            refunds,
            quota,
        }
    }

    /// What is written for the tier of `context`.
    fn of_tier<'t, T>(
        &mut self,
        by_tier: &'t ByTier<T>,
        field: &str,
        context: AllowanceContext<'_>,
    ) -> Option<&'t T> {
        let found = by_tier.of(context.tier);
        if found.is_none() {
            self.refuse(
                context.place,
                format!("the limit's `{field}` depends on the tier, which is not known here"),
                format!("add `{field}`"),
            );
        }
        found
    }

    fn counted_rates(
        &mut self,
        rates: &ByTier<Vec<Spanned<Rate>>>,
        algorithm: &RateAlgorithm,
        context: AllowanceContext<'_>,
    ) -> Option<Vec<TaggedQuota>> {
        let rates: Vec<TierRate> = self
            .of_tier(rates, "rate", context)?
            .iter()
            .filter_map(|rate| match rate.value {
                Rate::Unlimited => None,
                Rate::Limited { limit, period } => {
                    Some(TierRate { limit, period, span: rate.span })
                }
            })
            .collect();
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
                let room = *self.of_tier(by_tier, field, context)?;
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
        let counted: Vec<Option<TaggedQuota>> =
            rates.iter().map(|rate| self.counted_rate(rate, room, algorithm)).collect();
        counted.into_iter().collect()
    }

    /// A rate by its algorithm; `room` is what may come at once, if that is written.
    fn counted_rate(
        &mut self,
        rate: &TierRate,
        room: Option<u32>,
        algorithm: &RateAlgorithm,
    ) -> Option<TaggedQuota> {
        let limit = rate.limit;
        // What may never come may not come at once either.
        let room = if limit == 0 { 0 } else { room.unwrap_or(limit) };
        let quota = match algorithm {
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
        };
        Some(TaggedQuota::of(quota, Some(rate.period)))
    }

    /// Where a fixed window begins and ends.
    fn align(&mut self, rate: &TierRate, alignment: &Alignment) -> Option<Align> {
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

    fn length(&mut self, rate: &TierRate) -> Option<Duration> {
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

    fn refuse_calendar(&mut self, rate: &TierRate, help: &str) {
        self.refuse(rate.span, NEEDS_CALENDAR, help);
    }

    /// Refuses numbers whose products are beyond what every store counts exactly.
    fn exact<T>(
        &mut self,
        made: Option<T>,
        rate: &TierRate,
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

    fn counted_leases(
        &mut self,
        limit: Spanned<Units>,
        lease: Duration,
        retry_after: Duration,
    ) -> Option<Vec<TaggedQuota>> {
        let (Units::Limited(number), most) = (limit.value, Concurrency::MAX_LIMIT) else {
            return Some(Vec::new());
        };
        if number > most {
            self.refuse(
                limit.span,
                format!("more than {most} requests at once"),
                format!("write at most {most}, or unlimited"),
            );
            return None;
        }
        let quota = Quota::Concurrency(Concurrency { limit: number, lease, retry_after });
        Some(vec![TaggedQuota::of(quota, None)])
    }
}

/// Where the windows of a quota begin, if they are fixed.
fn alignment_of(quota: &Quota) -> Option<&Align> {
    match quota {
        Quota::FixedWindow(window) => Some(&window.align),
        Quota::SlidingWindow(_)
        | Quota::SlidingLog(_)
        | Quota::TokenBucket(_)
        | Quota::Gcra(_)
        | Quota::Concurrency(_) => None,
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

/// The time in which all that can be used at once comes back: a bucket of 50 that gains 10 a second
/// allows 50 in 5 seconds, and not 50 in one.
fn time_of_all(quota: &Quota, period: Period) -> Duration {
    let times = |length: Duration, units: u32, each: u32| {
        let micros = length.as_micros() * u128::from(units) / u128::from(each.max(1));
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    };
    match quota {
        Quota::TokenBucket(bucket) => {
            let refills = bucket.capacity.div_ceil(bucket.refill.max(1));
            times(bucket.interval, refills.max(1), 1)
        }
        Quota::Gcra(gcra) if gcra.limit > 0 => times(gcra.window, gcra.burst, gcra.limit),
        Quota::FixedWindow(_)
        | Quota::SlidingWindow(_)
        | Quota::SlidingLog(_)
        | Quota::Gcra(_)
        | Quota::Concurrency(_) => period.longest(),
    }
}

/// What may be given back: so many percent of all that can be used at once, in the time in which
/// that comes back. Fixed windows are the same ones as the quota's.
fn refund_quota(quota: &Quota, percent: u8, time_of_all: Duration) -> Quota {
    let limit = u64::from(quota.capacity()) * u64::from(percent) / 100;
    let align = alignment_of(quota).cloned().unwrap_or(Align::FirstRequest(time_of_all));
    Quota::FixedWindow(FixedWindow { limit: limit.try_into().unwrap_or(u32::MAX), align })
}

fn ceil_secs(length: Duration) -> u64 {
    length.as_secs() + u64::from(length.subsec_nanos() != 0)
}
