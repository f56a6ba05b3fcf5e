//! Public keys as a JWK Set (RFC 7517), which an issuer publishes, and their thumbprints.

use std::borrow::Cow;

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};
use tollgate_keyword::Keyword;

use super::{Algorithm, KeyError, KeyProblem, der, material::KeyMaterial};

/// A public key as a JWK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicJwk {
    /// The members of the key itself, sorted by name, as its thumbprint requires.
    members: Vec<(&'static str, String)>,
    /// Its algorithm, if it supports only one. RSA keys support several.
    algorithm: Option<Algorithm>,
    /// All algorithms that it supports.
    supported: &'static [Algorithm],
}

impl PublicJwk {
    /// The public keys of a PEM file: `PUBLIC KEY`, `RSA PUBLIC KEY` or `CERTIFICATE`.
    ///
    /// # Errors
    /// The file has no public key, one that cannot be used, or a private key.
    pub fn from_pem(pem: &[u8]) -> Result<Vec<PublicJwk>, KeyError> {
        let materials = super::public_materials(pem)?;
        let keys = materials.iter().map(|key| PublicJwk::of(key).map_err(KeyError::from));
        keys.collect()
    }

    /// From a SubjectPublicKeyInfo, a PKCS#1 key, an uncompressed point, or the bytes of Ed25519.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<PublicJwk, KeyProblem> {
        PublicJwk::of(&KeyMaterial::from_der(bytes)?)
    }

    fn of(key: &KeyMaterial) -> Result<PublicJwk, KeyProblem> {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let members = match key {
            // A secret must never be published.
            //= rfc7517#section-9.2
            //# Private and symmetric keys MUST be protected from disclosure to unintended parties
            KeyMaterial::Secret(_) => return Err(KeyProblem::Private),
            KeyMaterial::Rsa(key) => {
                vec![("e", text(&key.e)), ("kty", "RSA".into()), ("n", text(&key.n))]
            }
            KeyMaterial::P256(key) => elliptic("P-256", key, 32)?,
            KeyMaterial::P384(key) => elliptic("P-384", key, 48)?,
            KeyMaterial::Ed25519(key) => {
                let x = der::public_key_bits(key).unwrap_or(Cow::Borrowed(key));
                vec![("crv", "Ed25519".into()), ("kty", "OKP".into()), ("x", text(&x))]
            }
        };
        let supported = key.algorithms();
        let algorithm = match supported {
            [only] => Some(*only),
            _ => None,
        };
        Ok(PublicJwk { members, algorithm, supported })
    }

    /// Whether this key supports `algorithm`.
    pub fn supports(&self, algorithm: Algorithm) -> bool {
        self.supported.contains(&algorithm)
    }

    /// The `kid` of the key: its SHA-256 thumbprint (RFC 7638), which every implementation computes
    /// alike.
    pub fn thumbprint(&self) -> String {
        // Written without a serializer, since the thumbprint is of exactly these bytes.
        let members = self.members.iter().map(|(name, value)| format!("\"{name}\":\"{value}\""));
        let canonical = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
        URL_SAFE_NO_PAD.encode(digest(&SHA256, canonical.as_bytes()))
    }

    /// The JWK. A key that supports several algorithms gets `named` as its `alg`, if that is one of
    /// them.
    fn to_json(&self, named: Option<Algorithm>) -> Value {
        let named = named.filter(|algorithm| self.supports(*algorithm));
        let mut jwk = Map::new();
        jwk.insert("kid".into(), self.thumbprint().into());
        jwk.insert("use".into(), "sig".into());
        if let Some(algorithm) = self.algorithm.or(named) {
            jwk.insert("alg".into(), algorithm.keyword().into());
        }
        jwk.extend(self.members.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
        Value::Object(jwk)
    }
}

/// The JWK Set of these keys. A key that supports several algorithms gets `named` as its `alg`, if
/// that is one of them.
pub fn jwk_set(keys: &[PublicJwk], named: Option<Algorithm>) -> Value {
    //= rfc7517#section-5
    //# The JSON object MUST have a "keys" member, with its value being an array of JWKs
    json!({ "keys": keys.iter().map(|key| key.to_json(named)).collect::<Vec<_>>() })
}

/// The members of a key on a NIST curve whose coordinates have this length.
fn elliptic(
    curve: &str,
    key: &[u8],
    length: usize,
) -> Result<Vec<(&'static str, String)>, KeyProblem> {
    let point = der::public_key_bits(key).unwrap_or(Cow::Borrowed(key));
    // The uncompressed form of SEC 1 section 2.3.3. No common tool writes the compressed form.
    let coordinates = point.strip_prefix(&[4]).and_then(|both| both.split_at_checked(length));
    let (x, y) = coordinates.ok_or(KeyProblem::Unsupported)?;
    let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    Ok(vec![("crv", curve.into()), ("kty", "EC".into()), ("x", text(x)), ("y", text(y))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeySet, SigningKey, sign::tests::ec_pem};

    #[test]
    fn thumbprints_are_those_of_the_rfcs() {
        let rsa = PublicJwk {
            members: vec![
                ("e", "AQAB".into()),
                ("kty", "RSA".into()),
                (
                    "n",
                    "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw".into(),
                ),
            ],
            algorithm: None,
            supported: &[],
        };
        assert_eq!(rsa.thumbprint(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs", "RFC 7638");
        let point = URL_SAFE_NO_PAD.decode("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo").unwrap();
        let ed25519 = PublicJwk::from_bytes(&point).unwrap();
        assert_eq!(ed25519.thumbprint(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k", "RFC 8037");
    }

    #[test]
    fn published_keys_verify_what_is_signed_under_their_names() {
        let (ed25519, ed25519_pem) = SigningKey::generate_ed25519().unwrap();
        let mut pairs = vec![(ed25519, ed25519_pem)];
        for algorithm in [Algorithm::ES256, Algorithm::ES384] {
            let (private, public) = ec_pem(algorithm);
            pairs.push((SigningKey::from_pem(private.as_bytes(), None).unwrap(), public));
        }
        let all: String = pairs.iter().map(|(_, public)| public.as_str()).collect();
        let keys = PublicJwk::from_pem(all.as_bytes()).unwrap();
        let (set, skipped) =
            KeySet::from_jwks(jwk_set(&keys, None).to_string().as_bytes(), &[], &[]).unwrap();
        assert_eq!((set.len(), skipped), (3, vec![]));
        for ((key, _), published) in pairs.iter().zip(&keys) {
            assert_eq!(key.key_id.as_deref(), Some(published.thumbprint().as_str()));
            assert!(published.supports(key.algorithm));
            assert!(set.has_name(&published.thumbprint()));
        }
    }

    #[test]
    fn private_keys_and_other_files_are_refused() {
        let (private, public) = ec_pem(Algorithm::ES256);
        for (pem, expected) in [
            (private.clone(), KeyError::PrivateKey),
            (public + &private, KeyError::PrivateKey),
            ("nothing".into(), KeyError::NoPemKey),
        ] {
            assert_eq!(PublicJwk::from_pem(pem.as_bytes()), Err(expected));
        }
    }
}
