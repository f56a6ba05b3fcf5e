//! Requests that HTTP/2 can carry: how they are translated for an HTTP/1.1 server.

use crate::support::{
    Policy, Proxy, Upstream,
    frames::{
        CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, GET, HEADERS, POST, PROTOCOL_ERROR,
        RST_STREAM, block, field, frame, head,
    },
};

#[test]
fn crumbs_of_a_cookie_are_put_together() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut frames = Frames::open(proxy.address());
    let crumbs = [("cookie", "a=1"), ("x", "y"), ("cookie", "b=2"), ("cookie", "c=3")];
    frames.write(head(1, END_STREAM, &[&GET[..], &crumbs].concat()));
    assert_eq!(frames.read_status(1), Some(200));
    assert_eq!(upstream.last().fields.all("cookie"), ["a=1; b=2; c=3"]);
}

#[test]
fn whitespace_around_a_value_does_not_reach_the_upstream() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    for value in [" a", "a ", "\ta", "a\t", "  "] {
        let mut frames = Frames::open(proxy.address());
        frames.write(head(1, END_STREAM, &[&GET[..], &[("x-value", value)]].concat()));
        let status = frames.read_status(1);
        match status {
            Some(200) => {
                let seen = upstream.last();
                assert_eq!(seen.fields.one("x-value"), Some(value.trim()), "{value:?}");
            }
            _ => assert!(status.is_none_or(|status| status == 400), "{value:?}: {status:?}"),
        }
    }
}

#[test]
fn length_that_is_no_number_is_refused() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    for length in ["", "9223372036854775808", "9999999999999999999"] {
        for (flags, fields) in [(0, &POST), (END_STREAM, &GET)] {
            let mut frames = Frames::open(proxy.address());
            let fields = [&fields[..], &[("content-length", length)]].concat();
            frames.write(head(1, flags, &fields));
            let status = frames.read_status(1);
            // One that declares content and has none is refused before it is looked at.
            let is_refused = status == Some(400) || status.is_none() && flags == END_STREAM;
            assert!(is_refused, "{length:?}: {status:?}");
        }
    }
    assert_eq!(upstream.count(), 0);
    assert!(proxy.into_log().contains(" 400 "), "what is refused is logged");
}

#[test]
fn length_of_more_than_19_digits_ends_its_stream() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut frames = Frames::open(proxy.address());
    let fields = [&POST[..], &[("content-length", "10000000000000000000")]].concat();
    frames.write(head(1, 0, &fields));
    let reset = frames.read_until(|frame| frame.stream == 1).unwrap();
    assert_eq!((reset.kind, reset.error()), (RST_STREAM, PROTOCOL_ERROR));
    frames.assert_alive(3);
    assert!(!proxy.into_log().contains("POST"), "there is no line");
}

#[test]
fn trailers_pass_the_check_of_fields() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    for trailer in [("x-sum", " 1"), ("x-sum", "1\t"), ("x\"sum", "1"), ("x-sum", "1")] {
        let mut frames = Frames::open(proxy.address());
        frames.write(head(1, 0, &POST));
        frames.write(frame(DATA, 0, 1, "hello"));
        frames.write(frame(HEADERS, END_HEADERS | END_STREAM, 1, block(&[trailer])));
        let status = frames.read_status(1);
        match trailer {
            ("x-sum", "1") => assert_eq!(status, Some(200)),
            _ => assert!([Some(400), None].contains(&status), "{trailer:?}: {status:?}"),
        }
    }
    let whole: Vec<_> =
        upstream.requests().into_iter().filter(|seen| !seen.body.is_empty()).collect();
    assert_eq!(whole.len(), 1, "{whole:?}");
    assert_eq!(whole[0].trailers.one("x-sum"), Some("1"));
}

#[test]
fn te_trailers_and_host_beside_authority_are_fine() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut frames = Frames::open(proxy.address());
    let more = [("te", "trailers"), ("host", "api.example.com")];
    frames.write(head(1, END_STREAM, &[&GET[..], &more].concat()));
    assert_eq!(frames.read_status(1), Some(200));
    let seen = upstream.last().fields;
    assert_eq!((seen.all("te"), seen.all("host")), (vec![], vec!["api.example.com"]));
}

#[test]
fn host_alone_names_the_authority() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut frames = Frames::open(proxy.address());
    frames.write(head(1, END_STREAM, &[&GET[..3], &[("host", "api.example.com")]].concat()));
    let status = frames.read_status(1);
    assert!([Some(200), Some(400)].contains(&status), "{status:?}");
}

