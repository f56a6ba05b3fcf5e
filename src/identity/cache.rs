//! Tokens that were verified lately, found again by a digest of the whole token.
//!
//! A signature check costs many times the rest of a request. What is kept is only what was found
//! good, under SHA-256 of every byte of the token (a shorter or non-cryptographic hash would let
//! one token pass for another), for the issuers that it was found good against. Times are checked
//! anew on each hit, so a kept token lives no longer than it would without the cache. Bounded by
//! the bytes that tokens take.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use quick_cache::{Weighter, sync::Cache};

use super::{
    Credential, CredentialKind, IdentityError, KnownToken, RulesId, TokenError,
    jwt::MAX_TOKEN_BYTES,
};
use crate::clock::Timestamp;

/// Good tokens, and for a few seconds bad ones.
pub struct TokenCache {
    good: Cache<Digest, Entry, ByWeight>,
    rejected: Cache<Digest, Rejected>,
}

/// A token's name in the cache: all of its bytes, and the rules that it was found good under.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    rules: RulesId,
    /// What is shown as a key is no token, though it be the same text.
    is_key: bool,
    token: [u8; 32],
}

/// What came of a token that is not good.
#[derive(Clone)]
pub(super) struct Rejected {
    /// Why.
    pub(super) error: IdentityError,
    /// Of all keys that it might have been tried with.
    pub(super) generation: u64,
    /// How long that holds.
    pub(super) until: Timestamp,
}

/// Bad tokens that are known as such: few, for whoever makes them can make more than any cache holds.
const MAX_REJECTED: usize = 4096;

impl Digest {
    /// The digest of a token under rules.
    ///
    /// # Errors
    /// [`TokenError::TooLong`], before any work is done on it.
    pub fn new(rules: RulesId, credential: &Credential<'_>) -> Result<Self, TokenError> {
        if credential.token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong);
        }
        let is_key = credential.kind == CredentialKind::ApiKey;
        let mut key = Digest { rules, is_key, token: [0; 32] };
        key.token.copy_from_slice(digest(&SHA256, &credential.token).as_ref());
        Ok(key)
    }
}

#[derive(Clone)]
struct Entry {
    token: Arc<KnownToken>,
    weight: u32,
}

#[derive(Clone)]
struct ByWeight;

impl Weighter<Digest, Entry> for ByWeight {
    fn weight(&self, _: &Digest, entry: &Entry) -> u64 {
        u64::from(entry.weight)
    }
}

/// Memory that a token's claims take, for each byte of their text: a parsed member costs more than
/// that.
const BYTES_A_BYTE: usize = 4;

/// Memory that an entry takes beside its claims.
const ENTRY_BYTES: usize = 256;

/// A token of the usual size, for the cache's first estimate of how many there will be.
const USUAL_TOKEN_BYTES: usize = 512;

impl TokenCache {
    /// A cache that keeps about `max_bytes` of tokens.
    pub fn new(max_bytes: u64) -> Self {
        let usual = (ENTRY_BYTES + USUAL_TOKEN_BYTES * BYTES_A_BYTE) as u64;
        let items = usize::try_from(max_bytes / usual).unwrap_or(usize::MAX).clamp(16, 1 << 20);
        TokenCache {
            good: Cache::with_weighter(items, max_bytes, ByWeight),
            rejected: Cache::new(MAX_REJECTED),
        }
    }

    /// A token that was good when it was remembered: whoever asks checks its times.
    pub fn find(&self, digest: &Digest) -> Option<Arc<KnownToken>> {
        self.good.get(digest).map(|entry| entry.token)
    }

    /// Keeps a good token, in place of others if there is no room.
    pub fn remember(&self, digest: Digest, token: &Arc<KnownToken>) {
        let weight = ENTRY_BYTES.saturating_add(token.bytes.saturating_mul(BYTES_A_BYTE));
        let weight = u32::try_from(weight).unwrap_or(u32::MAX);
        self.good.insert(digest, Entry { token: Arc::clone(token), weight });
    }

    /// A token that was bad: whoever asks checks whether that still holds.
    pub(super) fn find_rejected(&self, digest: &Digest) -> Option<Rejected> {
        self.rejected.get(digest)
    }

    /// Keeps what came of a bad token, in place of others if there is no room.
    pub(super) fn reject(&self, digest: Digest, rejected: Rejected) {
        self.rejected.insert(digest, rejected);
    }
}
