//! Calls of programs over HTTP: limits that are charged by name, receipts, and waiting for room.

mod client_time;
mod of_requests;
mod tokens;
mod unanswered;
mod usage;

use std::{io::Write, net::TcpStream, thread};

use serde_json::{Value, json};
use tollgate::callers::top::RankBy;
use tollgate_settings::MoveMode;

use crate::support::{
    HOUR, Policy, Proxy, Redis, Request, Response, SECOND, Upstream, eventually, get, post,
};

const ASKABLE: &str = "workers: 1\ndecisions: [{ address: 127.0.0.1:0, protocol: http }]";

fn policy() -> Policy {
    before(&Upstream::start())
}

fn before(upstream: &Upstream) -> Policy {
    Policy::before(upstream).limits(&[
        "core: { per: caller, rate: 5/hour }",
        "peak: { per: key, rate: 3/10s }",
        "daily: { per: key, rate: 5/1d, cost: 2 }",
        "slots: { per: key, concurrent: 1 }",
        "tried: { per: key, rate: 1/hour, mode: shadow }",
    ])
}

fn proxy() -> Proxy {
    Proxy::with_settings(ASKABLE, &[&policy()])
}

fn call(proxy: &Proxy, path: &str, body: &Value) -> Response {
    proxy.ask(post(path, body.to_string()).by_program())
}

/// Charges limits, each written as `limit key` or `limit key cost`.
fn charge(proxy: &Proxy, charges: &[&str]) -> Response {
    call(proxy, "/v1/charge", &json!({ "charges": written(charges) }))
}

fn written(charges: &[&str]) -> Vec<Value> {
    let written = charges.iter().map(|charge| {
        let words: Vec<&str> = charge.split(' ').collect();
        match words[..] {
            [limit, key] => json!({ "limit": limit, "key": key }),
            [limit, key, cost] => {
                json!({ "limit": limit, "key": key, "cost": cost.parse::<u32>().unwrap() })
            }
            _ => panic!("{charge}"),
        }
    });
    written.collect()
}

fn receipt(response: &Response) -> String {
    response.assert_status(200);
    response.json()["receipt"].as_str().unwrap().to_owned()
}

/// What is used of a limit.
fn used(proxy: &Proxy, limit: &str, key: &str) -> u64 {
    let response = proxy.ask(get(&format!("/v1/standing?limit={limit}&key={key}")).by_program());
    response.assert_status(200);
    response.json()["standings"][0]["used"].as_u64().unwrap()
}

#[test]
fn keys_that_programs_name_are_ranked() {
    let proxy = proxy();
    for key in ["acct-7", "acct-7", "acct-8", "acct-7", "acct-7"] {
        charge(&proxy, &[&format!("daily {key} 1"), &format!("tried {key}")]);
        charge(&proxy, &[&format!("peak {key}")]);
    }
    let ranked = |by, limit: &str| {
        let all = proxy.top(by, 1).callers.into_iter().filter(|own| own.limit == limit);
        all.map(|own| (own.name, own.count)).collect::<Vec<_>>()
    };
    let counted = |name: &str, count| (name.to_owned(), count);
    let expected = [counted("key:acct-7", 4), counted("key:acct-8", 1)];
    assert_eq!(ranked(RankBy::Units, "daily"), expected);
    assert_eq!(ranked(RankBy::WouldBeDenials, "tried"), [counted("key:acct-7", 3)]);
    assert_eq!(ranked(RankBy::Denials, "peak"), [counted("key:acct-7", 1)]);
    assert_eq!(proxy.look("key:acct-7").unwrap().caller, "key:acct-7");
}

#[test]
fn units_are_counted_once_whatever_windows_a_limit_has() {
    let limits = ["wide: { per: key, rate: [20/minute, 100/day] }"];
    let policy = Policy::before(&Upstream::start()).limits(&limits);
    let proxy = Proxy::with_settings(ASKABLE, &[&policy]);
    let settle = |receipt: &str, cost: u32| {
        call(&proxy, "/v1/settle", &json!({ "receipt": receipt, "cost": cost })).assert_status(200);
        proxy.units("wide")
    };
    let first = receipt(&charge(&proxy, &["wide a 4"]));
    assert_eq!(proxy.units("wide"), [4, 0]);
    assert_eq!(settle(&first, 6), [6, 0]);
    let back = receipt(&charge(&proxy, &["wide a 3"]));
    assert_eq!(settle(&back, 0), [9, 3]);
    // Two counters of one limit are no windows of one.
    let two = receipt(&charge(&proxy, &["wide b 1", "wide c 2"]));
    assert_eq!(proxy.units("wide"), [12, 3]);
    assert_eq!(settle(&two, 5), [19, 3]);
}

