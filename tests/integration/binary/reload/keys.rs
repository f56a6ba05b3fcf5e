//! Files that a policy names, changed alone.

use std::fs;

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::json;
use tollgate_identity::SigningKey;

use super::{EVENTS, Served, folder};
use crate::{
    binary::send,
    support::{Authority, ISSUER, IssuerKey, JWKS, Upstream, eventually, get, token_signed_by},
};

#[test]
fn changed_secret_ends_the_old_tokens() {
    const OTHER: &str = "another secret, and as long as it has to be";
    let upstream = Upstream::start();
    let served = Served::start(&upstream, EVENTS);
    let new = token_signed_by(OTHER, &json!({ "sub": "42" }));
    let status = |token: &str| send(served.address, get("/").token(token)).status;
    assert_eq!((status(&served.token), status(&new)), (200, 401));
    served.folder.write("secret", OTHER);
    eventually("the new secret is known", || (status(&new) == 200).then_some(()));
    assert_eq!(status(&served.token), 401);
}

/// A key set with the public half of a key that is called so.
fn key_set(id: &str, pem: &str) -> String {
    let base64: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let der = STANDARD.decode(base64).unwrap();
    let x = URL_SAFE_NO_PAD.encode(&der[der.len() - 32..]);
    let key =
        json!({ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": id, "x": x });
    json!({ "keys": [key] }).to_string()
}

#[test]
fn changed_key_set_ends_the_tokens_of_keys_that_are_gone() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, EVENTS);
    let [(old, old_pem), (new, new_pem)] =
        [(); 2].map(|()| SigningKey::generate_ed25519().unwrap());
    folder.write("keys.json", &key_set("old", &old_pem));
    let file = folder.path().join("policies/api.yaml");
    let policy = fs::read_to_string(&file).unwrap();
    let policy = policy
        .replace("HS256", "EdDSA")
        .replace("secret_file: ../secret", "jwks_file: ../keys.json");
    fs::write(file, policy).unwrap();
    let claims = json!({ "iss": ISSUER, "aud": "api", "sub": "42", "exp": 4_000_000_000_u64 });
    let claims = claims.as_object().unwrap();
    let old = old.sign(Some("old"), claims).unwrap();
    let new = new.sign(Some("new"), claims).unwrap();
    let served = Served::from(folder);
    let status = |token: &str| send(served.address, get("/").token(token)).status;
    assert_eq!((status(&old), status(&new)), (200, 401));
    served.folder.write("keys.json", &key_set("new", &new_pem));
    eventually("the new key is known", || (status(&new) == 200).then_some(()));
    assert_eq!(status(&old), 401);
}

#[test]
fn changed_authorities_are_those_that_vouch_for_the_issuer() {
    let upstream = Upstream::start();
    let issuer = Authority::start_tls();
    let stranger = Authority::start_tls();
    let key = IssuerKey::new("a");
    issuer.publish(&[&key]);
    let folder = folder(&upstream, EVENTS);
    let certificates = |authority: &Authority| fs::read_to_string(authority.ca_file()).unwrap();
    folder.write("ca.pem", &certificates(&stranger));
    let file = folder.path().join("policies/api.yaml");
    let policy = fs::read_to_string(&file).unwrap();
    let policy = policy.replace(ISSUER, &issuer.issuer()).replace("HS256", "EdDSA").replace(
        "secret_file: ../secret",
        &format!("jwks_url: \"{}\"\n      ca_file: ../ca.pem", issuer.url(JWKS)),
    );
    fs::write(file, policy).unwrap();
    let served = Served::from(folder);
    let token = key.token(&issuer, "42");
    let status = || send(served.address, get("/").token(&token)).status;
    assert_eq!(status(), 503);
    served.folder.write("ca.pem", &certificates(&issuer));
    eventually("the issuer is believed", || (status() == 200).then_some(()));
}
