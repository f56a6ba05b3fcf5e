//! How much a caller of a tier may have of a limit.

use http::HeaderValue;
use tollgate_limit::{LimitId, Quota};

/// What a tier may use of a limit, in several windows at once; none: the limit does not apply. The
/// longest window is last, and is the one in the headers of responses.
pub type Allowances = Vec<Allowance>;

/// Whether two tiers have the same windows and rates.
pub fn are_alike(one: &[Allowance], other: &[Allowance]) -> bool {
    let as_counted = |allowance: &Allowance| (allowance.id, allowance.quota.clone());
    one.iter().map(as_counted).eq(other.iter().map(as_counted))
}

/// How much, in one window.
#[derive(Clone, Debug)]
pub struct Allowance {
    /// How much, and how it is counted.
    pub quota: Quota,
    /// Names the limit and the way of counting in counter keys.
    pub id: LimitId,
    /// The quota's limit as a header value, built once.
    pub limit: HeaderValue,
    /// What it is called where each window has a name: as the limit, or as `core-1h`.
    pub name: Box<str>,
    /// Length of the window in whole seconds, rounded up; none for what has no window.
    pub window_secs: Option<u64>,
    /// What bounds its refunds, if something does.
    pub refunds: Option<RefundBound>,
}

/// A bound on refunds: a counter of their own beside the one that they go to.
#[derive(Clone, Debug)]
pub struct RefundBound {
    /// How much may be given back, in windows as long as those of the counter.
    pub quota: Quota,
    /// Names the limit and the way of counting in its keys.
    pub id: LimitId,
}