#[test]
fn units_that_a_settlement_adds_are_ranked_by_the_name_of_the_key() {
    let limits =
        ["wide: { per: key, rate: [20/minute, 100/day] }", "core: { per: caller, rate: 50/hour }"];
    let policy = Policy::before(&Upstream::start()).limits(&limits);
    let proxy = Proxy::with_settings(ASKABLE, &[&policy]);
    let receipts = [["wide a 1", "wide b 2"], ["wide c 0", "core user:42 3"]]
        .map(|charges| receipt(&charge(&proxy, &charges)));
    // The minute in which they were charged is over.
    proxy.advance(30 * SECOND);
    for receipt in receipts {
        call(&proxy, "/v1/settle", &json!({ "receipt": receipt, "cost": 9 })).assert_status(200);
    }
    let counted = |name: &str, count| (name.to_owned(), count);
    assert_eq!(proxy.ranked("wide"), [counted("key:a", 9), counted("key:b", 9)]);
    assert_eq!(proxy.ranked("core"), [counted("user:42", 9)]);
}

#[test]
fn all_limits_of_a_call_are_charged_or_none() {
    let proxy = proxy();
    let first = charge(&proxy, &["peak acct-7", "daily acct-7"]);
    first.assert_status(200).assert_limit(["3", "2", "1", "1790000011", "peak"]);
    let body = first.json();
    assert_eq!(body["allowed"], true);
    assert_eq!(
        body["standings"],
        json!([
            { "limit": "peak", "window_seconds": 10, "of": 3, "used": 1, "remaining": 2,
              "reset": 1_790_000_011 },
            { "limit": "daily", "window_seconds": 86400, "of": 5, "used": 2, "remaining": 3,
              "reset": 1_790_086_401 },
        ])
    );
    charge(&proxy, &["peak acct-7", "daily acct-7"]).assert_status(200);
    let denied = charge(&proxy, &["peak acct-7", "daily acct-7"]);
    denied.assert_status(429).assert_field("retry-after", "86400");
    let body = denied.json();
    assert_eq!((&body["allowed"], &body["denied_by"]), (&json!(false), &json!("daily")));
    assert_eq!(body["retry_after"], 86400.0);
    assert_eq!((used(&proxy, "peak", "acct-7"), used(&proxy, "daily", "acct-7")), (2, 4));
    // Another key has counters of its own, and so has another limit.
    charge(&proxy, &["peak acct-8 3"]).assert_status(200);
    let never = charge(&proxy, &["peak acct-9 4"]);
    never.assert_status(429).assert_no_field("retry-after");
    assert_eq!(never.json()["retry_after"], Value::Null);
    // Shadow mode counts and never denies.
    for _ in 0..3 {
        charge(&proxy, &["tried a"]).assert_status(200);
    }
    proxy.advance(10 * SECOND);
    charge(&proxy, &["peak acct-7 3"]).assert_status(200);
}

#[test]
fn what_cannot_be_charged_is_told() {
    let proxy = proxy();
    for (body, status, told) in [
        (json!({ "charges": written(&["nope a"]) }), 404, "No policy has a limit `nope`"),
        (json!({ "charges": written(&["core a"]) }), 400, "write its key as `user:a`"),
        (
            json!({ "charges": written(&["other/peak a"]) }),
            404,
            "No policy has a limit `other/peak`",
        ),
        (json!({ "charges": [] }), 400, "A call has to have 1 to 8 charges."),
        (json!({ "charges": written(&["peak a", "peak a"]) }), 400, "charged twice for one key"),
        (json!({ "charges": [{ "limit": "peak", "key": "" }] }), 400, "1 to 256 bytes"),
        (json!({ "charges": [{ "limit": "peak" }] }), 400, "missing field `key`"),
        (json!({ "charges": [{ "limit": "peak", "key": "a", "cost": -1 }] }), 400, "invalid value"),
        (json!({ "charges": written(&["peak a"]), "wait": "1h" }), 400, "write a time up to 5m"),
        (json!({ "charges": written(&["peak a"]), "extra": 1 }), 400, "unknown field `extra`"),
        (json!([]), 400, "not as it should be"),
    ] {
        let response = call(&proxy, "/v1/charge", &body);
        response.assert_status(status);
        let problem = response.json();
        assert_eq!(problem["status"], status, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(told), "{problem}");
        let media_type = response.field("content-type").unwrap();
        assert!(media_type.starts_with("application/problem+json"), "{media_type}");
    }
    proxy.ask(post("/v1/charge", "x".repeat(70_000)).by_program()).assert_status(413);
    proxy.ask(get("/v1/charge").by_program()).assert_status(405).assert_field("allow", "POST");
    proxy.ask(get("/v1/standing?limit=peak").by_program()).assert_status(400);
    proxy.ask(get("/v1/standing?limit=peak&key=a&key=b").by_program()).assert_status(400);
    charge(&proxy, &["policy-0/peak a"]).assert_status(200);
    assert_eq!(used(&proxy, "peak", "a"), 1);
}

