//! Targets that another proxy forwards as they came.

use crate::support::{Door, Policy, Proxy, Upstream, get};

const CLIENT: &str = "203.0.113.9";

/// A public part, a private one, and nothing else.
fn policy(upstream: &Upstream, paths: &str) -> Policy {
    Policy::before(upstream).section(paths).routes(&[
        "{ match: { path: /public/** }, auth: none, limits: [] }",
        "{ match: { path: /** }, auth: required, limits: [] }",
    ])
}

fn proxy(upstream: &Upstream, paths: &str) -> Proxy {
    Proxy::with_settings(Door::LISTENERS, &[&policy(upstream, paths)])
}

#[test]
fn target_that_was_judged_in_another_form_is_refused_by_every_asker() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "");
    for target in [
        "/admin/..;/public/y",
        "/admin/..;a=b/public/y",
        "/admin/users/../../public/y",
        "/admin/..%3b/public/y",
        "/admin/..%3B/public/y",
        "/admin/%2e%2e/public/y",
        "/admin/%2E./public/y",
        "/admin/.%2e;/public/y",
        "/./public/y",
        "/%2e/public/y",
        "//public/y",
        "/public//y",
        "/public/y/.",
        "/public/y/..",
        "/public/./y",
        "/public/.;x/y",
        "/admin/../public/y?a=/b/..",
        "/public%2fy",
        "/admin%2f..%2fpublic/y",
        "/public/..%5cadmin",
        "/public\\y",
    ] {
        for door in Door::ASKERS {
            let judged = door.judge(&proxy, &get(target), CLIENT);
            assert_eq!(judged.status, 400, "{door:?} {target}");
        }
    }
    // What comes in here is forwarded in the form in which it was judged.
    for door in [Door::Http1, Door::Http2] {
        let judged = door.judge(&proxy, &get("/admin/..;/public/y"), CLIENT);
        assert_eq!(judged.status, 200, "{door:?}");
        assert_eq!(upstream.last().target, "/public/y", "{door:?}");
    }
}

#[test]
fn target_whose_characters_are_spelled_otherwise_is_judged() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "");
    for target in [
        "/public",
        "/public/",
        "/public/y?a=//b/../c",
        "/%70ublic/y",
        "/public/caf%c3%a9",
        "/public/caf%C3%A9",
        "/public/a%20b",
        "/public/a%2525",
        "/public/user%40example.com",
        "/public/user@example.com",
        "/public/a;b=c",
        "/public/...",
        "/public/.well-known",
        "/public/a..b",
        "/public/%7Euser",
    ] {
        for door in Door::ALL {
            let judged = door.judge(&proxy, &get(target), CLIENT);
            assert_eq!(judged.status, 200, "{door:?} {target}");
        }
    }
}

#[test]
fn escaped_slash_is_no_slash_to_the_proxy_that_asks() {
    let upstream = Upstream::start();
    let kept = proxy(&upstream, "paths: { encoded_slash: keep }");
    let decoded = proxy(&upstream, "paths: { encoded_slash: decode }");
    for door in Door::ASKERS {
        let status = |proxy: &Proxy, target| door.judge(proxy, &get(target), CLIENT).status;
        assert_eq!(status(&kept, "/public/a%2Fb"), 200, "{door:?}");
        assert_eq!(status(&kept, "/public/a%2fb"), 200, "{door:?}");
        assert_eq!(status(&decoded, "/public/a%2Fb"), 400, "{door:?}");
        assert_eq!(status(&decoded, "/public/a/b"), 200, "{door:?}");
    }
}
