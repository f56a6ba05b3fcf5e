//! Why a store did not decide about a request.

use tollgate_keyword::keywords;

keywords! {
    /// Why a store did not decide.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum Unanswered {
        /// It is known to be away, and was not waited for.
        #[error("it is away")]
        Away = "away",
        /// Too many requests wait for it.
        #[error("too many requests wait for it")]
        Busy = "busy",
        /// It did not answer in time.
        #[error("it did not answer in time")]
        Timeout = "timeout",
        /// The connection broke before it answered.
        #[error("the connection to it broke")]
        Lost = "lost",
        /// It answered that it cannot.
        #[error("it refused")]
        Refused = "refused",
        /// Its reply cannot be read.
        #[error("its answer cannot be read")]
        BadReply = "bad_reply",
        /// A counter cannot be read from disk.
        #[error("a counter cannot be read from disk")]
        DiskRead = "disk_read",
        /// Counters cannot be written to disk.
        #[error("counters cannot be written to disk")]
        DiskWrite = "disk_write",
        /// Memory is full, and counters cannot leave it for the disk in time.
        #[error("memory is full, and counters do not leave it for the disk in time")]
        MemoryFull = "memory_full",
    }
}

impl Unanswered {
    /// Whether Redis is known not to have done what it was asked for.
    pub(super) fn is_undone(self) -> bool {
        match self {
            Unanswered::Away | Unanswered::Busy | Unanswered::Refused => true,
            Unanswered::Timeout
            | Unanswered::Lost
            | Unanswered::BadReply
            // Not of Redis.
            | Unanswered::DiskRead
            | Unanswered::DiskWrite
            | Unanswered::MemoryFull => false,
        }
    }

    /// Whether only a store on disk gives this reason.
    pub(super) fn is_of_disk(self) -> bool {
        matches!(self, Unanswered::DiskRead | Unanswered::DiskWrite | Unanswered::MemoryFull)
    }
}
