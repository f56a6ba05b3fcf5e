//! What the charges of a receipt are to have cost in the end.

use tollgate_policy::{Limit, Policy};

use super::{
    charges::Asker,
    marks::Part,
    plan::MAX_COST,
    receipt::{ReceiptCharge, ReceiptEntry, ReceiptError, RedeemRequest, redeemed},
};

/// What is to have been charged in the end.
#[derive(Clone, Copy, Debug)]
pub(in crate::decisions) enum SettledCost<'r> {
    /// So many units of each limit.
    Units(u32),
    /// What this usage costs, a JSON object in a vendor's form, by the weights of each limit. Those
    /// whose cost is not by usage keep what they were charged.
    Usage(&'r str),
}

/// How many times what a limit allows at once may be taken of it by a settlement, where what is
/// owed is worked off: else one settlement could lock a counter for years.
const MOST_OWED: u32 = 100;

/// The charges of a receipt that are settled, each with what it is to have cost.
///
/// # Errors
/// [`ReceiptError`], in which case none is settled.
pub(super) fn charges_of<'p>(
    taken: &[ReceiptEntry],
    request: RedeemRequest<'_>,
    policy: &'p Policy,
    asker: Asker<'_>,
) -> Result<Vec<ReceiptCharge<'p>>, ReceiptError> {
    let RedeemRequest { part, limit, cost, .. } = request;
    let all = taken.iter().map(|taken| redeemed(taken, policy, asker).ok_or(ReceiptError::Gone));
    let mut all = all.collect::<Result<Vec<_>, _>>()?;
    all.retain(|own| {
        own.charge.quota.holds_leases() == (part == Part::Slots)
            && limit.is_none_or(|limit| *limit == *own.limit.name)
    });
    let Some(first) = all.first().map(|own| own.limit) else {
        return Err(ReceiptError::Nothing(match part {
            Part::Units => "settle of that: slots of `concurrent` are released",
            Part::Slots => "release: no limit in it has `concurrent`",
        }));
    };
    all.retain(|own| cost.is_for(own.limit));
    if all.is_empty() {
        return Err(ReceiptError::NotByUsage(first.name.clone()));
    }
    for own in &mut all {
        own.settled_cost = cost.of(own.limit)?;
        own.check_cost()?;
    }
    Ok(all)
}

impl SettledCost<'_> {
    /// Whether it says what this limit costs.
    fn is_for(self, limit: &Limit) -> bool {
        match self {
            SettledCost::Units(_) => true,
            SettledCost::Usage(_) => limit.cost.by_usage().is_some(),
        }
    }

    /// Units of this limit.
    fn of(self, limit: &Limit) -> Result<u32, ReceiptError> {
        let usage = match self {
            SettledCost::Units(units) => return Ok(units),
            SettledCost::Usage(usage) => usage,
        };
        let price = limit.cost.by_usage();
        price.and_then(|price| price.units_of_usage(usage)).ok_or_else(|| ReceiptError::Usage {
            limit: limit.name.clone(),
            wanted: limit.cost.source.as_ref().map_or("", |source| source.name()),
        })
    }
}

impl ReceiptCharge<'_> {
    /// # Errors
    /// A settlement cannot cost so much.
    fn check_cost(&self) -> Result<(), ReceiptError> {
        let quota = self.charge.quota;
        let most = match quota.refill_time() {
            Some(_) => quota.capacity().saturating_mul(MOST_OWED).min(MAX_COST),
            None => MAX_COST,
        };
        let most = most.max(self.charge.cost);
        match self.settled_cost > most {
            true => Err(ReceiptError::Cost { limit: self.limit.name.clone(), most }),
            false => Ok(()),
        }
    }
}
