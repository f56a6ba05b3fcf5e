//! Costs that only the response states, of requests whose client does not wait for it.

use std::sync::Arc;

use tollgate::callers::top::RankBy;

use crate::support::{
    HOUR, Policy, Proxy, Redis, Request, Signal, Upstream, eventually, get, http2_given_up, token,
};

/// A thousand in each way.
const THOUSAND: [&str; 5] = [
    "rate: 1000/hour",
    "rate: 1000/hour, algorithm: sliding_window",
    "rate: 1000/hour, algorithm: sliding_log",
    "rate: 1000/hour, algorithm: token_bucket",
    "rate: 1000/hour, algorithm: gcra",
];

const COST_BY_RESPONSE: &str = "cost: { reserve: 4, from_response_header: x-cost }";

fn policy(upstream: &Upstream, fields: &str) -> Policy {
    Policy::before(upstream).core(fields)
}

/// Waits until alice has used so much.
fn wait_for_use(proxy: &Proxy, used: u64, case: &str) {
    let what = format!("{used} are used: {case}");
    eventually(&what, || (proxy.used("alice", "core") == used).then_some(()));
}

/// Sends a request and hangs up once the upstream has it. The proxy has noticed then.
fn hang_up(proxy: &Proxy, upstream: &Upstream, request: &Request) {
    let asked = upstream.count();
    let gone = proxy.logged_times(" 499 ");
    let mut client = proxy.connect();
    client.write(request.to_bytes());
    upstream.wait_for(asked + 1);
    drop(client);
    proxy.wait_until_logged_times(" 499 ", gone + 1);
}

/// Answers with `response` when `go` is open.
fn holding(go: &Signal, response: &'static str) -> Upstream {
    let go = go.clone();
    Upstream::scripted(move |exchange| {
        go.wait();
        exchange.write(response);
    })
}

const DEAR: &str = "HTTP/1.1 200 OK\r\nx-cost: 20\r\ncontent-length: 0\r\n\r\n";

#[test]
fn cost_is_charged_though_the_client_has_hung_up() {
    for measure in THOUSAND {
        let go = Signal::default();
        let upstream = holding(&go, DEAR);
        let proxy = Proxy::start(&policy(&upstream, &format!("{measure}, {COST_BY_RESPONSE}")));
        hang_up(&proxy, &upstream, &get("/").by("alice"));
        assert_eq!(proxy.used("alice", "core"), 4, "{measure}");
        go.open();
        wait_for_use(&proxy, 20, measure);
        let top = proxy.top(RankBy::Units, 1).callers;
        assert_eq!((&*top[0].name, top[0].count), ("user:alice", 20), "{measure}");
    }
}

#[test]
fn cost_is_charged_in_redis_though_the_client_has_hung_up() {
    let redis = Redis::start();
    for (number, measure) in THOUSAND.into_iter().enumerate() {
        let go = Signal::default();
        let upstream = holding(&go, DEAR);
        let policy = policy(&upstream, &format!("{measure}, {COST_BY_RESPONSE}"));
        let settings = format!("prefix: p{number}, {}", redis.settings());
        let proxy = Proxy::with_redis(&settings, &policy);
        hang_up(&proxy, &upstream, &get("/").by("alice"));
        go.open();
        wait_for_use(&proxy, 20, measure);
    }
}

#[test]
fn cost_is_charged_though_the_client_has_reset_its_stream() {
    let go = Signal::default();
    let upstream = Arc::new(holding(&go, DEAR));
    let proxy =
        Arc::new(Proxy::start(&policy(&upstream, &format!("rate: 1000/hour, {COST_BY_RESPONSE}"))));
    let request = http::Request::get("http://api.example.com/")
        .header("authorization", format!("Bearer {}", token("alice")))
        .body(String::new())
        .unwrap();
    let of_upstream = Arc::clone(&upstream);
    let of_log = Arc::clone(&proxy);
    let is_asked = move || of_upstream.wait_for(1);
    let is_gone = move || of_log.wait_until_logged(" 499 ");
    http2_given_up(proxy.address(), request, (is_asked, is_gone));
    go.open();
    wait_for_use(&proxy, 20, "HTTP/2");
}

#[test]
fn hanging_up_does_not_outrun_the_limit() {
    let go = Signal::default();
    let upstream = holding(&go, DEAR);
    let cost = "cost: { reserve: 1, from_response_header: x-cost }";
    let proxy = Proxy::start(&policy(&upstream, &format!("rate: 20/hour, {cost}")));
    hang_up(&proxy, &upstream, &get("/").by("alice"));
    go.open();
    wait_for_use(&proxy, 20, "the first");
    for _ in 0..15 {
        proxy.get_as("alice").assert_status(429);
    }
    assert_eq!(upstream.count(), 1);
}

