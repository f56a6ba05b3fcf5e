//! What the protocol says of each mistake. The cases are those that any test suite for HTTP/2 has;
//! each names its section. A stream's error may always be made the connection's (RFC 9113 section
//! 5.4), and an endpoint that closes need not give a reason.

use crate::support::{
    Policy, Proxy, Signal, Upstream,
    frames::{
        ACK, COMPRESSION_ERROR, CONTINUATION, DATA, END_HEADERS, END_STREAM, FLOW_CONTROL_ERROR,
        FRAME_SIZE_ERROR, Frames, GET, GOAWAY, HEADERS, PADDED, PING, POST, PREFACE, PRIORITY,
        PROTOCOL_ERROR, PUSH_PROMISE, REFUSED_STREAM, RST_STREAM, SETTINGS, STREAM_CLOSED,
        WINDOW_UPDATE, WITH_PRIORITY, block, field, frame, get_on, head, reset, setting,
        window_update,
    },
};

/// The reaction that the protocol requires.
#[derive(Clone, Copy, Debug)]
enum Reaction {
    /// The connection ends, with one of these errors if it says why.
    Connection(&'static [u32]),
    /// Stream 1 ends with one of these errors, or the connection does.
    Stream(&'static [u32]),
    /// Stream 1 ends as malformed, or its request is answered with 400.
    Malformed,
    /// The same, or the connection ends: bytes that are no field break the decoder that all streams
    /// share, so that nothing after them can be read.
    Unreadable,
    /// Nothing.
    Nothing,
}

use Reaction::{Connection, Malformed, Nothing, Stream, Unreadable};

const SENTINEL: [u8; 8] = *b"sentinel";

/// Sends these bytes on a connection of their own, and a PING; then looks at what comes back.
/// Returns a description if it is not as expected.
fn miss(proxy: &Proxy, case: &str, bytes: &[u8], reaction: Reaction) -> Option<String> {
    let mut frames = Frames::open(proxy.address());
    frames.write([bytes, &frame(PING, 0, 0, SENTINEL)].concat());
    // Who ended the stream, and with which error; the status of its response.
    let mut reset_with = None;
    let mut status = None;
    let mut goaway = None;
    let is_alive = loop {
        match frames.read() {
            None => break false,
            Some(frame) if frame.kind == GOAWAY => goaway = Some(frame.error()),
            Some(frame) if frame.kind == RST_STREAM && frame.stream == 1 => {
                reset_with = Some(frame.error());
            }
            Some(frame) if frame.kind == HEADERS && frame.stream == 1 => {
                status = Some(frame.status());
            }
            Some(frame) if frame.kind == PING && frame.payload == SENTINEL => {
                let is_decided = match reaction {
                    Connection(_) => goaway.is_some(),
                    Stream(_) => reset_with.is_some() || goaway.is_some(),
                    Malformed | Unreadable => {
                        reset_with.is_some() || status.is_some() || goaway.is_some()
                    }
                    Nothing => true,
                };
                if is_decided {
                    break goaway.is_none();
                }
                // What is still to be decided takes another round.
                frames.write(crate::support::frames::frame(PING, 0, 0, SENTINEL));
            }
            Some(_) => {}
        }
    };
    let observed = format!("{case}: reset {reset_with:?}, status {status:?}, goaway {goaway:?}");
    let is_one_of = |error: Option<u32>, errors: &[u32]| error.is_none_or(|e| errors.contains(&e));
    let is_right = match reaction {
        Connection(errors) => !is_alive && is_one_of(goaway, errors),
        Stream(errors) if is_alive => reset_with.is_some() && is_one_of(reset_with, errors),
        Stream(errors) => is_one_of(goaway, errors),
        Malformed => {
            let is_reset = reset_with == Some(PROTOCOL_ERROR);
            let is_refused = status.is_some_and(|status| (400..500).contains(&status));
            is_alive && (is_reset || is_refused)
        }
        Unreadable => is_one_of(goaway, &[PROTOCOL_ERROR]) && status.is_none_or(|s| s != 200),
        Nothing => is_alive && reset_with.is_none_or(|error| error == 0),
    };
    (!is_right).then_some(observed)
}

/// Requests of these cases never get an answer while the case lasts.
fn assert_reactions(cases: Vec<(&str, Vec<Vec<u8>>, Reaction)>) {
    // Bodies may break off at any byte, so they are not parsed.
    let upstream = Upstream::scripted_at_head(|exchange| exchange.wait_for_close());
    let proxy = Proxy::start(&Policy::before(&upstream));
    let misses = cases
        .into_iter()
        .filter_map(|(case, parts, reaction)| miss(&proxy, case, &parts.concat(), reaction));
    assert_eq!(misses.collect::<Vec<_>>(), [""; 0]);
}

fn open_post() -> Vec<u8> {
    head(1, 0, &POST)
}

#[test]
fn server_begins_with_its_settings() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut frames = Frames::connect(proxy.address());
    frames.write([PREFACE, &frame(SETTINGS, 0, 0, [])].concat());
    let settings = frames.read().unwrap();
    assert_eq!((settings.kind, settings.flags, settings.stream), (SETTINGS, 0, 0));
    let all: Vec<&[u8]> = settings.payload.chunks(6).collect();
    // More than is served, so that a client that sends too much gets a response.
    const LIST: u32 = (32 + 16) * 1024 + 100 * 32;
    for expected in [setting(3, 100), setting(4, 64 * 1024), setting(6, LIST)] {
        assert!(all.contains(&&expected[..]), "{all:?} lacks {expected:?}");
    }
    assert!(frames.read_until(|f| f.kind == SETTINGS && f.flags == ACK).is_some());
    frames.assert_alive(1);
}

#[test]
fn preface_that_is_none_ends_the_connection() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut client = proxy.connect();
    client.write("INVALID CONNECTION PREFACE\r\n\r\n");
    client.read().assert_status(400);
    client.assert_closed();
    // The preface alone, and then something else than SETTINGS.
    let mut frames = Frames::connect(proxy.address());
    frames.write([PREFACE, &get_on(1)].concat());
    assert!(frames.read_end().is_none_or(|error| error == PROTOCOL_ERROR));
}

