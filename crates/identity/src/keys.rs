//! Keys that verify tokens: a [`KeySet`] from a secret, a PEM file or a JWKS.
//!
//! Each key has exactly one algorithm, and a set has either only secrets or only public keys. So no
//! token header can make a public key serve as a shared secret.

mod algorithm;
pub(super) mod der;
mod jwk;
mod material;
pub(super) mod pem;
mod publish;
mod remote;
#[cfg(test)]
mod tests;

use std::fmt;

use jsonwebtoken::DecodingKey;
use thiserror::Error;

use self::material::KeyMaterial;
pub(super) use self::remote::KeysVersion;
pub use self::{
    algorithm::Algorithm,
    publish::{PublicJwk, jwk_set},
    remote::{KeyLocation, KeyRing, RemoteKeys, RemoteSpec, RemoteStatus},
};
use crate::lenient::Deviation;

/// How long a `kid` may be, in a token's header and in a JWKS.
pub(super) const MAX_KID_BYTES: usize = 128;
/// How many keys a JWKS may have.
pub(super) const MAX_KEYS: usize = 100;
/// How many keys a token without `kid` is tried with.
const MAX_CANDIDATES: usize = 4;
/// How large a JWKS or a PEM file may be.
pub(super) const MAX_KEY_FILE_BYTES: usize = 256 * 1024;

/// The keys of one issuer: at least one, unless it is [`empty`](KeySet::empty).
#[derive(Clone, Debug)]
pub struct KeySet {
    keys: Vec<Key>,
    /// The algorithms that a token's header may name.
    allowed: Vec<Algorithm>,
}

/// A key and the only algorithm it is used with.
#[derive(Clone)]
pub(super) struct Key {
    kid: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
}

/// A key of a JWKS that is not used, and why. The other keys are used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("key {} of the JWKS{} is not used: {problem}", .index + 1, QuotedName(.kid))]
pub struct SkippedKey {
    /// Its position in the set, counted from 0.
    pub index: usize,
    /// Its `kid`, if it has a usable one.
    pub kid: Option<String>,
    /// Why it is not used.
    pub problem: KeyProblem,
}

/// Why one key is not used. No message contains the key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyProblem {
    /// Not an object, or one that is no strict JSON.
    #[error("it is not a JSON object, or one in which a member repeats")]
    Malformed,
    /// A member that it needs is absent.
    #[error("its `{0}` is missing")]
    Missing(&'static str),
    /// A member of the wrong type.
    #[error("its `{0}` is of the wrong type")]
    WrongType(&'static str),
    /// A member with an encoding that is not accepted.
    #[error(
        "its `{0}` is not base64url without padding (`lenient` of the issuer may take other forms)"
    )]
    NotBase64url(&'static str),
    /// A kind, a curve or an algorithm that is not supported.
    #[error(
        "its kind is not supported: use RSA of 2048 to 8192 bits, EC P-256 or P-384, or Ed25519"
    )]
    Unsupported,
    /// It has the private key too.
    #[error("it holds a private key: publish the public key only, and replace this one")]
    Private,
    /// `use` or `key_ops` allow only other purposes.
    #[error(
        "it is not for signatures: `use` must be left out or `sig` (or `jwt-svid`, with `lenient: \
         [spiffe_use]`), and `key_ops` must contain `verify`"
    )]
    Purpose,
    /// Its `kid` is longer than that of a token may be.
    #[error("its `kid` is longer than {MAX_KID_BYTES} bytes")]
    LongKid,
    /// Another key has the same `kid` and algorithm.
    #[error("another key has the same `kid` and algorithm: give each its own `kid`")]
    DuplicateKid,
    /// RSA, too short or too long.
    #[error("an RSA key of {bits} bits: make one of 2048 to 8192 bits")]
    RsaSize {
        /// The length of its modulus.
        bits: usize,
    },
    /// RSA, with an even modulus or an exponent that is even, 1 or huge.
    #[error("its RSA modulus or exponent is invalid: generate the key again (exponent 65537)")]
    RsaNumbers,
    /// EC or Ed25519, and not a point of the curve.
    #[error("its coordinates are not a point of its curve: generate or copy the key again")]
    NotOnCurve,
    /// Ed25519, and a point of small order, for which anyone can sign.
    #[error("anyone could sign for this Ed25519 key (is it a placeholder?): generate a real one")]
    WeakPoint,
    /// An HMAC secret shorter than the hash.
    #[error(
        "a secret for {algorithm} has at least {min} random bytes: make one with `openssl rand`"
    )]
    ShortSecret {
        /// The algorithm that it would be used with.
        algorithm: Algorithm,
        /// The least number of bytes.
        min: usize,
    },
    /// Its `alg` does not fit its `kty`.
    #[error("its `alg` does not fit this kind of key: correct or remove it")]
    WrongAlgorithm,
    /// Its algorithm is not listed.
    #[error(
        "its algorithm is not in the issuer's `algorithms`: add it there; a secret always needs this list"
    )]
    NotAllowed,
    /// Several listed algorithms fit, and it names none.
    #[error("several `algorithms` fit it: keep one of them, or name one in the key's `alg`")]
    Ambiguous,
}