#[test]
fn receipt_corrects_a_charge_once() {
    let proxy = proxy();
    let settle = |body: Value| call(&proxy, "/v1/settle", &body);
    let both = receipt(&charge(&proxy, &["peak a", "daily a"]));
    let settled = settle(json!({ "receipt": both, "give_back": true }));
    settled.assert_status(200);
    assert_eq!(settled.json()["standings"][0]["used"], 0);
    settle(json!({ "receipt": both, "give_back": true })).assert_status(409);
    assert_eq!((used(&proxy, "peak", "a"), used(&proxy, "daily", "a")), (0, 0));

    let more = receipt(&charge(&proxy, &["peak a", "daily a"]));
    settle(json!({ "receipt": more, "cost": 5, "limit": "daily" })).assert_status(200);
    assert_eq!((used(&proxy, "peak", "a"), used(&proxy, "daily", "a")), (1, 5));
    // All or none: a part of it was used.
    settle(json!({ "receipt": more, "cost": 0 })).assert_status(409);
    assert_eq!((used(&proxy, "peak", "a"), used(&proxy, "daily", "a")), (1, 5));

    let late = receipt(&charge(&proxy, &["peak b"]));
    proxy.advance(11 * SECOND);
    charge(&proxy, &["peak b"]).assert_status(200);
    settle(json!({ "receipt": late, "give_back": true })).assert_status(410);
    assert_eq!(used(&proxy, "peak", "b"), 1, "nothing is given back into another window");

    let good = receipt(&charge(&proxy, &["peak c"]));
    let mut forged = good.clone().into_bytes();
    forged[20] = if forged[20] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    for text in [forged.as_str(), "", "AAAA", &"A".repeat(5000)] {
        settle(json!({ "receipt": text, "give_back": true })).assert_status(400);
    }
    settle(json!({ "receipt": good })).assert_status(400);
    settle(json!({ "receipt": good, "give_back": true, "cost": 1 })).assert_status(400);
    call(&proxy, "/v1/release", &json!({ "receipt": good })).assert_status(400);
    settle(json!({ "receipt": good, "give_back": true })).assert_status(200);
}

#[test]
fn settling_one_limit_leaves_the_receipt_for_the_others() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let store =
        format!("store: {{ redis: {{ {}, clock: proxy }}, deadline: 10s }}", redis.settings());
    let in_redis = format!("{ASKABLE}\n{store}");
    for settings in [ASKABLE, &in_redis] {
        let proxy = Proxy::with_settings(settings, &[&before(&upstream)]);
        let settle = |body: Value| call(&proxy, "/v1/settle", &body);
        let both = receipt(&charge(&proxy, &["peak a 2", "daily a 3"]));
        settle(json!({ "receipt": both, "cost": 5, "limit": "daily" })).assert_status(200);
        settle(json!({ "receipt": both, "cost": 4, "limit": "daily" })).assert_status(409);
        settle(json!({ "receipt": both, "give_back": true, "limit": "peak" })).assert_status(200);
        settle(json!({ "receipt": both, "give_back": true, "limit": "peak" })).assert_status(409);
        settle(json!({ "receipt": both, "give_back": true })).assert_status(409);
        assert_eq!((used(&proxy, "peak", "a"), used(&proxy, "daily", "a")), (0, 5), "{settings}");
    }
}

#[test]
fn path_with_nothing_names_what_there_is() {
    let proxy = proxy();
    for path in ["/v1/chargee", "/v1", "/json", "/"] {
        let nothing = call(&proxy, path, &json!({}));
        nothing.assert_status(404).assert_no_limit();
        nothing.assert_field("content-type", "application/problem+json; charset=utf-8");
        let detail = nothing.json()["detail"].as_str().unwrap().to_owned();
        for named in ["/v1/charge", "/v1/standing", "/decide/nginx", "protocol: grpc"] {
            assert!(detail.contains(named), "{path}: {detail}");
        }
    }
}

