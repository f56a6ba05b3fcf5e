//! A key that an authority publishes, and signs tokens with.

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::{Value, json};
use tollgate_identity::SigningKey;

use super::Authority;

/// Ed25519, with a name.
pub(crate) struct IssuerKey {
    kid: String,
    key: SigningKey,
    jwk: Value,
}

impl IssuerKey {
    /// A new key; two of one name are two keys.
    pub(crate) fn new(kid: &str) -> IssuerKey {
        let (key, pem) = SigningKey::generate_ed25519().unwrap();
        let base64: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        let der = STANDARD.decode(base64).unwrap();
        // The point is what the DER of an Ed25519 key ends with (RFC 8410 section 4).
        let x = URL_SAFE_NO_PAD.encode(&der[der.len() - 32..]);
        let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x, "use": "sig" });
        IssuerKey { kid: kid.to_owned(), key, jwk }
    }

    /// As it is published.
    pub(crate) fn jwk(&self) -> &Value {
        &self.jwk
    }

    /// A token of `sub` from this authority that outlives every test.
    pub(crate) fn token(&self, authority: &Authority, sub: &str) -> String {
        self.token_naming(&self.kid, authority, sub)
    }

    /// The same, which says that a key of this name has signed it.
    pub(crate) fn token_naming(&self, kid: &str, authority: &Authority, sub: &str) -> String {
        let claims = json!({ "iss": authority.issuer(), "aud": "api", "sub": sub, "exp": 4_000_000_000_u64 });
        self.key.sign(Some(kid), claims.as_object().unwrap()).unwrap()
    }
}
