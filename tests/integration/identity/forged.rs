//! Headers that identify the caller, forged by a client: a header that one policy sets for an
//! upstream cannot be sent by a client to the same upstream by another policy.

use serde_json::json;

use crate::support::{Client, Policy, Proxy, Request, Upstream, get, http2, token_with};

/// Names that come to `x-user-id` in servers that make variables of headers: all but letters and
/// digits is an underscore there.
const SPELLINGS: [&str; 7] =
    ["x-user-id", "X-User-Id", "x_user_id", "x-user_id", "x.user.id", "x-user~id", "x!user-id"];

/// Two policies before the same upstream, of which only the first sends headers that identify
/// the caller.
fn telling(upstream: &Upstream) -> Policy {
    Policy::before(upstream)
        .hosts("[telling.example.com]")
        .identity(&["forward_claims: { headers: { x-user-id: jwt.sub }, payload: x-claims }"])
}

fn silent(upstream: &Upstream) -> Policy {
    Policy::before(upstream).hosts("[silent.example.com]").routes(&[
        "{ match: { path: /none }, auth: none, limits: [] }",
        "{ match: { path: /set }, limits: [], \
           request_headers: { set: { x-user-id: of the policy } } }",
        "{ match: { path: /** }, auth: optional, limits: [] }",
    ])
}

fn both(upstream: &Upstream) -> Proxy {
    Proxy::with_settings("workers: 1", &[&silent(upstream), &telling(upstream)])
}

/// What the upstream has seen of the names in question.
fn seen(upstream: &Upstream) -> Vec<(String, String)> {
    let fields = upstream.last().fields;
    let is_alike = |name: &String| {
        let folded: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        folded == "x-user-id" || folded == "x-claims"
    };
    let names = fields.names().into_iter().filter(is_alike);
    names.map(|name| (name.clone(), fields.all(&name).join(", "))).collect()
}

fn forged(path: &str, host: &str) -> Request {
    let request = get(path).host(host).field("x-claims", "forged");
    SPELLINGS.iter().fold(request, |request, name| request.field(name, "root"))
}

#[test]
fn headers_of_one_policy_are_taken_out_under_all() {
    let upstream = Upstream::start();
    let proxy = both(&upstream);
    for path in ["/none", "/optional", "/other"] {
        proxy.send(forged(path, "silent.example.com")).assert_status(200);
        assert_eq!(seen(&upstream), [], "{path}");
        let by = forged(path, "silent.example.com").by("alice");
        proxy.send(by).assert_status(200);
        assert_eq!(seen(&upstream), [], "{path}");
    }
    // A header that a policy sets has its own value, and the other policy's has the token's value.
    proxy.send(forged("/set", "silent.example.com")).assert_status(200);
    assert_eq!(seen(&upstream), [("x-user-id".to_owned(), "of the policy".to_owned())]);
    let token = token_with(&json!({ "sub": "alice" }));
    proxy.send(forged("/", "telling.example.com").token(&token)).assert_status(200);
    let sent_headers = seen(&upstream);
    assert_eq!(sent_headers.len(), 2, "{sent_headers:?}");
    assert_eq!(sent_headers[1], ("x-user-id".to_owned(), "alice".to_owned()));
    assert_ne!(sent_headers[0].1, "forged");
}

#[test]
fn headers_of_one_policy_are_taken_out_under_all_over_http2() {
    let upstream = Upstream::start();
    let proxy = both(&upstream);
    for path in ["/none", "/optional"] {
        let request = SPELLINGS.iter().fold(
            http::Request::get(format!("http://silent.example.com{path}")),
            |request, name| request.header(name.to_ascii_lowercase(), "root"),
        );
        let responses = http2(proxy.address(), vec![request.body(String::new()).unwrap()]);
        assert_eq!(responses[0].status(), 200);
        assert_eq!(seen(&upstream), [], "{path}");
    }
}

#[test]
fn request_to_switch_tells_the_upstream_no_more_than_others() {
    let upstream = Upstream::start();
    let proxy = both(&upstream);
    for path in ["/none", "/optional"] {
        let request = forged(path, "silent.example.com")
            .field("connection", "upgrade")
            .field("upgrade", "websocket");
        proxy.send(request).assert_status(200);
        assert_eq!(upstream.last().fields.one("upgrade"), Some("websocket"));
        assert_eq!(seen(&upstream), [], "{path}");
    }
}

/// Sends a body with these trailers.
fn send_with_trailers(client: &mut Client, path: &str, trailers: &[&str]) {
    let fields: String = trailers.iter().map(|name| format!("{name}: root\r\n")).collect();
    client.write(format!(
        "POST {path} HTTP/1.1\r\nhost: silent.example.com\r\ntransfer-encoding: chunked\r\n\
         trailer: {}\r\n\r\n2\r\nhi\r\n0\r\n{fields}\r\n",
        trailers.join(", "),
    ));
    client.read().assert_status(200);
}

#[test]
fn trailers_tell_the_upstream_no_more_than_heads() {
    let upstream = Upstream::start();
    let proxy = both(&upstream);
    let mut client = proxy.connect();
    let names = [&SPELLINGS[..], &["x-claims", "x-sum", "x.forwarded.for"]].concat();
    for path in ["/none", "/optional"] {
        send_with_trailers(&mut client, path, &names);
        assert_eq!(upstream.last().trailers.names(), ["x-sum"], "{path}");
    }
}

#[test]
fn policy_that_a_reload_adds_protects_its_headers_under_the_others() {
    let upstream = Upstream::start();
    let silent = silent(&upstream);
    let telling = telling(&upstream);
    let proxy = Proxy::start(&silent);
    let mut client = proxy.connect();
    let ask = |client: &mut Client| {
        let request = get("/none").host("silent.example.com").field("x-user-id", "anybody");
        client.send(&request).assert_status(200);
        let head = upstream.last().fields.one("x-user-id").map(str::to_owned);
        send_with_trailers(client, "/none", &["x-user-id"]);
        (head, upstream.last().trailers.names().len())
    };
    // For an upstream for which no policy sets it, it is a header like any other.
    assert_eq!(ask(&mut client), (Some("anybody".to_owned()), 1));
    proxy.install(&[&silent, &telling]);
    assert_eq!(ask(&mut client), (None, 0));
    proxy.install(&[&silent]);
    assert_eq!(ask(&mut client), (Some("anybody".to_owned()), 1));
}

#[test]
fn header_of_tokens_goes_on_under_no_other_spelling() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .identity(&["token: { header: x-token, forward: true }"])
        .routes(&["{ match: { path: /none }, auth: none, limits: [] }"]);
    let proxy = Proxy::start(&policy);
    for name in ["x_token", "x.token", "x~token"] {
        proxy.send(get("/none").field(name, "forged")).assert_status(200);
        let names = upstream.last().fields.names();
        assert!(!names.iter().any(|name| name.ends_with("token")), "{names:?}");
    }
}
