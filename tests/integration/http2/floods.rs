//! Floods: a client that keeps the proxy busy with frames that request nothing gets the error
//! ENHANCE_YOUR_CALM, and no other client is affected.

use crate::support::{
    Fields, Policy, Proxy, Upstream, eventually,
    frames::{
        ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, FLOW_CONTROL_ERROR,
        Frame, Frames, GET, GOAWAY, HEADERS, PING, POST, PRIORITY, PROTOCOL_ERROR, RST_STREAM,
        SETTINGS, block, field, frame, get_on, head, reset, setting, window_update,
    },
    get,
};

/// Sends what comes next until the proxy has had enough, and expects it to say so.
fn assert_calmed(case: &str, begun: &[u8], mut next: impl FnMut(u32) -> Vec<u8>) {
    let upstream = Upstream::scripted_at_head(|exchange| match exchange.request.method.as_str() {
        "POST" => exchange.wait_for_close(),
        _ => exchange.answer_ok(),
    });
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut frames = Frames::open(proxy.address());
    frames.write(begun);
    // Some at a time, as many as a careless program would send.
    let is_ended = (0..2000).any(|turn| {
        let batch: Vec<u8> = (0..20).flat_map(|at| next(turn * 20 + at)).collect();
        !frames.write(batch)
    });
    let error = frames.read_end();
    assert!(
        error.is_none_or(|error| [ENHANCE_YOUR_CALM, PROTOCOL_ERROR].contains(&error)),
        "{case} was ended with {error:?}"
    );
    assert!(is_ended || error.is_some(), "{case} was never ended");
    proxy.get("/").assert_status(200);
    assert!(upstream.count() < 2000, "{case} led to {} requests", upstream.count());
}

#[test]
fn pings() {
    assert_calmed("pings", &[], |_| frame(PING, 0, 0, [0; 8]));
    assert_calmed("pongs", &[], |_| frame(PING, ACK, 0, [0; 8]));
}

#[test]
fn settings() {
    assert_calmed("settings", &[], |_| frame(SETTINGS, 0, 0, []));
    let large: Vec<u8> = (0..2000).flat_map(|at| setting(4, at)).collect();
    assert_calmed("large settings", &get_on(1), |_| frame(SETTINGS, 0, 0, &large));
}

#[test]
fn priorities() {
    assert_calmed("priorities", &[], |at| frame(PRIORITY, 0, at * 2 + 1, [0, 0, 0, 0, 1]));
}

#[test]
fn window_updates() {
    assert_calmed("window updates", &[], |_| window_update(0, 1));
    assert_calmed("window updates of a stream", &head(1, 0, &POST), |_| window_update(1, 1));
}

#[test]
fn unknown_frames() {
    assert_calmed("unknown frames", &[], |_| frame(0xbe, 0, 0, []));
}

#[test]
fn empty_data() {
    assert_calmed("empty data", &head(1, 0, &POST), |_| frame(DATA, 0, 1, []));
    assert_calmed("empty data with padding", &head(1, 0, &POST), |_| {
        frame(DATA, 0x8, 1, [[200].as_slice(), &[0; 200]].concat())
    });
}

#[test]
fn requests_that_are_given_up_at_once() {
    assert_calmed("rapid reset", &[], |at| [get_on(at * 2 + 1), reset(at * 2 + 1)].concat());
}

#[test]
fn requests_that_the_proxy_is_made_to_give_up() {
    assert_calmed("increments of 0", &[], |at| {
        [head(at * 2 + 1, 0, &POST), window_update(at * 2 + 1, 0)].concat()
    });
    assert_calmed("data after the end", &[], |at| {
        [get_on(at * 2 + 1), frame(DATA, 0, at * 2 + 1, "x")].concat()
    });
    assert_calmed("malformed requests", &[], |at| {
        head(at * 2 + 1, END_STREAM, &[&GET[..], &[("te", "x")]].concat())
    });
}

#[test]
fn windows_that_are_made_to_overflow() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut frames = Frames::open(proxy.address());
    for at in 0..1000 {
        let stream = at * 2 + 1;
        let overflow = [head(stream, 0, &POST), window_update(stream, (1 << 31) - 1)].concat();
        if !frames.write(overflow) {
            break;
        }
    }
    let error = frames.read_end();
    let expected = [ENHANCE_YOUR_CALM, FLOW_CONTROL_ERROR, PROTOCOL_ERROR];
    assert!(error.is_none_or(|error| expected.contains(&error)), "{error:?}");
    proxy.get("/").assert_status(200);
}

