//! Any bytes on an HTTP/1 connection: cutting them anywhere changes no verdict, and of a stream
//! that the framing check finds nothing wrong with, the HTTP library sees the same requests.

#![no_main]

mod pieces;

use std::{cell::Cell, convert::Infallible};

use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use libfuzzer_sys::fuzz_target;
use pieces::cut;
use tollgate_wire::{Framing, Violation};
use tollgate_settings::Limits;

fuzz_target!(|input: &[u8]| {
    // The first bytes say where the others are cut.
    let Some((cuts, stream)) = input.split_first_chunk::<4>() else { return };
    let whole = read([stream]);
    assert_eq!(read(cut(stream, cuts)), whole);
    assert_eq!(read(stream.chunks(1)), whole);

    let heads = whole.heads();
    if whole.verdict(heads + 1) != Err(Violation::OutOfStep) {
        return;
    }
    let (served, is_whole) = requests_served(stream);
    assert!(served <= heads, "{served} requests were served, {heads} were read");
    // The library stops early where a client may ask it to.
    let stops = [&b"close"[..], b"connect", b"http/1.0"];
    let text = stream.to_ascii_lowercase();
    if is_whole && !stops.iter().any(|stop| text.windows(stop.len()).any(|part| part == *stop)) {
        assert_eq!(served, heads);
    }
});

fn read<'s>(reads: impl IntoIterator<Item = &'s [u8]>) -> Framing {
    let mut framing = Framing::new(Limits::default().head);
    for bytes in reads {
        framing.read(bytes);
    }
    framing
}

/// How many requests the HTTP library hands on, and whether it found nothing wrong either.
fn requests_served(stream: &[u8]) -> (u64, bool) {
    let served = Cell::new(0);
    let answer = |request: Request<Incoming>| {
        let served = &served;
        async move {
            served.set(served.get() + 1);
            let _ = request.into_body().collect().await;
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    };
    let socket = TokioIo::new(tokio::io::join(stream, tokio::io::sink()));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let connection = http1::Builder::new().serve_connection(socket, service_fn(answer));
    let is_whole = runtime.block_on(connection).is_ok();
    (served.get(), is_whole)
}
