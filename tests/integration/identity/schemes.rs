//! What `Authorization` may hold, and what becomes of what is no credential: an upstream that reads it
//! more loosely must not find one that nobody has looked at.

use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};

use super::{INVALID_REQUEST, REALM, assert_refused, guarded};
use crate::support::{Policy, Proxy, Request, Response, Upstream, get, http2, options, token};

/// What begins as a bearer credential, and is none.
const MALFORMED: [&[u8]; 15] = [
    b"Bearer\tx",
    b"Bearer\xa0x",
    b"Bearer\x85x",
    b"Bearer\xc2\xa0x",
    b"Bearer: x",
    b"Bearer:x",
    b"bearer=x",
    b"BEARERx",
    b"Bearer,x",
    b"Bearer \tx",
    b"Bearer \xa0x",
    b"Bearer x y",
    b"Bearer x\ty",
    b"Bearer x, Bearer y",
    b"Bearer x\xa0",
];

/// What is of another scheme, or of none.
const OTHER: [&[u8]; 8] = [
    b"Basic YTpi",
    b"Digest username=\"a\"",
    b"token x",
    b"x",
    b"\xa0Bearer x",
    b"\x85Bearer x",
    b"\"Bearer x\"",
    b", Bearer x",
];

/// Asks for a path with this field, whatever its bytes, on a connection of its own.
fn with(proxy: &Proxy, path: &str, value: &[u8]) -> Response {
    let mut client = proxy.connect();
    let head = format!("GET {path} HTTP/1.1\r\nhost: api.example.com\r\nauthorization: ");
    client.write([head.as_bytes(), value, b"\r\n\r\n"].concat());
    client.read()
}

/// The same over HTTP/2, with all of these fields: the status, and the response's fields.
fn over_http2(proxy: &Proxy, path: &str, fields: &[(HeaderName, &[u8])]) -> (u16, HeaderMap) {
    let mut request =
        http::Request::get(format!("http://api.example.com{path}")).body(String::new()).unwrap();
    for (name, value) in fields {
        request.headers_mut().append(name, HeaderValue::from_bytes(value).unwrap());
    }
    let response = http2(proxy.address(), vec![request]).remove(0);
    (response.status().as_u16(), response.headers().clone())
}

#[test]
fn what_begins_as_a_bearer_credential_and_is_none_is_refused() {
    let upstream = Upstream::start();
    for policy in [
        guarded(&upstream),
        guarded(&upstream).identity(&["token: { forward: true, other_schemes: forward }"]),
        guarded(&upstream).identity(&["invalid_token: anonymous"]),
    ] {
        let proxy = Proxy::start(&policy);
        for path in ["/required", "/optional", "/rate_limit"] {
            for value in MALFORMED {
                assert_refused(&with(&proxy, path, value), 400, INVALID_REQUEST);
                let (status, fields) = over_http2(&proxy, path, &[(AUTHORIZATION, value)]);
                assert_eq!(status, 400);
                assert_eq!(fields["www-authenticate"], INVALID_REQUEST);
            }
        }
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn spaces_around_a_credential_are_no_part_of_it() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    let bearer = format!(" \tBearer   {} \t", token("alice"));
    with(&proxy, "/required", bearer.as_bytes()).assert_status(200);
    let seen = upstream.last().fields;
    assert_eq!(seen.one("x-tollgate-subject"), Some("alice"));
    assert_eq!(seen.one("authorization"), None);
    // HTTP/2 knows no spaces around a value (RFC 9113 section 8.2.1).
    for value in [bearer.as_bytes(), b" Bearer x", b"Bearer x\t"] {
        for path in ["/optional", "/none"] {
            assert_eq!(over_http2(&proxy, path, &[(AUTHORIZATION, value)]).0, 400);
        }
    }
    assert_eq!(upstream.count(), 1);
}

#[test]
fn what_was_not_understood_does_not_reach_the_upstream() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    for value in OTHER {
        assert_refused(&with(&proxy, "/required", value), 401, REALM);
        with(&proxy, "/optional", value).assert_status(200);
        let seen = upstream.last().fields;
        assert_eq!(seen.one("authorization"), None);
        assert_eq!(seen.one("x-tollgate-tier"), Some("anonymous"));
        let (status, _) = over_http2(&proxy, "/optional", &[(AUTHORIZATION, value)]);
        assert_eq!((status, upstream.last().fields.one("authorization")), (200, None));
    }
    assert_eq!(upstream.count(), 2 * OTHER.len());
}

