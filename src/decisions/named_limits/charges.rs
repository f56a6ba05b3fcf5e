//! The charges of a limit that is asked for by name.

use tollgate_clock::Timestamp;
use tollgate_gate::charge_plan::{ChargePlan, ChargeRole, PlannedLimit};
use tollgate_limit::{Key, Origin};
use tollgate_policy::{Allowance, Enforcement, KeyValue, Limit};

/// What is asked of a limit.
#[derive(Clone, Copy)]
pub(super) struct ChargeTerms {
    /// Hash of whose counters.
    pub(super) owner: u128,
    /// Units.
    pub(super) cost: u32,
    /// When.
    pub(super) now: Timestamp,
}

/// Adds the charges of one limit, on the counters of one owner, which has what `is_for` says.
pub(super) fn add<'p>(
    plan: &mut ChargePlan<'p>,
    limit: &'p Limit,
    ChargeTerms { owner, cost, now }: ChargeTerms,
    is_for: impl Fn(&KeyValue) -> bool,
) {
    let mut overrides = limit.overrides.0.iter();
    let own = overrides.find(|own| own.is_in_force(now) && own.of.iter().all(&is_for));
    let of_tier = || limit.rates.get(plan.tier).map_or(&[][..], Vec::as_slice);
    let allowances: &'p [Allowance] = own.map_or_else(of_tier, |own| &own.allowances);
    let role = match limit.enforcement {
        Enforcement::Shadow => ChargeRole::Shadow,
        Enforcement::Percent(percent) if owner % 100 >= percent.into() => ChargeRole::Shadow,
        _ if plan.has_primary_besides(limit) => ChargeRole::Secondary,
        _ => ChargeRole::Primary,
    };
    for allowance in allowances {
        let planned = PlannedLimit { limit, allowance, cost: &limit.cost, role };
        let key = Key::new(owner, owner, allowance.id);
        // A slot is held or not.
        let units = if allowance.quota.holds_leases() { cost.min(1) } else { cost };
        // Only who may ask makes up keys.
        plan.add(planned, planned.charge(key, units, Origin::Verified));
    }
}