/// Why a key set is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// Secrets and public keys in one issuer.
    #[error("`algorithms` mixes HS* with public-key algorithms: make two issuers of them")]
    MixedAlgorithms,
    /// A secret with other than one HS* algorithm.
    #[error("a secret needs exactly one of HS256, HS384, HS512 in `algorithms`")]
    SecretAlgorithm,
    /// A PEM key as a secret.
    #[error("this secret is a PEM file: set it as `public_key_file`, and never as a secret")]
    SecretIsPem,
    /// A PEM key with HS* algorithms.
    #[error("HS* algorithms need a secret, not a public key: list RS*, PS*, ES* or EdDSA")]
    PemAlgorithm,
    /// A private key in place of a public one.
    #[error(
        "this is a private key: use the public one (`openssl pkey -pubout`), and keep this one \
         where tokens are signed"
    )]
    PrivateKey,
    /// No block with a public key, or a broken one.
    #[error(
        "no public key found: expected PEM blocks PUBLIC KEY, RSA PUBLIC KEY or CERTIFICATE, \
         complete and in base64"
    )]
    NoPemKey,
    /// Several PEM keys for one algorithm, which a token cannot choose between.
    #[error(
        "two keys for {0} in one PEM file, where keys have no `kid`: use a JWKS file with a `kid` \
         for each"
    )]
    SeveralKeys(Algorithm),
    /// A secret or a PEM key that cannot be used.
    #[error("the key cannot be used: {0}")]
    Key(KeyProblem),
    /// Neither a JWK Set nor a JWK.
    #[error("not a JWKS: expected a JSON object with an array `keys`, or a single JWK")]
    NotJwks,
    /// Larger than a key file needs to be.
    #[error("more than {} KiB: keep only the keys in use", MAX_KEY_FILE_BYTES / 1024)]
    TooLarge,
    /// More keys than an issuer needs.
    #[error("more than {MAX_KEYS} keys: keep only the keys in use")]
    TooManyKeys,
    /// Every key was skipped, or the set is empty.
    #[error("the JWKS has no usable key{}", Reasons(.0))]
    NoUsableKey(Vec<SkippedKey>),
}

impl From<KeyProblem> for KeyError {
    /// The problem is not the error's source, since the message has it already.
    fn from(problem: KeyProblem) -> KeyError {
        KeyError::Key(problem)
    }
}

impl KeySet {
    /// A set without keys, for which no token is valid.
    pub fn empty() -> KeySet {
        KeySet { keys: Vec::new(), allowed: Vec::new() }
    }

    /// One shared secret, for the single HS* algorithm in `allowed`, by default HS256.
    pub fn from_secret(secret: &[u8], allowed: &[Algorithm]) -> Result<KeySet, KeyError> {
        // With a public key as the secret, every client that knows it could sign.
        if secret.trim_ascii_start().starts_with(b"-----BEGIN ") {
            return Err(KeyError::SecretIsPem);
        }
        let algorithm = match allowed {
            [] => Algorithm::HS256,
            [algorithm] if algorithm.is_symmetric() => *algorithm,
            _ => return Err(KeyError::SecretAlgorithm),
        };
        let secret = KeyMaterial::Secret(secret.to_vec());
        let key = Key::new(None, secret, None, &[algorithm])?;
        Ok(KeySet { keys: vec![key], allowed: vec![algorithm] })
    }

