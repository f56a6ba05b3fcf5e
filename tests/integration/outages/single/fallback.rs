//! What each limit does while Redis is away.

use tollgate_store::Unanswered;

use super::{all_undecided, gone, is_decided, ten, undecided, used_here, used_in_redis};
use crate::support::{
    HOUR, Policy, Proxy, Redis, Response, Upstream, algorithms, forms_of_algorithms, get, post,
};

/// A proxy in front of a server that has gone, before it began or after alice was served once.
fn proxies_without_redis(policy: &Policy) -> [(Redis, Proxy); 2] {
    let never = gone();
    let to_no_server = Proxy::with_redis(&never.settings(), policy);
    let redis = Redis::start();
    let cut_off = Proxy::with_redis(&redis.settings(), policy);
    cut_off.get_as("alice").assert_status(200).assert_no_field("x-tollgate-store");
    redis.kill();
    [(never, to_no_server), (redis, cut_off)]
}

#[test]
fn open_limit_lets_every_request_through_and_shows_no_limit_headers() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).core("rate: 1/hour, on_store_error: open");
    for ((_redis, proxy), used) in proxies_without_redis(&policy).into_iter().zip([0, 1]) {
        let before = upstream.count();
        for _ in 0..5 {
            let response = proxy.get_as("alice");
            response.assert_status(200).assert_no_limit();
            response.assert_field("x-tollgate-store", "open");
        }
        assert_eq!(upstream.count() - before, 5);
        assert_eq!(all_undecided(&proxy), 5, "each is counted once");
        assert_eq!(proxy.used("alice", "core"), used, "it is reported as it was last known");
    }
}

#[test]
fn closed_limit_refuses_and_says_when_to_come_back() {
    let upstream = Upstream::start();
    let policy = ten(&upstream, "on_store_error: closed");
    for (_redis, proxy) in proxies_without_redis(&policy) {
        let before = upstream.count();
        for _ in 0..5 {
            let response = proxy.get_as("alice");
            response.assert_status(503).assert_no_limit().assert_field("retry-after", "1");
        }
        assert_eq!(upstream.count(), before);
        assert_eq!(all_undecided(&proxy), 5);
    }
}

/// The limit, what was used, and what remains, in each style of headers.
fn counts_in_headers(response: &Response) -> Vec<[u64; 3]> {
    let github = ["limit", "used", "remaining"];
    let mut counts = vec![github.map(|name| response.number(&format!("x-ratelimit-{name}")))];
    let parameter = |field: &str, name: &str| -> u64 {
        let value = response.field(field).unwrap_or_else(|| panic!("{response:?}"));
        let value = value.split(';').find_map(|part| part.strip_prefix(name)).unwrap();
        value.parse().unwrap()
    };
    let limit = parameter("ratelimit-policy", "q=");
    let remaining = parameter("ratelimit", "r=");
    counts.push([limit, limit - remaining, remaining]);
    counts
}

#[test]
fn share_is_the_limit_wherever_a_lone_proxy_tells_of_it() {
    let upstream = Upstream::start();
    for algorithm in algorithms() {
        let redis = Redis::start();
        let store = format!("redis: {{ {} }}, deadline: 10s, instances: 2", redis.settings());
        let policy = Policy::before(&upstream)
            .core(&format!("rate: 200/day, algorithm: {algorithm}"))
            .responses(&["headers: both"]);
        let proxy = Proxy::with_store(&store, &policy);
        let standing = |proxy: &Proxy| {
            let all = proxy.standings(get("/rate_limit").by("alice"));
            ["limit", "used", "remaining"].map(|name| all["core"][name].as_u64().unwrap())
        };
        for used in 1..=20 {
            let response = proxy.get_as("alice");
            assert_eq!(counts_in_headers(&response), [[200, used, 200 - used]; 2], "{algorithm}");
        }
        redis.kill();
        super::wait_until_undecided(&proxy);
        assert_eq!(standing(&proxy), [100, 10, 90], "{algorithm}: before anything is decided");
        let response = proxy.get_as("alice");
        assert_eq!(counts_in_headers(&response), [[100, 11, 89]; 2], "{algorithm}");
        assert_eq!(standing(&proxy), [100, 11, 89], "{algorithm}");
        proxy.wait_until_logged(" core=11/100 ");
        for _ in 0..89 {
            proxy.get_as("alice").assert_status(200);
        }
        let denied = proxy.get_as("alice");
        denied.assert_status(429);
        assert_eq!(counts_in_headers(&denied), [[100, 100, 0]; 2], "{algorithm}");
    }
}

