//! The Redis serialization protocol: commands in, replies out. Pure: bytes and no sockets.
//!
//! The one thing to know: nothing is reserved from a length that a client writes. A command is
//! looked at in the bytes that have come, and its arguments stay where they are. Format:
//! <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

mod decoder;
mod number;
mod reply;

pub use self::{
    decoder::{Arguments, Bounds, Decoded, MAX_ARGUMENTS, ProtocolError, decode},
    number::parse_integer,
    reply::{Protocol, Replies},
};
