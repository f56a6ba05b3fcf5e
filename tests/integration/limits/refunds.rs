//! What is given back: on which responses, to which caller, and never more than was charged.

use super::reset_after;
use crate::support::{HOUR, Policy, Proxy, Redis, Request, Signal, Upstream, get, token_signed_by};

/// Ten in each way.
const TEN: [&str; 6] = [
    "rate: 10/hour",
    "rate: 10/hour, align: calendar",
    "rate: 10/hour, algorithm: sliding_window",
    "rate: 10/hour, algorithm: sliding_log",
    "rate: 10/hour, algorithm: token_bucket",
    "rate: 10/hour, algorithm: gcra",
];

fn proxy(upstream: &Upstream, fields: &str) -> Proxy {
    Proxy::start(&Policy::before(upstream).core(fields))
}

/// What is used after this request, as its response reports it.
fn used_after(proxy: &Proxy, request: Request) -> u64 {
    proxy.send(request).number("x-ratelimit-used")
}

#[test]
fn not_modified_is_free_with_a_token_and_its_response_shows_the_refund() {
    for measure in TEN {
        let upstream = Upstream::as_asked();
        let proxy = proxy(&upstream, measure);
        assert_eq!(used_after(&proxy, get("/").by("alice")), 1);
        for _ in 0..12 {
            let response = proxy.send(get("/").by("alice").wants(304));
            response.assert_status(304).assert_field("x-ratelimit-remaining", "9");
            assert_eq!(response.number("x-ratelimit-used"), 1, "{measure}");
        }
        assert_eq!(used_after(&proxy, get("/").by("alice")), 2, "{measure}");
        // Without a token it counts.
        for used in 1..=10 {
            assert_eq!(used_after(&proxy, get("/").wants(304)), used, "{measure}");
        }
        proxy.send(get("/").wants(304)).assert_status(429);
    }
}

#[test]
fn token_that_is_no_good_makes_nothing_free() {
    let upstream = Upstream::as_asked();
    let policy = Policy::before(&upstream).rate("10/hour").identity(&["invalid_token: anonymous"]);
    let proxy = Proxy::start(&policy);
    let claims = serde_json::json!({ "sub": "alice" });
    let forged = token_signed_by("a secret that is not the one of this issuer", &claims);
    for used in 1..=3 {
        assert_eq!(used_after(&proxy, get("/").token(&forged).wants(304)), used);
    }
}

#[test]
fn caller_who_has_used_all_may_not_ask_even_for_what_would_be_free() {
    let upstream = Upstream::as_asked();
    let proxy = proxy(&upstream, "rate: 1/hour");
    proxy.get_as("alice").assert_status(200);
    proxy.send(get("/").by("alice").wants(304)).assert_status(429);
    assert_eq!(upstream.count(), 1);
}

#[test]
fn only_the_statuses_that_the_policy_names_are_free() {
    let upstream = Upstream::as_asked();
    for (refund, by_anybody, by_alice) in [
        ("", &[][..], &[304][..]),
        ("refund: { status: [] }", &[], &[]),
        ("refund: { callers: all }", &[304], &[304]),
        ("refund: { callers: authenticated }", &[], &[304]),
        ("refund: { status: [404, 5xx] }", &[404, 500, 503], &[404, 500, 503]),
        ("refund: { status: [304, 404] }", &[404], &[304, 404]),
        ("refund: { status: [304, 404], callers: all }", &[304, 404], &[304, 404]),
        ("refund: { status: [404, 5xx], callers: authenticated }", &[], &[404, 500, 503]),
        ("refund: { status: [2xx] }", &[200], &[200]),
    ] {
        let proxy = proxy(&upstream, &format!("rate: 100/hour, {refund}"));
        for (request, free) in [(get("/"), by_anybody), (get("/").by("alice"), by_alice)] {
            let mut used = 0;
            for status in [200, 304, 403, 404, 500, 503] {
                used += u64::from(!free.contains(&status));
                let response = proxy.send(request.clone().wants(status));
                response.assert_status(status);
                let reported = response.number("x-ratelimit-used");
                assert_eq!(reported, used, "{status} with `{refund}`\n{response:?}");
            }
        }
    }
}

