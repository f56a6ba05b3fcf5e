//! gRPC calls, and the responses that deny them.

use bytes::Bytes;

use crate::support::{Policy, Proxy, Upstream, http2, post, token};

/// A policy whose upstream is spoken to in HTTP/2, and so may speak gRPC.
fn before_grpc(upstream: &Upstream) -> Policy {
    Policy::before(upstream).upstream(upstream, "protocol: h2, ejection: off")
}

const DENIED: &str = "API rate limit exceeded for 127.0.0.1.";

/// A call without a token.
fn call(path: &str) -> http::request::Builder {
    http::Request::post(format!("http://api.example.com{path}"))
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers")
}

fn answers(proxy: &Proxy, calls: Vec<http::request::Builder>) -> Vec<http::Response<Bytes>> {
    let body = "\0\0\0\0\0".to_owned();
    http2(proxy.address(), calls.into_iter().map(|it| it.body(body.clone()).unwrap()).collect())
}

fn field<'r>(response: &'r http::Response<Bytes>, name: &str) -> &'r str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

/// Checks that the proxy itself answered a call, with this gRPC status.
fn assert_grpc_error(response: &http::Response<Bytes>, status: &str, message: &str) {
    assert_eq!(response.status(), 200, "{response:?}");
    assert_eq!(field(response, "content-type"), "application/grpc");
    assert_eq!(
        (field(response, "grpc-status"), field(response, "grpc-message")),
        (status, message)
    );
    assert!(response.body().is_empty() && !response.headers().contains_key("content-length"));
}

/// That it was answered here as HTTP has it.
fn assert_plain(response: &http::Response<Bytes>, status: u16) {
    assert_eq!(response.status(), status, "{response:?}");
    assert!(!response.headers().contains_key("grpc-status"), "{response:?}");
    assert_eq!(field(response, "content-type"), "application/json; charset=utf-8");
}

#[test]
fn denied_call_gets_resource_exhausted() {
    let upstream = Upstream::refusing();
    for status in ["429", "403"] {
        let policy =
            before_grpc(&upstream).rate("1/hour").responses(&[&format!("denied_status: {status}")]);
        let proxy = Proxy::start(&policy);
        let all = answers(&proxy, vec![call("/a.B/C"), call("/a.B/C")]);
        assert_eq!(field(&all[0], "x-ratelimit-remaining"), "0");
        assert_grpc_error(&all[1], "8", DENIED);
        assert_eq!(field(&all[1], "retry-after"), "3600");
        assert_eq!(field(&all[1], "grpc-retry-pushback-ms"), "3600000");
        assert_eq!(field(&all[1], "x-ratelimit-resource"), "core");
        assert_eq!(field(&all[1], "x-tollgate-denied-by"), "core");
    }
}

#[test]
fn other_errors_have_their_grpc_status() {
    let refusing = Upstream::refusing();
    let routes = [
        "{ match: { path: /open/** }, limits: [] }",
        "{ match: { path: /small/** }, limits: [], max_body: 1 }",
        "{ match: { path: /closed/** }, auth: required, limits: [] }",
    ];
    let proxy = Proxy::start(&before_grpc(&refusing).routes(&routes));
    let calls = vec![call("/closed/x"), call("/open/x"), call("/small/x"), call("/nowhere")];
    let all = answers(&proxy, calls);
    assert_grpc_error(&all[0], "16", "Requires authentication");
    assert!(field(&all[0], "www-authenticate").starts_with("Bearer "));
    assert_grpc_error(&all[1], "14", "The upstream service could not be reached.");
    assert_grpc_error(&all[2], "8", "The request body is too large.");
    // Without a route, it is unknown whether gRPC is spoken.
    assert_plain(&all[3], 404);
}

#[test]
fn other_requests_get_plain_errors() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&before_grpc(&upstream).rate("0/hour"));
    let of_type = |content_type: &str| {
        http::Request::post("http://api.example.com/a.B/C").header("content-type", content_type)
    };
    let types = ["application/grpc-web+proto", "application/grpc-web-text", "application/json"];
    for response in answers(&proxy, types.map(of_type).into()) {
        assert_plain(&response, 429);
    }
}

/// A client gets no 200 just because it calls its request gRPC, on a route that is not for gRPC.
#[test]
fn content_type_alone_makes_no_denial_a_success() {
    let upstream = Upstream::start();
    let routes = [
        "{ match: { path: /grpc/** }, limits: [core], upstream: api }",
        "{ match: { path: /http/** }, limits: [core], upstream: plain }",
        "{ match: { path: /closed/** }, auth: required, limits: [], upstream: plain }",
        "{ match: { path: /small/** }, limits: [], max_body: 1, upstream: plain }",
    ];
    let policy = before_grpc(&upstream)
        .and_upstream("plain", &upstream)
        .limits(&["core: { per: caller, rate: 0/hour }"])
        .routes(&routes);
    let proxy = Proxy::start(&policy);
    let calls = ["/http/x", "/closed/x", "/small/x", "/nowhere"].map(call).into();
    for (response, status) in answers(&proxy, calls).iter().zip([429, 401, 413, 404]) {
        assert_plain(response, status);
    }
    let message = "The cost of this request exceeds its limit.";
    assert_grpc_error(&answers(&proxy, vec![call("/grpc/x")])[0], "8", message);
    // gRPC is spoken over HTTP/2 only.
    for path in ["/grpc/x", "/http/x"] {
        let request = post(path, "").field("content-type", "application/grpc");
        proxy.send(request).assert_status(429).assert_no_field("grpc-status");
    }
}

#[test]
fn refund_goes_by_the_http_status_of_the_error() {
    let refusing = Upstream::refusing();
    let policy = before_grpc(&refusing).core("rate: 5/hour, refund: { status: [502] }");
    let proxy = Proxy::start(&policy);
    let authorized = call("/a.B/C").header("authorization", format!("Bearer {}", token("alice")));
    let all = answers(&proxy, vec![authorized]);
    assert_grpc_error(&all[0], "14", "The upstream service could not be reached.");
    assert_eq!(field(&all[0], "x-ratelimit-used"), "0");
}

#[test]
fn log_tells_how_a_call_has_ended() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\
         trailer: grpc-status\r\n\r\n0\r\ngrpc-status: 5\r\n\r\n",
    );
    let proxy = Proxy::start(&Policy::before(&upstream));
    answers(&proxy, vec![call("/a.B/C")]);
    let log = proxy.into_log();
    assert!(log.contains(" 200 ") && log.contains(" grpc_status=5 "), "{log}");
    assert!(!log.contains("stands_for"), "{log}");
}

#[test]
fn log_tells_what_a_refusal_stands_for() {
    let upstream = Upstream::start();
    for (setting, expected) in [
        (
            "text",
            " 200 core=0/0 decided_by=memory denied=limit denied_by=core \
                  error=\"denied by limit core\" grpc_status=8 stands_for=429 ",
        ),
        ("json", ",\"grpc_status\":8,\"stands_for\":429,"),
    ] {
        let settings = format!("access_log: {{ format: {setting} }}");
        let proxy = Proxy::with_settings(&settings, &[&before_grpc(&upstream).rate("0/hour")]);
        answers(&proxy, vec![call("/a.B/C")]);
        let log = proxy.into_log();
        assert!(log.contains(expected), "{log}");
    }
}