#[test]
fn slot_is_held_until_it_is_released() {
    let proxy = proxy();
    let slot = receipt(&charge(&proxy, &["slots a", "peak a"]));
    charge(&proxy, &["slots a"]).assert_status(429);
    let release = || call(&proxy, "/v1/release", &json!({ "receipt": slot }));
    release().assert_status(200);
    release().assert_status(409);
    assert_eq!(used(&proxy, "slots", "a"), 0);
    assert_eq!(used(&proxy, "peak", "a"), 1, "units stay charged");
    call(&proxy, "/v1/settle", &json!({ "receipt": slot, "give_back": true })).assert_status(200);
    assert_eq!(used(&proxy, "peak", "a"), 0);
    charge(&proxy, &["slots a"]).assert_status(200);
}

#[test]
fn who_waits_gets_room_in_the_order_of_arrival() {
    let proxy = &proxy();
    let held = receipt(&charge(proxy, &["slots a"]));
    let wait = || {
        let body = json!({ "charges": written(&["slots a"]), "wait": "5m" });
        call(proxy, "/v1/charge", &body)
    };
    let is_waiting = |number| {
        eventually("it waits", || (proxy.waiting() == number).then_some(()));
    };
    let release = |receipt: String| {
        call(proxy, "/v1/release", &json!({ "receipt": receipt })).assert_status(200);
    };
    thread::scope(|scope| {
        let first = scope.spawn(wait);
        is_waiting(1);
        let second = scope.spawn(wait);
        is_waiting(2);
        charge(proxy, &["slots a"]).assert_status(429);
        charge(proxy, &["slots b"]).assert_status(200);
        release(held);
        let first = receipt(&first.join().unwrap());
        assert!(!second.is_finished());
        is_waiting(1);
        release(first);
        receipt(&second.join().unwrap());
        is_waiting(0);
    });
    let body = json!({ "charges": written(&["slots a"]), "wait": "1ms" });
    call(proxy, "/v1/charge", &body).assert_status(429);
    assert_eq!(proxy.waiting(), 0);
}

/// It does so without a reset: a client of the API that closes its side may wait for a response.
#[test]
fn program_that_closes_its_connection_leaves_the_line() {
    let proxy = proxy();
    charge(&proxy, &["slots a"]).assert_status(200);
    let body = json!({ "charges": written(&["slots a"]), "wait": "5m" }).to_string();
    let mut program = TcpStream::connect(proxy.asked_at(0)).unwrap();
    let length = body.len();
    let head =
        format!("POST /v1/charge HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n");
    program.write_all((head + &body).as_bytes()).unwrap();
    let waiting = |number| eventually("it waits", || (proxy.waiting() == number).then_some(()));
    waiting(1);
    drop(program);
    waiting(0);
}

#[test]
fn who_cannot_get_room_in_time_holds_up_nobody() {
    let proxy = &proxy();
    let wait = |charges: &[&str]| {
        let body = json!({ "charges": written(charges), "wait": "5m" });
        call(proxy, "/v1/charge", &body)
    };
    charge(proxy, &["daily a 5"]).assert_status(200);
    let denied = wait(&["slots all", "daily a"]);
    denied.assert_status(429).assert_field("retry-after", "86400");
    let held = receipt(&charge(proxy, &["slots all"]));
    let waiting = |number| {
        eventually("it waits", || (proxy.waiting() == number).then_some(()));
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| wait(&["slots all", "daily b"]));
        waiting(1);
        wait(&["slots all", "daily a"]).assert_status(429);
        waiting(1);
        call(proxy, "/v1/release", &json!({ "receipt": held })).assert_status(200);
        receipt(&other.join().unwrap());
    });
}

/// The other one is longer closed than a test lasts.
#[test]
fn line_is_that_of_the_limit_that_denies() {
    let limits = ["slots: { per: key, concurrent: 1 }", "slow: { per: key, rate: 1/240s }"];
    let policy = Policy::before(&Upstream::start()).limits(&limits);
    let proxy = &Proxy::with_settings(ASKABLE, &[&policy]);
    let full = receipt(&charge(proxy, &["slow a"]));
    let wait = |charges: &[&str]| {
        let body = json!({ "charges": written(charges), "wait": "5m" });
        call(proxy, "/v1/charge", &body)
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| wait(&["slots all", "slow a"]));
        eventually("it waits", || (proxy.waiting() == 1).then_some(()));
        let slot = receipt(&wait(&["slots all", "slow b"]));
        call(proxy, "/v1/release", &json!({ "receipt": slot })).assert_status(200);
        let settle = json!({ "receipt": full, "give_back": true });
        call(proxy, "/v1/settle", &settle).assert_status(200);
        receipt(&first.join().unwrap());
    });
}

