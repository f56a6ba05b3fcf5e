//! The two instants that every call to a store takes.

use tokio::time::Instant;
use tollgate_clock::Timestamp;

/// The time of a request by the policy's clock, and the instant by which its call must be over.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallTime {
    pub(super) now: Timestamp,
    pub(super) deadline: Instant,
}
