//! What happens where Redis does not decide: each limit follows its `on_store_error`, and what was
//! admitted meanwhile is written to Redis later.

pub(crate) mod cache;
pub(crate) mod correction_room;
pub(crate) mod local;
pub(crate) mod pending;
mod refunds;
pub(crate) mod reseeding;
pub(crate) mod waiting_refunds;
