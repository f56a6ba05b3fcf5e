//! Responses of this proxy: the only crate that knows status codes, bodies and limit headers.
//!
//! This crate decides nothing: what to respond is handed to it.
//!
//! The types to know first:
//!
//! - [`Rejection`]: why a request gets its response here and not from the upstream.
//! - [`Body`]: a response's body, and what is to be done once it has ended.
//! - [`Account`]: counts a request and ends its line in the log.
//! - [`LimitHeaders`]: the `x-ratelimit-*` headers of one limit.
//! - [`Format`]: a form that error bodies can have.

mod account;
mod body;
mod cache_control;
mod call;
mod challenge;
mod cors;
mod counted;
mod denied_for;
mod error;
mod grpc;
mod json;
mod json_rpc;
mod limit_headers;
mod message;
mod negotiation;
mod openai;
mod options;
mod problem;
mod rate_limit_fields;
mod rejection;
mod seconds_headers;
mod standings;
mod status;

pub use self::{
    account::Account,
    body::{Body, BodyTap, EndedTunnel, FinalCosts},
    cache_control::keep_from_shared_caches,
    call::{call_error, call_response},
    cors::{AllowedOrigin, preflight_answer},
    counted::Counted,
    denied_for::DenialReason,
    error::ErrorDetails,
    grpc::{GrpcCode, grpc_status, is_grpc_call},
    limit_headers::{LimitHeaders, expose},
    negotiation::{Format, preferred_format},
    openai::stamp_retry_after_ms,
    options::options,
    problem::problem,
    rate_limit_fields::{RateLimitFields, RateLimitItem, reset_seconds},
    rejection::{Denial, Rejection},
    seconds_headers::{QuotaWindow, SecondsHeaders, SecondsNames},
    standings::standings,
};

/// The status in the log of a request whose client had gone before it got a response, as nginx has
/// it.
pub const CLIENT_CLOSED_REQUEST: u16 = 499;

/// The status in the log of a request whose handling failed for a fault of this proxy.
pub const INTERNAL_ERROR: u16 = 500;
