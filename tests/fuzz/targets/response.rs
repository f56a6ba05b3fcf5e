//! Any bytes of a server, in reads of any size, as the response to a request: the reads change
//! nothing about it, what waits is bounded, and what is accepted is so by a stricter reading.

#![no_main]

mod pieces;

use bytes::BytesMut;
use http::{HeaderMap, Response, StatusCode, Version, header};
use libfuzzer_sys::fuzz_target;
use pieces::cut;
use tollgate_upstream::http1::{BodyLength, BodyPart, Expected, HeadError, HeadReader, ResponseHead};

/// What may wait for its end: a head, the line of a chunk, trailers.
const MAX_WAITING_BYTES: usize = 64 * 1024;
const MAX_STREAM_BYTES: usize = 300 * 1024;

fuzz_target!(|input: &[u8]| {
    // The first bytes say what was asked for, what comes repeatedly, and where the rest is cut.
    let Some(([flags, begin, length, times, cuts @ ..], text)) = input.split_first_chunk::<8>()
    else {
        return;
    };
    let expected = Expected { is_head: flags & 1 != 0, may_switch: flags & 2 != 0 };
    let times = if flags & 4 != 0 { usize::from(*times) * 64 } else { usize::from(times % 4) };
    let stream = repeat(text, usize::from(*begin), usize::from(*length), times);

    let whole = read([&stream[..]], expected);
    for reads in [cut(&stream, cuts), stream.chunks(1).collect()] {
        let other = read(reads, expected);
        assert!(other.is_like(&whole), "{whole:?}\n{other:?}");
    }
    if let Some(head) = &whole.head {
        check_heads(&stream[..stream.len() - whole.after_head], head, expected);
        check_body(&stream[stream.len() - whole.after_head..], &whole, head, expected);
    }
});

/// The text with a part of it so many times more.
fn repeat(text: &[u8], begin: usize, length: usize, times: usize) -> Vec<u8> {
    let begin = begin.min(text.len());
    let end = (begin + length).min(text.len());
    let room = MAX_STREAM_BYTES / (end - begin).max(1);
    [&text[..begin], &text[begin..end].repeat(1 + times.min(room)), &text[end..]].concat()
}

/// What became of a stream.
#[derive(Debug, Default)]
struct Outcome {
    head: Option<Response<()>>,
    is_persistent: bool,
    /// Bytes of the stream after the head.
    after_head: usize,
    framing: Framing,
    body: Vec<u8>,
    trailers: HeaderMap,
    end: End,
    /// Bytes of the stream after the end.
    after: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Framing {
    Bytes(u64),
    Chunked,
    #[default]
    UntilClose,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Waits,
    Fails(String),
    Whole,
}

impl Outcome {
    fn is_like(&self, other: &Outcome) -> bool {
        let fields = |outcome: &Outcome| {
            outcome
                .head
                .as_ref()
                .map(|head| (head.status(), head.version(), head.headers().clone()))
        };
        // How much of a body comes before it breaks off depends on how it is cut.
        let is_same_body = match &self.end {
            End::Fails(_) => {
                self.body.starts_with(&other.body) || other.body.starts_with(&self.body)
            }
            _ => self.body == other.body && self.after == other.after,
        };
        fields(self) == fields(other)
            && is_same_body
            && (self.is_persistent, self.after_head, self.framing, &self.trailers, &self.end)
                == (
                    other.is_persistent,
                    other.after_head,
                    other.framing,
                    &other.trailers,
                    &other.end,
                )
    }
}

/// Reads as a connection does.
fn read<'s>(reads: impl IntoIterator<Item = &'s [u8]>, expected: Expected) -> Outcome {
    let reads: Vec<&[u8]> = reads.into_iter().collect();
    let mut to_come: usize = reads.iter().map(|read| read.len()).sum();
    let mut heads = HeadReader::default();
    let mut body = None;
    let mut buffer = BytesMut::new();
    let mut outcome = Outcome::default();
    for bytes in reads {
        buffer.extend_from_slice(bytes);
        to_come -= bytes.len();
        while body.is_none() {
            match heads.take(&mut buffer, expected) {
                Ok(Some(head)) if head.is_interim() => {}
                Ok(Some(ResponseHead { response, length, is_persistent })) => {
                    outcome.framing = match length {
                        BodyLength::Bytes(bytes) => Framing::Bytes(bytes),
                        BodyLength::Chunked(_) => Framing::Chunked,
                        BodyLength::UntilClose => Framing::UntilClose,
                    };
                    outcome.head = Some(response);
                    outcome.is_persistent = is_persistent;
                    outcome.after_head = buffer.len() + to_come;
                    body = Some(length);
                }
                Ok(None) => break,
                Err(error) => {
                    // Which mistake is found first depends on what has come.
                    let (HeadError::Malformed(_) | HeadError::Unsound) = error;
                    outcome.end = End::Fails("head".to_owned());
                    return outcome;
                }
            }
        }
        if let Some(length) = &mut body {
            match take(length, &mut buffer, &mut outcome) {
                Ok(true) => {
                    outcome.end = End::Whole;
                    outcome.after = buffer.len() + to_come;
                    return outcome;
                }
                Ok(false) => {}
                Err(error) => {
                    outcome.end = End::Fails(error);
                    return outcome;
                }
            }
        }
        assert!(buffer.len() <= MAX_WAITING_BYTES, "{} bytes wait", buffer.len());
    }
    outcome
}

