//! The rotation drill: a whole proxy, and an issuer that changes its keys.

use crate::support::{
    Answer, Authority, HOUR, IssuerKey, JWKS, METADATA, MINUTE, Policy, Proxy, Response, SECOND,
    Upstream, eventually, get,
};

/// A proxy that takes tokens of this authority, with keys that are good for ten minutes.
fn proxy(authority: &Authority, upstream: &Upstream) -> Proxy {
    Proxy::start(&policy(authority, upstream, "max_stale: 1h"))
}

/// Its policy, with more about how keys are fetched.
fn policy(authority: &Authority, upstream: &Upstream, fields: &str) -> Policy {
    let issuer = format!(
        "{{ issuer: \"{}\", audience: [api], jwks_url: \"{}\", cache: 10m, {fields} }}",
        authority.issuer(),
        authority.url(JWKS),
    );
    Policy::before(upstream).issuers(&[&issuer])
}

fn send(proxy: &Proxy, token: &str) -> Response {
    proxy.send(get("/").token(token))
}

#[test]
fn new_key_is_accepted_within_one_refresh_and_a_removed_one_refused_at_expiry() {
    let authority = Authority::start();
    let upstream = Upstream::start();
    let old = IssuerKey::new("old");
    let new = IssuerKey::new("new");
    authority.publish(&[&old]);
    let proxy = proxy(&authority, &upstream);
    let by_old = old.token(&authority, "alice");
    let by_new = new.token(&authority, "alice");
    send(&proxy, &by_old).assert_status(200);
    authority.publish(&[&new]);
    proxy.advance(30 * SECOND);
    send(&proxy, &by_new).assert_status(200);
    // The key that vouched for it is gone, though the token is known.
    send(&proxy, &by_old).assert_status(401);
}

#[test]
fn expired_keys_are_refused_though_no_others_are_requested() {
    let authority = Authority::start();
    let upstream = Upstream::start();
    let old = IssuerKey::new("old");
    let new = IssuerKey::new("new");
    authority.publish(&[&old, &new]);
    let proxy = proxy(&authority, &upstream);
    let by_old = old.token(&authority, "alice");
    send(&proxy, &by_old).assert_status(200);
    authority.publish(&[&new]);
    proxy.advance(9 * MINUTE);
    let is_refused = || (send(&proxy, &by_old).status == 401).then_some(());
    eventually("the removed key is refused", is_refused);
}

/// An issuer that was there when the proxy fetched its keys and is down now, with a token of it
/// that the proxy knows.
fn fallen(upstream: &Upstream) -> (Authority, IssuerKey, Proxy, String) {
    let authority = Authority::start();
    let key = IssuerKey::new("a");
    authority.publish(&[&key]);
    let proxy = proxy(&authority, upstream);
    let known = key.token(&authority, "alice");
    send(&proxy, &known).assert_status(200);
    authority.answer(JWKS, Answer::Close);
    (authority, key, proxy, known)
}

#[test]
fn issuer_that_is_down_for_an_hour_locks_no_caller_out() {
    let upstream = Upstream::start();
    let (authority, key, proxy, known) = fallen(&upstream);
    proxy.advance(HOUR);
    send(&proxy, &known).assert_status(200);
    send(&proxy, &key.token(&authority, "bob")).assert_status(200);
    proxy.advance(11 * MINUTE);
    send(&proxy, &known).assert_status(503);
    send(&proxy, &key.token(&authority, "carol")).assert_status(503);
    authority.answer_as_usual(JWKS);
    proxy.advance(MINUTE);
    let is_back = || (send(&proxy, &known).status == 200).then_some(());
    eventually("the issuer is back", is_back);
}

#[test]
fn edited_policy_locks_no_caller_out_while_the_issuer_is_down() {
    let upstream = Upstream::start();
    let (authority, key, proxy, known) = fallen(&upstream);
    proxy.install(&[&policy(&authority, &upstream, "max_stale: 1h, cooldown: 5s, timeout: 9s")]);
    send(&proxy, &known).assert_status(200);
    send(&proxy, &key.token(&authority, "bob")).assert_status(200);
    proxy.advance(HOUR + 11 * MINUTE);
    send(&proxy, &known).assert_status(503);
}

#[test]
fn issuer_that_never_answered_is_no_fault_of_the_client() {
    let authority = Authority::start();
    let upstream = Upstream::start();
    let key = IssuerKey::new("a");
    authority.answer(JWKS, Answer::Status(500));
    let proxy = proxy(&authority, &upstream);
    send(&proxy, &key.token(&authority, "alice")).assert_status(503);
}

#[test]
fn keys_are_found_by_discovery_over_tls() {
    let authority = Authority::start_tls();
    let upstream = Upstream::start();
    let key = IssuerKey::new("a");
    authority.publish(&[&key]);
    let issuer = format!(
        "{{ issuer: \"{}\", audience: [api], discover: true, ca_file: \"{}\" }}",
        authority.issuer(),
        authority.ca_file(),
    );
    let proxy = Proxy::start(&Policy::before(&upstream).issuers(&[&issuer]));
    send(&proxy, &key.token(&authority, "alice")).assert_status(200);
    assert_eq!((authority.count(METADATA), authority.count(JWKS)), (1, 1));
}

#[test]
fn ten_thousand_made_up_keys_in_a_minute_cost_two_fetches() {
    let authority = Authority::start();
    let upstream = Upstream::start();
    let key = IssuerKey::new("a");
    let forged = IssuerKey::new("b");
    authority.publish(&[&key]);
    let proxy = proxy(&authority, &upstream);
    send(&proxy, &key.token(&authority, "alice")).assert_status(200);
    let mut client = proxy.connect();
    for number in 0..10_000 {
        let token = forged.token_naming(&format!("k{number}"), &authority, "mallory");
        client.send(&get("/").token(&token)).assert_status(401);
        proxy.advance(MINUTE / 10_000);
    }
    assert_eq!(authority.count(JWKS), 2);
}
