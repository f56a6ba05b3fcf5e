//! Why Redis did not decide about a request.

/// Why Redis did not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// It is known to be away, and was not waited for.
    #[error("it is away")]
    Away,
    /// Too many requests wait for it.
    #[error("too many requests wait for it")]
    Busy,
    /// It did not answer in time.
    #[error("it did not answer in time")]
    Timeout,
    /// The connection broke before it answered.
    #[error("the connection to it broke")]
    Lost,
    /// It answered that it cannot.
    #[error("it refused")]
    Refused,
    /// Its reply cannot be read.
    #[error("its answer cannot be read")]
    BadReply,
}

impl Unanswered {
    /// Every reason.
    pub const ALL: [Unanswered; 6] = [
        Unanswered::Away,
        Unanswered::Busy,
        Unanswered::Timeout,
        Unanswered::Lost,
        Unanswered::Refused,
        Unanswered::BadReply,
    ];

    /// The reason as it appears in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Unanswered::Away => "away",
            Unanswered::Busy => "busy",
            Unanswered::Timeout => "timeout",
            Unanswered::Lost => "lost",
            Unanswered::Refused => "refused",
            Unanswered::BadReply => "bad_reply",
        }
    }
}
