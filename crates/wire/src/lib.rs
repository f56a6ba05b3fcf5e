//! The grammar of the wire: what the bytes of a client must look like before they mean anything.
//!
//! Nothing here knows a socket, a policy or a response; bytes go in, and facts or violations come
//! out. [`target`] reads the paths of requests, [`framing`] follows the messages of HTTP/1,
//! [`frames`] counts the frames of HTTP/2, [`head_limits`] measures heads, and [`proxy_protocol`]
//! reads the header that a load balancer sends first. [`forward_auth`] reads what another proxy
//! asks about, [`query`] parameters, [`method_override`] what stands for another method, and
//! [`accept`] which forms of a response a client takes, and [`media_type`] what a body is.
//! [`quoted`] splits lists, and [`via`] names the proxies that a message has passed. [`resp`] is
//! the Redis protocol, and [`envoy`] has the messages of gRPC by which Envoy asks.
//!
//! The types to know first:
//!
//! - [`Framing`]: follows the messages of one HTTP/1 connection.
//! - [`Violation`]: why a request is refused.
//! - [`HeadLimits`]: how large the head of a request may be.
//! - [`frames::Frames`]: follows the frames of one HTTP/2 connection.
//! - [`target::Host`]: the host that a request is for.

pub mod accept;
mod content_length;
pub mod envoy;
pub mod forward_auth;
pub mod frames;
pub mod framing;
mod growth;
pub mod head_limits;
pub mod media_type;
pub mod method_override;
pub mod proxy_protocol;
pub mod query;
pub mod quoted;
pub mod resp;
pub mod target;
pub mod via;

pub use self::{
    framing::{Framing, Violation, ViolationKind},
    head_limits::HeadLimits,
};
