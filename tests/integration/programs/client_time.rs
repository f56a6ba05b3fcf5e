//! Charges at instants that programs give: counters of their own, the same answers at any speed.

use std::time::Duration;

use super::*;
use crate::support::START;

/// The instant that lies this many seconds after one of a year before.
fn last_year(seconds: f64) -> Value {
    json!(1_758_464_000.0 + seconds)
}

fn charge_at(proxy: &Proxy, charges: &[&str], at: &Value) -> Response {
    call(proxy, "/v1/charge", &json!({ "charges": written(charges), "at": at }))
}

fn used_at(proxy: &Proxy, limit: &str, key: &str, at: &str) -> u64 {
    let response =
        proxy.ask(get(&format!("/v1/standing?limit={limit}&key={key}&at={at}")).by_program());
    response.assert_status(200);
    response.json()["standings"][0]["used"].as_u64().unwrap()
}

#[test]
fn answers_are_of_the_time_that_is_given() {
    let proxy = proxy();
    let at = json!("2025-09-21T14:13:20.5Z");
    let first = charge_at(&proxy, &["peak a 2", "daily a"], &at);
    first.assert_status(200).assert_limit(["3", "1", "2", "1758464011", "peak"]);
    let standings = &first.json()["standings"];
    assert_eq!(
        (&standings[0]["reset"], &standings[1]["reset"]),
        (&json!(1_758_464_011), &json!(1_758_550_401))
    );
    // Three seconds later there; here, no time passes.
    let denied = charge_at(&proxy, &["peak a 2", "daily a"], &last_year(3.5));
    denied.assert_status(429).assert_field("retry-after", "7");
    assert_eq!(denied.json()["retry_after"], 7.0);
    charge_at(&proxy, &["peak a 2"], &last_year(10.5)).assert_status(200);
    // The counters of live traffic are others.
    assert_eq!((used(&proxy, "peak", "a"), used(&proxy, "daily", "a")), (0, 0));
    charge(&proxy, &["peak a 3"]).assert_status(200);
    assert_eq!(used_at(&proxy, "peak", "a", "1758464012"), 2);
    assert_eq!(used_at(&proxy, "daily", "a", "2025-09-21T16:13:21%2B02:00"), 2);
    // A late charge counts in the window that is open, whenever that was.
    charge_at(&proxy, &["peak a"], &json!(0)).assert_status(200);
    charge_at(&proxy, &["peak a"], &json!(0)).assert_status(429);
    assert_eq!(used_at(&proxy, "peak", "a", "1758464012"), 3);
    // Both are reset.
    call(&proxy, "/v1/reset", &json!({ "limit": "peak", "key": "a" })).assert_status(200);
    assert_eq!((used(&proxy, "peak", "a"), used_at(&proxy, "peak", "a", "1758464012")), (0, 0));
}

#[test]
fn what_is_no_time_is_told() {
    let proxy = proxy();
    let in_a_minute = START.as_micros() as f64 / 1e6 + 60.0;
    for (at, told) in [
        (json!("yesterday"), "`at` is \"yesterday\": write an instant such as"),
        (json!("2026-09-21T14:13:20"), "write an instant"),
        (json!(""), "write an instant"),
        (json!(-1), "`at` is -1: write an instant"),
        (json!([1]), "`at` is [1]"),
        (json!(true), "write an instant"),
        (json!("1969-12-31T23:59:59Z"), "write an instant"),
        (json!(in_a_minute + 0.001), "more than a minute ahead of the clock of this proxy"),
        (json!(1e300), "more than a minute ahead"),
        (json!("9999-01-01T00:00:00Z"), "`at` is 9999-01-01T00:00:00.000Z, more than a minute"),
    ] {
        let response = charge_at(&proxy, &["peak a"], &at);
        response.assert_status(400);
        let problem = response.json();
        assert!(problem["detail"].as_str().unwrap().contains(told), "{at}: {problem}");
    }
    charge_at(&proxy, &["peak a"], &json!(in_a_minute)).assert_status(200);
    charge_at(&proxy, &["slots a"], &json!(1)).assert_status(400);
    charge_at(&proxy, &["peak a", "slots a"], &json!(1)).assert_status(400);
    let both = json!({ "charges": written(&["peak a"]), "at": 1, "wait": "1s" });
    call(&proxy, "/v1/charge", &both).assert_status(400);
    for query in ["peak&key=a&at=x", "peak&key=a&at=-1", "slots&key=a&at=1", "peak&key=a&at=1e9"] {
        proxy.ask(get(&format!("/v1/standing?limit={query}")).by_program()).assert_status(400);
    }
    // Nothing of that was charged.
    assert_eq!(used_at(&proxy, "peak", "a", &in_a_minute.to_string()), 1);
}

