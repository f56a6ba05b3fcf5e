//! What is different about requests that no client has sent.

use std::cell::{OnceCell, RefCell};

use smallvec::SmallVec;
use tollgate_identity::{AssumedCaller, AssumedToken};
use tollgate_usage::logged::LoggedUse;

use super::body_look::BodyFacts;

/// A request that no client has sent: for explanations, for the tests in policies, and for requests
/// of the past.
#[derive(Default)]
pub struct DryRun {
    /// Its token, which counts as verified. None: its headers have the credentials.
    pub token: Option<AssumedToken>,
    /// Its caller, which was identified before, in place of a token.
    pub caller: Option<AssumedCaller>,
    /// What it has used, of a request of the past.
    pub used: LoggedUse,
    /// Whether charges are taken; else it is only computed what they would come to.
    pub is_charged: bool,
    /// The positions of limits that it is not charged to because it lacks what they count by.
    pub unkeyed: RefCell<SmallVec<[usize; 2]>>,
    /// What its body says, once that was looked at.
    pub body_facts: OnceCell<BodyFacts>,
}
