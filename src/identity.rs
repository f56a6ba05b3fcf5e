//! Who is calling: a verified token's subject, or an address; and the tier that comes with it.

mod address;
mod api_keys;
mod auth;
mod cache;
mod certificate;
mod claims;
mod cookies;
mod credential;
mod fetch;
mod forwarded;
mod identifier;
mod introspection;
mod issuer;
mod jwt;
mod keys;
mod networks;
mod sign;
mod tiers;
mod vouch;

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue};

use crate::{clock::Timestamp, limit::KeyHasher};

pub use self::{
    address::{
        ForwardedField, Prefixes, TrustedProxies, address_behind, canonical, canonical_network,
        client_address,
    },
    api_keys::{ApiKey, ApiKeyError, ApiKeys, MAX_API_KEYS_BYTES, MintError, MintedKey, NewKey},
    auth::{AcceptedIssuers, Auth},
    cache::{Digest, TokenCache},
    certificate::{CertificateName, ClientCertificate},
    claims::Claims,
    cookies::{AmbiguousCookie, cookie_to_count, unescaped_cookie},
    credential::{
        Credential, CredentialError, CredentialKind, KNOWN_NAMES, OtherSchemes, Place, Scheme,
        TokenSources,
    },
    fetch::{Endpoint, EndpointError, FetchError, Fetcher},
    forwarded::ForwardedClaims,
    identifier::{Client, Identifier},
    introspection::{Introspected, IntrospectionError, Introspector},
    issuer::{ClaimRules, Issuer, IssuerKeys, KeyHints, RequiredClaim},
    jwt::{TokenError, VerifiedToken},
    keys::{
        Algorithm, KeyError, KeyRing, KeySet, Location, PublicJwk, RemoteKeys, RemoteSpec,
        RemoteStatus, jwk_set,
    },
    networks::{IpVersion, holds_private, is_private, whole_internet},
    sign::{SignError, SigningKey, TokenHeader},
    tiers::{Tier, TierSource, TierTable, Tiers, texts},
    vouch::{VouchError, Vouched},
};

/// How a policy finds out who is calling.
pub struct IdentityRules {
    /// Tells them from all others.
    pub id: RulesId,
    /// Whose tokens are known.
    pub issuers: Vec<Issuer>,
    /// Who is asked about opaque tokens. Its position is behind those of the issuers.
    pub introspection: Option<Introspection>,
    /// Keys known by their digests. Their position is the last.
    pub api_keys: Option<ApiKeyRules>,
    /// Ways to name a caller; the first that resolves wins.
    pub callers: Vec<Caller>,
    /// Classes of callers.
    pub tiers: Tiers,
    /// What becomes of a bad token where one is optional.
    pub invalid_token: InvalidToken,
    /// Where tokens come from.
    pub sources: TokenSources,
    /// What the upstream is told about a good token.
    pub forwarded: ForwardedClaims,
}

impl IdentityRules {
    /// The position, among issuers, of whoever is asked about opaque tokens.
    pub fn introspection_at(&self) -> usize {
        self.issuers.len()
    }

    /// The position, among issuers, of the API keys.
    pub fn api_keys_at(&self) -> usize {
        self.issuers.len() + usize::from(self.introspection.is_some())
    }

    /// Headers that carry claims to upstreams, and credentials here.
    pub fn own_headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.forwarded.names().chain(self.sources.headers())
    }

    /// Changes when the keys of any issuer do.
    fn generation(&self, now: Timestamp) -> u64 {
        // New keys have a higher one than all before them, and so the sum is another.
        self.issuers.iter().map(|issuer| issuer.keys.standing(now).0).fold(0, u64::wrapping_add)
    }

    /// What tells the callers of the issuer at a position from those of another.
    pub fn issuer(&self, at: usize) -> Option<&str> {
        match (self.issuers.get(at), &self.introspection, &self.api_keys) {
            (Some(issuer), ..) => Some(&issuer.issuer),
            (None, Some(other), _) if at == self.introspection_at() => Some(&other.id),
            (None, _, Some(keys)) if at == self.api_keys_at() => Some(&keys.id),
            _ => None,
        }
    }
}

/// Who is asked about opaque tokens, and what must be true of the answers.
pub struct Introspection {
    /// What tells its callers from those of others.
    pub id: Box<str>,
    /// Whom to ask.
    pub introspector: Introspector,
    /// What the claims must be.
    pub claims: ClaimRules,
    /// How long an answer is believed, at most.
    pub cache: Duration,
}

