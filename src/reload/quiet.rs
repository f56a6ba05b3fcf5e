//! When a change is over: an editor or a deployment may still be writing.

use tollgate_yaml::Inputs;

/// Follows a change from its first sign until it is over. Called once in a quiet period.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    /// What was seen last, and how often something new was seen, while a change is under way.
    seen: Option<(Inputs, u32)>,
}

/// What to do about what was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Nothing: all is as it was when it was last read.
    Stay,
    /// Check again after a quiet period.
    Wait,
    /// Read.
    Read,
}

/// After so many quiet periods files are read even if they still change. A half-written
/// configuration is refused.
const MAX_ROUNDS: u32 = 10;

impl Quiet {
    /// What to do if `read` was read last and there is `now`.
    pub(super) fn next_step(&mut self, read: &Inputs, now: Inputs) -> NextStep {
        let (verdict, seen) = match self.seen.take() {
            _ if now == *read => (NextStep::Stay, None),
            Some((seen, rounds)) if seen == now || rounds >= MAX_ROUNDS => (NextStep::Read, None),
            Some((_, rounds)) => (NextStep::Wait, Some((now, rounds + 1))),
            None => (NextStep::Wait, Some((now, 1))),
        };
        self.seen = seen;
        verdict
    }

    /// Whether a change is under way.
    pub(super) fn is_waiting(&self) -> bool {
        self.seen.is_some()
    }

    /// Forgets what was seen: it was read meanwhile.
    pub(super) fn reset(&mut self) {
        self.seen = None;
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use tollgate_yaml::Sources;

    use super::*;

    /// What is seen of a file with this content.
    fn seen(file: &Path, content: &str) -> Inputs {
        fs::write(file, content).unwrap();
        let sources = Sources::system().recording();
        sources.read(file, 1000).unwrap();
        sources.inputs()
    }

    #[test]
    fn change_is_read_when_it_is_seen_twice() {
        let folder = tempfile::tempdir().unwrap();
        let see = |content: &str| seen(&folder.path().join("file"), content);
        let read = see("old");
        let mut quiet = Quiet::default();
        for (content, expected) in [
            ("old", NextStep::Stay),
            ("", NextStep::Wait),
            ("ne", NextStep::Wait),
            ("new", NextStep::Wait),
            ("new", NextStep::Read),
            ("other", NextStep::Wait),
            ("old", NextStep::Stay),
            ("other", NextStep::Wait),
        ] {
            assert_eq!(quiet.next_step(&read, see(content)), expected, "{content}");
            assert_eq!(quiet.is_waiting(), expected == NextStep::Wait);
        }
    }

    #[test]
    fn writing_without_end_does_not_hold_it_off() {
        let folder = tempfile::tempdir().unwrap();
        let see = |content: &str| seen(&folder.path().join("file"), content);
        let read = see("old");
        let mut quiet = Quiet::default();
        let rounds = (0_u32..100)
            .position(|round| quiet.next_step(&read, see(&round.to_string())) == NextStep::Read);
        assert_eq!(rounds, Some(MAX_ROUNDS as usize));
    }
}
