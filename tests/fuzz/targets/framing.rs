//! Any bytes on an HTTP/1 connection: cutting them anywhere changes no verdict, and the HTTP library
//! beside the framing check sees no request that the check does not know.

#![no_main]

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
use tollgate::server::{Framing, HeadLimits};

fuzz_target!(|input: &[u8]| {
    // The first bytes say where the others are cut.
    let Some((cuts, stream)) = input.split_first_chunk::<4>() else { return };
    let whole = read([stream]);
    assert_eq!(read(cut(stream, cuts)), whole);
    assert_eq!(read(stream.chunks(1)), whole);

    let served = requests_served(stream);
    let in_step = (1..=served).filter(|request| whole.verdict(*request).is_ok()).count() as u64;
    assert!(in_step <= whole.heads(), "{in_step} requests pass, {} were read", whole.heads());
});

fn read<'s>(reads: impl IntoIterator<Item = &'s [u8]>) -> Framing {
    let mut framing = Framing::new(HeadLimits::default());
    reads.into_iter().for_each(|bytes| framing.read(bytes));
    framing
}

fn cut<'s>(mut rest: &'s [u8], lengths: &[u8]) -> Vec<&'s [u8]> {
    let mut reads = Vec::new();
    for length in lengths {
        let (read, after) = rest.split_at(usize::from(*length).min(rest.len()));
        reads.push(read);
        rest = after;
    }
    reads.push(rest);
    reads
}

/// How many requests the HTTP library hands on, each with a body that ends.
fn requests_served(stream: &[u8]) -> u64 {
    let served = Cell::new(0);
    let answer = |request: Request<Incoming>| {
        let served = &served;
        async move {
            if request.into_body().collect().await.is_ok() {
                served.set(served.get() + 1);
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    };
    let socket = TokioIo::new(tokio::io::join(stream, tokio::io::sink()));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let connection = http1::Builder::new().serve_connection(socket, service_fn(answer));
    let _ = runtime.block_on(connection);
    served.get()
}
