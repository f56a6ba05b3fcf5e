//! Where counters live.
//!
//! A store takes all charges of a request or none, and answers with the standing of each limit from
//! that one read.

mod memory;

pub use self::memory::MemoryStore;

/// Why a store could not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Every place for a counter is taken by an open window.
    #[error("every counter is in use by an open window")]
    Full,
}
