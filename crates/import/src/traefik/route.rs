//! A route to be, and the limits that it charges.

use super::{files::Router, limit::Limit, matching::Matching, middleware::Effects};

/// A route to be.
pub(super) struct Route<'r> {
    pub(super) router: &'r Router<'r>,
    pub(super) matching: Matching,
    pub(super) effects: &'r Effects,
    pub(super) charged: &'r [Charged],
}

/// A limit of a router, under its name here.
#[derive(Clone)]
pub(super) struct Charged {
    pub(super) name: String,
    pub(super) limit: Limit,
}
