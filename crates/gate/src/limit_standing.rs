//! A charge of a request, as the log and traces have it.

use tollgate_keyword::Keyword;
use tollgate_observe::access_log::{Decision, LimitStanding, Mode};
use tollgate_store::Stores;

use super::{
    charge_plan::ChargeRole,
    tally::{DecidedCharge, Tally},
};

/// One of a request's charges: how its limit stands after it, what it says of the request, and
/// which of these stores says it.
pub(super) fn limit_standing<'t, 'p>(
    stores: &Stores,
    tally: &Tally<'p>,
    charge: &DecidedCharge<'t, 'p>,
) -> LimitStanding<'t> {
    let role = charge.planned.role;
    LimitStanding {
        name: &charge.planned.limit.name,
        mode: match role {
            ChargeRole::Primary | ChargeRole::Secondary => Mode::Enforce,
            ChargeRole::Shadow => Mode::Shadow,
            ChargeRole::Candidate | ChargeRole::Refund => Mode::Candidate,
        },
        window_seconds: charge.planned.allowance.window_secs,
        standing: *charge.standing(),
        cost: tally.cost_of(charge),
        decision: match role {
            _ if charge.outcome.fits() => Decision::Allow,
            ChargeRole::Primary | ChargeRole::Secondary => Decision::Deny,
            ChargeRole::Shadow | ChargeRole::Candidate | ChargeRole::Refund => Decision::WouldDeny,
        },
        decided_by: stores.decider(charge.outcome.decided_by).keyword(),
        key: None,
        awaited: None,
    }
}
