//! Browsers' preflight requests, which another proxy forwards.

use crate::support::{Door, Policy, Proxy, Request, Upstream, options};

const PAGE: &str = "https://app.example.com";

fn preflight(method: &str, target: &str, origin: &str) -> Request {
    options(target).field("origin", origin).field("access-control-request-method", method)
}

/// The proxy that asks lets an answer of ours through as leave to forward: so it is judged and
/// charged like one that is forwarded.
#[test]
fn preflight_that_would_be_answered_here_is_charged_where_it_is_forwarded() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&["core: { per: client.ip, rate: 2/hour }"])
        .routes(&[
            "{ match: { path: /closed, methods: [PUT] }, auth: required, limits: [core] }",
            "{ match: { path: /standing }, auth: required, limits: [] }",
        ])
        .responses(&["rate_limit_path: /rate_limit"])
        .section(&format!("cors: {{ origins: [\"{PAGE}\"], preflight: answer }}"));
    let proxy = Proxy::with_settings(Door::LISTENERS, &[&policy]);
    for (door, address) in
        [(Door::Forward, "203.0.113.1"), (Door::Nginx, "203.0.113.2"), (Door::Envoy, "203.0.113.3")]
    {
        let status = |request| door.judge(&proxy, &request, address).status;
        assert_eq!(status(preflight("PUT", "/closed", "https://evil.example")), 404, "{door:?}");
        assert_eq!(status(preflight("GET", "/rate_limit", PAGE)), 404, "{door:?}");
        let statuses = [(); 3].map(|()| status(preflight("PUT", "/closed", PAGE)));
        assert_eq!(statuses, [200, 200, 429], "{door:?}");
    }
    for door in [Door::Http1, Door::Http2] {
        for _ in 0..3 {
            assert_eq!(door.judge(&proxy, &preflight("PUT", "/closed", PAGE), "").status, 200);
        }
    }
    assert_eq!(upstream.count(), 0);
}