#[test]
fn who_is_denied_by_another_limit_at_the_head_of_a_line_leaves_it() {
    let proxy = &proxy();
    let full = receipt(&charge(proxy, &["peak a 3"]));
    let held = receipt(&charge(proxy, &["slots all"]));
    let wait = |charges: &[&str]| {
        let body = json!({ "charges": written(charges), "wait": "5m" });
        call(proxy, "/v1/charge", &body)
    };
    let release = |slot: &str| {
        call(proxy, "/v1/release", &json!({ "receipt": slot })).assert_status(200);
    };
    let waiting = |number| {
        eventually("it waits", || (proxy.waiting() == number).then_some(()));
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| wait(&["slots all"]));
        waiting(1);
        let both = scope.spawn(|| wait(&["slots all", "peak a"]));
        waiting(2);
        release(&held);
        let slot = receipt(&first.join().unwrap());
        let last = scope.spawn(|| wait(&["slots all"]));
        waiting(2);
        release(&slot);
        eventually("it has the slot", || last.is_finished().then_some(()));
        assert!(!both.is_finished());
        release(&receipt(&last.join().unwrap()));
        let settle = json!({ "receipt": full, "give_back": true });
        call(proxy, "/v1/settle", &settle).assert_status(200);
        receipt(&both.join().unwrap());
    });
}

#[test]
fn proxies_that_share_counters_take_each_others_receipts() {
    let redis = Redis::start();
    let settings = format!(
        "{ASKABLE}\nstore: {{ redis: {{ url: \"{}\", clock: proxy }}, deadline: 10s }}",
        redis.url()
    );
    let start = || Proxy::with_settings(&settings, &[&policy()]);
    let (one, other) = (start(), start());
    let receipt = receipt(&charge(&one, &["peak a", "daily a"]));
    assert_eq!(used(&other, "daily", "a"), 2);
    let settle = json!({ "receipt": receipt, "give_back": true });
    call(&other, "/v1/settle", &settle).assert_status(200);
    call(&one, "/v1/settle", &settle).assert_status(409);
    eventually("it is given back", || (used(&one, "daily", "a") == 0).then_some(()));
    charge(&one, &["peak a 3"]).assert_status(200);
    charge(&other, &["peak a"]).assert_status(429);
    call(&other, "/v1/reset", &json!({ "limit": "peak", "key": "a" })).assert_status(200);
    eventually("it is reset", || (used(&one, "peak", "a") == 0).then_some(()));
}

#[test]
fn keys_may_have_rates_of_their_own() {
    let policy = policy()
        .section("overrides:\n  - { limit: peak, key: big, rate: 30/10s, why: \"a contract\" }");
    let proxy = Proxy::with_settings(ASKABLE, &[&policy]);
    charge(&proxy, &["peak big 30"]).assert_status(200);
    charge(&proxy, &["peak small 4"]).assert_status(429);
    proxy.advance(HOUR);
    proxy.install(&[&self::policy()]);
    charge(&proxy, &["peak big 4"]).assert_status(429);
}

#[test]
fn longest_receipt_is_taken() {
    let long = |number: usize| format!("{}-{number}", "n".repeat(50));
    let rates = "rate: [100/minute, 100/hour, 100/day, 100/week]";
    let limits: Vec<String> =
        (0..8).map(|number| format!("{}: {{ per: key, {rates} }}", long(number))).collect();
    let limits: Vec<&str> = limits.iter().map(String::as_str).collect();
    let policy = Policy::before(&Upstream::start()).limits(&limits);
    let proxy = Proxy::with_settings(ASKABLE, &[&policy]);
    // Each byte of the key is six in JSON.
    let key = "\u{1}".repeat(256);
    let charges: Vec<String> = (0..8).map(|number| format!("{} {key}", long(number))).collect();
    let charges: Vec<&str> = charges.iter().map(String::as_str).collect();
    let receipt = receipt(&charge(&proxy, &charges));
    assert!(receipt.len() > 4096, "{}", receipt.len());
    let settled = call(&proxy, "/v1/settle", &json!({ "receipt": receipt, "give_back": true }));
    settled.assert_status(200);
    assert_eq!(settled.json()["standings"][31]["used"], 0);
}

