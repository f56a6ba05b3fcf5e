//! What responses contain: the five limit headers, and the proxy's own errors.

mod denials;
mod ietf;
mod problem;
mod rate_limit;

use crate::support::{Policy, Proxy, Response, START, Signal, Upstream, get, http2};

/// When a window of an hour that is opened now ends, as responses report it.
fn reset() -> String {
    (START.as_micros().div_ceil(1_000_000) + 3600).to_string()
}

#[test]
fn limit_headers_are_all_there_or_none() {
    let upstream = Upstream::start();
    let policy =
        Policy::before(&upstream).limits(&["core: { per: caller, rate: 10/hour }"]).routes(&[
            "{ match: { path: /counted }, limits: [core] }",
            "{ match: { path: /free }, limits: [] }",
        ]);
    let proxy = Proxy::start(&policy);
    proxy.get("/counted").assert_limit(["10", "9", "1", &reset(), "core"]);
    proxy.get("/free").assert_no_limit();
    proxy.get("/nowhere").assert_no_limit();
    proxy.get("/%00").assert_no_limit();
}

#[test]
fn policy_may_hide_its_limits() {
    let upstream = Upstream::start();
    let proxy =
        Proxy::start(&Policy::before(&upstream).rate("1/hour").responses(&["headers: none"]));
    proxy.get("/").assert_status(200).assert_no_limit();
    proxy.get("/").assert_status(429).assert_no_limit().assert_field("retry-after", "3600");
}

#[test]
fn limit_headers_of_the_upstream_are_replaced_or_removed() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nX-RateLimit-Limit: 1\r\nx-ratelimit-remaining: 0\r\n\
         x-ratelimit-reset: 1\r\nx-ratelimit-reset: 2\r\nx-ratelimit-scope: user\r\n\
         RateLimit: \"a\";r=1\r\nRateLimit-Policy: \"a\";q=1\r\nx-tollgate-tier: root\r\n\
         content-length: 0\r\n\r\n",
    );
    let policy =
        Policy::before(&upstream).limits(&["core: { per: caller, rate: 10/hour }"]).routes(&[
            "{ match: { path: /counted }, limits: [core] }",
            "{ match: { path: /free }, limits: [] }",
        ]);
    let proxy = Proxy::start(&policy);
    proxy
        .get("/counted")
        .assert_limit(["10", "9", "1", &reset(), "core"])
        .assert_no_field("x-tollgate-tier");
    proxy.get("/free").assert_no_limit().assert_no_field("x-tollgate-tier");
}

#[test]
fn response_has_nothing_but_what_the_upstream_and_the_proxy_put_there() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nserver: octo\r\ndate: Sat, 21 Nov 2026 00:00:00 GMT\r\n\
         set-cookie: a=1\r\nset-cookie: b=2\r\ncontent-length: 0\r\n\r\n",
    );
    let proxy = Proxy::start(&Policy::before(&upstream).rate("10/hour"));
    let response = proxy.get("/");
    assert_eq!(
        response.fields.names(),
        [
            "content-length",
            "date",
            "server",
            "set-cookie",
            "set-cookie",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
            "x-ratelimit-resource",
            "x-ratelimit-used",
            "x-request-id",
        ]
    );
    response.assert_field("date", "Sat, 21 Nov 2026 00:00:00 GMT");
}

#[test]
fn primary_limit_is_shown_on_success() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&[
            "first: { per: caller, rate: 10/hour }",
            "second: { per: client.ip, rate: 2/minute }",
        ])
        .routes(&["{ match: { path: /** }, limits: [first, second] }"]);
    let proxy = Proxy::start(&policy);
    proxy.get("/").assert_status(200).assert_limit(["10", "9", "1", &reset(), "first"]);
}

#[test]
fn scripts_of_other_origins_may_read_the_limit_headers() {
    const OURS: &str = "Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Used, \
                        X-RateLimit-Reset, X-RateLimit-Resource, X-Tollgate-Denied-By, X-Tollgate-Shadow, X-Request-Id";
    for (theirs, expected) in [
        ("", None),
        ("access-control-allow-origin: *\r\n", Some(OURS.to_owned())),
        (
            "access-control-allow-origin: https://a.example\r\n\
             access-control-expose-headers: ETag\r\naccess-control-expose-headers: Link\r\n",
            Some(format!("ETag, Link, {OURS}")),
        ),
    ] {
        let upstream =
            Upstream::answering(format!("HTTP/1.1 200 OK\r\n{theirs}content-length: 0\r\n\r\n"));
        let proxy = Proxy::start(&Policy::before(&upstream).rate("10/hour"));
        let response = proxy.get("/");
        assert_eq!(response.field("access-control-expose-headers"), expected.as_deref());
    }
}

