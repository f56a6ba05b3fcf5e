//! Costs of GraphQL requests, told from their text before they are executed.

use serde_json::{Value, json};

use crate::support::{Policy, Proxy, Request, Upstream, get, post};

/// GitHub's example of its documentation: 100 repositories, 50 issues of each, 60 labels of each.
const EXAMPLE: &str = "query { viewer { repositories(first: 100) { edges { node { issues(first: 50) \
                       { edges { node { labels(first: 60) { edges { node { name } } } } } } } } } } }";

fn proxy(upstream: &Upstream, limit: &str) -> Proxy {
    let policy = Policy::before(upstream)
        .limits(&[&format!("core: {{ per: caller, {limit} }}")])
        .routes(&["{ match: { path: /graphql }, limits: [core] }"]);
    Proxy::start(&policy)
}

fn ask(body: &Value) -> Request {
    post("/graphql", body.to_string()).field("content-type", "application/json").by("alice")
}

/// What a request on a limit of a million has used.
fn used(proxy: &Proxy, request: Request) -> u64 {
    let before = proxy.used("alice", "core");
    let response = proxy.send(request);
    response.assert_status(200).number("x-ratelimit-used") - before
}

#[test]
fn query_costs_as_github_counts() {
    let upstream = Upstream::start();
    for (measure, expected) in
        [("points", [51, 1, 102, 51]), ("nodes", [305_100, 1, 610_200, 305_100])]
    {
        let proxy =
            proxy(&upstream, &format!("rate: 10_000_000/hour, cost: {{ graphql: {measure} }}"));
        let [example, small, batch, variable] = expected;
        let query = json!({ "query": EXAMPLE });
        assert_eq!(used(&proxy, ask(&query)), example, "{measure}");
        assert_eq!(used(&proxy, ask(&json!({ "query": "{ viewer { login } }" }))), small);
        assert_eq!(used(&proxy, ask(&json!([query, query]))), batch);
        let with_variable = EXAMPLE.replace("query {", "query($n: Int!) {").replace("60", "$n");
        let with_variable = json!({ "query": with_variable, "variables": { "n": 60 } });
        assert_eq!(used(&proxy, ask(&with_variable)), variable);
        let target = format!("/graphql?query={}", EXAMPLE.replace(' ', "%20"));
        assert_eq!(used(&proxy, get(&target).by("alice")), example, "{measure}");
        let text = post("/graphql", EXAMPLE).field("content-type", "application/graphql");
        assert_eq!(used(&proxy, text.by("alice")), example);
    }
}

#[test]
fn dear_query_is_denied_before_it_is_executed() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "rate: 100/hour, cost: { graphql: points, default: 10 }");
    let query = json!({ "query": EXAMPLE });
    proxy.send(ask(&query)).assert_status(200).assert_field("x-ratelimit-remaining", "49");
    proxy.send(ask(&query)).assert_status(429);
    let persisted =
        json!({ "extensions": { "persistedQuery": { "version": 1, "sha256Hash": "ab" } } });
    proxy.send(ask(&persisted)).assert_status(200).assert_field("x-ratelimit-remaining", "39");
    assert_eq!(upstream.count(), 2);
}

#[test]
fn response_tells_what_a_query_has_cost() {
    let body = json!({ "data": {}, "extensions": { "cost": { "actual": 7 } } }).to_string();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let upstream = Upstream::answering(answer);
    let cost = "cost: { graphql: points, from_response: { json: extensions.cost.actual } }";
    let proxy = proxy(&upstream, &format!("rate: 100/hour, {cost}"));
    let response = proxy.send(ask(&json!({ "query": EXAMPLE })));
    response.assert_status(200).assert_field("x-ratelimit-used", "51");
    crate::support::eventually("it is settled", || {
        (proxy.used("alice", "core") == 7).then_some(())
    });
}

#[test]
fn what_servers_may_read_otherwise_is_refused() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "rate: 1000/hour, cost: { graphql: points }");
    let bomb: String =
        (0..30).map(|n| format!("fragment f{n} on T {{ ...f{} ...f{} }} ", n + 1, n + 1)).collect();
    let bomb = format!("{{ ...f0 }} {bomb} fragment f30 on T {{ a(first: 9) {{ b }} }}");
    for (body, named) in [
        (json!({ "query": "{ a(first: -1) { b } }" }).to_string(), "first"),
        (json!({ "query": "{ a " }).to_string(), "syntax"),
        (json!({ "query": "{ ...f } fragment f on T { ...f }" }).to_string(), "fragment"),
        (
            json!({ "query": format!("{}a{}", "{ a ".repeat(100), " }".repeat(100)) }).to_string(),
            "deep",
        ),
        (r#"{"query":"{ a }","query":"{ b(first: 9) { c } }"}"#.to_owned(), "query"),
        (r#"{"Query":"{ a }"}"#.to_owned(), "query"),
        ("{".to_owned(), "JSON"),
        (format!("{{\"query\":\"{{ a }} {}\"}}", "#".repeat(70_000)), "too long"),
    ] {
        let request = post("/graphql", body).field("content-type", "application/json").by("alice");
        let refused = proxy.send(request);
        refused.assert_status(400);
        assert!(refused.text().contains(named), "{named}: {refused:?}");
    }
    assert_eq!(upstream.count(), 0);
    // A fragment that is spread a billion times costs what it comes to, in no time.
    proxy.send(ask(&json!({ "query": bomb }))).assert_status(429);
}

#[test]
fn other_readings_of_a_request_are_refused() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "rate: 1000/hour, cost: { graphql: points, default: 7 }");
    let dear = "%7Ba(first:100)%7Bb(first:100)%7Bc(first:100)%7Bid%7D%7D%7D%7D";
    for query in ["[query]", "query]", "[]query", "+query", "%20query", "x=1;query", "doc.id"] {
        let target = format!("/graphql?query=%7Ba%7D&{query}={dear}");
        proxy.send(get(&target).by("alice")).assert_status(400);
    }
    let json = json!({ "query": "{ a }" }).to_string();
    for content_type in [
        "application/json; charset=utf-7",
        "application/x-www-form-urlencoded",
        "application/x-www-form-urlencoded, x",
        "application/x-www-form-urlencoded x",
        "multipart/form-data; boundary=x",
    ] {
        let request = post("/graphql", json.as_str()).field("content-type", content_type);
        let refused = proxy.send(request.by("alice"));
        assert_eq!(refused.status, 400, "{content_type}");
    }
    let twice = post("/graphql", json.as_str())
        .field("content-type", "application/json")
        .field("content-type", "application/x-www-form-urlencoded");
    proxy.send(twice.by("alice")).assert_status(400);
    assert_eq!(upstream.count(), 0);
    // Of no body nothing is said.
    let without = get("/graphql?query=%7Ba%7D").by("alice");
    let odd = without.field("content-type", "a, b").field("content-encoding", "br");
    proxy.send(odd).assert_status(200);
    // Some servers take a size of zero for none.
    let zero = json!({ "query": "{ a(first: 0) { b(first: 200) { c(first: 2) { d } } } }" });
    assert_eq!(used(&proxy, ask(&zero)), 2);
}
