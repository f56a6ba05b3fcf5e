//! From a request's credentials to who sends it.
//!
//! What a good token comes to is kept, and asked for again by its digest; what a bad one comes to is
//! kept too, for a few seconds. Everything else is one step after the other, with one await: whoever
//! issued the token may have to be asked.

use std::{borrow::Cow, net::IpAddr, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue};

use super::{
    CallerKey, CallerValue, Claims, Identity, IdentityError, IdentityRules, Introspection,
    InvalidToken, KnownToken, NamedCaller, Prefixes, ResolvedCaller, TierSource, TokenCache,
    TokenError, VerifiedToken, address,
    api_keys::ApiKeyError,
    cache::{Digest, Rejected},
    credential::{Credential, Place},
    introspection::Introspected,
    issuer::Times,
    jwt::{self, Unverified},
    keys::KeyRing,
};
use crate::{
    clock::Timestamp,
    limit::KeyHasher,
    policy::{AcceptedIssuers, Auth},
};

/// What identifying a request needs besides the policy and the request.
pub struct Identifier {
    /// Tokens verified lately.
    pub tokens: TokenCache,
    /// Hashes callers for counter keys.
    pub hasher: KeyHasher,
    /// Keys that issuers publish, and the way to ask issuers.
    pub ring: KeyRing,
}

/// Whether a client may have a token verified that is not known yet, which is dear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It may.
    Full,
    /// It has shown so many bad ones that it may not.
    KnownTokens,
}

