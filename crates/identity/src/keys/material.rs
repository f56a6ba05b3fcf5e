//! The bytes of a key, checked, before one algorithm is chosen for it.
//!
//! Every check is made here, when the key is loaded, so that no key fails only at the first token.

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    rsa,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey,
        RsaPublicKeyComponents,
    },
};
use jsonwebtoken::DecodingKey;

use super::{Algorithm, KeyProblem};

/// A secret or a public key that has passed every check and has no algorithm yet.
pub(super) enum KeyMaterial {
    Secret(Vec<u8>),
    /// Modulus and exponent. `jsonwebtoken` builds its key from them for each token, and would
    /// parse and check DER again each time.
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    /// A SubjectPublicKeyInfo or an uncompressed point: AWS-LC reads both.
    P256(Vec<u8>),
    P384(Vec<u8>),
    /// A SubjectPublicKeyInfo or the 32 bytes of the point.
    Ed25519(Vec<u8>),
}

impl KeyMaterial {
    /// A SubjectPublicKeyInfo or a PKCS#1 RSAPublicKey.
    pub(super) fn from_der(der: &[u8]) -> Result<KeyMaterial, KeyProblem> {
        if let Ok(key) = rsa::PublicKey::from_der(der) {
            let components = RsaPublicKeyComponents::<Vec<u8>>::from(&key);
            check_rsa_size(&components)?;
            return Ok(KeyMaterial::Rsa(components));
        }
        KeyMaterial::p256(der.to_vec())
            .or_else(|_| KeyMaterial::p384(der.to_vec()))
            .or_else(|_| KeyMaterial::ed25519(der.to_vec()))
            .map_err(|problem| match problem {
                KeyProblem::WeakPoint => problem,
                _ => KeyProblem::Unsupported,
            })
    }

    /// The big-endian modulus and exponent of an RSA key.
    pub(super) fn rsa(modulus: &[u8], exponent: &[u8]) -> Result<KeyMaterial, KeyProblem> {
        let components = RsaPublicKeyComponents {
            n: without_leading_zeros(modulus),
            e: without_leading_zeros(exponent),
        };
        check_rsa_size(&components)?;
        // Only the DER parser of AWS-LC checks exponent and modulus against each other.
        let der: PublicKeyX509Der<'_> = components.as_der().map_err(|_| KeyProblem::RsaNumbers)?;
        KeyMaterial::from_der(der.as_ref()).map_err(|_| KeyProblem::RsaNumbers)
    }