    /// Public keys from PEM: `PUBLIC KEY`, `RSA PUBLIC KEY` or `CERTIFICATE`, one for each
    /// algorithm.
    ///
    /// PEM has no `kid`, so the set ignores the `kid` of a token.
    pub fn from_pem(pem: &[u8], allowed: &[Algorithm]) -> Result<KeySet, KeyError> {
        if allowed.iter().any(|algorithm| algorithm.is_symmetric()) {
            return Err(KeyError::PemAlgorithm);
        }
        let mut keys: Vec<Key> = Vec::new();
        for material in public_materials(pem)? {
            let key = Key::new(None, material, None, allowed)?;
            if keys.iter().any(|other| other.algorithm == key.algorithm) {
                return Err(KeyError::SeveralKeys(key.algorithm));
            }
            keys.push(key);
        }
        Ok(KeySet::new(keys, allowed))
    }

    /// The usable keys of a JWKS or a single JWK, and the keys that were skipped.
    ///
    /// Secrets (`oct`) are used only if `allowed` lists their algorithm, which must not be done for
    /// a set that is fetched. `lenient` is what a key may have against the specifications.
    pub fn from_jwks(
        json: &[u8],
        allowed: &[Algorithm],
        lenient: &[Deviation],
    ) -> Result<(KeySet, Vec<SkippedKey>), KeyError> {
        if json.len() > MAX_KEY_FILE_BYTES {
            return Err(KeyError::TooLarge);
        }
        if allowed.iter().any(|a| a.is_symmetric()) && !allowed.iter().all(|a| a.is_symmetric()) {
            return Err(KeyError::MixedAlgorithms);
        }
        let texts = jwk::split(json).ok_or(KeyError::NotJwks)?;
        if texts.len() > MAX_KEYS {
            return Err(KeyError::TooManyKeys);
        }
        let mut used = Vec::new();
        let mut skipped = Vec::new();
        for (index, text) in texts.into_iter().enumerate() {
            let (kid, key) = jwk::parse(text, lenient);
            match key.and_then(|jwk| Key::new(jwk.kid, jwk.material, jwk.algorithm, allowed)) {
                Ok(key) => used.push((index, key)),
                //= rfc7517#section-5
                //# Implementations SHOULD ignore JWKs within a JWK Set that use "kty" (key type)
                //# values that are not understood by them
                Err(problem) => skipped.push(SkippedKey { index, kid, problem }),
            }
        }
        //= rfc7517#section-4.5
        //# different keys within the JWK Set SHOULD use distinct "kid" values
        let keys = without_duplicates(used, &mut skipped);
        skipped.sort_by_key(|key| key.index);
        if keys.is_empty() {
            return Err(KeyError::NoUsableKey(skipped));
        }
        Ok((KeySet::new(keys, allowed), skipped))
    }

    fn new(keys: Vec<Key>, allowed: &[Algorithm]) -> KeySet {
        let allowed = match allowed {
            [] => keys.iter().map(|key| key.algorithm).collect(),
            allowed => allowed.to_vec(),
        };
        KeySet { keys, allowed }
    }

    /// Whether a token may name this algorithm: one that is configured or, if none is, one that a
    /// key has.
    pub fn allows(&self, algorithm: Algorithm) -> bool {
        self.allowed.contains(&algorithm)
    }

    /// The number of keys.
    #[expect(clippy::len_without_is_empty, reason = "only the set of no issuer is empty")]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether a key has a `kid`, so that the `kid` of a token chooses the key.
    pub fn is_named(&self) -> bool {
        self.keys.iter().any(|key| key.kid.is_some())
    }

