//! Identifies the sender of a request by its credentials.
//!
//! The credentials are verified in [`verify`]; this file finds the caller and the tier that they
//! name.

mod by_name;
mod verify;

use std::{net::IpAddr, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue};

pub use self::by_name::{CallerByName, ClaimsIssuer, NameError, WholeName, WhoseWord};
use tollgate_clock::{Throttle, Timestamp};
use tollgate_limit::Hashing;

use self::verify::PresentedCredential;
use super::{
    AssumedToken, Caller, CallerKey, CallerValue, Claims, ClientCertificate, CurrentKeys, Identity,
    IdentityError, IdentityRules, InvalidToken, KnownToken, Prefixes, ResolvedCaller, TierSource,
    TokenCache, VerifiedToken, address, caller_text::caller_value, keys::KeyRing,
    known_token::NamedCaller, texts,
};
use crate::{AcceptedTokens, Auth};

/// Identifies the callers of requests. Holds the state for this besides the policy and the request.
pub struct Identifier {
    /// Cached tokens.
    pub tokens: TokenCache,
    /// Hashes callers for counter keys.
    pub hasher: Hashing,
    /// The keys that issuers publish, and the fetcher for requests to issuers.
    pub ring: KeyRing,
    /// Bounds how often failed introspection is logged.
    introspection_warnings: Throttle,
    /// Bounds how often a claim that cannot be a limit's key is logged.
    pub unfit_claims: Throttle,
    /// Bounds how often a claim is logged that names a tier which there is not.
    pub unknown_tiers: Throttle,
}

/// Time between two log lines about such claims: often enough to be noticed, seldom enough that
/// clients cannot fill the log.
const UNFIT_CLAIM_PAUSE: Duration = Duration::from_secs(60);

impl Identifier {
    /// An identifier with a cache for this many bytes of tokens.
    pub fn new(token_cache_bytes: u64, hasher: Hashing, ring: KeyRing) -> Self {
        let tokens = TokenCache::new(token_cache_bytes);
        let introspection_warnings = Throttle::new(verify::INTROSPECTION_WARNING_PAUSE);
        let unfit_claims = Throttle::new(UNFIT_CLAIM_PAUSE);
        let unknown_tiers = Throttle::new(UNFIT_CLAIM_PAUSE);
        Identifier { tokens, hasher, ring, introspection_warnings, unfit_claims, unknown_tiers }
    }

