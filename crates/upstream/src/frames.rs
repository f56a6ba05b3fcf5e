//! The frames of a server in HTTP/2, counted beside the protocol engine, which keeps interim
//! responses for as long as they come and does not report them.
//!
//! Only heads are counted, over all streams together: each request allows a number of them, and a
//! server that sends more than all its requests allow is at fault.

use super::http1::MAX_INTERIM;

/// Streams of one connection, if the server allows more.
pub(super) const MAX_STREAMS: usize = 100;

/// Follows the frames that a server sends.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes to come of a frame's payload, which is not looked into.
    skip: u32,
    /// The frame head that is being read.
    head: [u8; HEAD_BYTES],
    filled: usize,
    /// Heads that may still come.
    room: u32,
}

const HEAD_BYTES: usize = 9;
const HEADERS: u8 = 0x1;
const END_STREAM: u8 = 0x1;

/// Interim responses to one request, and the response itself.
const A_REQUEST: u32 = MAX_INTERIM + 1;
/// Heads that may come while no request waits: the responses to all that were given up.
const AT_REST: u32 = MAX_STREAMS as u32;
const MOST: u32 = AT_REST + A_REQUEST * MAX_STREAMS as u32;

impl Default for Frames {
    /// A connection of which nothing was read yet.
    fn default() -> Self {
        Frames { skip: 0, head: [0; HEAD_BYTES], filled: 0, room: AT_REST }
    }
}

impl Frames {
    /// A request is about to be sent.
    pub(super) fn expect_response(&mut self) {
        self.room = self.room.saturating_add(A_REQUEST).min(MOST);
    }

    /// No request waits any more.
    pub(super) fn rest(&mut self) {
        self.room = self.room.min(AT_REST);
    }

    /// Takes the next bytes of the connection; false if there are too many heads in them.
    #[must_use]
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> bool {
        loop {
            let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
            bytes = bytes.get(skipped..).unwrap_or_default();
            self.skip -= skipped as u32;
            let Some((&byte, rest)) = bytes.split_first() else { return true };
            if let Some(place) = self.head.get_mut(self.filled) {
                *place = byte;
            }
            self.filled += 1;
            bytes = rest;
            if self.filled == HEAD_BYTES {
                self.filled = 0;
                if !self.take_frame() {
                    return false;
                }
            }
        }
    }

    fn take_frame(&mut self) -> bool {
        let [high, middle, low, kind, flags, ..] = self.head;
        self.skip = u32::from_be_bytes([0, high, middle, low]);
        // With END_STREAM it is a response without a body, or trailers: the last of its stream.
        if kind != HEADERS || flags & END_STREAM != 0 {
            return true;
        }
        let left = self.room.checked_sub(1);
        self.room = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        frame.resize(HEAD_BYTES + usize::from(length), HEADERS);
        frame
    }

    /// How many heads a connection takes, with all else between them, in pieces of this size.
    fn most(mut frames: Frames, size: usize) -> usize {
        let round = [frame(HEADERS, 0x4, 20), frame(0, 0, 200), frame(0x6, 0, 8)].concat();
        let mut take = || round.chunks(size).all(|piece| frames.read(piece));
        (0..10_000).take_while(|_| take()).count()
    }

    #[test]
    fn heads_beyond_what_was_asked_for_are_a_storm() {
        for size in [1, 7, 9, 10, 1000] {
            assert_eq!(most(Frames::default(), size), 100);
            let mut frames = Frames::default();
            frames.expect_response();
            assert_eq!(most(frames, size), 133);
        }
    }

    #[test]
    fn room_is_not_saved_up() {
        let mut frames = Frames::default();
        (0..10_000).for_each(|_| frames.expect_response());
        assert_eq!(frames.room, 100 + 33 * 100);
        frames.rest();
        assert_eq!(most(frames, 1000), 100);
    }

    #[test]
    fn last_frames_of_streams_are_free() {
        let mut frames = Frames::default();
        let last = frame(HEADERS, 0x4 | END_STREAM, 5);
        assert!((0..10_000).all(|_| frames.read(&last)));
    }
}
