//! Decides charges: all of a request or none, and how limits stand.

pub(crate) mod client_time;
pub(crate) mod decisions;
pub(crate) mod groups;
pub(crate) mod headroom;
pub(crate) mod in_turn;
pub(crate) mod memo;
pub(crate) mod new_counters;
pub(crate) mod peek;
pub(crate) mod thaw;
