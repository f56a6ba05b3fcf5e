//! A small API without limits of its own, which the demo puts behind the proxy.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    ops::Range,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

/// The address in the shipped policy; another port if it is taken.
const ADDRESSES: [&str; 2] = ["127.0.0.1:9000", "127.0.0.1:0"];

/// How long a server works and fails in turn.
const CYCLE: Duration = Duration::from_secs(90);
const FAILING: Range<Duration> = Duration::from_secs(30)..Duration::from_secs(55);

const SLOW: Duration = Duration::from_secs(2);
const ETAG: HeaderValue = HeaderValue::from_static("\"v1\"");
const MAX_ECHO_BYTES: usize = 64 * 1024;

/// Whether it answers as it should.
#[derive(Clone, Copy)]
pub(super) enum Behaviour {
    Good,
    /// For 25 of 90 seconds it answers everything with 503.
    FailsForAWhile,
}

impl Behaviour {
    fn is_good(self, started: Instant) -> bool {
        let in_cycle = started.elapsed().as_secs() % CYCLE.as_secs();
        match self {
            Behaviour::Good => true,
            Behaviour::FailsForAWhile => !FAILING.contains(&Duration::from_secs(in_cycle)),
        }
    }
}

/// Starts the API on a thread of its own, which ends with the process. One that fails is at any
/// port.
pub(super) fn start(behaviour: Behaviour) -> io::Result<SocketAddr> {
    let [preferred, any] = ADDRESSES;
    let preferred = match behaviour {
        Behaviour::Good => preferred,
        Behaviour::FailsForAWhile => any,
    };
    let listener =
        std::net::TcpListener::bind(preferred).or_else(|_| std::net::TcpListener::bind(any))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("sample-api".into()).spawn(move || {
        runtime.block_on(async {
            if let Ok(listener) = TcpListener::from_std(listener) {
                serve(listener, behaviour).await;
            }
        });
    })?;
    Ok(address)
}

async fn serve(listener: TcpListener, behaviour: Behaviour) {
    let started = Instant::now();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        tokio::spawn(async move {
            let service = service_fn(async |request| match behaviour.is_good(started) {
                true => respond(request).await,
                false => Ok(json_response(
                    StatusCode::SERVICE_UNAVAILABLE,
                    &json!({ "message": "this server fails for a while" }),
                )),
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "sample API connection failed");
            }
        });
    }
}

async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    Ok(match segments.as_slice() {
        ["healthz"] => json_response(StatusCode::OK, &json!({ "status": "ok" })),
        ["user"] => {
            let subject = request.headers().get("x-tollgate-subject");
            let subject = subject.and_then(|subject| subject.to_str().ok());
            json_response(StatusCode::OK, &json!({ "id": subject, "login": "octocat" }))
        }
        ["search", what, ..] => json_response(
            StatusCode::OK,
            &json!({ "searched": what, "total_count": 0, "items": [] }),
        ),
        ["reports", which, ..] => json_response(StatusCode::OK, &json!({ "report": which })),
        ["repos", owner, repo, ..] => repository(&request, owner, repo),
        ["slow"] => {
            tokio::time::sleep(SLOW).await;
            json_response(StatusCode::OK, &json!({ "took": "2 seconds" }))
        }
        ["echo", ..] => echo(request).await,
        _ => json_response(StatusCode::NOT_FOUND, &json!({ "message": "Not Found" })),
    })
}

/// A resource with a validator: a request that sends the validator gets 304.
fn repository(request: &Request<Incoming>, owner: &str, repo: &str) -> Response<Full<Bytes>> {
    let mut response = if request.headers().get(header::IF_NONE_MATCH) == Some(&ETAG) {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        json_response(StatusCode::OK, &json!({ "full_name": format!("{owner}/{repo}") }))
    };
    response.headers_mut().insert(header::ETAG, ETAG);
    response
}

async fn echo(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, MAX_ECHO_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let message = json!({ "message": "at most 64 KiB" });
            return json_response(StatusCode::PAYLOAD_TOO_LARGE, &message);
        }
        Err(_) => return json_response(StatusCode::BAD_REQUEST, &json!({ "message": "bad body" })),
    };
    let headers: Map<String, Value> = head
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into()))
        .collect();
    let echoed = json!({
        "method": head.method.as_str(),
        "uri": head.uri.to_string(),
        "headers": headers,
        "body": String::from_utf8_lossy(&body),
    });
    json_response(StatusCode::OK, &echoed)
}

fn json_response(status: StatusCode, value: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{value:#}\n")));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
