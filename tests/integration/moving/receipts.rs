//! Receipts of charges that another store decided than the one that has their counters by now.

use serde_json::json;

use super::{MEMORY, in_redis, move_callers};
use crate::support::{Policy, Proxy, Redis, Upstream, eventually, forms_of_algorithms, get, post};

fn proxy(store: &str, policy: &Policy) -> Proxy {
    let settings = format!(
        "workers: 1\ndecisions: [{{ address: 127.0.0.1:0, protocol: http }}]\n\
         store: {{ {store}, deadline: 10s }}"
    );
    Proxy::with_settings(&settings, &[policy])
}

fn jobs(upstream: &Upstream, algorithm: &str) -> Policy {
    Policy::before(upstream)
        .limits(&[&format!("jobs: {{ per: key, rate: 100/day, algorithm: {algorithm} }}")])
}

fn charge(proxy: &Proxy, cost: u32) -> String {
    let body = json!({ "charges": [{ "limit": "jobs", "key": "a", "cost": cost }] });
    let response = proxy.ask(post("/v1/charge", body.to_string()).by_program());
    response.assert_status(200);
    response.json()["receipt"].as_str().unwrap().to_owned()
}

fn settle(proxy: &Proxy, receipt: &str, cost: u32) -> u64 {
    let body = json!({ "receipt": receipt, "cost": cost });
    let response = proxy.ask(post("/v1/settle", body.to_string()).by_program());
    response.assert_status(200);
    response.json()["standings"][0]["used"].as_u64().unwrap()
}

fn used(proxy: &Proxy) -> u64 {
    let response = proxy.ask(get("/v1/standing?limit=jobs&key=a").by_program());
    response.json()["standings"][0]["used"].as_u64().unwrap()
}

#[test]
fn receipt_from_before_a_move_corrects_the_counter_that_was_carried_over() {
    let upstream = Upstream::start();
    for algorithm in forms_of_algorithms() {
        let policy = jobs(&upstream, algorithm);
        let [first, second] = [(); 2].map(|()| Redis::start());
        for (current, next) in
            [(MEMORY, &*in_redis(&first)), (&*in_redis(&first), &*in_redis(&second))]
        {
            first.command(&["FLUSHALL"]);
            let store = format!("current: {{ {current} }}, next: {{ {next} }}, mode: move_now");
            let proxy = proxy(&store, &policy);
            let [more, less] = [10, 20].map(|cost| charge(&proxy, cost));
            move_callers(&proxy, 100);
            charge(&proxy, 1);
            assert_eq!(settle(&proxy, &less, 5), 16, "{algorithm}, {current}");
            assert_eq!(used(&proxy), 16, "{algorithm}, {current}");
            assert_eq!(settle(&proxy, &more, 12), 18, "{algorithm}, {current}");
            assert_eq!(used(&proxy), 18, "{algorithm}, {current}");
        }
    }
}

#[test]
fn receipt_of_the_next_store_corrects_it_once_it_is_the_only_one() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let policy = jobs(&upstream, "fixed_window");
    let next = in_redis(&redis);
    let receipt = {
        let moving = format!("current: {{ {MEMORY} }}, next: {{ {next} }}, mode: move_now");
        let proxy = proxy(&moving, &policy);
        move_callers(&proxy, 100);
        charge(&proxy, 50)
    };
    let proxy = proxy(&next, &policy);
    assert_eq!(used(&proxy), 50);
    assert_eq!(settle(&proxy, &receipt, 1), 1);
    eventually("it is given back", || (used(&proxy) == 1).then_some(()));
}
