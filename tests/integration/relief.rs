//! Clients that hammer: a denial is remembered here for a second at most, so that Redis is not
//! asked again what it has just said, and is forgotten as soon as it may no longer hold.

mod standings;

use std::time::Duration;

use serde_json::json;

use crate::support::{
    HOUR, Policy, Proxy, Redis, Request, SECOND, Signal, Upstream, eventually, get, post,
    token_with,
};

/// A proxy, its Redis, and how often that is asked.
struct Asked {
    proxy: Proxy,
    redis: Redis,
}

impl Asked {
    fn new(policy: &Policy) -> Asked {
        Asked::with_settings("workers: 1", policy)
    }

    /// With these settings besides.
    fn with_settings(settings: &str, policy: &Policy) -> Asked {
        let redis = Redis::start();
        let store = format!("redis: {{ {}, clock: proxy }}, deadline: 10s", redis.settings());
        let settings = format!("{settings}\nstore: {{ {store}, fallback_header: true }}");
        Asked { proxy: Proxy::with_settings(&settings, &[policy]), redis }
    }

    /// Scripts that Redis has run for requests.
    fn calls(&self) -> u64 {
        self.redis.scripts_for_requests()
    }

    fn send(&self, request: Request) -> u16 {
        let response = self.proxy.send(request);
        response.assert_no_field("x-tollgate-store");
        response.status
    }

    fn alice(&self) -> u16 {
        self.send(get("/").by("alice"))
    }

    /// How often Redis is asked for so many of alice's requests, which are all denied.
    fn calls_for(&self, denied: usize) -> u64 {
        let before = self.calls();
        for _ in 0..denied {
            assert_eq!(self.alice(), 429);
        }
        self.calls() - before
    }
}

#[test]
fn client_that_hammers_reaches_redis_once_a_second() {
    let upstream = Upstream::start();
    for fields in
        ["rate: 2/hour", "rate: 2/hour, align: calendar", "rate: 2/hour, algorithm: gcra, burst: 2"]
    {
        let asked = Asked::new(&Policy::before(&upstream).core(fields));
        assert_eq!([asked.alice(), asked.alice()], [200, 200], "{fields}");
        assert_eq!(asked.calls_for(100), 1, "{fields}");
        asked.proxy.advance(SECOND - Duration::from_micros(1));
        assert_eq!(asked.calls_for(100), 0, "{fields}");
        asked.proxy.advance(Duration::from_micros(1));
        assert_eq!(asked.calls_for(100), 1, "{fields}");
        // Others have nothing to do with it.
        assert_eq!(asked.send(get("/").by("bob")), 200, "{fields}");
    }
}

#[test]
fn remembered_denial_has_the_same_headers_as_the_first() {
    let upstream = Upstream::start();
    let Asked { proxy, redis: _redis } =
        &Asked::new(&Policy::before(&upstream).rate("2/minute").responses(&["headers: both"]));
    for _ in 0..2 {
        proxy.get_as("alice").assert_status(200);
    }
    let first = proxy.get_as("alice");
    proxy.advance(SECOND / 2);
    let second = proxy.get_as("alice");
    for name in ["limit", "remaining", "used", "reset", "resource"] {
        let name = format!("x-ratelimit-{name}");
        assert_eq!(first.field(&name), second.field(&name), "{name}");
    }
    assert_eq!((first.number("retry-after"), second.number("retry-after")), (60, 60));
    proxy.advance(SECOND / 2);
    assert_eq!(proxy.get_as("alice").number("retry-after"), 59);
    assert_eq!(upstream.count(), 2);
}

#[test]
fn denial_is_remembered_no_longer_than_it_holds() {
    let upstream = Upstream::start();
    let fields = "rate: 10/second, algorithm: gcra, burst: 1";
    let asked = Asked::new(&Policy::before(&upstream).core(fields));
    for _ in 0..5 {
        assert_eq!(asked.alice(), 200);
        assert_eq!(asked.calls_for(20), 1);
        asked.proxy.advance(SECOND / 10);
    }
    let asked = Asked::new(&Policy::before(&upstream).rate("2/second"));
    for _ in 0..3 {
        assert_eq!([asked.alice(), asked.alice()], [200, 200]);
        asked.proxy.advance(3 * SECOND / 4);
        assert_eq!(asked.calls_for(20), 1);
        asked.proxy.advance(SECOND / 4);
    }
}

#[test]
fn refund_ends_what_was_remembered() {
    let asked_upstream = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::holding_unchanged(&asked_upstream, &go);
    let asked = Asked::new(&Policy::before(&upstream).rate("2/hour"));
    let mut held = asked.proxy.connect();
    held.write(get("/held").revalidating().by("alice").to_bytes());
    asked_upstream.wait();
    assert_eq!(asked.alice(), 200);
    assert_eq!(asked.calls_for(10), 1);
    go.open();
    held.read().assert_status(304);
    // At the same instant of the proxy's clock: nothing has run out.
    eventually("it has arrived", || (asked.proxy.used("alice", "core") == 1).then_some(()));
    assert_eq!([asked.alice(), asked.alice()], [200, 429]);
}

