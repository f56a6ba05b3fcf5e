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
fn target_that_is_none_is_denied_to_its_client_by_every_asker() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "");
    for target in ["/public/a#b", "/public/<a>", "/public/\u{e4}", "public/a"] {
        for door in Door::ASKERS {
            let judged = door.judge(&proxy, &get(target), CLIENT);
            assert_eq!(judged.status, 400, "{door:?} {target}");
        }
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
        "/public/%79",
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

/// Express, for one, matches before it decodes: it takes `/users/%70ublic` for `/users/:id`.
#[test]
fn asker_is_refused_an_escape_in_what_a_route_spells_out() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).routes(&[
        "{ match: { path: /users/public }, auth: none, limits: [] }",
        "{ match: { path: /users/@me }, auth: none, limits: [] }",
        "{ match: { path: /caf%C3%A9 }, auth: none, limits: [] }",
        "{ match: { path: \"/shops/{id}/open\" }, auth: none, limits: [] }",
        "{ match: { path: \"/report-*\" }, auth: none, limits: [] }",
        "{ match: { path: /** }, auth: required, limits: [] }",
    ]);
    let proxy = Proxy::with_settings(Door::LISTENERS, &[&policy]);
    for (target, expected) in [
        ("/users/public", 200),
        ("/users/%70ublic", 400),
        ("/users/publi%63/", 400),
        ("/%75sers/public", 400),
        ("/users/%40me", 400),
        ("/users/@me", 200),
        ("/caf%C3%A9", 200),
        ("/caf%c3%a9", 200),
        ("/shops/%61/open", 200),
        ("/shops/a%40b/open", 200),
        ("/shops/a/%6fpen", 400),
        ("/report-%61", 200),
        ("/%72eport-a", 400),
        ("/elsewhere/%61", 401),
    ] {
        for door in Door::ASKERS {
            let judged = door.judge(&proxy, &get(target), CLIENT);
            assert_eq!(judged.status, expected, "{door:?} {target}");
        }
    }
    for door in [Door::Http1, Door::Http2] {
        let judged = door.judge(&proxy, &get("/users/%70ublic"), CLIENT);
        assert_eq!(judged.status, 200, "{door:?}");
        assert_eq!(upstream.last().target, "/users/public", "{door:?}");
    }
}

/// What a framework takes for the path of a route is held to the same.
#[test]
fn asker_may_escape_a_parameter_of_what_a_framework_reads_otherwise() {
    let upstream = Upstream::start();
    for (framework, targets) in [
        ("express", [("/Users/%40bob", 200), ("/Users/b%6Fb/", 200), ("/U%73ers/bob", 400)]),
        ("spring", [("/users;x/%40bob", 200), ("/users%3Bx/bob", 400), ("/%75sers;x/bob", 400)]),
        ("rails", [("/users/%40bob.json", 200), ("/users/b%6Fb", 200), ("/user%73/a.json", 400)]),
        ("php", [("/users/%40bob", 200), ("/index.php/users/%40bob", 400), ("/users/bob", 200)]),
    ] {
        let policy = Policy::before(&upstream)
            .upstream(&upstream, &format!("paths: {framework}"))
            .routes(&["{ match: { path: \"/users/{id}\" }, auth: none, limits: [] }"]);
        let proxy = Proxy::with_settings(Door::LISTENERS, &[&policy]);
        for (target, expected) in targets {
            for door in Door::ASKERS {
                let judged = door.judge(&proxy, &get(target), CLIENT);
                assert_eq!(judged.status, expected, "{framework} {door:?} {target}");
            }
        }
    }
}
