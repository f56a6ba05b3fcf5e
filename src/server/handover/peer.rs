//! The process at the other end of a handover's socket, seen from either end.

use std::io;

use rustix::process::geteuid;

/// Whether a process of this user may take over, or hand over: it runs as the same user, or as root,
/// which may do anything anyway.
pub(super) fn is_trusted(uid: u32) -> bool {
    uid == geteuid().as_raw() || uid == 0
}

/// Whether the error means that no process serves at the socket: there is no socket, no process
/// listens at it, or the one that did has just stopped.
pub(super) fn is_without_process(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(error.kind(), NotFound | ConnectionRefused | ConnectionReset | UnexpectedEof)
}
