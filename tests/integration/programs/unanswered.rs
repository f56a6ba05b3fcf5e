//! What programs are told while the store does not answer: never that nothing is used.

use std::sync::Arc;

use serde_json::json;
use tokio::{runtime::Builder, task::LocalSet};
use tollgate::callers::AnsweredBy;
use tollgate_limit::{AlgorithmKind, Charge, DecidedBy, Key, LimitId, Quota};
use tollgate_store::Store;

use super::{ASKABLE, call, charge, receipt, used};
use crate::support::{
    Gremlin, HOUR, Policy, Proxy, Redis, Response, START, Upstream, eventually, get,
};

/// Limits that each do something else without a store.
fn policy() -> Policy {
    Policy::before(&Upstream::start()).limits(&[
        "closed: { per: key, rate: 10/hour, on_store_error: closed }",
        "open: { per: key, rate: 10/hour, on_store_error: open }",
        "local: { per: key, rate: [10/hour, 40/day], on_store_error: local }",
    ])
}

/// A proxy with its counters in these servers, of which it has half.
fn counting_in(redis: &str) -> Proxy {
    let store = format!("redis: {{ {redis}, clock: proxy }}, deadline: 10s, instances: 2");
    Proxy::with_settings(&format!("{ASKABLE}\nstore: {{ {store} }}"), &[&policy()])
}

fn shards(urls: [String; 2]) -> String {
    let [a, b] = urls;
    format!("shards: [{{ name: a, primary: \"{a}\" }}, {{ name: b, primary: \"{b}\" }}]")
}

fn standing(proxy: &Proxy, limit: &str, key: &str) -> Response {
    proxy.ask(get(&format!("/v1/standing?limit={limit}&key={key}")).by_program())
}

#[test]
fn standing_that_nobody_tells_is_no_empty_list() {
    let redis = Redis::start();
    let proxy = counting_in(&redis.settings());
    for limit in ["closed", "open", "local"] {
        charge(&proxy, &[&format!("{limit} known 4")]).assert_status(200);
    }
    redis.kill();
    for key in ["known", "stranger"] {
        for limit in ["closed", "open"] {
            let response = standing(&proxy, limit, key);
            response.assert_status(503).assert_field("retry-after", "1");
            let detail = response.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.starts_with("The store did not decide: "), "{limit} {key}: {detail}");
        }
    }
    let told = |key: &str| {
        let standings = standing(&proxy, "local", key).json()["standings"].clone();
        let of = |at: usize| ["of", "used", "remaining"].map(|name| standings[at][name].clone());
        [of(0), of(1)]
    };
    let share = |of: u32, used: u32| [of, used, of - used].map(|number| json!(number));
    assert_eq!(told("known"), [share(5, 2), share(20, 2)]);
    assert_eq!(told("stranger"), [share(5, 0), share(20, 0)]);
    charge(&proxy, &["local known 1"]).assert_status(200);
    assert_eq!(told("known"), [share(5, 3), share(20, 3)]);
    let looked = proxy.look("key:known").unwrap().limits.into_iter();
    let told: Vec<(u32, AnsweredBy)> =
        looked.flat_map(|own| own.windows).map(|own| (own.used, own.answered_by)).collect();
    let [unknown, share] = [AnsweredBy::None, AnsweredBy::Local];
    assert_eq!(told, [(4, unknown), (4, unknown), (3, share), (3, share)]);
    let log = proxy.into_log();
    let asked = |status: u16| log.matches(&format!(" GET /v1/standing route=- {status} ")).count();
    assert_eq!((asked(503), asked(200)), (4, 3), "{log}");
}

#[test]
fn receipt_waits_until_it_is_known_whether_its_counter_was_reset() {
    let [stays, goes] = [(); 2].map(|()| Redis::start());
    let [one, other] = [(); 2].map(|()| counting_in(&shards([stays.url(), goes.url()])));
    let key = |number: u32| format!("key-{number}");
    let charged = (0..100)
        .map(|number| (number, receipt(&charge(&one, &[&format!("closed {} 4", key(number))]))));
    let receipts: Vec<(u32, String)> = charged.collect();
    goes.kill();
    let mut answered = [0; 2];
    for (number, receipt) in receipts {
        let settled = call(&other, "/v1/settle", &json!({ "receipt": receipt, "cost": 3 }));
        match standing(&other, "closed", &key(number)).status {
            503 => {
                settled.assert_status(503);
                answered[0] += 1;
            }
            _ if settled.status == 200 => {
                assert_eq!(settled.json()["standings"][0]["used"], 3);
                answered[1] += 1;
            }
            // The mark that it was used cannot be written.
            _ => drop(settled.assert_status(503)),
        }
    }
    // Half of the counters stay, and of those half of the marks.
    assert!(answered.iter().all(|count| *count > 0), "{answered:?}");
}

/// Has a proxy decide alone about as many counters as may wait for a server that is away.
fn fill_pending(proxy: &Proxy) {
    let quota = Quota::plain(AlgorithmKind::FixedWindow, 1000, HOUR).unwrap();
    let limit = LimitId::new("test", "filling", "fixed_window", 3600);
    let stores = Arc::clone(proxy.stores());
    let unowed = || proxy.stores().counts.unowed.get();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let store = Store::start(stores);
        store.ready(START).await;
        for owner in 1_u128.. {
            let owner = owner.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            for tuple in 0..64 {
                let charge = Charge::new(Key::new(owner, owner ^ tuple, limit), &quota, 1);
                let decision = store.charge(&[charge], START).await.unwrap();
                if decision.outcomes[0].decided_by != DecidedBy::Local {
                    break;
                }
            }
            if unowed() > 0 {
                return;
            }
        }
    });
}

#[test]
fn receipt_is_kept_for_later_where_too_much_waits_for_the_store() {
    let [stays, goes] = [(); 2].map(|()| Redis::start());
    let gremlin = Gremlin::before(stays.port());
    let proxy = counting_in(&shards([gremlin.url(), goes.url()]));
    let pending = || proxy.stores().pending();
    gremlin.refuse();
    let mut alone = Vec::new();
    for number in 0..1000 {
        let (before, key) = (pending(), format!("key-{number}"));
        let receipt = receipt(&charge(&proxy, &[&format!("local {key} 4")]));
        if pending() > before {
            alone.push((key, receipt));
        }
        if alone.len() == 8 {
            break;
        }
    }
    assert_eq!(alone.len(), 8);
    gremlin.behave();
    eventually("all is written back", || (pending() == 0).then_some(()));
    goes.kill();
    fill_pending(&proxy);
    let settle = |receipt: &str| {
        call(&proxy, "/v1/settle", &json!({ "receipt": receipt, "give_back": true }))
    };
    for (key, receipt) in &alone {
        let settled = settle(receipt);
        settled.assert_status(503).assert_field("retry-after", "1");
        let detail = settled.json()["detail"].clone();
        assert_eq!(detail, "The store did not decide: too many requests wait for it.");
        assert_eq!(used(&proxy, "local", key), 4);
    }
    goes.restart();
    for (key, receipt) in &alone {
        eventually("there is room", || (settle(receipt).status == 200).then_some(()));
        eventually("it is given back", || (used(&proxy, "local", key) == 0).then_some(()));
    }
}
