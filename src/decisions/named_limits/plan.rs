//! From what a program names to charges: which counters, and how many units.

use smallvec::SmallVec;
use tollgate_clock::Timestamp;
use tollgate_gate::{CounterNames, charge_plan::ChargePlan};
use tollgate_policy::{Limit, Policies, Policy};

use super::{
    charges::Asker,
    client_time::MAX_AHEAD,
    counter::NamedCounter,
    named_charge::{NamedCharge, NamedError},
};

/// Charges of a call.
const MAX_CHARGES: usize = 8;

/// Bytes of a key.
const MAX_KEY: usize = 256;

/// The most that a charge can cost.
pub(super) const MAX_COST: u32 = i32::MAX as u32;

/// Planned charges of a program.
pub(in crate::decisions) struct NamedPlan<'p> {
    pub(in crate::decisions) policy: &'p Policy,
    pub(in crate::decisions) plan: ChargePlan<'p>,
    /// The first charge's key, as denials name it.
    pub(in crate::decisions) who: String,
    /// The names of the counters.
    pub(in crate::decisions) names: CounterNames,
}

impl<'p> NamedPlan<'p> {
    /// Plans the charges of a call that came at `now`. They count at `at` if the program gives
    /// that, by the overrides that were in force then.
    ///
    /// # Errors
    /// [`NamedError`].
    pub(in crate::decisions) fn of(
        policies: &'p Policies,
        asker: Asker<'_>,
        charges: &[NamedCharge<'_>],
        at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<NamedPlan<'p>, NamedError> {
        let Some(first) = charges.first().filter(|_| charges.len() <= MAX_CHARGES) else {
            return Err(NamedError::Number);
        };
        if let Some(at) = at.filter(|at| *at > now + MAX_AHEAD) {
            return Err(NamedError::Ahead { at, now });
        }
        let (policy, _) = find(policies, first.limit)?;
        let mut plan = ChargePlan::of_tier(policy.identity.tiers.default);
        let mut who = None;
        let mut seen: SmallVec<[(usize, u128); 8]> = SmallVec::new();
        let mut names = CounterNames::default();
        for charge in charges {
            let name = || charge.limit.to_owned();
            let (of, limit) = find(policies, charge.limit)?;
            if !std::ptr::eq(of, policy) {
                return Err(NamedError::SeveralPolicies(name()));
            }
            if !(1..=MAX_KEY).contains(&charge.key.len()) {
                return Err(NamedError::Key(name()));
            }
            if charge.cost.is_some_and(|cost| cost > MAX_COST) {
                return Err(NamedError::Cost(name()));
            }
            let counter = NamedCounter::of(charge, limit, policy, asker)?;
            if at.is_some() && !limit.is_named() {
                return Err(NamedError::RequestsAt(name()));
            }
            if seen.contains(&(limit.position, counter.entry)) {
                return Err(NamedError::Twice(name()));
            }
            seen.push((limit.position, counter.entry));
            counter.charge(&mut plan, charge, limit, at.unwrap_or(now), asker);
            names.add(counter.entry, counter.name);
            who.get_or_insert(counter.who);
            if at.is_some() && plan.charges.iter().any(|charge| charge.quota.holds_leases()) {
                return Err(NamedError::SlotAt(name()));
            }
        }
        Ok(NamedPlan { policy, plan, who: who.unwrap_or_default(), names })
    }

    /// # Errors
    /// [`NamedError::ResetOfRequests`].
    pub(in crate::decisions) fn check_reset(&self, limit: &str) -> Result<(), NamedError> {
        let is_of_requests = self.plan.limits.iter().any(|planned| !planned.limit.is_named());
        if is_of_requests { Err(NamedError::ResetOfRequests(limit.to_owned())) } else { Ok(()) }
    }
}

/// The limit of this name, and its policy.
fn find<'p>(policies: &'p Policies, name: &str) -> Result<(&'p Policy, &'p Limit), NamedError> {
    let (of, short) = match name.split_once('/') {
        Some((policy, limit)) => (Some(policy), limit),
        None => (None, name),
    };
    let is_asked = |policy: &&Policy| of.is_none_or(|name| name == &*policy.name);
    let all = |is_named: bool| {
        policies.iter().filter(is_asked).filter_map(move |policy| {
            let is_it = |limit: &&Limit| {
                *limit.name == *short && limit.is_named() == is_named && !limit.is_of_descriptors()
            };
            policy.limits.iter().find(is_it).map(|limit| (policy, limit))
        })
    };
    // What only programs charge is meant first.
    let mut found = all(true).peekable();
    let mut of_requests = all(false);
    let found: &mut dyn Iterator<Item = _> =
        if found.peek().is_some() { &mut found } else { &mut of_requests };
    let first = found.next().ok_or_else(|| NamedError::NoLimit(name.to_owned()))?;
    match found.next() {
        None => Ok(first),
        Some((other, _)) => {
            let choices = [first.0, other].map(|policy| format!("{}/{short}", policy.name));
            Err(NamedError::SeveralLimits(name.to_owned(), choices.join(" or ")))
        }
    }
}