#[test]
fn section_4_frames() {
    let large = vec![0; 16_385];
    let odd_fields = block(&GET);
    assert_reactions(vec![
        ("4.1 unknown type", vec![frame(0x16, 0, 0, [0; 8])], Nothing),
        ("4.1 undefined flag", vec![frame(PING, 0x16, 0, [1; 8])], Nothing),
        ("4.1 reserved bit", vec![frame(PING, 0, 1 << 31, [1; 8])], Nothing),
        ("4.2 data of 2^14", vec![open_post(), frame(DATA, 0, 1, vec![0; 16_384])], Nothing),
        (
            "4.2 data beyond the largest frame",
            vec![open_post(), frame(DATA, 0, 1, &large)],
            Stream(&[FRAME_SIZE_ERROR]),
        ),
        (
            "4.2 head beyond the largest frame",
            vec![frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                1,
                [block(&GET), field("x", &large)].concat(),
            )],
            Connection(&[FRAME_SIZE_ERROR]),
        ),
        (
            "4.3 block that is none",
            vec![frame(HEADERS, END_HEADERS | END_STREAM, 1, [0xff; 5])],
            Connection(&[COMPRESSION_ERROR, PROTOCOL_ERROR]),
        ),
        (
            "4.3 priority inside of a block",
            vec![
                frame(HEADERS, END_STREAM, 1, &odd_fields),
                frame(PRIORITY, 0, 1, [0, 0, 0, 3, 1]),
            ],
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "4.3 another stream's head inside of a block",
            vec![frame(HEADERS, END_STREAM, 1, &odd_fields), get_on(3)],
            Connection(&[PROTOCOL_ERROR]),
        ),
    ]);
}

