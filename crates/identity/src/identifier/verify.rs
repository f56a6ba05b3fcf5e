//! Verification of a credential: from the cache, by the issuer's keys, by introspection, or against
//! the file of API keys.
//!
//! The result is cached: a valid token until it expires, a rejected one for a few seconds.

use std::{net::IpAddr, sync::Arc, time::Duration};

use tollgate_clock::Timestamp;

use super::{Identifier, base64url};
use crate::{
    AcceptedTokens, CurrentKeys, IdentityError, IdentityRules, Introspection, IntrospectionError,
    KnownToken, Prefixes, TokenError, VerifiedToken,
    api_keys::ApiKeyError,
    cache::{RejectedToken, TokenCacheKey},
    credential::{Credential, CredentialKind},
    introspection::IntrospectionResponse,
    jwt::{self, Unverified},
    validity::TimeClaims,
};

/// How long a rejected token is cached: long enough to absorb a client that repeats it many times a
/// second, and short enough that a corrected mistake is noticed soon.
const REJECTED_FOR: Duration = Duration::from_secs(5);

/// Time between two log lines about failed introspection.
pub(super) const INTROSPECTION_WARNING_PAUSE: Duration = Duration::from_secs(1);

/// A credential that a client has presented.
pub(super) struct PresentedCredential<'s> {
    pub(super) credential: Credential<'s>,
    /// The client's address.
    pub(super) address: IpAddr,
    /// The keys to verify it by, and the instant.
    pub(super) keys: CurrentKeys<'s>,
}

impl Identifier {
    /// Verifies a credential under the rules, and checks that the route accepts it.
    pub(super) async fn verify<P>(
        &self,
        rules: &IdentityRules,
        accepted: &AcceptedTokens,
        presented: &PresentedCredential<'_>,
        permit: impl FnOnce() -> Option<P>,
    ) -> Result<Arc<KnownToken>, IdentityError> {
        let &PresentedCredential { ref credential, keys, .. } = presented;
        let cache_key = TokenCacheKey::new(rules.id, credential)?;
        let known = match self.find_cached(rules, &cache_key, keys) {
            Some(known) => known?,
            None => {
                let _permit = permit().ok_or(IdentityError::TooManyBadTokens)?;
                // Boxed: most tokens are known, and take no room for this in their futures.
                Box::pin(self.verify_and_cache(rules, presented, cache_key)).await?
            }
        };
        accepted.check(&known.token)?;
        Ok(known)
    }

    /// The cached result for a token, if it still applies.
    fn find_cached(
        &self,
        rules: &IdentityRules,
        cache_key: &TokenCacheKey,
        keys: CurrentKeys<'_>,
    ) -> Option<Result<Arc<KnownToken>, IdentityError>> {
        let now = keys.now;
        if let Some(known) = self.tokens.find(cache_key) {
            let named = known.named.as_ref();
            if named.is_some_and(|named| named.hashed_under != self.hasher.version()) {
                return None;
            }
            let validity = known.token.is_current(now).map_err(Into::into);
            let Some(issuer) = rules.issuers.get(known.token.issuer) else {
                // An opaque token is introspected again when the cached response is too old.
                return validity.is_ok().then_some(Ok(known));
            };
            let version = keys.version(&issuer.keys);
            if !version.are_usable {
                return Some(Err(IdentityError::Unavailable));
            }
            return (known.generation == version.generation).then(|| validity.map(|()| known));
        }
        let rejected = self.tokens.find_rejected(cache_key)?;
        let applies = now < rejected.until && rejected.generation == keys.generation(rules);
        applies.then_some(Err(rejected.error))
    }

    /// Verifies a credential and caches the result.
    async fn verify_and_cache(
        &self,
        rules: &IdentityRules,
        presented: &PresentedCredential<'_>,
        cache_key: TokenCacheKey,
    ) -> Result<Arc<KnownToken>, IdentityError> {
        let keys = presented.keys;
        // Read first, so that a result from keys that are replaced meanwhile is not used again.
        let generation = keys.generation(rules);
        match self.verify_by_source(rules, presented).await {
            Ok(known) => {
                let known = Arc::new(known);
                self.tokens.insert(cache_key, &known);
                Ok(known)
            }
            Err(error) => {
                if is_costly(&error) {
                    let until = keys.now + REJECTED_FOR;
                    let rejected = RejectedToken { error: error.clone(), generation, until };
                    self.tokens.insert_rejected(cache_key, rejected);
                }
                Err(error)
            }
        }
    }

