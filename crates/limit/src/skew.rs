//! How far a stored instant may lie ahead of the clock before the clock counts as turned back.

use std::time::Duration;

/// The skew that every limit tolerates, however short its window.
pub const MAX_SKEW: Duration = Duration::from_secs(5);

/// The largest difference between clocks that are not plainly wrong.
const ORDINARY_SKEW: Duration = Duration::from_secs(120);

/// How far a state of a limit with this window may lie ahead of the clock before it is healed.
///
/// Healing replaces the later instant by the present one. If another proxy with a faster clock
/// wrote the later instant, it continues from the earlier one, and the difference counts as elapsed
/// time each time the two proxies take turns. Without healing, a caller waits that much longer
/// after a clock did jump back: for at most one window, then, and the skew that every limit
/// tolerates.
pub fn tolerated_skew(window: Duration) -> Duration {
    MAX_SKEW + window.min(ORDINARY_SKEW)
}