    /// Identifies the sender of a request to a route with this `auth`, by the keys of an instant. A
    /// token that is not cached is costly to verify: `permit` returns permission to do so, which is
    /// held meanwhile, or none.
    ///
    /// # Errors
    /// [`IdentityError`]; a bad token counts as a missing one only if the policy says so.
    pub async fn identify<'p, P>(
        &self,
        rules: &'p IdentityRules,
        auth: &Auth,
        client: Client<'_>,
        keys: CurrentKeys<'_>,
        permit: impl FnOnce() -> Option<P>,
    ) -> Result<Identity<'p>, IdentityError> {
        let (accepted, is_required) = match auth {
            Auth::None => return Ok(self.without_token(rules, client)),
            Auth::Optional(accepted) => (accepted, false),
            Auth::Required(accepted) => (accepted, true),
        };
        let token = match rules.sources.find(client.headers, client.query) {
            Ok(None) if is_required => return self.with_certificate(rules, accepted, client),
            Ok(None) => return Ok(self.without_token(rules, client)),
            Ok(Some(credential)) => {
                let presented = PresentedCredential { credential, address: client.address, keys };
                self.verify(rules, accepted, &presented, permit).await
            }
            Err(error) => Err(error.into()),
        };
        self.admit(rules, token, client, is_required)
    }

    /// Identifies the sender of a request without a token where one is required. A client
    /// certificate that the rules identify callers by is enough, unless the route accepts only
    /// certain issuers or audiences.
    fn with_certificate<'p>(
        &self,
        rules: &'p IdentityRules,
        accepted: &AcceptedTokens,
        client: Client<'_>,
    ) -> Result<Identity<'p>, IdentityError> {
        if client.certificate.is_none() || *accepted != AcceptedTokens::ALL {
            return Err(IdentityError::Missing);
        }
        let identity = self.without_token(rules, client);
        let is_certified = identity
            .caller
            .as_ref()
            .is_some_and(|caller| matches!(caller.value, CallerValue::Certificate(_)));
        if is_certified { Ok(identity) } else { Err(IdentityError::Missing) }
    }

    /// The identity that is charged for a token before it is verified: the unidentified client at
    /// its address or, where a bad token counts as none, the caller without a token.
    pub fn payer<'p>(
        &self,
        rules: &'p IdentityRules,
        auth: &Auth,
        client: Client<'_>,
    ) -> Identity<'p> {
        match (auth, rules.invalid_token) {
            (Auth::Optional(_), InvalidToken::Anonymous) => self.without_token(rules, client),
            _ => self.unidentified(rules, client.address),
        }
    }

    /// Identifies the sender of a request whose token is assumed to be verified, for dry runs.
    ///
    /// # Errors
    /// As [`identify`](Self::identify), but for errors of verification.
    pub fn identify_verified<'p>(
        &self,
        rules: &'p IdentityRules,
        auth: &Auth,
        token: AssumedToken,
        client: Client<'_>,
        now: Timestamp,
    ) -> Result<Identity<'p>, IdentityError> {
        let (accepted, is_required) = match auth {
            Auth::None => return Ok(self.without_token(rules, client)),
            Auth::Optional(accepted) => (accepted, false),
            Auth::Required(accepted) => (accepted, true),
        };
        let known = token.map_err(IdentityError::from).and_then(|token| {
            token.is_current(now)?;
            let payload = base64url(&token.claims.to_json());
            let known = self.know(rules, token, &payload, 0)?;
            accepted.check(&known.token)?;
            Ok(Arc::new(known))
        });
        self.admit(rules, known, client, is_required)
    }

    /// The identity by a verified token, or the one without a token if a bad token counts as none.
    fn admit<'p>(
        &self,
        rules: &'p IdentityRules,
        token: Result<Arc<KnownToken>, IdentityError>,
        client: Client<'_>,
        is_required: bool,
    ) -> Result<Identity<'p>, IdentityError> {
        match token.map(|token| self.with_token(rules, token, client)) {
            Err(IdentityError::Token(_) | IdentityError::IssuerNotAccepted)
                if !is_required && rules.invalid_token == InvalidToken::Anonymous =>
            {
                let anonymous = self.without_token(rules, client);
                Ok(Identity { has_bad_token: true, ..anonymous })
            }
            identity => identity,
        }
    }

    /// The identity of a sender that could not be identified: only its address.
    pub fn unidentified<'p>(&self, rules: &'p IdentityRules, address: IpAddr) -> Identity<'p> {
        Identity {
            address,
            token: None,
            has_bad_token: false,
            caller: None,
            tier: tier_by_address(rules),
        }
    }

    /// Keyed hash of the prefix of an address that is one client, for counters by address.
    pub fn hash_address(&self, address: IpAddr, prefixes: Prefixes) -> u128 {
        let client = address::prefix(address, prefixes);
        let length = [client.prefix_len()];
        match client.addr() {
            IpAddr::V4(v4) => self.hasher.hash([(b'4', v4.octets().as_slice()), (b'/', &length)]),
            IpAddr::V6(v6) => self.hasher.hash([(b'6', v6.octets().as_slice()), (b'/', &length)]),
        }
    }

    /// Looks up what the rules make of a verified token.
    fn know(
        &self,
        rules: &IdentityRules,
        token: VerifiedToken,
        payload: &str,
        generation: u64,
    ) -> Result<KnownToken, IdentityError> {
        let named = self.name(rules, &token)?;
        let forwarded = rules.forwarded.of(&token.claims, payload);
        let header_bytes = forwarded.iter().map(|(name, value)| name.as_str().len() + value.len());
        let bytes = payload.len() + header_bytes.sum::<usize>();
        Ok(KnownToken { token, named, forwarded, generation, bytes })
    }

    /// The caller that a token names, by the first rule whose claim it has.
    fn name(
        &self,
        rules: &IdentityRules,
        token: &VerifiedToken,
    ) -> Result<Option<NamedCaller>, IdentityError> {
        let issuer = rules.issuer_id_of(token).unwrap_or_default();
        let is_key = token.issuer == rules.api_keys_position();
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
        // Read first: if the secret is replaced meanwhile, the hash is computed again at the next
        // use.
        let hashed_under = self.hasher.version();
        let value =
            HeaderValue::from_bytes(text.as_bytes()).map_err(|_| IdentityError::NoCaller)?;
        let resolved = ResolvedCaller {
            issuer: Some(token.issuer),
            tenant: token.tenant.clone(),
            kind: &caller.name,
            hash: hash_claim(&self.hasher, issuer, claim, text.as_bytes()),
            value: CallerValue::Claim(value),
        };
        Ok(Some(NamedCaller {
            rule,
            hash: resolved.hash,
            hashed_under,
            name: resolved.name_field(rules),
            value: resolved.value,
            tier: tier(rules, &caller.tier, Some(&token.claims)),
            is_tier_unknown: is_tier_unknown(rules, &caller.tier, &token.claims),
        }))
    }

    fn with_token<'p>(
        &self,
        rules: &'p IdentityRules,
        token: Arc<KnownToken>,
        client: Client<'_>,
    ) -> Identity<'p> {
        let Some(named) = &token.named else {
            return Identity { token: Some(token), ..self.without_token(rules, client) };
        };
        if let Some((rule, identity)) = self.by_certificate(rules, client)
            && rule < named.rule
        {
            return Identity { token: Some(token), ..identity };
        }
        let caller = ResolvedCaller {
            issuer: Some(token.token.issuer),
            tenant: token.token.tenant.clone(),
            kind: rules.callers.get(named.rule).map_or("", |caller| &caller.name),
            value: named.value.clone(),
            hash: named.hash,
        };
        Identity {
            address: client.address,
            tier: named.tier,
            token: Some(token),
            has_bad_token: false,
            caller: Some(caller),
        }
    }

    pub(super) fn without_token<'p>(
        &self,
        rules: &'p IdentityRules,
        client: Client<'_>,
    ) -> Identity<'p> {
        let address = client.address;
        let found = by_address(rules);
        if let Some((rule, identity)) = self.by_certificate(rules, client)
            && found.is_none_or(|(own, ..)| rule < own)
        {
            return identity;
        }
        let caller = found.map(|(_, caller, prefixes)| ResolvedCaller {
            issuer: None,
            tenant: None,
            kind: &caller.name,
            value: CallerValue::Address(address::prefix(address, prefixes).addr()),
            hash: self.hash_address(address, prefixes),
        });
        let tier = tier_by_address(rules);
        Identity { address, token: None, has_bad_token: false, caller, tier }
    }

    /// The identity by the client's certificate, by the first rule that it has a name for, and the
    /// position of that rule.
    fn by_certificate<'p>(
        &self,
        rules: &'p IdentityRules,
        client: Client<'_>,
    ) -> Option<(usize, Identity<'p>)> {
        let certificate = client.certificate?;
        let mut named = rules.callers.iter().enumerate().filter_map(|(at, rule)| match rule.key {
            CallerKey::Certificate(which) => Some((at, rule, which, certificate.name(which)?)),
            _ => None,
        });
        let (position, rule, which, name) = named.next()?;
        let parts = [
            (b'x', certificate.issuer()),
            (b'c', which.keyword().as_bytes()),
            (b'v', name.as_bytes()),
        ];
        let caller = ResolvedCaller {
            issuer: None,
            tenant: None,
            kind: &rule.name,
            value: CallerValue::Certificate(name.into()),
            hash: self.hasher.hash(parts),
        };
        let tier = tier(rules, &rule.tier, None);
        let identity = Identity {
            address: client.address,
            token: None,
            has_bad_token: false,
            caller: Some(caller),
            tier,
        };
        Some((position, identity))
    }
}

