//! From a credential to a token that can be believed.
//!
//! What a good token comes to is kept, and asked for again by its digest; what a bad one comes to is
//! kept too, for a few seconds. Everything else is one step after the other, with one await: whoever
//! issued the token may have to be asked.

use std::{net::IpAddr, sync::Arc, time::Duration};

use super::{Identifier, base64url};
use crate::{
    clock::Timestamp,
    identity::{
        AcceptedIssuers, IdentityError, IdentityRules, Introspection, IntrospectionError,
        KnownToken, Prefixes, TokenError, VerifiedToken,
        api_keys::ApiKeyError,
        cache::{Digest, Rejected},
        credential::{Credential, CredentialKind},
        introspection::Introspected,
        issuer::Times,
        jwt::{self, Unverified},
    },
};

/// How long a token that is not good is known as such: as long as a hammering client takes to try it
/// many times, and no longer than anybody waits for a mistake to be mended.
const REJECTED_FOR: Duration = Duration::from_secs(5);

/// Time between two complaints in the log about issuers that cannot be asked.
pub(super) const COMPLAINT_PAUSE: Duration = Duration::from_secs(1);

/// A credential, and who shows it when.
pub(super) struct Shown<'s> {
    pub(super) credential: Credential<'s>,
    /// Of the client.
    pub(super) address: IpAddr,
    pub(super) now: Timestamp,
}

impl Identifier {
    /// What a credential comes to under the rules, if it is good and its issuer accepted.
    pub(super) async fn verify<P>(
        &self,
        rules: &IdentityRules,
        accepted: &AcceptedIssuers,
        shown: &Shown<'_>,
        permit: impl FnOnce() -> Option<P>,
    ) -> Result<Arc<KnownToken>, IdentityError> {
        let &Shown { ref credential, now, .. } = shown;
        let digest = Digest::new(rules.id, credential)?;
        let known = match self.find(rules, &digest, now) {
            Some(known) => known?,
            None => {
                let _permit = permit().ok_or(IdentityError::NotTrusted)?;
                self.verify_anew(rules, shown, digest).await?
            }
        };
        match accepted.contains(known.token.issuer) {
            true => Ok(known),
            false => Err(IdentityError::IssuerNotAccepted),
        }
    }

    /// What is known of a token from before.
    fn find(
        &self,
        rules: &IdentityRules,
        digest: &Digest,
        now: Timestamp,
    ) -> Option<Result<Arc<KnownToken>, IdentityError>> {
        if let Some(known) = self.tokens.find(digest) {
            let named = known.named.as_ref();
            if named.is_some_and(|named| named.hashed_under != self.hasher.version()) {
                return None;
            }
            let verdict = known.token.is_current(now).map_err(Into::into);
            let Some(issuer) = rules.issuers.get(known.token.issuer) else {
                // An answer about an opaque token is asked for again when it has grown old.
                return verdict.is_ok().then_some(Ok(known));
            };
            let (generation, are_known) = issuer.keys.standing(now);
            if !are_known {
                return Some(Err(IdentityError::Unavailable));
            }
            return (known.generation == generation).then(|| verdict.map(|()| known));
        }
        let rejected = self.tokens.find_rejected(digest)?;
        let holds = now < rejected.until && rejected.generation == rules.generation(now);
        holds.then_some(Err(rejected.error))
    }

    /// Finds out, and keeps what came of it.
    async fn verify_anew(
        &self,
        rules: &IdentityRules,
        shown: &Shown<'_>,
        digest: Digest,
    ) -> Result<Arc<KnownToken>, IdentityError> {
        let now = shown.now;
        // First: what was found out with keys that are replaced meanwhile is found out again.
        let generation = rules.generation(now);
        match self.ask(rules, shown).await {
            Ok(known) => {
                let known = Arc::new(known);
                self.tokens.remember(digest, &known);
                Ok(known)
            }
            Err(error) => {
                if is_dear(&error) {
                    let (error, until) = (error.clone(), now + REJECTED_FOR);
                    self.tokens.reject(digest, Rejected { error, generation, until });
                }
                Err(error)
            }
        }
    }