/// Takes what there is of a body; whether it is over.
fn take(
    length: &mut BodyLength,
    buffer: &mut BytesMut,
    outcome: &mut Outcome,
) -> Result<bool, String> {
    while !length.is_over() {
        match length.take(buffer).map_err(|error| error.to_string())? {
            BodyPart::Data(data) => {
                assert!(!data.is_empty());
                outcome.body.extend_from_slice(&data);
            }
            BodyPart::Trailers(trailers) => outcome.trailers = trailers,
            BodyPart::End => {}
            BodyPart::Incomplete => return Ok(false),
        }
    }
    Ok(true)
}

/// A stricter reading of the heads that were accepted: interim ones, and the last.
fn check_heads(mut text: &[u8], head: &Response<()>, expected: Expected) {
    while let Some(rest) = text.strip_prefix(b"\r\n") {
        text = rest;
    }
    let text = text.strip_suffix(b"\r\n\r\n").expect("a head ends with an empty line");
    let lines: Vec<&[u8]> = split(text).collect();
    for line in &lines {
        let is_text = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
        assert!(line.iter().all(is_text), "a control byte passes");
    }
    let begin = lines.iter().rposition(|line| line.is_empty()).map_or(0, |empty| empty + 1);
    let status_line = lines[begin];
    assert!(status_line.starts_with(b"HTTP/1.0 ") || status_line.starts_with(b"HTTP/1.1 "));
    let status = str::from_utf8(&status_line[9..12]).expect("digits");
    assert_eq!(status, head.status().as_str());
    assert!(status_line.get(12).is_none_or(|byte| *byte == b' '));
    let status = head.status().as_u16();
    assert!((200..=599).contains(&status) || status == 101 && expected.may_switch);
    let is_http10 = status_line[7] == b'0';
    assert_eq!(is_http10, head.version() == Version::HTTP_10);

    let fields = &lines[begin + 1..];
    assert_eq!(fields.len(), head.headers().len(), "as many fields as lines");
    for field in fields {
        let colon = field.iter().position(|byte| *byte == b':').expect("a colon");
        let name = str::from_utf8(&field[..colon]).expect("a token");
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        assert!(!name.is_empty() && name.bytes().all(is_token), "{name:?}");
        let value = field[colon + 1..].trim_ascii();
        assert!(head.headers().get_all(name).iter().any(|other| other.as_bytes() == value));
    }
}

/// A stricter reading of what says how long the body is, and of the body.
fn check_body(stream: &[u8], whole: &Outcome, head: &Response<()>, expected: Expected) {
    let values = |name| head.headers().get_all(name).iter();
    let codings: Vec<_> = values(header::TRANSFER_ENCODING).map(|it| it.as_bytes()).collect();
    let lengths: Vec<_> = values(header::CONTENT_LENGTH)
        .flat_map(|it| it.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .collect();
    assert!(codings.is_empty() || lengths.is_empty(), "two lengths");
    assert!(codings.len() <= 1 && lengths.iter().all(|length| *length == lengths[0]));
    assert!(codings.is_empty() || head.version() == Version::HTTP_11);
    assert!(codings.iter().all(|coding| coding.eq_ignore_ascii_case(b"chunked")));
    let length = lengths.first().map(|length| {
        assert!(length.iter().all(u8::is_ascii_digit));
        str::from_utf8(length).expect("digits").parse::<u64>().expect("a number of 64 bits")
    });
    let has_none =
        [StatusCode::SWITCHING_PROTOCOLS, StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED]
            .contains(&head.status());
    let framing = match length {
        _ if has_none || expected.is_head => Framing::Bytes(0),
        Some(length) => Framing::Bytes(length),
        None if codings.is_empty() => Framing::UntilClose,
        None => Framing::Chunked,
    };
    assert_eq!(whole.framing, framing);
    assert!(!whole.is_persistent || framing != Framing::UntilClose);

    let consumed = &stream[..stream.len() - whole.after];
    match (framing, &whole.end) {
        (Framing::Bytes(length), End::Whole) => {
            assert_eq!((consumed.len() as u64, consumed), (length, &whole.body[..]));
        }
        (Framing::Bytes(length), _) => {
            assert_eq!(whole.body, stream);
            assert!((stream.len() as u64) < length);
        }
        (Framing::UntilClose, _) => {
            assert_eq!((&whole.body[..], &whole.end), (stream, &End::Waits))
        }
        (Framing::Chunked, End::Whole) => {
            let (data, trailers) = decode(consumed).expect("the chunks are strict");
            assert_eq!((data, trailers), (whole.body.clone(), whole.trailers.len()));
        }
        (Framing::Chunked, _) => {}
    }
}

/// The data of a chunked body and its number of trailers; none if it is not strict to the last byte.
fn decode(mut text: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut data = Vec::new();
    loop {
        let line = split(text).next()?;
        text = text.get(line.len() + 2..)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (size, extension) = line.split_at(digits);
        let is_text = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
        let is_extension = extension.trim_ascii_start().starts_with(b";");
        if !extension.iter().all(is_text) || !extension.is_empty() && !is_extension {
            return None;
        }
        let size = usize::from_str_radix(str::from_utf8(size).ok()?, 16).ok()?;
        if size == 0 {
            break;
        }
        data.extend_from_slice(text.get(..size)?);
        text = text.get(size..)?.strip_prefix(b"\r\n")?;
    }
    let mut trailers = 0;
    loop {
        let line = split(text).next()?;
        text = text.get(line.len() + 2..)?;
        if line.is_empty() {
            return text.is_empty().then_some((data, trailers));
        }
        trailers += 1;
    }
}

/// Lines, without their ends.
fn split(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        match text.windows(2).position(|pair| pair == b"\r\n") {
            Some(end) => {
                rest = text.get(end + 2..);
                text.get(..end)
            }
            None => rest.take(),
        }
    })
}
