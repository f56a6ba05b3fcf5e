//! What limits count by, in lines for a later judgement by other limits; and what is never there.

use serde_json::{Value, json};

use crate::support::{ISSUER, Policy, Proxy, Request, Upstream, get, token_with};

/// One worker that logs facts, with this secret for hashes.
fn settings(secret: &str) -> String {
    format!(
        "workers: 1\naccess_log: {{ format: json, facts: true }}\n\
         store: {{ key_secret_file: {secret} }}"
    )
}

/// The log of a proxy that was sent these requests one after the other.
fn log_of(settings: &str, policy: &Policy, requests: &[Request]) -> String {
    let proxy = Proxy::with_settings(settings, &[policy]);
    requests.iter().for_each(|request| drop(proxy.send(request.clone())));
    proxy.into_log()
}

/// The facts of each line.
fn facts_in(log: &str) -> Vec<Value> {
    let line = |line: &str| serde_json::from_str::<Value>(line).unwrap()["facts"].clone();
    log.lines().map(line).collect()
}

const FACTS: &str = "workers: 1\naccess_log: { format: json, facts: true }";

fn facts(policy: &Policy, requests: &[Request]) -> Vec<Value> {
    facts_in(&log_of(FACTS, policy, requests))
}

/// Counts by all that a request may be counted by.
fn policy(upstream: &Upstream) -> Policy {
    Policy::before(upstream)
        .limits(&[
            "core: { per: [caller, client.ip, host, path, path.id, method], rate: 99/hour }",
            "org: { per: [jwt.org.id, header.x-tenant], rate: 99/hour }",
            "cart: { per: [cookie.cart, jwt.org.id, header.x-api-key], rate: 99/hour }",
            "login: { per: [client.ip, header.x-device], rate: 99/hour }",
        ])
        .routes(&[
            "{ match: { path: \"/{id}/x\" }, limits: [core] }",
            "{ match: { path: /closed }, auth: required, limits: [login] }",
            "{ match: { path: /** }, limits: [] }",
        ])
}

#[test]
fn facts_are_what_limits_count_by_and_a_line_does_not_have_anyway() {
    let upstream = Upstream::start();
    let claims = json!({ "sub": "alice", "plan": "pro", "org": { "id": "acme inc" } });
    let whole = get("/1/x")
        .token(&token_with(&claims))
        .field("x-tenant", "a \"b\" é")
        .field("x-device", "d1")
        .field("x-other", "other");
    let requests = [
        whole,
        get("/")
            .token(&token_with(&json!({ "sub": "bob", "org": { "id": 7 }, "plan": ["x", "y"] }))),
        get("/").field("x-tenant", ""),
        get("/").field("x-tenant", "1").field("x-tenant", "2"),
        get("/").token(&token_with(&json!({ "sub": "bob", "org": { "id": ["acme"] } }))),
        get("/").token(&token_with(&json!({ "sub": "bob", "org": { "id": {} } }))),
    ];
    let expected = [
        json!({
            "tier": "pro", "issuer": ISSUER, "jwt.org.id": "acme inc",
            "header.x-tenant": "a \"b\" é", "header.x-device": "d1", "jwt.plan": "pro",
        }),
        json!({ "tier": "free", "issuer": ISSUER, "jwt.org.id": 7, "jwt.plan": ["x", "y"] }),
        json!({ "tier": "anonymous" }),
        json!({ "tier": "anonymous" }),
        json!({ "tier": "free", "issuer": ISSUER, "jwt.org.id": "acme" }),
        json!({ "tier": "free", "issuer": ISSUER }),
    ];
    assert_eq!(facts(&policy(&upstream), &requests), expected);
}

#[test]
fn requests_that_are_refused_have_the_facts_that_they_were_counted_by() {
    let upstream = Upstream::start();
    let policy = policy(&upstream).section("deny: [192.0.2.1, \"user:mallory\"]");
    let device = |request: Request| request.field("x-device", "d1");
    let requests = [
        // Charged to the address.
        device(get("/closed")),
        device(get("/closed").token("no token")),
        // Not counted at all.
        device(get("/a/%00")),
        device(get("/").from("192.0.2.1")),
        // Refused once it is known who it is.
        device(get("/").by("mallory")),
    ];
    let settings = format!("{FACTS}\ntrusted_proxies: [127.0.0.1]");
    let told = facts_in(&log_of(&settings, &policy, &requests));
    let charged = json!({ "tier": "anonymous", "header.x-device": "d1" });
    let known = json!({ "tier": "free", "issuer": ISSUER, "header.x-device": "d1" });
    assert_eq!(told, [charged.clone(), charged, Value::Null, Value::Null, known]);
}

#[test]
fn costs_are_those_that_the_response_names() {
    let upstream = Upstream::as_asked();
    let cost = "cost: { reserve: 5, from_response_header: x-cost }";
    let policy = Policy::before(&upstream).on_all_routes(&[
        &format!("core: {{ per: caller, rate: 14/hour, {cost} }}"),
        &format!("daily: {{ per: caller, rate: 99/day, {cost} }}"),
    ]);
    let by = || get("/").by("alice");
    let revalidating = by().wants(304);
    let requests = [by(), by().costing("2"), revalidating, by().costing("3"), by()];
    let logged = log_of(FACTS, &policy, &requests);
    let told = facts_in(&logged);
    let costs: Vec<&Value> = told.iter().map(|facts| &facts["cost.x-cost"]).collect();
    // The last one is denied: nothing was asked of the upstream.
    assert_eq!(costs, [&Value::Null, &2.into(), &Value::Null, &3.into(), &Value::Null], "{logged}");
    // Two limits take it from one header.
    assert_eq!(logged.matches("\"cost.x-cost\":2").count(), 1, "{logged}");
    let asked: Vec<&Value> = told.iter().map(|facts| &facts["revalidation"]).collect();
    assert_eq!(asked[1..4], [&Value::Null, &true.into(), &Value::Null]);
}

