//! Counters by what clients write themselves: one client makes so many, all of them fill so much of
//! the store, and verified callers find room whatever comes.

use tollgate_store::NoRoom;

use crate::support::{
    HOUR, MINUTE, Policy, Proxy, Request, Response, Upstream, algorithms, get, http2,
};

/// Warnings are logged soon: the store has room for 40 counters by what clients choose, 4 of
/// them for each client.
const SMALL: &str = "memory: { max_keys: 80 }, unverified_keys: { per_address: 4 }";

/// One limit by these keys on `/open/**`, and one by caller everywhere else.
fn policy(upstream: &Upstream, keys: &str, fields: &str) -> Policy {
    Policy::before(upstream)
        .limits(&[
            &format!("made_up: {{ per: {keys}, {fields} }}"),
            "core: { per: caller, rate: 9/hour }",
        ])
        .routes(&[
            "{ match: { path: \"/open/{id}/**\" }, limits: [made_up] }",
            "{ match: { path: /** }, limits: [core] }",
        ])
}

fn start(store: &str, policy: &Policy) -> Proxy {
    let settings =
        format!("workers: 1\ntrusted_proxies: [127.0.0.1]\nstore: {{ {store} }}\naccess_log: {{}}");
    Proxy::with_known_secret(&settings, &[policy])
}

fn by_key(key: usize, address: &str) -> Request {
    get("/open/1/x").field("x-api-key", &format!("key-{key}")).from(address)
}

fn assert_too_many(response: &Response) {
    response.assert_status(429).assert_field("retry-after", "60").assert_no_limit();
    let message = "Too many different values of what a limit counts by. Try again later.";
    assert_eq!(response.json()["message"], message);
}

#[test]
fn client_that_makes_up_keys_leaves_room_for_verified_callers() {
    let upstream = Upstream::start();
    let proxy =
        start("memory: { max_keys: 80 }", &policy(&upstream, "header.x-api-key", "rate: 9/hour"));
    for key in 0..200 {
        let answer = proxy.send(by_key(key, "203.0.113.1"));
        answer.assert_status(if key < 40 { 200 } else { 503 });
    }
    for caller in 0..40 {
        proxy.get_as(&format!("user-{caller}")).assert_status(200);
    }
    proxy.get_as("one-more").assert_status(503);
    assert_eq!(proxy.stores().counts.no_room(NoRoom::Unverified), 160);
    assert_eq!(proxy.stores().counts.no_room(NoRoom::Full), 1);
    proxy.send(by_key(7, "203.0.113.2")).assert_status(200).assert_field("x-ratelimit-used", "2");
}

#[test]
fn one_client_makes_so_many_and_others_go_on() {
    let upstream = Upstream::start();
    let proxy = start(SMALL, &policy(&upstream, "header.x-api-key", "rate: 9/hour"));
    for key in 0..4 {
        proxy.send(by_key(key, "203.0.113.1")).assert_status(200);
    }
    for key in 4..9 {
        assert_too_many(&proxy.send(by_key(key, "203.0.113.1")));
    }
    assert_eq!(upstream.count(), 4, "what cannot be counted does not pass");
    proxy.send(by_key(0, "203.0.113.1")).assert_status(200);
    proxy.send(by_key(4, "203.0.113.2")).assert_status(200);
    proxy.send(by_key(4, "203.0.113.1")).assert_status(200).assert_field("x-ratelimit-used", "2");
    assert_eq!(proxy.stores().counts.no_room(NoRoom::Client), 5);
    assert_eq!(proxy.stores().memory.unverified(), 5);

    proxy.advance(HOUR);
    proxy.send(by_key(9, "203.0.113.1")).assert_status(200);
}

