//! Tokens without a signature, for dry runs: their claims are assumed to be verified.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};

use super::{
    claim_rules::ClaimRules,
    claims::Claims,
    iss::{IssuerClaim, Tenant},
    issuer::Issuer,
    jwt::VerifiedToken,
    rules::IdentityRules,
    token_refusal::TokenRefusal,
    validity::TimeClaims,
};

/// A token with claims that are assumed to be verified, or why its issuer's rules refuse them.
pub type AssumedToken = Result<VerifiedToken, TokenRefusal>;

/// Why claims cannot be those of a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssumedTokenError {
    /// The policy has no issuer.
    #[error("no token can be valid: the policy has no issuer")]
    NoIssuer,
    /// The policy has other issuers.
    #[error("no issuer of the policy is `{0}`")]
    UnknownIssuer(String),
    /// An issuer or a subject that is not text.
    #[error("claim {0} is not text")]
    NotText(&'static str),
}

impl IdentityRules {
    /// A token with these claims. Without `iss`, it gets that of the first issuer; an issuer whose
    /// tokens have none may be named there in place of it. Without `aud`, the token gets
    /// the first audience that this issuer's tokens may have. A tenant is not made up: its name may
    /// be in another claim than the policy says.
    ///
    /// # Errors
    /// [`AssumedTokenError`].
    pub fn assume_token(
        &self,
        mut claims: Map<String, Value>,
    ) -> Result<AssumedToken, AssumedTokenError> {
        if claims.get("sub").is_some_and(|subject| !subject.is_string()) {
            return Err(AssumedTokenError::NotText("sub"));
        }
        let position = match claims.get("iss") {
            None => 0,
            Some(Value::String(name)) => self
                .position_of(name)
                .or_else(|| self.position_without_iss(name))
                .ok_or_else(|| AssumedTokenError::UnknownIssuer(name.clone()))?,
            Some(_) => return Err(AssumedTokenError::NotText("iss")),
        };
        let rules = match (self.issuers.get(position), &self.introspection) {
            (Some(issuer), _) => {
                match &issuer.claim {
                    IssuerClaim::Exact => {
                        claims.entry("iss").or_insert_with(|| issuer.issuer.as_str().into());
                    }
                    // It may stand there to say whose token is meant.
                    IssuerClaim::Absent => drop(claims.remove("iss")),
                    IssuerClaim::Tenants(tenants) => tenants.complete_iss(&mut claims),
                }
                &issuer.claims
            }
            // Without issuers, position 0 is that of the introspection.
            (None, Some(introspection)) => &introspection.claims,
            (None, None) => return Err(AssumedTokenError::NoIssuer),
        };
        if let Some(audience) = rules.audience.first() {
            claims.entry("aud").or_insert_with(|| audience.as_str().into());
        }
        let as_given = Claims::from(claims.clone());
        let tenant = self.issuers.get(position).map(|issuer| issuer.tenant_of(&as_given));
        Ok(match tenant.transpose() {
            Ok(tenant) => rules.assume(position, tenant.flatten(), claims),
            Err(refusal) => Err(refusal),
        })
    }

    /// The position of the issuer of this name whose tokens have no `iss`.
    fn position_without_iss(&self, name: &str) -> Option<usize> {
        let is_it = |own: &Issuer| own.claim == IssuerClaim::Absent && own.name == *name;
        self.issuers.iter().position(is_it)
    }
}

impl ClaimRules {
    fn assume(
        &self,
        issuer: usize,
        tenant: Option<Arc<Tenant>>,
        claims: Map<String, Value>,
    ) -> AssumedToken {
        let as_given = Claims::from(claims.clone());
        let validity = TimeClaims::of(&as_given)?.validity(Duration::ZERO, None);
        self.check_required(&as_given)?;
        Ok(VerifiedToken { issuer, tenant, claims: with_names(self, claims), validity })
    }
}

/// The claims, with the policy's names added for those that the issuer names otherwise. A claim
/// that was given under the policy's name stays if the issuer's own is absent.
fn with_names(rules: &ClaimRules, mut claims: Map<String, Value>) -> Claims {
    let as_given = Claims::from(claims.clone());
    for (name, path) in &rules.names {
        if let Some(value) = as_given.lookup(path) {
            claims.insert(name.to_string(), value.clone());
        }
    }
    claims.into()
}
