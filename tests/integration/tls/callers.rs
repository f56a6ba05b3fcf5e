//! Clients that show certificates of theirs.

use rcgen::SanType;

use super::listener;
use crate::support::{Door, Policy, Proxy, Signer, Upstream, dial, get, last_request, token};

const CALLERS: [&str; 3] = [
    "{ name: machine, key: client_certificate.subject, tier: internal }",
    "{ name: user, key: jwt.sub, tier: jwt.plan }",
    "{ name: anonymous, key: client.ip, tier: anonymous }",
];

const RATES: &str = "rate: { anonymous: 1/hour, internal: 3/hour, default: 9/hour }";

fn proxy(signer: &Signer, upstream: &Upstream, mode: &str, callers: &[&str]) -> Proxy {
    let pair = signer.sign("api", &["api.example.com"]);
    let ca = signer.path("ca.pem");
    let fields =
        format!("certificates: [{pair}], client_ca_file: \"{ca}\", client_certificate: {mode}");
    let policy = Policy::before(upstream).callers(callers).core(RATES);
    Proxy::with_listeners(&listener(&fields), "workers: 1", &[&policy])
}

#[test]
fn certificate_names_the_caller_without_a_token() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let proxy = proxy(&signer, &upstream, "optional", &CALLERS);
    let ask = |config, fields: &str| {
        let mut stream = dial(proxy.address(), &config, "api.example.com").unwrap();
        last_request(&mut stream, "/", fields).unwrap()
    };
    let robot = || signer.client_as(signer.identity("robot", &[]));
    // One caller, whatever certificate it shows of that name.
    for remaining in [2, 1, 0] {
        let answer = ask(robot(), "");
        assert!(answer.contains(&format!("x-ratelimit-remaining: {remaining}\r\n")), "{answer}");
    }
    assert!(ask(robot(), "").starts_with("HTTP/1.1 429 "));
    assert!(!upstream.last().fields.names().contains(&"x-tollgate-subject".to_owned()));
    // Another one is another.
    let other = signer.client_as(signer.identity("other", &[]));
    assert!(ask(other.clone(), "").contains("x-ratelimit-remaining: 2\r\n"));
    // The first rule that resolves wins.
    let with_token = format!("authorization: Bearer {}\r\n", token("alice"));
    assert!(ask(other, &with_token).contains("x-ratelimit-remaining: 1\r\n"));
    // An anonymous client: by address.
    assert!(ask(signer.client(&[]), "").contains("x-ratelimit-limit: 1\r\n"));
    assert!(ask(signer.client(&[]), &with_token).contains("x-ratelimit-limit: 9\r\n"));
}

#[test]
fn token_that_has_the_name_of_a_certificate_is_another_caller() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let callers =
        ["{ name: user, key: jwt.sub }", "{ name: machine, key: client_certificate.san }"];
    let callers = [&callers[..], &["{ name: anonymous, key: client.ip }"]].concat();
    let proxy = proxy(&signer, &upstream, "required", &callers);
    let name = SanType::DnsName("alice".try_into().unwrap());
    let config = signer.client_as(signer.identity("x", &[name]));
    let ask = |fields: &str| {
        let mut stream = dial(proxy.address(), &config, "api.example.com").unwrap();
        last_request(&mut stream, "/", fields).unwrap()
    };
    assert!(ask("").contains("x-ratelimit-remaining: 8\r\n"));
    let with_token = format!("authorization: Bearer {}\r\n", token("alice"));
    assert!(ask(&with_token).contains("x-ratelimit-remaining: 8\r\n"));
    assert!(ask("").contains("x-ratelimit-remaining: 7\r\n"));
}

/// Without any issuer a certificate is the one credential that there is.
#[test]
fn certificate_is_the_credential_where_the_policy_knows_no_token() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let pair = signer.sign("api", &["api.example.com"]);
    let ca = signer.path("ca.pem");
    let fields =
        format!("certificates: [{pair}], client_ca_file: \"{ca}\", client_certificate: optional");
    let policy = Policy::before(&upstream)
        .issuers(&[])
        .callers(&["{ name: machine, key: client_certificate.subject }"])
        .limits(&["core: { per: caller, rate: 2/hour }"])
        .routes(&["{ match: { path: /** }, auth: required, limits: [core] }"]);
    let proxy = Proxy::with_listeners(&listener(&fields), Door::LISTENERS, &[&policy]);
    let ask = |config| {
        let mut stream = dial(proxy.address(), &config, "api.example.com").unwrap();
        last_request(&mut stream, "/", "").unwrap()
    };
    for status in [200, 200, 429] {
        let answer = ask(signer.client_as(signer.identity("robot", &[])));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    assert!(ask(signer.client(&[])).starts_with("HTTP/1.1 401 "));
    // A proxy that asks shows no certificate of its client.
    for door in Door::ASKERS {
        assert_eq!(door.judge(&proxy, &get("/"), "203.0.113.1").status, 401, "{door:?}");
    }
}

#[test]
fn only_certificates_of_the_authority_are_taken() {
    let signer = Signer::new();
    let stranger = Signer::new();
    let upstream = Upstream::start();
    for (mode, may_have_none) in [("optional", true), ("required", false)] {
        let proxy = proxy(&signer, &upstream, mode, &CALLERS);
        let passes = |config| {
            let answer = dial(proxy.address(), &config, "api.example.com")
                .and_then(|mut stream| last_request(&mut stream, "/", ""));
            answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 "))
        };
        assert!(passes(signer.client_as(signer.identity("robot", &[]))));
        assert!(!passes(signer.client_as(stranger.identity("robot", &[]))));
        assert_eq!(passes(signer.client(&[])), may_have_none, "{mode}");
    }
}
