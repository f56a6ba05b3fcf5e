//! What would happen, found out without a client: what a change of policies does ([`diff`]), how a
//! request would be handled ([`explain`](explain::explain)), and whether a policy's own tests pass
//! ([`cases`]).
//!
//! Simulated requests are judged by the gate's own code. They have counters of their own, or charge
//! none. So a preview cannot differ from what happens.
//!
//! This crate knows no listeners, and changes nothing in a proxy that runs.
//!
//! The types to know first:
//!
//! - [`Rehearsal`]: answers simulated requests.
//! - [`Draft`]: a request that no client has sent.
//! - [`Explanation`]: how a request is handled, and why.
//! - [`PastRequest`]: a request of the past, to be judged again.
//! - [`diff::Difference`]: the effects of a change of policies.

pub mod cases;
pub mod diff;
mod draft;
pub mod explain;
mod explanation;
mod rehearsal;
mod replay;

pub use self::{
    draft::Draft,
    explanation::{
        ChosenPolicy, Explanation, FoundCaller, FoundLimit, FoundStanding, FoundWindow,
        PassedRoute, Prospect, TakenRoute, Understood,
    },
    rehearsal::{Rehearsal, RehearsedResponse},
    replay::{ChargeMode, JudgedCharge, Judgement, PastRequest, PastVerdict},
};