#[test]
fn receipt_ends_with_a_reset_of_its_counter() {
    for limit in [
        "peak: { per: key, rate: 10/day, align: epoch }",
        "peak: { per: key, rate: 10/day, algorithm: gcra }",
    ] {
        let proxy =
            Proxy::with_settings(ASKABLE, &[&Policy::before(&Upstream::start()).limits(&[limit])]);
        let before = receipt(&charge(&proxy, &["peak a 5"]));
        let other = receipt(&charge(&proxy, &["peak b 5"]));
        proxy.advance(SECOND);
        let reset = || {
            call(&proxy, "/v1/reset", &json!({ "limit": "peak", "key": "a" })).assert_status(200);
            proxy.advance(SECOND);
        };
        let settle = |receipt: &str| {
            let body = json!({ "receipt": receipt, "give_back": true });
            call(&proxy, "/v1/settle", &body).status
        };
        reset();
        let after = receipt(&charge(&proxy, &["peak a 5"]));
        assert_eq!((settle(&before), used(&proxy, "peak", "a")), (410, 5), "{limit}");
        assert_eq!((settle(&other), settle(&after)), (200, 200), "{limit}");
        assert_eq!(used(&proxy, "peak", "a"), 0, "{limit}");
        let again = receipt(&charge(&proxy, &["peak a 5"]));
        proxy.advance(SECOND);
        reset();
        assert_eq!(settle(&again), 410, "{limit}");
    }
}

#[test]
fn receipt_from_before_a_reset_is_refused_after_its_caller_was_moved() {
    let [first, second] = [(); 2].map(|()| Redis::start());
    let in_redis = |redis: &Redis| format!("{{ redis: {{ {}, clock: proxy }} }}", redis.settings());
    let settings = format!(
        "{ASKABLE}\nstore: {{ current: {}, next: {}, mode: move_now, deadline: 10s }}",
        in_redis(&first),
        in_redis(&second),
    );
    let policy = Policy::before(&Upstream::start()).limits(&["peak: { per: key, rate: 10/day }"]);
    let proxy = Proxy::with_settings(&settings, &[&policy]);
    let settle = |receipt: &str| {
        call(&proxy, "/v1/settle", &json!({ "receipt": receipt, "give_back": true })).status
    };
    let [before, other] =
        ["a", "b"].map(|key| receipt(&charge(&proxy, &[&format!("peak {key} 5")])));
    proxy.advance(SECOND);
    call(&proxy, "/v1/reset", &json!({ "limit": "peak", "key": "a" })).assert_status(200);
    proxy.advance(SECOND);
    charge(&proxy, &["peak a 5"]).assert_status(200);
    proxy.stores().moving.set(100, MoveMode::MoveNow);
    proxy.advance(SECOND);
    assert_eq!((settle(&before), settle(&other)), (410, 200));
    assert_eq!(used(&proxy, "peak", "a"), 5);
}

#[test]
fn receipt_is_taken_once_though_the_process_ends_in_the_last_minute_of_a_window() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("counters");
    let path = path.display();
    // The disk is asked once the process is another one, however slow the machine.
    let settings =
        format!("{ASKABLE}\nstore: {{ disk: {{ path: {path}, flush: 10ms }}, deadline: 10s }}");
    let policy = Policy::before(&Upstream::start()).limits(&["jobs: { per: key, rate: 5/minute }"]);
    let settle = |proxy: &Proxy, receipt: &str| {
        call(proxy, "/v1/settle", &json!({ "receipt": receipt, "give_back": true })).status
    };
    let first = Proxy::with_settings(&settings, &[&policy]);
    let receipt = receipt(&charge(&first, &["jobs a"]));
    first.advance(40 * SECOND);
    assert_eq!(settle(&first, &receipt), 200);
    first.stores().disk().unwrap().finish();
    drop(first);
    let second = Proxy::with_settings(&settings, &[&policy]);
    assert_eq!(settle(&second, &receipt), 409);
}

#[test]
fn settlement_locks_no_counter_for_years() {
    let policy = Policy::before(&Upstream::start()).limits(&[
        "slow: { per: key, rate: 10/day, algorithm: gcra }",
        "bucket: { per: key, rate: 10/day, algorithm: token_bucket }",
        "daily: { per: key, rate: 10/day }",
    ]);
    let proxy = Proxy::with_settings(ASKABLE, &[&policy]);
    let settle = |receipt: &str, cost: u64| {
        call(&proxy, "/v1/settle", &json!({ "receipt": receipt, "cost": cost }))
    };
    for limit in ["slow", "bucket"] {
        let receipt = receipt(&charge(&proxy, &[&format!("{limit} a")]));
        for cost in [u64::from(u32::MAX), 1 << 31, 1_001] {
            settle(&receipt, cost).assert_status(400);
        }
        settle(&receipt, 1_000).assert_status(200);
        assert_eq!(used(&proxy, limit, "a"), 1_000);
    }
    let receipt = receipt(&charge(&proxy, &["daily a"]));
    settle(&receipt, 1 << 31).assert_status(400);
    settle(&receipt, (1 << 31) - 1).assert_status(200);
}