impl Identifier {
    /// Who sends a request with these headers from this address to a route with this `auth`.
    ///
    /// # Errors
    /// [`IdentityError`]; a bad token is never taken for a missing one unless the policy says so.
    pub async fn identify<'p>(
        &self,
        rules: &'p IdentityRules,
        auth: &Auth,
        client: Client<'_>,
        (trust, now): (Trust, Timestamp),
    ) -> Result<Identity<'p>, IdentityError> {
        let (accepted, is_required) = match auth {
            Auth::None => return Ok(self.without_token(rules, client.address)),
            Auth::Optional(accepted) => (accepted, false),
            Auth::Required(accepted) => (accepted, true),
        };
        let token = match rules.sources.find(client.headers, client.query) {
            Ok(None) if is_required => return Err(IdentityError::Missing),
            Ok(None) => return Ok(self.without_token(rules, client.address)),
            Ok(Some(credential)) => self.verify(rules, accepted, &credential, (trust, now)).await,
            Err(error) => Err(error.into()),
        };
        match token.map(|token| self.with_token(rules, token, client.address)) {
            Err(IdentityError::Token(_) | IdentityError::IssuerNotAccepted)
                if !is_required && rules.invalid_token == InvalidToken::Anonymous =>
            {
                let anonymous = self.without_token(rules, client.address);
                Ok(Identity { has_bad_token: true, ..anonymous })
            }
            identity => identity,
        }
    }

    /// Who pays for a token that is not good, as long as it is not known whether it is: the address,
    /// as nobody in particular or, where a bad token counts as none, as the caller without one.
    pub fn payer<'p>(
        &self,
        rules: &'p IdentityRules,
        auth: &Auth,
        address: IpAddr,
    ) -> Identity<'p> {
        match (auth, rules.invalid_token) {
            (Auth::Optional(_), InvalidToken::Anonymous) => self.without_token(rules, address),
            _ => self.unidentified(rules, address),
        }
    }

    /// Who sends a request whose token counts as verified: for rehearsals, in which nobody shows one.
    ///
    /// # Errors
    /// As [`identify`](Self::identify), for what is found out behind the verification.
    pub fn identify_verified<'p>(
        &self,
        rules: &'p IdentityRules,
        auth: &Auth,
        token: VerifiedToken,
        address: IpAddr,
    ) -> Result<Identity<'p>, IdentityError> {
        let accepted = match auth {
            Auth::None => return Ok(self.without_token(rules, address)),
            Auth::Optional(accepted) | Auth::Required(accepted) => accepted,
        };
        if !accepted.contains(token.issuer) {
            return Err(IdentityError::IssuerNotAccepted);
        }
        let payload = base64url(&token.claims.to_json());
        let known = self.know(rules, token, &payload, 0)?;
        Ok(self.with_token(rules, Arc::new(known), address))
    }

    /// Who a request is charged to whose sender could not be identified: its address, nobody else.
    pub fn unidentified<'p>(&self, rules: &'p IdentityRules, address: IpAddr) -> Identity<'p> {
        Identity { caller: None, ..self.without_token(rules, address) }
    }

    /// Keyed hash of the part of an address that is one client: the owner of counters by address.
    pub fn hash_address(&self, address: IpAddr, prefixes: Prefixes) -> u128 {
        let client = address::prefix(address, prefixes);
        let length = [client.prefix_len()];
        match client.addr() {
            IpAddr::V4(v4) => self.hasher.hash([(b'4', v4.octets().as_slice()), (b'/', &length)]),
            IpAddr::V6(v6) => self.hasher.hash([(b'6', v6.octets().as_slice()), (b'/', &length)]),
        }
    }

    async fn verify(
        &self,
        rules: &IdentityRules,
        accepted: &AcceptedIssuers,
        credential: &Credential<'_>,
        (trust, now): (Trust, Timestamp),
    ) -> Result<Arc<KnownToken>, IdentityError> {
        let digest = Digest::new(rules.id, credential)?;
        let known = match self.find(rules, &digest, now) {
            Some(known) => known?,
            None if trust == Trust::KnownTokens => return Err(IdentityError::NotTrusted),
            None => self.verify_anew(rules, credential, digest, now).await?,
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
        credential: &Credential<'_>,
        digest: Digest,
        now: Timestamp,
    ) -> Result<Arc<KnownToken>, IdentityError> {
        // First: what was found out with keys that are replaced meanwhile is found out again.
        let generation = rules.generation(now);
        match self.ask(rules, credential, now).await {
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
        credential: &Credential<'_>,
        now: Timestamp,
    ) -> Result<KnownToken, IdentityError> {
        let token = credential.token.as_ref();
        let is_compact = jwt::is_compact(token);
        match &rules.introspection {
            _ if credential.place == Place::ApiKey => self.check_key(rules, token, now),
            // Without an issuer, all tokens are opaque, whatever they look like.
            Some(asked) if !is_compact || rules.issuers.is_empty() => {
                self.introspect(rules, asked, token, now).await
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
        token: &[u8],
        now: Timestamp,
    ) -> Result<KnownToken, IdentityError> {
        let claims = match asked.introspector.ask(self.ring.fetcher(), token).await {
            Ok(Introspected::Active(claims)) => claims,
            Ok(Introspected::Inactive) => return Err(TokenError::Inactive.into()),
            Err(error) => {
                tracing::warn!(%error, "cannot ask about an opaque token");
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

    /// What a good token comes to under the rules.
    fn know(
        &self,
        rules: &IdentityRules,
        token: VerifiedToken,
        payload: &str,
        generation: u64,
    ) -> Result<KnownToken, IdentityError> {
        let named = self.name(rules, &token)?;
        let forwarded = rules.forwarded.of(&token.claims, payload);
        let told = forwarded.iter().map(|(name, value)| name.as_str().len() + value.len());
        let bytes = payload.len() + told.sum::<usize>();
        Ok(KnownToken { token, named, forwarded, generation, bytes })
    }

    /// The caller that a token names: by the first rule whose claim it has.
    fn name(
        &self,
        rules: &IdentityRules,
        token: &VerifiedToken,
    ) -> Result<Option<NamedCaller>, IdentityError> {
        let issuer = rules.issuer(token.issuer).unwrap_or_default();
        let is_key = token.issuer == rules.api_keys_at();
        let mut by_claim =
            rules.callers.iter().enumerate().filter_map(|(rule, caller)| match &caller.key {
                CallerKey::Claim(claim) if !is_key => Some((rule, caller, claim)),
                CallerKey::ApiKey(field) if is_key => Some((rule, caller, field)),
                _ => None,
            });
        let Some(first) = by_claim.next() else { return Ok(None) };
        let mut claims =
            std::iter::once(first).chain(by_claim).filter_map(|(rule, caller, claim)| {
                Some((rule, caller, claim, token.claims.lookup(claim)?))
            });
        let (rule, caller, claim, value) = claims.next().ok_or(IdentityError::NoCaller)?;
        let text = caller_value(value).ok_or(IdentityError::NoCaller)?;
        let parts = [(b'u', issuer.as_bytes()), (b'c', claim.as_bytes()), (b'v', text.as_bytes())];
        Ok(Some(NamedCaller {
            rule,
            hash: self.hasher.hash(parts),
            value: HeaderValue::from_bytes(text.as_bytes()).map_err(|_| IdentityError::NoCaller)?,
            tier: tier(rules, &caller.tier, Some(&token.claims)),
        }))
    }

    fn with_token<'p>(
        &self,
        rules: &'p IdentityRules,
        token: Arc<KnownToken>,
        address: IpAddr,
    ) -> Identity<'p> {
        let Some(named) = &token.named else {
            return Identity { token: Some(token), ..self.without_token(rules, address) };
        };
        let caller = ResolvedCaller {
            issuer: Some(token.token.issuer),
            kind: rules.callers.get(named.rule).map_or("", |caller| &caller.name),
            value: CallerValue::Claim(named.value.clone()),
            hash: named.hash,
        };
        let tier = named.tier;
        Identity { address, token: Some(token), has_bad_token: false, caller: Some(caller), tier }
    }

    fn without_token<'p>(&self, rules: &'p IdentityRules, address: IpAddr) -> Identity<'p> {
        let by_address = rules.callers.iter().find_map(|caller| match caller.key {
            CallerKey::Address { ipv6_prefix } => {
                Some((caller, Prefixes { ipv6: ipv6_prefix, ..Prefixes::default() }))
            }
            CallerKey::Claim(_) | CallerKey::ApiKey(_) => None,
        });
        let caller = by_address.map(|(caller, prefixes)| ResolvedCaller {
            issuer: None,
            kind: &caller.name,
            value: CallerValue::Address(address::prefix(address, prefixes).addr()),
            hash: self.hash_address(address, prefixes),
        });
        let source = by_address.map_or(&TierSource::Default, |(caller, _)| &caller.tier);
        let tier = tier(rules, source, None);
        Identity { address, token: None, has_bad_token: false, caller, tier }
    }
}

/// What is known of a request's sender before it is identified.
#[derive(Clone, Copy, Debug)]
pub struct Client<'r> {
    /// Its address, through trusted proxies.
    pub address: IpAddr,
    /// Its request's headers.
    pub headers: &'r HeaderMap,
    /// The query of its request's target.
    pub query: Option<&'r str>,
}

const MAX_CALLER_BYTES: usize = 256;

/// How long a token that is not good is known as such: as long as a hammering client takes to try it
/// many times, and no longer than anybody waits for a mistake to be mended.
const REJECTED_FOR: Duration = Duration::from_secs(5);

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

fn base64url(json: &str) -> String {
    URL_SAFE_NO_PAD.encode(json)
}

/// A claim as a caller's name: text or a whole number, not empty, bounded, printable.
fn caller_value(value: &serde_json::Value) -> Option<Cow<'_, str>> {
    let text = match value {
        serde_json::Value::String(text) => Cow::Borrowed(text.as_str()),
        serde_json::Value::Number(number) if !number.is_f64() => Cow::Owned(number.to_string()),
        _ => return None,
    };
    let is_usable =
        !text.is_empty() && text.len() <= MAX_CALLER_BYTES && !text.chars().any(char::is_control);
    is_usable.then_some(text)
}

/// The tier of a caller; a name that is not listed counts as none.
fn tier(rules: &IdentityRules, source: &TierSource, claims: Option<&Claims>) -> usize {
    let tiers = &rules.tiers;
    match source {
        TierSource::Default => tiers.default,
        TierSource::Fixed(tier) => *tier,
        TierSource::Claim(claim) => claims
            .and_then(|claims| claims.lookup(claim))
            .and_then(serde_json::Value::as_str)
            .and_then(|wanted| tiers.names().position(|name| name == wanted))
            .unwrap_or(tiers.default),
    }
}
