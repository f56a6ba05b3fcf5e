//! Keys that verify tokens: from a secret, a PEM file or a JWKS to a [`KeySet`].
//!
//! Each key has exactly one algorithm, and a set is either all secrets or all public keys. So there
//! is no token header that turns a public key into a shared secret.

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

/// How long a key's name may be, in a token's header and in a JWKS.
pub(super) const MAX_KID_BYTES: usize = 128;
/// How many keys a JWKS may list.
pub(super) const MAX_KEYS: usize = 100;
/// How large a JWKS or a PEM file may be.
pub(super) const MAX_KEY_FILE_BYTES: usize = 256 * 1024;

/// The keys of one issuer; there is at least one.
#[derive(Clone, Debug)]
pub struct KeySet {
    keys: Vec<Key>,
    /// What a token's header may say.
    allowed: Vec<Algorithm>,
}

/// A key and the only algorithm it is used with.
#[derive(Clone)]
pub(super) struct Key {
    kid: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
}

/// A key of a JWKS that was left out, and why. The others are used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("key {} of the JWKS{} is not used: {problem}", .index + 1, QuotedName(.kid))]
pub struct SkippedKey {
    /// Its place in the set, counted from 0.
    pub index: usize,
    /// Its name, if it has a usable one.
    pub kid: Option<String>,
    /// What is wrong with it.
    pub problem: KeyProblem,
}

/// What makes one key unusable. Never tells the key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyProblem {
    /// Members missing, repeated, of the wrong type or not base64url.
    #[error("it is malformed: a member is missing, repeated, of the wrong type or not base64url")]
    Malformed,
    /// A kind, a curve or an algorithm that is not ours.
    #[error(
        "its kind is not supported: use RSA of 2048 to 8192 bits, EC P-256 or P-384, or Ed25519"
    )]
    Unsupported,
    /// Its private half is there too.
    #[error("it holds a private key: publish the public key only, and replace this one")]
    Private,
    /// `use` or `key_ops` say that it is for something else.
    #[error("it is not for signatures: `use` must be left out or `sig`, `key_ops` hold `verify`")]
    Purpose,
    /// Its name is longer than a token may write.
    #[error("its `kid` is longer than {MAX_KID_BYTES} bytes")]
    LongKid,
    /// Another key of the same name does the same algorithm.
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
    /// EC or Ed25519, and no point of the curve.
    #[error("its coordinates are not a point of its curve: generate or copy the key again")]
    NotOnCurve,
    /// Ed25519, and a point that anyone can sign for.
    #[error("anyone could sign for this Ed25519 key (is it a placeholder?): generate a real one")]
    WeakPoint,
    /// An HMAC secret shorter than the hash.
    #[error(
        "a secret for {algorithm} has at least {min} random bytes: make one with `openssl rand`"
    )]
    ShortSecret {
        /// The algorithm it would be used with.
        algorithm: Algorithm,
        /// The length of that hash.
        min: usize,
    },
    /// Its `alg` does not fit its `kty`.
    #[error("its `alg` cannot be done with this kind of key: correct or remove it")]
    WrongAlgorithm,
    /// Its algorithm is not listed.
    #[error(
        "its algorithm is not in the issuer's `algorithms`: add it there; a secret always needs this list"
    )]
    NotAllowed,
    /// Several listed algorithms fit, and it names none.
    #[error("several `algorithms` fit it: keep one of them, or name it in the key's `alg`")]
    Ambiguous,
}