#[test]
fn only_a_client_that_has_something_gets_a_free_304() {
    let upstream = Upstream::as_asked();
    for refund in ["", ", refund: { status: [304], callers: all }"] {
        let proxy = proxy(&upstream, &format!("rate: 100/hour{refund}"));
        let wants = |method| Request::new(method, "/").by("alice").field("x-want-status", "304");
        let tag = "if-none-match";
        let date = "if-modified-since";
        let mut used = 0;
        for (request, cost) in [
            (wants("GET").field(tag, "\"v1\""), 0),
            (wants("GET").field(date, "Sun, 06 Nov 1994 08:49:37 GMT"), 0),
            (wants("GET"), 1),
            (wants("GET").field(tag, "*"), 1),
            (wants("GET").field(tag, "\"v1\", *"), 1),
            (wants("GET").field(date, "Sat, 01 Jan 2180 00:00:00 GMT"), 1),
            (wants("POST").field("content-length", "0").field(tag, "\"v1\""), 1),
            (wants("DELETE").field(tag, "\"v1\""), 1),
        ] {
            used += cost;
            let response = proxy.send(request);
            response.assert_status(304);
            assert_eq!(response.number("x-ratelimit-used"), used, "{response:?}");
        }
    }
}

#[test]
fn failures_that_the_proxy_answers_are_free_if_the_policy_says_so() {
    for (upstream, status) in [(Upstream::refusing(), 502), (Upstream::silent(), 504)] {
        for (refund, used) in [("", 1), ("refund: { status: [5xx] }", 0)] {
            let policy = Policy::before(&upstream).core(&format!("rate: 10/hour, {refund}"));
            let proxy = Proxy::start(&policy.upstream(&upstream, "response_timeout: 200ms"));
            let response = proxy.get_as("alice");
            response.assert_status(status);
            assert_eq!(response.number("x-ratelimit-used"), used, "{status} with `{refund}`");
            assert_eq!(proxy.used("alice", "core"), used);
        }
    }
}

#[test]
fn denial_gives_nothing_back_whatever_its_status() {
    let upstream = Upstream::start();
    for status in [403, 429] {
        let fields = format!("rate: 2/hour, refund: {{ status: [{status}], callers: all }}");
        let policy = Policy::before(&upstream)
            .core(&fields)
            .responses(&[&format!("denied_status: {status}")]);
        let proxy = Proxy::start(&policy);
        for _ in 0..2 {
            proxy.get_as("alice").assert_status(200);
        }
        for _ in 0..3 {
            proxy.get_as("alice").assert_status(status).assert_field("x-ratelimit-used", "2");
        }
    }
}

#[test]
fn whole_cost_is_given_back_and_no_more() {
    for measure in TEN {
        let upstream = Upstream::as_asked();
        let proxy = proxy(&upstream, &format!("{measure}, cost: {{ GET: 3, default: 1 }}"));
        proxy.send(get("/").by("alice")).assert_field("x-ratelimit-used", "3");
        let response = proxy.send(get("/").by("alice").wants(304));
        assert_eq!(response.number("x-ratelimit-used"), 3, "{measure}");
    }
    // Free as a whole, whatever the response says of its cost.
    let upstream = Upstream::as_asked();
    let fields = "rate: 10/hour, cost: { reserve: 4, from_response_header: x-cost }";
    let proxy = proxy(&upstream, fields);
    for cost in ["0", "2", "9"] {
        let request = get("/").by("alice").wants(304).costing(cost);
        assert_eq!(used_after(&proxy, request), 0, "at a cost of {cost}");
    }
}

