//! Any request, with any body, as it is written to a server that takes it piece by piece: a strict
//! reader finds the same method, target, fields, body and trailers, and nothing after them.

#![no_main]

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header, request::Parts};
use http_body::{Body, Frame};
use libfuzzer_sys::fuzz_target;
use tokio::io::AsyncWrite;
use tollgate_upstream::{RequestBodyError, http1::{Sending, write_head}};
use tollgate_wire::{HeadLimits, Violation, framing::{Framing, Phase}};

/// The framing check measures what clients send, and not what goes on.
const UNBOUNDED: HeadLimits = HeadLimits {
    head_bytes: usize::MAX,
    fields: usize::MAX,
    field_bytes: usize::MAX,
    target_bytes: usize::MAX,
};

const MAX_BODY_BYTES: usize = 200 * 1024;

fuzz_target!(|input: &[u8]| {
    let Some(request) = read(input) else { return };
    let written = write(&request);

    let framed = read_head(&written, &request.head);
    let (body, trailers) = match request.kind {
        Kind::Chunked => read_chunks(framed),
        Kind::Length | Kind::None => (framed.to_vec(), Vec::new()),
    };
    assert!(body == request.frames.concat(), "{}", written.escape_ascii());
    assert_eq!(trailers, fields(&request.trailers));

    let mut framing = Framing::new(UNBOUNDED);
    framing.read(&written);
    match framing.verdict(1) {
        Ok(()) => assert_eq!((framing.heads(), framing.phase()), (1, Phase::Idle)),
        // `Uri` takes some bytes that the check refuses before there is one.
        Err(Violation::TargetByte(_) | Violation::BadTarget) => {}
        Err(violation) => panic!("{violation}: {}", written.escape_ascii()),
    }
});

struct Draft {
    head: Parts,
    kind: Kind,
    frames: Vec<Vec<u8>>,
    trailers: HeaderMap,
    habits: Habits,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    None,
    Length,
    Chunked,
}

/// How the server takes the request, and how the client sends it.
#[derive(Clone, Copy)]
struct Habits {
    /// How much the server takes at once; 0: it has to be asked again.
    takes: [u8; 4],
    is_slow_to_flush: bool,
    is_slow_client: bool,
    /// The client says with its last frame that it is the last.
    tells_end: bool,
}

/// `METHOD TARGET KIND`, then fields, an empty line, trailers, an empty line, and frames: each
/// begins with its length, and with how often its bytes come.
fn read(input: &[u8]) -> Option<Draft> {
    let ([flags, takes @ ..], mut text) = input.split_first_chunk::<5>()?;
    let mut words = line(&mut text).splitn(3, |byte| *byte == b' ');
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(words.next()?).ok()?;
    *request.uri_mut() = Uri::try_from(words.next()?).ok()?;
    let kind = match words.next()? {
        b"length" => Kind::Length,
        b"chunked" => Kind::Chunked,
        _ => Kind::None,
    };
    let mut fields = read_fields(&mut text)?;
    let trailers = read_fields(&mut text)?;
    let mut frames = Vec::new();
    let mut room = MAX_BODY_BYTES;
    while let [length, times, rest @ ..] = text {
        let (data, after) = rest.split_at(usize::from(*length).min(rest.len()));
        let frame = data.repeat(usize::from(*times));
        text = after;
        let Some(left) = room.checked_sub(frame.len()) else { break };
        room = left;
        frames.push(frame);
    }
    // As the gate and `Outbound` leave them.
    fields.remove(header::CONTENT_LENGTH);
    fields.remove(header::TRANSFER_ENCODING);
    match kind {
        Kind::None => frames.clear(),
        Kind::Length => {
            let length: usize = frames.iter().map(Vec::len).sum();
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        Kind::Chunked => {
            fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
    }
    let trailers = if kind == Kind::Chunked { trailers } else { HeaderMap::new() };
    *request.headers_mut() = fields;
    let (head, ()) = request.into_parts();
    let habits = Habits {
        takes: [takes[0], takes[1], takes[2], takes[3] | 1],
        is_slow_to_flush: flags & 1 != 0,
        is_slow_client: flags & 2 != 0,
        tells_end: flags & 4 != 0,
    };
    Some(Draft { head, kind, frames, trailers, habits })
}

fn line<'t>(text: &mut &'t [u8]) -> &'t [u8] {
    let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    let (line, rest) = text.split_at(end);
    *text = rest.get(1..).unwrap_or_default();
    line
}

fn read_fields(text: &mut &[u8]) -> Option<HeaderMap> {
    let mut fields = HeaderMap::new();
    loop {
        let field = line(text);
        if field.is_empty() {
            return Some(fields);
        }
        let colon = field.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&field[..colon]).ok()?;
        // No padded value comes from a client: the parser trims it, and HTTP/2 refuses it.
        let value = HeaderValue::from_bytes(field[colon + 1..].trim_ascii()).ok()?;
        fields.append(name, value);
    }
}

