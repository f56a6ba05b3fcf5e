//! Paths that are refused, and spellings of a guarded one, whatever door they come to.

use crate::support::{Door, Policy, Proxy, Upstream, get};

fn proxy(upstream: &Upstream) -> Proxy {
    let policy = Policy::before(upstream).routes(&[
        "{ match: { path: /admin/** }, auth: required, limits: [] }",
        "{ match: { path: /** }, auth: none, limits: [] }",
    ]);
    Proxy::with_settings(Door::LISTENERS, &[&policy])
}

#[test]
fn path_that_is_refused_is_refused_at_every_door() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream);
    for target in [
        "/a%2Fb",
        "/a%2fb",
        "/a%5Cb",
        "/a%00",
        "/%C0%AE",
        "/a/%E0%80%AF",
        "/a/%EF%BC%8E%EF%BC%8E/b",
        "/a/..%EF%BC%8Fb",
        "/a/%252e%252e/b",
        "/a%",
        "/a%0A",
        "/a%0d",
        "/a%1F",
        "/a%7f",
        "/a%zz",
        "/a%u002e",
        "/a/..%252Fb",
        "/a/..%253B/b",
        "/a/..%20/b",
        "/a/..%09/b",
        "/a/..%3F/b",
        "/a/..%23b",
    ] {
        for door in Door::ALL {
            let judged = door.judge(&proxy, &get(target), "203.0.113.9");
            assert_eq!(judged.status, 400, "{door:?} {target}");
        }
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn spelling_of_a_guarded_path_is_guarded_at_every_door() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream);
    for target in [
        "/admin/x",
        "/%61dmin/x",
        "//admin/x",
        "/./admin/x",
        "/open/../admin/x",
        "/open/..;/admin/x",
        "/open/..%3Bx=1/admin/x",
        "/open/%2e%2e/admin/x",
    ] {
        for door in Door::ALL {
            let status = door.judge(&proxy, &get(target), "203.0.113.9").status;
            assert!([400, 401].contains(&status), "{door:?} {target} {status}");
        }
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn part_of_a_segment_is_guarded_at_every_door() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).routes(&[
        "{ match: { path: \"/report-*\" }, auth: required, limits: [] }",
        "{ match: { path: \"/@*/*.php\" }, auth: required, limits: [] }",
        "{ match: { path: \"/**\" }, auth: none, limits: [] }",
    ]);
    let proxy = Proxy::with_settings(Door::LISTENERS, &[&policy]);
    for door in Door::ALL {
        let status = |target: &str| door.judge(&proxy, &get(target), "203.0.113.9").status;
        for target in ["/report-1", "/report-", "/report-/", "/report-%20", "/%72eport-1"] {
            assert!([400, 401].contains(&status(target)), "{door:?} {target}");
        }
        for target in ["/@a/x.php", "/%40/.php", "/@/x%2Ephp", "/x/../@/.php/"] {
            assert!([400, 401].contains(&status(target)), "{door:?} {target}");
        }
        for target in ["/report", "/my-report-1", "/report-1/x", "/@a/x.php5", "/@a/x.php/y"] {
            assert_eq!(status(target), 200, "{door:?} {target}");
        }
    }
}

/// Routes and counters take a character and its escape for one.
#[test]
fn character_is_its_escape_at_every_door() {
    let upstream = Upstream::start();
    let policy =
        Policy::before(&upstream).limits(&["items: { per: path.id, rate: 1/hour }"]).routes(&[
            "{ match: { path: \"/users/@me\" }, auth: required, limits: [] }",
            "{ match: { path: \"/users/{id}\" }, auth: none, limits: [] }",
            "{ match: { path: \"/items/{id}\" }, auth: none, limits: [items] }",
        ]);
    let proxy = Proxy::with_settings(Door::LISTENERS, &[&policy]);
    for (number, door) in Door::ALL.into_iter().enumerate() {
        let status = |target: &str| door.judge(&proxy, &get(target), "203.0.113.9").status;
        for target in ["/users/@me", "/users/%40me", "/users/%40m%65"] {
            assert!([400, 401].contains(&status(target)), "{door:?} {target}");
        }
        assert_eq!(status("/users/a%40b"), 200, "{door:?}");
        let spelled = ["%40", "@", "%3a", "%3A", ":"].map(|mark| format!("/items/{number}{mark}b"));
        let statuses = spelled.map(|target| status(&target));
        assert_eq!(statuses, [200, 429, 200, 429, 429], "{door:?}");
    }
}