#[test]
fn section_5_streams() {
    let closed = || [open_post(), reset(1)].concat();
    let continuation = |stream| frame(CONTINUATION, END_HEADERS, stream, block(&[("x", "y")]));
    let late = &[STREAM_CLOSED, PROTOCOL_ERROR];
    assert_reactions(vec![
        ("5.1 idle: data", vec![frame(DATA, 0, 1, "x")], Connection(&[PROTOCOL_ERROR])),
        ("5.1 idle: reset", vec![reset(1)], Connection(&[PROTOCOL_ERROR])),
        ("5.1 idle: window update", vec![window_update(1, 100)], Connection(&[PROTOCOL_ERROR])),
        ("5.1 idle: continuation", vec![continuation(1)], Connection(&[PROTOCOL_ERROR])),
        ("5.1 half closed: data", vec![get_on(1), frame(DATA, 0, 1, "x")], Stream(late)),
        ("5.1 half closed: head", vec![get_on(1), get_on(1)], Stream(late)),
        ("5.1 half closed: continuation", vec![get_on(1), continuation(1)], Stream(late)),
        ("5.1 reset: head", vec![closed(), get_on(1)], Stream(late)),
        ("5.1 reset: continuation", vec![closed(), continuation(1)], Connection(late)),
        ("5.1.1 even stream", vec![get_on(2)], Connection(&[PROTOCOL_ERROR])),
        ("5.1.1 smaller stream", vec![get_on(5), get_on(3)], Connection(late)),
        (
            "5.3.1 head that depends on itself",
            vec![frame(
                HEADERS,
                END_HEADERS | END_STREAM | WITH_PRIORITY,
                1,
                [vec![0, 0, 0, 1, 255], block(&GET)].concat(),
            )],
            Stream(&[PROTOCOL_ERROR]),
        ),
        (
            "5.4.1 error of the connection",
            vec![frame(PING, 0, 0, [0; 3])],
            Connection(&[FRAME_SIZE_ERROR]),
        ),
        ("5.5 extension", vec![frame(0xff, 0xff, 0, [0; 100])], Nothing),
        (
            "5.5 extension inside of a block",
            vec![frame(HEADERS, END_STREAM, 1, block(&GET)), frame(0xff, 0, 1, [0; 8])],
            Connection(&[PROTOCOL_ERROR]),
        ),
    ]);
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let upstream = Upstream::silent();
    let settings = "workers: 1\nlimits: { http2: { streams: 3 } }";
    let proxy = Proxy::with_settings(settings, &[&Policy::before(&upstream)]);
    let mut frames = Frames::open(proxy.address());
    for stream in [1, 3, 5, 7] {
        frames.write(get_on(stream));
    }
    let answer = frames.read_until(|frame| matches!(frame.kind, RST_STREAM | GOAWAY)).unwrap();
    assert!([REFUSED_STREAM, PROTOCOL_ERROR].contains(&answer.error()), "{answer:?}");
    assert_eq!(answer.stream, 7);
}

#[test]
fn section_6_data_headers_priority_and_reset() {
    assert_reactions(vec![
        ("6.1 data on stream 0", vec![frame(DATA, 0, 0, "x")], Connection(&[PROTOCOL_ERROR])),
        (
            "6.1 padding beyond the frame",
            vec![open_post(), frame(DATA, PADDED | END_STREAM, 1, [200, 1, 2])],
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "6.2 head on stream 0",
            vec![frame(HEADERS, END_HEADERS | END_STREAM, 0, block(&GET))],
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "6.2 padding beyond the frame",
            vec![frame(HEADERS, PADDED | END_HEADERS | END_STREAM, 1, [200, 1, 2])],
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "6.3 priority on stream 0",
            vec![frame(PRIORITY, 0, 0, [0, 0, 0, 3, 1])],
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "6.3 priority of another size",
            vec![open_post(), frame(PRIORITY, 0, 1, [0, 0, 0, 3])],
            Stream(&[FRAME_SIZE_ERROR]),
        ),
        (
            "6.4 reset on stream 0",
            vec![frame(RST_STREAM, 0, 0, [0; 4])],
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "6.4 reset of another size",
            vec![open_post(), frame(RST_STREAM, 0, 1, [0; 3])],
            Connection(&[FRAME_SIZE_ERROR]),
        ),
    ]);
}