#[test]
fn receipt_corrects_a_charge_of_last_year_once_and_until_its_window_is_past() {
    let proxy = proxy();
    let settle = |receipt: &str, cost: u32| {
        call(&proxy, "/v1/settle", &json!({ "receipt": receipt, "cost": cost }))
    };
    let first = receipt(&charge_at(&proxy, &["peak a", "daily a"], &last_year(0.0)));
    charge(&proxy, &["peak a"]).assert_status(200);
    proxy.advance(24 * HOUR);
    let settled = settle(&first, 0);
    settled.assert_status(200);
    assert_eq!(settled.json()["standings"][1]["used"], 0);
    proxy.advance(24 * HOUR);
    settle(&first, 0).assert_status(409);
    assert_eq!(used_at(&proxy, "peak", "a", "1758464000"), 0);

    let more = receipt(&charge_at(&proxy, &["peak a"], &last_year(1.0)));
    assert_eq!(settle(&more, 3).json()["standings"][0]["used"], 3);
    charge_at(&proxy, &["peak a"], &last_year(2.0)).assert_status(429);

    let late = receipt(&charge_at(&proxy, &["peak b"], &last_year(0.0)));
    // Other counters do not matter.
    charge_at(&proxy, &["peak c"], &last_year(3600.0)).assert_status(200);
    charge_at(&proxy, &["peak b"], &last_year(10.0)).assert_status(200);
    settle(&late, 0).assert_status(410);
    assert_eq!(used_at(&proxy, "peak", "b", "1758464010"), 1);
}

#[test]
fn overrides_are_those_of_the_time_that_is_given() {
    let policy = policy().section(
        "overrides:\n  - { limit: peak, key: a, rate: 30/10s, until: 2025-10-01, why: \"a trial\" }",
    );
    let proxy = Proxy::with_settings(ASKABLE, &[&policy]);
    charge_at(&proxy, &["peak a 30"], &last_year(0.0)).assert_status(200);
    charge_at(&proxy, &["peak a 4"], &last_year(86_400.0 * 30.0)).assert_status(429);
    charge(&proxy, &["peak a 4"]).assert_status(429);
}

/// A limit of every algorithm with windows.
const LIMITS: [&str; 7] = [
    "first: { per: key, rate: 3/10s }",
    "daily: { per: key, rate: 40/1d }",
    "sliding: { per: key, rate: 3/10s, algorithm: sliding_window }",
    "log: { per: key, rate: 3/10s, algorithm: sliding_log }",
    "bucket: { per: key, rate: 3/10s, algorithm: token_bucket }",
    "meter: { per: key, rate: 3/10s, algorithm: gcra, burst: 2 }",
    "hourly: { per: key, rate: 20/1h, align: epoch }",
];

/// Random numbers, the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn charges(&mut self) -> [String; 2] {
        [0, 1].map(|key| {
            let limit = LIMITS[self.below(7) as usize].split(':').next().unwrap();
            format!("{limit} key-{key} {}", self.below(3) + 1)
        })
    }
}

/// What a history is answered that is replayed so many times as fast as it was, and what live traffic
/// in between is.
fn replay(settings: &str, hundredths: u32, with_history: bool) -> [Vec<(u16, Value)>; 2] {
    let proxy =
        Proxy::with_settings(settings, &[&Policy::before(&Upstream::start()).limits(&LIMITS)]);
    let answer = |response: Response| {
        let mut body = response.json();
        // A receipt is signed with a number of its own.
        body.as_object_mut().unwrap().remove("receipt");
        (response.status, body)
    };
    let (mut numbers, mut at) = (Numbers(17), 0.0);
    let [mut replayed, mut live] = [Vec::new(), Vec::new()];
    for _ in 0..120 {
        let gap = Duration::from_millis(numbers.below(6000));
        proxy.advance(gap * 100 / hundredths);
        at += gap.as_secs_f64();
        let late = if numbers.below(4) == 0 { numbers.below(20) as f64 } else { 0.0 };
        let [charges, others] = [numbers.charges(), numbers.charges()];
        let [charges, others] = [&charges, &others].map(|own| own.each_ref().map(String::as_str));
        if with_history {
            replayed.push(answer(charge_at(&proxy, &charges, &last_year(at - late))));
        }
        live.push(answer(charge(&proxy, &others)));
    }
    [replayed, live]
}

#[test]
fn history_that_is_replayed_at_any_speed_gets_the_same_answers_among_live_traffic() {
    let redis = Redis::start();
    let in_redis = format!(
        "{ASKABLE}\nstore: {{ redis: {{ url: \"{}\", clock: proxy }}, deadline: 10s }}",
        redis.url()
    );
    let [expected, _] = replay(ASKABLE, 100, true);
    let statuses: Vec<u16> = expected.iter().map(|(status, _)| *status).collect();
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
    for hundredths in [100, 10_000, 10] {
        let [replayed, live] = replay(ASKABLE, hundredths, true);
        assert_eq!(replayed, expected, "{hundredths}");
        let [_, alone] = replay(ASKABLE, hundredths, false);
        assert_eq!(live, alone, "{hundredths}");
    }
    // Wherever the counters of live traffic are.
    let [replayed, _] = replay(&in_redis, 10_000, true);
    assert_eq!(replayed, expected);
}
