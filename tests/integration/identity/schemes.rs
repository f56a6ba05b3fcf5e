//! What `Authorization` may hold, and how the proxy treats what is no credential: an upstream that
//! parses it more loosely must not find a credential that the proxy has not checked.

use std::fs;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};
use tempfile::TempDir;
use tollgate_identity::NewKey;

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
fn credentials_for_a_proxy_are_not_forwarded() {
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
            .field("cookie", "a=b; session=x.y.z; session\u{A0}=x.y.z; c session=x.y.z")
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
fn disguised() -> [Request; 24] {
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
        in_cookie("session\u{A0}=x.y.z"),
        in_cookie("\u{FEFF}session=x.y.z"),
        in_cookie("session=x.y.z\u{2003}"),
        in_cookie("=session=x.y.z"),
        in_cookie("sess%69on=x.y.z"),
        in_cookie("session[]=x.y.z"),
        get("/optional?access_token=x%20y"),
        get("/optional?Access_Token=x.y.z"),
        get("/optional?access.token=x.y.z"),
        get("/optional?a=b&access%5Btoken=x.y.z"),
        get("/optional?+access_token=x.y.z"),
        get("/optional?access_token%5B%5D=x.y.z"),
        get("/optional?%5Baccess_token%5D=x.y.z"),
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

#[test]
fn forwarded_token_is_the_only_one_that_servers_can_find_in_the_cookies() {
    let upstream = Upstream::start();
    let policy = guarded(&upstream).identity(&["token: { cookie: session, forward: true }"]);
    let proxy = Proxy::start(&policy);
    let mine = token("mine");
    for path in ["/required", "/optional"] {
        for forged in [&b"session\xA0"[..], b"\x85session", b"session\xC2\xA0", b"\"session\""] {
            let mut client = proxy.connect();
            let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\ncookie: session={mine}; ");
            client.write([head.as_bytes(), forged, b"=x.y.z\r\n\r\n"].concat());
            assert_refused(&client.read(), 400, INVALID_REQUEST);
        }
    }
    assert_eq!(upstream.count(), 0);
    let others = format!("größe=\u{A0}; session={mine}; session2=x");
    proxy.send(get("/required").field("cookie", &others)).assert_status(200);
    assert_eq!(upstream.last().fields.one("cookie"), Some(&*others));
}

/// Tokens by all schemes that there are.
fn by_all_schemes(upstream: &Upstream, more: &str) -> Policy {
    guarded(upstream).identity(&[&format!("token: {{ schemes: [bearer, token, basic]{more} }}")])
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

#[test]
fn token_may_come_by_any_scheme_that_the_policy_lists() {
    let upstream = Upstream::start();
    let [stripping, forwarding] =
        ["", ", forward: true"].map(|more| Proxy::start(&by_all_schemes(&upstream, more)));
    let good = token("alice");
    for value in [
        format!("Bearer {good}"),
        format!("token {good}"),
        format!("TOKEN   {good}"),
        basic("x-access-token", &good),
        basic("", &good),
        basic("a", &good).trim_end_matches('=').to_owned(),
        basic("a", &good).replacen("Basic", "basic", 1),
    ] {
        for (proxy, expected) in [(&stripping, None), (&forwarding, Some(value.as_str()))] {
            with(proxy, "/required", value.as_bytes()).assert_status(200);
            let seen = upstream.last().fields;
            assert_eq!(seen.one("x-tollgate-subject"), Some("alice"), "{value}");
            assert_eq!(seen.one("authorization"), expected);
            let (status, _) = over_http2(proxy, "/optional", &[(AUTHORIZATION, value.as_bytes())]);
            assert_eq!((status, upstream.last().fields.one("authorization")), (200, expected));
        }
    }
}

#[test]
fn scheme_that_is_listed_has_one_spelling() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&by_all_schemes(&upstream, ", other_schemes: forward"));
    let no_colon = format!("Basic {}", STANDARD.encode("alice"));
    for value in [
        "token",
        "token\tx",
        "token: x",
        "tokenx",
        "token x y",
        "Basic",
        "Basic ?",
        "Basic YTpi x",
        "Basic\tYTpi",
        &basic("alice", ""),
        &basic("alice", "x y"),
        &no_colon,
    ] {
        for path in ["/required", "/optional"] {
            let refused = with(&proxy, path, value.as_bytes());
            refused.assert_status(400);
            let challenges = refused.fields.all("www-authenticate");
            let token = INVALID_REQUEST.replacen("Bearer", "Token", 1);
            assert_eq!(challenges, [INVALID_REQUEST, &token], "{value}");
        }
    }
    with(&proxy, "/required", basic("alice", "x.y.z").as_bytes()).assert_status(401);
    assert_eq!(upstream.count(), 0);
}

#[test]
fn challenges_name_the_schemes() {
    let upstream = Upstream::start();
    let ours = [REALM, "Token realm=\"tollgate\"", "Basic realm=\"tollgate\", charset=\"UTF-8\""];
    for (schemes, expected) in [
        ("[bearer, token, basic]", &ours[..]),
        ("[token]", &ours[1..2]),
        ("[basic, bearer]", &[ours[2], ours[0]]),
        // A 401 has a challenge.
        ("[]", &ours[..1]),
    ] {
        let policy = guarded(&upstream).identity(&[&format!("token: {{ schemes: {schemes} }}")]);
        let refused = Proxy::start(&policy).get("/required");
        refused.assert_status(401);
        assert_eq!(refused.fields.all("www-authenticate"), expected, "{schemes}");
    }
}

#[test]
fn scheme_that_is_not_listed_is_no_credential() {
    let upstream = Upstream::start();
    let policy = guarded(&upstream).identity(&["token: { schemes: [token] }"]);
    let proxy = Proxy::start(&policy);
    let bearer = format!("Bearer {}", token("alice"));
    for value in [bearer.as_str(), "Bearer: x", "Basic YTpi"] {
        with(&proxy, "/required", value.as_bytes()).assert_status(401);
        with(&proxy, "/optional", value.as_bytes()).assert_status(200);
        let seen = upstream.last().fields;
        assert_eq!((seen.one("authorization"), seen.one("x-tollgate-subject")), (None, None));
    }
    // In a header of its own it may be written as in the other.
    let policy =
        guarded(&upstream).identity(&["token: { schemes: [bearer, token], header: x-token }"]);
    let proxy = Proxy::start(&policy);
    for scheme in ["", "Bearer ", "token "] {
        let value = format!("{scheme}{}", token("alice"));
        proxy.send(get("/required").field("x-token", &value)).assert_status(200);
    }
}

#[test]
fn api_key_may_come_by_a_scheme_too() {
    let upstream = Upstream::start();
    let key = NewKey { id: "robot".into(), owner: Some("acme".into()), ..NewKey::default() };
    let key = key.mint().unwrap();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("keys.yaml");
    fs::write(&file, format!("keys:\n{}\n", key.line)).unwrap();
    let knowing = |schemes: &str, tokens: &str| {
        guarded(&upstream)
            .identity(&[
                &format!("api_keys: {{ file: \"{}\", schemes: {schemes} }}", file.display()),
                &format!("token: {{ schemes: {tokens} }}"),
            ])
            .callers(&[
                "{ name: user, key: jwt.sub }",
                "{ name: machine, key: api_key.owner }",
                "{ name: anonymous, key: client.ip }",
            ])
    };
    for (schemes, tokens, values) in [
        ("[token]", "[bearer]", &[format!("token {}", key.key)][..]),
        (
            "[bearer, token, basic]",
            "[bearer, basic]",
            &[format!("Bearer {}", key.key), format!("token {}", key.key), basic("git", &key.key)],
        ),
    ] {
        let proxy = Proxy::start(&knowing(schemes, tokens));
        for value in values {
            with(&proxy, "/required", value.as_bytes()).assert_status(200);
            let seen = upstream.last().fields;
            assert_eq!(seen.one("x-tollgate-subject"), Some("acme"), "{value}");
            assert_eq!(seen.one("authorization"), None);
            with(&proxy, "/none", value.as_bytes()).assert_status(200);
            assert_eq!(upstream.last().fields.one("authorization"), None, "no key goes on");
        }
        // A token is valid here too, a bad key is refused as a key, and both at once are refused.
        proxy.send(get("/required").by("alice")).assert_status(200);
        assert_eq!(upstream.last().fields.one("x-tollgate-subject"), Some("alice"));
        let unknown = format!("token unknown.{}", "A".repeat(43));
        with(&proxy, "/required", unknown.as_bytes()).assert_status(401);
        let both = get("/required").field("authorization", &values[0]).field("x-api-key", &key.key);
        proxy.send(both).assert_status(400);
        proxy.send(get("/required").field("x-api-key", &key.key)).assert_status(200);
    }
}