#[test]
fn headers_of_every_profile_are_reserved_and_may_be_read_by_scripts() {
    let schema = serde_json::to_value(tollgate_policy::schema()).unwrap();
    let headers = &schema["$defs"]["responses_section"]["properties"]["headers"];
    let profiles = headers["anyOf"][0]["enum"].as_array().unwrap();
    assert!(profiles.len() >= 4, "{headers}");
    let response = |profile: &str, fields: &str| {
        let upstream = Upstream::answering(format!(
            "HTTP/1.1 200 OK\r\naccess-control-allow-origin: *\r\n{fields}content-length: 0\r\n\r\n"
        ));
        let headers = format!("headers: {profile}");
        let policy = Policy::before(&upstream).rate("9/hour").responses(&[&headers]);
        Proxy::start(&policy).get("/")
    };
    let without = response("none", "").fields.names();
    for profile in profiles.iter().filter_map(|profile| profile.as_str()) {
        let response_of_profile = response(profile, "");
        let exposed = response_of_profile.field("access-control-expose-headers").unwrap();
        let exposed = exposed.to_ascii_lowercase();
        let mut names = response_of_profile.fields.names();
        names.retain(|name| !without.contains(name));
        assert_eq!(names.is_empty(), profile == "none", "{profile}: {names:?}");
        for name in &names {
            let is_exposed = exposed.split(", ").any(|exposed| exposed == name);
            assert!(is_exposed, "{profile}: {name} is missing in {exposed}");
        }
        let of_upstream: String = names.iter().map(|name| format!("{name}: 1\r\n")).collect();
        let kept = response("none", &of_upstream).fields.names();
        assert_eq!(kept, without, "{profile}: a header of the upstream was forwarded");
    }
}

#[test]
fn headers_are_as_other_limiters_write_them_with_seconds_to_wait() {
    let upstream = Upstream::start();
    let fields = |profile: &str| {
        let headers = format!("headers: {profile}");
        let policy = Policy::before(&upstream)
            .on_all_routes(&[
                "core: { per: caller, rate: [2/minute, 9/hour, 9/5m] }",
                "other: { per: client.ip, rate: 5/minute }",
                "inflight: { per: caller, concurrent: 3 }",
            ])
            .responses(&[&headers]);
        let proxy = Proxy::start(&policy);
        proxy.get("/");
        proxy.advance(std::time::Duration::from_secs(10));
        let second = proxy.get("/");
        let denied = proxy.get("/");
        denied.assert_status(429).assert_field("retry-after", "50");
        let named = |response: &Response| {
            let mut all: Vec<(String, String)> = response
                .fields
                .names()
                .into_iter()
                .filter(|name| name.contains("ratelimit"))
                .map(|name| (name.clone(), response.field(&name).unwrap().to_owned()))
                .collect();
            all.sort();
            all.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
        };
        (named(&second), named(&denied))
    };
    let all = "2;w=60, 9;w=300, 9;w=3600, 5;w=60";
    let (passed, denied) = fields("draft-03");
    let policy = format!("ratelimit-policy: {all}");
    let expected = ["ratelimit-limit: 2", &policy, "ratelimit-remaining: 0", "ratelimit-reset: 50"];
    assert_eq!(passed, expected);
    assert_eq!(denied, expected);
    let (passed, denied) = fields("envoy");
    let limit = format!("x-ratelimit-limit: 2, {all}");
    let expected = [limit.as_str(), "x-ratelimit-remaining: 0", "x-ratelimit-reset: 50"];
    assert_eq!(passed, expected);
    assert_eq!(denied, expected);
    let (passed, denied) = fields("apisix");
    let expected = ["x-ratelimit-limit: 2", "x-ratelimit-remaining: 0", "x-ratelimit-reset: 50"];
    assert_eq!(passed, expected);
    assert_eq!(denied, expected);
    let (passed, denied) = fields("kong");
    let expected = [
        "ratelimit-limit: 2",
        "ratelimit-remaining: 0",
        "ratelimit-reset: 50",
        "x-ratelimit-limit-hour: 9",
        "x-ratelimit-limit-minute: 2",
        "x-ratelimit-remaining-hour: 7",
        "x-ratelimit-remaining-minute: 0",
    ];
    assert_eq!(passed, expected);
    assert_eq!(
        denied[..3],
        ["ratelimit-limit: 2", "ratelimit-remaining: 0", "ratelimit-reset: 50"]
    );
}

