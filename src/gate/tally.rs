//! What was decided about a request's charges, and what becomes of them once the response is known.

mod settle;

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::charges::{Asked, AskedLimit, Role};
use crate::{
    clock::Timestamp,
    identity::{CallerValue, Identity, ResolvedCaller},
    limit::{
        Charge, DecidedBy, Decision, Key, Outcome, Outcomes, Quota, Receipt, Retry, Standing,
        Verdict,
    },
    response::{Denial, Rejection},
    store::{Unsettled, UnsettledUnits},
};

pub(super) use self::settle::{Answer, adjustment, cost_in};

/// The charges of a request and their outcomes.
pub(super) struct Tally<'p> {
    asked: Asked<'p>,
    outcomes: Outcomes,
    /// Whether the response may still put right what was charged.
    is_open: bool,
    /// When it was decided, by the store's clock.
    decided: Timestamp,
    /// When that was asked for, by this process' clock.
    begun: Timestamp,
    /// What its response may give back, of limits that count only some responses.
    unsettled: SmallVec<[UnsettledUnits; 1]>,
}

/// How soon a caller may come back who is denied only because of units that may be given back.
const UNSETTLED_RETRY: Duration = Duration::from_secs(1);

/// One charge and its outcome.
#[derive(Clone, Copy)]
pub(super) struct Item<'t, 'p> {
    pub(super) asked: &'t AskedLimit<'p>,
    pub(super) charge: &'t Charge<'p>,
    pub(super) outcome: &'t Outcome,
}

impl<'t> Item<'t, '_> {
    /// How the limit stands.
    pub(super) fn standing(&self) -> &'t Standing {
        &self.outcome.standing
    }
}

impl<'p> Tally<'p> {
    /// What the store decided about what was asked for at `now`.
    pub(super) fn charged(
        asked: Asked<'p>,
        decision: Decision,
        now: Timestamp,
        unsettled: &Arc<Unsettled>,
    ) -> Self {
        let is_open = decision.verdict == Verdict::Allow;
        let mut tally = Tally { is_open, ..Tally::peeked(asked, decision, now) };
        match is_open {
            true => tally.hold_unsettled(unsettled),
            false => tally.hasten_retries(unsettled),
        }
        tally
    }

    /// Marks what was taken as unsettled where only some responses count.
    fn hold_unsettled(&mut self, unsettled: &Arc<Unsettled>) {
        let is_due = |item: &Item<'_, 'p>| {
            item.asked.limit.count_when.is_some() && item.outcome.receipt.is_some()
        };
        let units = |item: Item<'_, 'p>| unsettled.hold(item.charge.key, item.charge.cost);
        self.unsettled = self.items().filter(is_due).map(units).collect();
    }

    /// Shortens the wait for limits that deny only because of units that may be given back.
    fn hasten_retries(&mut self, unsettled: &Unsettled) {
        let soon = self.decided + UNSETTLED_RETRY;
        let asked = self.asked.limits.iter().zip(&self.asked.charges);
        for ((asked, charge), outcome) in asked.zip(&mut self.outcomes) {
            if asked.limit.count_when.is_none() || outcome.fits() {
                continue;
            }
            let standing = &mut outcome.standing;
            let settled = standing.used.saturating_sub(unsettled.units(charge.key));
            if settled.saturating_add(charge.cost) <= standing.limit {
                standing.retry = standing.retry.min(Retry::At(soon));
            }
        }
    }

    /// How what is asked for at `now` stands.
    pub(super) fn peeked(asked: Asked<'p>, decision: Decision, now: Timestamp) -> Self {
        let Decision { outcomes, now: decided, .. } = decision;
        let unsettled = SmallVec::new();
        Tally { asked, outcomes, is_open: false, decided, begun: now, unsettled }
    }

    /// What time the store has when it is `now` for this process.
    pub(super) fn store_time(&self, now: Timestamp) -> Timestamp {
        self.decided + now.saturating_since(self.begun)
    }

    /// Whether the store left it to this process, or to nobody, to decide about a limit.
    pub(super) fn fallback(&self) -> Option<DecidedBy> {
        let mut deciders = self.outcomes.iter().map(|outcome| outcome.decided_by);
        let is_local = deciders.clone().any(|decider| decider == DecidedBy::Local);
        let is_open = self.is_open && deciders.any(|decider| decider == DecidedBy::Nobody);
        match (is_local, is_open) {
            (true, _) => Some(DecidedBy::Local),
            (false, true) => Some(DecidedBy::Nobody),
            (false, false) => None,
        }
    }

