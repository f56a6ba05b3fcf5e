//! What a limit says about a store that is full.

/// What becomes of a charge if the process has no room for its counter, for all counters are in use
/// that there may be. What one client brings about by its own choice is refused whatever this says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// As [`WhenFull::Open`] while the process stands in for a store that does not answer: the caller
    /// had room there. Else as [`WhenFull::Closed`]: where there is no other store, a full one is no
    /// outage.
    #[default]
    OpenWhileAlone,
    /// The request goes on as if there were no such limit.
    Open,
    /// The request is refused.
    Closed,
}

impl WhenFull {
    /// What it comes to while the process stands in for a store that does not answer.
    #[must_use]
    pub fn while_alone(self) -> WhenFull {
        match self {
            WhenFull::OpenWhileAlone | WhenFull::Open => WhenFull::Open,
            WhenFull::Closed => WhenFull::Closed,
        }
    }
}