#[test]
fn upstream_that_is_down_is_a_502_with_limit_headers() {
    let upstream = Upstream::refusing();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("10/hour"));
    let response = proxy.get("/");
    response
        .assert_status(502)
        .assert_field("content-type", "application/json; charset=utf-8")
        .assert_field("cache-control", "no-store")
        .assert_limit(["10", "9", "1", &reset(), "core"]);
    assert_eq!(response.json()["message"], "The upstream service could not be reached.");
}

#[test]
fn upstream_that_does_not_answer_is_a_504_with_limit_headers() {
    let upstream = Upstream::silent();
    let policy = Policy::before(&upstream).upstream(&upstream, "response_timeout: 200ms");
    let proxy = Proxy::start(&policy.rate("10/hour"));
    let response = proxy.get("/");
    response
        .assert_status(504)
        .assert_field("content-type", "application/json; charset=utf-8")
        .assert_limit(["10", "9", "1", &reset(), "core"]);
    assert_eq!(response.json()["message"], "The upstream service did not answer in time.");
}

#[test]
fn answer_of_the_upstream_that_is_no_http_is_a_502_with_limit_headers() {
    for answer in [
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-len",
    ] {
        let upstream = Upstream::scripted(move |exchange| {
            exchange.write(answer);
            exchange.close();
        });
        let proxy = Proxy::start(&Policy::before(&upstream).rate("10/hour"));
        let response = proxy.get("/");
        assert_eq!(response.status, 502, "{answer:?} became\n{response:?}");
        response.assert_limit(["10", "9", "1", &reset(), "core"]);
    }
}

/// An upstream whose head has a field of this length.
fn with_large_head(bytes: usize) -> Upstream {
    let field = "x".repeat(bytes);
    Upstream::answering(format!("HTTP/1.1 200 OK\r\nx-large: {field}\r\ncontent-length: 0\r\n\r\n"))
}

#[test]
fn large_head_of_the_upstream_goes_through_and_a_huge_one_is_a_502() {
    for (bytes, status) in [(60_000, 200), (300_000, 502)] {
        let upstream = with_large_head(bytes);
        let proxy = Proxy::start(&Policy::before(&upstream));
        proxy.get("/").assert_status(status);
    }
}

#[test]
fn head_of_the_upstream_that_is_just_over_64_kib_is_a_502() {
    let upstream = with_large_head(70_000);
    let proxy = Proxy::start(&Policy::before(&upstream));
    proxy.get("/").assert_status(502);
}

#[test]
fn headers_and_decision_are_of_one_read() {
    let upstream = Upstream::start();
    let asked = Signal::default();
    let go = Signal::default();
    let slow = Upstream::held(&asked, &go);
    let policy = Policy::before(&upstream)
        .and_upstream("slow", &slow)
        .limits(&["core: { per: caller, rate: 10/hour }"])
        .routes(&[
            "{ match: { path: /slow }, limits: [core], upstream: slow }",
            "{ match: { path: /** }, limits: [core], upstream: api }",
        ]);
    let proxy = Proxy::start(&policy);
    let mut waiting = proxy.connect();
    waiting.write(get("/slow").to_bytes());
    asked.wait();
    for used in ["2", "3"] {
        proxy.get("/").assert_field("x-ratelimit-used", used);
    }
    go.open();
    // It reports the count after its own charge, though others charged more meanwhile.
    waiting.read().assert_status(200).assert_limit(["10", "9", "1", &reset(), "core"]);
}

#[test]
fn http_2_gets_the_same_headers() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("1/hour"));
    let request = || http::Request::get("http://api.example.com/").body(String::new()).unwrap();
    let responses = http2(proxy.address(), vec![request(), request()]);
    for (response, status, remaining) in [(&responses[0], 200, "0"), (&responses[1], 429, "0")] {
        assert_eq!(response.status().as_u16(), status);
        assert_eq!(response.headers()["x-ratelimit-remaining"], remaining);
        assert_eq!(response.headers()["x-ratelimit-reset"], reset().as_str());
        assert!(response.headers().contains_key("x-request-id"));
    }
    assert_eq!(responses[1].headers()["retry-after"], "3600");
}
