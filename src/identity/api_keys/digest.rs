//! The digest that stands in a file in place of a secret: `sha256:<salt>:<digest>`, both base64url,
//! where the digest is SHA-256 of salt and secret.
//!
//! One round of SHA-256, and no slow hash as for passwords: slowness makes up for secrets that can
//! be guessed, and ours are 256 random bits. It would only give every request with a key, good or
//! not, a price that the proxy pays. The salt keeps equal secrets from showing as equal.

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
    /// The digest of no secret, to spend on it the time that a digest takes.
    pub(super) const DECOY: SecretDigest = SecretDigest { salt: [0; 16], digest: [0; 32] };

    /// The digest of a secret, with a new salt.
    pub(super) fn new(secret: &[u8]) -> Result<SecretDigest, Unspecified> {
        let mut salt = [0; 16];
        rand::fill(&mut salt)?;
        let digest = salted(&salt, secret).as_ref().try_into().map_err(|_| Unspecified)?;
        Ok(SecretDigest { salt, digest })
    }

    /// Reads the text of a file; there is one for each digest.
    pub(super) fn parse(text: &str) -> Option<SecretDigest> {
        let (salt, digest) = text.strip_prefix(ALGORITHM)?.strip_prefix(':')?.split_once(':')?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        Some(SecretDigest {
            salt: decode(salt)?.try_into().ok()?,
            digest: decode(digest)?.try_into().ok()?,
        })
    }

    /// Whether it is the digest of this secret. Takes as long whatever the answer.
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