#[test]
fn head_is_settled_by_its_cost_and_not_by_its_status() {
    for (response, used) in [
        ("HTTP/1.1 200 OK\r\nx-cost: 1\r\ncontent-length: 0\r\n\r\n", 1),
        ("HTTP/1.1 304 Not Modified\r\nx-cost: 3\r\n\r\n", 3),
        ("HTTP/1.1 500 Oh\r\nx-cost: 7\r\ncontent-length: 0\r\n\r\n", 7),
    ] {
        let go = Signal::default();
        let upstream = holding(&go, response);
        let proxy =
            Proxy::start(&policy(&upstream, &format!("rate: 1000/hour, {COST_BY_RESPONSE}")));
        hang_up(&proxy, &upstream, &get("/").revalidating().by("alice"));
        go.open();
        wait_for_use(&proxy, used, response);
    }
}

#[test]
fn every_limit_that_reads_a_cost_is_charged_and_no_other() {
    let go = Signal::default();
    let upstream = holding(&go, DEAR);
    let policy = Policy::before(&upstream).on_all_routes(&[
        &format!("core: {{ per: caller, rate: [500/minute, 1000/hour], {COST_BY_RESPONSE} }}"),
        &format!("shadow: {{ per: caller, rate: 1000/hour, mode: shadow, {COST_BY_RESPONSE} }}"),
        "flat: { per: caller, rate: 1000/hour, cost: 2, refund: { status: [2xx] } }",
        "login: { per: caller, rate: 1000/hour, count_when: { status: [401] } }",
    ]);
    let proxy = Proxy::start(&policy);
    hang_up(&proxy, &upstream, &get("/").by("alice"));
    go.open();
    wait_for_use(&proxy, 20, "core");
    let used = ["flat", "login"].map(|limit| proxy.used("alice", limit));
    assert_eq!(used, [2, 1]);
}

#[test]
fn place_among_requests_in_flight_is_kept_until_the_head_has_come() {
    let go = Signal::default();
    let upstream = holding(&go, DEAR);
    let policy = Policy::before(&upstream).on_all_routes(&[
        &format!("core: {{ per: caller, rate: 1000/hour, {COST_BY_RESPONSE} }}"),
        "inflight: { per: caller, concurrent: 1 }",
    ]);
    let proxy = Proxy::start(&policy);
    hang_up(&proxy, &upstream, &get("/").by("alice"));
    proxy.get_as("alice").assert_status(429).assert_field("x-tollgate-denied-by", "inflight");
    go.open();
    wait_for_use(&proxy, 20, "the head has come");
    assert_eq!(proxy.used("alice", "inflight"), 0);
}

#[test]
fn without_a_head_what_the_policy_says_is_charged() {
    for (cost, used) in [
        ("{ reserve: 4, from_response_header: x-cost, abandoned: 7 }", 7),
        ("{ reserve: 4, from_response_header: x-cost }", 4),
    ] {
        let upstream = Upstream::silent();
        let policy = policy(&upstream, &format!("rate: 1000/hour, cost: {cost}"))
            .upstream(&upstream, "response_timeout: 300ms, retries: { attempts: 0 }");
        let proxy = Proxy::start(&policy);
        hang_up(&proxy, &upstream, &get("/").by("alice"));
        wait_for_use(&proxy, used, cost);
        // Who waits for it is charged what was reserved.
        proxy.get_as("bob").assert_status(504).assert_field("x-ratelimit-used", "4");
    }
}

#[test]
fn without_a_head_the_dearest_cost_of_late_is_charged() {
    let upstream = Upstream::scripted(|exchange| match exchange.request.target.as_str() {
        "/dear" => exchange.write(DEAR),
        _ => exchange.wait_for_close(),
    });
    let upstream_fields = "response_timeout: 300ms, retries: { attempts: 0 }";
    let policy = policy(&upstream, &format!("rate: 1000/hour, {COST_BY_RESPONSE}"));
    let proxy = Proxy::start(&policy.upstream(&upstream, upstream_fields));
    let dear = proxy.send(get("/dear").by("bob"));
    dear.assert_status(200).assert_field("x-ratelimit-used", "20");
    hang_up(&proxy, &upstream, &get("/").by("alice"));
    wait_for_use(&proxy, 20, "the highest cost");
    proxy.advance(2 * HOUR);
    hang_up(&proxy, &upstream, &get("/").by("alice"));
    wait_for_use(&proxy, 4, "long ago");
}

