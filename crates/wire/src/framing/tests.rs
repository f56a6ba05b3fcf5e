//! The framing check, against tables, every split of a stream, and hyper itself.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

use super::*;

/// Small enough that each limit is passed by a line that can be read here.
const LIMITS: HeadLimits =
    HeadLimits { head_bytes: 160, fields: 4, field_bytes: 64, target_bytes: 16 };

const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

fn cut(stream: &[u8], lengths: impl IntoIterator<Item = usize>) -> Framing {
    let mut framing = Framing::new(LIMITS);
    let mut rest = stream;
    for length in lengths {
        let (read, after) = rest.split_at(length.min(rest.len()));
        framing.read(read);
        rest = after;
    }
    framing.read(rest);
    framing
}

fn whole(stream: &[u8]) -> Framing {
    cut(stream, [])
}

fn each_cut(stream: &[u8]) -> impl Iterator<Item = Framing> {
    let bytewise = cut(stream, stream.iter().map(|_| 1));
    (0..=stream.len()).map(|length| cut(stream, [length])).chain([bytewise])
}

fn get(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

fn chunked(body: &str) -> String {
    get("Transfer-Encoding: chunked\r\n") + body
}

/// Streams whose first request is spoiled by its head.
fn bad_heads() -> Vec<(String, Violation)> {
    use Violation::*;
    let long = "x".repeat(LIMITS.field_bytes);
    let mut rows = vec![
        ("\r\n\r\n\r\n".to_owned() + NEXT, LeadingLines),
        ("\n".to_owned() + NEXT, BareLf),
        ("GET / HTTP/1.1\nHost: a\n\n".to_owned(), BareLf),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n".to_owned(), BareLf),
        ("GET / HTTP/1.1\r\rHost: a\r\n\r\n".to_owned(), BareCr),
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n".to_owned(), FoldedField),
        (format!("GET /{long} HTTP/1.1\r\n\r\n"), TargetTooLong),
        (format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(16)), TargetTooLong),
        (format!("GET /{}", long.repeat(2)), TargetTooLong),
    ];
    let request_lines = [
        ("GET /", BadRequestLine),
        ("GET  / HTTP/1.1", BadRequestLine),
        ("GET /  HTTP/1.1", BadRequestLine),
        ("GET / HTTP/1.1 ", BadRequestLine),
        (" GET / HTTP/1.1", BadRequestLine),
        ("GET /<a> HTTP/1.1", BadTarget),
        ("GET /a`b HTTP/1.1", BadTarget),
        ("GET http:///a HTTP/1.1", BadTarget),
        ("GET ftp://a.example/ HTTP/1.1", BadTarget),
        ("GET ws://a.example/ HTTP/1.1", BadTarget),
        ("GET wss://a.example/ HTTP/1.1", BadTarget),
        ("GET http:/a HTTP/1.1", BadTarget),
        ("GET ://a.example/ HTTP/1.1", BadTarget),
        ("GET\t/ HTTP/1.1", BadRequestLine),
        ("GET / a HTTP/1.1", BadRequestLine),
        ("GET  HTTP/1.1", BadRequestLine),
        (" / HTTP/1.1", BadRequestLine),
        ("G(T / HTTP/1.1", BadRequestLine),
        ("GET / HTTP/1.2", BadRequestLine),
        ("GET / HTTP/2.0", BadRequestLine),
        ("GET / http/1.1", BadRequestLine),
        ("GET / HTTP/1.1\u{b}", BadRequestLine),
        ("GET /\0 HTTP/1.1", Nul),
        ("GET /a#b HTTP/1.1", TargetByte(b'#')),
        ("GET /a\\b HTTP/1.1", TargetByte(b'\\')),
        ("GET /\u{e9} HTTP/1.1", TargetByte(0xc3)),
        ("GET /a\tb HTTP/1.1", TargetByte(b'\t')),
        ("GET /a\u{7f} HTTP/1.1", TargetByte(0x7f)),
    ];
    rows.extend(request_lines.map(|(line, violation)| (format!("{line}\r\n\r\n"), violation)));
    let fields = [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", TwoLengths),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", TwoLengths),
        ("content-length: 0\r\ntransfer-encoding: gzip\r\n", TwoLengths),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", RepeatedCoding),
        ("Transfer-Encoding: chunked\r\nTRANSFER-ENCODING: gzip\r\n", RepeatedCoding),
        ("Transfer-Encoding: gzip, chunked\r\n", UnknownCoding),
        ("Transfer-Encoding: identity,\tCHUNKED\r\n", UnknownCoding),
        ("Transfer-Encoding: gzip\r\n", NotChunked),
        ("Transfer-Encoding: identity\r\n", UnknownCoding),
        ("Transfer-Encoding: chunked, identity\r\n", NotChunked),
        ("Transfer-Encoding: gzip, identity\r\n", NotChunked),
        ("Transfer-Encoding: xchunked\r\n", NotChunked),
        ("Transfer-Encoding: chunked;q=1\r\n", NotChunked),
        ("Transfer-Encoding: \"chunked\"\r\n", NotChunked),
        ("Transfer-Encoding: \u{b}chunked\r\n", BadFieldValue),
        ("Transfer-Encoding:\r\n", NotChunked),
        ("Transfer-Encoding: ,chunked\r\n", NotChunked),
        ("Transfer-Encoding: chunked,\r\n", NotChunked),
        ("Transfer-Encoding: chunked, chunked\r\n", NotChunked),
        ("Transfer-Encoding: chunked, gzip\r\n", NotChunked),
        ("Transfer-Encoding: chunked, gzip, chunked\r\n", NotChunked),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", RepeatedLength),
        ("Content-Length: 5\r\nContent-Length: 05\r\n", RepeatedLength),
        ("Content-Length: 5, 5\r\n", BadLength),
        ("Content-Length: +5\r\n", BadLength),
        ("Content-Length: -5\r\n", BadLength),
        ("Content-Length: 5 5\r\n", BadLength),
        ("Content-Length: 0x5\r\n", BadLength),
        ("Content-Length: 5.0\r\n", BadLength),
        ("Content-Length:\r\n", BadLength),
        ("Content-Length: \t\r\n", BadLength),
        ("Content-Length: \u{664}\r\n", BadLength),
        ("Content-Length: 18446744073709551616\r\n", BadLength),
        ("X: a\r\n b\r\n", FoldedField),
        ("X: a\r\n\tContent-Length: 5\r\n", FoldedField),
        ("X : a\r\n", SpaceBeforeColon),
        ("Transfer-Encoding\t: chunked\r\n", SpaceBeforeColon),
        (": a\r\n", EmptyFieldName),
        ("X y: a\r\n", BadFieldName),
        ("X(: a\r\n", BadFieldName),
        ("X\u{e9}: a\r\n", BadFieldName),
        ("X: a\u{b}b\r\n", BadFieldValue),
        ("X: a\u{7f}\r\n", BadFieldValue),
        ("X: \u{1}\r\n", BadFieldValue),
        ("X\r\n", NoColon),
        ("X y\r\n", NoColon),
        ("X: a\0b\r\n", Nul),
        ("X\0: a\r\n", Nul),
        ("X: a\rb\r\n", BareCr),
        ("X: a\r\r\n", BareCr),
        ("X: a\nContent-Length: 5\r\n", BareLf),
        ("A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n", TooManyFields),
    ];
    rows.extend(fields.map(|(fields, violation)| (get(fields), violation)));
    rows.push(("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".into(), CodingInHttp10));
    rows.push((get(&format!("X: {long}\r\n")), FieldTooLarge));
    rows.push((get(&format!("X: {long}")), FieldTooLarge));
    rows.push((get(&format!("X: {0}\r\nY: {0}\r\nZ: {0}\r\n", "x".repeat(50))), HeadTooLarge));
    rows
}

