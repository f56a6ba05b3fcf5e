//! HTTP/2 frame by frame: what no client library would send.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
};

use super::PATIENCE;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;
pub(crate) const WITH_PRIORITY: u8 = 0x20;

pub(crate) const PROTOCOL_ERROR: u32 = 1;
pub(crate) const FLOW_CONTROL_ERROR: u32 = 3;
pub(crate) const STREAM_CLOSED: u32 = 5;
pub(crate) const FRAME_SIZE_ERROR: u32 = 6;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;
pub(crate) const COMPRESSION_ERROR: u32 = 9;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// A frame that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// A frame as bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A field as a literal that is not indexed (RFC 7541 section 6.2.2), with nothing of it checked.
pub(crate) fn field(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Vec<u8> {
    let mut field = vec![0];
    for text in [name.as_ref(), value.as_ref()] {
        field.extend(integer(text.len(), 7));
        field.extend(text);
    }
    field
}

/// A number in the low bits of a byte, and in as many bytes more as it takes (section 5.1).
fn integer(number: usize, bits: u32) -> Vec<u8> {
    let most = (1 << bits) - 1;
    if number < most {
        return vec![number as u8];
    }
    let mut bytes = vec![most as u8];
    let mut rest = number - most;
    while rest >= 128 {
        bytes.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    bytes.push(rest as u8);
    bytes
}

/// A block of fields.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    fields.iter().flat_map(|(name, value)| field(name, value)).collect()
}

/// What every request begins with.
pub(crate) const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "api.example.com")];

/// The same of a request with a body.
pub(crate) const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "api.example.com")];

/// A whole head in one frame.
pub(crate) fn head(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | flags, stream, block(fields))
}

/// A GET without a body.
pub(crate) fn get_on(stream: u32) -> Vec<u8> {
    head(stream, END_STREAM, &GET)
}

pub(crate) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, increment.to_be_bytes())
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, CANCEL.to_be_bytes())
}

/// One setting.
pub(crate) fn setting(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

impl Frame {
    /// The error of a RST_STREAM or a GOAWAY.
    pub(crate) fn error(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }

    /// The status of a response's head, which is its first field.
    pub(crate) fn status(&self) -> u16 {
        let block = match self.payload[0] & 0xe0 {
            // A size update comes first.
            0x20 => &self.payload[1..],
            _ => &self.payload[..],
        };
        match block {
            [indexed @ 0x88..=0x8e, ..] => {
                [200, 204, 206, 304, 400, 404, 500][*indexed as usize - 0x88]
            }
            [_, 3, digits @ ..] => std::str::from_utf8(&digits[..3]).unwrap().parse().unwrap(),
            [_, length, text @ ..] => huffman_digits(&text[..(length & 0x7f) as usize]),
            _ => panic!("no status in {self:?}"),
        }
    }
}

/// Three digits in the Huffman code (RFC 7541 appendix B): 0 to 2 have five bits, the others six.
fn huffman_digits(bytes: &[u8]) -> u16 {
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let mut at = 0;
    let mut number = 0;
    for _ in 0..3 {
        let five = u16::from_str_radix(&bits[at..at + 5], 2).unwrap();
        let digit = if five < 3 {
            at += 5;
            five
        } else {
            at += 6;
            u16::from_str_radix(&bits[at - 6..at], 2).unwrap() - 0b01_1001 + 3
        };
        number = number * 10 + digit;
    }
    number
}

/// A connection on which anything may be sent.
pub(crate) struct Frames {
    stream: TcpStream,
}

impl Frames {
    /// A connection on which nothing was sent.
    pub(crate) fn connect(address: SocketAddr) -> Frames {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Frames { stream }
    }

    /// A connection that is ready for requests.
    pub(crate) fn open(address: SocketAddr) -> Frames {
        Frames::open_with(address, &[])
    }

    /// The same with these settings.
    pub(crate) fn open_with(address: SocketAddr, settings: &[(u16, u32)]) -> Frames {
        let mut frames = Frames::connect(address);
        let settings: Vec<u8> =
            settings.iter().flat_map(|(name, value)| setting(*name, *value)).collect();
        frames.write([PREFACE, &frame(SETTINGS, 0, 0, settings)].concat());
        let first = frames.read().expect("the server begins with its settings");
        assert_eq!((first.kind, first.flags), (SETTINGS, 0));
        frames.write(frame(SETTINGS, ACK, 0, []));
        frames
    }

    /// Writes all, or as much as the other side takes before it closes.
    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// The next frame; none when the connection was closed.
    pub(crate) fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.fill(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.fill(&mut payload)?;
        let stream = u32::from_be_bytes(head[5..9].try_into().unwrap()) & 0x7fff_ffff;
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Option<()> {
        match self.stream.read_exact(bytes) {
            Ok(()) => Some(()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("nothing came in time")
            }
            Err(_) => None,
        }
    }

    /// All frames up to the one that is wanted; none when the connection was closed before.
    pub(crate) fn read_until(&mut self, is_wanted: impl Fn(&Frame) -> bool) -> Option<Frame> {
        loop {
            match self.read() {
                Some(frame) if is_wanted(&frame) => return Some(frame),
                Some(_) => {}
                None => return None,
            }
        }
    }

    /// The error that the connection is ended with; none if it is just closed.
    pub(crate) fn read_end(&mut self) -> Option<u32> {
        let mut error = None;
        while let Some(frame) = self.read() {
            if frame.kind == GOAWAY {
                error = Some(frame.error());
            }
        }
        error
    }

    /// The status of a stream's response; none if the stream was reset or the connection ended.
    pub(crate) fn read_status(&mut self, stream: u32) -> Option<u16> {
        let is_answer =
            |frame: &Frame| frame.stream == stream && matches!(frame.kind, HEADERS | RST_STREAM);
        let answer = self.read_until(|frame| is_answer(frame) || frame.kind == GOAWAY)?;
        (answer.kind == HEADERS).then(|| answer.status())
    }

    /// That the connection is good for one more request.
    pub(crate) fn assert_alive(&mut self, stream: u32) {
        self.write(get_on(stream));
        assert_eq!(self.read_status(stream), Some(200), "the connection is not what it was");
    }
}