#[test]
fn body_of_many_frames_and_trailers_goes_through() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut frames = Frames::open(proxy.address());
    frames.write(frame(HEADERS, 0, 1, block(&POST[..2])));
    frames.write(frame(CONTINUATION, END_HEADERS, 1, block(&POST[2..])));
    for part in ["a", "bc", "def"] {
        frames.write(frame(DATA, 0, 1, part));
    }
    frames.write(head(1, END_STREAM, &[("x-sum", "6"), ("authorization", "forged")]));
    assert_eq!(frames.read_status(1), Some(200));
    let seen = upstream.last();
    assert_eq!(seen.body, b"abcdef");
    assert_eq!(seen.trailers.all("authorization"), [""; 0]);
}

#[test]
fn too_large_heads_are_refused_by_what_is_too_large() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let path = |length: usize| format!("/{}", "x".repeat(length - 1));
    let with_path = |path: &str| head(1, END_STREAM, &[GET[0], GET[1], (":path", path), GET[3]]);
    let value = "y".repeat(16 * 1024);
    for (request, status) in [
        (with_path(&path(8193)), 414),
        (head(1, END_STREAM, &[&GET[..], &[("x", "y"); 101]].concat()), 431),
    ] {
        let mut frames = Frames::open(proxy.address());
        frames.write(request);
        assert_eq!(frames.read_status(1), Some(status));
        frames.assert_alive(3);
    }
    // In two frames, as none may be larger than 16 KiB.
    for (value, count, status) in
        [(&value[..], 1, 431), (&value[..12_000], 3, 431), (&value[..12_000], 2, 200)]
    {
        let mut frames = Frames::open(proxy.address());
        frames.write(frame(HEADERS, END_STREAM, 1, block(&GET)));
        for part in 0..count {
            let fields = block(&[("x", value)]);
            let (first, second) = fields.split_at(10_000);
            frames.write(frame(CONTINUATION, 0, 1, first));
            let is_last = part == count - 1;
            frames.write(frame(CONTINUATION, if is_last { END_HEADERS } else { 0 }, 1, second));
        }
        assert_eq!(frames.read_status(1), Some(status), "{count} fields of {}", value.len());
        frames.assert_alive(3);
    }
    assert!(upstream.requests().iter().all(|request| request.target == "/"));
}

/// RFC 9113 section 8.1 has them malformed, and the protocol engine drops those that it knows
/// (`docs/hardening.md`).
#[test]
fn pseudo_fields_in_trailers_go_nowhere() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    // The table's first entry is the authority of the head, so that trailers can name it by a byte.
    let indexed_authority = [&[0x41, 15][..], b"api.example.com"].concat();
    let head_of = |method: u8| [&[method, 0x86, 0x84][..], &indexed_authority].concat();
    let announced = field("trailer", "x-sum");
    for (case, pseudo) in [
        ("method", field(":method", "DELETE")),
        ("scheme", field(":scheme", "https")),
        ("path", field(":path", "/admin")),
        ("authority", field(":authority", "b.example")),
        ("status", field(":status", "500")),
        ("protocol", field(":protocol", "websocket")),
        ("static path", vec![0x85]),
        ("static method and path", vec![0x83, 0x85]),
        ("static name", [&[0x04, 6][..], b"/admin"].concat()),
        ("known from the head", vec![0xbe]),
    ] {
        let mut frames = Frames::open(proxy.address());
        let before = upstream.count();
        frames.write(
            [
                frame(HEADERS, END_HEADERS, 1, [head_of(0x83), announced.clone()].concat()),
                frame(DATA, 0, 1, "hello"),
                frame(HEADERS, END_HEADERS | END_STREAM, 1, [pseudo, field("x-sum", "5")].concat()),
            ]
            .concat(),
        );
        if frames.read_status(1) != Some(200) {
            continue;
        }
        assert_eq!(upstream.count(), before + 1, "{case}");
        let seen = upstream.last();
        assert_eq!((&*seen.method, &*seen.target), ("POST", "/"), "{case}");
        assert_eq!(seen.fields.one("host"), Some("api.example.com"), "{case}");
        assert_eq!(
            (&seen.body[..], seen.trailers.names()),
            (&b"hello"[..], vec!["x-sum".to_owned()]),
            "{case}"
        );
    }
    // What is no pseudo-field at all is the end of the connection or the stream.
    let mut frames = Frames::open(proxy.address());
    let trailers = [field(":unknown", "1"), field("x-sum", "5")].concat();
    frames.write(frame(HEADERS, END_HEADERS, 1, head_of(0x83)));
    frames.write(frame(HEADERS, END_HEADERS | END_STREAM, 1, trailers));
    assert_ne!(frames.read_status(1), Some(200));
}