/// What a limit is by, and requests each of which has another value of that.
type Row = (&'static str, fn(usize) -> Request);

#[test]
fn whatever_clients_write_themselves_is_bounded() {
    let upstream = Upstream::start();
    let table: [Row; 9] = [
        ("header.x-api-key", |n| by_key(n, "203.0.113.1")),
        ("cookie.id", |n| get("/open/1/x").field("cookie", &format!("id={n}"))),
        ("host", |n| get("/open/1/x").host(&format!("h{n}.example.com"))),
        ("path", |n| get(&format!("/open/1/{n}"))),
        ("path.id", |n| get(&format!("/open/{n}/x"))),
        ("method", |n| Request::new(["A", "B", "C", "D", "E", "F", "G", "H"][n % 8], "/open/1/x")),
        ("[client.ip, header.x-api-key]", |n| by_key(n, "203.0.113.1")),
        ("[caller, path]", |n| get(&format!("/open/1/{n}"))),
        ("[caller, path]", |n| get(&format!("/open/1/{n}")).by("alice")),
    ];
    for (keys, request) in table {
        let proxy = start(SMALL, &policy(&upstream, keys, "rate: 9/hour"));
        for number in 0..8 {
            let answer = proxy.send(request(number));
            assert_eq!(answer.status, if number < 4 { 200 } else { 429 }, "{keys} {number}");
        }
        proxy.send(request(3)).assert_status(200);
        proxy.get_as("bob").assert_status(200);
    }
}

#[test]
fn what_the_policy_names_is_not_made_up() {
    let upstream = Upstream::start();
    let names: Vec<String> = (0..8).map(|number| format!("h{number}.example.com")).collect();
    let policy = policy(&upstream, "[host, method]", "rate: 9/hour");
    let proxy = start(SMALL, &policy.hosts(&format!("[{}]", names.join(", "))));
    for name in &names {
        for method in ["GET", "POST", "DELETE"] {
            proxy.send(Request::new(method, "/open/1/x").host(name)).assert_status(200);
        }
    }
    assert_eq!(proxy.stores().memory.unverified(), 0);
}

#[test]
fn every_algorithm_is_bounded_alike() {
    let upstream = Upstream::start();
    for algorithm in algorithms() {
        let fields = format!("rate: 9/hour, algorithm: {algorithm}");
        let proxy = start(SMALL, &policy(&upstream, "header.x-api-key", &fields));
        for key in 0..8 {
            let answer = proxy.send(by_key(key, "203.0.113.1"));
            assert_eq!(answer.status, if key < 4 { 200 } else { 429 }, "{algorithm} {key}");
        }
        proxy.advance(24 * HOUR);
        proxy.send(by_key(7, "203.0.113.1")).assert_status(200);
    }
}

#[test]
fn network_of_ipv6_is_one_client_and_the_next_is_another() {
    let upstream = Upstream::start();
    let proxy = start(SMALL, &policy(&upstream, "header.x-api-key", "rate: 9/hour"));
    for key in 0..4 {
        proxy.send(by_key(key, &format!("2001:db8::{key}"))).assert_status(200);
    }
    assert_too_many(&proxy.send(by_key(4, "2001:db8::ffff:1:1")));
    proxy.send(by_key(4, "2001:db8:0:1::1")).assert_status(200);
}

#[test]
fn verified_caller_is_not_answerable_for_its_address() {
    let upstream = Upstream::start();
    let proxy = start(SMALL, &policy(&upstream, "header.x-api-key", "rate: 9/hour"));
    for key in 0..5 {
        let answer = proxy.send(by_key(key, "203.0.113.1"));
        answer.assert_status(if key < 4 { 200 } else { 429 });
    }
    for key in 10..15 {
        let answer = proxy.send(by_key(key, "203.0.113.1").by("alice"));
        answer.assert_status(if key < 14 { 200 } else { 429 });
    }
    proxy.send(by_key(20, "203.0.113.1").by("bob")).assert_status(200);
}

#[test]
fn networks_without_number_leave_room_for_addresses_and_verified_callers() {
    let upstream = Upstream::start();
    let policy = policy(&upstream, "client.ip", "rate: 9/hour");
    let proxy = start(SMALL, &policy);
    let from = |address: &str| proxy.send(get("/open/1/x").from(address)).status;
    for network in 0..70 {
        let status = from(&format!("2001:db8:0:{network:x}::1"));
        assert_eq!(status, if network < 60 { 200 } else { 503 }, "{network}");
    }
    for address in 1..=12 {
        let status = from(&format!("203.0.113.{address}"));
        assert_eq!(status, if address <= 10 { 200 } else { 503 }, "{address}");
    }
    for caller in 0..10 {
        proxy.get_as(&format!("user-{caller}")).assert_status(200);
    }
    assert_eq!(proxy.stores().counts.no_room(NoRoom::Networks), 10);
    assert_eq!(proxy.stores().counts.no_room(NoRoom::Addresses), 2);
}

#[test]
fn shadow_limit_denies_no_request_for_want_of_room() {
    let upstream = Upstream::start();
    let proxy = start(SMALL, &policy(&upstream, "header.x-api-key", "rate: 9/hour, mode: shadow"));
    for key in 0..20 {
        proxy.send(by_key(key, "203.0.113.1")).assert_status(200);
    }
    assert_eq!(proxy.stores().memory.unverified(), 4);
}

#[test]
fn requests_of_one_http2_connection_are_bounded_alike() {
    let upstream = Upstream::start();
    let proxy = start(SMALL, &policy(&upstream, "header.x-api-key", "rate: 9/hour"));
    let request = |key: usize| {
        let uri = format!("http://{}/open/1/x", proxy.address());
        let request = http::Request::get(uri).header("x-api-key", format!("key-{key}"));
        request.body(String::new()).unwrap()
    };
    let answers = http2(proxy.address(), (0..8).map(request).collect());
    let passed = answers.iter().filter(|answer| answer.status() == 200).count();
    let denied = answers.iter().filter(|answer| answer.status() == 429).count();
    assert_eq!((passed, denied, upstream.count()), (4, 4, 4));
}

#[test]
fn refused_request_is_logged_as_denied_by_the_store() {
    let upstream = Upstream::start();
    let proxy = start(SMALL, &policy(&upstream, "header.x-api-key", "rate: 9/hour"));
    for key in 0..5 {
        proxy.send(by_key(key, "203.0.113.1"));
    }
    proxy.advance(MINUTE);
    let log = proxy.into_log();
    let reason = "no room for another counter: \
                  the client has created too many counters by values of its own choice";
    assert_eq!(log.matches(reason).count(), 1, "{log}");
}
