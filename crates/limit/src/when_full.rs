//! How a limit is decided when the store is full.

/// How a charge is decided if the process has no room for its counter, because all counters that it
/// may have are in use. A client that fills the store with counters of its own choice is refused in
/// any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// As [`WhenFull::Open`] while the process replaces a store that does not respond: the caller
    /// had room there. Else as [`WhenFull::Closed`]: without another store, a full one is not an
    /// outage.
    #[default]
    OpenWhileAlone,
    /// The request continues as if there were no such limit.
    Open,
    /// The request is refused.
    Closed,
}

impl WhenFull {
    /// What it means while the process replaces a store that does not respond.
    #[must_use]
    pub fn while_alone(self) -> WhenFull {
        match self {
            WhenFull::OpenWhileAlone | WhenFull::Open => WhenFull::Open,
            WhenFull::Closed => WhenFull::Closed,
        }
    }
}
