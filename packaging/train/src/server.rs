//! The server behind the Tollgate: it replies as the kind of a request asks for.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response, body::Incoming, header::HeaderValue, server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

const SMALL: [u8; 1024] = [b'x'; 1024];
const LARGE: [u8; 16 * 1024] = [b'x'; 16 * 1024];
const SHORT: [u8; 100] = [b'x'; 100];

/// Fields of a reply to a browser, besides `Date` and `Content-Length`.
const FIELDS: [(&str, &str); 13] = [
    ("server", "upstream"),
    ("content-type", "application/json; charset=utf-8"),
    ("cache-control", "private, max-age=0, must-revalidate"),
    ("etag", "W/\"4711-5f3c2a1b9d8e7f60\""),
    ("vary", "Accept, Accept-Encoding, Authorization, Origin"),
    ("last-modified", "Thu, 26 Nov 2026 09:00:00 GMT"),
    ("content-language", "en-GB"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "deny"),
    ("referrer-policy", "strict-origin-when-cross-origin"),
    ("strict-transport-security", "max-age=31536000; includeSubDomains"),
    ("link", "</v1/projects/4711/items?page=2>; rel=\"next\""),
    ("x-total-count", "4711"),
];

/// Starts it; it serves as long as the runtime does.
///
/// # Errors
/// No port is free.
pub(crate) async fn start() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let serving =
                http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(reply));
            // Connections end when the Tollgate does.
            tokio::spawn(async { drop(serving.await) });
        }
    });
    Ok(address)
}

async fn reply(request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
    let is_post = request.method() == Method::POST;
    let is_small = request.uri().path() == "/";
    drop(request.into_body().collect().await?);
    let body: &'static [u8] = match (is_post, is_small) {
        (true, _) => &SHORT,
        (false, true) => &SMALL,
        (false, false) => &LARGE,
    };
    let mut response = Response::new(Full::new(Bytes::from_static(body)));
    let fields = if is_post || is_small { &FIELDS[..2] } else { &FIELDS[..] };
    for (name, value) in fields {
        response.headers_mut().append(*name, HeaderValue::from_static(value));
    }
    Ok(response)
}
