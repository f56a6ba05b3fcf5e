//! What people and machines read of this program: metrics, access log, events, traces.
//!
//! Nothing here decides about a request, and nothing here may hold one up: [`pipe`] drops lines
//! rather than wait.

pub mod access_log;
pub mod events;
pub mod metrics;
pub mod panics;
pub mod pipe;
pub mod sketch;
pub mod trace;

/// The icon of the pages that people look at: SVG.
pub const ICON: &str = include_str!("icon.svg");
