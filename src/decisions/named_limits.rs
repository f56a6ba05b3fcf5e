//! Charges that programs ask for by name: of limits with `per: key`, and of those that requests are
//! charged to.
//!
//! There is no request to judge: no route, no caller. From the plan on, all is as for requests: all
//! charges or none, shadow mode, overrides, the store and its outages, the log and the metrics.

mod charges;
mod client_time;
mod counter;
mod descriptors;
mod marks;
mod named_charge;
mod plan;
mod receipt;
mod settlement;

pub(crate) use self::marks::{note_reset, of_reset};
pub(super) use self::{
    charges::Asker,
    client_time::instant_of,
    descriptors::{
        Afterwards, DescriptorCounters, DescriptorError, DescriptorPart, DescriptorPlan,
    },
    marks::Part,
    plan::NamedPlan,
    receipt::{ReceiptCharge, ReceiptTerms, RedeemRequest, Redemption, redeem, sign},
    settlement::SettledCost,
};
pub(super) use self::{
    client_time::{ChargeTime, MAX_WAIT, parse_instant},
    named_charge::{NamedCharge, NamedError},
    receipt::ReceiptError,
};