#[test]
fn window_stays_where_the_request_that_was_given_back_has_opened_it() {
    let upstream = Upstream::as_asked();
    let proxy = proxy(&upstream, "rate: 10/hour");
    let reset = reset_after(3600);
    let free = proxy.send(get("/").by("alice").wants(304));
    free.assert_limit(["10", "10", "0", &reset, "core"]);
    proxy.advance(HOUR / 2);
    proxy.get_as("alice").assert_limit(["10", "9", "1", &reset, "core"]);
}

#[test]
fn nothing_is_given_back_into_another_window() {
    for measure in
        ["rate: 10/hour", "rate: 10/hour, align: epoch", "rate: 10/hour, align: calendar"]
    {
        let asked = Signal::default();
        let go = Signal::default();
        let upstream = Upstream::holding_unchanged(&asked, &go);
        let proxy = proxy(&upstream, measure);
        let mut held = proxy.connect();
        held.write(get("/held").revalidating().by("alice").to_bytes());
        asked.wait();
        proxy.advance(HOUR);
        for used in 1..=2 {
            assert_eq!(used_after(&proxy, get("/").by("alice")), used);
        }
        go.open();
        held.read().assert_status(304);
        assert_eq!(proxy.used("alice", "core"), 2, "{measure}");
    }
}

#[test]
fn all_limits_of_a_request_give_back_as_each_says() {
    let upstream = Upstream::as_asked();
    let policy = Policy::before(&upstream).on_all_routes(&[
        "core: { per: caller, rate: [5/second, 100/hour] }",
        "place: { per: client.ip, rate: 100/hour, algorithm: gcra }",
        "strict: { per: caller, rate: 100/hour, refund: { status: [] } }",
    ]);
    let proxy = Proxy::start(&policy);
    for _ in 0..8 {
        proxy.send(get("/").by("alice").wants(304)).assert_status(304);
    }
    let used = ["core", "place", "strict"].map(|limit| proxy.used("alice", limit));
    assert_eq!(used, [0, 0, 8]);
}

#[test]
fn client_that_goes_away_gets_nothing_back() {
    let upstream = Upstream::silent();
    let proxy =
        proxy(&upstream, "rate: 10/hour, refund: { status: [304, 4xx, 5xx], callers: all }");
    let mut client = proxy.connect();
    client.write(get("/").by("alice").to_bytes());
    upstream.wait_for(1);
    drop(client);
    proxy.wait_until_logged(" 499 ");
    assert_eq!(proxy.used("alice", "core"), 1);
}

#[test]
fn parallel_refunds_lose_nothing_and_make_nothing() {
    for measure in TEN {
        let upstream = Upstream::as_asked();
        let policy = Policy::before(&upstream).core(&measure.replace("10/", "1000/"));
        let proxy = Proxy::with_settings("workers: 2", &[&policy]);
        std::thread::scope(|scope| {
            for status in [200, 304, 200, 304] {
                let proxy = &proxy;
                scope.spawn(move || {
                    let mut client = proxy.connect();
                    for _ in 0..40 {
                        client.send(&get("/").by("alice").wants(status)).assert_status(status);
                    }
                });
            }
        });
        assert_eq!(proxy.used("alice", "core"), 80, "{measure}");
    }
}

/// A caller asks for what did not change until it is denied: half of what it may use comes back.
fn assert_half_comes_back(proxy: &Proxy, case: &str) {
    for number in 1..=15_u64 {
        let response = proxy.send(get("/").by("alice").wants(304));
        response.assert_status(304);
        let used = number.saturating_sub(5);
        assert_eq!(response.number("x-ratelimit-used"), used, "{number} by {case}");
    }
    proxy.send(get("/").by("alice").wants(304)).assert_status(429);
    // Others have their own.
    assert_eq!(used_after(proxy, get("/").by("bob").wants(304)), 0, "{case}");
}