#[test]
fn undecided_limits_are_reported_as_they_were_last_known() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).on_all_routes(&[
        "core: { per: caller, rate: 10/day, on_store_error: open }",
        "search: { per: caller, rate: 20/day, on_store_error: closed }",
        "login: { per: caller, rate: 30/day, on_store_error: local }",
    ]);
    let redis = Redis::start();
    let proxy = Proxy::with_redis(&redis.settings(), &policy);
    for _ in 0..3 {
        proxy.get_as("alice").assert_status(200);
    }
    redis.kill();
    let of = |sub: &str| {
        let all = proxy.standings(get("/rate_limit").by(sub));
        ["core", "search", "login"].map(|name| {
            ["limit", "used", "remaining"].map(|part| all[name][part].as_u64().unwrap())
        })
    };
    proxy.get_as("bob").assert_status(503);
    assert_eq!(of("alice"), [[10, 3, 7], [20, 3, 17], [30, 3, 27]]);
    assert_eq!(of("bob"), [[10, 0, 10], [20, 0, 20], [30, 0, 30]]);
}

#[test]
fn no_request_waits_for_a_server_that_was_never_there() {
    let upstream = Upstream::start();
    let redis = gone();
    let proxy = Proxy::with_redis(&redis.settings(), &ten(&upstream, ""));
    // The deadline of each would be ten seconds.
    for used in 1..=10 {
        assert_eq!(used_here(&proxy), used);
    }
    assert_eq!(undecided(&proxy, Unanswered::Away), 10);
}

/// Forty an hour, of which each of so many proxies has its share in fallback mode.
fn forty(redis: &Redis, instances: u32, upstream: &Upstream) -> Proxy {
    let store = format!(
        "redis: {{ {}, clock: proxy }}, deadline: 10s, instances: {instances}",
        redis.settings()
    );
    Proxy::with_store(&store, &Policy::before(upstream).rate("40/hour"))
}

/// How many requests of a caller pass. Checks the headers of the denial.
fn passed(proxy: &Proxy, sub: &str) -> u64 {
    let mut passed = 0;
    loop {
        let response = proxy.get_as(sub);
        response.assert_field("x-tollgate-store", "local");
        match response.status {
            200 => passed += 1,
            _ => {
                response.assert_status(429).assert_field("x-ratelimit-remaining", "0");
                assert!((3500..=3600).contains(&response.number("retry-after")), "{response:?}");
                return passed;
            }
        }
    }
}

#[test]
fn caller_unknown_to_redis_gets_the_share_of_one_proxy() {
    let upstream = Upstream::start();
    let redis = gone();
    for (instances, share) in [(1, 40), (3, 14), (4, 10), (100, 1)] {
        let proxy = forty(&redis, instances, &upstream);
        assert_eq!(passed(&proxy, "alice"), share, "of {instances} proxies");
        proxy.advance(HOUR);
        assert_eq!(passed(&proxy, "alice"), share, "in the next window");
    }
}

#[test]
fn caller_known_to_redis_continues_from_its_last_count() {
    let upstream = Upstream::start();
    for (instances, left) in [(1, 20), (2, 10), (4, 5)] {
        let redis = Redis::start();
        let proxy = forty(&redis, instances, &upstream);
        for used in 1..=20 {
            assert_eq!(used_in_redis(&proxy), used);
        }
        let reset = proxy.get_as("bob").number("x-ratelimit-reset");
        redis.kill();
        assert_eq!(passed(&proxy, "alice"), left, "of {instances} proxies");
        assert_eq!(proxy.get_as("alice").number("x-ratelimit-reset"), reset, "it is one window");
    }
}

#[test]
fn caller_who_was_denied_stays_denied() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let proxy = Proxy::with_redis(&redis.settings(), &ten(&upstream, ""));
    for used in 1..=10 {
        assert_eq!(used_in_redis(&proxy), used);
    }
    redis.kill();
    assert_eq!(passed(&proxy, "alice"), 0);
    proxy.advance(HOUR);
    assert_eq!(passed(&proxy, "alice"), 10);
}

