//! Whether a server is worth asking: closed while it answers, open once it has stopped to.
//!
//! A request waits for a server that is away until its deadline, and the next one too; after a few
//! of them in a row nobody waits any more. No request is ever the one that finds out whether the
//! server is back: that is asked in the background.

use std::cell::Cell;

/// Failures in a row after which a server counts as away. A single slow reply is not one: a server
/// that forks to save its data pauses, and comes back.
const FAILURES: u32 = 5;

/// A server's breaker.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: Cell<u32>,
    is_open: Cell<bool>,
}

impl Breaker {
    /// Whether the server counts as away.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// It answered.
    pub(super) fn succeed(&self) {
        self.failures.set(0);
    }

    /// It did not answer. True: it counts as away from now on.
    pub(super) fn fail(&self) -> bool {
        self.failures.set(self.failures.get().saturating_add(1));
        let trips = !self.is_open.get() && self.failures.get() >= FAILURES;
        if trips {
            self.is_open.set(true);
        }
        trips
    }

    /// It is known to be away.
    pub(super) fn trip(&self) {
        self.is_open.set(true);
    }

    /// It is back.
    pub(super) fn close(&self) {
        self.failures.set(0);
        self.is_open.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_after_failures_in_a_row_and_closes_when_the_server_is_back() {
        let breaker = Breaker::default();
        for _ in 0..10 {
            (1..FAILURES).for_each(|_| assert!(!breaker.fail()));
            breaker.succeed();
        }
        (1..FAILURES).for_each(|_| assert!(!breaker.fail()));
        assert!(breaker.fail());
        assert!(breaker.is_open());
        assert!(!breaker.fail(), "it opens once");
        breaker.close();
        assert!(!breaker.is_open());
        assert!(!breaker.fail());
    }
}
