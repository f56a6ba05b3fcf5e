//! How far the time of a log has come, as its lines say when they were written.

use std::time::Duration;

use tollgate_clock::Timestamp;

/// A line that is further ahead of all before it counts only with another one that says the same:
/// its clock may have been wrong, and then no other line could be put in order.
pub(super) const JUMP: Duration = Duration::from_secs(60);

/// The latest time that lines were written at.
#[derive(Default)]
pub(super) struct LogTime {
    pub(super) time: Timestamp,
    /// What the latest line said, if it was far ahead and alone.
    ahead: Option<Timestamp>,
}

impl LogTime {
    /// Takes the time that a line was written at; returns whether it is far ahead of all others.
    pub(super) fn see(&mut self, written: Timestamp) -> bool {
        if written <= self.time + JUMP {
            self.time = self.time.max(written);
            self.ahead = None;
            return false;
        }
        let ahead = self.ahead.replace(written);
        let Some(ahead) = ahead.filter(|ahead| written + JUMP >= *ahead) else { return true };
        // Both are far ahead; if they are so of each other, it is the nearer one that is confirmed.
        if written <= ahead + JUMP {
            self.time = ahead.max(written);
            self.ahead = None;
            return false;
        }
        self.time = ahead;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_counts_when_another_line_says_the_same() {
        let mut reached = LogTime::default();
        for (written, expected) in [
            (90_000, 0),
            (1000, 0),
            (1005, 1005),
            (1000, 1005),
            (1060, 1060),
            (90_000, 1060),
            (1061, 1061),
            (5000, 1061),
            (9000, 5000),
            (9001, 9001),
        ] {
            reached.see(Timestamp::from_secs(written));
            assert_eq!(reached.time, Timestamp::from_secs(expected), "{written}");
        }
    }
}