#[test]
fn section_6_settings_ping_and_goaway() {
    let set = |name, value| vec![frame(SETTINGS, 0, 0, setting(name, value))];
    assert_reactions(vec![
        (
            "6.5 ack with a payload",
            vec![frame(SETTINGS, ACK, 0, setting(1, 1))],
            Connection(&[FRAME_SIZE_ERROR]),
        ),
        (
            "6.5 settings on a stream",
            vec![frame(SETTINGS, 0, 1, setting(3, 1))],
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "6.5 settings of another size",
            vec![frame(SETTINGS, 0, 0, [0; 3])],
            Connection(&[FRAME_SIZE_ERROR]),
        ),
        ("6.5.2 push", set(2, 2), Connection(&[PROTOCOL_ERROR])),
        ("6.5.2 window", set(4, 1 << 31), Connection(&[FLOW_CONTROL_ERROR, PROTOCOL_ERROR])),
        ("6.5.2 frames too small", set(5, 16_383), Connection(&[PROTOCOL_ERROR])),
        ("6.5.2 frames too large", set(5, 1 << 24), Connection(&[PROTOCOL_ERROR])),
        ("6.5.2 unknown", set(0xff, 1), Nothing),
        ("6.7 ping", vec![frame(PING, 0, 0, [7; 8])], Nothing),
        ("6.7 ack without a ping", vec![frame(PING, ACK, 0, [7; 8])], Nothing),
        ("6.7 ping on a stream", vec![frame(PING, 0, 1, [7; 8])], Connection(&[PROTOCOL_ERROR])),
        (
            "6.7 ping of another size",
            vec![frame(PING, 0, 0, [7; 6])],
            Connection(&[FRAME_SIZE_ERROR]),
        ),
        (
            "6.8 goaway on a stream",
            vec![frame(GOAWAY, 0, 1, [0; 8])],
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "7 reset for an unknown reason",
            vec![open_post(), frame(RST_STREAM, 0, 1, [0xff; 4])],
            Nothing,
        ),
        (
            "8.4 push",
            vec![frame(PUSH_PROMISE, END_HEADERS, 1, [vec![0, 0, 0, 2], block(&GET)].concat())],
            Connection(&[PROTOCOL_ERROR]),
        ),
    ]);
}

#[test]
fn section_6_windows_and_continuations() {
    let most = (1 << 31) - 1;
    let begun = || frame(HEADERS, END_STREAM, 1, block(&GET[..2]));
    let rest = || frame(CONTINUATION, END_HEADERS, 1, block(&GET[2..]));
    let empty = || frame(CONTINUATION, 0, 1, []);
    assert_reactions(vec![
        (
            "6.9 increment of 0 on a stream",
            vec![open_post(), window_update(1, 0)],
            Stream(&[PROTOCOL_ERROR]),
        ),
        ("6.9 increment of 0", vec![window_update(0, 0)], Connection(&[PROTOCOL_ERROR])),
        (
            "6.9 increment of another size",
            vec![frame(WINDOW_UPDATE, 0, 0, [0, 0, 1])],
            Connection(&[FRAME_SIZE_ERROR]),
        ),
        (
            "6.9.1 window too large",
            vec![window_update(0, most), window_update(0, most)],
            Connection(&[FLOW_CONTROL_ERROR]),
        ),
        (
            "6.9.1 stream's window too large",
            vec![open_post(), window_update(1, most), window_update(1, most)],
            Stream(&[FLOW_CONTROL_ERROR]),
        ),
        (
            "6.9.2 window too large by a setting",
            vec![
                open_post(),
                window_update(1, most - 65_535),
                frame(SETTINGS, 0, 0, setting(4, 65_536)),
            ],
            Connection(&[FLOW_CONTROL_ERROR]),
        ),
        ("6.10 continuations", vec![begun(), empty(), rest()], Nothing),
        (
            "6.10 data inside of a block",
            vec![frame(HEADERS, 0, 1, block(&POST)), frame(DATA, END_STREAM, 1, "x")],
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "6.10 continuation on stream 0",
            vec![begun(), frame(CONTINUATION, END_HEADERS, 0, block(&GET[2..]))],
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "6.10 continuation after a whole head",
            vec![get_on(1), rest()],
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "6.10 continuation after the last",
            vec![begun(), rest(), rest()],
            Connection(&[PROTOCOL_ERROR]),
        ),
        (
            "6.10 continuation after data",
            vec![open_post(), frame(DATA, 0, 1, "x"), rest()],
            Connection(&[PROTOCOL_ERROR]),
        ),
    ]);
}

