//! The digest of a secret in the file of keys: `sha256:<salt>:<digest>`, both base64url, where the
//! digest is SHA-256 of salt and secret.
//!
//! It is one round of SHA-256 and not a slow password hash. A slow hash protects secrets that can
//! be guessed, but these are 256 random bits, and the proxy would pay for it on every request with
//! a key, valid or not. The salt hides that two secrets are equal.

use std::fmt;

use aws_lc_rs::{
    constant_time::verify_slices_are_equal,
    digest::{Context, Digest, SHA256},
    error::Unspecified,
    rand,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

/// What the text begins with.
const ALGORITHM: &str = "sha256";

/// The salted digest of a secret.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SecretDigest {
    salt: [u8; 16],
    digest: [u8; 32],
}

impl SecretDigest {
    /// A digest that no secret has, compared for unknown ids so that they take as long as known
    /// ones.
    pub(super) const DECOY: SecretDigest = SecretDigest { salt: [0; 16], digest: [0; 32] };

    /// The digest of a secret, with a new salt.
    pub(super) fn new(secret: &[u8]) -> Result<SecretDigest, Unspecified> {
        let mut salt = [0; 16];
        rand::fill(&mut salt)?;
        let digest = salted(&salt, secret).as_ref().try_into().map_err(|_| Unspecified)?;
        Ok(SecretDigest { salt, digest })
    }

    /// Reads the text form. Each digest has exactly one.
    pub(super) fn parse(text: &str) -> Option<SecretDigest> {
        let (salt, digest) = text.strip_prefix(ALGORITHM)?.strip_prefix(':')?.split_once(':')?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        Some(SecretDigest {
            salt: decode(salt)?.try_into().ok()?,
            digest: decode(digest)?.try_into().ok()?,
        })
    }

    /// Whether this is the digest of `secret`, compared in constant time.
    pub(super) fn is_of(&self, secret: &[u8]) -> bool {
        verify_slices_are_equal(salted(&self.salt, secret).as_ref(), &self.digest).is_ok()
    }
}

impl fmt::Display for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        write!(f, "{ALGORITHM}:{}:{}", encode(&self.salt), encode(&self.digest))
    }
}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[digest]")
    }
}

fn salted(salt: &[u8], secret: &[u8]) -> Digest {
    let mut context = Context::new(&SHA256);
    context.update(salt);
    context.update(secret);
    context.finish()
}
