//! From what a program names to charges: which counters, and how many units.

use smallvec::SmallVec;
use tollgate_clock::Timestamp;
use tollgate_gate::{charge_plan::ChargePlan, hash_named_key};
use tollgate_policy::{KeyValue, Limit, Policies, Policy, Wanted};

use super::{
    charges::{Asker, ChargeTerms, add},
    client_time::MAX_AHEAD,
};

/// A limit with `per: key` that a program charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decisions) struct NamedCharge<'r> {
    /// The limit's name; where several policies have such a limit, with the policy's and a slash
    /// before it.
    pub(in crate::decisions) limit: &'r str,
    /// Whose counter.
    pub(in crate::decisions) key: &'r [u8],
    /// Units; none: what the policy says, one if it says nothing.
    pub(in crate::decisions) cost: Option<u32>,
}

/// Why a program's charges cannot be planned: it has to ask otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::decisions) enum NamedError {
    /// No policy has such a limit.
    #[error("no limit `{0}` counts `per: key`, as limits that programs charge have to")]
    NoLimit(String),
    /// Several policies have one.
    #[error("several policies have a limit `{0}`: write whose, as {1}")]
    SeveralLimits(String, String),
    /// The charges are of several policies.
    #[error("limit `{0}` is of another policy than the others: charge it by a call of its own")]
    SeveralPolicies(String),
    /// A key is empty or too long.
    #[error("the key for limit `{0}` has to have 1 to 256 bytes")]
    Key(String),
    /// One counter is charged twice.
    #[error("limit `{0}` is charged twice for one key: write one charge with the sum")]
    Twice(String),
    /// A cost is out of range.
    #[error("the cost for limit `{0}` has to be 0 to 2147483647")]
    Cost(String),
    /// The program's clock is ahead of this proxy's.
    #[error("`at` is {at}, more than a minute ahead of the clock of this proxy, which has {now}")]
    Ahead {
        /// The instant that it gives.
        at: Timestamp,
        /// The clock.
        now: Timestamp,
    },
    /// A slot is charged at the program's time.
    #[error("limit `{0}` has `concurrent`, whose slots are held now: leave out `at`")]
    SlotAt(String),
    /// There are none, or too many.
    #[error("a call has to have 1 to 8 charges")]
    Number,
}

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
        let mut seen: SmallVec<[(usize, u128); 8]> = SmallVec::new();
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
            let owner = hash_named_key(asker.hasher(), charge.key);
            if seen.contains(&(limit.position, owner)) {
                return Err(NamedError::Twice(name()));
            }
            seen.push((limit.position, owner));
            let cost = charge.cost.unwrap_or(limit.cost.default);
            let is_for = |own: &KeyValue| matches!(&own.value, Wanted::Text(key) if key.as_bytes() == charge.key);
            let origin = asker.origin_of_key(limit);
            let terms = ChargeTerms { owner, cost, now: at.unwrap_or(now), origin };
            add(&mut plan, limit, terms, is_for);
            if at.is_some() && plan.charges.iter().any(|charge| charge.quota.holds_leases()) {
                return Err(NamedError::SlotAt(name()));
            }
        }
        let who = format!("key {}", String::from_utf8_lossy(first.key));
        Ok(NamedPlan { policy, plan, who })
    }
}

/// The limit of this name, and its policy.
fn find<'p>(policies: &'p Policies, name: &str) -> Result<(&'p Policy, &'p Limit), NamedError> {
    let (of, short) = match name.split_once('/') {
        Some((policy, limit)) => (Some(policy), limit),
        None => (None, name),
    };
    let is_asked = |policy: &&Policy| of.is_none_or(|name| name == &*policy.name);
    let mut found = policies.iter().filter(is_asked).filter_map(|policy| {
        let is_it = |limit: &&Limit| limit.is_named() && *limit.name == *short;
        policy.limits.iter().find(is_it).map(|limit| (policy, limit))
    });
    let first = found.next().ok_or_else(|| NamedError::NoLimit(name.to_owned()))?;
    match found.next() {
        None => Ok(first),
        Some((other, _)) => {
            let choices = [first.0, other].map(|policy| format!("{}/{short}", policy.name));
            Err(NamedError::SeveralLimits(name.to_owned(), choices.join(" or ")))
        }
    }
}