/// Streams whose first request has a good head and a body that spoils it.
fn bad_bodies() -> Vec<(String, Violation)> {
    use Violation::*;
    let mut rows = [
        ("+5\r\nhello\r\n0\r\n\r\n", BadChunkSize),
        ("-5\r\nhello\r\n0\r\n\r\n", BadChunkSize),
        ("0x5\r\nhello\r\n0\r\n\r\n", BadChunkSize),
        (" 5\r\nhello\r\n0\r\n\r\n", BadChunkSize),
        ("5 \r\nhello\r\n0\r\n\r\n", BadChunkSize),
        ("5 ;a\r\nhello\r\n0\r\n\r\n", BadChunkSize),
        ("5_0\r\n", BadChunkSize),
        ("g\r\n", BadChunkSize),
        (";a\r\n", BadChunkSize),
        ("\r\n", BadChunkSize),
        ("00000000000000005\r\nhello\r\n", BadChunkSize),
        ("10000000000000000\r\n", BadChunkSize),
        ("5\nhello\r\n0\r\n\r\n", BareLf),
        ("5;a\nhello\r\n0\r\n\r\n", BareLf),
        ("5\r\nhello\n0\r\n\r\n", BareLf),
        ("5\rhello\r\n", BareCr),
        ("5\r\nhello!\r\n0\r\n\r\n", BadChunkEnd),
        ("5\r\nhello\r!0\r\n\r\n", BareCr),
        ("0\r\nX\r\n\r\n", NoColon),
        ("0\r\nX : a\r\n\r\n", SpaceBeforeColon),
        ("0\r\nX: a\r\n b\r\n\r\n", FoldedField),
        ("0\r\nX: a\n\r\n", BareLf),
        ("0\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: 5\r\n\r\n", TooManyFields),
    ]
    .map(|(body, violation)| (chunked(body), violation))
    .to_vec();
    let long = "x".repeat(LIMITS.field_bytes);
    rows.push((chunked(&format!("0\r\nX: {long}")), FieldTooLarge));
    let large = format!("X: {}\r\n", "x".repeat(50)).repeat(3);
    rows.push((chunked(&format!("0\r\n{large}")), HeadTooLarge));
    rows
}