#[test]
fn continuations_without_an_end() {
    let begun = frame(HEADERS, END_STREAM, 1, block(&GET));
    assert_calmed("empty continuations", &begun, |_| frame(CONTINUATION, 0, 1, []));
    assert_calmed("continuations", &begun, |_| frame(CONTINUATION, 0, 1, block(&[("x", "y")])));
}

/// A value of 4,000 bytes is kept in the table once, and then named by single bytes.
#[test]
fn heads_that_grow_on_this_side() {
    let mut begun = block(&GET);
    begun.extend([0x40, 1, b'x']);
    begun.extend([0x7f, 0xa1, 0x1e]);
    begun.extend(vec![b'y'; 4000]);
    let begun = frame(HEADERS, END_HEADERS | END_STREAM, 1, begun);
    let bomb = [block(&GET), vec![0xbe; 15_000]].concat();
    assert_calmed("growing heads", &begun, |at| {
        frame(HEADERS, END_HEADERS | END_STREAM, at * 2 + 3, &bomb)
    });
}

/// A field of 4,000 bytes, and how it is named once the table has it.
const LARGE: usize = 4000;
const LARGE_AGAIN: u8 = 0xbe;

/// The shortest head there is for a GET, or a POST.
fn short(method: u8) -> Vec<u8> {
    vec![method, 0x86, 0x84, 0x01, 1, b'a']
}

const SHORT_GET: u8 = 0x82;
const SHORT_POST: u8 = 0x83;

/// The same, with a field of this name that goes into the table.
fn begun_with(name: &str) -> Vec<u8> {
    let mut begun = short(SHORT_GET);
    begun.extend([0x40, name.len() as u8]);
    begun.extend(name.as_bytes());
    // 4,000 in an integer of 7 bits.
    begun.extend([0x7f, 0xa1, 0x1e]);
    begun.extend(vec![b'y'; LARGE]);
    frame(HEADERS, END_HEADERS | END_STREAM, 1, begun)
}

/// How many bytes of `x` the upstream got, heads and trailers together.
fn bytes_of_x(upstream: &Upstream) -> usize {
    let bytes = |fields: &Fields| fields.all("x").iter().map(|value| value.len()).sum::<usize>();
    upstream.requests().iter().map(|got| bytes(&got.fields) + bytes(&got.trailers)).sum()
}

/// Sends 1,500 requests, one at a time, and expects that they end the connection long before they
/// are all served.
fn assert_kept_small(case: &str, mut next: impl FnMut(u32) -> Vec<u8>) {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut frames = Frames::open(proxy.address());
    frames.write(begun_with("x"));
    assert_eq!(frames.read_status(1), Some(200));
    let goaway = (1..1500).find_map(|at| {
        let stream = at * 2 + 1;
        frames.write(next(stream));
        let is_answer = |frame: &Frame| frame.kind == HEADERS && frame.stream == stream;
        let answer = frames.read_until(|frame| frame.kind == GOAWAY || is_answer(frame))?;
        (answer.kind == GOAWAY).then_some(answer)
    });
    let error = goaway.as_ref().map(Frame::error);
    assert_eq!(error, Some(ENHANCE_YOUR_CALM), "{case} did not end the connection");
    let bytes = bytes_of_x(&upstream);
    assert!(bytes < 4 << 20, "{case} became {bytes} bytes");
    drop(frames);
    let floods = || proxy.faults().total(tollgate_upstream::downstream::Fault::Flood);
    eventually("it is counted", || (floods() == 1).then_some(()));
    proxy.get("/").assert_status(200);
}

/// 22 bytes that were 28,000 on their way to the upstream.
#[test]
fn heads_that_grow_on_their_way_to_the_upstream() {
    let bomb = [short(SHORT_GET), vec![LARGE_AGAIN; 7]].concat();
    assert_kept_small("heads", |stream| {
        let bomb = frame(HEADERS, END_HEADERS | END_STREAM, stream, &bomb);
        assert_eq!(bomb.len(), 22);
        bomb
    });
}

#[test]
fn trailers_that_grow_on_their_way_to_the_upstream() {
    let head = [short(SHORT_POST), field("trailer", "x")].concat();
    assert_kept_small("trailers", |stream| {
        [
            frame(HEADERS, END_HEADERS, stream, &head),
            frame(DATA, 0, stream, "b"),
            frame(HEADERS, END_HEADERS | END_STREAM, stream, [LARGE_AGAIN; 7]),
        ]
        .concat()
    });
}