    /// Verifies a credential by what its kind calls for: the issuer's keys, introspection, or the
    /// file of API keys.
    async fn verify_by_source(
        &self,
        rules: &IdentityRules,
        presented: &PresentedCredential<'_>,
    ) -> Result<KnownToken, IdentityError> {
        let &PresentedCredential { ref credential, keys, .. } = presented;
        let token = credential.token.as_ref();
        let is_compact = jwt::is_compact(token);
        match &rules.introspection {
            _ if credential.kind == CredentialKind::ApiKey => {
                self.check_key(rules, token, keys.now)
            }
            // Without an issuer, every token is introspected, even one that looks like a JWT.
            Some(introspection) if !is_compact || rules.issuers.is_empty() => {
                self.introspect(rules, introspection, presented).await
            }
            None if !is_compact && rules.issuers.is_empty() => Err(TokenError::Opaque.into()),
            _ => self.verify_signed(rules, presented).await,
        }
    }

    async fn verify_signed(
        &self,
        rules: &IdentityRules,
        presented: &PresentedCredential<'_>,
    ) -> Result<KnownToken, IdentityError> {
        let &PresentedCredential { ref credential, keys, .. } = presented;
        let token = credential.token.as_ref();
        let place = credential.source.place();
        let unverified = Unverified::read(token, &rules.issuers, place)?;
        let issuer = rules.issuers.get(unverified.issuer).ok_or(TokenError::UnknownIssuer)?;
        let mut is_retry = false;
        loop {
            // Read before the keys: if they are replaced in between, the token is verified once
            // more, and never accepted by the old keys for too long.
            let generation = keys.version(&issuer.keys).generation;
            let verified = match keys.of(&issuer.keys) {
                Some(set) => unverified.verify(issuer, &set, keys.now),
                None if is_retry => return Err(IdentityError::Unavailable),
                None => Err(TokenError::UnknownKey.into()),
            };
            match verified {
                Ok(verified) => {
                    let payload = jwt::payload(token).unwrap_or_default();
                    return self.know(rules, verified, payload, generation);
                }
                Err(refusal) if refusal.error == TokenError::UnknownKey && !is_retry => {
                    keys.refresh(&issuer.keys).await;
                    // Verified again only with other keys, whichever request has fetched them.
                    // Otherwise an unknown key would cost two checks, and so take longer than a
                    // wrong signature.
                    let version = keys.version(&issuer.keys);
                    if version.are_usable && version.generation == generation {
                        return Err(refusal.into());
                    }
                    is_retry = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Introspects an opaque token.
    async fn introspect(
        &self,
        rules: &IdentityRules,
        introspection: &Introspection,
        presented: &PresentedCredential<'_>,
    ) -> Result<KnownToken, IdentityError> {
        let now = presented.keys.now;
        let token = presented.credential.token.as_ref();
        let client = self.hash_address(presented.address, Prefixes::default());
        let claims =
            match introspection.introspector.introspect(self.ring.fetcher(), client, token).await {
                Ok(IntrospectionResponse::Active(claims)) => claims,
                Ok(IntrospectionResponse::Inactive) => return Err(TokenError::Inactive.into()),
                Err(IntrospectionError::ClientLimit) => return Err(IdentityError::TooManyLookups),
                Err(error) => {
                    if self.introspection_warnings.take(now) {
                        tracing::warn!(%error, "introspection of opaque tokens failed");
                    }
                    return Err(IdentityError::Unavailable);
                }
            };
        let payload = base64url(&claims.to_json());
        let validity = TimeClaims::of(&claims)?.validity(Duration::ZERO, None);
        validity.check(now)?;
        let claims = introspection.claims.check(claims)?;
        let validity = validity.until(now + introspection.cache);
        let issuer = rules.introspection_position();
        self.know(rules, VerifiedToken { issuer, tenant: None, claims, validity }, &payload, 0)
    }

    /// Checks an API key.
    fn check_key(
        &self,
        rules: &IdentityRules,
        presented: &[u8],
        now: Timestamp,
    ) -> Result<KnownToken, IdentityError> {
        let api_keys = rules.api_keys.as_ref().ok_or(TokenError::WrongKey)?;
        let key = api_keys.keys.check(presented, now).map_err(|error| match error {
            ApiKeyError::Malformed => TokenError::MalformedKey,
            ApiKeyError::Unknown | ApiKeyError::Wrong => TokenError::WrongKey,
            ApiKeyError::Revoked => TokenError::RevokedKey,
            ApiKeyError::Expired => TokenError::Expired,
        })?;
        let token =
            VerifiedToken::trusted(rules.api_keys_position(), key.claims.clone(), key.expires);
        self.know(rules, token, &base64url(&key.claims.to_json()), 0)
    }
}

/// Whether the error was found by a signature check, a digest or introspection, which a cached
/// rejection saves.
fn is_costly(error: &IdentityError) -> bool {
    match error {
        IdentityError::NoCaller => true,
        IdentityError::Token(refusal) => matches!(
            refusal.error,
            TokenError::UnknownKey
                | TokenError::WrongSignature
                | TokenError::MissingClaim(_)
                | TokenError::MalformedClaim(_)
                | TokenError::RequiredClaim
                | TokenError::TooLongLived
                | TokenError::Inactive
                | TokenError::WrongKey
                | TokenError::WrongAudience
                | TokenError::Expired
                | TokenError::TooOld
        ),
        _ => false,
    }
}