#[test]
fn a_violation_is_found_however_reads_cut_the_stream() {
    let after_good = |stream: &String| NEXT.to_owned() + stream;
    let heads = bad_heads().into_iter().map(|(stream, violation)| (stream, 1, violation));
    let bodies = bad_bodies().into_iter().map(|(stream, violation)| (stream, 2, violation));
    for (stream, heads, expected) in heads.chain(bodies) {
        let stream = after_good(&stream);
        for framing in each_cut(stream.as_bytes()) {
            assert_eq!(framing.verdict(1), Ok(()), "{stream:?}");
            assert_eq!(framing.verdict(2), Err(expected), "{stream:?}");
            assert_eq!(framing.verdict(3), Err(expected), "{stream:?}");
            assert_eq!(framing.heads(), heads, "{stream:?}");
            assert_eq!(framing.phase(), Phase::Closed, "{stream:?}");
        }
    }
}

#[test]
fn refused_head_is_held_back_and_all_before_it_goes_on() {
    let bad = "\r\nGET / HTTP/1.1\r\nx : y\r\n\r\nGET";
    for (before, bad_body) in [("", false), (NEXT, false), (&chunked("1\r\na\r\n0\r\n\r\n"), true)]
    {
        let mut framing = Framing::new(LIMITS);
        let taken = framing.read(format!("{before}{bad}").as_bytes());
        assert_eq!(taken, Checked { goes_on: before.len(), head: Some(before.len()) });
        assert_eq!(framing.refused_head(), Some(Violation::SpaceBeforeColon));
        assert_eq!(framing.read(b"anything").goes_on, 0);
        // A body that is refused goes on: its request was passed on, and gets the refusal.
        if bad_body {
            let mut framing = Framing::new(LIMITS);
            let stream = chunked("x\r\n");
            assert_eq!(framing.read(stream.as_bytes()).goes_on, stream.len());
            assert_eq!(framing.refused_head(), None);
        }
    }
    let mut framing = Framing::new(LIMITS);
    assert_eq!(framing.read(b"GET / HTTP/1.1\r\nx").goes_on, 17);
    assert_eq!(framing.read(b" : y\r\n\r\n"), Checked { goes_on: 0, head: None });
}