#[test]
fn refund_of_another_proxy_is_known_within_a_second() {
    let upstream = Upstream::as_asked();
    let policy = Policy::before(&upstream).rate("2/hour");
    let asked = Asked::new(&policy);
    let begun = Signal::default();
    let go = Signal::default();
    let slow = Upstream::held(&begun, &go);
    let policy = Policy::before(&slow).core("rate: 2/hour, refund: { status: [200] }");
    let other = Proxy::with_redis(&asked.redis.settings(), &policy);
    let mut held = other.connect();
    held.write(get("/").by("alice").to_bytes());
    begun.wait();
    assert_eq!(asked.alice(), 200);
    assert_eq!(asked.calls_for(10), 1);
    go.open();
    held.read().assert_status(200);
    eventually("it has arrived", || (other.used("alice", "core") == 1).then_some(()));
    assert_eq!(asked.alice(), 429, "this proxy does not know of the refund yet");
    asked.proxy.advance(SECOND);
    assert_eq!([asked.alice(), asked.alice()], [200, 429]);
}

#[test]
fn denial_holds_for_the_same_rate_cost_and_limits_only() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&[
            "core: { per: caller, rate: { default: 2/hour, pro: 4/hour }, cost: { GET: 1, default: 2 } }",
            "search: { per: caller, rate: 1/hour }",
        ])
        .routes(&[
            "{ match: { path: /search }, limits: [search, core] }",
            "{ match: { path: /** }, limits: [core] }",
        ]);
    let asked = Asked::new(&policy);
    let free = |request: Request| asked.send(request.by("alice"));
    assert_eq!(free(get("/")), 200);
    // What costs more is denied, and what costs less is not.
    assert_eq!([free(post("/", "x")), free(post("/", "x"))], [429, 429]);
    assert_eq!(free(get("/")), 200);
    assert_eq!([free(get("/")), free(get("/"))], [429, 429]);
    // Alice is charged, and her response shows it at once.
    let pro = token_with(&json!({ "sub": "alice", "plan": "pro" }));
    assert_eq!(asked.send(get("/").token(&pro)), 200);
    assert_eq!(asked.send(get("/").token(&pro)), 200);
    assert_eq!(asked.send(get("/").token(&pro)), 429);
    // Where another limit has its say, it is asked.
    let response = asked.proxy.send(get("/search").by("bob"));
    response.assert_status(200).assert_field("x-ratelimit-resource", "search");
    let denied = asked.proxy.send(get("/search").by("bob"));
    denied.assert_status(429).assert_field("x-ratelimit-resource", "search");
    assert_eq!(asked.send(get("/").by("bob")), 200, "core is not used up");
    let denied = asked.proxy.send(get("/search").by("bob"));
    denied.assert_status(429);
}

#[test]
fn strict_bucket_is_charged_for_every_request() {
    let upstream = Upstream::start();
    let fields =
        "refill: { amount: 1, interval: 10s }, capacity: 2, strict: true, algorithm: token_bucket";
    let asked = Asked::new(&Policy::before(&upstream).core(fields));
    assert_eq!([asked.alice(), asked.alice()], [200, 200]);
    assert_eq!(asked.calls_for(20), 20);
    // Each denial starts the wait over.
    asked.proxy.advance(9 * SECOND);
    assert_eq!(asked.alice(), 429);
    asked.proxy.advance(9 * SECOND);
    assert_eq!(asked.alice(), 429);
    asked.proxy.advance(10 * SECOND);
    assert_eq!(asked.alice(), 200);
}

#[test]
fn what_frees_itself_gradually_isbegun_every_time() {
    let upstream = Upstream::start();
    for algorithm in ["sliding_window", "sliding_log", "token_bucket"] {
        let fields = format!("rate: 2/hour, algorithm: {algorithm}");
        let asked = Asked::new(&Policy::before(&upstream).core(&fields));
        assert_eq!([asked.alice(), asked.alice()], [200, 200], "{algorithm}");
        assert_eq!(asked.calls_for(10), 10, "{algorithm}");
    }
}

#[test]
fn limit_that_only_counts_is_never_remembered() {
    let upstream = Upstream::start();
    let limits = [
        "core: { per: caller, rate: 100/hour }",
        "trial: { per: caller, rate: 1/hour, mode: shadow }",
    ];
    let asked = Asked::new(&Policy::before(&upstream).on_all_routes(&limits));
    let before = asked.calls();
    for _ in 0..20 {
        assert_eq!(asked.alice(), 200);
    }
    // Each script is sent whole once, and once in vain before that.
    assert!((20..=21).contains(&(asked.calls() - before)));
    assert_eq!(asked.proxy.used("alice", "core"), 20);
}

#[test]
fn refunds_of_many_requests_are_sent_together() {
    const REQUESTS: usize = 20;
    let begun = Signal::default();
    let go = Signal::default();
    let upstream = {
        let go = go.clone();
        Upstream::scripted(move |exchange| {
            go.wait();
            exchange.write("HTTP/1.1 304 Not Modified\r\n\r\n");
        })
    };
    let asked = Asked::new(&Policy::before(&upstream).rate("100/hour"));
    let mut clients: Vec<_> = (0..REQUESTS)
        .map(|_| {
            let mut client = asked.proxy.connect();
            client.write(get("/").by("alice").revalidating().to_bytes());
            client
        })
        .collect();
    begun.open();
    upstream.wait_for(REQUESTS);
    assert_eq!(asked.proxy.used("alice", "core"), REQUESTS as u64);
    let before = asked.calls();
    go.open();
    for client in &mut clients {
        client.read().assert_status(304);
    }
    let is_back = || asked.proxy.used("alice", "core") == 0;
    eventually("all is given back", || is_back().then_some(()));
    eprintln!("{REQUESTS} refunds, and looks at them, took {} calls", asked.calls() - before);
    asked.proxy.advance(HOUR);
    assert_eq!(asked.proxy.used("alice", "core"), 0);
}