#[test]
fn another_scheme_goes_on_beside_a_token_only_if_the_policy_says_so() {
    let upstream = Upstream::start();
    for (field, expected) in
        [("header: x-token", None), ("header: x-token, other_schemes: forward", Some("Basic YTpi"))]
    {
        let policy = guarded(&upstream).identity(&[&format!("token: {{ {field} }}")]);
        let proxy = Proxy::start(&policy);
        let basic = |path| get(path).field("authorization", "Basic YTpi");
        for request in [basic("/optional"), basic("/required").field("x-token", &token("alice"))] {
            proxy.send(request).assert_status(200);
            assert_eq!(upstream.last().fields.one("authorization"), expected);
        }
    }
}

#[test]
fn token_that_is_not_good_never_goes_on() {
    let upstream = Upstream::start();
    let policy = guarded(&upstream).identity(&[
        "invalid_token: anonymous",
        "token: { header: x-token, cookie: session, forward: true }",
    ]);
    let proxy = Proxy::start(&policy);
    let named = ["authorization", "x-token", "cookie"];
    for (name, value) in
        [("authorization", "Bearer x.y.z"), ("x-token", "x.y.z"), ("cookie", "session=x.y.z")]
    {
        proxy.send(get("/optional").field(name, value)).assert_status(200);
        let seen = upstream.last().fields;
        assert_eq!(named.map(|name| seen.one(name)), [None; 3], "{name}");
    }
    // A good one does.
    proxy.send(get("/optional").field("x-token", &token("alice"))).assert_status(200);
    assert_eq!(upstream.last().fields.one("x-token"), Some(token("alice").as_str()));
}

#[test]
fn route_that_looks_at_no_credentials_passes_them_on_as_they_came() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    for value in MALFORMED.into_iter().chain(OTHER) {
        with(&proxy, "/none", value).assert_status(200);
        let seen = upstream.last().fields;
        assert_eq!(seen.one("authorization"), Some(&*String::from_utf8_lossy(value)));
        assert_eq!(seen.one("x-tollgate-subject"), None);
    }
}

#[test]
fn credentials_for_a_proxy_are_nobody_elses() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    let bearer = format!("Bearer {}", token("alice"));
    for path in ["/optional", "/none"] {
        proxy.send(get(path).field("proxy-authorization", &bearer)).assert_status(200);
        let seen = upstream.last().fields;
        assert_eq!(seen.one("proxy-authorization"), None);
        assert_eq!(seen.one("x-tollgate-subject"), None);
    }
    assert_refused(&proxy.send(get("/required").field("proxy-authorization", &bearer)), 401, REALM);
}

#[test]
fn two_fields_are_refused_over_http2_as_well() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    let bearer = format!("Bearer {}", token("alice"));
    for other in [bearer.as_bytes(), b"Basic YTpi", b""] {
        let fields = [(AUTHORIZATION, bearer.as_bytes()), (AUTHORIZATION, other)];
        assert_eq!(over_http2(&proxy, "/optional", &fields).0, 400);
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn preflight_that_is_passed_takes_no_credentials_along() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .identity(&["token: { cookie: session, forward: true }"])
        .section("cors: { origins: [\"https://app.example.com\"], preflight: pass }");
    let proxy = Proxy::start(&policy);
    let preflight = |value: &str| {
        options("/")
            .field("origin", "https://app.example.com")
            .field("access-control-request-method", "GET")
            .field("authorization", value)
            .field("cookie", "a=b; session=x.y.z")
    };
    for value in ["Bearer x.y.z", "Bearer\tx.y.z", "Basic YTpi"] {
        proxy.send(preflight(value)).assert_status(200);
        let seen = upstream.last().fields;
        assert_eq!(seen.one("authorization"), None, "{value}");
        assert_eq!(seen.one("cookie"), Some("a=b"));
    }
}

/// A request with a token in none of the ways in which the proxy reads one, but in one in which a
/// server may.
fn disguised() -> [Request; 12] {
    let in_header = |value: &str| get("/optional").field("x-token", value);
    let in_cookie = |value: &str| get("/optional").field("cookie", value);
    [
        in_header("Bearer\tx.y.z"),
        in_header("Bearer: x.y.z"),
        in_header("x.y.z, x.y.z"),
        in_header("x y"),
        in_cookie("a=b, session=x.y.z"),
        in_cookie("a=b session=x.y.z"),
        in_cookie("session=x.y.z, a=b"),
        in_cookie("session=x y"),
        get("/optional?access_token=x%20y"),
        get("/optional?access_token=%C2%A0x.y.z"),
        get("/optional?a=b;access_token=x.y.z"),
        get("/optional?a=b;access%5ftoken=x.y.z;c"),
    ]
}

#[test]
fn token_elsewhere_has_one_spelling_too() {
    let upstream = Upstream::start();
    let policy = guarded(&upstream)
        .identity(&["token: { header: x-token, cookie: session, query: access_token }"]);
    let proxy = Proxy::start(&policy);
    for request in disguised() {
        assert_refused(&proxy.send(request), 400, INVALID_REQUEST);
    }
    assert_eq!(upstream.count(), 0);
}
