//! What a charge is to have cost in the end.

use tollgate_limit::Charge;
use tollgate_policy::Limit;

use super::plan::MAX_COST;

/// What is to have been charged in the end.
#[derive(Clone, Copy, Debug)]
pub(in crate::decisions) enum SettledCost<'r> {
    /// So many units of each limit.
    Units(u32),
    /// What this usage costs, a JSON object in a vendor's form, by the weights of each limit. Those
    /// whose cost is not by usage keep what they were charged.
    Usage(&'r str),
}

/// Why a charge cannot be settled so.
#[derive(Debug, thiserror::Error)]
pub(in crate::decisions) enum SettlementError {
    /// A cost is out of range.
    #[error("the cost for limit `{limit}` has to be 0 to {most}")]
    Cost {
        /// The limit.
        limit: Box<str>,
        /// Units.
        most: u32,
    },
    /// A usage is to price a limit whose cost it does not tell.
    #[error(
        "the cost of limit `{0}` is not by `usage` of a response: settle it with `cost` or `give_back`"
    )]
    NotByUsage(Box<str>),
    /// A usage is in none of the forms that a limit looks for.
    #[error(
        "the usage says nothing that limit `{limit}` counts, which looks for `usage: {wanted}`: write \
         `usage` of a response of OpenAI or Anthropic, or `usageMetadata` of one of Gemini"
    )]
    Usage {
        /// The limit.
        limit: Box<str>,
        /// Whose forms.
        wanted: &'static str,
    },
}

/// How many times what a limit allows at once may be taken of it by a settlement, where what is
/// owed is worked off: else one settlement could lock a counter for years.
const MOST_OWED: u32 = 100;

impl SettledCost<'_> {
    /// Whether it says what this limit costs.
    pub(super) fn is_for(self, limit: &Limit) -> bool {
        match self {
            SettledCost::Units(_) => true,
            SettledCost::Usage(_) => limit.cost.by_usage().is_some(),
        }
    }

    /// Units of a limit that was charged this.
    ///
    /// # Errors
    /// [`SettlementError`].
    pub(super) fn of(self, limit: &Limit, charge: &Charge<'_>) -> Result<u32, SettlementError> {
        let units = match self {
            SettledCost::Units(units) => units,
            SettledCost::Usage(usage) => price(usage, limit)?,
        };
        let most = match charge.quota.refill_time() {
            Some(_) => charge.quota.capacity().saturating_mul(MOST_OWED).min(MAX_COST),
            None => MAX_COST,
        };
        let most = most.max(charge.cost);
        match units > most {
            true => Err(SettlementError::Cost { limit: limit.name.clone(), most }),
            false => Ok(units),
        }
    }
}

/// Units of a limit that this usage costs.
fn price(usage: &str, limit: &Limit) -> Result<u32, SettlementError> {
    let price = limit.cost.by_usage();
    price.and_then(|price| price.units_of_usage(usage)).ok_or_else(|| SettlementError::Usage {
        limit: limit.name.clone(),
        wanted: limit.cost.source.as_ref().map_or("", |source| source.name()),
    })
}
