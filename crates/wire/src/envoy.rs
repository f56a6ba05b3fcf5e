//! The messages that Envoy asks with, and gRPC's frames around them.
//!
//! Only the fields that are read or written here are described: a decoder of Protocol Buffers
//! passes over all others. Names and numbers are those of Envoy's API, version 3.

pub mod authorization;
mod common;
pub mod frame;
pub mod health;
pub mod rate_limit;

pub use self::common::{AppendAction, HeaderValue, HeaderValueOption};
