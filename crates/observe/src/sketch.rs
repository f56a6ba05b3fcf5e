//! Which callers use a limit most, without a counter for each caller.
//!
//! Counters are kept under hashes, so they cannot say who has used most. Here each worker keeps the
//! names of the callers that weigh most: the space-saving algorithm (Metwally, Agrawal, El Abbadi,
//! "Efficient Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005). Every figure
//! has an error bound, and memory is bounded whatever names clients choose.
//!
//! A worker writes to memory of its own, a minute at a time (`worker.rs`). Minutes that have ended
//! are merged into the limit's last hour (`hour.rs`) by a reader, or by upkeep, never by a
//! request.

mod book;
mod distinct;
mod hour;
mod minute;
mod space_saving;
mod summary;
mod worker;

pub use self::{
    book::{CallerBook, LimitRef, NearTier},
    distinct::DistinctKeys,
    hour::{KEPT_MINUTES, SEALED_ENTRIES},
    minute::{Denied, Measure, Sighting},
    space_saving::{CAPACITY, MAX_NAME_BYTES, SpaceSaving},
    summary::{Estimate, Summary},
    worker::WorkerSketch,
};
