//! Where counters live.
//!
//! A store takes all charges of a request or none, and answers with the standing of each limit from
//! that one read.

mod keeper;
mod memory;
mod snapshot;

use crate::limit::Receipt;

pub use self::{
    keeper::{Keeper, restore},
    memory::MemoryStore,
};

/// Why a store could not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Every place for a counter is taken by one that is in use.
    #[error("every counter is in use")]
    Full,
}

/// What is put right about a charge after its decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjustment {
    /// Its cost is taken, whether or not it fits.
    Take,
    /// Its cost is given back, to the window that was charged and no other. Not to be done twice.
    GiveBack(Receipt),
    /// The lease that was granted is made good for its full time.
    Renew(Receipt),
}
