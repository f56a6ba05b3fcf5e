//! A cache of verified tokens, by a digest of the whole token.
//!
//! A signature check costs many times the rest of a request. The digest is SHA-256, since a shorter
//! or non-cryptographic hash would let one token pass for another, and it goes with the rules under
//! which the token was verified. The times are checked again on each hit, so a cached token is
//! valid no longer than without the cache. The cache is bounded by the bytes that its tokens take.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use quick_cache::{Weighter, sync::Cache};
use tollgate_clock::Timestamp;

use super::{
    caller::ResolvedCaller,
    credential::{Credential, CredentialKind, TokenPlace},
    error::IdentityError,
    known_token::KnownToken,
    rules::{IdentityRules, RulesId},
    token_error::{MAX_TOKEN_BYTES, TokenError},
};

/// Caches verified tokens, and for a few seconds rejected ones.
pub struct TokenCache {
    verified: Cache<TokenCacheKey, Entry, ByWeight>,
    rejected: Cache<TokenCacheKey, RejectedToken>,
}

/// The key of a token in the cache: the digest of its bytes, the rules that it is verified under,
/// and where it was, on which its issuer may depend.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenCacheKey {
    rules: RulesId,
    /// Distinguishes an API key from a token with the same text.
    is_api_key: bool,
    place: Option<TokenPlace>,
    token: [u8; 32],
}

/// Why a token was rejected.
#[derive(Clone)]
pub(super) struct RejectedToken {
    pub(super) error: IdentityError,
    /// The generation of the keys of all issuers.
    pub(super) generation: u64,
    /// When the rejection ends.
    pub(super) until: Timestamp,
}

/// How many rejected tokens are cached: few, since a client can make up more than any cache holds.
const MAX_REJECTED: usize = 4096;

impl TokenCacheKey {
    /// The key of a credential under some rules.
    ///
    /// # Errors
    /// [`TokenError::TooLong`], before the digest is computed.
    pub fn new(rules: RulesId, credential: &Credential<'_>) -> Result<Self, TokenError> {
        if credential.token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong);
        }
        let is_api_key = credential.kind == CredentialKind::ApiKey;
        let mut key =
            TokenCacheKey { rules, is_api_key, place: credential.source.place(), token: [0; 32] };
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

impl Weighter<TokenCacheKey, Entry> for ByWeight {
    fn weight(&self, _: &TokenCacheKey, entry: &Entry) -> u64 {
        u64::from(entry.weight)
    }
}

/// Memory that parsed claims take for each byte of their text, roughly.
const MEMORY_PER_BYTE: usize = 4;

/// Memory that an entry takes besides its claims.
const ENTRY_BYTES: usize = 256;

/// The usual size of a token, from which the cache estimates its number of entries.
const USUAL_TOKEN_BYTES: usize = 512;

impl TokenCache {
    /// A cache for about `max_bytes` of tokens.
    pub fn new(max_bytes: u64) -> Self {
        let usual = (ENTRY_BYTES + USUAL_TOKEN_BYTES * MEMORY_PER_BYTE) as u64;
        let items = usize::try_from(max_bytes / usual).unwrap_or(usize::MAX).clamp(16, 1 << 20);
        TokenCache {
            verified: Cache::with_weighter(items, max_bytes, ByWeight),
            rejected: Cache::new(MAX_REJECTED),
        }
    }

    /// A token that was valid when it was inserted. The caller checks its times.
    pub fn find(&self, digest: &TokenCacheKey) -> Option<Arc<KnownToken>> {
        self.verified.get(digest).map(|entry| entry.token)
    }

    /// Inserts a verified token, in place of others if the cache is full.
    pub fn insert(&self, digest: TokenCacheKey, token: &Arc<KnownToken>) {
        let weight = ENTRY_BYTES.saturating_add(token.bytes.saturating_mul(MEMORY_PER_BYTE));
        let weight = u32::try_from(weight).unwrap_or(u32::MAX);
        self.verified.insert(digest, Entry { token: Arc::clone(token), weight });
    }

    /// The tier of a caller by the latest of its tokens that are cached. It looks at all of them:
    /// people ask for it, requests do not.
    pub(super) fn tier_of(
        &self,
        rules: &IdentityRules,
        caller: &ResolvedCaller<'_>,
    ) -> Option<usize> {
        let tokens = self.verified.iter().filter(|(key, _)| key.rules == rules.id);
        let tokens = tokens.filter_map(|(_, Entry { token, .. })| {
            let named = token.named.as_ref()?;
            let kind = rules.callers.get(named.rule).map(|rule| &*rule.name);
            let is_same = named.value == caller.value
                && kind == Some(caller.kind)
                && Some(token.token.issuer) == caller.issuer
                && token.token.tenant == caller.tenant;
            is_same.then(|| (token.token.expires_at(), named.tier))
        });
        tokens.max_by_key(|(expires, _)| *expires).map(|(_, tier)| tier)
    }

    /// A token that was rejected. The caller checks whether the rejection still applies.
    pub(super) fn find_rejected(&self, digest: &TokenCacheKey) -> Option<RejectedToken> {
        self.rejected.get(digest)
    }

    /// Inserts a rejected token, in place of others if the cache is full.
    pub(super) fn insert_rejected(&self, digest: TokenCacheKey, rejected: RejectedToken) {
        self.rejected.insert(digest, rejected);
    }
}
