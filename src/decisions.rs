//! Listeners at which other programs ask for decisions. So far they speak the Redis protocol.
//!
//! The one thing to know: a listener is one thread that owns its tables. So no two decisions race, no
//! command takes a lock, and the replies of a pipeline leave in one write. Commands about limits of the
//! policies go to a [`Gate`](tollgate_gate::Gate) of that thread, those of a pipeline together.

mod buckets;
mod connection;
mod engine;
mod listener;
mod named;
mod refill;
mod stream;
mod table;
mod throttle;

pub use self::{
    engine::{Engine, Served, Session},
    listener::{Accounting, DecisionListener, Drained},
};
