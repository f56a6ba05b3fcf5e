//! The frames of an HTTP/2 connection, counted beside the protocol engine.
//!
//! The engine answers whatever it is asked, and some frames ask for work and carry nothing: PING,
//! SETTINGS, PRIORITY, WINDOW_UPDATE, RST_STREAM, empty DATA. Here each frame costs a part of a
//! budget, useful traffic and time give some back, and a client that has spent all of it gets
//! GOAWAY with ENHANCE_YOUR_CALM (RFC 9113 section 10.5). A client that sends requests never comes
//! near: a hundred control frames a second are free, and each response pays for more than it
//! causes.
//!
//! Only the heads of frames are looked at, 9 bytes each; whether they make sense is for the engine
//! to say. How large a block of fields became is reported here, see `growth.rs`.

use super::growth::Growth;

/// Follows the frames that a client sends.
#[derive(Debug)]
pub struct Frames {
    /// Bytes to come of what is not looked into: the preface, then each frame's payload.
    skip: u32,
    /// The frame head that is being read.
    head: [u8; HEAD_BYTES],
    filled: usize,
    phase: Phase,
    /// What the frame in `skip` makes of the phase when it has ended.
    then: Phase,
    /// Heads that have begun, and the stream of the latest.
    heads: u32,
    stream: [u8; 4],
    budget: u32,
    /// How many bytes of a large head cost as much as a frame.
    bytes_a_unit: u32,
    growth: Growth,
    /// What the connection is to be ended for: nothing reads its responses any more.
    fault: Option<Fault>,
    /// The tick up to which time has given something back.
    refilled: u32,
}

/// What is awaited from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The client's first SETTINGS.
    Opening,
    /// Nothing.
    Between,
    /// The rest of a head, with the number of the head.
    Head(u32),
}

/// Why the connection is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The client has spent all that it had.
    #[error("too many frames that ask for nothing")]
    Flood,
    /// Its heads are much larger than what came for them.
    #[error("heads that grow too much")]
    Growth,
    /// The first frame is not the client's SETTINGS (section 3.4).
    #[error("no settings at the beginning")]
    NoSettings,
    /// A frame is of a size that no frame of its kind has (RFC 9113 section 4.2). The engine would
    /// end the connection too, and not say why.
    #[error("frame of a wrong size")]
    Size,
}

/// What a head costs by its size, where heads may be as large as they usually may.
const USUAL_UNIT: u32 = 256;
const USUAL_HEAD: u32 = 32 * 1024;

const HEAD_BYTES: usize = 9;
const PREFACE_BYTES: u32 = 24;

/// What a client can spend at once, and what each tick gives back.
const BUDGET: u32 = 1000;
const A_TICK: u32 = 10;
/// What a response gives back when it has ended, and each part of it besides its size.
const A_RESPONSE: u32 = 32;
const A_PART: u32 = 4;

/// What is not announced otherwise (section 6.5.2).
const MAX_FRAME_BYTES: u32 = 16_384;

const ACK: u8 = 0x1;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

impl Frames {
    /// A connection of which nothing was read yet, not even the preface, at this tick. Heads of up
    /// to `head_bytes` are fine, and so are as many `streams` at once.
    pub fn new(now: u32, head_bytes: u32, streams: u32) -> Self {
        Frames {
            skip: PREFACE_BYTES,
            head: [0; HEAD_BYTES],
            filled: 0,
            phase: Phase::Opening,
            then: Phase::Opening,
            heads: 0,
            stream: [0; 4],
            budget: BUDGET,
            bytes_a_unit: USUAL_UNIT * (head_bytes / USUAL_HEAD).max(1),
            growth: Growth::new(streams),
            fault: None,
            refilled: now,
        }
    }

    /// What is awaited from the client.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Takes the next bytes of the connection, read at this tick.
    ///
    /// # Errors
    /// The client has gone too far: the connection is to be ended.
    pub fn read(&mut self, mut bytes: &[u8], now: u32) -> Result<(), Fault> {
        loop {
            let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
            bytes = bytes.get(skipped..).unwrap_or_default();
            self.skip -= skipped as u32;
            if self.skip == 0 {
                self.phase = self.then;
            }
            let Some((&byte, rest)) = bytes.split_first() else { return Ok(()) };
            if let Some(place) = self.head.get_mut(self.filled) {
                *place = byte;
            }
            self.filled += 1;
            bytes = rest;
            if self.filled == HEAD_BYTES {
                self.filled = 0;
                self.take_frame(now).inspect_err(|fault| self.fault = Some(*fault))?;
            }
        }
    }

    /// Takes what a head, or trailers, have become: so many bytes as HTTP/1.1 writes them. The
    /// connection may be at fault after that.
    pub fn take_fields(&mut self, bytes: usize) {
        if !self.growth.take(bytes) {
            self.fault.get_or_insert(Fault::Growth);
        }
    }

