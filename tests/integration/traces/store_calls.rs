//! Calls of Redis that requests wait for.

use std::thread;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use super::proxy;
use crate::support::{
    ExportedSpan, OtlpReceiver, Policy, Proxy, Redis, Shards, Upstream, eventually, get,
};

fn with_redis(receiver: &OtlpReceiver, redis: &str, fields: &str, policy: &Policy) -> Proxy {
    let settings = receiver.settings(fields);
    let store = format!("store: {{ redis: {{ {redis} }}, deadline: 10s }}");
    Proxy::with_settings(&format!("{settings}\n{store}"), &[policy])
}

#[test]
fn call_has_a_span_below_the_request() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let redis = Redis::start();
    let policy = Policy::before(&upstream).rate("10/hour");
    let proxied = with_redis(&receiver, &redis.settings(), "sample: 1", &policy);
    proxied.send(get("/one").by("alice")).assert_status(200);
    let spans = receiver.wait_for_path("/one");
    let [server, call, attempt] = &spans[..] else { panic!("{spans:#?}") };
    server.assert_attributes(&[
        ("tollgate.store", "redis"),
        ("tollgate.limit.used", "1"),
        ("tollgate.limit.decision", "allow"),
    ]);
    // The script is sent whole when it is first used.
    assert_eq!((call.name.as_str(), call.kind), ("EVAL", SpanKind::Client));
    assert!(!call.is_error);
    call.assert_attributes(&[
        ("db.system.name", "redis"),
        ("db.operation.name", "EVAL"),
        ("server.address", "127.0.0.1"),
        ("server.port", &redis.port().to_string()),
        ("error.type", "-"),
    ]);
    assert!(server.nanos.0 <= call.nanos.0 && call.nanos.1 <= attempt.nanos.0, "{spans:#?}");
    proxied.send(get("/two").by("alice")).assert_status(200);
    assert_eq!(receiver.wait_for_path("/two")[1].name, "EVALSHA");
}

#[test]
fn calls_of_a_denied_request_are_recorded_whatever_the_share() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let redis = Redis::start();
    let policy = Policy::before(&upstream).rate("1/hour");
    let proxied = with_redis(&receiver, &redis.settings(), "sample: 0", &policy);
    proxied.send(get("/allowed").by("alice")).assert_status(200);
    proxied.send(get("/denied").by("alice")).assert_status(429);
    // The worker remembers that Redis has denied it, and makes no call.
    proxied.send(get("/remembered").by("alice")).assert_status(429);
    let denied = receiver.wait_for_path("/denied");
    assert_eq!(denied.len(), 2, "{denied:#?}");
    denied[1].assert_attributes(&[("db.operation.name", "EVALSHA")]);
    assert_eq!(denied[1].trace_id, denied[0].trace_id);
    let remembered = receiver.wait_for_path("/remembered");
    assert_eq!(remembered.len(), 1, "{remembered:#?}");
    drop(proxied);
    assert_eq!(receiver.spans().len(), 3);
}

#[test]
fn calls_of_several_servers_each_have_a_span() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let shards = Shards::start(3);
    let policy = Policy::before(&upstream).on_all_routes(&[
        "own: { per: caller, rate: 100/hour }",
        "host: { per: host, rate: 100/hour }",
    ]);
    let proxied = with_redis(&receiver, &shards.settings(), "sample: 1", &policy);
    // One of a few callers has its counter at another server than the host.
    let names: Vec<String> = (0..40).map(|number| format!("c{number}")).collect();
    for name in &names {
        proxied.send(get(&format!("/{name}")).by(name)).assert_status(200);
    }
    let calls = names.iter().map(|name| {
        let spans = receiver.wait_for_path(&format!("/{name}"));
        spans.iter().filter(|span| span.attribute("db.system.name") == "redis").count()
    });
    let calls: Vec<usize> = calls.collect();
    assert!(calls.iter().all(|calls| (1..=2).contains(calls)), "{calls:?}");
    assert!(calls.contains(&2), "{calls:?}");
}

#[test]
fn requests_that_share_a_round_trip_each_have_their_call() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let redis = Redis::start();
    let policy = Policy::before(&upstream).rate("100/hour");
    let proxied = with_redis(&receiver, &redis.settings(), "sample: 1", &policy);
    proxied.send(get("/first").by("x")).assert_status(200);
    redis.pause();
    thread::scope(|scope| {
        for number in 0..4 {
            let proxied = &proxied;
            scope.spawn(move || {
                let name = format!("c{number}");
                proxied.send(get(&format!("/{name}")).by(&name)).assert_status(200);
            });
        }
        redis.resume();
    });
    for number in 0..4 {
        let spans = receiver.wait_for_path(&format!("/c{number}"));
        let calls = spans.iter().filter(|span| span.attribute("db.system.name") == "redis");
        assert_eq!(calls.count(), 1, "{spans:#?}");
    }
}

#[test]
fn call_that_got_no_reply_is_an_error() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let redis = Redis::start();
    let policy = Policy::before(&upstream).core("rate: 100/hour, on_store_error: open");
    let settings = receiver.settings("sample: 1");
    let store = format!("store: {{ redis: {{ {} }}, deadline: 500ms }}", redis.settings());
    let proxied = Proxy::with_settings(&format!("{settings}\n{store}"), &[&policy]);
    // A server that was never reached is not called.
    eventually("redis decides", || {
        proxied.send(get("/answered").by("bob")).assert_status(200);
        let decided = |span: &ExportedSpan| span.attribute("tollgate.store") == "redis";
        receiver.spans().iter().any(decided).then_some(())
    });
    redis.pause();
    proxied.send(get("/unanswered").by("alice")).assert_status(200);
    let spans = receiver.wait_for_path("/unanswered");
    redis.resume();
    let call = &spans[1];
    assert!(call.is_error, "{spans:#?}");
    call.assert_attributes(&[("error.type", "timeout")]);
    // Nobody has decided: there is no standing to tell.
    spans[0].assert_attributes(&[("tollgate.limit.name", "-")]);
}

#[test]
fn counters_in_the_process_make_no_calls() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let proxied = proxy(&receiver, "sample: 1", &Policy::before(&upstream).rate("10/hour"));
    proxied.send(get("/one").by("alice")).assert_status(200);
    assert_eq!(receiver.wait_for_path("/one").len(), 2);
}