/// Why there is no key set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// Secrets and public keys in one issuer.
    #[error("`algorithms` mixes HS* with public-key algorithms: make two issuers of them")]
    MixedAlgorithms,
    /// A secret has one algorithm.
    #[error("a secret needs exactly one of HS256, HS384, HS512 in `algorithms`")]
    SecretAlgorithm,
    /// A PEM key where a secret belongs.
    #[error("this secret is a PEM file: set it as `public_key_file`, and never as a secret")]
    SecretIsPem,
    /// Secrets do not come in PEM.
    #[error("HS* algorithms need a secret, not a public key: list RS*, PS*, ES* or EdDSA")]
    PemAlgorithm,
    /// A private key where a public one belongs.
    #[error(
        "this is a private key: give the public one (`openssl pkey -pubout`), and keep this one \
         where tokens are signed"
    )]
    PrivateKey,
    /// No block that could hold a public key.
    #[error(
        "no public key found: expected PEM blocks PUBLIC KEY, RSA PUBLIC KEY or CERTIFICATE, \
         whole and in base64"
    )]
    NoPemKey,
    /// Nothing in PEM says which key a token means.
    #[error(
        "two keys for {0} in one PEM file, and no token could say which: use a JWKS file with a \
         `kid` for each"
    )]
    SeveralKeys(Algorithm),
    /// The only key, or one in PEM, cannot be used.
    #[error("the key cannot be used: {0}")]
    Key(KeyProblem),
    /// Neither a set nor a key.
    #[error("not a JWKS: expected a JSON object with an array `keys`, or a single JWK")]
    NotJwks,
    /// Larger than a key file needs to be.
    #[error("more than {} KiB: keep only the keys in use", MAX_KEY_FILE_BYTES / 1024)]
    TooLarge,
    /// More keys than an issuer needs.
    #[error("more than {MAX_KEYS} keys: keep only the keys in use")]
    TooManyKeys,
    /// Every key was skipped, or there was none.
    #[error("the JWKS has no usable key{}", Reasons(.0))]
    NoUsableKey(Vec<SkippedKey>),
}

impl From<KeyProblem> for KeyError {
    /// Not as its source: the message has it already.
    fn from(problem: KeyProblem) -> KeyError {
        KeyError::Key(problem)
    }
}

impl KeySet {
    /// No keys: no token is good.
    pub fn empty() -> KeySet {
        KeySet { keys: Vec::new(), allowed: Vec::new() }
    }

    /// One shared secret, for the single HS* algorithm in `allowed`, by default HS256.
    pub fn from_secret(secret: &[u8], allowed: &[Algorithm]) -> Result<KeySet, KeyError> {
        // Whoever knows the public key could sign: the confusion of algorithms, made by hand.
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

    /// Public keys from PEM: `PUBLIC KEY`, `RSA PUBLIC KEY` or `CERTIFICATE`, one an algorithm.
    ///
    /// PEM has no key names, so such a set ignores the `kid` of a token.
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

    /// The usable keys of a JWKS, or a single JWK, and what was wrong with the others.
    ///
    /// Secrets (`oct`) are used only if `allowed` lists their algorithm, which nobody should do for
    /// a set that is fetched.
    pub fn from_jwks(
        json: &[u8],
        allowed: &[Algorithm],
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
        let (mut used, mut skipped) = (Vec::new(), Vec::new());
        for (index, text) in texts.into_iter().enumerate() {
            let (kid, key) = jwk::parse(text);
            match key.and_then(|jwk| Key::new(jwk.kid, jwk.material, jwk.algorithm, allowed)) {
                Ok(key) => used.push((index, key)),
                Err(problem) => skipped.push(SkippedKey { index, kid, problem }),
            }
        }
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

    /// Whether a token may name this algorithm: one that is configured, else one that a key has.
    pub fn allows(&self, algorithm: Algorithm) -> bool {
        self.allowed.contains(&algorithm)
    }

    /// How many keys there are.
    #[expect(clippy::len_without_is_empty, reason = "no set is empty")]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether its keys have names, which tokens then have to give.
    pub fn is_named(&self) -> bool {
        self.keys.iter().any(|key| key.kid.is_some())
    }

    /// Whether one of its keys is called so.
    pub fn has_name(&self, kid: &str) -> bool {
        self.keys.iter().any(|key| key.kid.as_deref() == Some(kid))
    }

    /// The key that a token's header means.
    pub(super) fn select(&self, kid: Option<&str>, algorithm: Algorithm) -> Selection<'_> {
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
                (Some(_), Some(_)) => Selection::Ambiguous,
                (None, _) => self.unknown(algorithm),
            },
        }
    }

    fn unknown(&self, algorithm: Algorithm) -> Selection<'_> {
        let decoy = self.keys.iter().find(|key| key.algorithm == algorithm);
        Selection::Unknown { decoy: decoy.or(self.keys.first()) }
    }
}

/// What a token's header comes to in a [`KeySet`].
pub(super) enum Selection<'a> {
    /// The key to verify with.
    Key(&'a Key),
    /// No name, and more than one key that would fit.
    Ambiguous,
    /// No such key. The decoy is one of the set that takes as long to fail.
    Unknown { decoy: Option<&'a Key> },
}

impl Key {
    /// `named` is the algorithm that the key gives itself, `allowed` are those that it may have.
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

/// Leaves out every key whose name and algorithm another one has too: nothing says which is meant.
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
