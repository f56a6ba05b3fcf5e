//! Errors as problem details, for clients that want them.

use serde_json::json;

use crate::support::{Policy, Proxy, Request, Upstream, get};

const PROBLEM: &str = "application/problem+json; charset=utf-8";
const JSON: &str = "application/json; charset=utf-8";

fn wants_problems(request: Request) -> Request {
    request.field("accept", "application/problem+json")
}

#[test]
fn denial_names_the_limits_that_were_violated() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).on_all_routes(&[
        "core: { per: caller, rate: [1/minute, 1/hour] }",
        "wide: { per: caller, rate: 9/hour }",
        "place: { per: client.ip, rate: 1/hour }",
        "trial: { per: caller, rate: 1/hour, mode: shadow }",
    ]);
    let proxy = Proxy::start(&policy);
    proxy.get_as("alice").assert_status(200);
    let denied = proxy.send(wants_problems(get("/").by("alice")));
    denied
        .assert_status(429)
        .assert_field("content-type", PROBLEM)
        .assert_field("cache-control", "no-store")
        .assert_field("retry-after", "3600");
    let id = denied.field("x-request-id").unwrap();
    assert_eq!(
        denied.json(),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Request cannot be satisfied as assigned quota has been exceeded",
            "status": 429,
            "detail": "API rate limit exceeded for user alice.",
            "instance": format!("urn:request:{id}"),
            "violated-policies": ["core-1m", "core", "place"],
        })
    );
}

#[test]
fn secondary_denial_is_known_by_its_words_there_too() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .on_all_routes(&[
            "core: { per: caller, rate: 9/hour }",
            "place: { per: client.ip, rate: 1/hour }",
        ])
        .responses(&["denied_status: 403"]);
    let proxy = Proxy::start(&policy);
    proxy.get_as("alice").assert_status(200);
    let denied = proxy.send(wants_problems(get("/").by("alice")));
    denied.assert_status(403).assert_field("content-type", PROBLEM);
    let problem = denied.json();
    assert_eq!(problem["status"], 403);
    assert_eq!(problem["violated-policies"], json!(["place"]));
    let detail = "You have exceeded a secondary rate limit. Try again in 1 h.";
    assert_eq!(problem["detail"], detail);
}

#[test]
fn client_has_the_form_that_it_prefers_and_else_that_of_the_profile() {
    let upstream = Upstream::start();
    for (profile, accept, expected) in [
        ("github", None, JSON),
        ("github", Some("*/*"), JSON),
        ("github", Some("text/html"), JSON),
        ("github", Some("application/json, application/problem+json"), JSON),
        ("github", Some("application/json;q=0.5, application/problem+json"), PROBLEM),
        ("github", Some("application/vnd.github+json"), JSON),
        ("github", Some("application/problem+json;q=0"), JSON),
        ("both", None, JSON),
        ("none", None, JSON),
        ("ietf", None, PROBLEM),
        ("ietf", Some("*/*"), PROBLEM),
        ("ietf", Some("application/json"), JSON),
        ("ietf", Some("application/json, */*;q=0.1"), JSON),
    ] {
        let headers = format!("headers: {profile}");
        let policy = Policy::before(&upstream).rate("0/hour").responses(&[&headers]);
        let proxy = Proxy::start(&policy);
        let request =
            accept.iter().fold(get("/"), |request, accept| request.field("accept", accept));
        let denied = proxy.send(request);
        denied.assert_status(429);
        let content_type = denied.field("content-type");
        assert_eq!(content_type, Some(expected), "{profile} to {accept:?}");
        let message = if expected == JSON { "message" } else { "detail" };
        assert_eq!(denied.json()[message], "The cost of this request exceeds its limit.");
    }
}

#[test]
fn other_errors_have_the_same_form() {
    let down = Upstream::refusing();
    let policy = Policy::before(&down)
        .limits(&["core: { per: caller, rate: 9/hour }"])
        .routes(&[
            "{ match: { path: /mine }, limits: [], auth: required }",
            "{ match: { path: /down }, limits: [core] }",
        ])
        .section("deny: [\"user:mallory\"]");
    let settings = "workers: 1\nstore: { memory: { max_keys: 1 } }";
    let proxy = Proxy::with_settings(settings, &[&policy]);
    const CAPACITY: &str =
        "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
    for (request, status, kind, title) in [
        (get("/mine"), 401, "about:blank", "Unauthorized"),
        (get("/mine").by("mallory"), 403, "about:blank", "Forbidden"),
        (get("/nowhere"), 404, "about:blank", "Not Found"),
        (get("/down"), 502, "about:blank", "Bad Gateway"),
        (
            get("/down").by("alice"),
            503,
            CAPACITY,
            "Request cannot be satisfied due to temporary server capacity constraints",
        ),
        (get("/%00"), 400, "about:blank", "Bad Request"),
    ] {
        let response = proxy.send(wants_problems(request));
        response.assert_status(status).assert_field("content-type", PROBLEM);
        let problem = response.json();
        assert_eq!((&problem["type"], &problem["title"]), (&json!(kind), &json!(title)));
        assert_eq!(problem["status"], status);
        assert!(problem.get("violated-policies").is_none(), "{problem}");
        let id = response.field("x-request-id").unwrap();
        assert_eq!(problem["instance"], format!("urn:request:{id}"));
    }
}

#[test]
fn answer_to_head_has_no_body_in_this_form_either() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("0/hour"));
    let mut client = proxy.connect();
    let head = wants_problems(Request::new("HEAD", "/"));
    client.send(&head).assert_status(429).assert_field("content-type", PROBLEM);
    client.send(&get("/")).assert_status(429).assert_field("content-type", JSON);
}
