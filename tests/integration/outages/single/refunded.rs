//! What is given back of charges that were decided alone: it leaves the counter that has them by
//! then.

use serde_json::json;

use super::{wait_until_decided, wait_until_undecided, wait_until_written_back};
use crate::support::{
    Gremlin, Policy, Proxy, Redis, Response, Signal, Upstream, algorithms, eventually, get, post,
};

/// A proxy whose connection to Redis breaks when it is told to, and which programs may ask.
struct Member {
    proxy: Proxy,
    gremlin: Gremlin,
}

impl Member {
    fn start(redis: &Redis, policy: &Policy) -> Member {
        let gremlin = Gremlin::before(redis.port());
        let settings = format!(
            "workers: 1\n\
             decisions: [{{ address: 127.0.0.1:0, protocol: http }}]\n\
             store: {{ redis: {{ url: {}, clock: proxy }}, deadline: 500ms, \
             fallback_header: true }}",
            gremlin.url()
        );
        let member = Member { proxy: Proxy::with_settings(&settings, &[policy]), gremlin };
        wait_until_decided(&member.proxy);
        member
    }

    fn lose_redis(&self) {
        self.gremlin.refuse();
        wait_until_undecided(&self.proxy);
    }

    fn find_redis(&self) {
        self.gremlin.behave();
        wait_until_decided(&self.proxy);
    }

    fn charge(&self, cost: u32) -> Response {
        let body = json!({ "charges": [{ "limit": "jobs", "key": "a", "cost": cost }] });
        self.proxy.ask(post("/v1/charge", body.to_string()).by_program())
    }

    fn receipt(&self, cost: u32) -> String {
        let response = self.charge(cost);
        response.assert_status(200);
        response.json()["receipt"].as_str().unwrap().to_owned()
    }

    /// What is used by the answer to a settlement.
    fn settle(&self, receipt: &str, cost: u32) -> u64 {
        let body = json!({ "receipt": receipt, "cost": cost });
        let response = self.proxy.ask(post("/v1/settle", body.to_string()).by_program());
        response.assert_status(200);
        response.json()["standings"][0]["used"].as_u64().unwrap()
    }

    fn used(&self) -> u64 {
        let response = self.proxy.ask(get("/v1/standing?limit=jobs&key=a").by_program());
        response.assert_status(200);
        response.json()["standings"][0]["used"].as_u64().unwrap()
    }
}

fn jobs(upstream: &Upstream, algorithm: &str) -> Policy {
    Policy::before(upstream)
        .limits(&[
            "core: { per: caller, rate: 100/hour }",
            &format!("jobs: {{ per: key, rate: 100/day, algorithm: {algorithm} }}"),
        ])
        .routes(&["{ match: { path: /** }, limits: [core] }"])
}

#[test]
fn receipt_of_a_charge_that_was_decided_alone_gives_back_in_redis_once_it_is_back() {
    let upstream = Upstream::start();
    for algorithm in algorithms() {
        let redis = Redis::start();
        let [alone, other] = [(); 2].map(|()| Member::start(&redis, &jobs(&upstream, algorithm)));
        alone.receipt(3);
        alone.lose_redis();
        let [first, second] = [20, 30].map(|cost| alone.receipt(cost));
        alone.find_redis();
        wait_until_written_back(&alone.proxy);
        assert_eq!(other.used(), 53, "{algorithm}");
        // With no other charge since, and after one that Redis has decided.
        assert_eq!(alone.settle(&first, 0), 33, "{algorithm}");
        assert_eq!([alone.used(), other.used()], [33, 33], "{algorithm}");
        other.receipt(1);
        alone.receipt(1);
        assert_eq!(alone.settle(&second, 5), 10, "{algorithm}");
        assert_eq!([alone.used(), other.used()], [10, 10], "{algorithm}");
    }
}

#[test]
fn receipt_of_a_charge_that_was_decided_alone_gives_back_at_another_proxy() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let [alone, other] = [(); 2].map(|()| Member::start(&redis, &jobs(&upstream, "fixed_window")));
    alone.lose_redis();
    let receipt = alone.receipt(50);
    alone.find_redis();
    wait_until_written_back(&alone.proxy);
    other.receipt(1);
    assert_eq!(other.settle(&receipt, 10), 11);
    assert_eq!(alone.used(), 11);
}

#[test]
fn slow_response_gives_back_what_was_charged_before_redis_was_back() {
    let [asked, go] = [(); 2].map(|()| Signal::default());
    let upstream = Upstream::scripted({
        let (asked, go) = (asked.clone(), go.clone());
        move |exchange| {
            if exchange.request.target == "/login" {
                asked.open();
                go.wait();
            }
            exchange.answer_ok();
        }
    });
    let policy = Policy::before(&upstream)
        .limits(&[
            "core: { per: caller, rate: 100/hour }",
            "logins: { per: client.ip, rate: 10/hour, count_when: { status: [401] } }",
        ])
        .routes(&[
            "{ match: { path: /login }, limits: [logins] }",
            "{ match: { path: /** }, limits: [core] }",
        ]);
    let redis = Redis::start();
    let member = Member::start(&redis, &policy);
    member.lose_redis();
    std::thread::scope(|scope| {
        let login = scope.spawn(|| member.proxy.get("/login"));
        asked.wait();
        member.find_redis();
        wait_until_written_back(&member.proxy);
        go.open();
        login.join().unwrap().assert_status(200);
    });
    let used = || member.proxy.get("/login").number("x-ratelimit-used");
    eventually("all is given back", || (used() == 0).then_some(()));
}

#[test]
fn refund_of_what_redis_has_in_part_takes_the_rest_from_what_is_pending() {
    for algorithm in algorithms() {
        let [asked, go] = [(); 2].map(|()| Signal::default());
        let upstream = Upstream::scripted({
            let (asked, go) = (asked.clone(), go.clone());
            move |exchange| match exchange.request.target.as_str() {
                "/slow" => {
                    asked.open();
                    go.wait();
                    exchange.answer_ok();
                }
                _ => exchange.write("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n"),
            }
        });
        let logins = format!(
            "logins: {{ per: client.ip, rate: 100/day, algorithm: {algorithm}, \
             cost: {{ POST: 5, default: 1 }}, count_when: {{ status: [401] }} }}"
        );
        let policy = Policy::before(&upstream)
            .limits(&["core: { per: caller, rate: 100/hour }", &logins])
            .routes(&[
                "{ match: { path: /slow }, limits: [logins] }",
                "{ match: { path: /quick }, limits: [logins] }",
                "{ match: { path: /** }, limits: [core] }",
            ]);
        let redis = Redis::start();
        let member = Member::start(&redis, &policy);
        let quick = || member.proxy.get("/quick").number("x-ratelimit-used");
        member.lose_redis();
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| member.proxy.send(post("/slow", "")));
            asked.wait();
            member.find_redis();
            wait_until_written_back(&member.proxy);
            member.lose_redis();
            assert_eq!([(); 3].map(|()| quick()), [6, 7, 8], "{algorithm}");
            go.open();
            let slow = slow.join().unwrap();
            slow.assert_status(200).assert_field("x-ratelimit-used", "3");
        });
        member.find_redis();
        wait_until_written_back(&member.proxy);
        assert_eq!(quick(), 4, "{algorithm}");
    }
}