#[test]
fn settled_receipts_leave_no_counters() {
    let settings = format!("{ASKABLE}\nstore: {{ memory: {{ max_keys: 40 }} }}");
    let proxy = Proxy::with_settings(&settings, &[&policy()]);
    for _ in 0..100 {
        let receipt = receipt(&charge(&proxy, &["daily a"]));
        let settle = json!({ "receipt": receipt, "give_back": true });
        call(&proxy, "/v1/settle", &settle).assert_status(200);
        call(&proxy, "/v1/settle", &settle).assert_status(409);
    }
    assert_eq!(proxy.stores().memory.len(), 1);
    charge(&proxy, &["daily b"]).assert_status(200);
}

#[test]
fn keys_fill_no_more_than_their_room() {
    let settings = format!(
        "{ASKABLE}\nstore: {{ memory: {{ max_keys: 1000 }}, unverified_keys: {{ per_address: 100 }} }}"
    );
    let proxy = Proxy::with_settings(&settings, &[&policy()]);
    let passed = |key: &dyn Fn(u32) -> String| {
        let charged =
            |number: &u32| charge(&proxy, &[&format!("peak {}", key(*number))]).status == 200;
        (0..300).filter(charged).count()
    };
    assert_eq!(passed(&|number| format!("made-up-{number}")), 100, "as many as one asker may make");
    // A key that is an address is one that a client may have written, too.
    assert_eq!(passed(&|number| format!("192.0.2.{number}")), 0, "whatever it looks like");
    assert_eq!(passed(&|number| format!("2001:db8::{number}")), 0, "whatever it looks like");
    charge(&proxy, &["peak another"]).assert_status(429);
}

#[test]
fn keys_are_bounded_in_redis_too() {
    let redis = Redis::start();
    let settings = format!(
        "{ASKABLE}\nstore: {{ redis: {{ {}, clock: proxy }}, deadline: 10s, unverified_keys: {{ new_per_minute: 50 }} }}",
        redis.settings()
    );
    let proxy = Proxy::with_settings(&settings, &[&policy()]);
    let charged = |number: &u32| charge(&proxy, &[&format!("peak made-up-{number}")]).status == 200;
    assert_eq!((0..80).filter(charged).count(), 50);
    assert_eq!(redis.counters().len(), 50);
    charge(&proxy, &["peak made-up-0"]).assert_status(200);
}

#[test]
fn calls_are_in_the_log_and_among_the_denials() {
    let settings = format!("{ASKABLE}\naccess_log: {{ format: json }}");
    let proxy = Proxy::with_settings(&settings, &[&policy()]);
    charge(&proxy, &["peak a 3"]);
    charge(&proxy, &["peak a"]);
    charge(&proxy, &["nope a"]);
    let denials = proxy.denials();
    assert_eq!((denials.len(), denials[0].path.as_str()), (1, "/v1/charge"));
    let log = proxy.into_log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (line, status) in lines.iter().zip([200, 429, 404]) {
        assert_eq!((&line["asked_by"], &line["status"]), (&json!("http"), &json!(status)));
        assert_eq!(line["path"], "/v1/charge");
    }
    assert_eq!((&lines[0]["limit"], &lines[0]["used"]), (&json!("peak"), &json!(3)));
    assert_eq!((&lines[1]["denied"], &lines[1]["denied_by"]), (&json!("limit"), &json!("peak")));
    assert!(lines[2]["error"].as_str().unwrap().contains("a limit `nope`"));
}

