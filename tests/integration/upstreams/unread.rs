//! Clients that read nothing of their responses: what is held for them is bounded, for an upstream
//! and for an address, and costs no other client anything.

use bytes::Bytes;
use h2::server::Builder;
use http::Response;
use tollgate_upstream::downstream::Fault;

use super::{
    before, before_urls,
    fakes::{Fake, Stream},
    until,
};
use crate::support::{
    Policy, Proxy, Upstream,
    frames::{DATA, END_STREAM, Frames, RST_STREAM, head, window_update},
    get,
};

/// Each client is who it says.
const BEHIND: &str = "workers: 2\ntrusted_proxies: [127.0.0.1]";

/// Larger than any window.
const BODY_BYTES: usize = 1_000_000;

/// Of 1 MiB half is an address's, and a response takes 84 KiB: a window, a part and what is about
/// it.
const MOST_OF_AN_ADDRESS: u64 = 6;

async fn answer_plenty(stream: Stream) {
    let Stream { mut respond, .. } = stream;
    let mut sending = respond.send_response(Response::new(()), false).unwrap();
    let _ = sending.send_data(Bytes::from(vec![b'x'; BODY_BYTES]), true);
}

fn bounded(server: &Fake) -> Policy {
    before_urls(&[&server.url()], "protocol: h2, max_unread: 1MiB")
}

fn get_from(stream: u32, client: &str) -> Vec<u8> {
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "a"),
        ("x-forwarded-for", client),
    ];
    head(stream, END_STREAM, &fields)
}

/// A client that grants its responses no room, and asks for so many.
fn stalled(proxy: &Proxy, client: &str, requests: u32) -> Frames {
    let mut frames = Frames::open_with(proxy.address(), &[(4, 0)]);
    for number in 0..requests {
        frames.write(get_from(2 * number + 1, client));
    }
    frames
}

/// Grants a stream all the room that it needs, and reads its response.
fn read_whole(frames: &mut Frames, stream: u32) -> usize {
    let room = BODY_BYTES as u32;
    frames.write([window_update(0, room), window_update(stream, room)].concat());
    let mut bytes = 0;
    loop {
        let is_next = |frame: &crate::support::frames::Frame| {
            frame.stream == stream && matches!(frame.kind, DATA | RST_STREAM)
        };
        let frame = frames.read_until(is_next).expect("the connection goes on");
        assert_eq!(frame.kind, DATA, "stream {stream} was reset after {bytes} bytes");
        bytes += frame.payload.len();
        if frame.flags & END_STREAM != 0 {
            return bytes;
        }
    }
}

#[test]
fn responses_that_wait_longest_are_broken_off_when_an_address_reads_too_little() {
    let server = Fake::http2(&Builder::new(), answer_plenty);
    let proxy = Proxy::with_settings(BEHIND, &[&bounded(&server)]);
    let mut other = stalled(&proxy, "192.0.2.2", 2);
    assert_eq!([1, 3].map(|stream| other.read_status(stream)), [Some(200); 2]);
    let mut greedy = stalled(&proxy, "192.0.2.1", 20);
    let cut = 20 - MOST_OF_AN_ADDRESS;
    for _ in 0..cut {
        let end = greedy.read_until(|frame| frame.kind == RST_STREAM).expect("only streams end");
        assert!(u64::from(end.stream) < 2 * cut, "{} is one of the latest", end.stream);
    }
    until("each is counted", || proxy.faults().total(Fault::Unread) == cut);
    // Those that are left go on, and so do others, which share the connection to the server.
    assert_eq!(read_whole(&mut greedy, 39), BODY_BYTES);
    assert_eq!(read_whole(&mut other, 1), BODY_BYTES);
    let mut reads = Frames::open(proxy.address());
    reads.write(get_from(1, "192.0.2.1"));
    assert_eq!(read_whole(&mut reads, 1), BODY_BYTES);
    assert_eq!(proxy.faults().total(Fault::Unread), cut);
}

#[test]
fn addresses_together_hold_no_more_than_an_upstream_may() {
    let server = Fake::http2(&Builder::new(), answer_plenty);
    let proxy = Proxy::with_settings(BEHIND, &[&bounded(&server)]);
    let clients: Vec<Frames> = (1..=8)
        .map(|number| {
            let mut client = stalled(&proxy, &format!("192.0.2.{number}"), 4);
            assert_eq!(client.read_status(7), Some(200));
            client
        })
        .collect();
    // 12 of 84 KiB are within 1 MiB.
    until("the rest is broken off", || proxy.faults().total(Fault::Unread) == 32 - 12);
    drop(clients);
}

#[test]
fn connections_of_clients_in_http1_that_read_nothing_are_closed() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n");
        for _ in 0..100 {
            exchange.write(vec![b'x'; 1_000_000]);
        }
        exchange.close();
    });
    let proxy = Proxy::with_settings("workers: 1", &[&before(&[&upstream], "max_unread: 1MiB")]);
    let mut clients: Vec<_> = (0..30).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.write(get("/").to_bytes());
        assert_eq!(client.read_head().status, 200);
    }
    // Of half of 1 MiB a response takes 20 KiB and its last part: so many bytes as were there.
    until("the rest is broken off", || proxy.faults().total(Fault::Unread) >= 30 - 25);
    drop(clients);
    let log = proxy.into_log();
    assert!(log.contains(" aborted"), "{log}");
}
