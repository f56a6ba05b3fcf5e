//! Who is calling: a verified token's subject, or an address; and the tier that comes with it.

mod address;
mod cache;
mod claims;
mod credential;
mod jwt;
mod keys;
mod sign;

use std::{
    borrow::Cow,
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use http::{HeaderMap, HeaderValue};

use crate::{
    clock::Timestamp,
    limit::KeyHasher,
    policy::{AcceptedIssuers, Auth},
};

pub use self::{
    address::{
        ForwardedField, Prefixes, TrustedProxies, canonical, canonical_network, client_address,
    },
    cache::{Digest, TokenCache},
    claims::Claims,
    credential::{Credential, CredentialError, Place, TokenSources, cookie_values},
    jwt::{Issuer, KeyHints, TokenError, VerifiedToken},
    keys::{Algorithm, KeyError, KeySet},
    sign::{SignError, SigningKey},
};

/// How a policy finds out who is calling.
pub struct IdentityRules {
    /// Tells them from all others.
    pub id: RulesId,
    /// Whose tokens are known.
    pub issuers: Vec<Issuer>,
    /// Ways to name a caller; the first that resolves wins.
    pub callers: Vec<Caller>,
    /// Classes of callers.
    pub tiers: Tiers,
    /// What becomes of a bad token where one is optional.
    pub invalid_token: InvalidToken,
    /// Where tokens come from.
    pub sources: TokenSources,
}

/// Tells the rules of one policy from those of every other, and from its own before a change: what
/// was found out under one says nothing about another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RulesId(u64);

impl RulesId {
    /// An id that no other rules have.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        RulesId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A way to name a caller.
#[derive(Clone, Debug)]
pub struct Caller {
    /// What kind of caller it is: `user`, `anonymous`.
    pub name: Box<str>,
    /// What tells one from another.
    pub key: CallerKey,
    /// Where its tier comes from.
    pub tier: TierSource,
}

/// What tells callers apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerKey {
    /// A claim of the token, by name or dotted path; with the issuer and the claim's name.
    Claim(Box<str>),
    /// The client's address; IPv6 by this prefix length.
    Address {
        /// 32 to 128.
        ipv6_prefix: u8,
    },
}

/// Where a caller's tier comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierSource {
    /// The default tier.
    Default,
    /// This one, by position.
    Fixed(usize),
    /// The tier that a claim names.
    Claim(Box<str>),
}

/// Classes of callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// In the order of the policy; limits refer to them by position.
    pub tiers: Vec<Tier>,
    /// Position of the one for callers that name none, or one that is not listed.
    pub default: usize,
}

/// A class of callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Its name.
    pub name: Box<str>,
    /// Its name as a header value.
    pub value: HeaderValue,
}

impl Tiers {
    /// One tier for everybody: a policy without a `tiers` section.
    pub fn single() -> Self {
        let tier = Tier { name: "default".into(), value: HeaderValue::from_static("default") };
        Tiers { tiers: vec![tier], default: 0 }
    }

    /// How many there are.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.tiers.len()
    }

    /// Their names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tiers.iter().map(|tier| &*tier.name)
    }

    /// The tier at a position.
    pub fn get(&self, position: usize) -> Option<&Tier> {
        self.tiers.get(position)
    }
}

/// What becomes of a bad token where one is optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidToken {
    /// The request is refused.
    Reject,
    /// The request goes on as if it had no token.
    Anonymous,
}

/// Who is calling, for one request.
#[derive(Clone)]
pub struct Identity<'p> {
    /// The client's address.
    pub address: IpAddr,
    /// The verified token, if the route looked at one.
    pub token: Option<Arc<KnownToken>>,
    /// The caller; none if no way to name one resolved, which only routes without per-caller limits
    /// allow.
    pub caller: Option<ResolvedCaller<'p>>,
    /// Position of the caller's tier.
    pub tier: usize,
}

impl Identity<'_> {
    /// A number below 100 that is always the same for a caller and a `salt`, at every proxy and after
    /// every restart: the hash has no secret.
    pub fn percentile(&self, salt: &str) -> u8 {
        let (kind, value) = match &self.caller {
            Some(caller) => (caller.kind, caller.value.to_string()),
            None => ("", self.address.to_string()),
        };
        let parts = [(b's', salt), (b'k', kind), (b'v', value.as_str())];
        let hash = KeyHasher::new([0; 16]).hash(parts.map(|(kind, part)| (kind, part.as_bytes())));
        (hash % 100) as u8
    }
}

/// A caller that has a name.
#[derive(Clone, Debug)]
pub struct ResolvedCaller<'p> {
    /// Who says so: the position of the token's issuer; none for an address.
    pub issuer: Option<usize>,
    /// What kind of caller: `user`, `anonymous`.
    pub kind: &'p str,
    /// Which one.
    pub value: CallerValue,
    /// Keyed hash of (issuer, claim, value) or of the address prefix.
    pub hash: u128,
}

/// What a caller is told apart by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerValue {
    /// A claim's value: printable, at most 256 bytes, made ready for the upstream.
    Claim(HeaderValue),
    /// An address; IPv6 the first of its prefix.
    Address(IpAddr),
}

