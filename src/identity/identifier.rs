//! From a request's credentials to who sends it.
//!
//! Whether the credentials are good is found out in [`verify`]; here it is found out whose they are.

mod verify;

use std::{borrow::Cow, net::IpAddr, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue};

use self::verify::Shown;
use super::{
    Caller, CallerKey, CallerValue, Claims, ClientCertificate, Identity, IdentityError,
    IdentityRules, InvalidToken, KnownToken, NamedCaller, Prefixes, ResolvedCaller, TierSource,
    TokenCache, VerifiedToken, Vouched, address, keys::KeyRing, texts,
};
use crate::{
    clock::{Throttle, Timestamp},
    identity::{AcceptedIssuers, Auth},
    limit::Hashing,
};

/// What identifying a request needs besides the policy and the request.
pub struct Identifier {
    /// Tokens verified lately.
    pub tokens: TokenCache,
    /// Hashes callers for counter keys.
    pub hasher: Hashing,
    /// Keys that issuers publish, and the way to ask issuers.
    pub ring: KeyRing,
    /// How often it is logged that one cannot be asked.
    complaints: Throttle,
    /// How often it is logged that nothing can be counted by a claim.
    pub unfit_claims: Throttle,
}

/// Who has not seen it does within the minute; who shows such tokens fills no log.
const UNFIT_CLAIM_PAUSE: Duration = Duration::from_secs(60);

impl Identifier {
    /// With room for so many bytes of tokens, and these keys of hashes and issuers.
    pub fn new(token_cache_bytes: u64, hasher: Hashing, ring: KeyRing) -> Self {
        let tokens = TokenCache::new(token_cache_bytes);
        let complaints = Throttle::new(verify::COMPLAINT_PAUSE);
        let unfit_claims = Throttle::new(UNFIT_CLAIM_PAUSE);
        Identifier { tokens, hasher, ring, complaints, unfit_claims }
    }