#[test]
fn what_looks_odd_and_is_unambiguous_passes() {
    let streams = [
        "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "GET / HTTP/1.0\r\n\r\n".to_owned(),
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(15)),
        format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(59)),
        get("X:\r\nY: \tb: \"c\"\t\r\nZ: \u{e9}\r\n"),
        get("Content-Length: 5\r\nContent-Length: 5\r\n") + "hello",
        get("Content-Length: 05\r\n") + "hello",
        get("content-length:0\r\n"),
        get("TRANSFER-ENCODING:\t cHUNKED \r\n") + "0\r\n\r\n",
        get("Content-Lengths: x\r\nXContent-Length: x\r\n"),
        chunked("0000000000000005\r\nhello\r\n0\r\n\r\n"),
        chunked("A;a=\"b;c\";d\r\n0123456789\r\n00\r\nX: y\r\nContent-Length: 7\r\n\r\n"),
    ];
    for stream in streams {
        for framing in each_cut((stream.clone() + NEXT).as_bytes()) {
            assert_eq!(framing.verdict(2), Ok(()), "{stream:?}");
            assert_eq!(framing.heads(), 2, "{stream:?}");
            assert_eq!(framing.phase(), Phase::Idle, "{stream:?}");
        }
    }
}

#[test]
fn limits_are_of_a_message_and_not_of_a_connection() {
    let request = chunked("1\r\na\r\n0\r\nA: b\r\nC: d\r\nE: f\r\n\r\n");
    let framing = whole(request.repeat(50).as_bytes());
    assert_eq!(framing.verdict(50), Ok(()));
}

#[test]
fn chunks_are_not_counted_as_trailers() {
    let framing = whole(chunked(&("1\r\na\r\n".repeat(500) + "0\r\nA: b\r\n\r\n")).as_bytes());
    assert_eq!((framing.verdict(1), framing.phase()), (Ok(()), Phase::Idle));
}

#[test]
fn extensions_are_counted_over_the_whole_body() {
    let chunk = format!("1;{}\r\na\r\n", "x".repeat(EXTENSION_BYTES / 4 - 1));
    let full = chunked(&chunk.repeat(4));
    let at_limit = whole((full.clone() + "0\r\n\r\n").as_bytes());
    assert_eq!((at_limit.verdict(1), at_limit.phase()), (Ok(()), Phase::Idle));
    let over = whole((full + "1;\r\n").as_bytes());
    assert_eq!(over.verdict(1), Err(Violation::ExtensionsTooLarge));
    let endless = chunked("1;") + &"x".repeat(EXTENSION_BYTES + 20);
    let endless = cut(endless.as_bytes(), endless.bytes().map(|_| 1));
    assert_eq!(endless.verdict(1), Err(Violation::ExtensionsTooLarge));
}

#[test]
fn a_body_is_skipped_whatever_it_looks_like() {
    let decoy = "GET /decoy HTTP/1.1\r\nX : \0\n\r\n";
    let length = get(&format!("Content-Length: {}\r\n", decoy.len())) + decoy;
    let chunks = chunked(&format!("{:x}\r\n{decoy}\r\n0\r\n\r\n", decoy.len()));
    for framing in each_cut((length + &chunks + NEXT).as_bytes()) {
        assert_eq!(framing.heads(), 3);
        assert_eq!((framing.verdict(3), framing.phase()), (Ok(()), Phase::Idle));
    }
}

