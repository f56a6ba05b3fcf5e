//! Tokens that nobody has signed, for rehearsals: their claims count as verified.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{ClaimRules, Claims, IdentityRules, TokenError, VerifiedToken, issuer::Times};

/// What becomes of claims that count as signed: a token, unless what its issuer demands is not there.
pub type Vouched = Result<VerifiedToken, TokenError>;

/// Why claims cannot count as a token's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VouchError {
    /// The policy knows nobody who could have issued it.
    #[error("no token can be good: the policy knows no issuer")]
    NoIssuer,
    /// It knows others.
    #[error("no issuer of the policy is `{0}`")]
    UnknownIssuer(String),
    /// An issuer, a subject or another text that is none.
    #[error("claim {0} is not text")]
    NotText(&'static str),
}

impl IdentityRules {
    /// A token with these claims. Without `iss`, it is the first issuer's; without `aud`, it is for
    /// whom that issuer's must be.
    ///
    /// # Errors
    /// [`VouchError`].
    pub fn vouch(&self, mut claims: Map<String, Value>) -> Result<Vouched, VouchError> {
        if claims.get("sub").is_some_and(|subject| !subject.is_string()) {
            return Err(VouchError::NotText("sub"));
        }
        let at = match claims.get("iss") {
            None => 0,
            Some(Value::String(name)) => {
                let position = self.issuers.iter().position(|issuer| issuer.issuer == *name);
                position.ok_or_else(|| VouchError::UnknownIssuer(name.clone()))?
            }
            Some(_) => return Err(VouchError::NotText("iss")),
        };
        let rules = match (self.issuers.get(at), &self.introspection) {
            (Some(issuer), _) => {
                claims.entry("iss").or_insert_with(|| issuer.issuer.as_str().into());
                &issuer.claims
            }
            // Without issuers, that is the position of whoever is asked about opaque tokens.
            (None, Some(introspection)) => &introspection.claims,
            (None, None) => return Err(VouchError::NoIssuer),
        };
        if let Some(audience) = rules.audience.first() {
            claims.entry("aud").or_insert_with(|| audience.as_str().into());
        }
        Ok(rules.admit(at, claims))
    }
}

impl ClaimRules {
    fn admit(&self, issuer: usize, claims: Map<String, Value>) -> Vouched {
        let as_given = Claims::from(claims.clone());
        let validity = Times::of(&as_given)?.validity(Duration::ZERO, None);
        self.demand(&as_given)?;
        Ok(VerifiedToken { issuer, claims: with_names(self, claims), validity })
    }
}

/// With what the issuer calls otherwise under its name here too; what is given by that name already
/// stays if the issuer's own is not there.
fn with_names(rules: &ClaimRules, mut claims: Map<String, Value>) -> Claims {
    let as_given = Claims::from(claims.clone());
    for (name, path) in &rules.names {
        if let Some(value) = as_given.lookup(path) {
            claims.insert(name.to_string(), value.clone());
        }
    }
    claims.into()
}
