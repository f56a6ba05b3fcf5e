//! Names, attributes and parents of spans, and which requests have some.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use super::proxy;
use crate::support::{OtlpReceiver, Policy, Request, START, Signal, Upstream, get, http2, post};

#[test]
fn server_span_says_what_the_conventions_ask_for() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&["core: { per: caller, rate: 10/hour }"])
        .routes(&["{ match: { path: \"/repos/{name}\" }, limits: [core] }"]);
    let fields = "sample: 1, service_name: edge, resource: { host.name: h }";
    let proxy = proxy(&receiver, fields, &policy);
    proxy.send(get("/repos/a?secret=b").by("alice")).assert_status(200);
    let spans = receiver.wait_for_path("/repos/a");
    let [server, attempt] = &spans[..] else { panic!("{spans:#?}") };

    assert_eq!(server.name, "GET /repos/{name}");
    assert_eq!(server.kind, SpanKind::Server);
    assert_eq!((server.parent.as_str(), server.flags), ("", 0x101));
    assert!(!server.is_error);
    server.assert_attributes(&[
        ("http.request.method", "GET"),
        ("http.request.method_original", "-"),
        ("http.route", "/repos/{name}"),
        ("url.scheme", "http"),
        ("url.path", "/repos/a"),
        ("url.query", "-"),
        ("network.protocol.version", "1.1"),
        ("http.response.status_code", "200"),
        ("error.type", "-"),
        ("client.address", "-"),
        ("tollgate.caller", "-"),
        ("tollgate.limit.name", "core"),
        ("tollgate.limit.decision", "allow"),
        ("tollgate.limit.used", "1"),
        ("tollgate.limit.max", "10"),
        ("tollgate.store", "memory"),
    ]);
    assert_eq!(server.resource["service.name"], "edge");
    assert_eq!(server.resource["host.name"], "h");

    assert_eq!((attempt.name.as_str(), attempt.kind), ("GET", SpanKind::Client));
    assert_eq!(attempt.trace_id, server.trace_id);
    let url = upstream.url();
    let port = url.rsplit(':').next().unwrap();
    attempt.assert_attributes(&[
        ("http.request.method", "GET"),
        ("server.address", "127.0.0.1"),
        ("server.port", port),
        ("http.request.resend_count", "-"),
        ("http.response.status_code", "200"),
        ("error.type", "-"),
    ]);
    // Both tell the time by the proxy's clock, and the attempt lies within the request.
    assert_eq!(server.nanos.0, START.as_micros() * 1000);
    assert!(server.nanos.0 <= attempt.nanos.0 && attempt.nanos.0 <= attempt.nanos.1);
    assert!(attempt.nanos.1 <= server.nanos.1, "{spans:#?}");
}

#[test]
fn names_are_few_whatever_clients_send() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).routes(&["{ match: { path: /known/** }, limits: [] }"]);
    let proxy = proxy(&receiver, "sample: 1", &policy);
    proxy.get("/unknown").assert_status(404);
    proxy.send(Request::new("BREW", "/known/pot")).assert_status(200);
    let spans = receiver.wait_for_path("/unknown");
    assert_eq!((spans.len(), spans[0].name.as_str()), (1, "GET"));
    spans[0].assert_attributes(&[("http.route", "-"), ("http.response.status_code", "404")]);
    assert!(!spans[0].is_error, "a 4xx is no error of the server");
    let spans = receiver.wait_for_path("/known/pot");
    assert_eq!((spans[0].name.as_str(), spans[1].name.as_str()), ("HTTP /known/**", "HTTP"));
    spans[0].assert_attributes(&[
        ("http.request.method", "_OTHER"),
        ("http.request.method_original", "BREW"),
    ]);
}

#[test]
fn http2_is_named_by_its_version() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let proxy = proxy(&receiver, "sample: 1", &Policy::before(&upstream));
    let url = format!("http://{}/two", proxy.address());
    let request = http::Request::get(url).body(String::new()).unwrap();
    assert_eq!(http2(proxy.address(), vec![request])[0].status(), 200);
    let spans = receiver.wait_for_path("/two");
    spans[0].assert_attributes(&[("network.protocol.version", "2")]);
}

#[test]
fn failure_of_the_upstream_is_an_error_and_its_denial_is_none() {
    let receiver = OtlpReceiver::start();
    let policy = |upstream: &Upstream| Policy::before(upstream);
    let refusing = Upstream::refusing();
    let proxied = proxy(&receiver, "sample: 1", &policy(&refusing));
    proxied.send(post("/refused", "")).assert_status(502);
    let spans = receiver.wait_for_path("/refused");
    assert!(spans[0].is_error && spans[1].is_error);
    spans[0].assert_attributes(&[("http.response.status_code", "502"), ("error.type", "502")]);
    spans[1].assert_attributes(&[("http.response.status_code", "-"), ("error.type", "connect")]);

    let upstream = Upstream::as_asked();
    let proxied = proxy(&receiver, "sample: 1", &policy(&upstream));
    for (path, status, is_servers_error) in [("/500", 500, true), ("/429", 429, false)] {
        proxied.send(get(path).wants(status)).assert_status(status);
        let spans = receiver.wait_for_path(path);
        let status = status.to_string();
        assert_eq!(spans[0].is_error, is_servers_error, "{status}");
        let expected = if is_servers_error { status.as_str() } else { "-" };
        spans[0].assert_attributes(&[("error.type", expected)]);
        // To the client of a server, 4xx is an error.
        assert!(spans[1].is_error);
        spans[1].assert_attributes(&[("error.type", &status)]);
    }
}