#[test]
fn phase_follows_the_message() {
    let mut framing = Framing::new(LIMITS);
    let steps: [(&str, Phase, u64); 13] = [
        ("", Phase::Idle, 0),
        ("\r\n", Phase::Idle, 0),
        ("POST / HT", Phase::Head, 0),
        ("TP/1.1\r\n", Phase::Head, 0),
        ("Content-Length: 3\r\n", Phase::Head, 0),
        ("\r\n", Phase::Body, 1),
        ("ab", Phase::Body, 1),
        ("c", Phase::Idle, 1),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Phase::Body, 2),
        ("3\r\nab", Phase::Body, 2),
        ("c\r\n0\r\nX: y\r\n", Phase::Body, 2),
        ("\r\n", Phase::Idle, 2),
        (" ", Phase::Head, 2),
    ];
    for (read, phase, heads) in steps {
        framing.read(read.as_bytes());
        assert_eq!((framing.phase(), framing.heads()), (phase, heads), "after {read:?}");
    }
}

#[test]
fn a_head_in_one_read_is_not_copied() {
    let mut framing = Framing::new(LIMITS);
    framing.read(NEXT.repeat(3).as_bytes());
    framing.read(NEXT.as_bytes());
    assert_eq!(framing.partial.capacity(), 0);
}

#[test]
fn an_idle_connection_keeps_no_buffer() {
    let framing = cut(NEXT.as_bytes(), NEXT.bytes().map(|_| 1));
    assert_eq!((framing.phase(), framing.partial.capacity()), (Phase::Idle, 0));
}

#[test]
fn a_request_that_was_not_read_is_out_of_step() {
    let framing = whole((NEXT.to_owned() + "GET / HTTP/1.1\r\nHost: a\r\n").as_bytes());
    assert_eq!(framing.verdict(1), Ok(()));
    assert_eq!(framing.verdict(2), Err(Violation::OutOfStep));
}

#[test]
fn nothing_is_looked_at_after_detaching() {
    let mut framing = whole((NEXT.to_owned() + "\x02\x05").as_bytes());
    framing.detach();
    framing.read(b"\n\0\r GET / HTTP/1.1\r\n\r\n");
    assert_eq!((framing.verdict(1), framing.heads()), (Ok(()), 1));
    assert_eq!(framing.phase(), Phase::Closed);
}

#[test]
fn violations_that_are_answered_differently_differ_in_kind() {
    let table = [
        (Violation::TwoLengths, ViolationKind::Malformed),
        (Violation::NotChunked, ViolationKind::Malformed),
        (Violation::UnknownCoding, ViolationKind::UnknownCoding),
        (Violation::TargetTooLong, ViolationKind::TargetTooLong),
        (Violation::HeadTooLarge, ViolationKind::HeadTooLarge),
        (Violation::TooManyFields, ViolationKind::HeadTooLarge),
        (Violation::FieldTooLarge, ViolationKind::HeadTooLarge),
    ];
    for (violation, kind) in table {
        assert_eq!(violation.kind(), kind, "{violation}");
    }
}

/// The complete messages at the beginning of a stream, cut where `Framing` sees their ends.
fn messages(stream: &[u8]) -> Vec<&[u8]> {
    let mut framing = Framing::new(LIMITS);
    let mut messages = Vec::new();
    let mut start = 0;
    for end in 1..=stream.len() {
        framing.read(&stream[end - 1..end]);
        let complete = framing.phase() == Phase::Idle;
        if complete && framing.heads() > messages.len() as u64 {
            messages.push(&stream[start..end]);
            start = end;
        }
    }
    messages
}

/// A connection whose reads are shown to `Framing`, as the server's are.
struct Watched {
    io: DuplexStream,
    framing: Arc<Mutex<Framing>>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let poll = Pin::new(&mut self.io).poll_read(context, buffer);
        self.framing.lock().unwrap().read(&buffer.filled()[before..]);
        poll
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// A request as hyper dispatched it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Dispatched {
    target: String,
    /// `None` when the body failed.
    body: Option<Bytes>,
    heads: u64,
    verdict: Result<(), Violation>,
}