/// API keys, and how they are shown.
pub struct ApiKeyRules {
    /// What tells their callers from those of others.
    pub id: Box<str>,
    /// The keys.
    pub keys: ApiKeys,
}

/// Tells the rules of one policy from those of every other, and from its own before a change: what
/// was found out under one says nothing about another. Equal rules have equal ids, so that what was
/// found out outlives a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RulesId([u8; 16]);

impl RulesId {
    /// The id of the rules that `content`, a digest of all that they were made from, stands for.
    pub fn of(content: &[u8; 32]) -> RulesId {
        let mut id = [0; 16];
        id.iter_mut().zip(content).for_each(|(to, from)| *to = *from);
        RulesId(id)
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
    /// A field of the API key.
    ApiKey(Box<str>),
    /// A name in the client's certificate.
    Certificate(CertificateName),
    /// The client's address; IPv6 by this prefix length.
    Address {
        /// 32 to 128.
        ipv6_prefix: u8,
    },
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
    /// Whether the request came with a bad token, and goes on as if it had none.
    pub has_bad_token: bool,
    /// The caller; none if no way to name one resolved, which only routes without per-caller limits
    /// allow.
    pub caller: Option<ResolvedCaller<'p>>,
    /// Position of the caller's tier.
    pub tier: usize,
}

impl Identity<'_> {
    /// A hash of who is calling, the same at every proxy and after every restart: it has no secret.
    pub fn stable_hash(&self, salt: &str) -> u128 {
        let (kind, value) = match &self.caller {
            Some(caller) => (caller.kind, caller.value.to_string()),
            None => ("", self.address.to_string()),
        };
        let parts = [(b's', salt), (b'k', kind), (b'v', value.as_str())];
        KeyHasher::new([0; 16]).hash(parts.map(|(kind, part)| (kind, part.as_bytes())))
    }
}

/// A caller that has a name.
#[derive(Clone, Debug)]
pub struct ResolvedCaller<'p> {
    /// Who says so: the position of the token's issuer; none for an address or a certificate.
    pub issuer: Option<usize>,
    /// What kind of caller: `user`, `anonymous`.
    pub kind: &'p str,
    /// Which one.
    pub value: CallerValue,
    /// Keyed hash of (issuer, claim, value), of the certificate's name, or of the address prefix.
    pub hash: u128,
}

/// What a caller is told apart by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerValue {
    /// A claim's value: printable, at most 256 bytes, made ready for the upstream.
    Claim(HeaderValue),
    /// A name in a client's certificate, of the same form.
    Certificate(Box<str>),
    /// An address; IPv6 the first of its prefix.
    Address(IpAddr),
}

/// A good token, and the caller that it names under a policy's rules: found out once, since asking
/// a token's claims for it costs more than everything else about a known token.
pub struct KnownToken {
    /// The token.
    pub token: VerifiedToken,
    /// None: the rules name no callers by such claims, and it only opens the door.
    named: Option<NamedCaller>,
    /// What the upstream is told about it.
    pub forwarded: Box<[(HeaderName, HeaderValue)]>,
    /// Of the keys that it was verified with.
    generation: u64,
    /// What it takes, about, as text: its claims, and what the upstream is told.
    bytes: usize,
}

struct NamedCaller {
    /// Position of the rule that named it.
    rule: usize,
    value: HeaderValue,
    hash: u128,
    /// The version of the secret that it was hashed under.
    hashed_under: u32,
    tier: usize,
}

impl fmt::Display for CallerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallerValue::Claim(value) => f.write_str(&String::from_utf8_lossy(value.as_bytes())),
            CallerValue::Certificate(name) => f.write_str(name),
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
    /// Whoever knows whether the token is good cannot be asked.
    #[error("the token's issuer cannot be reached")]
    Unavailable,
    /// The sender has shown so many bad tokens that this one was not looked at.
    #[error("not verified, for the client has shown too many bad tokens")]
    NotTrusted,
    /// So many tokens of the sender's address are being asked about that this one was not.
    #[error("not verified, for too many tokens of the client's address are being looked at")]
    Crowded,
    /// The token is good, but the route takes no tokens of its issuer.
    #[error("the token's issuer is not accepted here")]
    IssuerNotAccepted,
    /// The token names no caller, or in a form that cannot be one.
    #[error("the token names no caller")]
    NoCaller,
}