#[test]
fn section_8_requests() {
    let with = |name: &'static str, value: &'static str| {
        vec![head(1, END_STREAM, &[&GET[..], &[(name, value)]].concat())]
    };
    let only = |fields: &[usize]| {
        let fields: Vec<(&str, &str)> = fields.iter().map(|at| GET[*at]).collect();
        vec![head(1, END_STREAM, &fields)]
    };
    let body = |length: &'static str, parts: &[&str]| {
        let mut frames = vec![head(1, 0, &[&POST[..], &[("content-length", length)]].concat())];
        let last = parts.len() - 1;
        for (at, part) in parts.iter().enumerate() {
            frames.push(frame(DATA, if at == last { END_STREAM } else { 0 }, 1, part));
        }
        frames
    };
    let trailers = |fields: &[(&str, &str)]| vec![open_post(), head(1, END_STREAM, fields)];
    assert_reactions(vec![
        (
            "8.1 second head that does not end",
            vec![open_post(), head(1, 0, &[("x", "y")])],
            Malformed,
        ),
        ("8.2 upper case", with("X-Test", "y"), Unreadable),
        ("8.2.1 space in a name", with("x test", "y"), Unreadable),
        ("8.2.1 colon in a name", with("x:", "y"), Unreadable),
        ("8.2.1 control in a name", with("x\u{1}", "y"), Unreadable),
        ("8.2.1 empty name", with("", "y"), Unreadable),
        ("8.2.1 line feed in a value", with("x", "y\nz: a"), Unreadable),
        ("8.2.1 carriage return in a value", with("x", "y\r\nz: a"), Unreadable),
        ("8.2.1 nul in a value", with("x", "y\0"), Unreadable),
        ("8.2.2 connection", with("connection", "keep-alive"), Malformed),
        ("8.2.2 keep-alive", with("keep-alive", "timeout=5"), Malformed),
        ("8.2.2 proxy-connection", with("proxy-connection", "keep-alive"), Malformed),
        ("8.2.2 transfer-encoding", with("transfer-encoding", "chunked"), Malformed),
        ("8.2.2 upgrade", with("upgrade", "websocket"), Malformed),
        ("8.2.2 te", with("te", "gzip"), Malformed),
        ("8.2.2 te and more", with("te", "trailers, deflate"), Malformed),
        ("8.3 unknown pseudo-field", with(":test", "y"), Unreadable),
        ("8.3 response's pseudo-field", with(":status", "200"), Malformed),
        // Left out where all heads are read: it goes nowhere.
        ("8.3 pseudo-field in trailers", trailers(&[(":path", "/")]), Nothing),
        (
            "8.3 pseudo-field after a field",
            vec![head(1, END_STREAM, &[&[("x", "y")], &GET[..]].concat())],
            Malformed,
        ),
        ("8.3.1 without a method", only(&[1, 2, 3]), Malformed),
        ("8.3.1 without a scheme", only(&[0, 2, 3]), Malformed),
        ("8.3.1 without a path", only(&[0, 1, 3]), Malformed),
        ("8.3.1 without an authority", only(&[0, 1, 2]), Malformed),
        ("8.3.1 two methods", only(&[0, 0, 1, 2, 3]), Malformed),
        ("8.3.1 two schemes", only(&[0, 1, 1, 2, 3]), Malformed),
        ("8.3.1 two paths", only(&[0, 1, 2, 2, 3]), Malformed),
        ("8.3.1 two authorities", only(&[0, 1, 2, 3, 3]), Malformed),
        ("8.1.1 shorter than it says", body("5", &["four"]), Malformed),
        ("8.1.1 longer than it says", body("3", &["four"]), Malformed),
        ("8.1.1 longer in parts", body("3", &["fo", "ur"]), Malformed),
        ("8.1.1 nothing of what it says", with("content-length", "1"), Malformed),
        ("8.1.1 as long as it says", body("4", &["fo", "ur"]), Nothing),
    ]);
}

#[test]
fn section_8_paths_and_authorities() {
    let request = |method: &'static str, scheme: &'static str, path: &'static str| {
        vec![head(
            1,
            END_STREAM,
            &[(":method", method), (":scheme", scheme), (":path", path), GET[3]],
        )]
    };
    let of = |authority: &'static str, host: &[&'static str]| {
        let hosts = host.iter().map(|host| ("host", *host));
        let fields = [&GET[..3], &[(":authority", authority)]].concat();
        vec![head(1, END_STREAM, &fields.into_iter().chain(hosts).collect::<Vec<_>>())]
    };
    assert_reactions(vec![
        ("empty path", request("GET", "http", ""), Malformed),
        ("path without a slash", request("GET", "http", "a"), Malformed),
        ("path with a space", request("GET", "http", "/a b"), Malformed),
        ("path with a line", request("GET", "http", "/a HTTP/1.1\r\nx: y"), Malformed),
        // Taken off where all heads are read: it goes nowhere.
        ("path with a fragment", request("GET", "http", "/a#b"), Nothing),
        ("path with a backslash", request("GET", "http", "/a\\b"), Malformed),
        ("path that is a url", request("GET", "http", "http://b/"), Malformed),
        ("asterisk", request("GET", "http", "*"), Malformed),
        ("empty method", request("", "http", "/"), Unreadable),
        ("method with a space", request("GET /x", "http", "/"), Unreadable),
        ("method with a line", request("GET / HTTP/1.1\r\nx: y\r\n", "http", "/"), Unreadable),
        ("CONNECT with a path", request("CONNECT", "http", "/"), Malformed),
        ("empty scheme", request("GET", "", "/"), Malformed),
        ("scheme with a space", request("GET", "ht tp", "/"), Malformed),
        ("scheme with a url", request("GET", "http://b/?", "/"), Malformed),
        ("scheme of files", request("GET", "ftp", "/"), Malformed),
        ("scheme of WebSocket", request("GET", "ws", "/"), Malformed),
        ("scheme of secure WebSocket", request("GET", "wss", "/"), Malformed),
        ("path of a whole authority", request("GET", "http", "//b/"), Nothing),
        ("empty authority", of("", &[]), Malformed),
        ("authority with a user", of("user@api.example.com", &[]), Malformed),
        ("authority with a path", of("api.example.com/x", &[]), Malformed),
        ("authority with a line", of("api.example.com\r\nx: y", &[]), Malformed),
        ("another host", of("api.example.com", &["b.example.com"]), Malformed),
        ("two hosts", of("api.example.com", &["api.example.com", "api.example.com"]), Malformed),
    ]);
}