/// What hyper makes of a stream, in reads of at most so many bytes.
fn serve(stream: &[u8], read_bytes: usize) -> Vec<Dispatched> {
    let framing = Arc::new(Mutex::new(Framing::new(LIMITS)));
    let dispatched = Arc::new(Mutex::new(Vec::new()));
    let (mut client, io) = tokio::io::duplex(read_bytes);
    let service = service_fn(|request: Request<Incoming>| {
        let framing = framing.clone();
        let dispatched = dispatched.clone();
        async move {
            let ordinal = dispatched.lock().unwrap().len() as u64 + 1;
            let (heads, verdict) = {
                let framing = framing.lock().unwrap();
                (framing.heads(), framing.verdict(ordinal))
            };
            let target = request.uri().to_string();
            let body = request.into_body().collect().await.ok().map(|body| body.to_bytes());
            dispatched.lock().unwrap().push(Dispatched { target, body, heads, verdict });
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let watched = TokioIo::new(Watched { io, framing: framing.clone() });
    let connection = http1::Builder::new().half_close(true).serve_connection(watched, service);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (mut read, mut write) = tokio::io::split(&mut client);
        let send = async {
            // Fails when the connection was closed over a violation, which is as it should be.
            let _ = write.write_all(stream).await;
            let _ = write.shutdown().await;
        };
        let mut responses = Vec::new();
        let _ = tokio::join!(connection, send, read.read_to_end(&mut responses));
    });
    let dispatched = dispatched.lock().unwrap();
    dispatched.clone()
}

/// Hyper sees each message alone as it sees it in the stream: so both put the same boundaries.
/// Returns how many of them hyper read to their ends.
fn assert_in_step(stream: &[u8], read_bytes: usize) -> usize {
    let shown = stream.escape_ascii();
    let messages = messages(stream);
    let dispatched = serve(stream, read_bytes);
    for (request, seen) in (1_u64..).zip(&dispatched) {
        let refused = seen.verdict.is_err();
        assert!(refused || seen.heads >= request, "{seen:?} came before its head: {shown}");
    }
    let served = dispatched.iter().take_while(|seen| seen.verdict.is_ok());
    let mut compared = 0;
    for (seen, message) in served.zip(messages) {
        let alone = serve(message, 4096);
        assert_eq!(alone.len(), 1, "{} is not one message", message.escape_ascii());
        assert_eq!(alone[0].target, seen.target, "{shown}");
        assert_eq!(alone[0].body, seen.body, "{shown}");
        compared += usize::from(seen.body.is_some());
    }
    compared
}

#[test]
fn hyper_puts_the_same_boundaries() {
    let decoy = "GET /decoy HTTP/1.1\r\n\r\n";
    let length = get(&format!("Content-Length: {}\r\n", decoy.len())) + decoy;
    let streams = [
        NEXT.repeat(3),
        length.clone() + "\r\n" + NEXT + "\r\n\r\n" + &length,
        get("Content-Length: 5\r\nContent-Length: 5\r\n") + "hello" + NEXT + NEXT,
        chunked("5;a=b\r\nhello\r\n16\r\nGET /decoy HTTP/1.1\r\n\r\r\n0\r\nX: y\r\n\r\n")
            + &length
            + NEXT,
        chunked("0\r\nContent-Length: 31\r\n\r\n") + NEXT + NEXT,
    ];
    for stream in streams {
        for read_bytes in [1, 7, 4096] {
            assert_eq!(assert_in_step(stream.as_bytes(), read_bytes), 3, "{stream:?}");
        }
    }
}

#[test]
fn hyper_never_has_a_refused_head_served() {
    for (stream, violation) in bad_heads() {
        for read_bytes in [1, 4096] {
            let dispatched = serve((NEXT.to_owned() + &stream + NEXT).as_bytes(), read_bytes);
            assert_eq!(dispatched[0].verdict, Ok(()), "{stream:?}");
            for seen in &dispatched[1..] {
                assert_eq!(seen.verdict, Err(violation), "{stream:?}");
            }
        }
    }
}

mod arbitrary {
    use super::*;

    fn body() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![vec(any::<u8>(), 0..40), Just(NEXT.as_bytes().to_vec())]
    }

    fn chunk() -> impl Strategy<Value = Vec<u8>> {
        (body(), "(;[a-z]{1,4}(=[a-z]{1,4})?)?").prop_map(|(data, extension)| {
            if data.is_empty() {
                return data;
            }
            let size = format!("{:x}{extension}\r\n", data.len());
            [size.as_bytes(), &data, b"\r\n"].concat()
        })
    }

    /// One request that keeps every rule.
    pub(super) fn request() -> impl Strategy<Value = Vec<u8>> {
        let line = "(GET|POST|get|X-1) /[a-z?=%]{0,10} HTTP/1\\.1\r\n";
        let field = "([A-Z][a-z-]{1,6}:[ \t]{0,2}[ -~\u{e9}]{0,20}\r\n){0,1}";
        let sized = body().prop_map(|body| {
            let length = format!("Content-Length: {}\r\n\r\n", body.len());
            [length.as_bytes(), &body].concat()
        });
        let trailers = "([A-Z][a-z]{1,6}: [a-z]{0,9}\r\n){0,3}";
        let chunked = (vec(chunk(), 0..4), trailers).prop_map(|(chunks, trailers)| {
            let head = b"Transfer-Encoding: chunked\r\n\r\n".as_slice();
            [head, &chunks.concat(), b"0\r\n", trailers.as_bytes(), b"\r\n"].concat()
        });
        let rest = prop_oneof![Just(b"\r\n".to_vec()), sized, chunked];
        ("(\r\n){0,2}", line, field, rest).prop_map(|(empty, line, field, rest)| {
            [empty.as_bytes(), line.as_bytes(), field.as_bytes(), &rest].concat()
        })
    }

    fn piece() -> impl Strategy<Value = Vec<u8>> {
        const PIECES: &[&str] = &[
            "GET /a HTTP/1.1\r\n",
            "POST / HTTP/1.0\r\n",
            "Host: a\r\n",
            "Content-Length: 5\r\n",
            "Content-Length: 0\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "\r\n",
            "\n",
            "\r",
            " ",
            "\t",
            ":",
            ";",
            "5",
            "5\r\nhello\r\n",
            "hello",
            "0\r\n\r\n",
            "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        ];
        prop_oneof![
            9 => select(PIECES).prop_map(|piece| piece.as_bytes().to_vec()),
            1 => vec(any::<u8>(), 0..4),
        ]
    }

    /// Good requests with faults put in, or no requests at all.
    pub(super) fn stream() -> impl Strategy<Value = Vec<u8>> {
        let fault = (any::<Index>(), piece(), 0..4_usize);
        let faulty = (vec(request(), 1..5), vec(fault, 0..3)).prop_map(|(requests, faults)| {
            let mut stream = requests.concat();
            for (index, piece, removed) in faults {
                let at = index.index(stream.len());
                let end = (at + removed).min(stream.len());
                stream.splice(at..end, piece);
            }
            stream
        });
        prop_oneof![faulty, vec(piece(), 0..20).prop_map(|pieces| pieces.concat())]
    }
}

proptest! {
    #[test]
    fn prop_reads_may_cut_the_stream_anywhere(
        stream in arbitrary::stream(),
        lengths in vec(0..30_usize, 0..60),
    ) {
        prop_assert_eq!(cut(&stream, lengths), whole(&stream));
        prop_assert_eq!(cut(&stream, stream.iter().map(|_| 1)), whole(&stream));
    }

    #[test]
    fn prop_good_requests_pass(requests in vec(arbitrary::request(), 0..6)) {
        let framing = whole(&requests.concat());
        let count = requests.len() as u64;
        prop_assert_eq!(framing.heads(), count);
        prop_assert_eq!(framing.verdict(count), Ok(()));
        prop_assert_eq!(framing.phase(), Phase::Idle);
    }

    #[test]
    fn prop_hyper_puts_the_same_boundaries(
        stream in arbitrary::stream(),
        read_bytes in select(&[1, 5, 4096][..]),
    ) {
        assert_in_step(&stream, read_bytes);
    }
}
