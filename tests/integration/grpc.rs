//! gRPC calls, and how they are told that they are denied.

use bytes::Bytes;

use crate::support::{Policy, Proxy, Upstream, http2, token};

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

/// That a call was answered here, with this status of gRPC.
fn assert_told(response: &http::Response<Bytes>, status: &str, message: &str) {
    assert_eq!(response.status(), 200, "{response:?}");
    assert_eq!(field(response, "content-type"), "application/grpc");
    assert_eq!(
        (field(response, "grpc-status"), field(response, "grpc-message")),
        (status, message)
    );
    assert!(response.body().is_empty() && !response.headers().contains_key("content-length"));
}

#[test]
fn denied_call_is_told_that_the_resource_is_exhausted() {
    let upstream = Upstream::start();
    for status in ["429", "403"] {
        let policy = Policy::before(&upstream)
            .rate("1/hour")
            .responses(&[&format!("denied_status: {status}")]);
        let proxy = Proxy::start(&policy);
        let all = answers(&proxy, vec![call("/a.B/C"), call("/a.B/C")]);
        assert_eq!(field(&all[0], "x-ratelimit-remaining"), "0");
        assert_told(&all[1], "8", "API rate limit exceeded for 127.0.0.1.");
        assert_eq!(field(&all[1], "retry-after"), "3600");
        assert_eq!(field(&all[1], "grpc-retry-pushback-ms"), "3600000");
        assert_eq!(field(&all[1], "x-ratelimit-resource"), "core");
        assert_eq!(field(&all[1], "x-tollgate-denied-by"), "core");
    }
}

#[test]
fn call_is_told_what_else_is_wrong() {
    let refusing = Upstream::refusing();
    let routes = [
        "{ match: { path: /open/** }, limits: [] }",
        "{ match: { path: /small/** }, limits: [], max_body: 1 }",
        "{ match: { path: /closed/** }, auth: required, limits: [] }",
    ];
    let proxy = Proxy::start(&Policy::before(&refusing).routes(&routes));
    let calls = vec![call("/closed/x"), call("/nowhere"), call("/open/x"), call("/small/x")];
    let all = answers(&proxy, calls);
    assert_told(&all[0], "16", "Requires authentication");
    assert!(field(&all[0], "www-authenticate").starts_with("Bearer "));
    assert_told(&all[1], "12", "Not Found");
    assert_told(&all[2], "14", "The upstream service could not be reached.");
    assert_told(&all[3], "8", "The request body is too large.");
}

#[test]
fn other_requests_are_told_in_their_own_way() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("0/hour"));
    let request = http::Request::post("http://api.example.com/a.B/C")
        .header("content-type", "application/grpc-web+proto");
    let all = answers(&proxy, vec![request]);
    assert_eq!(all[0].status(), 429);
    assert!(!all[0].headers().contains_key("grpc-status"));
}

#[test]
fn refund_goes_by_the_status_that_others_are_told() {
    let refusing = Upstream::refusing();
    let policy = Policy::before(&refusing).core("rate: 5/hour, refund: { status: [502] }");
    let proxy = Proxy::start(&policy);
    let authorized = call("/a.B/C").header("authorization", format!("Bearer {}", token("alice")));
    let all = answers(&proxy, vec![authorized]);
    assert_told(&all[0], "14", "The upstream service could not be reached.");
    assert_eq!(field(&all[0], "x-ratelimit-used"), "0");
}

#[test]
fn log_tells_how_a_call_has_ended() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\
         trailer: grpc-status\r\n\r\n0\r\ngrpc-status: 5\r\n\r\n",
    );
    let proxy = Proxy::start(&Policy::before(&upstream).rate("1/hour"));
    answers(&proxy, vec![call("/a.B/C"), call("/a.B/C")]);
    let log = proxy.into_log();
    let told: Vec<bool> = ["grpc_status=5", "grpc_status=8"].map(|it| log.contains(it)).into();
    assert_eq!(told, [true, true], "{log}");
}
