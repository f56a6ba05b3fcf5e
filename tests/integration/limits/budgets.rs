//! Costs that the body of a response tells, its length or its time; and what is reserved for them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Policy, Proxy, Redis, Request, Signal, Upstream, eventually, get, post};

/// Ten thousand in each way.
const MEASURES: [&str; 6] = [
    "rate: 10000/hour",
    "rate: 10000/hour, align: epoch",
    "rate: 10000/hour, algorithm: sliding_window",
    "rate: 10000/hour, algorithm: sliding_log",
    "rate: 10000/hour, algorithm: token_bucket",
    "rate: 10000/hour, algorithm: gcra",
];

const TOKENS: &str = "cost: { from_response: { usage: auto }, weights: { cached: 0.1, output: 4 }, \
                      reserve: { from_request: [max_completion_tokens, max_tokens], plus_body: 0.25, default: 50 } }";

fn proxy(upstream: &Upstream, fields: &str) -> Proxy {
    Proxy::start(&Policy::before(upstream).core(fields))
}

/// A request of alice with this body of JSON.
fn ask(body: &str) -> Request {
    post("/v1/chat/completions", body).field("content-type", "application/json").by("alice")
}

/// A response of this type.
fn answer(content_type: &str, body: &str) -> String {
    let bytes = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {bytes}\r\n\r\n{body}"
    )
}

/// What a model answers that has used so many tokens.
fn completion(prompt: u64, cached: u64, completion: u64) -> String {
    let usage = json!({
        "prompt_tokens": prompt,
        "prompt_tokens_details": { "cached_tokens": cached },
        "completion_tokens": completion,
    });
    answer("application/json", &json!({ "choices": [], "usage": usage }).to_string())
}

/// A part of a stream.
fn chunk(event: &Value) -> String {
    let data = format!("data: {event}\n\n");
    format!("{:x}\r\n{data}\r\n", data.len())
}

fn delta(content: &str) -> String {
    chunk(&json!({ "choices": [{ "delta": { "content": content } }], "usage": null }))
}

fn last_chunk(prompt: u64, completion: u64) -> String {
    let usage = json!({ "prompt_tokens": prompt, "completion_tokens": completion });
    chunk(&json!({ "choices": [], "usage": usage }))
}

const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const STREAM_END: &str = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

fn wait_for_use(proxy: &Proxy, used: u64, case: &str) {
    let what = format!("{used} are used: {case}");
    eventually(&what, || (proxy.used("alice", "core") == used).then_some(()));
}

