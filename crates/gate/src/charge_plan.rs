//! The charges that a request is to be made, each with the limit that it is for.

use smallvec::SmallVec;
use tollgate_limit::{Charge, Key, Later, Origin, Stance};
use tollgate_policy::{Allowance, Cost, CostSource, Limit};
use tollgate_response::Counted;
use tollgate_usage::response::Wanted;

/// The charges of a request, and the limits that they are for, in the same order.
#[derive(Default)]
pub struct ChargePlan<'p> {
    /// The position of the tier that they are for.
    pub tier: usize,
    /// What each charge is for, in the order of the charges.
    pub limits: SmallVec<[PlannedLimit<'p>; 2]>,
    /// What the store is to take: all or none.
    pub charges: SmallVec<[Charge<'p>; 2]>,
}

/// What a charge is for.
#[derive(Clone, Copy)]
pub struct PlannedLimit<'p> {
    /// The limit.
    pub limit: &'p Limit,
    /// How much of it this caller has.
    pub allowance: &'p Allowance,
    /// What the request costs, and what may correct that.
    pub cost: &'p Cost,
    /// Units of what it is charged that are for what it sends, not for what it asks for.
    pub input_units: u32,
    /// What its outcome decides.
    pub role: ChargeRole,
}

/// What the outcome of a charge decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeRole {
    /// The charge is of the first enforced limit, which clients see in the headers.
    Primary,
    /// It is of another enforced limit.
    Secondary,
    /// It is of a limit that only counts here.
    Shadow,
    /// It is of a candidate rate, which only counts.
    Candidate,
    /// It is of the bound on refunds of the charge before it. What is taken of that bound stays
    /// taken if the response's status gives that charge back.
    Refund,
}

impl<'p> PlannedLimit<'p> {
    /// What it counts, as OpenAI's headers tell limits apart; none: something else.
    pub fn counted(&self) -> Option<Counted> {
        let Cost { by_method, default, source, .. } = self.cost;
        match source.as_deref() {
            Some(CostSource::Body(body)) if matches!(body.wanted, Wanted::Tokens(_)) => {
                Some(Counted::Tokens)
            }
            Some(_) => None,
            None if self.allowance.quota.holds_leases() => None,
            None => (by_method.is_empty() && *default == 1).then_some(Counted::Requests),
        }
    }

    /// A charge of so many units on a counter that `origin` may have made up.
    pub fn charge(&self, key: Key, cost: u32, origin: Origin) -> Charge<'p> {
        let PlannedLimit { limit, allowance, cost: declared, role, .. } = self;
        let later = match declared.source {
            Some(_) => Later::Cost,
            None => Later::Nothing,
        };
        Charge {
            key,
            quota: &allowance.quota,
            cost,
            stance: role.stance(),
            scope: limit.scope(),
            origin,
            fallback: limit.fallback,
            full: limit.full,
            later,
        }
    }
}

impl ChargeRole {
    pub(super) fn stance(self) -> Stance {
        match self {
            ChargeRole::Primary | ChargeRole::Secondary => Stance::Enforce,
            ChargeRole::Shadow | ChargeRole::Candidate | ChargeRole::Refund => Stance::Observe,
        }
    }

    /// Whether the charge may deny the request.
    pub fn is_enforced(self) -> bool {
        self.stance() == Stance::Enforce
    }
}

impl<'p> ChargePlan<'p> {
    /// No charges yet of a caller of this tier.
    pub fn of_tier(tier: usize) -> Self {
        ChargePlan { tier, ..ChargePlan::default() }
    }

    /// Adds a charge and what it is for.
    pub fn add(&mut self, planned: PlannedLimit<'p>, charge: Charge<'p>) {
        self.limits.push(planned);
        self.charges.push(charge);
    }

    /// Whether another limit is the primary one.
    pub fn has_primary_besides(&self, limit: &Limit) -> bool {
        let is_other = |planned: &PlannedLimit<'_>| {
            planned.role == ChargeRole::Primary && !std::ptr::eq(planned.limit, limit)
        };
        self.limits.iter().any(is_other)
    }
}
