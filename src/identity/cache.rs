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

use super::{KnownToken, RulesId, TokenError, jwt::MAX_TOKEN_BYTES};

/// Good tokens.
pub struct TokenCache(Cache<Digest, Entry, ByWeight>);

/// A token's name in the cache: all of its bytes, and the rules that it was found good under.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    rules: RulesId,
    token: [u8; 32],
}

impl Digest {
    /// The digest of a token under rules.
    ///
    /// # Errors
    /// [`TokenError::TooLong`], before any work is done on it.
    pub fn new(rules: RulesId, token: &[u8]) -> Result<Self, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong);
        }
        let mut key = Digest { rules, token: [0; 32] };
        key.token.copy_from_slice(digest(&SHA256, token).as_ref());
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

/// Memory that a token's claims take, for each byte of the token: a parsed member costs more than
/// its text.
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
        TokenCache(Cache::with_weighter(items, max_bytes, ByWeight))
    }

    /// A token that was good when it was remembered: whoever asks checks its times.
    pub fn find(&self, digest: &Digest) -> Option<Arc<KnownToken>> {
        self.0.get(digest).map(|entry| entry.token)
    }

    /// Keeps a good token of so many bytes, in place of others if there is no room.
    pub fn remember(&self, digest: Digest, token: &Arc<KnownToken>, token_bytes: usize) {
        let weight = (ENTRY_BYTES + token_bytes * BYTES_A_BYTE) as u32;
        self.0.insert(digest, Entry { token: Arc::clone(token), weight });
    }
}