    /// What the connection was found at fault for.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// The upstream's answer has ended, which is what the connection is for.
    pub fn pay_response(&mut self) {
        self.pay(A_RESPONSE);
    }

    /// So many bytes of a response are on their way: the client will say that it has read them.
    pub fn pay_part(&mut self, bytes: usize) {
        self.pay(A_PART.saturating_add(u32::try_from(bytes / 256).unwrap_or(BUDGET)));
    }

    /// The GOAWAY that ends the connection for this (RFC 9113 section 6.8).
    pub fn goodbye(&self, fault: Fault) -> [u8; 17] {
        let error = match fault {
            Fault::Flood | Fault::Growth => ENHANCE_YOUR_CALM,
            Fault::NoSettings => PROTOCOL_ERROR,
            Fault::Size => FRAME_SIZE_ERROR,
        };
        let [first, second, third, fourth] = self.stream;
        let first = first & 0x7f;
        [0, 0, 8, GOAWAY, 0, 0, 0, 0, 0, first, second, third, fourth, 0, 0, 0, error]
    }

    fn pay(&mut self, amount: u32) {
        self.budget = self.budget.saturating_add(amount).min(BUDGET);
    }

    fn take_frame(&mut self, now: u32) -> Result<(), Fault> {
        let [high, middle, low, kind, flags, stream @ ..] = self.head;
        let length = u32::from_be_bytes([0, high, middle, low]);
        let is_sized = match kind {
            //= rfc9113#section-6.3
            //# A PRIORITY frame with a length other than 5 octets MUST be treated as a stream error
            PRIORITY => length == 5,
            //= rfc9113#section-6.4
            //# A RST_STREAM frame with a length other than 4 octets MUST be treated as a connection
            //# error of type FRAME_SIZE_ERROR
            //= rfc9113#section-6.9
            //# A WINDOW_UPDATE frame with a length other than 4 octets MUST be treated as a
            //# connection error of type FRAME_SIZE_ERROR
            RST_STREAM | WINDOW_UPDATE => length == 4,
            //= rfc9113#section-6.5
            //# Receipt of a SETTINGS frame with the ACK flag set and a length field value other
            //# than 0 MUST be treated as a connection error of type FRAME_SIZE_ERROR
            SETTINGS if flags & ACK != 0 => length == 0,
            //= rfc9113#section-6.5
            //# A SETTINGS frame with a length other than a multiple of 6 octets MUST be treated as
            //# a connection error of type FRAME_SIZE_ERROR
            SETTINGS => length.is_multiple_of(6),
            //= rfc9113#section-6.7
            //# Receipt of a PING frame with a length field value other than 8 MUST be treated as a
            //# connection error of type FRAME_SIZE_ERROR
            PING => length == 8,
            GOAWAY => length >= 8,
            _ => true,
        };
        //= rfc9113#section-3.4
        //# Clients and servers MUST treat an invalid connection preface as a connection error
        if self.phase == Phase::Opening && (kind != SETTINGS || flags & ACK != 0) {
            return Err(Fault::NoSettings);
        }
        //= rfc9113#section-4.2
        //# An endpoint MUST send an error code of FRAME_SIZE_ERROR if a frame exceeds the size
        //# defined in SETTINGS_MAX_FRAME_SIZE
        //= rfc9113#section-4.2
        //# A frame size error in a frame that could alter the state of the entire connection MUST
        //# be treated as a connection error
        if !is_sized || length > MAX_FRAME_BYTES {
            return Err(Fault::Size);
        }
        if kind == HEADERS {
            self.heads = self.heads.wrapping_add(1);
            self.stream = stream;
            self.growth.begin_head(length);
        }
        if kind == CONTINUATION {
            self.growth.continue_head(length);
        }
        self.then = match kind {
            HEADERS | CONTINUATION => {
                self.phase = Phase::Head(self.heads);
                if flags & END_HEADERS == 0 { self.phase } else { Phase::Between }
            }
            SETTINGS if self.phase == Phase::Opening => Phase::Between,
            _ => self.phase,
        };
        let cost = match kind {
            DATA if length > 0 || flags & END_STREAM != 0 => 0,
            DATA => 4,
            // Of usual size, it is free but for its being there.
            HEADERS => 1 + length.saturating_sub(1024) / self.bytes_a_unit,
            CONTINUATION => 8 + length / self.bytes_a_unit,
            RST_STREAM => 4,
            SETTINGS => 8,
            PING => 2,
            // PRIORITY, WINDOW_UPDATE, GOAWAY, and kinds of later days.
            _ => 1,
        };
        self.spend(cost, now)?;
        self.skip = length;
        if kind == DATA {
            // Who sends bodies measures the way by PING.
            self.pay(length / 1024);
        }
        Ok(())
    }

