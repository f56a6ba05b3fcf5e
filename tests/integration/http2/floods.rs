//! Floods: whoever keeps the proxy busy with frames that ask for nothing is told to calm down, and
//! nobody else notices.

use crate::support::{
    Policy, Proxy, Upstream, eventually,
    frames::{
        ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, FLOW_CONTROL_ERROR,
        Frames, GET, HEADERS, PING, POST, PRIORITY, PROTOCOL_ERROR, RST_STREAM, SETTINGS, block,
        frame, get_on, head, reset, setting, window_update,
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
    let floods = || proxy.faults().total(tollgate::server::Fault::Flood);
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
