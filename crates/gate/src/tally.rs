//! What was decided about a request's charges, and how the response corrects them.

mod settle;

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tollgate_clock::Timestamp;
use tollgate_identity::{CallerValue, Identity, ResolvedCaller};
use tollgate_limit::{
    Charge, DecidedBy, Decision, Key, Outcome, Outcomes, Retry, Standing, Verdict,
};
use tollgate_response::{Denial, Rejection};
use tollgate_store::{Decider, GrantedLease, Stores, Unsettled, UnsettledUnits};

use super::charge_plan::{ChargePlan, ChargeRole, PlannedLimit};

pub use self::settle::adjustment;
pub(super) use self::settle::{ResponseFacts, cost_in};

/// The charges of a request and their outcomes.
pub struct Tally<'p> {
    plan: ChargePlan<'p>,
    outcomes: Outcomes,
    /// Whether the request was to be charged.
    is_charge: bool,
    /// Whether the response may still correct what was charged.
    is_open: bool,
    /// When the store decided, by its own clock.
    decided: Timestamp,
    /// When the store was called, by this process' clock.
    begun: Timestamp,
    /// The counters of the charges that the head of the response has given back.
    refunded: Vec<Key>,
    /// Units that the response may give back, of limits that count only some responses.
    unsettled: SmallVec<[UnsettledUnits; 1]>,
}

/// How soon a caller may come back that is denied only because of units that may be given back.
const UNSETTLED_RETRY: Duration = Duration::from_secs(1);

/// One charge and its outcome.
#[derive(Clone, Copy)]
pub struct DecidedCharge<'t, 'p> {
    /// What the charge is for.
    pub planned: &'t PlannedLimit<'p>,
    /// What the store was asked to take.
    pub charge: &'t Charge<'p>,
    /// What it decided.
    pub outcome: &'t Outcome,
}

impl<'t> DecidedCharge<'t, '_> {
    /// Whether the store has decided it, and it is no bound on refunds.
    fn is_decided(&self) -> bool {
        self.outcome.decided_by != DecidedBy::NoStore && self.planned.role != ChargeRole::Refund
    }

    /// How the limit stands.
    pub fn standing(&self) -> &'t Standing {
        &self.outcome.standing
    }
}

impl<'p> Tally<'p> {
    /// What the store decided about charges that were requested at `now`.
    pub fn charged(
        plan: ChargePlan<'p>,
        decision: Decision,
        now: Timestamp,
        unsettled: &Arc<Unsettled>,
    ) -> Self {
        let is_open = decision.verdict == Verdict::Allow;
        let mut tally = Tally::peeked(plan, decision, now);
        tally.is_charge = true;
        tally.is_open = is_open;
        match is_open {
            true => tally.hold_unsettled(unsettled),
            false => tally.hasten_retries(unsettled),
        }
        tally
    }

    /// Marks what was taken as unsettled where only some responses count.
    fn hold_unsettled(&mut self, unsettled: &Arc<Unsettled>) {
        let is_due = |own: &DecidedCharge<'_, 'p>| {
            own.planned.limit.count_when.is_some() && own.outcome.receipt.is_some()
        };
        let units = |own: DecidedCharge<'_, 'p>| unsettled.hold(own.charge.key, own.charge.cost);
        self.unsettled = self.charges().filter(is_due).map(units).collect();
    }

    /// Shortens the wait for limits that deny only because of units that may be given back.
    fn hasten_retries(&mut self, unsettled: &Unsettled) {
        let soon = self.decided + UNSETTLED_RETRY;
        let planned = self.plan.limits.iter().zip(&self.plan.charges);
        for ((planned, charge), outcome) in planned.zip(&mut self.outcomes) {
            if planned.limit.count_when.is_none() || outcome.fits() {
                continue;
            }
            let standing = &mut outcome.standing;
            let settled = standing.used.saturating_sub(unsettled.units(charge.key));
            if settled.saturating_add(charge.cost) <= standing.limit {
                standing.retry = standing.retry.min(Retry::At(soon));
            }
        }
    }

