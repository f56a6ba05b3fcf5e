//! Identification of callers: by a verified token, an API key, a client certificate or an address;
//! and the tier of each caller.
//!
//! [`Identifier`] does it by the [`IdentityRules`] of a policy. What a request may carry as a
//! credential is found by `credential`, and verified with the keys of an `issuer`, by
//! `introspection` or against the `api_keys`.
//!
//! This crate knows tokens, certificates and addresses, and no routes, limits or counters.
//!
//! The types to know first:
//!
//! - [`Identifier`]: identifies the callers of requests.
//! - [`IdentityRules`]: how a policy identifies callers.
//! - [`Issuer`]: an issuer whose tokens a policy accepts.
//! - [`Identity`]: who sends one request.
//! - [`IdentityError`]: why a sender could not be identified.

mod address;
mod api_keys;
mod assumed_caller;
mod assumed_token;
mod auth;
mod auth_result;
mod cache;
mod caller;
mod caller_text;
mod certificate;
mod claim_rules;
mod claims;
mod cookies;
mod credential;
mod error;
mod fetch;
mod forwarded;
mod identifier;
mod introspection;
mod iss;
mod issuer;
mod jwt;
mod keys;
mod known_token;
mod lenient;
mod networks;
mod origin;
mod published_keys;
mod rules;
mod sign;
mod tiers;
mod token_error;
mod token_refusal;
mod validity;

use std::{net::IpAddr, sync::Arc};

use tollgate_limit::KeyHasher;

pub use self::{
    address::{
        ForwardedField, Prefixes, TrustedProxies, address_behind, address_told, canonical,
        client_address, counted_address, is_address_readable,
    },
    api_keys::{ApiKey, ApiKeyError, ApiKeys, MAX_API_KEYS_BYTES, MintError, MintedKey, NewKey},
    assumed_caller::AssumedCaller,
    assumed_token::{AssumedToken, AssumedTokenError},
    auth::{AcceptedIssuers, AcceptedTokens, Auth},
    auth_result::AuthResult,
    cache::{TokenCache, TokenCacheKey},
    caller::{Caller, CallerKey, CallerValue, ResolvedCaller},
    certificate::{CertificateName, ClientCertificate, certificate_expiry},
    claim_rules::{ClaimRules, RequiredClaim},
    claims::Claims,
    cookies::{AmbiguousCookie, cookie_to_count, unescaped_cookie},
    credential::{
        Credential, CredentialError, CredentialKind, CredentialSource, KNOWN_SCHEME_NAMES,
        OtherSchemes, Scheme, TokenPlace, TokenSources,
    },
    error::IdentityError,
    fetch::{FetchError, Fetcher, IssuerServer, IssuerServerError},
    forwarded::ForwardedClaims,
    identifier::{CallerByName, ClaimsIssuer, Client, Identifier, NameError, WholeName, WhoseWord},
    introspection::{IntrospectionError, IntrospectionResponse, Introspector},
    iss::{IssuerClaim, Tenant, TenantIssuer, is_tenant_name},
    issuer::{Issuer, IssuerKeys, KeyHints},
    jwt::VerifiedToken,
    keys::{
        Algorithm, KeyError, KeyLocation, KeyRing, KeySet, PublicJwk, RemoteKeys, RemoteSpec,
        RemoteStatus, jwk_set,
    },
    known_token::KnownToken,
    lenient::Deviation,
    networks::{IpVersion, holds_private, is_private, whole_internet},
    published_keys::{CurrentKeys, PublishedKeys},
    rules::{ApiKeyRules, IdentityRules, Introspection, InvalidToken, RulesId},
    sign::{SignError, SigningKey, TokenHeader},
    tiers::{Tier, TierSource, TierTable, Tiers, texts},
    token_error::TokenError,
    token_refusal::TokenRefusal,
};

/// Who sends one request.
#[derive(Clone)]
pub struct Identity<'p> {
    /// The client's address.
    pub address: IpAddr,
    /// The verified token, if the route accepts one and the request has it.
    pub token: Option<Arc<KnownToken>>,
    /// Whether the request has a bad token that is treated as none.
    pub has_bad_token: bool,
    /// The caller; none if no rule names one, which only routes without limits by caller allow.
    pub caller: Option<ResolvedCaller<'p>>,
    /// Position of the caller's tier.
    pub tier: usize,
}

impl Identity<'_> {
    /// The claim of the token that names a tier which there is not, so that the caller has the
    /// default one.
    pub fn unknown_tier<'r>(&self, rules: &'r IdentityRules) -> Option<&'r str> {
        let named = self.token.as_ref()?.named.as_ref().filter(|named| named.is_tier_unknown)?;
        // The caller may be that of a certificate.
        let rule = rules.callers.get(named.rule)?;
        let is_it = self.caller.as_ref().is_some_and(|caller| *caller.kind == *rule.name);
        rule.tier.claim().filter(|_| is_it)
    }

    /// A hash of the caller that is the same at every proxy and after every restart, since it has
    /// no secret.
    pub fn stable_hash(&self, salt: &str) -> u128 {
        let (kind, value) = match &self.caller {
            Some(caller) => (caller.kind, caller.value.to_string()),
            None => ("", self.address.to_string()),
        };
        let parts = [(b's', salt), (b'k', kind), (b'v', value.as_str())];
        KeyHasher::new([0; 16]).hash(parts.map(|(kind, part)| (kind, part.as_bytes())))
    }
}