/// What a hash looks like in place of a value.
fn is_hash(fact: &Value) -> bool {
    let hash = fact["hash"].as_str().unwrap_or_default();
    hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[test]
fn private_values_and_credentials_are_hashed_under_the_secret() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, secret: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, secret).unwrap();
        path.display().to_string()
    };
    let policy = Policy::before(&upstream)
        .limits(&[
            "org: { per: [jwt.email, header.x-tenant, header.x-plain, header.x-email], rate: 99/hour }",
            "key: { per: [header.x-api-key, header.authorization], rate: 99/hour }",
            "cart: { per: [cookie.cart, header.x-own], rate: 99/hour }",
        ])
        .identity(&["token: { header: x-own }"])
        .section("private: [jwt.email, header.x-tenant, header.x-email]");
    let token = token_with(&json!({ "sub": "alice", "email": "alice@example.com" }));
    let request = |cart: &str| {
        get("/")
            .field("x-own", &token)
            .field("x-tenant", "tenant-7")
            .field("x-email", "\"alice@example.com\"")
            .field("x-plain", "plain-7")
            .field("x-api-key", "key-7")
            .field("authorization", "Basic c2VjcmV0")
            .field("cookie", &format!("cart={cart}"))
    };
    let requests = [request("session-7"), request("session-8")];
    let one = file("one", "sixteen bytes it is");
    let log = log_of(&settings(&one), &policy, &requests);
    let told = facts_in(&log);
    assert_eq!(told[0]["header.x-plain"], "plain-7");
    let hashed = [
        "jwt.email",
        "header.x-tenant",
        "header.x-email",
        "header.x-api-key",
        "header.authorization",
        "header.x-own",
        "cookie.cart",
    ];
    for name in hashed {
        assert!(is_hash(&told[0][name]), "{name} in {}", told[0]);
        assert_eq!(told[0][name] == told[1][name], name != "cookie.cart", "{name} of {log}");
    }
    let secrets = ["tenant-7", "key-7", "c2VjcmV0", "session-7", "alice@", &token];
    for secret in secrets {
        assert!(!log.contains(secret), "{secret} is in {log}");
    }
    // The same value in two fields looks different, so that nobody learns one from the other.
    assert_ne!(told[0]["jwt.email"], told[0]["header.x-email"]);
    // With the same secret, another proxy hashes alike; with another one it does not.
    let again = file("again", "sixteen bytes it is");
    assert_eq!(facts_in(&log_of(&settings(&again), &policy, &requests)), told);
    let other = file("other", "seventeen bytes are not");
    let others = facts_in(&log_of(&settings(&other), &policy, &requests));
    assert!(hashed.iter().all(|name| others[0][name] != told[0][name]), "{}", others[0]);
}

#[test]
fn what_is_too_long_or_no_text_is_hashed() {
    let upstream = Upstream::start();
    let limits = ["org: { per: [jwt.org, header.x-tenant], rate: 99/hour }"];
    let policy = Policy::before(&upstream).limits(&limits);
    let sized = |bytes: usize| get("/").field("x-tenant", &"x".repeat(bytes));
    let org = |bytes: usize| token_with(&json!({ "sub": "alice", "org": "o".repeat(bytes) }));
    let requests = [
        sized(256),
        sized(257),
        sized(7000),
        get("/").token(&org(254)),
        get("/").token(&org(1000)),
    ];
    let log = log_of(FACTS, &policy, &requests);
    let told = facts_in(&log);
    assert_eq!(told[0]["header.x-tenant"], "x".repeat(256));
    assert!(is_hash(&told[1]["header.x-tenant"]) && is_hash(&told[2]["header.x-tenant"]), "{log}");
    assert_ne!(told[1], told[2]);
    assert_eq!(told[3]["jwt.org"], "o".repeat(254));
    assert!(is_hash(&told[4]["jwt.org"]), "{log}");
    assert!(log.lines().all(|line| line.len() < 1500), "{log}");
}

#[test]
fn facts_are_in_text_too_as_one_word() {
    let upstream = Upstream::start();
    let settings = "workers: 1\naccess_log: { facts: true }";
    let request = get("/1/x").field("x-tenant", "a b\" denied=limit").field("x-device", "é");
    let log = log_of(settings, &policy(&upstream), &[request]);
    let facts = log.split_whitespace().find_map(|word| word.strip_prefix("facts="));
    let facts: Value = serde_json::from_str(facts.unwrap()).unwrap();
    let expected = json!({
        "tier": "anonymous", "header.x-tenant": "a b\" denied=limit", "header.x-device": "é",
    });
    assert_eq!(facts, expected, "{log}");
    assert!(!log.contains(" denied=limit"), "{log}");
}

#[test]
fn there_are_no_facts_unless_the_settings_ask_for_them() {
    let upstream = Upstream::start();
    let request = get("/1/x").by("alice").field("x-tenant", "tenant-7");
    for access_log in ["format: json", "format: json, facts: false", "format: text"] {
        let settings = format!("workers: 1\naccess_log: {{ {access_log} }}");
        let log = log_of(&settings, &policy(&upstream), std::slice::from_ref(&request));
        assert!(log.contains("user:alice"), "{log}");
        assert!(!log.contains("facts") && !log.contains("tenant-7"), "{log}");
    }
}
