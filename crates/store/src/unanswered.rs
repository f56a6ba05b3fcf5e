//! Why a store did not decide about a request.

/// Why a store did not decide.
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
    /// A counter cannot be read from disk.
    #[error("a counter cannot be read from disk")]
    DiskRead,
    /// Counters cannot be written to disk.
    #[error("counters cannot be written to disk")]
    DiskWrite,
    /// Memory is full, and counters cannot leave it for the disk in time.
    #[error("memory is full, and counters do not leave it for the disk in time")]
    MemoryFull,
}

impl Unanswered {
    /// Every reason.
    pub const ALL: [Unanswered; 9] = [
        Unanswered::Away,
        Unanswered::Busy,
        Unanswered::Timeout,
        Unanswered::Lost,
        Unanswered::Refused,
        Unanswered::BadReply,
        Unanswered::DiskRead,
        Unanswered::DiskWrite,
        Unanswered::MemoryFull,
    ];

    /// Whether only a store on disk gives this reason.
    pub(super) fn is_of_disk(self) -> bool {
        matches!(self, Unanswered::DiskRead | Unanswered::DiskWrite | Unanswered::MemoryFull)
    }

    /// The reason as it appears in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Unanswered::Away => "away",
            Unanswered::Busy => "busy",
            Unanswered::Timeout => "timeout",
            Unanswered::Lost => "lost",
            Unanswered::Refused => "refused",
            Unanswered::BadReply => "bad_reply",
            Unanswered::DiskRead => "disk_read",
            Unanswered::DiskWrite => "disk_write",
            Unanswered::MemoryFull => "memory_full",
        }
    }
}
