//! Bodies on their way through: frames as they come, back-pressure by not asking for more, and a
//! deadline that starts anew with each frame.

mod ahead;
mod request;
mod response;
mod trailers;

pub use self::{
    ahead::Ahead,
    request::{ClientBody, RequestBody},
    response::UpstreamBody,
};
pub(super) use self::{
    request::{BodyState, Timing},
    response::Source,
};