    /// How the limits of these charges stand, by a query at `now`. Nothing was taken.
    pub fn peeked(plan: ChargePlan<'p>, decision: Decision, now: Timestamp) -> Self {
        let Decision { outcomes, now: decided, .. } = decision;
        let unsettled = SmallVec::new();
        let is_charge = false;
        let is_open = false;
        Tally {
            plan,
            outcomes,
            is_charge,
            is_open,
            decided,
            begun: now,
            refunded: Vec::new(),
            unsettled,
        }
    }

    /// Whether the request was to be charged, not only to be told how it stands.
    pub(super) fn is_charge(&self) -> bool {
        self.is_charge
    }

    /// The position of the tier that is charged.
    pub fn tier(&self) -> usize {
        self.plan.tier
    }

    /// The time of the store's clock when this process' clock has `now`.
    pub fn store_time(&self, now: Timestamp) -> Timestamp {
        self.decided + now.saturating_since(self.begun)
    }

    /// What decided instead of the store: this process, or nothing. None: the store decided all.
    pub(super) fn fallback(&self) -> Option<DecidedBy> {
        let mut deciders = self.outcomes.iter().map(|outcome| outcome.decided_by);
        let is_local = deciders.clone().any(|decider| decider == DecidedBy::Local);
        let is_open = self.is_open && deciders.any(|decider| decider == DecidedBy::NoStore);
        match (is_local, is_open) {
            (true, _) => Some(DecidedBy::Local),
            (false, true) => Some(DecidedBy::NoStore),
            (false, false) => None,
        }
    }

    /// Who decided about the request's charges. None: they were only queried.
    pub(super) fn decider(&self, stores: &Stores) -> Option<Decider> {
        self.is_charge.then(|| stores.decider_of(&self.outcomes))
    }

    /// All charges that were decided, in order, without those on bounds of refunds.
    pub fn charges(&self) -> impl Iterator<Item = DecidedCharge<'_, 'p>> {
        self.all().filter(DecidedCharge::is_decided)
    }

    /// The charge at this position of the plan, if it was decided.
    pub fn at(&self, position: usize) -> Option<DecidedCharge<'_, 'p>> {
        self.all().nth(position).filter(|own| own.outcome.decided_by != DecidedBy::NoStore)
    }

    /// All charges in order, also those on bounds of refunds and those that were not decided.
    pub(super) fn all(&self) -> impl Iterator<Item = DecidedCharge<'_, 'p>> {
        let planned = self.plan.limits.iter().zip(&self.plan.charges);
        planned.zip(&self.outcomes).map(|((planned, charge), outcome)| DecidedCharge {
            planned,
            charge,
            outcome,
        })
    }

    /// The charges on enforced limits, also those that neither the store nor this process decided.
    pub(super) fn enforced_or_undecided(&self) -> impl Iterator<Item = DecidedCharge<'_, 'p>> {
        self.all().filter(|own| own.planned.role.is_enforced())
    }

    /// Units that the request has cost one of its limits in the end: none if it was denied, or if
    /// that limit only counts and had no room.
    pub(super) fn cost_of(&self, own: &DecidedCharge<'_, 'p>) -> u32 {
        if self.is_open && own.outcome.fits() { own.charge.cost } else { 0 }
    }

    /// The charges on enforced limits.
    pub fn enforced(&self) -> impl Iterator<Item = DecidedCharge<'_, 'p>> {
        self.charges().filter(|own| own.planned.role.is_enforced())
    }

    /// The charges that would have denied the request if their limits were enforced.
    pub(super) fn would_deny(&self) -> impl Iterator<Item = DecidedCharge<'_, 'p>> {
        let is_observed = |own: &DecidedCharge<'_, 'p>| {
            matches!(own.planned.role, ChargeRole::Shadow | ChargeRole::Candidate)
                && !own.outcome.fits()
        };
        self.charges().filter(is_observed)
    }