/// Keyed hash of a caller that a claim names: what two issuers say alike is not the same.
fn hash_claim(hasher: &Hashing, issuer: &str, claim: &str, value: &[u8]) -> u128 {
    hasher.hash([(b'u', issuer.as_bytes()), (b'c', claim.as_bytes()), (b'v', value)])
}

/// The rule that names callers by their address, and its position.
fn by_address(rules: &IdentityRules) -> Option<(usize, &Caller, Prefixes)> {
    rules.callers.iter().enumerate().find_map(|(at, caller)| match caller.key {
        CallerKey::Address { ipv6_prefix } => {
            Some((at, caller, Prefixes { ipv6: ipv6_prefix, ..Prefixes::default() }))
        }
        CallerKey::Claim(_) | CallerKey::ApiKey(_) | CallerKey::Certificate(_) => None,
    })
}

fn tier_by_address(rules: &IdentityRules) -> usize {
    let source = by_address(rules).map_or(&TierSource::Default, |(_, caller, _)| &caller.tier);
    tier(rules, source, None)
}

/// The sender of a request before it is identified.
#[derive(Clone, Copy, Debug)]
pub struct Client<'r> {
    /// Its address, as reported by trusted proxies.
    pub address: IpAddr,
    /// Its certificate, if it has sent one.
    pub certificate: Option<&'r ClientCertificate>,
    /// Its request's headers.
    pub headers: &'r HeaderMap,
    /// The query of its request.
    pub query: Option<&'r str>,
}

fn base64url(json: &str) -> String {
    URL_SAFE_NO_PAD.encode(json)
}

fn is_tier_unknown(rules: &IdentityRules, source: &TierSource, claims: &Claims) -> bool {
    let claim = source.claim().and_then(|claim| claims.lookup(claim));
    source.is_unknown(texts(claim), &rules.tiers)
}

/// The tier of a caller. A tier name that the policy does not list counts as none.
pub(super) fn tier(rules: &IdentityRules, source: &TierSource, claims: Option<&Claims>) -> usize {
    let claim = source.claim().and_then(|claim| claims?.lookup(claim));
    source.tier(texts(claim), &rules.tiers)
}
