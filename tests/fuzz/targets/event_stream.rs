//! Any bytes as server-sent events, in pieces of any size: the pieces change no event and nothing
//! of what a response says of its cost, and the events are those of a reading line by line.

#![no_main]

mod pieces;

use libfuzzer_sys::fuzz_target;
use pieces::cut;
use tollgate_usage::{
    event_stream::{EventPart, EventStream},
    response::{ResponseReader, Report, Wanted},
    tokens::Vendor,
};

fuzz_target!(|input: &[u8]| {
    // The first bytes say where the others are cut.
    let Some((cuts, stream)) = input.split_first_chunk::<4>() else { return };
    let whole = events([stream]);
    assert_eq!(events(cut(stream, cuts)), whole);
    assert_eq!(events(stream.chunks(1)), whole);
    assert_eq!(events_by_line(stream), whole);

    for content_type in ["text/event-stream", "application/json"] {
        let whole = report(content_type, [stream]);
        assert_eq!(report(content_type, cut(stream, cuts)), whole);
        assert_eq!(report(content_type, stream.chunks(1)), whole);
    }
});

/// The data of the events.
fn events<'s>(pieces: impl IntoIterator<Item = &'s [u8]>) -> Vec<Vec<u8>> {
    let mut reader = EventStream::default();
    let (mut all, mut data) = (Vec::new(), Vec::new());
    let mut tell = |part: EventPart<'_>| match part {
        EventPart::Data(bytes) => data.extend_from_slice(bytes),
        EventPart::End => all.push(std::mem::take(&mut data)),
    };
    for piece in pieces {
        reader.read(piece, &mut tell);
    }
    reader.finish(&mut tell);
    all
}

/// The same, read as the HTML standard says; but the last event needs no blank line.
fn events_by_line(stream: &[u8]) -> Vec<Vec<u8>> {
    let stream = stream.strip_prefix("\u{FEFF}".as_bytes()).unwrap_or(stream);
    let (mut all, mut data): (Vec<_>, Option<Vec<u8>>) = (Vec::new(), None);
    for line in lines(stream) {
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        if line.is_empty() {
            all.extend(data.take());
        } else if name == b"data" {
            let value = value.strip_prefix(b":").unwrap_or(value);
            let value = value.strip_prefix(b" ").unwrap_or(value);
            data = Some(match data {
                None => value.to_vec(),
                Some(before) => [&before, value].join(&b'\n'),
            });
        }
    }
    all.extend(data);
    all
}

/// Lines that end with a line feed, a carriage return or both. The last one may have no end; then
/// its field counts once its name is known to be whole.
fn lines(stream: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    let mut rest = stream;
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        all.push(&rest[..end]);
        rest = rest[end..].strip_prefix(b"\r\n").unwrap_or(&rest[end + 1..]);
    }
    if rest.contains(&b':') {
        all.push(rest);
    }
    all
}

fn report<'s>(content_type: &str, pieces: impl IntoIterator<Item = &'s [u8]>) -> Report {
    let wanted = Wanted::Tokens(Vendor::Auto);
    let mut reader = ResponseReader::new(wanted, Some(content_type), None);
    for piece in pieces {
        reader.read(piece);
    }
    reader.end()
}
