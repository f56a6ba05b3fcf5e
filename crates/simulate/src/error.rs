//! Why there are no answers.

use tollgate_history::HistoryError;

/// Why there are no answers.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The logs cannot be read.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The system has no event queue.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
    /// Standard input is read once.
    #[error("the logs are read twice: name regular files, not standard input or a pipe")]
    NotTwice,
    /// Too many requests of the logs are out of order, and the logs cannot be read again.
    #[error(
        "{late} of {requests} requests are out of order by more than 10 s, so that their numbers \
         would be wrong: sort the log by time, or name it as a file"
    )]
    OutOfOrder {
        /// Requests that came too late.
        late: u64,
        /// All of them.
        requests: u64,
    },
    /// There is nothing to suggest by.
    #[error("no request is in the logs, so nothing can be suggested")]
    NoRequest,
    /// No policy can have callers of this kind.
    #[error("no caller can be called `{0}`: use up to 64 letters, digits, `-` and `_`")]
    CallerKind(String),
    /// What was made of the log is no policy.
    #[error("the log has names that no policy can have: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Draft(Vec<tollgate_yaml::Problem>),
}