/// The request as it comes to the server.
fn write(request: &Draft) -> Vec<u8> {
    let mut head = BytesMut::new();
    write_head(&request.head, &mut head);
    let Draft { kind, ref frames, ref trailers, habits, .. } = *request;
    let body = (kind != Kind::None).then(|| {
        let mut frames: Vec<Frame<Bytes>> =
            frames.iter().map(|data| Frame::data(Bytes::from(data.clone()))).collect();
        if !trailers.is_empty() {
            frames.push(Frame::trailers(trailers.clone()));
        }
        frames.reverse();
        Box::new(Frames { left: frames, habits, is_ready: false })
    });
    let length = match kind {
        Kind::None | Kind::Chunked => None,
        Kind::Length => Some(frames.iter().map(|frame| frame.len() as u64).sum()),
    };
    let mut server = Server { taken: Vec::new(), habits, turn: 0, is_flushed: false };
    let mut sending = Sending::new(head.freeze(), body, length);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..10 * MAX_BODY_BYTES {
        match sending.poll(&mut context, &mut server) {
            Poll::Ready(sent) => {
                sent.expect("nothing fails");
                assert!(sending.is_over());
                return server.taken;
            }
            Poll::Pending => assert!(!sending.is_over()),
        }
    }
    panic!("it is never sent");
}

/// A client's body.
struct Frames {
    /// From the last to the next.
    left: Vec<Frame<Bytes>>,
    habits: Habits,
    is_ready: bool,
}

impl Body for Frames {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        self.is_ready = !self.is_ready;
        if self.habits.is_slow_client && self.is_ready {
            return Poll::Pending;
        }
        Poll::Ready(self.left.pop().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.habits.tells_end && self.left.is_empty()
    }
}

/// A server's end of the connection.
struct Server {
    taken: Vec<u8>,
    habits: Habits,
    turn: usize,
    is_flushed: bool,
}

impl AsyncWrite for Server {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.turn += 1;
        let take = self.habits.takes[self.turn % 4];
        let mut left = match take {
            0 => return Poll::Pending,
            1..128 => usize::from(take),
            128.. => usize::from(take) * 128,
        };
        let before = self.taken.len();
        for piece in pieces {
            let part = &piece[..left.min(piece.len())];
            self.taken.extend_from_slice(part);
            left -= part.len();
        }
        Poll::Ready(Ok(self.taken.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_flushed = !self.is_flushed;
        match self.habits.is_slow_to_flush && self.is_flushed {
            true => Poll::Pending,
            false => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Holds the head against what it was made from. Returns what comes after it.
fn read_head<'w>(written: &'w [u8], head: &Parts) -> &'w [u8] {
    let end = written.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("an end") + 4;
    let (text, framed) = written.split_at(end);
    for line in lines(&text[..end - 2]) {
        let is_text = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
        assert!(!line.is_empty() && line.iter().all(is_text), "{}", line.escape_ascii());
    }
    let mut found = vec![httparse::EMPTY_HEADER; head.headers.len()];
    let mut parsed = httparse::Request::new(&mut found);
    assert_eq!(parsed.parse(text), Ok(httparse::Status::Complete(end)));
    assert_eq!(parsed.method, Some(head.method.as_str()));
    assert_eq!(parsed.path, Some(head.uri.path_and_query().map_or("/", |it| it.as_str())));
    assert_eq!(parsed.version, Some(1));
    let found: Vec<_> =
        parsed.headers.iter().map(|it| (it.name.to_owned(), it.value.to_vec())).collect();
    assert_eq!(found, fields(&head.headers));
    framed
}

/// The data of chunks and their trailers, read as strictly as can be.
fn read_chunks(mut text: &[u8]) -> (Vec<u8>, Vec<(String, Vec<u8>)>) {
    let mut data = Vec::new();
    loop {
        let line = lines(text).next().expect("a size");
        let digits = str::from_utf8(line).expect("digits");
        let size = usize::from_str_radix(digits, 16).expect("a number");
        assert_eq!(format!("{size:x}"), digits);
        text = &text[line.len() + 2..];
        if size == 0 {
            break;
        }
        data.extend_from_slice(&text[..size]);
        text = text[size..].strip_prefix(b"\r\n").expect("the end of a chunk");
    }
    let text = text.strip_suffix(b"\r\n").expect("an empty line");
    let trailers = lines(text).map(|line| {
        let colon = line.windows(2).position(|bytes| bytes == b": ").expect("a colon");
        let name = str::from_utf8(&line[..colon]).expect("a name");
        (name.to_owned(), line[colon + 2..].to_vec())
    });
    (data, trailers.collect())
}

fn fields(map: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    map.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
}

/// Lines without their ends, all of which have to be there.
fn lines(mut text: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let end = text.windows(2).position(|pair| pair == b"\r\n").expect("the end of a line");
        let line = &text[..end];
        text = &text[end + 2..];
        Some(line)
    })
}
