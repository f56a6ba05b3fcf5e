//! What people and machines read of this program: metrics, access log, events, traces.
//!
//! Nothing here decides about a request, and nothing here may hold one up: [`pipe`] drops lines
//! rather than wait.
//!
//! This crate knows no policies, servers or counters: it is handed their names.
//!
//! The types to know first:
//!
//! - [`access_log::LogBuffer`]: a worker's lines about requests.
//! - [`metrics::PolicyCounters`]: what a worker counts of a policy.
//! - [`trace::RequestTrace`]: a request's part in its trace.
//! - [`events::Events`]: the log of this process's events.
//! - [`sketch::CallerBook`]: which callers use a limit most.

pub mod access_log;
pub mod events;
pub mod metrics;
pub mod panics;
pub mod pipe;
pub mod sketch;
pub mod trace;

/// The icon of the pages that people look at: SVG.
pub const ICON: &str = include_str!("icon.svg");
