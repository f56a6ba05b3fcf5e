//! A decision: what the store returns for the charges of a request.

use smallvec::SmallVec;
use tollgate_clock::Timestamp;

use super::{
    algorithm::Receipt,
    standing::{Retry, Standing},
};

/// The verdict and how each limit stands, from one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Taken or not.
    pub verdict: Verdict,
    /// One for each charge, in the order of the charges.
    pub outcomes: Outcomes,
    /// When it was made, by the clock of the store that made it.
    pub now: Timestamp,
}

/// Whether all charges of a request were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All enforced charges fit, and were taken.
    Allow,
    /// An enforced charge did not fit, and none was taken.
    Deny,
}

/// Outcomes of the few charges of a request.
pub type Outcomes = SmallVec<[Outcome; 2]>;

/// The outcome of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How its limit stands now, including what was taken. `retry` says whether the charge fits.
    pub standing: Standing,
    /// What was taken; none if nothing was.
    pub receipt: Option<Receipt>,
    /// Which store decided.
    pub decided_by: DecidedBy,
}

impl Outcome {
    /// Whether the charge fits.
    pub fn fits(&self) -> bool {
        self.standing.retry == Retry::Now
    }
}

/// Which store decided about a charge. A later correction goes to the same store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecidedBy {
    /// The store.
    #[default]
    Current,
    /// The store that counters are being moved to.
    Next,
    /// The process, by the time that the client gave. Its counters are apart from all others.
    ClientTime,
    /// The worker, which remembers that the store has denied the same until some time. Nothing was
    /// taken, so nothing is ever corrected.
    Memo,
    /// The process, because the store did not respond.
    Local,
    /// No store: the store did not respond, or the process had no room for the counter, and the
    /// limit is open in that case. The standing is not known.
    NoStore,
}
