//! Limits that requests are charged to, charged by programs, too: jobs and requests have one budget.

use serde_json::{Value, json};
use tollgate::callers::top::RankBy;

use super::{ASKABLE, call, charge, receipt, used};
use crate::support::{Policy, Proxy, Response, SECOND, Upstream, get, token_with};

fn proxy() -> (Upstream, Proxy) {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&[
            "core: { per: caller, verified: true, rate: { free: 5/hour, pro: 9/hour, default: 2/hour } }",
            "exports: { per: caller, concurrent: 1 }",
            "org: { per: jwt.org, rate: 20/hour }",
            "pages: { per: [caller, path], rate: 3/hour }",
            "free: { per: caller, rate: { anonymous: 1/hour, default: unlimited } }",
            "mail: { per: key, rate: 3/hour }",
            "paced: { per: caller, verified: true, algorithm: gcra, rate: { free: 60/hour, pro: 600/hour, default: 2/hour } }",
        ])
        .routes(&["{ match: { path: /** }, limits: [core, org, pages] }"])
        .section("overrides:\n  - { limit: core, caller: \"user:7\", rate: 50/hour, why: a test }")
        .section("exempt: [\"user:9\"]");
    let proxy = Proxy::with_settings(ASKABLE, &[&policy]);
    (upstream, proxy)
}

fn get_as(proxy: &Proxy, sub: &str, plan: &str) -> Response {
    let claims = json!({ "sub": sub, "plan": plan, "org": "acme" });
    proxy.send(get("/report").token(&token_with(&claims)))
}

fn charge_at_tier(proxy: &Proxy, key: &str, cost: u32, tier: &str) -> Response {
    let charges = json!([{ "limit": "core", "key": key, "cost": cost, "tier": tier }]);
    call(proxy, "/v1/charge", &json!({ "charges": charges }))
}

fn told(response: &Response) -> String {
    response.json()["detail"].as_str().unwrap().to_owned()
}

#[test]
fn job_and_requests_of_a_caller_share_a_budget() {
    let (_upstream, proxy) = proxy();
    get_as(&proxy, "42", "free").assert_status(200);
    // The token told the tier.
    charge(&proxy, &["core user:42 3"]).assert_status(200);
    assert_eq!(used(&proxy, "core", "user:42"), 4);
    get_as(&proxy, "42", "free").assert_status(200);
    get_as(&proxy, "42", "free").assert_status(429);
    let denied = charge(&proxy, &["core user:42"]);
    assert_eq!(denied.assert_status(429).json()["denied_by"], "core");
    assert_eq!(used(&proxy, "org", "jwt.org:acme"), 2);
    charge(&proxy, &["org jwt.org:acme 18"]).assert_status(200);
    charge(&proxy, &["org jwt.org:acme"]).assert_status(429);
    get_as(&proxy, "43", "pro").assert_status(429);
}

#[test]
fn job_and_requests_of_a_caller_are_ranked_together() {
    let (_upstream, proxy) = proxy();
    charge(&proxy, &["core anonymous:192.0.2.1 2"]).assert_status(200);
    get_as(&proxy, "42", "free").assert_status(200);
    charge(&proxy, &["core user:42 3"]).assert_status(200);
    let of_core = proxy.top(RankBy::Units, 1).callers.into_iter().filter(|own| own.limit == "core");
    let ranked: Vec<_> = of_core.map(|own| (own.name, own.count, own.error)).collect();
    let counted = |name: &str, count| (name.to_owned(), count, 0);
    assert_eq!(ranked, [counted("user:42", 4), counted("anonymous:192.0.2.1", 2)]);
}