    /// The `kid`s of the keys.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.keys.iter().filter_map(|key| key.kid.as_deref())
    }

    /// Whether a key has this `kid`.
    pub fn has_name(&self, kid: &str) -> bool {
        self.keys.iter().any(|key| key.kid.as_deref() == Some(kid))
    }

    /// Whether a token with this header may be signed by one of the keys.
    pub(super) fn may_have(&self, kid: Option<&str>, algorithm: Algorithm) -> bool {
        !matches!(self.select(kid, algorithm), Selection::Unknown { .. })
    }

    /// Whether one header may name a key of both.
    pub(super) fn overlaps(&self, other: &KeySet) -> bool {
        let are_named = self.is_named() && other.is_named();
        let are_alike = |own: &Key, others: &Key| {
            own.algorithm == others.algorithm && (!are_named || own.kid == others.kid)
        };
        self.keys.iter().any(|own| other.keys.iter().any(|others| are_alike(own, others)))
    }

    /// The key that a token's header names, or those that fit a token without `kid`.
    pub(super) fn select(&self, kid: Option<&str>, algorithm: Algorithm) -> Selection<'_> {
        //= rfc7515#section-5.2
        //# which MUST be accurately represented by the value of the "alg" (algorithm) Header
        //# Parameter
        let mut fitting = self.keys.iter().filter(|key| key.algorithm == algorithm);
        match kid {
            Some(kid) if self.is_named() => {
                match fitting.find(|key| key.kid.as_deref() == Some(kid)) {
                    Some(key) => Selection::Key(key),
                    None => self.unknown(algorithm),
                }
            }
            _ => match (fitting.next(), fitting.next()) {
                (Some(key), None) => Selection::Key(key),
                (Some(one), Some(other)) => {
                    let keys: Vec<&Key> = [one, other].into_iter().chain(fitting).collect();
                    if keys.len() > MAX_CANDIDATES {
                        return Selection::Ambiguous;
                    }
                    Selection::AnyOf(keys)
                }
                (None, _) => self.unknown(algorithm),
            },
        }
    }

    fn unknown(&self, algorithm: Algorithm) -> Selection<'_> {
        let decoy = self.keys.iter().find(|key| key.algorithm == algorithm);
        Selection::Unknown { decoy: decoy.or(self.keys.first()) }
    }
}

/// The key of a [`KeySet`] that a token's header selects.
pub(super) enum Selection<'a> {
    /// The key to verify with.
    Key(&'a Key),
    /// No `kid`, and a few keys that fit.
    AnyOf(Vec<&'a Key>),
    /// No `kid`, and more keys that fit than are tried.
    Ambiguous,
    /// No such key. The decoy is a key of the set whose check takes as long.
    Unknown { decoy: Option<&'a Key> },
}

impl Key {
    /// `named` is the algorithm in the JWK, and `allowed` are the ones of the issuer.
    fn new(
        kid: Option<String>,
        material: KeyMaterial,
        named: Option<Algorithm>,
        allowed: &[Algorithm],
    ) -> Result<Key, KeyProblem> {
        let algorithm = material.choose_algorithm(named, allowed)?;
        Ok(Key { kid, algorithm, decoding: material.into_decoding_key() })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}{})", self.algorithm, QuotedName(&self.kid))
    }
}

/// The public keys of a PEM file; there is at least one.
fn public_materials(pem: &[u8]) -> Result<Vec<KeyMaterial>, KeyError> {
    if pem.len() > MAX_KEY_FILE_BYTES {
        return Err(KeyError::TooLarge);
    }
    let blocks = pem::blocks(pem).ok_or(KeyError::NoPemKey)?;
    if blocks.iter().any(|block| block.label.ends_with("PRIVATE KEY")) {
        return Err(KeyError::PrivateKey);
    }
    let mut materials = Vec::new();
    for block in &blocks {
        let der = match block.label {
            "PUBLIC KEY" | "RSA PUBLIC KEY" => block.der.as_slice(),
            "CERTIFICATE" => der::certificate_public_key(&block.der).ok_or(KeyError::NoPemKey)?,
            _ => return Err(KeyError::NoPemKey),
        };
        materials.push(KeyMaterial::from_der(der)?);
    }
    if materials.is_empty() { Err(KeyError::NoPemKey) } else { Ok(materials) }
}

/// Skips all keys that share a `kid` and an algorithm, since a token cannot choose between them.
fn without_duplicates(keys: Vec<(usize, Key)>, skipped: &mut Vec<SkippedKey>) -> Vec<Key> {
    let names: Vec<_> = keys.iter().map(|(_, key)| (key.kid.clone(), key.algorithm)).collect();
    let mut unique = Vec::with_capacity(keys.len());
    for (index, key) in keys {
        let same =
            names.iter().filter(|(kid, algorithm)| (kid, algorithm) == (&key.kid, &key.algorithm));
        if key.kid.is_some() && same.count() > 1 {
            skipped.push(SkippedKey { index, kid: key.kid, problem: KeyProblem::DuplicateKid });
        } else {
            unique.push(key);
        }
    }
    unique
}

/// ` "name"`, or nothing.
struct QuotedName<'a>(&'a Option<String>);

impl fmt::Display for QuotedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |kid| write!(f, " {kid:?}"))
    }
}

/// `: reason; reason`, or nothing.
struct Reasons<'a>(&'a [SkippedKey]);

impl fmt::Display for Reasons<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .enumerate()
            .try_for_each(|(index, key)| write!(f, "{}{key}", if index == 0 { ": " } else { "; " }))
    }
}