    //= rfc9113#section-10.5
    //# Implementations SHOULD track the use of these features and set limits on their use
    fn spend(&mut self, cost: u32, now: u32) -> Result<(), Fault> {
        if now != self.refilled {
            self.pay(now.saturating_sub(self.refilled).saturating_mul(A_TICK));
            self.refilled = now;
        }
        self.budget = self.budget.checked_sub(cost).ok_or(Fault::Flood)?;
        Ok(())
    }
}

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const PRIORITY: u8 = 0x2;
const RST_STREAM: u8 = 0x3;
const SETTINGS: u8 = 0x4;
const PING: u8 = 0x6;
const GOAWAY: u8 = 0x7;
const WINDOW_UPDATE: u8 = 0x8;
const CONTINUATION: u8 = 0x9;

const PROTOCOL_ERROR: u8 = 0x1;
const FRAME_SIZE_ERROR: u8 = 0x6;
const ENHANCE_YOUR_CALM: u8 = 0xb;

#[cfg(test)]
mod tests {
    use super::*;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    fn frame(kind: u8, flags: u8, length: u32) -> Vec<u8> {
        let [_, high, middle, low] = length.to_be_bytes();
        let mut frame = vec![high, middle, low, kind, flags, 0, 0, 0, 1];
        frame.resize(HEAD_BYTES + length as usize, 0xff);
        frame
    }

    fn opened() -> Frames {
        let mut frames = Frames::new(0, USUAL_HEAD, 100);
        frames.read(PREFACE, 0).unwrap();
        frames.read(&frame(SETTINGS, 0, 12), 0).unwrap();
        frames
    }

    /// How many of these a client can send in no time.
    fn most(kind: u8, flags: u8, length: u32) -> usize {
        let mut frames = opened();
        let frame = frame(kind, flags, length);
        (0..100_000).take_while(|_| frames.read(&frame, 0).is_ok()).count()
    }

    #[test]
    fn frames_that_ask_for_nothing_are_few() {
        for (kind, flags, length) in [
            (PING, 0, 8),
            (PING, 1, 8),
            (SETTINGS, 0, 0),
            (SETTINGS, ACK, 0),
            (PRIORITY, 0, 5),
            (WINDOW_UPDATE, 0, 4),
            (RST_STREAM, 0, 4),
            (DATA, 0, 0),
            (HEADERS, END_HEADERS, 10),
            (HEADERS, END_HEADERS, 16_384),
            (CONTINUATION, 0, 0),
            (CONTINUATION, 0, 16_384),
            (0x55, 0, 0),
        ] {
            assert!(most(kind, flags, length) <= 1000, "{kind} of {length}");
        }
        assert_eq!(most(DATA, 0, 1), 100_000);
        assert_eq!(most(DATA, END_STREAM, 0), 100_000);
    }

    #[test]
    fn time_and_responses_give_back() {
        let ping = frame(PING, 0, 8);
        let mut frames = opened();
        while frames.read(&ping, 0).is_ok() {}
        for tick in 1..1000 {
            assert_eq!((0..5).filter(|_| frames.read(&ping, tick).is_ok()).count(), 5, "{tick}");
            assert_eq!(frames.read(&ping, tick), Err(Fault::Flood));
        }
        frames.pay_response();
        assert_eq!((0..100).filter(|_| frames.read(&ping, 999).is_ok()).count(), 16);
        frames.pay_part(16_384);
        assert_eq!((0..100).filter(|_| frames.read(&ping, 999).is_ok()).count(), 34);
    }

    #[test]
    fn requests_that_are_answered_never_run_out() {
        let mut frames = opened();
        for _ in 0..100_000 {
            frames.read(&frame(HEADERS, END_HEADERS, 6000), 0).unwrap();
            frames.pay_response();
            frames.read(&frame(8, 0, 4), 0).unwrap();
            frames.read(&frame(8, 0, 4), 0).unwrap();
        }
    }

    #[test]
    fn phase_follows_the_frames_however_they_are_cut() {
        let stream = [
            PREFACE.to_vec(),
            frame(SETTINGS, 0, 6),
            frame(PING, 0, 8),
            frame(HEADERS, 0, 20),
            frame(CONTINUATION, 0, 3),
            frame(CONTINUATION, END_HEADERS, 3),
            frame(DATA, 0, 100),
            frame(HEADERS, END_HEADERS, 5),
        ];
        let phases = [
            Phase::Opening,
            Phase::Between,
            Phase::Between,
            Phase::Head(1),
            Phase::Head(1),
            Phase::Between,
            Phase::Between,
            Phase::Between,
        ];
        for size in [1, 2, 7, 9, 1000] {
            let mut frames = Frames::new(0, USUAL_HEAD, 100);
            for (part, phase) in stream.iter().zip(phases) {
                for piece in part.chunks(size) {
                    frames.read(piece, 0).unwrap();
                }
                assert_eq!(frames.phase(), phase, "in pieces of {size}");
            }
        }
        let mut frames = opened();
        frames.read(&frame(HEADERS, END_HEADERS, 5)[..10], 0).unwrap();
        assert_eq!(frames.phase(), Phase::Head(1), "a head has begun with its frame");
    }
}