#[test]
fn body_that_is_broken_off_is_as_good_as_hanging_up() {
    let unfinished = Request::new("POST", "/").by("alice").field("content-length", "100");
    let broken = Request::new("POST", "/").by("alice").field("transfer-encoding", "chunked");
    let cost = "cost: { reserve: 4, from_response_header: x-cost, abandoned: 7 }";
    let upstream = Upstream::scripted_at_head(|exchange| exchange.wait_for_close());
    let proxy = Proxy::start(&policy(&upstream, &format!("rate: 1000/hour, {cost}")));

    let mut client = proxy.connect();
    client.write(unfinished.to_bytes());
    client.write("some of it");
    upstream.wait_for(1);
    drop(client);
    wait_for_use(&proxy, 7, "hung up in its body");

    let mut client = proxy.connect();
    client.write(broken.to_bytes());
    upstream.wait_for(2);
    client.write("no chunk\r\n");
    client.read().assert_status(400);
    wait_for_use(&proxy, 14, "broke it");
}

#[test]
fn body_that_comes_too_slowly_is_as_good_as_hanging_up() {
    let settings = "workers: 1\ntimeouts: { request_body: 1h, request_body_rate: 1000000, \
                    rate_grace: 300ms }";
    let cost = "cost: { reserve: 4, from_response_header: x-cost, abandoned: 7 }";
    let upstream = Upstream::scripted_at_head(|exchange| exchange.wait_for_close());
    let policy = policy(&upstream, &format!("rate: 1000/hour, {cost}"));
    let proxy = Proxy::with_settings(settings, &[&policy]);
    let mut client = proxy.connect();
    let unfinished = Request::new("POST", "/").by("alice").field("content-length", "100");
    client.write(unfinished.to_bytes());
    client.write("some of it");
    client.read().assert_status(408);
    wait_for_use(&proxy, 7, "too slow");
}

#[test]
fn request_that_was_never_sent_costs_what_was_reserved() {
    let upstream = Upstream::silent();
    let cost = "cost: { reserve: 4, from_response_header: x-cost, abandoned: 7 }";
    let policy = policy(&upstream, &format!("rate: 1000/hour, {cost}"))
        .upstream(&upstream, "max_connections: 1, queue: { size: 5, timeout: 10s }");
    let proxy = Proxy::start(&policy);
    let mut first = proxy.connect();
    first.write(get("/").by("bob").to_bytes());
    upstream.wait_for(1);
    let mut client = proxy.connect();
    client.write(get("/").by("alice").to_bytes());
    wait_for_use(&proxy, 4, "it waits in the queue");
    drop(client);
    proxy.wait_until_logged(" 499 ");
    assert_eq!(proxy.used("alice", "core"), 4);
    assert_eq!(upstream.count(), 1);
}

#[test]
fn so_many_are_waited_for_and_the_others_charged_at_once() {
    const MOST: usize = 64;
    let go = Signal::default();
    let upstream = holding(&go, DEAR);
    let cost = "cost: { reserve: 4, from_response_header: x-cost, abandoned: 7 }";
    let proxy = Proxy::start(&policy(&upstream, &format!("rate: 100_000/hour, {cost}")));
    let mut clients: Vec<_> = (0..MOST + 2).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.write(get("/").by("alice").to_bytes());
    }
    upstream.wait_for(MOST + 2);
    drop(clients);
    proxy.wait_until_logged_times(" 499 ", MOST + 2);
    let reserved = 4 * MOST as u64;
    let abandoned = 2 * 7;
    wait_for_use(&proxy, reserved + abandoned, "two too many");
    go.open();
    wait_for_use(&proxy, 20 * MOST as u64 + abandoned, "all others");
}

#[test]
fn proxy_that_shuts_down_charges_what_it_awaits() {
    let go = Signal::default();
    let redis = Redis::start();
    let upstream = holding(&go, DEAR);
    let cost = "cost: { reserve: 4, from_response_header: x-cost, abandoned: 7 }";
    let policy = policy(&upstream, &format!("rate: 1000/hour, {cost}"));
    let other = Proxy::with_redis(&redis.settings(), &policy);
    let mut proxy = Proxy::with_redis(&redis.settings(), &policy);
    hang_up(&proxy, &upstream, &get("/").by("alice"));
    assert_eq!(other.used("alice", "core"), 4);
    proxy.begin_shutdown();
    proxy.wait();
    wait_for_use(&other, 7, "it has shut down");
    go.open();
}