    /// Asks whoever knows about the token: the issuer's key, the issuer, or the file of keys.
    async fn ask(
        &self,
        rules: &IdentityRules,
        shown: &Shown<'_>,
    ) -> Result<KnownToken, IdentityError> {
        let &Shown { ref credential, now, .. } = shown;
        let token = credential.token.as_ref();
        let is_compact = jwt::is_compact(token);
        match &rules.introspection {
            _ if credential.kind == CredentialKind::ApiKey => self.check_key(rules, token, now),
            // Without an issuer, all tokens are opaque, whatever they look like.
            Some(asked) if !is_compact || rules.issuers.is_empty() => {
                self.introspect(rules, asked, shown).await
            }
            None if !is_compact && rules.issuers.is_empty() => Err(TokenError::Opaque.into()),
            _ => self.verify_signed(rules, token, now).await,
        }
    }

    async fn verify_signed(
        &self,
        rules: &IdentityRules,
        token: &[u8],
        now: Timestamp,
    ) -> Result<KnownToken, IdentityError> {
        let unverified = Unverified::read(token, &rules.issuers)?;
        let issuer = rules.issuers.get(unverified.issuer).ok_or(TokenError::UnknownIssuer)?;
        let mut tried = None;
        loop {
            // First: keys that come in between make it one that is verified again, not one that is
            // believed for too long.
            let (generation, _) = issuer.keys.standing(now);
            let is_again = tried.replace(generation);
            let verdict = match issuer.keys.current(now) {
                Some(keys) => unverified.verify(issuer, &keys, now),
                None if is_again.is_some() => return Err(IdentityError::Unavailable),
                None => Err(TokenError::UnknownKey),
            };
            match verdict {
                Ok(verified) => {
                    let payload = jwt::payload(token).unwrap_or_default();
                    return self.know(rules, verified, payload, generation);
                }
                Err(TokenError::UnknownKey) if is_again.is_none() => {
                    issuer.keys.refresh(now).await;
                    // Other keys, be it that somebody else has had them fetched: else an unknown key
                    // would cost two checks, and take longer than a wrong signature.
                    let (current, are_known) = issuer.keys.standing(now);
                    if are_known && current == generation {
                        return Err(TokenError::UnknownKey.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Asks whoever issued an opaque token about it.
    async fn introspect(
        &self,
        rules: &IdentityRules,
        asked: &Introspection,
        shown: &Shown<'_>,
    ) -> Result<KnownToken, IdentityError> {
        let (now, token) = (shown.now, shown.credential.token.as_ref());
        let client = self.hash_address(shown.address, Prefixes::default());
        let claims = match asked.introspector.ask(self.ring.fetcher(), client, token).await {
            Ok(Introspected::Active(claims)) => claims,
            Ok(Introspected::Inactive) => return Err(TokenError::Inactive.into()),
            Err(IntrospectionError::Crowded) => return Err(IdentityError::Crowded),
            Err(error) => {
                if self.complaints.take(now) {
                    tracing::warn!(%error, "cannot ask about opaque tokens");
                }
                return Err(IdentityError::Unavailable);
            }
        };
        let payload = base64url(&claims.to_json());
        let validity = Times::of(&claims)?.validity(Duration::ZERO, None);
        validity.check(now)?;
        let claims = asked.claims.check(claims)?;
        let validity = validity.until(now + asked.cache);
        let issuer = rules.introspection_at();
        self.know(rules, VerifiedToken { issuer, claims, validity }, &payload, 0)
    }

    /// Checks an API key.
    fn check_key(
        &self,
        rules: &IdentityRules,
        shown: &[u8],
        now: Timestamp,
    ) -> Result<KnownToken, IdentityError> {
        let api_keys = rules.api_keys.as_ref().ok_or(TokenError::WrongKey)?;
        let key = api_keys.keys.check(shown, now).map_err(|error| match error {
            ApiKeyError::Malformed => TokenError::MalformedKey,
            ApiKeyError::Unknown | ApiKeyError::Wrong => TokenError::WrongKey,
            ApiKeyError::Revoked => TokenError::RevokedKey,
            ApiKeyError::Expired => TokenError::Expired,
        })?;
        let token = VerifiedToken::vouched(rules.api_keys_at(), key.claims.clone(), key.expires);
        self.know(rules, token, &base64url(&key.claims.to_json()), 0)
    }
}

/// Whether it took a signature check, or a question to the issuer, to find out.
fn is_dear(error: &IdentityError) -> bool {
    match error {
        IdentityError::NoCaller => true,
        IdentityError::Token(error) => matches!(
            error,
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
