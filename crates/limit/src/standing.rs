//! How a limit stands for one key, which response headers report.

use tollgate_clock::Timestamp;

/// How a limit stands for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Units that can be used: in a window, or at once.
    pub limit: u32,
    /// Units left now.
    pub remaining: u32,
    /// Units used.
    pub used: u32,
    /// When the limit is full again.
    pub reset: Timestamp,
    /// When one more unit can be taken.
    pub next: Timestamp,
    /// When the requested cost can be taken.
    pub retry: Retry,
}

impl Standing {
    /// When the limit is whole again, for clients; with nothing left, when one more request is
    /// possible, since clients wait until then even after a success.
    pub fn reported_reset(&self) -> Timestamp {
        if self.remaining == 0 { self.next } else { self.reset }
    }
}

/// When a cost that was denied would be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// It was not denied.
    Now,
    /// From this instant on, if nothing else is charged.
    At(Timestamp),
    /// Not under this quota: the cost exceeds its capacity.
    Never,
}