#[test]
fn each_attempt_has_a_span_and_the_upstream_knows_it() {
    let receiver = OtlpReceiver::start();
    let busy = Upstream::answering("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n");
    let other = Upstream::answering("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n");
    let policy = Policy::before_servers(&format!(
        "servers: [\"{}\", \"{}\"], retries: {{ attempts: 2, status: [503] }}",
        busy.url(),
        other.url()
    ));
    let proxy = proxy(&receiver, "sample: 1", &policy);
    proxy.get("/again").assert_status(503);
    let spans = receiver.wait_for_path("/again");
    let [server, attempts @ ..] = &spans[..] else { panic!("{spans:#?}") };
    assert_eq!(attempts.len(), 3, "{spans:#?}");
    for (attempt, resent) in attempts.iter().zip(["-", "1", "2"]) {
        attempt.assert_attributes(&[
            ("http.request.resend_count", resent),
            ("http.response.status_code", "503"),
        ]);
    }
    let mut sent: Vec<String> = busy
        .requests()
        .iter()
        .chain(&other.requests())
        .map(|request| request.fields.one("traceparent").unwrap().to_owned())
        .collect();
    let mut expected: Vec<String> = attempts
        .iter()
        .map(|attempt| format!("00-{}-{}-01", server.trace_id, attempt.span_id))
        .collect();
    sent.sort();
    expected.sort();
    assert_eq!(sent, expected);
    expected.dedup();
    assert_eq!(expected.len(), 3, "each attempt has a span of its own");
}

#[test]
fn denials_are_recorded_whatever_the_share() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("1/hour");
    let proxied = proxy(&receiver, "sample: 0", &policy);
    proxied.send(get("/allowed").by("alice")).assert_status(200);
    proxied.send(get("/denied").by("alice")).assert_status(429);
    proxied.send(get("/malformed").token("x.y.z")).assert_status(401);
    let spans = receiver.wait_for_path("/denied");
    assert_eq!(spans.len(), 1);
    assert!(!spans[0].is_error);
    spans[0].assert_attributes(&[
        ("http.response.status_code", "429"),
        ("error.type", "-"),
        ("tollgate.limit.name", "core"),
        ("tollgate.limit.decision", "deny"),
        ("tollgate.limit.used", "1"),
        ("tollgate.limit.max", "1"),
    ]);
    drop(proxied);
    assert_eq!(receiver.spans().len(), 1, "nothing else: {:#?}", receiver.spans());

    let proxied = proxy(&receiver, "sample: 0, denials: false", &policy);
    proxied.get_as("alice").assert_status(200);
    proxied.send(get("/unrecorded").by("alice")).assert_status(429);
    drop(proxied);
    assert_eq!(receiver.spans().len(), 1);
}

#[test]
fn limit_that_only_counts_is_no_denial() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).core("rate: 1/hour, mode: shadow");
    let proxied = proxy(&receiver, "sample: 0", &policy);
    for _ in 0..2 {
        proxied.get_as("alice").assert_status(200);
    }
    drop(proxied);
    assert_eq!(receiver.spans().len(), 0);
}

#[test]
fn callers_are_named_only_where_the_settings_ask_for_it() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let proxy = proxy(&receiver, "sample: 1, caller: true", &Policy::before(&upstream));
    proxy.send(get("/").by("alice")).assert_status(200);
    receiver.wait_for_path("/")[0]
        .assert_attributes(&[("client.address", "127.0.0.1"), ("tollgate.caller", "user:alice")]);
}

#[test]
fn span_of_a_client_that_went_away_ends_with_its_attempt() {
    let receiver = OtlpReceiver::start();
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::held(&asked, &go);
    let proxied = proxy(&receiver, "sample: 1", &Policy::before(&upstream));
    let mut client = proxied.connect();
    client.write(get("/gone").to_bytes());
    asked.wait();
    drop(client);
    let spans = receiver.wait_for_path("/gone");
    spans[0].assert_attributes(&[("http.response.status_code", "499"), ("error.type", "-")]);
    spans[1].assert_attributes(&[("error.type", "cancelled")]);
    go.open();
}

#[test]
fn span_ends_with_the_body_of_the_response() {
    let receiver = OtlpReceiver::start();
    let begun = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::streaming(&begun, &go);
    let proxied = proxy(&receiver, "sample: 1", &Policy::before(&upstream));
    let mut client = proxied.connect();
    client.write(get("/stream").to_bytes());
    client.read_head().assert_status(200);
    assert!(receiver.spans().is_empty(), "the response is not over");
    go.open();
    while client.read_chunk().is_some() {}
    let spans = receiver.wait_for_path("/stream");
    assert!(spans[1].nanos.1 < spans[0].nanos.1, "the attempt ends with the head: {spans:#?}");
}

#[test]
fn request_to_switch_has_an_attempt() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::echoing();
    let policy = Policy::before(&upstream)
        .routes(&["{ match: { path: /** }, limits: [], upgrades: [websocket] }"]);
    let proxied = proxy(&receiver, "sample: 1", &policy);
    let mut client = proxied.connect();
    let request = get("/switch").field("connection", "upgrade").field("upgrade", "websocket");
    client.write(request.to_bytes());
    client.read_head().assert_status(101);
    let sent = upstream.last().fields.one("traceparent").unwrap().to_owned();
    drop(client);
    let spans = receiver.wait_for_path("/switch");
    spans[1].assert_attributes(&[("http.response.status_code", "101")]);
    assert_eq!(sent, format!("00-{}-{}-01", spans[0].trace_id, spans[1].span_id));
}