    /// Who sends a request with these headers from this address to a route with this `auth`. A token
    /// that is not known yet is dear to verify: `permit` is asked whether it may be, and what it gives
    /// is held meanwhile.
    ///
    /// # Errors
    /// [`IdentityError`]; a bad token is never taken for a missing one unless the policy says so.
    pub async fn identify<'p, P>(
        &self,
        rules: &'p IdentityRules,
        auth: &Auth,
        client: Client<'_>,
        now: Timestamp,
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
                let shown = Shown { credential, address: client.address, now };
                self.verify(rules, accepted, &shown, permit).await
            }
            Err(error) => Err(error.into()),
        };
        self.admit(rules, token, (client, is_required))
    }

    /// Who sends a request without a token where one is required: a certificate by which the rules name
    /// callers is as good, unless the token has to be of certain issuers.
    fn with_certificate<'p>(
        &self,
        rules: &'p IdentityRules,
        accepted: &AcceptedIssuers,
        client: Client<'_>,
    ) -> Result<Identity<'p>, IdentityError> {
        if client.certificate.is_none() || *accepted != AcceptedIssuers::All {
            return Err(IdentityError::Missing);
        }
        let identity = self.without_token(rules, client);
        let is_certified = identity
            .caller
            .as_ref()
            .is_some_and(|caller| matches!(caller.value, CallerValue::Certificate(_)));
        if is_certified { Ok(identity) } else { Err(IdentityError::Missing) }
    }

    /// Who pays for a token that is not good, as long as it is not known whether it is: the address,
    /// as nobody in particular or, where a bad token counts as none, as the caller without one.
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

    /// Who sends a request whose token counts as verified: for rehearsals, in which nobody shows one.
    ///
    /// # Errors
    /// As [`identify`](Self::identify), for what is found out behind the verification.
    pub fn identify_verified<'p>(
        &self,
        rules: &'p IdentityRules,
        auth: &Auth,
        token: Vouched,
        (client, now): (Client<'_>, Timestamp),
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
            match accepted.contains(known.token.issuer) {
                true => Ok(Arc::new(known)),
                false => Err(IdentityError::IssuerNotAccepted),
            }
        });
        self.admit(rules, known, (client, is_required))
    }

    /// Who sends a request with such a token, or without one if that is what a bad one counts as.
    fn admit<'p>(
        &self,
        rules: &'p IdentityRules,
        token: Result<Arc<KnownToken>, IdentityError>,
        (client, is_required): (Client<'_>, bool),
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

    /// Who a request is charged to whose sender could not be identified: its address, nobody else.
    pub fn unidentified<'p>(&self, rules: &'p IdentityRules, address: IpAddr) -> Identity<'p> {
        Identity {
            address,
            token: None,
            has_bad_token: false,
            caller: None,
            tier: tier_by_address(rules),
        }
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
        // First: a hash under a secret that is replaced meanwhile is made again.
        let hashed_under = self.hasher.version();
        Ok(Some(NamedCaller {
            rule,
            hash: self.hasher.hash(parts),
            hashed_under,
            value: HeaderValue::from_bytes(text.as_bytes()).map_err(|_| IdentityError::NoCaller)?,
            tier: tier(rules, &caller.tier, Some(&token.claims)),
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
            kind: rules.callers.get(named.rule).map_or("", |caller| &caller.name),
            value: CallerValue::Claim(named.value.clone()),
            hash: named.hash,
        };
        let (address, tier) = (client.address, named.tier);
        Identity { address, token: Some(token), has_bad_token: false, caller: Some(caller), tier }
    }

    fn without_token<'p>(&self, rules: &'p IdentityRules, client: Client<'_>) -> Identity<'p> {
        let address = client.address;
        let found = by_address(rules);
        if let Some((rule, identity)) = self.by_certificate(rules, client)
            && found.is_none_or(|(own, ..)| rule < own)
        {
            return identity;
        }
        let caller = found.map(|(_, caller, prefixes)| ResolvedCaller {
            issuer: None,
            kind: &caller.name,
            value: CallerValue::Address(address::prefix(address, prefixes).addr()),
            hash: self.hash_address(address, prefixes),
        });
        let tier = tier_by_address(rules);
        Identity { address, token: None, has_bad_token: false, caller, tier }
    }

    /// Whom the client's certificate names, by the first rule that it has a name for, and the
    /// position of that.
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
        let (at, rule, which, name) = named.next()?;
        let parts = [
            (b'x', certificate.issuer()),
            (b'c', which.word().as_bytes()),
            (b'v', name.as_bytes()),
        ];
        let caller = ResolvedCaller {
            issuer: None,
            kind: &rule.name,
            value: CallerValue::Certificate(name.into()),
            hash: self.hasher.hash(parts),
        };
        let tier = tier(rules, &rule.tier, None);
        let (address, caller) = (client.address, Some(caller));
        Some((at, Identity { address, token: None, has_bad_token: false, caller, tier }))
    }
}

/// How callers are told apart by their address: the rule and its position.
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

/// What is known of a request's sender before it is identified.
#[derive(Clone, Copy, Debug)]
pub struct Client<'r> {
    /// Its address, through trusted proxies.
    pub address: IpAddr,
    /// What its certificate says of it, if it has shown one.
    pub certificate: Option<&'r ClientCertificate>,
    /// Its request's headers.
    pub headers: &'r HeaderMap,
    /// The query of its request's target.
    pub query: Option<&'r str>,
}

const MAX_CALLER_BYTES: usize = 256;

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
    is_caller_text(&text).then_some(text)
}

/// Whether a text may be a caller's name: not empty, bounded, printable.
pub(super) fn is_caller_text(text: &str) -> bool {
    // Spaces around a field's value are no part of it (RFC 9110 section 5.5): to the upstream, who is
    // called so would be somebody else.
    !text.is_empty()
        && text.len() <= MAX_CALLER_BYTES
        && text.trim() == text
        && !text.chars().any(char::is_control)
}

/// The tier of a caller; a name that is not listed counts as none.
fn tier(rules: &IdentityRules, source: &TierSource, claims: Option<&Claims>) -> usize {
    let claim = source.claim().and_then(|claim| claims?.lookup(claim));
    source.tier(texts(claim), &rules.tiers)
}
