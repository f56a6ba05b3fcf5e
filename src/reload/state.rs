//! How the configuration came to be what it is: which one is in force, and what is wrong with the
//! one that was refused last, if it was.

use parking_lot::Mutex;
use tollgate_clock::Timestamp;
use tollgate_yaml::Problem;

/// The state of reloading, for the code that reports it.
#[derive(Debug)]
pub struct ReloadState(Mutex<Report>);

/// The state at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which configuration is in force: 1 at the start, one more with each that is put in force.
    pub generation: u64,
    /// Since when it is.
    pub loaded: Timestamp,
    /// A short name of its policies, the same at every proxy that has the same.
    pub digest: String,
    /// Reloads that put a configuration in force.
    pub done: u64,
    /// Reloads that were refused.
    pub failed: u64,
    /// Why the last reload was refused; none if it was not.
    pub refused: Option<Refused>,
    /// Sections of the settings file that differ from what is in force until a restart.
    pub needs_restart: Vec<&'static str>,
}

/// A reload that was refused. What was in force before stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// When.
    pub at: Timestamp,
    /// What is wrong, as it is shown to people: at most [`MAX_PROBLEMS`].
    pub problems: Vec<String>,
    /// How many more there are.
    pub more: usize,
}

/// Problems of one reload that are kept and logged, at most.
pub const MAX_PROBLEMS: usize = 20;

/// The longest text of a problem that is kept.
const MAX_PROBLEM_BYTES: usize = 2048;

impl ReloadState {
    /// The first configuration, whose policies have this short name, is in force since `now`.
    pub fn new(now: Timestamp, digest: String) -> Self {
        ReloadState(Mutex::new(Report {
            generation: 1,
            loaded: now,
            digest,
            done: 0,
            failed: 0,
            refused: None,
            needs_restart: Vec::new(),
        }))
    }

    /// The state now.
    pub fn report(&self) -> Report {
        self.0.lock().clone()
    }

    /// A configuration was put in force. Returns which.
    pub(super) fn note_done(
        &self,
        now: Timestamp,
        digest: String,
        needs_restart: Vec<&'static str>,
    ) -> u64 {
        let mut report = self.0.lock();
        let generation = report.generation + 1;
        let done = report.done + 1;
        let failed = report.failed;
        *report =
            Report { generation, loaded: now, digest, done, failed, refused: None, needs_restart };
        generation
    }

    /// A configuration was refused for these problems.
    pub(super) fn note_refused(&self, now: Timestamp, problems: &[Problem]) -> Refused {
        let texts = problems.iter().take(MAX_PROBLEMS).map(|problem| cut(problem.to_string()));
        let more = problems.len().saturating_sub(MAX_PROBLEMS);
        let refused = Refused { at: now, problems: texts.collect(), more };
        let mut report = self.0.lock();
        report.failed += 1;
        report.refused = Some(refused.clone());
        refused
    }
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_PROBLEM_BYTES {
        text.truncate(text.floor_char_boundary(MAX_PROBLEM_BYTES));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1);

    fn problem(message: &str) -> Problem {
        Problem::whole_file("a.yaml", message, "")
    }

    #[test]
    fn success_clears_what_was_wrong_and_counts_on() {
        let state = ReloadState::new(NOW, "first".into());
        state.note_refused(NOW, &[problem("broken")]);
        let refused = state.report();
        assert_eq!((refused.generation, refused.done, refused.failed), (1, 0, 1));
        assert_eq!(refused.refused.unwrap().problems, ["a.yaml: broken"]);
        assert_eq!(refused.digest, "first");
        assert_eq!(state.note_done(NOW, "second".into(), vec!["workers"]), 2);
        let done = state.report();
        assert_eq!((done.generation, done.done, done.failed), (2, 1, 1));
        assert_eq!((done.refused, done.digest.as_str()), (None, "second"));
    }

    #[test]
    fn what_is_kept_of_problems_is_bounded() {
        let state = ReloadState::new(NOW, String::new());
        let problems = vec![problem(&"é".repeat(5000)); MAX_PROBLEMS + 3];
        let refused = state.note_refused(NOW, &problems);
        assert_eq!((refused.problems.len(), refused.more), (MAX_PROBLEMS, 3));
        assert!(refused.problems.iter().all(|text| text.len() <= MAX_PROBLEM_BYTES + 3));
    }
}
