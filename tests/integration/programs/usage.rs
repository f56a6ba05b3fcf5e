//! Receipts that are settled by the usage that a response of a language model tells.

use serde_json::{Value, json};

use super::{ASKABLE, call, charge, receipt, used};
use crate::support::{Policy, Proxy, Response, Upstream};

fn proxy() -> Proxy {
    let policy = Policy::before(&Upstream::start()).limits(&[
        "tokens: { per: key, rate: [1000/minute, 5000/day], cost: { from_response: { usage: auto }, \
         weights: { input: 1, cached: 0.1, cache_write: 1.25, output: 4 }, reserve: 100 } }",
        "plain: { per: key, rate: 1000/minute, cost: { from_response: { usage: openai } } }",
        "calls: { per: key, rate: 10/minute }",
        "own: { per: caller, rate: 1000/minute, cost: { from_response: { usage: anthropic }, \
         reserve: { from_request: [max_tokens], default: 50 } } }",
        "paced: { per: key, rate: 10/minute, algorithm: token_bucket, \
         cost: { from_response: { usage: auto } } }",
    ]);
    Proxy::with_settings(ASKABLE, &[&policy])
}

fn settle(proxy: &Proxy, receipt: &str, rest: Value) -> Response {
    let mut body = json!({ "receipt": receipt });
    body.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    call(proxy, "/v1/settle", &body)
}

fn chat() -> Value {
    json!({ "prompt_tokens": 60, "completion_tokens": 20, "total_tokens": 80,
            "prompt_tokens_details": { "cached_tokens": 30, "audio_tokens": null } })
}

#[test]
fn usage_is_priced_by_the_weights_of_the_limit() {
    let proxy = proxy();
    let messages = json!({ "input_tokens": 10, "output_tokens": 5, "service_tier": "standard",
                           "cache_read_input_tokens": 20, "cache_creation_input_tokens": 4 });
    let responses = json!({ "input_tokens": 30, "output_tokens": 9,
                            "input_tokens_details": { "cached_tokens": 10 } });
    let gemini = json!({ "promptTokenCount": 50, "candidatesTokenCount": 10,
                         "thoughtsTokenCount": 5, "cachedContentTokenCount": 20 });
    for (usage, cost) in [
        (chat(), 30 + 3 + 80),
        (responses, 20 + 1 + 36),
        (messages, 10 + 2 + 5 + 20),
        (json!({ "prompt_tokens": 8, "total_tokens": 8 }), 8),
        (gemini.clone(), 30 + 2 + 60),
        (json!({ "id": "chatcmpl-1", "choices": [], "usage": chat() }), 30 + 3 + 80),
        (json!({ "candidates": [], "usageMetadata": gemini }), 30 + 2 + 60),
    ] {
        let key = format!("k{cost}-{}", usage.to_string().len());
        // Without a cost, the reserve is charged.
        let charged = charge(&proxy, &[&format!("tokens {key}")]);
        assert_eq!(charged.json()["standings"][0]["used"], 100);
        let settled = settle(&proxy, &receipt(&charged), json!({ "usage": usage }));
        let standings = &settled.assert_status(200).json()["standings"];
        for (window, of) in [(0, 1000), (1, 5000)] {
            assert_eq!(standings[window]["used"], cost, "{usage}");
            assert_eq!(standings[window]["remaining"], of - cost, "{usage}");
        }
        settle(&proxy, &receipt(&charged), json!({ "usage": usage })).assert_status(409);
    }
}

#[test]
fn more_than_is_left_is_owed() {
    let proxy = proxy();
    let charged = receipt(&charge(&proxy, &["tokens a 900"]));
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 300 });
    settle(&proxy, &charged, json!({ "usage": usage })).assert_status(200);
    assert_eq!(used(&proxy, "tokens", "a"), 1300);
    charge(&proxy, &["tokens a 1"]).assert_status(429);
}

#[test]
fn limits_whose_cost_is_not_by_usage_keep_what_they_were_charged() {
    let proxy = proxy();
    let all = receipt(&charge(&proxy, &["calls a 2", "tokens a", "plain a 7"]));
    let settled = settle(&proxy, &all, json!({ "usage": chat() }));
    let standings = settled.assert_status(200).json()["standings"].clone();
    let settled: Vec<&Value> =
        standings.as_array().unwrap().iter().map(|own| &own["limit"]).collect();
    assert_eq!(settled, ["tokens", "tokens", "plain"]);
    let used = |limit| used(&proxy, limit, "a");
    assert_eq!((used("calls"), used("tokens"), used("plain")), (2, 113, 80));
    // Their part of the receipt is left.
    settle(&proxy, &all, json!({ "usage": chat() })).assert_status(409);
    settle(&proxy, &all, json!({ "give_back": true, "limit": "calls" })).assert_status(200);
    assert_eq!(used("calls"), 0);

    let one = receipt(&charge(&proxy, &["tokens b", "plain b 7"]));
    settle(&proxy, &one, json!({ "usage": chat(), "limit": "plain" })).assert_status(200);
    assert_eq!(super::used(&proxy, "tokens", "b"), 100);
    assert_eq!(super::used(&proxy, "plain", "b"), 80);
}

#[test]
fn limit_of_requests_is_settled_by_its_own_weights() {
    let proxy = proxy();
    let charged = charge(&proxy, &["own anonymous:192.0.2.1"]);
    assert_eq!(charged.json()["standings"][0]["used"], 50);
    let usage = json!({ "input_tokens": 10, "output_tokens": 5 });
    settle(&proxy, &receipt(&charged), json!({ "usage": usage })).assert_status(200);
    assert_eq!(used(&proxy, "own", "anonymous:192.0.2.1"), 15);
}

#[test]
fn what_cannot_be_settled_by_usage_is_told_and_settles_nothing() {
    let proxy = proxy();
    let both = receipt(&charge(&proxy, &["calls a", "tokens a", "plain a"]));
    let slow = receipt(&charge(&proxy, &["paced a"]));
    let calls = receipt(&charge(&proxy, &["calls b"]));
    let gemini = json!({ "promptTokenCount": 50 });
    for (receipt, rest, told) in [
        (&both, json!({ "usage": chat(), "cost": 5 }), "Write one of `\"give_back\": true`"),
        (&both, json!({ "usage": chat(), "give_back": true }), "Write one of"),
        (&both, json!({ "usage": {} }), "limit `tokens` counts, which looks for `usage: auto`"),
        (&both, json!({ "usage": { "total_tokens": 5 } }), "`usageMetadata` of one of Gemini"),
        // One of the limits does not understand it.
        (
            &both,
            json!({ "usage": gemini }),
            "limit `plain` counts, which looks for `usage: openai`",
        ),
        (&both, json!({ "usage": 5 }), "expected a map"),
        (&both, json!({ "usage": chat(), "limit": "calls" }), "limit `calls` is not by `usage`"),
        (&calls, json!({ "usage": chat() }), "settle it with `cost` or `give_back`"),
        (&slow, json!({ "usage": { "prompt_tokens": 1001 } }), "has to be 0 to 1000"),
    ] {
        let problem = settle(&proxy, receipt, rest).assert_status(400).json();
        assert!(problem["detail"].as_str().unwrap().contains(told), "{problem}");
    }
    let used = |limit| used(&proxy, limit, "a");
    assert_eq!((used("calls"), used("tokens"), used("plain")), (1, 100, 1));
    settle(&proxy, &both, json!({ "usage": chat() })).assert_status(200);
    assert_eq!((used("calls"), used("tokens"), used("plain")), (1, 113, 80));
}
