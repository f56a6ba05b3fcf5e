//! Quotas: what a tier may use, from a measure.

use std::time::Duration;

use tollgate_limit::{Align, Concurrency, FixedWindow, LimitId, Quota, TokenBucket};
use tollgate_yaml::{Check, Span, Spanned};

use super::{
    Compiler,
    measure::{Measure, Units},
    rates::{RateAlgorithm, WindowRate},
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
                let (refill, interval, strict) = (*amount, *interval, *strict);
                let bucket = TokenBucket { capacity, refill, interval, even: false, strict };
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
        let room = match algorithm.room() {
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
