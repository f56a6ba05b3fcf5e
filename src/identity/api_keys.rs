//! API keys: callers that are known by a secret of their own instead of a token.
//!
//! A client shows `<id>.<secret>`. The id is public and finds the key; of the secret there is only
//! a salted digest, so that a file of keys that leaks lets nobody in.

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
use super::Claims;
use crate::{clock::Timestamp, yaml::Problem};

/// How long an id may be.
const MAX_ID_BYTES: usize = 64;
/// How short a secret may be: a digest as fast as ours is no help to a secret that can be guessed.
const MIN_SECRET_BYTES: usize = 16;
/// How long a secret may be.
const MAX_SECRET_BYTES: usize = 256;

/// All keys of a file.
pub struct ApiKeys(HashMap<Box<str>, ApiKey>);

/// A key that is known, whether or not it is still good.
#[derive(Clone, Debug)]
pub struct ApiKey {
    /// What finds it; public.
    pub id: Box<str>,
    /// What is known of who holds it, in the form of a token's claims: `id`, and if the file has
    /// them, `owner`, `tier`, `scope` (separated by spaces) and fields of the user's own.
    pub claims: Claims,
    /// From this instant on it is refused.
    pub expires: Option<Timestamp>,
    is_revoked: bool,
    digest: SecretDigest,
}

/// Why a key is refused, for the log. A client must not be told [`Unknown`](Self::Unknown) from
/// [`Wrong`](Self::Wrong): whether an id exists is not its business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ApiKeyError {
    /// Not `<id>.<secret>`.
    #[error("API key is malformed")]
    Malformed,
    /// An id that no key has.
    #[error("API key is unknown")]
    Unknown,
    /// The id of a key, and another secret than its own.
    #[error("API key has the wrong secret")]
    Wrong,
    /// A key that the file says is revoked.
    #[error("API key is revoked")]
    Revoked,
    /// A key whose time is over.
    #[error("API key has expired")]
    Expired,
}

impl ApiKeys {
    /// No keys.
    pub fn empty() -> ApiKeys {
        ApiKeys(HashMap::new())
    }

    /// Reads a file of keys; `name` is how problems call it.
    ///
    /// # Errors
    /// Every problem, with its place.
    pub fn parse(name: &str, text: &str) -> Result<ApiKeys, Vec<Problem>> {
        file::parse(name, text).map(ApiKeys)
    }

    /// The key that a client shows, if it is good.
    ///
    /// An unknown id costs what a known one costs, and that a key is revoked or has expired learns
    /// only who has its secret.
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

    /// The key with this id, good or not.
    pub fn get(&self, id: &str) -> Option<&ApiKey> {
        self.0.get(id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeys({} keys)", self.len())
    }
}

/// Whether this has the form of a key: no token of three parts has.
pub(super) fn is_like_a_key(presented: &[u8]) -> bool {
    split(presented).is_some()
}

/// The two parts of what a client shows. Neither holds a dot, so no key looks like a token.
fn split(presented: &[u8]) -> Option<(&str, &[u8])> {
    let dot = presented.iter().take(MAX_ID_BYTES + 1).position(|byte| *byte == b'.')?;
    let (id, secret) = (presented.get(..dot)?, presented.get(dot + 1..)?);
    let id = std::str::from_utf8(id).ok()?;
    (is_id(id) && is_secret(secret)).then_some((id, secret))
}

/// Whether a key can have this id.
fn is_id(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=MAX_ID_BYTES).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// Whether a key can have this secret: ours are base64url, but keys that are in use already may
/// have any that fits into a header.
fn is_secret(secret: &[u8]) -> bool {
    (MIN_SECRET_BYTES..=MAX_SECRET_BYTES).contains(&secret.len())
        && secret.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'.')
}