    pub(super) fn p256(point: Vec<u8>) -> Result<KeyMaterial, KeyProblem> {
        ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &point)
            .map_err(|_| KeyProblem::NotOnCurve)?;
        Ok(KeyMaterial::P256(point))
    }

    pub(super) fn p384(point: Vec<u8>) -> Result<KeyMaterial, KeyProblem> {
        ParsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, &point)
            .map_err(|_| KeyProblem::NotOnCurve)?;
        Ok(KeyMaterial::P384(point))
    }

    pub(super) fn ed25519(point: Vec<u8>) -> Result<KeyMaterial, KeyProblem> {
        ParsedPublicKey::new(&ED25519, &point).map_err(|_| KeyProblem::NotOnCurve)?;
        if point.last_chunk().is_some_and(is_small_order) {
            return Err(KeyProblem::WeakPoint);
        }
        Ok(KeyMaterial::Ed25519(point))
    }

    /// The algorithms that this key supports, the default first.
    pub(super) fn algorithms(&self) -> &'static [Algorithm] {
        match self {
            KeyMaterial::Secret(_) => &[Algorithm::HS256, Algorithm::HS384, Algorithm::HS512],
            KeyMaterial::Rsa(_) => &[
                Algorithm::RS256,
                Algorithm::RS384,
                Algorithm::RS512,
                Algorithm::PS256,
                Algorithm::PS384,
                Algorithm::PS512,
            ],
            KeyMaterial::P256(_) => &[Algorithm::ES256],
            KeyMaterial::P384(_) => &[Algorithm::ES384],
            KeyMaterial::Ed25519(_) => &[Algorithm::EdDSA],
        }
    }

    /// The one algorithm of this key (RFC 8725 section 3.1): the one that its JWK names, or else
    /// the only allowed one that it supports, or else the default.
    pub(super) fn choose_algorithm(
        &self,
        named: Option<Algorithm>,
        allowed: &[Algorithm],
    ) -> Result<Algorithm, KeyProblem> {
        let supported = self.algorithms();
        let is_secret = matches!(self, KeyMaterial::Secret(_));
        let algorithm = match named {
            Some(named) if !supported.contains(&named) => return Err(KeyProblem::WrongAlgorithm),
            // A published set must not be able to add a secret, so a secret needs an explicit HS*.
            _ if is_secret && allowed.is_empty() => return Err(KeyProblem::NotAllowed),
            Some(named) if allowed.is_empty() || allowed.contains(&named) => named,
            Some(_) => return Err(KeyProblem::NotAllowed),
            None => {
                let mut candidates = supported.iter().filter(|a| allowed.contains(a));
                match (candidates.next(), candidates.next()) {
                    (Some(only), None) => *only,
                    (Some(_), Some(_)) => return Err(KeyProblem::Ambiguous),
                    (None, _) if !allowed.is_empty() => return Err(KeyProblem::NotAllowed),
                    (None, _) => *supported.first().ok_or(KeyProblem::NotAllowed)?,
                }
            }
        };
        match (self, algorithm.min_secret_bytes()) {
            (KeyMaterial::Secret(secret), Some(min)) if secret.len() < min => {
                Err(KeyProblem::ShortSecret { algorithm, min })
            }
            _ => Ok(algorithm),
        }
    }

    /// The key in the form of `jsonwebtoken`.
    pub(super) fn into_decoding_key(self) -> DecodingKey {
        match self {
            KeyMaterial::Secret(secret) => DecodingKey::from_secret(&secret),
            KeyMaterial::Rsa(key) => DecodingKey::from_rsa_raw_components(&key.n, &key.e),
            KeyMaterial::P256(point) | KeyMaterial::P384(point) => DecodingKey::from_ec_der(&point),
            KeyMaterial::Ed25519(point) => DecodingKey::from_ed_der(&point),
        }
    }
}

/// RFC 7518 section 6.3.1.1 forbids leading zeros and notes that some implementations write them.
fn without_leading_zeros(number: &[u8]) -> Vec<u8> {
    number.iter().copied().skip_while(|&byte| byte == 0).collect()
}

fn check_rsa_size(key: &RsaPublicKeyComponents<Vec<u8>>) -> Result<(), KeyProblem> {
    let leading = key.n.first().map_or(0, |byte| byte.leading_zeros() as usize);
    let bits = key.n.len() * 8 - leading;
    if !(2048..=8192).contains(&bits) {
        return Err(KeyProblem::RsaSize { bits });
    }
    let is_odd = |number: &[u8]| number.last().is_some_and(|byte| byte & 1 == 1);
    if !is_odd(&key.n) || !is_odd(&key.e) || key.e == [1] {
        return Err(KeyProblem::RsaNumbers);
    }
    Ok(())
}

/// Whether a point of edwards25519 has an order of 8 or less. Signatures for such a point can be
/// made without a private key. 32 zero bytes, a likely placeholder, are one of them.
fn is_small_order(point: &[u8; 32]) -> bool {
    // The y coordinates of these points, and the unreduced forms of two.
    const Y: [[u8; 32]; 7] = [
        extreme_y(0x00, 0x00, 0x00),
        extreme_y(0x01, 0x00, 0x00),
        extreme_y(0xec, 0xff, 0x7f),
        extreme_y(0xed, 0xff, 0x7f),
        extreme_y(0xee, 0xff, 0x7f),
        [
            0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef,
            0x98, 0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88,
            0x6d, 0x53, 0xfc, 0x05,
        ],
        [
            0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10,
            0x67, 0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77,
            0x92, 0xac, 0x03, 0x7a,
        ],
    ];
    // The top bit is the sign of x.
    let mut y = *point;
    let [.., last] = &mut y;
    *last &= 0x7f;
    Y.contains(&y)
}

const fn extreme_y(first: u8, middle: u8, last: u8) -> [u8; 32] {
    let mut bytes = [middle; 32];
    [bytes[0], bytes[31]] = [first, last];
    bytes
}