#[test]
fn receipt_of_a_callers_limit_corrects_it_until_it_is_reset() {
    let (_upstream, proxy) = proxy();
    get_as(&proxy, "42", "free").assert_status(200);
    let settle = |receipt: &str, cost: u32| {
        call(&proxy, "/v1/settle", &json!({ "receipt": receipt, "cost": cost }))
    };
    let paid = receipt(&charge(&proxy, &["core user:42 2", "pages caller=user:42,path=/report"]));
    settle(&paid, 0).assert_status(200);
    assert_eq!(used(&proxy, "core", "user:42"), 1);
    assert_eq!(used(&proxy, "pages", "caller=user:42,path=/report"), 1);
    let late = receipt(&charge(&proxy, &["core user:42 2"]));
    proxy.advance(SECOND);
    proxy.reset("user:42");
    settle(&late, 0).assert_status(410);
    charge(&proxy, &["exports user:42"]).assert_status(200);
    charge(&proxy, &["exports user:42"]).assert_status(429);
    assert_eq!(used(&proxy, "core", "user:42"), 0);
}

#[test]
fn settlement_goes_by_the_rate_that_was_charged() {
    let (_upstream, proxy) = proxy();
    let paced = json!([{ "limit": "paced", "key": "user:8", "cost": 100, "tier": "pro" }]);
    let paid = receipt(&call(&proxy, "/v1/charge", &json!({ "charges": paced })));
    let settled = call(&proxy, "/v1/settle", &json!({ "receipt": paid, "cost": 10 }));
    let standing = &settled.assert_status(200).json()["standings"][0];
    assert_eq!((&standing["of"], &standing["used"]), (&json!(600), &json!(10)));
}

#[test]
fn tier_is_written_where_it_is_not_known() {
    let (_upstream, proxy) = proxy();
    let unknown = charge(&proxy, &["core user:8"]);
    unknown.assert_status(400);
    assert!(told(&unknown).starts_with("The tier of `user:8` is not known here: write `tier`"));
    charge_at_tier(&proxy, "user:8", 9, "pro").assert_status(200);
    charge_at_tier(&proxy, "user:8", 1, "free").assert_status(429);
    let none = charge_at_tier(&proxy, "user:8", 1, "gold");
    assert!(told(none.assert_status(400)).contains("no tier `gold`: there are anonymous, free"));
    // Of an address it is fixed; an override is for any tier; who is exempt is charged nothing.
    charge(&proxy, &["core anonymous:192.0.2.1 2"]).assert_status(200);
    charge(&proxy, &["core anonymous:192.0.2.1"]).assert_status(429);
    charge_at_tier(&proxy, "user:7", 50, "free").assert_status(200);
    charge_at_tier(&proxy, "user:9", 1000, "free").assert_status(200);
    charge_at_tier(&proxy, "user:9", 1000, "free").assert_status(200);
}

#[test]
fn what_cannot_be_charged_to_a_callers_limit_is_told() {
    let (_upstream, proxy) = proxy();
    let at = json!({ "charges": [{ "limit": "core", "key": "anonymous:192.0.2.1" }], "at": 1 });
    let reset = json!({ "limit": "core", "key": "anonymous:192.0.2.1" });
    let tier = json!({ "charges": [{ "limit": "mail", "key": "a", "tier": "free" }] });
    let cases: [(&str, Value, u16, &str); 5] = [
        ("/v1/charge", at, 400, "at the time at which they come: leave out `at`"),
        ("/v1/reset", reset, 400, "reset it with `tollgate reset`"),
        ("/v1/charge", tier, 400, "leave out `tier`"),
        (
            "/v1/charge",
            json!({ "charges": [{ "limit": "pages", "key": "user:42" }] }),
            400,
            "write its key as `caller=user:42,path=VALUE`",
        ),
        (
            "/v1/charge",
            json!({ "charges": [{ "limit": "core", "key": "robot:1" }] }),
            404,
            "no entry of `callers` is called `robot`",
        ),
    ];
    for (path, body, status, why) in cases {
        let response = call(&proxy, path, &body);
        assert!(told(response.assert_status(status)).contains(why), "{}", response.text());
    }
}
