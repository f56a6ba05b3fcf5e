//! What proxies that share a Redis know of each other, and have in common.

pub(crate) mod heartbeat;
pub(crate) mod peers;
pub(crate) mod resets;
pub(crate) mod secret;
pub(crate) mod summaries;
