//! Whose trace a request belongs to, what the upstream hears of it, and the trace id in the log.

use super::{PARENT, TRACE, proxy, traceparent, trusting};
use crate::support::{OtlpReceiver, Policy, Proxy, Upstream, get};

/// The trace, the span and the flags that the upstream was sent.
fn sent(upstream: &Upstream) -> (String, String, String) {
    let fields = upstream.last().fields;
    assert_eq!(fields.all("traceparent").len(), 1, "{fields:?}");
    let value = fields.one("traceparent").unwrap();
    let parts: Vec<&str> = value.split('-').collect();
    let ["00", trace, span, flags] = parts[..] else { panic!("{value}") };
    assert!(trace.len() == 32 && span.len() == 16 && flags.len() == 2, "{value}");
    (trace.to_owned(), span.to_owned(), flags.to_owned())
}

#[test]
fn trace_of_a_trusted_proxy_goes_on() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let proxied = trusting(&receiver, "sample: 0", &Policy::before(&upstream));
    let request = get("/in").field("traceparent", &traceparent("01"));
    let request = request.field("tracestate", "a=1,b=2").field("tracestate", "c=3");
    proxied.send(request).assert_status(200);
    let spans = receiver.wait_for_path("/in");
    let (trace, span, flags) = sent(&upstream);
    assert_eq!((trace.as_str(), flags.as_str()), (TRACE, "01"));
    assert_eq!(span, spans[1].span_id);
    assert_eq!(upstream.last().fields.all("tracestate"), ["a=1,b=2,c=3"]);
    assert_eq!((spans[0].trace_id.as_str(), spans[0].parent.as_str()), (TRACE, PARENT));
    assert_eq!((spans[0].state.as_str(), spans[0].flags), ("a=1,b=2,c=3", 0x301));
    assert_ne!(spans[0].span_id, spans[1].span_id);
}

#[test]
fn trace_that_is_not_sampled_goes_on_unrecorded() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let proxied = trusting(&receiver, "sample: 0", &Policy::before(&upstream));
    let request = get("/").field("traceparent", &traceparent("00")).field("tracestate", "a=1");
    proxied.send(request).assert_status(200);
    let (trace, span, flags) = sent(&upstream);
    assert_eq!((trace.as_str(), flags.as_str()), (TRACE, "00"));
    assert_ne!(span, PARENT);
    assert_eq!(upstream.last().fields.all("tracestate"), ["a=1"]);
    drop(proxied);
    assert!(receiver.spans().is_empty());
}

#[test]
fn anybody_else_begins_a_trace() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream);
    let foreign = get("/").field("traceparent", &traceparent("01")).field("tracestate", "a=1");
    for (proxied, trusts) in [
        (proxy(&receiver, "sample: 0", &policy), false),
        (proxy(&receiver, "sample: 0, trust_parent: always", &policy), true),
        (trusting(&receiver, "sample: 0, trust_parent: never", &policy), false),
        (trusting(&receiver, "sample: 0, trust_parent: trusted", &policy), true),
    ] {
        proxied.send(foreign.clone()).assert_status(200);
        let (trace, _, flags) = sent(&upstream);
        assert_eq!(trace == TRACE, trusts);
        assert_eq!(flags == "01", trusts);
        let state = upstream.last().fields;
        assert_eq!(state.all("tracestate").len(), usize::from(trusts));
    }
}

#[test]
fn what_is_no_parent_begins_a_trace() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let proxied = trusting(&receiver, "sample: 0", &Policy::before(&upstream));
    for parents in [
        vec![],
        vec![format!("00-{}-{PARENT}-01", TRACE.to_uppercase())],
        vec![format!("ff-{TRACE}-{PARENT}-01")],
        vec![format!("00-{}-{PARENT}-01", "0".repeat(32))],
        vec![format!("00-{TRACE}-{}-01", "0".repeat(16))],
        vec![traceparent("01"), traceparent("01")],
    ] {
        let request =
            parents.iter().fold(get("/").field("tracestate", "a=1"), |request, parent| {
                request.field("traceparent", parent)
            });
        proxied.send(request).assert_status(200);
        let (trace, _, flags) = sent(&upstream);
        assert_ne!(trace, TRACE, "{parents:?}");
        assert_eq!(flags, "00");
        assert!(upstream.last().fields.all("tracestate").is_empty(), "{parents:?}");
    }
    // A bad list is left behind, and the trace goes on.
    let request = get("/").field("traceparent", &traceparent("01")).field("tracestate", "A=1");
    proxied.send(request).assert_status(200);
    assert_eq!(sent(&upstream).0, TRACE);
    assert!(upstream.last().fields.all("tracestate").is_empty());
    // A later version is read, and goes on as the one that is known.
    let later = format!("cc-{TRACE}-{PARENT}-01-more");
    proxied.send(get("/").field("traceparent", &later)).assert_status(200);
    assert_eq!((sent(&upstream).0.as_str(), sent(&upstream).2.as_str()), (TRACE, "01"));
}

#[test]
fn proxies_with_one_share_record_the_same_traces() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream);
    let proxies = [0, 1].map(|_| trusting(&receiver, "sample: 0.5", &policy));
    // The last eight bytes, halved, are below or above half of their range.
    for (path, low, expected) in
        [("/below", "7fffffffffffffff", "01"), ("/above", "8000000000000000", "00")]
    {
        for proxied in &proxies {
            let parent = format!("00-{}{low}-{PARENT}-00", &TRACE[..16]);
            proxied.send(get(path).field("traceparent", &parent)).assert_status(200);
            assert_eq!(sent(&upstream).2, expected, "{path}");
        }
    }
    receiver.wait_for(4);
    drop(proxies);
    let servers = receiver.spans().into_iter().filter(|span| span.attribute("url.path") != "-");
    let paths: Vec<String> = servers.map(|span| span.attribute("url.path").to_owned()).collect();
    assert_eq!(paths, ["/below", "/below"]);
}

#[test]
fn without_traces_fields_go_through_as_they_are() {
    let upstream = Upstream::start();
    for settings in ["workers: 1", "workers: 1\ntracing: { sample: 1 }"] {
        let proxied = Proxy::with_settings(settings, &[&Policy::before(&upstream)]);
        let request = get("/").field("traceparent", "anything").field("tracestate", "A b");
        proxied.send(request).assert_status(200);
        let fields = upstream.last().fields;
        assert_eq!(fields.all("traceparent"), ["anything"]);
        assert_eq!(fields.all("tracestate"), ["A b"]);
        proxied.get("/").assert_status(200);
        assert!(upstream.last().fields.all("traceparent").is_empty());
        assert!(!proxied.into_log().contains("trace_id"));
    }
}

#[test]
fn lines_of_the_log_name_the_trace() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream);
    let settings = receiver.settings("sample: 0, trust_parent: always");
    for (format, expected) in
        [("text", format!(" trace_id={TRACE} ")), ("json", format!(",\"trace_id\":\"{TRACE}\","))]
    {
        let settings = format!("{settings}\naccess_log: {{ format: {format} }}");
        let proxied = Proxy::with_settings(&settings, &[&policy]);
        proxied.send(get("/").field("traceparent", &traceparent("00"))).assert_status(200);
        let log = proxied.into_log();
        assert!(log.contains(&expected), "{log}");
    }
}
