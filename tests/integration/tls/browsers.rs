//! Responses that move browsers to TLS, and keep them there: redirects and HSTS.

use super::listener;
use crate::support::{Policy, Proxy, Signer, Upstream, dial, get, http2, last_request};

#[test]
fn plain_listener_sends_every_request_to_https() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("1/hour");
    for (redirect, status, location) in [
        ("https", 308, "https://api.example.com/a%20b?c=%2F"),
        ("{ port: 8443, status: 301 }", 301, "https://api.example.com:8443/a%20b?c=%2F"),
        ("{ port: 443 }", 308, "https://api.example.com/a%20b?c=%2F"),
    ] {
        let listener = format!("[{{ address: 127.0.0.1:0, redirect: {redirect} }}]");
        let proxy = Proxy::with_listeners(&listener, "workers: 1", &[&policy]);
        for _ in 0..3 {
            let response = proxy.get("//x/../a%20b?c=%2F");
            response.assert_status(status).assert_field("location", location).assert_no_limit();
            response.assert_no_field("strict-transport-security");
        }
        proxy.send(get("/a%20b?c=%2F").host("API.example.com:80")).assert_status(status);
        let mut client = proxy.connect();
        client.write("GET / HTTP/1.1\r\nhost: a b\r\n\r\n");
        client.read().assert_status(400);
        let mut client = proxy.connect();
        client.write("GET / HTTP/1.0\r\n\r\n");
        client.read().assert_status(400);
        let request = http::Request::get("http://api.example.com/a%20b?c=%2F");
        let [response] = &http2(proxy.address(), vec![request.body(String::new()).unwrap()])[..]
        else {
            panic!("one response");
        };
        assert_eq!(response.headers()["location"], location);
        let log = proxy.into_log();
        assert!(log.contains(&format!(" {status} ")), "{log}");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn every_response_by_tls_says_to_keep_to_it() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nstrict-transport-security: max-age=1\r\n\r\n",
    );
    let signer = Signer::new();
    let pair = signer.sign("api", &["api.example.com"]);
    let tls = listener(&format!("certificates: [{pair}]"));
    let hsts = "hsts: { max_age: 365d, include_subdomains: true, preload: true }";
    let listener = tls.replace("tls:", &format!("{hsts}, tls:"));
    let routes = Policy::before(&upstream).routes(&["{ match: { path: /there } }"]);
    let proxy = Proxy::with_listeners(&listener, "workers: 1", &[&routes]);
    for (target, status) in [("/there", 200), ("/nowhere", 404), ("/%00", 400)] {
        let mut stream = dial(proxy.address(), &signer.client(&[]), "api.example.com").unwrap();
        let answer = last_request(&mut stream, target, "").unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        let fields: Vec<&str> =
            answer.lines().filter(|line| line.starts_with("strict-transport")).collect();
        let expected = "strict-transport-security: max-age=31536000; includeSubDomains; preload";
        assert_eq!(fields, [expected], "{answer}");
    }
}
