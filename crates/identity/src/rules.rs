//! The rules by which a policy identifies callers.

use std::time::Duration;

use http::HeaderName;
use tollgate_keyword::keywords;

use super::{
    api_keys::ApiKeys, caller::Caller, claim_rules::ClaimRules, credential::TokenSources,
    forwarded::ForwardedClaims, introspection::Introspector, iss::TenantIssuer, issuer::Issuer,
    jwt::VerifiedToken, tiers::Tiers,
};

/// How a policy identifies callers.
pub struct IdentityRules {
    /// Distinguishes these rules from those of other policies.
    pub id: RulesId,
    /// The issuers whose tokens are accepted.
    pub issuers: Vec<Issuer>,
    /// How opaque tokens are introspected. Its position is the one after the issuers.
    pub introspection: Option<Introspection>,
    /// The accepted API keys. Their position is the last.
    pub api_keys: Option<ApiKeyRules>,
    /// How a caller is named; the first that gives a name is used.
    pub callers: Vec<Caller>,
    /// The tiers of callers.
    pub tiers: Tiers,
    /// What is done with a bad token where a token is optional.
    pub invalid_token: InvalidToken,
    /// Where a request may carry a token.
    pub sources: TokenSources,
    /// The headers that carry claims to the upstream.
    pub forwarded: ForwardedClaims,
}

impl IdentityRules {
    /// The position, among issuers, of introspected tokens.
    pub fn introspection_position(&self) -> usize {
        self.issuers.len()
    }

    /// The position, among issuers, of the API keys.
    pub fn api_keys_position(&self) -> usize {
        self.issuers.len() + usize::from(self.introspection.is_some())
    }

    /// The headers that only this proxy writes or reads: they carry claims to upstreams, or
    /// credentials.
    pub fn own_headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.forwarded.names().chain(self.sources.headers())
    }

    /// The issuer that is a part of its callers' names, as policies call it. None: there is only
    /// one, or they have API keys.
    pub fn issuer_in_names(&self, position: usize) -> Option<&str> {
        let vouching = self.api_keys_position();
        (vouching > 1 && position < vouching).then(|| self.issuer_name(position)).flatten()
    }

    /// What policies call the issuer at a position.
    pub fn issuer_name(&self, position: usize) -> Option<&str> {
        let named = self.issuers.get(position).map(|issuer| issuer.name.as_str());
        let introspection = self.introspection.as_ref().map(|found| &*found.name);
        named
            .or_else(|| introspection.filter(|_| position == self.introspection_position()))
            .or_else(|| self.issuer_id(position))
    }

    /// The id of the issuer of a token, which distinguishes its callers from those of others: of an
    /// issuer with tenants, the `iss` of its tenant.
    pub fn issuer_id_of<'r>(&'r self, token: &'r VerifiedToken) -> Option<&'r str> {
        let tenant = token.tenant.as_ref().map(|tenant| &*tenant.iss);
        tenant.or_else(|| self.issuer_id(token.issuer))
    }

    /// The position of the issuer of tokens with this `iss`: one with this very text goes before
    /// one with tenants. One whose tokens have no `iss` goes by its id.
    pub(super) fn position_of(&self, iss: &str) -> Option<usize> {
        let find = |is_it: &dyn Fn(&Issuer) -> bool| self.issuers.iter().position(is_it);
        find(&|own| own.tenants().is_none() && own.is_of(iss))
            .or_else(|| find(&|own| own.is_of(iss)))
    }

    /// The tenants of the issuer at a position, if it has several.
    pub(super) fn tenants(&self, position: usize) -> Option<&TenantIssuer> {
        self.issuers.get(position)?.tenants()
    }

    /// The id of the issuer at a position, which distinguishes its callers from those of others.
    pub fn issuer_id(&self, position: usize) -> Option<&str> {
        match (self.issuers.get(position), &self.introspection, &self.api_keys) {
            (Some(issuer), ..) => Some(&issuer.issuer),
            (None, Some(introspection), _) if position == self.introspection_position() => {
                Some(&introspection.id)
            }
            (None, _, Some(keys)) if position == self.api_keys_position() => Some(&keys.id),
            _ => None,
        }
    }
}

/// How opaque tokens are introspected, and what their claims must be.
pub struct Introspection {
    /// Distinguishes its callers from those of issuers.
    pub id: Box<str>,
    /// Its name in the policy.
    pub name: Box<str>,
    /// Calls the introspection server.
    pub introspector: Introspector,
    /// What the claims must be.
    pub claims: ClaimRules,
    /// The longest time that a response is cached.
    pub cache: Duration,
}

/// The API keys that a policy accepts.
pub struct ApiKeyRules {
    /// Distinguishes their callers from those of issuers.
    pub id: Box<str>,
    /// The keys.
    pub keys: ApiKeys,
}

/// Identifies the rules of one policy, so that a token cached under some rules is not used under
/// others, or after a change. Equal rules have equal ids, so that cached tokens outlive a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RulesId([u8; 16]);

impl RulesId {
    /// The id of rules by `content`, a digest of all that they were made from.
    pub fn of(content: &[u8; 32]) -> RulesId {
        let mut id = [0; 16];
        id.iter_mut().zip(content).for_each(|(to, from)| *to = *from);
        RulesId(id)
    }
}

/// What is done with a bad token where a token is optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidToken {
    /// The request is refused.
    Reject,
    /// The request is handled as if it had no token.
    Anonymous,
}

keywords! { InvalidToken { Reject = "reject", Anonymous = "anonymous" } }