    /// All charges about which anything is known, in order, but for those that bound refunds.
    pub(super) fn items(&self) -> impl Iterator<Item = Item<'_, 'p>> {
        let is_known = |item: &Item<'_, '_>| item.outcome.decided_by != DecidedBy::Nobody;
        self.all().filter(is_known).filter(|item| item.asked.role != Role::Refund)
    }

    fn all(&self) -> impl Iterator<Item = Item<'_, 'p>> {
        let asked = self.asked.limits.iter().zip(&self.asked.charges);
        let items = asked.zip(&self.outcomes);
        items.map(|((asked, charge), outcome)| Item { asked, charge, outcome })
    }

    /// The limits that are more than counted, those among them about which nobody decides.
    pub(super) fn asked_for(&self) -> impl Iterator<Item = Item<'_, 'p>> {
        self.all().filter(|item| matches!(item.asked.role, Role::Primary | Role::Secondary))
    }

    /// Units that the request has cost one of them in the end: none if it was denied, or if that one
    /// only counts and had no room.
    pub(super) fn cost_of(&self, item: &Item<'_, 'p>) -> u32 {
        if self.is_open && item.outcome.fits() { item.charge.cost } else { 0 }
    }

    /// The charges that are more than counted.
    pub(super) fn enforced(&self) -> impl Iterator<Item = Item<'_, 'p>> {
        self.items().filter(|item| matches!(item.asked.role, Role::Primary | Role::Secondary))
    }

    /// The charges that would have denied the request, were they enforced.
    pub(super) fn would_deny(&self) -> impl Iterator<Item = Item<'_, 'p>> {
        let is_observed = |item: &Item<'_, 'p>| {
            matches!(item.asked.role, Role::Shadow | Role::Candidate) && !item.outcome.fits()
        };
        self.items().filter(is_observed)
    }

    /// What [`Tally::would_deny`] holds, in words: `core, search;candidate`. None: nothing.
    pub(super) fn would_deny_names(&self) -> Option<String> {
        let mut names: Vec<String> = Vec::new();
        for item in self.would_deny() {
            let name = &item.asked.limit.name;
            let name = match item.asked.role {
                Role::Candidate => format!("{name};candidate"),
                _ => name.to_string(),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Until when asking again is in vain, if the request was denied.
    pub(super) fn denied_until(&self) -> Option<Timestamp> {
        match self.denied_by()?.standing().retry {
            Retry::At(until) => Some(until),
            _ => None,
        }
    }

    /// The charge that denied the request; of several, the one that will do so longest: what the
    /// client is told of it agrees with when it is asked to come back.
    fn denied_by(&self) -> Option<Item<'_, 'p>> {
        let denying = self.enforced().filter(|item| !item.outcome.fits());
        denying.reduce(|longest, item| {
            if item.standing().retry > longest.standing().retry { item } else { longest }
        })
    }

    /// What denied the request, by what it is called where each window has a name.
    pub(super) fn violated(&self) -> impl Iterator<Item = &'p str> {
        let denying = self.enforced().filter(|item| !item.outcome.fits());
        denying.map(|item| &*item.asked.allowance.name)
    }

    /// Whole seconds after which a denied client should come back, at least one; none if it was not
    /// denied, or waiting does not help.
    pub(super) fn retry_after(&self, now: Timestamp, jitter: Duration) -> Option<u64> {
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
        let item = self.denied_by()?;
        let denial = Denial {
            who: who(identity),
            limit: item.asked.limit.resource.clone(),
            retry_after: self.retry_after(now, spread(item.charge.key, now, jitter)),
        };
        let is_secondary = item.asked.role == Role::Secondary || item.charge.quota.holds_leases();
        Some(match is_secondary {
            true => Rejection::Secondary(denial),
            false => Rejection::Primary(denial),
        })
    }

    /// The one that clients are told about: the one that denied, else the longest window of the
    /// primary limit.
    pub(super) fn told(&self) -> Option<Item<'_, 'p>> {
        let primary = || self.items().filter(|item| item.asked.role == Role::Primary).last();
        self.denied_by().or_else(primary)
    }

    /// What was granted until the response ends, and how long that is good.
    pub(super) fn granted(&self) -> impl Iterator<Item = (Item<'_, 'p>, Receipt, Duration)> {
        self.items().filter_map(|item| match item.charge.quota {
            Quota::Concurrency(algorithm) => Some((item, item.outcome.receipt?, algorithm.lease)),
            Quota::FixedWindow(_)
            | Quota::SlidingWindow(_)
            | Quota::SlidingLog(_)
            | Quota::TokenBucket(_)
            | Quota::Gcra(_) => None,
        })
    }
}

/// How a denial calls the caller.
fn who(identity: &Identity<'_>) -> String {
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
