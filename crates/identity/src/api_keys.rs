//! API keys: callers that authenticate with a secret of their own instead of a token.
//!
//! A client sends `<id>.<secret>`. The id is public and finds the key. The file of keys has only a
//! salted digest of the secret, so a leaked file grants no access.

mod digest;
mod file;
mod mint;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, fmt};

use thiserror::Error;

use self::digest::SecretDigest;
pub use self::{
    file::MAX_API_KEYS_BYTES,
    mint::{MintError, MintedKey, NewKey},
};
use tollgate_clock::Timestamp;
use tollgate_yaml::Problem;

use super::Claims;

/// How long an id may be.
const MAX_ID_BYTES: usize = 64;
/// How short a secret may be. The digest is fast, so it does not protect a secret that can be
/// guessed.
const MIN_SECRET_BYTES: usize = 16;
/// How long a secret may be.
const MAX_SECRET_BYTES: usize = 256;

/// All API keys of a file.
pub struct ApiKeys(HashMap<Box<str>, ApiKey>);

/// A key of the file, valid or not.
#[derive(Clone, Debug)]
pub struct ApiKey {
    /// Finds the key; public.
    pub id: Box<str>,
    /// The fields of the key in the form of a token's claims: `id`, and if the file has them,
    /// `owner`, `tier`, `scope` (separated by spaces) and custom fields.
    pub claims: Claims,
    /// The instant from which it is refused.
    pub expires: Option<Timestamp>,
    is_revoked: bool,
    digest: SecretDigest,
}

/// Why a key is refused, for the log. A client gets the same response for
/// [`Unknown`](Self::Unknown) and [`Wrong`](Self::Wrong), so that it cannot find out which ids
/// exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ApiKeyError {
    /// Not `<id>.<secret>`.
    #[error("API key is malformed")]
    Malformed,
    /// An id that no key has.
    #[error("API key is unknown")]
    Unknown,
    /// The id of a key with a wrong secret.
    #[error("API key has the wrong secret")]
    Wrong,
    /// A key that is revoked in the file.
    #[error("API key is revoked")]
    Revoked,
    /// A key that has expired.
    #[error("API key has expired")]
    Expired,
}

impl ApiKeys {
    /// No keys.
    pub fn empty() -> ApiKeys {
        ApiKeys(HashMap::new())
    }

    /// Reads a file of keys. `name` is the name of the file in problems.
    ///
    /// # Errors
    /// All problems, with their locations.
    pub fn parse(name: &str, text: &str) -> Result<ApiKeys, Vec<Problem>> {
        file::parse(name, text).map(ApiKeys)
    }

    /// The key that a client has sent, if it is valid.
    ///
    /// An unknown id takes as long as a known one. Only a client with the right secret gets to know
    /// that a key is revoked or has expired.
    ///
    /// # Errors
    /// [`ApiKeyError`].
    pub fn check(&self, presented: &[u8], now: Timestamp) -> Result<&ApiKey, ApiKeyError> {
        let (id, secret) = split(presented).ok_or(ApiKeyError::Malformed)?;
        let Some(key) = self.get(id) else {
            SecretDigest::DECOY.is_of(secret);
            return Err(ApiKeyError::Unknown);
        };
        if !key.digest.is_of(secret) {
            return Err(ApiKeyError::Wrong);
        }
        if key.is_revoked {
            return Err(ApiKeyError::Revoked);
        }
        if key.expires.is_some_and(|expires| now >= expires) {
            return Err(ApiKeyError::Expired);
        }
        Ok(key)
    }

    /// The key with this id, valid or not.
    pub fn get(&self, id: &str) -> Option<&ApiKey> {
        self.0.get(id)
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeys({} keys)", self.len())
    }
}

/// Whether this has the form of an API key, which no JWT has.
pub(super) fn is_like_a_key(presented: &[u8]) -> bool {
    split(presented).is_some()
}

/// The id and the secret that a client has sent. Neither has a dot, so no API key looks like a JWT.
fn split(presented: &[u8]) -> Option<(&str, &[u8])> {
    let dot = presented.iter().take(MAX_ID_BYTES + 1).position(|byte| *byte == b'.')?;
    let id = presented.get(..dot)?;
    let secret = presented.get(dot + 1..)?;
    let id = std::str::from_utf8(id).ok()?;
    (is_id(id) && is_secret(secret)).then_some((id, secret))
}

/// Whether a key can have this id.
fn is_id(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=MAX_ID_BYTES).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// Whether a key can have this secret. Secrets that `tollgate key` makes are base64url, but
/// existing secrets may have any visible characters but the dot.
fn is_secret(secret: &[u8]) -> bool {
    (MIN_SECRET_BYTES..=MAX_SECRET_BYTES).contains(&secret.len())
        && secret.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'.')
}
