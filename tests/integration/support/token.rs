//! Tokens of an issuer that the policies of tests know.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};
use tollgate_identity::{Algorithm, SigningKey};

/// The `iss` of all tokens.
pub(crate) const ISSUER: &str = "https://id.example.com/";

/// What they are signed with: HS256.
pub(crate) const SECRET: &str = "a secret that all tests share, and no others";

/// A token of `sub` that outlives every test.
pub(crate) fn token(sub: &str) -> String {
    token_with(&json!({ "sub": sub }))
}

/// A token with these claims beside `iss`, `aud` and `exp`, or in place of them.
pub(crate) fn token_with(claims: &Value) -> String {
    token_signed_by(SECRET, claims)
}

/// Like [`token_with`], signed with another secret.
pub(crate) fn token_signed_by(secret: &str, claims: &Value) -> String {
    let key = SigningKey::from_secret(secret.as_bytes(), Algorithm::HS256).unwrap();
    key.sign(None, &with_defaults(claims)).unwrap()
}

/// A token that says of itself that it needs no signature.
pub(crate) fn unsigned_token(sub: &str) -> String {
    let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = with_defaults(&json!({ "sub": sub }));
    format!("{}.{}.", encode(json!({ "alg": "none" })), encode(claims.into()))
}

fn with_defaults(claims: &Value) -> Map<String, Value> {
    let defaults = json!({ "iss": ISSUER, "aud": "api", "exp": 4_000_000_000_u64 });
    let mut all = defaults.as_object().unwrap().clone();
    all.extend(claims.as_object().unwrap().clone());
    all
}