#[test]
fn tokens_of_a_response_replace_what_was_reserved() {
    for measure in MEASURES {
        let upstream = Upstream::answering(completion(110, 100, 20));
        let proxy = proxy(&upstream, &format!("{measure}, {TOKENS}"));
        // 18 bytes of the body, a quarter each, are 4.5, and 4 for each of 100 tokens.
        let response = proxy.send(ask(r#"{"max_tokens":100}"#));
        response.assert_status(200).assert_field("x-ratelimit-used", "405");
        // 10 of the prompt, 10 for those from the cache, and 80.
        wait_for_use(&proxy, 100, measure);
        assert_eq!(upstream.last().fields.one("accept-encoding"), Some("identity"));
    }
}

#[test]
fn reserves_keep_requests_at_once_below_the_limit() {
    for measure in MEASURES {
        let (asked, go) = (Signal::default(), Signal::default());
        let upstream = Upstream::held(&asked, &go);
        let proxy = proxy(&upstream, &format!("{measure}, {TOKENS}"));
        let body = r#"{"max_completion_tokens":1000,"max_tokens":1}"#;
        let mut clients: Vec<_> = (0..2).map(|_| proxy.connect()).collect();
        for (sent, client) in clients.iter_mut().enumerate() {
            client.write(ask(body).to_bytes());
            upstream.wait_for(sent + 1);
        }
        proxy.send(ask(body)).assert_status(429);
        go.open();
        for client in &mut clients {
            client.read().assert_status(200);
        }
    }
}

#[test]
fn what_a_request_may_make_is_what_its_body_says() {
    let upstream = Upstream::answering(completion(0, 0, 0));
    let cost = "cost: { from_response: { usage: auto }, weights: { output: 2 }, reserve: { \
                from_request: [max_tokens, generationConfig.maxOutputTokens], default: 50, at_most: 500 } }";
    for (body, reserved) in [
        (r#"{"max_tokens":10}"#, 20),
        (r#"{"max_tokens":10,"n":3}"#, 60),
        (r#"{"max_tokens":10,"n":null}"#, 20),
        (r#"{"max_tokens":10.0}"#, 20),
        (r#"{"max_tokens":1e1}"#, 20),
        (r#"{"max_tokens":null}"#, 50),
        (r#"{"generationConfig":{"maxOutputTokens":7,"candidateCount":2}}"#, 28),
        (r#"{"max_tokens":100000}"#, 500),
        (r#"{"prompt":"max_tokens"}"#, 50),
        ("no JSON", 50),
        ("", 50),
    ] {
        let proxy = proxy(&upstream, &format!("rate: 10000/hour, {cost}"));
        let response = proxy.send(ask(body));
        response.assert_status(200).assert_field("x-ratelimit-used", &reserved.to_string());
        assert_eq!(String::from_utf8_lossy(&upstream.last().body), body);
    }
}

#[test]
fn what_two_readers_may_read_otherwise_is_refused_and_costs_nothing() {
    let upstream = Upstream::answering(completion(1, 0, 1));
    let proxy = proxy(&upstream, &format!("rate: 10000/hour, {TOKENS}"));
    for (body, why) in [
        (r#"{"max_tokens":-1}"#, "`max_tokens` in its body is negative"),
        (r#"{"max_tokens":1.5}"#, "`max_tokens` in its body is not a whole number"),
        (r#"{"max_tokens":"100"}"#, "`max_tokens` in its body is not a whole number"),
        (r#"{"max_tokens":[1]}"#, "`max_tokens` in its body is not a whole number"),
        (
            r#"{"max_tokens":1,"max_tokens":9}"#,
            "`max_tokens` in its body is there twice, or in other letters",
        ),
        (
            r#"{"max_tokens":1,"max\u005ftokens":9}"#,
            "`max_tokens` in its body is there twice, or in other letters",
        ),
        (r#"{"max_tokens":1,"n":0.5}"#, "`n` in its body is not a whole number"),
    ] {
        let response = proxy.send(ask(body));
        response.assert_status(400);
        assert!(response.text().contains(why), "{}", response.text());
    }
    assert_eq!((proxy.used("alice", "core"), upstream.count()), (0, 0));
}

#[test]
fn more_than_the_limit_is_a_debt() {
    for measure in MEASURES {
        let upstream = Upstream::answering(completion(0, 0, 5000));
        let proxy = proxy(&upstream, &format!("{measure}, {TOKENS}"));
        proxy.send(ask("{}")).assert_status(200);
        eventually("it is settled", || (proxy.used("alice", "core") >= 10_000).then_some(()));
        let denied = proxy.send(ask(r#"{"max_tokens":0}"#));
        denied.assert_status(429).assert_field("x-ratelimit-remaining", "0");
        // A window later half of the debt is left where counters do not start anew.
        proxy.advance(Duration::from_secs(denied.number("retry-after")));
        proxy.send(ask(r#"{"max_tokens":0}"#)).assert_status(200);
    }
}

#[test]
fn streams_are_passed_on_as_they_come_and_settled_at_their_end() {
    let go = Signal::default();
    let upstream = {
        let go = go.clone();
        Upstream::scripted(move |exchange| {
            exchange.write(STREAM_HEAD);
            exchange.write(delta("Hello"));
            go.wait();
            exchange.write(last_chunk(10, 5));
            exchange.write(STREAM_END);
        })
    };
    let proxy = proxy(&upstream, &format!("rate: 10000/hour, {TOKENS}"));
    let mut client = proxy.connect();
    client.write(ask(r#"{"max_tokens":25,"stream":true}"#).to_bytes());
    client.read_head().assert_status(200).assert_field("x-ratelimit-used", "108");
    let first = client.read_chunk().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("Hello"));
    assert_eq!(proxy.used("alice", "core"), 108);
    go.open();
    while client.read_chunk().is_some() {}
    wait_for_use(&proxy, 30, "10 of the prompt and 4 times 5");
}

#[test]
fn streams_that_do_not_tell_are_estimated() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write(STREAM_HEAD);
        exchange.write(delta("sixteen letters."));
        exchange.write(delta("\u{e9}"));
        exchange.write(STREAM_END);
    });
    let proxy = proxy(&upstream, &format!("rate: 10000/hour, {TOKENS}"));
    proxy.send(ask(r#"{"max_tokens":1000,"a":1}"#)).assert_status(200);
    // A quarter of 25 bytes, and 4 times a quarter of 18.
    wait_for_use(&proxy, 7 + 18, "what was sent, and what has passed");
}

#[test]
fn what_cannot_be_read_costs_what_was_reserved() {
    for (kind, body) in [
        ("text/html", "<p>502</p>"),
        ("application/json", "{\"usage\":"),
        ("application/json", "{\"error\":{}}"),
        ("application/json\r\ncontent-encoding: br", "{\"usage\":{\"prompt_tokens\":1}}"),
    ] {
        let upstream = Upstream::answering(answer(kind, body));
        let proxy = proxy(&upstream, &format!("rate: 10000/hour, {TOKENS}"));
        proxy.send(ask(r#"{"max_tokens":9}"#)).assert_status(200);
        proxy.send(ask(r#"{"max_tokens":9}"#)).assert_status(200);
        wait_for_use(&proxy, 80, kind);
    }
}

#[test]
fn statuses_that_are_refunded_cost_nothing_whatever_they_tell() {
    let body = r#"{"usage":{"prompt_tokens":100}}"#;
    let upstream = Upstream::answering(
        answer("application/json", body).replace("200 OK", "500 Internal Server Error"),
    );
    let proxy =
        proxy(&upstream, &format!("rate: 10000/hour, refund: {{ status: [5xx] }}, {TOKENS}"));
    let response = proxy.send(ask(r#"{"max_tokens":9}"#));
    response.assert_status(500).assert_field("x-ratelimit-used", "0");
    assert_eq!(proxy.used("alice", "core"), 0);
}

#[test]
fn client_that_hangs_up_in_a_stream_pays_what_it_tells_at_its_end() {
    let go = Signal::default();
    let upstream = {
        let go = go.clone();
        Upstream::scripted(move |exchange| {
            exchange.write(STREAM_HEAD);
            exchange.write(delta("Hello"));
            go.wait();
            exchange.write(last_chunk(10, 77));
            exchange.write(STREAM_END);
        })
    };
    let proxy = proxy(&upstream, &format!("rate: 10000/hour, {TOKENS}"));
    let mut client = proxy.connect();
    client.write(ask(r#"{"max_tokens":25,"stream":true}"#).to_bytes());
    client.read_head().assert_status(200);
    client.read_chunk();
    drop(client);
    proxy.wait_until_logged("aborted");
    assert_eq!(proxy.used("alice", "core"), 108);
    go.open();
    wait_for_use(&proxy, 10 + 4 * 77, "what the last event tells");
}

#[test]
fn upstream_may_be_left_with_the_client_for_what_was_seen() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write(STREAM_HEAD);
        exchange.write(delta("sixteen letters."));
        exchange.wait_for_close();
    });
    let cost = TOKENS.replace("cost: {", "cost: { stop_upstream: true,");
    let proxy = proxy(&upstream, &format!("rate: 10000/hour, {cost}"));
    let mut client = proxy.connect();
    client.write(ask(r#"{"max_tokens":25,"stream":true}"#).to_bytes());
    client.read_head().assert_status(200);
    client.read_chunk();
    drop(client);
    wait_for_use(&proxy, 8 + 16, "a quarter of 31 bytes, and 4 times a quarter of 16");
}

#[test]
fn number_in_a_response_may_be_the_cost() {
    let upstream = Upstream::answering(answer("application/json", r#"{"meta":{"cost":2.5}}"#));
    let cost = "cost: { from_response: { json: [cost, meta.cost] }, reserve: 10 }";
    let proxy = proxy(&upstream, &format!("rate: 10000/hour, {cost}"));
    proxy.send(ask("{}")).assert_field("x-ratelimit-used", "10");
    wait_for_use(&proxy, 3, "rounded up");
}

#[test]
fn bytes_may_be_the_cost() {
    let upstream = Upstream::answering(answer("text/plain", &"x".repeat(2500)));
    for (source, used) in [
        ("response_bytes", 2500),
        ("{ response_bytes: { unit: 1KiB } }", 3),
        ("request_bytes", 1030),
        ("{ request_bytes: { unit: 1KiB } }", 2),
    ] {
        let proxy =
            proxy(&upstream, &format!("rate: 10000/hour, cost: {{ from_response: {source} }}"));
        proxy.send(ask(&"x".repeat(1030))).assert_status(200);
        wait_for_use(&proxy, used, source);
    }
}

#[test]
fn time_may_be_the_cost() {
    let (asked, go) = (Signal::default(), Signal::default());
    let upstream = Upstream::held(&asked, &go);
    let cost = "cost: { from_response: { upstream_time: { unit: 100ms } }, reserve: 5 }";
    let proxy = proxy(&upstream, &format!("rate: 10000/hour, {cost}"));
    let mut client = proxy.connect();
    client.write(ask("{}").to_bytes());
    asked.wait();
    assert_eq!(proxy.used("alice", "core"), 5);
    proxy.advance(Duration::from_millis(1250));
    go.open();
    client.read().assert_status(200);
    wait_for_use(&proxy, 13, "1.25 s");
}

#[test]
fn bodies_that_are_longer_than_what_is_read_ahead_count_by_their_length() {
    let upstream = Upstream::answering(completion(0, 0, 0));
    let cost = "cost: { from_response: { usage: auto }, reserve: { from_request: [max_tokens], \
                plus_body: 1, default: 50, at_most: 9000 } }";
    let body = format!(r#"{{"max_tokens":1,"x":"{}"}}"#, "x".repeat(2000));
    let policy = Policy::before(&upstream).core(&format!("rate: 10000/hour, {cost}"));
    for (peek, used) in [("1KiB", 50 + body.len()), ("64KiB", 1 + body.len())] {
        let proxy = Proxy::with_settings(&format!("limits: {{ body_peek: {peek} }}"), &[&policy]);
        let response = proxy.send(ask(&body));
        response.assert_status(200).assert_field("x-ratelimit-used", &used.to_string());
        assert_eq!(String::from_utf8_lossy(&upstream.last().body), body);
    }
}

#[test]
fn tokens_are_settled_in_redis() {
    let redis = Redis::start();
    for (number, measure) in MEASURES.into_iter().enumerate() {
        let upstream = Upstream::answering(completion(110, 100, 20));
        let policy = Policy::before(&upstream).core(&format!("{measure}, {TOKENS}"));
        let settings = format!("prefix: p{number}, {}", redis.settings());
        let proxy = Proxy::with_redis(&settings, &policy);
        let response = proxy.send(ask(r#"{"max_tokens":100}"#));
        response.assert_status(200).assert_field("x-ratelimit-used", "405");
        wait_for_use(&proxy, 100, measure);
    }
}

#[test]
fn log_has_what_was_reserved_and_what_it_came_to() {
    let upstream = Upstream::answering(completion(110, 100, 20));
    let policy = Policy::before(&upstream).core(&format!("rate: 10000/hour, {TOKENS}"));
    let proxy = Proxy::with_settings("workers: 1\naccess_log: { format: json }", &[&policy]);
    proxy.send(ask(r#"{"max_tokens":100}"#)).assert_status(200);
    proxy.wait_until_logged("cost_source");
    let log = proxy.into_log();
    let line: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!(
        json!([line["cost"], line["reserved"], line["cost_source"]]),
        json!([100, 405, "auto"])
    );
    let own = &line["limits"][0];
    assert_eq!(
        json!([own["cost"], own["reserved"], own["cost_source"]]),
        json!([100, 405, "auto"])
    );
}

#[test]
fn openai_is_told_its_limits_as_it_tells_them() {
    let upstream = Upstream::answering(completion(0, 0, 0));
    let policy = Policy::before(&upstream)
        .limits(&[
            "core: { per: caller, rate: [2/minute, 100/day] }",
            &format!("tokens: {{ per: caller, rate: 1000/minute, {TOKENS} }}"),
        ])
        .routes(&["{ match: { path: /** }, limits: [core, tokens] }"])
        .responses(&["headers: openai"]);
    let proxy = Proxy::start(&policy);
    let response = proxy.send(ask(r#"{"max_tokens":25}"#));
    response.assert_status(200).assert_field("x-ratelimit-limit-requests", "2");
    response.assert_field("x-ratelimit-remaining-requests", "1");
    response.assert_field("x-ratelimit-reset-requests", "1m0s");
    response.assert_field("x-ratelimit-limit-tokens", "1000");
    response.assert_field("x-ratelimit-remaining-tokens", "895");
    response.assert_field("x-ratelimit-reset-tokens", "1m0s");
    response.assert_no_field("x-ratelimit-used").assert_no_field("retry-after-ms");
    let dear = proxy.send(ask(r#"{"max_tokens":300}"#));
    dear.assert_status(429);
    assert_eq!(dear.json()["error"]["type"], "tokens");
    proxy.send(ask("{}")).assert_status(200);
    let denied = proxy.send(ask("{}"));
    denied.assert_status(429).assert_field("retry-after", "60");
    denied.assert_field("retry-after-ms", "60000");
    let error = &denied.json()["error"];
    assert_eq!(
        json!([error["type"], error["code"], error["param"]]),
        json!(["requests", "rate_limit_exceeded", null])
    );
    assert!(error["message"].is_string());
}

#[test]
fn proxy_that_asks_is_charged_what_is_reserved_without_a_body() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).core(&format!("rate: 10000/hour, {TOKENS}"));
    let settings = "workers: 1\ndecisions: [{ address: 127.0.0.1:0, protocol: http }]";
    let proxy = Proxy::with_settings(settings, &[&policy]);
    let question = get("/decide/nginx")
        .host("api.example.com")
        .field("x-original-method", "POST")
        .field("x-original-uri", "/v1/chat/completions")
        .by("alice");
    proxy.ask(question).assert_status(204).assert_field("x-ratelimit-used", "50");
    assert_eq!(proxy.used("alice", "core"), 50);
}

const STREAM: &str = r#"{"stream":true,"max_tokens":10,"messages":[]}"#;

fn cost_with(stream_usage: &str) -> String {
    format!(
        "rate: 10000/hour, cost: {{ from_response: {{ usage: auto }}, reserve: 50, \
         stream_usage: {stream_usage} }}"
    )
}

#[test]
fn stream_that_would_not_tell_its_usage_may_be_refused() {
    let upstream = Upstream::answering(completion(1, 0, 1));
    let proxy = proxy(&upstream, &cost_with("require"));
    for refused in [
        STREAM,
        r#"{"stream":true,"messages":[],"stream_options":{"include_usage":false}}"#,
        r#"{"stream":true,"messages":[],"stream_options":null}"#,
        r#"{"stream":true,"prompt":"a"}"#,
        r#"{"stream":true,"messages":[],"stream_options":{"include_usage":true},"stream_options":{}}"#,
        r#"{"stream":true,"messages":[],"stream_options":{"include_usage":true,"Include_Usage":false}}"#,
        // What cannot be read may be such a request.
        "{",
        &format!("{STREAM}{}", " ".repeat(70_000)),
    ] {
        proxy.send(ask(refused)).assert_status(400);
    }
    // The field alone makes no request for Anthropic of it.
    proxy.send(ask(STREAM).field("anthropic-version", "2023-06-01")).assert_status(400);
    proxy.send(ask(STREAM).field("content-encoding", "br")).assert_status(400);
    let text = proxy.send(ask(STREAM)).text();
    assert!(text.contains("include_usage"), "{text}");
    assert_eq!((upstream.count(), proxy.used("alice", "core")), (0, 0));
    for admitted in [
        r#"{"stream":true,"messages":[],"stream_options":{"include_usage":true}}"#,
        r#"{"stream":false,"messages":[]}"#,
        r#"{"messages":[]}"#,
        r#"{"stream":true,"input":"a"}"#,
    ] {
        proxy.send(ask(admitted)).assert_status(200);
    }
    let messages = post("/v1/messages", STREAM).field("content-type", "application/json");
    proxy.send(messages.by("alice").field("anthropic-version", "2023-06-01")).assert_status(200);
}

#[test]
fn usage_that_is_no_number_costs_what_was_reserved() {
    for usage in [
        r#"{"prompt_tokens":5,"completion_tokens":-1}"#,
        r#"{"prompt_tokens":5,"completion_tokens":"9"}"#,
    ] {
        let upstream =
            Upstream::answering(answer("application/json", &format!("{{\"usage\":{usage}}}")));
        let proxy = proxy(
            &upstream,
            "rate: 1000/hour, cost: { from_response: { usage: auto }, reserve: 50 }",
        );
        proxy.send(ask("{}")).assert_status(200);
        proxy.wait_until_logged("cost_source=reserve");
        assert_eq!(proxy.used("alice", "core"), 50, "{usage}");
    }
}

#[test]
fn usage_of_a_stream_may_be_asked_for_in_place_of_the_client() {
    let stream = format!("{STREAM_HEAD}{}{}{STREAM_END}", delta("abcd"), last_chunk(30, 7));
    let upstream = Upstream::answering(stream);
    let proxy = proxy(&upstream, &cost_with("inject"));
    proxy.send(ask(STREAM)).assert_status(200);
    let received = upstream.last();
    let expected =
        r#"{"stream_options":{"include_usage":true},"stream":true,"max_tokens":10,"messages":[]}"#;
    assert_eq!(String::from_utf8_lossy(&received.body), expected);
    assert_eq!(received.fields.one("content-length"), Some(expected.len().to_string().as_str()));
    wait_for_use(&proxy, 37, "what the stream tells");
    // What asks already, or is no stream of Chat Completions, stays as it is.
    for untouched in [
        r#"{"stream":true,"messages":[],"stream_options": {"include_usage":true}}"#,
        r#"{"stream":true,"input":"a"}"#,
        r#"{"messages":[]}"#,
        "no JSON",
    ] {
        proxy.send(ask(untouched)).assert_status(200);
        assert_eq!(String::from_utf8_lossy(&upstream.last().body), untouched);
    }
}
