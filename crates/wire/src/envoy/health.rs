//! `grpc.health.v1`: is this service up?

use prost::{Enumeration, Message};

/// What is asked.
#[derive(Clone, PartialEq, Message)]
pub struct HealthCheckRequest {
    /// The name of a service; empty: the server as a whole.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct HealthCheckResponse {
    /// Whether it is up.
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

/// Whether a service is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// Nobody knows.
    Unknown = 0,
    /// It is.
    Serving = 1,
    /// It is not, or soon will not be.
    NotServing = 2,
}