    /// The limits that would have denied, by name: `core, search;candidate`. None: there are none.
    pub fn would_deny_names(&self) -> Option<String> {
        let mut names: Vec<String> = Vec::new();
        for own in self.would_deny() {
            let name = &own.planned.limit.name;
            let name = match own.planned.role {
                ChargeRole::Candidate => format!("{name};candidate"),
                _ => name.to_string(),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Until when the request stays denied, if it was denied.
    pub(super) fn denied_until(&self) -> Option<Timestamp> {
        match self.denied_by()?.standing().retry {
            Retry::At(until) => Some(until),
            _ => None,
        }
    }

    /// The charge that denied the request; of several, the one with the longest wait, so that the
    /// limit headers agree with `Retry-After`.
    pub(super) fn denied_by(&self) -> Option<DecidedCharge<'_, 'p>> {
        let denying = self.enforced().filter(|own| !own.outcome.fits());
        denying.reduce(
            |longest, own| {
                if own.standing().retry > longest.standing().retry { own } else { longest }
            },
        )
    }

    /// The names of the windows that denied the request.
    pub(super) fn violated(&self) -> impl Iterator<Item = &'p str> {
        let denying = self.enforced().filter(|own| !own.outcome.fits());
        denying.map(|own| &*own.planned.allowance.name)
    }

    /// Whole seconds after which a denied client should come back, at least one; none if it was not
    /// denied, or waiting does not help.
    pub fn retry_after(&self, now: Timestamp, jitter: Duration) -> Option<u64> {
        match self.denied_by()?.standing().retry {
            Retry::At(instant) => {
                let wait = instant.saturating_since(self.store_time(now)) + jitter;
                Some((wait.as_micros() as u64).div_ceil(1_000_000).max(1))
            }
            Retry::Now | Retry::Never => None,
        }
    }

    /// Why the request of `identity` is denied, if it is.
    pub(super) fn denial(
        &self,
        identity: &Identity<'_>,
        now: Timestamp,
        jitter: Duration,
    ) -> Option<Rejection> {
        self.denial_of(|| caller_name(identity), now, jitter)
    }

    /// The same of whom the words of `name` mean.
    pub(super) fn denial_of(
        &self,
        name: impl FnOnce() -> String,
        now: Timestamp,
        jitter: Duration,
    ) -> Option<Rejection> {
        let own = self.denied_by()?;
        let denial = Denial {
            who: name(),
            limit: own.planned.limit.resource.clone(),
            counted: own.planned.counted(),
            retry_after: self.retry_after(now, spread(own.charge.key, now, jitter)),
            at_once: own.charge.quota.holds_leases().then(|| own.standing().limit),
        };
        let is_secondary =
            own.planned.role == ChargeRole::Secondary || own.charge.quota.holds_leases();
        Some(match is_secondary {
            true => Rejection::Secondary(denial),
            false => Rejection::Primary(denial),
        })
    }

    /// The charge that the limit headers are about: the one that denied the request, else that of
    /// the longest window of the primary limit.
    pub fn reported(&self) -> Option<DecidedCharge<'_, 'p>> {
        let primary =
            || self.charges().filter(|own| own.planned.role == ChargeRole::Primary).last();
        self.denied_by().or_else(primary)
    }

    /// The leases that were granted until the response ends.
    pub fn granted(&self) -> impl Iterator<Item = GrantedLease<'_>> {
        self.charges().filter_map(|DecidedCharge { charge, outcome, .. }| {
            let (duration, receipt) = (charge.quota.lease()?, outcome.receipt?);
            Some(GrantedLease { charge, outcome, receipt, duration })
        })
    }
}

/// How a denial names the caller.
fn caller_name(identity: &Identity<'_>) -> String {
    match &identity.caller {
        Some(ResolvedCaller {
            kind,
            value: value @ (CallerValue::Claim(_) | CallerValue::Certificate(_)),
            ..
        }) => format!("{kind} {value}"),
        _ => identity.address.to_string(),
    }
}

/// A part of `jitter` that differs from caller to caller and from time to time.
fn spread(key: Key, now: Timestamp, jitter: Duration) -> Duration {
    let micros = jitter.as_micros() as u64;
    let hash = (key.entry as u64 ^ now.as_micros()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Duration::from_micros(((u128::from(hash) * u128::from(micros)) >> 64) as u64)
}
