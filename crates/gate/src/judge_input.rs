//! What a request is judged by, besides its policy and route.

use tollgate_clock::Timestamp;
use tollgate_identity::{Client, PublishedKeys};

use super::{dry_run::DryRun, head::Head};

/// What a request is judged by.
pub(crate) struct JudgeInput<'r> {
    pub(crate) head: &'r Head<'r>,
    pub(crate) client: Client<'r>,
    pub(crate) published_keys: &'r PublishedKeys,
    /// The one instant at which it is judged.
    pub(crate) now: Timestamp,
    /// None: a client has really sent the request.
    pub(crate) dry_run: Option<&'r DryRun>,
}
