//! What is said of a limit that no store has decided.

use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, DecidedBy, Outcome, Retry, Standing};

/// The outcome of a limit that no store has decided.
pub(crate) fn undecided(charge: &Charge<'_>, now: Timestamp) -> Outcome {
    let limit = charge.quota.capacity();
    let standing =
        Standing { limit, remaining: limit, used: 0, reset: now, next: now, retry: Retry::Now };
    Outcome { standing, receipt: None, decided_by: DecidedBy::NoStore }
}
