//! Decisions that other programs ask for: at listeners of their own by the Redis protocol, and at
//! those of workers over HTTP or, as Envoy does, by gRPC.
//!
//! The one thing to know: a listener of the Redis protocol is one thread that owns its tables. So
//! no two decisions race, no command takes a lock, and the replies of a pipeline leave in one
//! write. Whatever the protocol, what charges limits of the policies uses the
//! [`Gate`](tollgate_gate::Gate) of its thread.

mod buckets;
mod calls;
mod connection;
mod engine;
mod envoy;
mod listener;
mod named;
mod named_limits;
mod origin;
mod programs;
mod question;
mod refill;
mod stream;
mod table;
mod throttle;
mod whole_body;

pub use self::{
    engine::{Engine, Served, Session},
    listener::{Accounting, DecisionListener, Drained},
};
pub(crate) use self::{
    named_limits::{note_reset, of_reset},
    question::Question,
};
