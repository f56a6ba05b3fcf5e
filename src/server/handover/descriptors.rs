//! What is said between the two processes: a greeting, and then for each socket its address, as the
//! settings have it, with the length before it in a byte that carries the socket (`SCM_RIGHTS`).

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    cmsg_space,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};

/// What the process that serves says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    /// So many sockets follow.
    Sockets(u8),
    /// None do: it is not for this user.
    Refused,
}

/// What the successor says once it serves.
pub(super) const SERVING: u8 = b'S';

/// Says what this is, and in which version.
const MAGIC: [u8; 2] = *b"T\x01";

impl Greeting {
    pub(super) const BYTES: usize = 4;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let [first, second] = MAGIC;
        match self {
            Greeting::Sockets(count) => [first, second, b'S', count],
            Greeting::Refused => [first, second, b'R', 0],
        }
    }

    /// None: these bytes are no greeting.
    pub(super) fn from_bytes(bytes: [u8; Self::BYTES]) -> Option<Greeting> {
        let [first, second, kind, count] = bytes;
        match (kind, [first, second] == MAGIC) {
            (b'S', true) => Some(Greeting::Sockets(count)),
            (b'R', true) => Some(Greeting::Refused),
            _ => None,
        }
    }
}

/// Sends one socket, and the length of its name.
pub(super) fn send(stream: impl AsFd, length: u8, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let sockets = [socket];
    ancillary.push(SendAncillaryMessage::ScmRights(&sockets));
    sendmsg(stream, &[IoSlice::new(&[length])], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one socket, and the length of its name. None: the byte came without one, or nothing
/// came.
pub(super) fn receive(stream: impl AsFd) -> io::Result<Option<(u8, OwnedFd)>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut length = [0];
    recvmsg(stream, &mut [IoSliceMut::new(&mut length)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut sockets = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    let [length] = length;
    Ok(sockets.next().map(|socket| (length, socket)))
}