/// All at once, and none is read before all have come.
#[test]
fn heads_that_grow_in_one_read() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    for _ in 0..4 {
        let mut frames = Frames::open(proxy.address());
        let bomb = [short(SHORT_GET), vec![LARGE_AGAIN; 7]].concat();
        let all = (1..100).map(|at| frame(HEADERS, END_HEADERS | END_STREAM, at * 2 + 1, &bomb));
        frames.write([begun_with("x"), all.flatten().collect()].concat());
        assert_eq!(frames.read_end(), Some(ENHANCE_YOUR_CALM));
    }
    let bytes = bytes_of_x(&upstream);
    assert!(bytes < 4 * (2 << 20), "they became {bytes} bytes");
}

/// What a browser does: a large cookie, sent whole once and named by one byte after that.
#[test]
fn client_with_a_large_cookie_is_left_alone() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut frames = Frames::open(proxy.address());
    frames.write(begun_with("cookie"));
    assert_eq!(frames.read_status(1), Some(200));
    let again = [short(SHORT_GET), vec![LARGE_AGAIN]].concat();
    for turn in 0..25_u32 {
        let streams: Vec<u32> = (1..=80).map(|at| (turn * 80 + at) * 2 + 1).collect();
        let heads =
            streams.iter().map(|stream| frame(HEADERS, END_HEADERS | END_STREAM, *stream, &again));
        assert!(frames.write(heads.collect::<Vec<_>>().concat()));
        for _ in &streams {
            let answer = frames.read_until(|frame| frame.kind == HEADERS).expect("the connection");
            assert_eq!(answer.status(), 200);
        }
    }
    assert_eq!(upstream.count(), 2001);
    assert_eq!(upstream.last().fields.one("cookie").map(str::len), Some(LARGE));
}

#[test]
fn streams_beyond_the_limit() {
    let upstream = Upstream::silent();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut frames = Frames::open(proxy.address());
    let is_ended = (0..2000_u32).any(|at| !frames.write(get_on(at * 2 + 1)));
    let error = frames.read_end();
    assert!(is_ended || error.is_some());
    assert!(upstream.count() <= 100);
}

#[test]
fn flood_is_counted_and_others_are_served_meanwhile() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let address = proxy.address();
    let flood = std::thread::spawn(move || {
        for _ in 0..50 {
            let mut frames = Frames::open(address);
            let pings = frame(PING, 0, 0, [0; 8]).repeat(1000);
            while frames.write(&pings) {}
        }
    });
    for _ in 0..200 {
        proxy.get("/").assert_status(200);
    }
    flood.join().unwrap();
    let floods = || proxy.faults().total(tollgate_upstream::downstream::Fault::Flood);
    eventually("all are counted", || (proxy.connections() == 0).then_some(()));
    assert_eq!(floods(), 50);
}

#[test]
fn client_that_uses_much_of_everything_is_left_alone() {
    let body = "x".repeat(100_000);
    let upstream = Upstream::answering(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut frames = Frames::open(proxy.address());
    for at in 0..200 {
        let stream = at * 2 + 1;
        frames.write([get_on(stream), frame(PING, 0, 0, [1; 8])].concat());
        let mut left = body.len();
        while left > 0 {
            let data = frames.read_until(|frame| matches!(frame.kind, DATA | RST_STREAM)).unwrap();
            assert_eq!((data.kind, data.stream), (DATA, stream));
            left -= data.payload.len();
            let read = data.payload.len() as u32;
            // As careless programs do: for every part, of the stream and of the connection.
            frames.write([window_update(0, read), window_update(stream, read)].concat());
        }
    }
    proxy.send(get("/")).assert_status(200);
}

#[test]
fn client_whose_responses_have_no_body_is_left_alone() {
    let upstream = Upstream::as_asked();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut frames = Frames::open(proxy.address());
    let not_modified = [&GET[..], &[("x-want-status", "304")]].concat();
    for turn in 0..50_u32 {
        let streams: Vec<u32> = (0..50).map(|at| (turn * 50 + at) * 2 + 1).collect();
        let heads = streams.iter().map(|stream| head(*stream, END_STREAM, &not_modified));
        assert!(frames.write(heads.collect::<Vec<_>>().concat()));
        for _ in &streams {
            let answer = frames.read_until(|frame| frame.kind == HEADERS).expect("the connection");
            assert_eq!(answer.status(), 304);
        }
    }
    frames.assert_alive(50 * 50 * 2 + 1);
}
