//! Signs tokens, for `tollgate token` and the demo. The proxy itself never signs.

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    error::Unspecified,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RsaKeyPair,
    },
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::EncodingKey;
use serde_json::{Map, Value, json};
use thiserror::Error;
use tollgate_keyword::Keyword;

use super::keys::{Algorithm, KeyError, KeySet, PublicJwk, der, pem};

/// A secret or private key, and the algorithm it signs with.
#[derive(Clone, Debug)]
pub struct SigningKey {
    pub(super) algorithm: Algorithm,
    key: EncodingKey,
    /// The `kid` of its public key in a JWK Set: the thumbprint (RFC 7638). None for a secret.
    pub key_id: Option<String>,
}

/// The members of a token's header besides the algorithm.
#[derive(Clone, Copy, Debug)]
pub struct TokenHeader<'h> {
    /// The id of the key.
    pub kid: Option<&'h str>,
    /// The type of the token.
    pub typ: &'h str,
}

/// Why a token could not be signed.
#[derive(Debug, Error)]
pub enum SignError {
    /// The secret is too short, or not a secret.
    #[error(transparent)]
    Secret(#[from] KeyError),
    /// No private key of a supported kind.
    #[error(
        "no private key found: expected a PEM block PRIVATE KEY, EC PRIVATE KEY or RSA PRIVATE \
         KEY, not encrypted, with RSA of 2048 bits or more, P-256, P-384 or Ed25519"
    )]
    NoPrivateKey,
    /// The key is of another kind.
    #[error("this kind of key cannot sign with {0}: name another algorithm, or none")]
    WrongAlgorithm(Algorithm),
    /// The cryptographic library refused.
    #[error("signing failed")]
    Failed(#[source] jsonwebtoken::errors::Error),
    /// No key could be generated.
    #[error("generating a key failed")]
    Generate(#[from] Unspecified),
}

impl SigningKey {
    /// A shared secret that [`KeySet::from_secret`] accepts too.
    pub fn from_secret(secret: &[u8], algorithm: Algorithm) -> Result<SigningKey, SignError> {
        KeySet::from_secret(secret, &[algorithm])?;
        Ok(SigningKey { algorithm, key: EncodingKey::from_secret(secret), key_id: None })
    }

    /// The first private key in a PEM file: PKCS#8, SEC 1 or PKCS#1. Without `algorithm`, an RSA
    /// key signs with RS256; other keys have only one algorithm.
    pub fn from_pem(pem: &[u8], algorithm: Option<Algorithm>) -> Result<SigningKey, SignError> {
        let blocks = pem::blocks(pem).ok_or(SignError::NoPrivateKey)?;
        let kinds = ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"];
        let block = blocks.iter().find(|block| kinds.contains(&block.label));
        let PrivateKey { key, public, supported } =
            private_key(&block.ok_or(SignError::NoPrivateKey)?.der)?;
        let key_id = Some(PublicJwk::from_bytes(&public).map_err(KeyError::from)?.thumbprint());
        match (algorithm, supported) {
            (Some(algorithm), _) if !supported.contains(&algorithm) => {
                Err(SignError::WrongAlgorithm(algorithm))
            }
            (Some(algorithm), _) | (None, &[algorithm, ..]) => {
                Ok(SigningKey { algorithm, key, key_id })
            }
            (None, []) => Err(SignError::NoPrivateKey),
        }
    }

    /// A new Ed25519 key, and its public key in PEM for [`KeySet::from_pem`].
    pub fn generate_ed25519() -> Result<(SigningKey, String), SignError> {
        let pair = Ed25519KeyPair::generate()?;
        let public: PublicKeyX509Der<'_> = pair.public_key().as_der()?;
        let key = EncodingKey::from_ed_der(pair.to_pkcs8v1()?.as_ref());
        let key_id = PublicJwk::from_bytes(public.as_ref()).map_err(KeyError::from)?.thumbprint();
        let public = pem::encode("PUBLIC KEY", public.as_ref());
        Ok((SigningKey { algorithm: Algorithm::EdDSA, key, key_id: Some(key_id) }, public))
    }

    /// A compact token with these claims.
    pub fn sign(
        &self,
        kid: Option<&str>,
        claims: &Map<String, Value>,
    ) -> Result<String, SignError> {
        //= rfc7519#section-5.1
        //# it is RECOMMENDED that "JWT" always be spelled using uppercase characters
        self.sign_with(TokenHeader { kid, typ: "JWT" }, claims)
    }

    /// A compact token with this header and these claims.
    pub fn sign_with(
        &self,
        header: TokenHeader<'_>,
        claims: &Map<String, Value>,
    ) -> Result<String, SignError> {
        let TokenHeader { kid, typ } = header;
        let mut header = json!({ "alg": self.algorithm.keyword(), "typ": typ });
        if let (Some(kid), Some(members)) = (kid, header.as_object_mut()) {
            members.insert("kid".to_owned(), kid.into());
        }
        let claims = Value::Object(claims.clone());
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    /// Signs any two texts, so that tests can sign malformed tokens.
    pub(super) fn sign_text(&self, header: &str, claims: &str) -> Result<String, SignError> {
        let encode = |text| URL_SAFE_NO_PAD.encode(text);
        self.sign_message(&format!("{}.{}", encode(header), encode(claims)))
    }

    /// Adds the signature of a text to it.
    pub(super) fn sign_message(&self, message: &str) -> Result<String, SignError> {
        let algorithm = self.algorithm.to_jsonwebtoken();
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &self.key, algorithm)
            .map_err(SignError::Failed)?;
        Ok(format!("{message}.{signature}"))
    }
}

/// A private key.
struct PrivateKey {
    /// In the form that `jsonwebtoken` reads.
    key: EncodingKey,
    /// Its public key: a point, or an RSAPublicKey.
    public: Vec<u8>,
    /// The algorithms that it can sign with.
    supported: &'static [Algorithm],
}

fn private_key(der: &[u8]) -> Result<PrivateKey, SignError> {
    const RSA: &[Algorithm] = &[
        Algorithm::RS256,
        Algorithm::RS384,
        Algorithm::RS512,
        Algorithm::PS256,
        Algorithm::PS384,
        Algorithm::PS512,
    ];
    let curves: [(&EcdsaSigningAlgorithm, &[Algorithm]); 2] = [
        (&ECDSA_P256_SHA256_FIXED_SIGNING, &[Algorithm::ES256]),
        (&ECDSA_P384_SHA384_FIXED_SIGNING, &[Algorithm::ES384]),
    ];
    for (curve, algorithms) in curves {
        // AWS-LC reads SEC 1 as well, and `jsonwebtoken` only PKCS#8.
        if let Ok(pair) = EcdsaKeyPair::from_private_key_der(curve, der) {
            let key = EncodingKey::from_ec_der(pair.to_pkcs8v1()?.as_ref());
            let public = pair.public_key().as_ref().to_vec();
            return Ok(PrivateKey { key, public, supported: algorithms });
        }
    }
    if let Ok(pair) = Ed25519KeyPair::from_pkcs8(der) {
        let key = EncodingKey::from_ed_der(pair.to_pkcs8v1()?.as_ref());
        let public = pair.public_key().as_ref().to_vec();
        return Ok(PrivateKey { key, public, supported: &[Algorithm::EdDSA] });
    }
    // For RSA `jsonwebtoken` reads only PKCS#1, which PKCS#8 contains.
    let der = der::pkcs8_private_key(der).unwrap_or(der);
    let pair = RsaKeyPair::from_der(der).map_err(|_| SignError::NoPrivateKey)?;
    let public = pair.public_key().as_ref().to_vec();
    Ok(PrivateKey { key: EncodingKey::from_rsa_der(der), public, supported: RSA })
}

#[cfg(test)]
pub(crate) mod tests {
    use tollgate_clock::Timestamp;

    use super::*;
    use crate::{
        Issuer,
        jwt::tests::{issuer, verify},
    };

    /// A new key of a NIST curve: PKCS#8 and the public key, in PEM.
    pub(crate) fn ec_pem(algorithm: Algorithm) -> (String, String) {
        let curve = match algorithm {
            Algorithm::ES384 => &ECDSA_P384_SHA384_FIXED_SIGNING,
            _ => &ECDSA_P256_SHA256_FIXED_SIGNING,
        };
        let pair = EcdsaKeyPair::generate(curve).unwrap();
        let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
        let private = pem::encode("PRIVATE KEY", pair.to_pkcs8v1().unwrap().as_ref());
        (private, pem::encode("PUBLIC KEY", public.as_ref()))
    }

    /// Whether `keys` verify what `key` signs.
    fn is_verified(key: &SigningKey, keys: KeySet) -> bool {
        let issuer = issuer("demo", keys);
        let issuer = Issuer { types: vec!["JWT".into()], ..issuer };
        let claims = json!({ "iss": "demo", "sub": "alice", "exp": 10 });
        let token = key.sign(Some("k"), claims.as_object().unwrap()).unwrap();
        verify(token.as_bytes(), &[issuer], Timestamp::from_secs(1)).is_ok()
    }

    #[test]
    fn signed_token_is_verified() {
        let (key, public) = SigningKey::generate_ed25519().unwrap();
        assert!(is_verified(&key, KeySet::from_pem(public.as_bytes(), &[]).unwrap()));
        let secret = [1; 64];
        for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
            let key = SigningKey::from_secret(&secret, algorithm).unwrap();
            assert!(is_verified(&key, KeySet::from_secret(&secret, &[algorithm]).unwrap()));
        }
    }

    #[test]
    fn private_keys_are_read_in_every_common_form() {
        for algorithm in [Algorithm::ES256, Algorithm::ES384] {
            let (pkcs8, public) = ec_pem(algorithm);
            let der = pem::blocks(pkcs8.as_bytes()).unwrap().remove(0).der;
            let sec1 = pem::encode("EC PRIVATE KEY", der::pkcs8_private_key(&der).unwrap());
            // OpenSSL writes the parameters of the curve before the key.
            let both = pem::encode("EC PARAMETERS", &[5, 0]) + &sec1;
            for private in [pkcs8, sec1, both] {
                let key = SigningKey::from_pem(private.as_bytes(), None).unwrap();
                assert_eq!(key.algorithm, algorithm, "{private}");
                assert!(is_verified(&key, KeySet::from_pem(public.as_bytes(), &[]).unwrap()));
            }
        }
        let pair = RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
        let public = pem::encode("RSA PUBLIC KEY", pair.public_key().as_ref());
        let pkcs8: aws_lc_rs::encoding::Pkcs8V1Der<'_> = pair.as_der().unwrap();
        let pkcs1 = der::pkcs8_private_key(pkcs8.as_ref()).unwrap();
        for private in
            [pem::encode("PRIVATE KEY", pkcs8.as_ref()), pem::encode("RSA PRIVATE KEY", pkcs1)]
        {
            for algorithm in [None, Some(Algorithm::PS384)] {
                let key = SigningKey::from_pem(private.as_bytes(), algorithm).unwrap();
                let allowed = [key.algorithm];
                let keys = KeySet::from_pem(public.as_bytes(), &allowed).unwrap();
                assert!(is_verified(&key, keys), "{allowed:?}");
            }
        }
    }

    #[test]
    fn keys_that_cannot_sign_are_refused() {
        let (private, public) = ec_pem(Algorithm::ES256);
        assert!(matches!(
            SigningKey::from_pem(private.as_bytes(), Some(Algorithm::RS256)),
            Err(SignError::WrongAlgorithm(Algorithm::RS256))
        ));
        for pem in
            [public.as_str(), "", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"]
        {
            let result = SigningKey::from_pem(pem.as_bytes(), None);
            assert!(matches!(result, Err(SignError::NoPrivateKey)), "{pem}");
        }
        for (secret, algorithm) in
            [(0, Algorithm::HS256), (31, Algorithm::HS256), (64, Algorithm::RS256)]
        {
            let result = SigningKey::from_secret(&vec![1; secret], algorithm);
            assert!(matches!(result, Err(SignError::Secret(_))), "{secret} bytes, {algorithm}");
        }
    }

    #[test]
    fn a_signing_key_does_not_print_itself() {
        let key = SigningKey::from_secret(&[b'x'; 32], Algorithm::HS256).unwrap();
        assert!(!format!("{key:?}").contains("xxx") && !format!("{key:?}").contains("120"));
    }
}