#[test]
fn every_algorithm_goes_on_where_redis_was() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    for (number, algorithm) in forms_of_algorithms().enumerate() {
        let policy = ten(&upstream, &format!("algorithm: {algorithm}"));
        let settings = format!("{}, prefix: run-{number}", redis.settings());
        let proxy = Proxy::with_redis(&settings, &policy);
        for used in 1..=4 {
            assert_eq!(used_in_redis(&proxy), used, "{algorithm}");
        }
        redis.kill();
        for used in 5..=10 {
            assert_eq!(used_here(&proxy), used, "{algorithm}");
        }
        proxy.get_as("alice").assert_status(429);
        redis.restart();
    }
}

#[test]
fn refund_of_what_was_decided_here_is_made_here() {
    let upstream = Upstream::as_asked();
    let proxy = Proxy::with_redis(&gone().settings(), &ten(&upstream, ""));
    for _ in 0..3 {
        let response = proxy.send(get("/").by("alice").wants(304));
        response.assert_status(304).assert_field("x-ratelimit-used", "0");
    }
    assert_eq!(used_here(&proxy), 1);
}

#[test]
fn limits_of_one_route_do_what_each_says() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&[
            "core: { per: caller, rate: 1/hour, on_store_error: open }",
            "search: { per: caller, rate: 2/hour, on_store_error: local }",
            "login: { per: client.ip, rate: 2/hour, on_store_error: closed }",
        ])
        .routes(&[
            "{ match: { path: /search }, limits: [core, search] }",
            "{ match: { path: /login }, limits: [core, search, login] }",
            "{ match: { path: /** }, limits: [core] }",
        ]);
    for (_redis, proxy) in proxies_without_redis(&policy) {
        let ask = |target: &str| proxy.send(get(target).by("bob"));
        ask("/").assert_status(200).assert_field("x-tollgate-store", "open");
        // Nothing is taken by one limit for a request that another refuses.
        ask("/login").assert_status(503);
        for _ in 0..2 {
            ask("/search").assert_status(200).assert_field("x-tollgate-store", "local");
        }
        let denied = ask("/search");
        denied.assert_status(429).assert_field("x-ratelimit-resource", "search");
        ask("/").assert_status(200).assert_field("x-tollgate-store", "open");
    }
}

#[test]
fn closed_shadow_limit_denies_no_request() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).on_all_routes(&[
        "core: { per: caller, rate: 2/hour }",
        "trial: { per: caller, rate: 1/hour, mode: shadow, on_store_error: closed }",
    ]);
    for (_redis, proxy) in proxies_without_redis(&policy) {
        for used in 1..=2 {
            let response = proxy.get_as("bob");
            response.assert_status(200).assert_field("x-tollgate-store", "local");
            assert_eq!(response.number("x-ratelimit-used"), used);
        }
        proxy.get_as("bob").assert_status(429);
    }
}

#[test]
fn fallback_header_is_sent_only_if_the_settings_say_so() {
    let upstream = Upstream::start();
    for (fields, fallback) in [("on_store_error: open", "open"), ("on_store_error: local", "local")]
    {
        let redis = Redis::start();
        let policy = ten(&upstream, fields);
        let store = |more: &str| {
            format!(
                "workers: 1\nstore: {{ redis: {{ {} }}, deadline: 10s{more} }}",
                redis.settings()
            )
        };
        let without_header = Proxy::with_settings(&store(""), &[&policy]);
        let with_header = Proxy::with_settings(&store(", fallback_header: true"), &[&policy]);
        for proxy in [&without_header, &with_header] {
            let response = proxy.get_as("alice");
            assert!(is_decided(&response), "{response:?}");
        }
        redis.kill();
        without_header.get_as("alice").assert_status(200).assert_no_field("x-tollgate-store");
        with_header.get_as("alice").assert_status(200).assert_field("x-tollgate-store", fallback);
        let preflight = with_header.send(crate::support::options("*"));
        preflight.assert_no_field("x-tollgate-store");
    }
}

#[test]
fn request_that_only_some_responses_count_is_counted_here() {
    let upstream = Upstream::as_asked();
    let policy = ten(&upstream, "count_when: { status: [401] }");
    let redis = Redis::start();
    let proxy = Proxy::with_redis(&redis.settings(), &policy);
    proxy.send(post("/", "x").by("alice").wants(401)).assert_field("x-ratelimit-used", "1");
    proxy.send(post("/", "x").by("alice").wants(200)).assert_field("x-ratelimit-used", "1");
    redis.kill();
    proxy.send(post("/", "x").by("alice").wants(401)).assert_field("x-ratelimit-used", "2");
    proxy.send(post("/", "x").by("alice").wants(200)).assert_field("x-ratelimit-used", "2");
}