#[test]
fn line_says_whose_counter_a_program_has_charged() {
    let limits = [
        "core: { per: caller, rate: 5/hour }",
        "peak: { per: key, rate: 3/10s }",
        "daily: { per: key, rate: [5/hour, 5/day] }",
        "slots: { per: key, concurrent: 1 }",
        "tenants: { per: header.x-api-key, rate: 5/hour }",
    ];
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).limits(&limits);
    let run = |format: &str| {
        let settings = format!("{ASKABLE}\naccess_log: {{ format: {format} }}");
        let proxy = Proxy::with_settings(&settings, &[&policy]);
        let both = receipt(&charge(&proxy, &["peak eu 1", "daily acct-7 5"]));
        charge(&proxy, &["peak us 1", "daily acct-7"]).assert_status(429);
        assert_eq!(used(&proxy, "daily", "acct-7"), 5);
        let settled = json!({ "receipt": both, "cost": 2 });
        call(&proxy, "/v1/settle", &settled).assert_status(200);
        let held = receipt(&charge(&proxy, &["slots acct-8"]));
        call(&proxy, "/v1/release", &json!({ "receipt": held })).assert_status(200);
        call(&proxy, "/v1/reset", &json!({ "limit": "peak", "key": "eu" })).assert_status(200);
        charge(&proxy, &["core user:42"]).assert_status(200);
        charge(&proxy, &["tenants header.x-api-key:s3cret"]).assert_status(200);
        proxy.get_as("42").assert_status(200);
        let log = proxy.into_log();
        assert!(!log.contains("s3cret"), "{log}");
        log
    };
    let log = run("json");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let key = |at: usize| lines[at]["key"].as_str().unwrap_or("-");
    let keys: Vec<&str> = (0..8).map(key).collect();
    let expected = [
        "key:eu",
        "key:acct-7",
        "key:acct-7",
        "key:eu",
        "key:acct-8",
        "key:acct-8",
        "key:eu",
        "user:42",
    ];
    assert_eq!(keys, expected, "{log}");
    assert!(key(8).starts_with("header.x-api-key:(hash "), "{log}");
    assert_eq!(lines[9].get("key"), None, "a request has its caller");
    let of_limits = |at: usize| {
        let limits = lines[at]["limits"].as_array().unwrap().iter();
        limits.map(|limit| limit["key"].as_str().unwrap_or("-")).collect::<Vec<_>>()
    };
    assert_eq!(of_limits(0), ["key:eu", "key:acct-7", "key:acct-7"]);
    let log = run("text");
    let line = |at: usize| log.lines().nth(at).unwrap();
    assert!(line(0).contains(" 200 peak=1/3 key=key:eu asked_by=http "), "{log}");
    assert!(line(1).contains(" 429 daily=5/5 key=key:acct-7 asked_by=http "), "{log}");
    assert!(line(3).contains(" /v1/settle route=- 200 key=key:eu asked_by=http "), "{log}");
    assert!(line(8).contains(" key=header.x-api-key:(hash\\x20"), "{log}");
    assert!(!line(9).contains(" key="), "{log}");
}

#[test]
fn each_call_has_one_line_with_the_status_that_was_answered() {
    let proxy = proxy();
    let mut statuses = Vec::new();
    let mut ask = |request: Request| {
        let response = proxy.ask(request);
        statuses.push((response.status, response.field("x-request-id").map(str::to_owned)));
    };
    let charges = json!({ "charges": written(&["peak a"]) }).to_string();
    ask(post("/v1/charge", charges.clone()).by_program());
    ask(post("/v1/charge", "{").by_program());
    ask(post("/v1/charge", r#"{"charges":[],"wait":"never"}"#).by_program());
    ask(get("/v1/charge").by_program());
    ask(post("/v1/charge", charges).host("localhost").field("content-type", "text/plain"));
    ask(post("/v1/settle", r#"{"receipt":"a"}"#).by_program());
    ask(post("/v1/release", r#"{"receipt":"a"}"#).by_program());
    ask(post("/v1/reset", r#"{"limit":"peak","key":"a","why":"a\nb"}"#).by_program());
    ask(get("/v1/standing?limit=peak").by_program());
    let expected = [200, 400, 400, 405, 403, 400, 400, 400, 400];
    assert_eq!(statuses.iter().map(|(status, _)| *status).collect::<Vec<_>>(), expected);
    let log = proxy.into_log();
    let lines: Vec<Vec<&str>> = log.lines().map(|line| line.split(' ').collect()).collect();
    let logged = lines.iter().map(|words| (words[8].parse().unwrap(), Some(words[1].to_owned())));
    assert_eq!(logged.collect::<Vec<_>>(), statuses, "{log}");
    assert!(log.contains(" GET /v1/charge route=- 405 asked_by=http error=\""), "{log}");
}

#[test]
fn only_askers_may_call() {
    let upstream = Upstream::start();
    let settings = ASKABLE.replace("http }", "http, askers: [10.0.0.0/8] }");
    let proxy = Proxy::with_settings(&settings, &[&before(&upstream)]);
    charge(&proxy, &["peak a"]).assert_status(403);
    // Where clients come in it is a path like any other.
    let body = json!({ "charges": written(&["peak a"]) }).to_string();
    proxy.send(post("/v1/charge", body)).assert_status(200);
    assert_eq!(upstream.count(), 1);
}