#[test]
fn refunds_may_be_bounded_by_a_share_of_the_limit() {
    let upstream = Upstream::as_asked();
    for measure in TEN {
        let proxy = proxy(&upstream, &format!("{measure}, refund: {{ at_most: 50% }}"));
        assert_half_comes_back(&proxy, measure);
        // Two windows later there are as many again.
        proxy.advance(2 * HOUR);
        assert_half_comes_back(&proxy, measure);
    }
    let proxies = &proxy(&upstream, "rate: 10/hour, refund: { at_most: 50% }");
    let refunds = || (proxies.refunds().given(), proxies.refunds().withheld());
    assert_eq!(refunds(), (0, 0));
    assert_half_comes_back(proxies, "counted");
    assert_eq!(refunds(), (6, 10));
}

#[test]
fn refunds_are_bounded_in_redis_too() {
    let upstream = Upstream::as_asked();
    let redis = Redis::start();
    for (number, measure) in TEN.into_iter().enumerate() {
        let fields = format!("{measure}, refund: {{ at_most: 50% }}");
        let policy = Policy::before(&upstream).core(&fields);
        let settings = format!("prefix: p{number}, {}", redis.settings());
        assert_half_comes_back(&Proxy::with_redis(&settings, &policy), measure);
    }
}

#[test]
fn responses_that_give_nothing_back_use_up_no_refunds() {
    let upstream = Upstream::as_asked();
    let refund = "refund: { status: [304, 404], callers: all, at_most: 20% }";
    let proxy = proxy(&upstream, &format!("rate: 10/hour, {refund}"));
    for used in 1..=3 {
        assert_eq!(used_after(&proxy, get("/").by("alice").revalidating()), used);
    }
    for _ in 0..2 {
        assert_eq!(used_after(&proxy, get("/").by("alice").wants(404)), 3);
    }
    assert_eq!(used_after(&proxy, get("/").by("alice").wants(304)), 4);
}

#[test]
fn refund_that_does_not_fit_whole_is_not_given() {
    let upstream = Upstream::as_asked();
    let fields = "rate: 20/hour, cost: 3, refund: { at_most: 20% }";
    let proxy = proxy(&upstream, fields);
    let used = [0, 3, 6].map(|_| used_after(&proxy, get("/").by("alice").wants(304)));
    assert_eq!(used, [0, 3, 6]);
}

#[test]
fn refunds_of_requests_at_once_do_not_outrun_their_bound() {
    let go = Signal::default();
    let upstream = {
        let go = go.clone();
        Upstream::scripted(move |exchange| {
            go.wait();
            exchange.write("HTTP/1.1 304 Not Modified\r\n\r\n");
        })
    };
    let proxy = proxy(&upstream, "rate: 10/hour, refund: { at_most: 50% }");
    let mut clients: Vec<_> = (0..10).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.write(get("/").by("alice").revalidating().to_bytes());
    }
    upstream.wait_for(10);
    go.open();
    for client in &mut clients {
        client.read().assert_status(304);
    }
    assert_eq!(proxy.used("alice", "core"), 5);
}

#[test]
fn bound_on_refunds_is_shown_to_no_client() {
    let upstream = Upstream::as_asked();
    let fields = "rate: [10/minute, 10/hour], candidate: { rate: 10/hour }, \
                  refund: { at_most: 10% }";
    let policy =
        Policy::before(&upstream).core(fields).responses(&["headers: both", "shadow_header: true"]);
    let proxy = Proxy::start(&policy);
    for used in ["0", "1", "2"] {
        let response = proxy.send(get("/").by("alice").wants(304));
        response.assert_field("x-ratelimit-used", used).assert_no_field("x-tollgate-shadow");
        let policies = response.field("ratelimit-policy").unwrap();
        assert_eq!(policies.matches("q=").count(), 2, "{policies}");
    }
    assert!(!proxy.into_log().contains("would_deny"));
}
