//! Fields that servers which make variables of names take for ours.

use crate::support::{Door, Policy, Proxy, Upstream, get};

const CLIENT: &str = "203.0.113.9";

fn proxy(upstream: &Upstream) -> Proxy {
    let policy = Policy::before(upstream)
        .rate("100/hour")
        .identity(&["forward_claims: { headers: { x-caller-email: jwt.email } }"]);
    Proxy::with_settings(Door::LISTENERS, &[&policy])
}

#[test]
fn alias_of_an_identity_field_is_refused_by_every_asker() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream);
    for name in [
        "x_tollgate_subject",
        "x-tollgate_tier",
        "x_tollgate-subject",
        "x.tollgate.subject",
        "x~tollgate~tier",
        "x_ratelimit_remaining",
        "ratelimit_policy",
        "x_caller_email",
        "x-caller.email",
        "x_forwarded_for",
    ] {
        for door in Door::ASKERS {
            let judged = door.judge(&proxy, &get("/").field(name, "admin"), CLIENT);
            assert_eq!(judged.status, 400, "{door:?} {name}");
        }
        for door in [Door::Http1, Door::Http2] {
            let judged = door.judge(&proxy, &get("/").field(name, "admin"), CLIENT);
            assert_eq!(judged.status, 200, "{door:?} {name}");
            let seen = upstream.last().fields;
            assert_eq!(seen.all(name), [""; 0], "{door:?} {name}");
        }
    }
}

#[test]
fn other_names_with_marks_are_nobodys_alias() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream);
    for name in ["session_id", "x_request_source", "x-amz-meta-a.b", "x-caller-emails"] {
        for door in Door::ALL {
            let judged = door.judge(&proxy, &get("/").field(name, "a"), CLIENT);
            assert_eq!(judged.status, 200, "{door:?} {name}");
        }
    }
}

/// They are taken out of what comes in here, and by Envoy; nginx and others cannot be told to.
#[test]
fn alias_of_a_field_that_ends_here_is_refused_where_it_cannot_be_taken_out() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream);
    for name in [
        "x.real.ip",
        "x_real_ip",
        "x-real.ip",
        "client_ip",
        "remote_addr",
        "remote_user",
        "x_ssl_client_verify",
        "x.original.url",
        "true~client~ip",
    ] {
        for door in [Door::Forward, Door::Nginx] {
            let judged = door.judge(&proxy, &get("/").field(name, "10.0.0.1"), CLIENT);
            assert_eq!(judged.status, 400, "{door:?} {name}");
        }
        let judged = Door::Envoy.judge(&proxy, &get("/").field(name, "10.0.0.1"), CLIENT);
        assert_eq!(judged.status, 200, "{name}");
        assert!(judged.removed.iter().any(|own| own == name), "{name} stays: {judged:?}");
        for door in [Door::Http1, Door::Http2] {
            assert_eq!(door.judge(&proxy, &get("/").field(name, "10.0.0.1"), CLIENT).status, 200);
            assert_eq!(upstream.last().fields.all(name), [""; 0], "{door:?} {name}");
        }
    }
}

#[test]
fn envoy_removes_a_token_from_the_query_however_it_is_spelled() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .identity(&["token: { query: access_token }", "invalid_token: anonymous"])
        .routes(&["{ match: { path: /** }, auth: optional, limits: [] }"]);
    let proxy = Proxy::with_settings(Door::LISTENERS, &[&policy]);
    for spelled in ["access_token", "acces%73_token", "%61ccess%5Ftoken"] {
        let judged = Door::Envoy.judge(&proxy, &get(&format!("/a?{spelled}=x.y.z&b=1")), CLIENT);
        assert_eq!(judged.status, 200, "{spelled}");
        assert!(judged.parameters.iter().any(|own| own == spelled), "{spelled}: {judged:?}");
    }
    let judged = Door::Envoy.judge(&proxy, &get("/a?access.token=x.y.z"), CLIENT);
    assert_eq!(judged.status, 400);
}
