//! The frames of a WebSocket (RFC 6455 section 5.2), as far as it takes to say something between
//! two of them.

use bytes::Bytes;

/// Follows the frames that go one way.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The frame head that is being carried.
    head: [u8; MAX_HEAD_BYTES],
    filled: usize,
    /// Bytes to come of the frame's payload.
    payload: u64,
    /// Whether the frame is a Close, after which nothing is said (section 5.5.1).
    is_close: bool,
    has_closed: bool,
}

/// Whose words something is said in: a client's frames are masked (section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum As {
    Client,
    Server,
}

const MAX_HEAD_BYTES: usize = 14;
const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;
const CLOSE: u8 = 0x8;
/// The status of an end that leaves (section 7.4.1).
const GOING_AWAY: u16 = 1001;

/// A Close that says that this end is going away.
pub(super) fn going_away(speaker: As) -> Bytes {
    let [high, low] = GOING_AWAY.to_be_bytes();
    if speaker == As::Server {
        return Bytes::copy_from_slice(&[FIN | CLOSE, 2, high, low]);
    }
    let mut mask = [0; 4];
    // With a mask, the party that chooses the payload cannot choose the bytes on the wire (RFC 6455
    // section 5.3). This payload is fixed, so a failure to fill the mask does no harm.
    let _ = aws_lc_rs::rand::fill(&mut mask);
    let [a, b, c, d] = mask;
    Bytes::copy_from_slice(&[FIN | CLOSE, MASKED | 2, a, b, c, d, high ^ a, low ^ b])
}

impl Frames {
    /// Whether the next byte begins a frame.
    pub(super) fn is_between(&self) -> bool {
        self.left() == 0
    }

    /// Whether this way has been closed.
    pub(super) fn has_closed(&self) -> bool {
        self.has_closed
    }

    /// So many bytes, at least, belong to the frame that has begun; 0 if none has.
    pub(super) fn left(&self) -> usize {
        match self.filled {
            0 => usize::try_from(self.payload).unwrap_or(usize::MAX),
            filled => self.head_bytes().saturating_sub(filled),
        }
    }

    /// Takes the next bytes that were carried.
    pub(super) fn carry(&mut self, mut bytes: &[u8]) {
        loop {
            let skipped = usize::try_from(self.payload).unwrap_or(usize::MAX).min(bytes.len());
            bytes = bytes.get(skipped..).unwrap_or_default();
            self.payload -= skipped as u64;
            if self.filled == 0 && self.payload == 0 {
                self.has_closed |= self.is_close;
            }
            let Some((&byte, rest)) = bytes.split_first() else { return };
            if let Some(place) = self.head.get_mut(self.filled) {
                *place = byte;
            }
            self.filled += 1;
            bytes = rest;
            if self.filled == self.head_bytes() {
                self.take_head();
            }
        }
    }

    /// How long the head is, as far as it is known.
    fn head_bytes(&self) -> usize {
        let [_, second, ..] = self.head;
        if self.filled < 2 {
            return 2;
        }
        let length = match second & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length + if second & MASKED != 0 { 4 } else { 0 }
    }

    fn take_head(&mut self) {
        let [first, second, a, b, c, d, e, f, g, h, ..] = self.head;
        self.is_close = first & 0x0f == CLOSE;
        self.payload = match second & !MASKED {
            126 => u16::from_be_bytes([a, b]).into(),
            127 => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            length => length.into(),
        };
        self.filled = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(first: u8, length: u64, mask: u8) -> Vec<u8> {
        let mut frame = vec![first];
        match length {
            0..126 => frame.push(mask | length as u8),
            126..65_536 => {
                frame.push(mask | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            _ => {
                frame.push(mask | 127);
                frame.extend(length.to_be_bytes());
            }
        }
        if mask != 0 {
            frame.extend([1, 2, 3, 4]);
        }
        frame.resize(frame.len() + length as usize, 0x88);
        frame
    }

    #[test]
    fn frames_of_every_length_are_separated_however_they_are_cut() {
        for mask in [0, MASKED] {
            for length in [0, 1, 5, 125, 126, 1000, 65_535, 65_536, 100_000] {
                let two = [frame(0x82, length, mask), frame(0x81, 3, mask)].concat();
                for size in [1, 3, 1000, two.len()] {
                    let mut frames = Frames::default();
                    let mut carried = 0;
                    for piece in two.chunks(size) {
                        frames.carry(piece);
                        carried += piece.len();
                        let at = [two.len(), two.len() - frame(0x81, 3, mask).len()];
                        assert_eq!(frames.is_between(), at.contains(&carried), "{length} {size}");
                    }
                    assert!(!frames.has_closed());
                }
            }
        }
    }

    #[test]
    fn what_is_left_of_a_frame_leads_to_its_end() {
        let frame = frame(0x82, 300, MASKED);
        let mut frames = Frames::default();
        frames.carry(&frame[..1]);
        let mut carried = 1;
        while !frames.is_between() {
            let next =
                frame.get(carried..carried + frames.left()).expect("no further than its end");
            frames.carry(next);
            carried += next.len();
        }
        assert_eq!(carried, frame.len());
    }

    #[test]
    fn close_is_the_last_that_is_said() {
        for speaker in [As::Client, As::Server] {
            let close = going_away(speaker);
            let mut frames = Frames::default();
            frames.carry(&close[..close.len() - 1]);
            assert!(!frames.has_closed());
            frames.carry(&close[close.len() - 1..]);
            assert!(frames.has_closed() && frames.is_between(), "{speaker:?}");
        }
        let mut frames = Frames::default();
        frames.carry(&[0x88, 0]);
        assert!(frames.has_closed());
    }
}