#[test]
fn hpack_mistakes_are_the_connections() {
    let request = |mistake: &[u8]| {
        vec![frame(HEADERS, END_HEADERS | END_STREAM, 1, [&block(&GET), mistake].concat())]
    };
    // The engine reports both with the same error.
    let mistake = Connection(&[COMPRESSION_ERROR, PROTOCOL_ERROR]);
    assert_reactions(vec![
        ("2.3.3 unknown index", request(&[0xc6]), mistake),
        ("2.3.3 literal with an unknown index", request(&[0x7f, 0x70, 1, b'x']), mistake),
        ("4.2 size update at the end", request(&[0x21]), mistake),
        ("5.1 number without an end", request(&[0xff; 40]), mistake),
        (
            "5.2 padding of more than 7 bits",
            request(&[0, 0x85, 0xf2, 0xb2, 0x4a, 0x84, 0xff, 0x84, 0x49, 0x50, 0x9f, 0xff]),
            mistake,
        ),
        (
            "5.2 padding of zeros",
            request(&[0, 0x85, 0xf2, 0xb2, 0x4a, 0x84, 0xff, 0x83, 0x49, 0x50, 0x90]),
            mistake,
        ),
        (
            "5.2 end of string",
            request(&[
                0, 0x85, 0xf2, 0xb2, 0x4a, 0x84, 0xff, 0x87, 0x49, 0x51, 0xff, 0xff, 0xff, 0xfa,
                0x7f,
            ]),
            mistake,
        ),
        ("5.2 text beyond the block", request(&[0, 0x7e, b'x']), mistake),
        ("6.1 index 0", request(&[0x80]), mistake),
        (
            "6.3 table larger than allowed",
            vec![frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                1,
                [vec![0x3f, 0xe2, 0x1f], block(&GET)].concat(),
            )],
            mistake,
        ),
    ]);
}

#[test]
fn malformed_request_ends_its_stream_and_no_other() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut frames = Frames::open(proxy.address());
    for (turn, bad) in
        [("host", "b.example.com"), ("connection", "close"), ("te", "gzip")].iter().enumerate()
    {
        let stream = turn as u32 * 4 + 1;
        frames.write(head(stream, END_STREAM, &[&GET[..], &[*bad]].concat()));
        let status = frames.read_status(stream);
        assert!(status.is_none_or(|status| status == 400), "{bad:?}: {status:?}");
        frames.assert_alive(stream + 2);
    }
    assert_eq!(upstream.count(), 3);
}

#[test]
fn windows_are_kept_to() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::held(&asked, &go);
    let proxy = Proxy::start(&Policy::before(&upstream));
    // No room, then a byte, then all.
    let mut frames = Frames::open_with(proxy.address(), &[(4, 0)]);
    frames.write(get_on(1));
    go.open();
    assert_eq!(frames.read_status(1), Some(200));
    frames.write(frame(SETTINGS, 0, 0, setting(4, 1)));
    let data = frames.read_until(|frame| frame.kind == DATA).unwrap();
    assert_eq!((data.payload.as_slice(), data.flags), (&b"o"[..], 0));
    frames.write(window_update(1, 100));
    let data = frames.read_until(|frame| frame.kind == DATA).unwrap();
    assert_eq!(data.payload, b"k");
}
