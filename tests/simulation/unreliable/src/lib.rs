//! What a simulation takes from the system, decided by a seed: functions of the C library that the
//! standard library calls, in place of those of the system. All other threads and files have what
//! the system gives.
//!
//! - `entropy`: randomness, on threads that were seeded;
//! - `calls`: calls that change files, of which those below a [`Drive`] may fail;
//! - [`Drive`]: a folder that knows what of it would outlive a power failure;
//! - `image`: what is left of it.

mod calls;
mod drive;
mod entropy;
mod image;

pub use self::{
    drive::{Calls, Drive, DriveFault},
    entropy::seed_thread,
    image::Ending,
};
