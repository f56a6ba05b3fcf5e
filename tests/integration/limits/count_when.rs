//! Limits that count only some responses: charged on arrival, given back when the response does not
//! count.

use crate::support::{
    HOUR, Policy, Proxy, Redis, Request, Signal, Upstream, algorithms, eventually,
    frames::{Frames, HEADERS, get_on},
    get, token_signed_by,
};

/// Three failed attempts an hour.
fn attempts(upstream: &Upstream, more: &str) -> Policy {
    let limit = format!(
        "login: {{ per: client.ip, rate: 3/hour, count_when: {{ status: [401, 403] }}{more} }}"
    );
    Policy::before(upstream).on_all_routes(&[&limit])
}

#[test]
fn only_failures_count_and_then_nothing_passes() {
    let upstream = Upstream::as_asked();
    for algorithm in algorithms() {
        let proxy = Proxy::start(&attempts(&upstream, &format!(", algorithm: {algorithm}")));
        let mut failures = 0;
        for status in [200, 401, 404, 200, 403, 500, 304, 401] {
            failures += u64::from([401, 403].contains(&status));
            let response = proxy.send(get("/").wants(status));
            response.assert_status(status);
            let used = response.number("x-ratelimit-used");
            assert_eq!(used, failures, "{status} by {algorithm}");
            assert_eq!(response.number("x-ratelimit-remaining"), 3 - failures);
        }
        let seen = upstream.count();
        for status in [200, 401] {
            let denied = proxy.send(get("/").wants(status));
            denied.assert_status(429).assert_field("x-tollgate-denied-by", "login");
        }
        assert_eq!(upstream.count(), seen, "{algorithm}");
        proxy.advance(2 * HOUR);
        proxy.send(get("/").wants(200)).assert_status(200);
    }
}

#[test]
fn window_is_opened_by_the_first_attempt() {
    let upstream = Upstream::as_asked();
    let proxy = Proxy::start(&attempts(&upstream, ""));
    let reset = super::reset_after(3600);
    proxy.get("/").assert_limit(["3", "3", "0", &reset, "login"]);
    proxy.advance(HOUR / 2);
    proxy.send(get("/").wants(401)).assert_limit(["3", "2", "1", &reset, "login"]);
}

#[test]
fn token_that_the_proxy_refuses_is_a_failure_of_its_address() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&attempts(&upstream, ""));
    let forged = |sub: &str| {
        let claims = serde_json::json!({ "sub": sub });
        get("/").token(&token_signed_by("a secret that is not the one of this issuer", &claims))
    };
    proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-used", "0");
    for (sub, used) in [("alice", "1"), ("bob", "2"), ("carol", "3")] {
        proxy.send(forged(sub)).assert_status(401).assert_field("x-ratelimit-used", used);
    }
    proxy.send(forged("dave")).assert_status(429);
    // Guessing has an end, and so has everything else from there.
    proxy.get_as("alice").assert_status(429);
    assert_eq!(upstream.count(), 1);
}

#[test]
fn denial_is_no_failure_that_counts() {
    let upstream = Upstream::as_asked();
    let policy = attempts(&upstream, "").responses(&["denied_status: 403"]);
    let proxy = Proxy::start(&policy);
    for _ in 0..3 {
        proxy.send(get("/").wants(401)).assert_status(401);
    }
    for _ in 0..3 {
        proxy.get("/").assert_status(403).assert_field("x-ratelimit-used", "3");
    }
    proxy.advance(HOUR);
    proxy.get("/").assert_status(200);
}

#[test]
fn denial_by_another_limit_is_no_failure_either() {
    let upstream = Upstream::as_asked();
    let policy = Policy::before(&upstream)
        .on_all_routes(&[
            "core: { per: caller, rate: 1/hour }",
            "login: { per: client.ip, rate: 3/hour, count_when: { status: [403] } }",
        ])
        .responses(&["denied_status: 403"]);
    let proxy = Proxy::start(&policy);
    proxy.get_as("alice").assert_status(200);
    for _ in 0..5 {
        proxy.get_as("alice").assert_status(403).assert_field("x-tollgate-denied-by", "core");
    }
    assert_eq!(proxy.used("alice", "login"), 0);
    proxy.send(get("/").by("bob").wants(403)).assert_status(403);
    assert_eq!(proxy.used("bob", "login"), 1);
}

/// Attempts that come at once, of which three may reach the upstream.
const AT_ONCE: usize = 12;

/// Answers every request with 401 when `go` is open.
fn failing(go: &Signal) -> Upstream {
    let go = go.clone();
    Upstream::scripted(move |exchange| {
        go.wait();
        exchange.write("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n");
    })
}

