//! Checks of the process at the other end of the handover socket, used by both sides.

use std::io;

use rustix::process::geteuid;

/// Whether a process of this user may give or receive listening sockets: the same user, or root,
/// which could take them anyway.
pub(super) fn is_trusted(uid: u32) -> bool {
    uid == geteuid().as_raw() || uid == 0
}

/// Whether an error means that no process serves there: no socket exists, no process listens at it,
/// or the process that did has just stopped.
pub(super) fn has_no_process(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(error.kind(), NotFound | ConnectionRefused | ConnectionReset | UnexpectedEof)
}