/// A good token, and the caller that it names under a policy's rules: found out once, since asking
/// a token's claims for it costs more than everything else about a known token.
pub struct KnownToken {
    /// The token.
    pub token: VerifiedToken,
    /// None: the rules name no callers by claims, and tokens only open the door.
    named: Option<NamedCaller>,
}

struct NamedCaller {
    /// Position of the rule that named it.
    rule: usize,
    value: HeaderValue,
    hash: u128,
    tier: usize,
}

impl fmt::Display for CallerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallerValue::Claim(value) => f.write_str(&String::from_utf8_lossy(value.as_bytes())),
            CallerValue::Address(address) => address.fmt(f),
        }
    }
}

/// Why nobody could be identified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The route needs a token and the request shows none.
    #[error("no token")]
    Missing,
    /// The request's credentials cannot be read as one token.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The token is not good.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The token is good, but the route takes no tokens of its issuer.
    #[error("the token's issuer is not accepted here")]
    IssuerNotAccepted,
    /// The token names no caller, or in a form that cannot be one.
    #[error("the token names no caller")]
    NoCaller,
}

/// What identifying a request needs besides the policy and the request.
pub struct Identifier {
    /// Tokens verified lately.
    pub tokens: TokenCache,
    /// Hashes callers for counter keys.
    pub hasher: KeyHasher,
}

impl Identifier {
    /// Who sends a request with these headers from this address to a route with this `auth`.
    ///
    /// # Errors
    /// [`IdentityError`]; a bad token is never taken for a missing one unless the policy says so.
    pub fn identify<'p>(
        &self,
        rules: &'p IdentityRules,
        auth: &Auth,
        client: Client<'_>,
        now: Timestamp,
    ) -> Result<Identity<'p>, IdentityError> {
        let (accepted, is_required) = match auth {
            Auth::None => return Ok(self.without_token(rules, client.address)),
            Auth::Optional(accepted) => (accepted, false),
            Auth::Required(accepted) => (accepted, true),
        };
        let token = match rules.sources.find(client.headers) {
            Ok(None) if is_required => return Err(IdentityError::Missing),
            Ok(None) => return Ok(self.without_token(rules, client.address)),
            Ok(Some(credential)) => self.verify(rules, accepted, credential, now),
            Err(error) => Err(error.into()),
        };
        match token.map(|token| self.with_token(rules, token, client.address)) {
            Err(IdentityError::Token(_) | IdentityError::IssuerNotAccepted)
                if !is_required && rules.invalid_token == InvalidToken::Anonymous =>
            {
                Ok(self.without_token(rules, client.address))
            }
            identity => identity,
        }
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

    fn verify(
        &self,
        rules: &IdentityRules,
        accepted: &AcceptedIssuers,
        credential: Credential<'_>,
        now: Timestamp,
    ) -> Result<Arc<KnownToken>, IdentityError> {
        let digest = Digest::new(rules.id, credential.token)?;
        let known = match self.tokens.find(&digest) {
            Some(known) => {
                known.token.is_current(now)?;
                known
            }
            None => {
                let token = jwt::verify(credential.token, &rules.issuers, now)?;
                let named = self.name(rules, &token)?;
                let known = Arc::new(KnownToken { token, named });
                self.tokens.remember(digest, &known, credential.token.len());
                known
            }
        };
        match accepted.contains(known.token.issuer) {
            true => Ok(known),
            false => Err(IdentityError::IssuerNotAccepted),
        }
    }

    /// The caller that a token names: by the first rule whose claim it has.
    fn name(
        &self,
        rules: &IdentityRules,
        token: &VerifiedToken,
    ) -> Result<Option<NamedCaller>, IdentityError> {
        let issuer = rules.issuers.get(token.issuer).map_or("", |issuer| &issuer.issuer);
        let mut by_claim =
            rules.callers.iter().enumerate().filter_map(|(rule, caller)| match &caller.key {
                CallerKey::Claim(claim) => Some((rule, caller, claim)),
                CallerKey::Address { .. } => None,
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
        Identity { address, token: Some(token), caller: Some(caller), tier }
    }

    fn without_token<'p>(&self, rules: &'p IdentityRules, address: IpAddr) -> Identity<'p> {
        let by_address = rules.callers.iter().find_map(|caller| match caller.key {
            CallerKey::Address { ipv6_prefix } => {
                Some((caller, Prefixes { ipv6: ipv6_prefix, ..Prefixes::default() }))
            }
            CallerKey::Claim(_) => None,
        });
        let caller = by_address.map(|(caller, prefixes)| ResolvedCaller {
            issuer: None,
            kind: &caller.name,
            value: CallerValue::Address(address::prefix(address, prefixes).addr()),
            hash: self.hash_address(address, prefixes),
        });
        let source = by_address.map_or(&TierSource::Default, |(caller, _)| &caller.tier);
        Identity { address, token: None, caller, tier: tier(rules, source, None) }
    }
}

/// What is known of a request's sender before it is identified.
#[derive(Clone, Copy, Debug)]
pub struct Client<'r> {
    /// Its address, through trusted proxies.
    pub address: IpAddr,
    /// Its request's headers.
    pub headers: &'r HeaderMap,
}

const MAX_CALLER_BYTES: usize = 256;

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