/// Sends attempts at once: three wait for the upstream, all others are denied until one of those is
/// answered.
fn outrun(proxy: &Proxy, upstream: &Upstream, go: &Signal, case: &str) {
    let mut clients: Vec<_> = (0..AT_ONCE).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.write(get("/").to_bytes());
    }
    upstream.wait_for(3);
    // Attempts that reached the upstream have no answer before `go` opens.
    let (denied, waiting) = eventually("all but three are denied", || {
        let has_answer = |index: &usize| clients[*index].has_answer();
        let (denied, waiting): (Vec<usize>, _) = (0..AT_ONCE).partition(has_answer);
        (denied.len() >= AT_ONCE - 3).then_some((denied, waiting))
    });
    for index in denied {
        clients[index].read().assert_status(429).assert_field("retry-after", "1");
    }
    go.open();
    for index in waiting {
        clients[index].read().assert_status(401);
    }
    assert_eq!(upstream.count(), 3, "{case}");
    assert_eq!(proxy.used("alice", "login"), 3, "{case}");
    // These were counted for good, and come back with the window.
    assert!(proxy.get("/").assert_status(429).number("retry-after") > 1, "{case}");
}

#[test]
fn attempts_at_once_do_not_outrun_the_limit() {
    for algorithm in algorithms() {
        let go = Signal::default();
        let upstream = failing(&go);
        let proxy = Proxy::start(&attempts(&upstream, &format!(", algorithm: {algorithm}")));
        outrun(&proxy, &upstream, &go, algorithm);
    }
}

#[test]
fn attempts_at_once_do_not_outrun_the_limit_with_redis() {
    let redis = Redis::start();
    for algorithm in algorithms() {
        let go = Signal::default();
        let upstream = failing(&go);
        let policy = attempts(&upstream, &format!(", algorithm: {algorithm}"));
        let settings = format!("prefix: {algorithm}, {}", redis.settings());
        let store = format!("redis: {{ {settings} }}, deadline: 10s");
        let proxy = Proxy::with_store(&store, &policy);
        outrun(&proxy, &upstream, &go, algorithm);
    }
}

#[test]
fn attempts_at_once_on_one_http2_connection_do_not_outrun_the_limit() {
    let go = Signal::default();
    let upstream = failing(&go);
    let proxy = Proxy::start(&attempts(&upstream, ""));
    let mut frames = Frames::open(proxy.address());
    let streams: Vec<u32> = (0..AT_ONCE as u32).map(|number| 2 * number + 1).collect();
    frames.write(streams.iter().flat_map(|stream| get_on(*stream)).collect::<Vec<u8>>());
    upstream.wait_for(3);
    let mut wait_for_heads = |count: usize| {
        for _ in 0..count {
            frames.read_until(|frame| frame.kind == HEADERS).expect("the head of a response");
        }
    };
    // The upstream answers nothing before `go` opens, so these are denials.
    wait_for_heads(AT_ONCE - 3);
    go.open();
    wait_for_heads(3);
    assert_eq!(upstream.count(), 3);
    assert_eq!(proxy.used("alice", "login"), 3);
}

#[test]
fn units_that_are_given_back_let_the_next_attempt_in() {
    let go = Signal::default();
    let upstream = {
        let go = go.clone();
        Upstream::scripted(move |exchange| {
            go.wait();
            exchange.answer_ok();
        })
    };
    let proxy = Proxy::start(&attempts(&upstream, ""));
    let mut clients = [(); 3].map(|()| proxy.connect());
    for client in &mut clients {
        client.write(get("/").to_bytes());
    }
    upstream.wait_for(3);
    proxy.get("/").assert_status(429).assert_field("retry-after", "1");
    go.open();
    for client in &mut clients {
        client.read().assert_status(200);
    }
    for _ in 0..9 {
        proxy.get("/").assert_status(200).assert_field("x-ratelimit-used", "0");
    }
}

#[test]
fn to_hang_up_is_no_way_around_it() {
    let upstream = Upstream::silent();
    let proxy = Proxy::start(&attempts(&upstream, ""));
    for number in 1..=3 {
        let mut client = proxy.connect();
        client.write(get("/").to_bytes());
        upstream.wait_for(number);
        drop(client);
        proxy.wait_until_logged_times(" 499 ", number);
        assert_eq!(proxy.used("alice", "login"), number as u64);
    }
    proxy.get("/").assert_status(429);
}

#[test]
fn failure_costs_what_its_route_says() {
    let upstream = Upstream::as_asked();
    let policy = Policy::before(&upstream)
        .limits(&["login: { per: client.ip, rate: 5/hour, count_when: { status: [4xx] } }"])
        .routes(&["{ match: { path: /** }, limits: [login], cost: { POST: 3, default: 1 } }"]);
    let proxy = Proxy::start(&policy);
    let post = || Request::new("POST", "/").field("content-length", "0");
    proxy.send(post().wants(200)).assert_field("x-ratelimit-used", "0");
    proxy.send(post().wants(422)).assert_field("x-ratelimit-used", "3");
    // A failure of this kind would not fit any more, one of the other would.
    proxy.send(post().wants(200)).assert_status(429).assert_field("x-ratelimit-used", "3");
    proxy.send(get("/").wants(404)).assert_status(404).assert_field("x-ratelimit-used", "4");
}
