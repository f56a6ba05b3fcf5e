//! Issuers of tokens: their keys, and what their tokens must look like.

use std::{sync::Arc, time::Duration};

use tollgate_keyword::{Keyword, keywords};

use super::{
    claim_rules::ClaimRules,
    claims::Claims,
    credential::TokenPlace,
    iss::{IssuerClaim, Tenant, TenantIssuer},
    keys::{Algorithm, KeySet, RemoteSpec},
    lenient::Deviation,
    token_error::TokenError,
    token_refusal::{QuotedList, TokenRefusal, wrong_algorithm},
    validity::{TimeClaims, Validity},
};

/// An issuer whose tokens a policy accepts, and what they must look like.
#[derive(Clone, Debug)]
pub struct Issuer {
    /// Its name in the policy.
    pub name: String,
    /// The `iss` of its tokens, or another text that distinguishes its callers from those of other
    /// issuers. Of two issuers with the same `iss`, the first is used.
    pub issuer: String,
    /// Which `iss` its tokens have.
    pub claim: IssuerClaim,
    /// Where requests carry its tokens; empty: at any place.
    pub from: Vec<TokenPlace>,
    /// What its claims must be.
    pub claims: ClaimRules,
    /// A token's `typ` must be one of these, in any case and with or without `application/`; empty:
    /// any type, or none.
    pub types: Vec<String>,
    /// What its tokens may have against the specifications.
    pub lenient: Vec<Deviation>,
    /// Whether a token may carry or link a key.
    pub key_hints: KeyHints,
    /// How much the issuer's clock may differ from ours.
    pub leeway: Duration,
    /// How old a token may be by its `iat`, which is then required.
    pub max_age: Option<Duration>,
    /// Whether a token without `exp` is refused.
    pub require_exp: bool,
    /// The longest time from `iat` to `exp`, both of which are then required.
    pub max_lifetime: Option<Duration>,
    /// The keys that sign its tokens.
    pub keys: IssuerKeys,
}

/// Where an issuer's keys come from.
#[derive(Clone, Debug)]
pub enum IssuerKeys {
    /// Given in the policy: a file or a secret.
    Fixed(Arc<KeySet>),
    /// Published by the issuer.
    Remote {
        /// Where they are fetched, and how long they are cached.
        spec: Box<RemoteSpec>,
        /// Where they are among the published keys of all policies.
        /// [`PublishedKeys::number`](super::PublishedKeys::number) gives it.
        position: usize,
    },
}

impl IssuerKeys {
    /// The keys that are given in the policy. None: the issuer publishes them.
    pub fn fixed(&self) -> Option<&KeySet> {
        match self {
            IssuerKeys::Fixed(keys) => Some(keys),
            IssuerKeys::Remote { .. } => None,
        }
    }

    /// Whether a token may name this algorithm, as far as the policy decides it without the keys.
    pub fn allows(&self, algorithm: Algorithm) -> bool {
        match self {
            IssuerKeys::Fixed(keys) => keys.allows(algorithm),
            // Published keys are never secrets.
            IssuerKeys::Remote { spec, .. } => match spec.algorithms.as_slice() {
                [] => !algorithm.is_symmetric(),
                listed => listed.contains(&algorithm),
            },
        }
    }

    /// The algorithms that a token may name.
    pub(super) fn allowed(&self) -> impl Iterator<Item = Algorithm> {
        Algorithm::all().filter(|algorithm| self.allows(*algorithm))
    }

    /// Whether a token with this header may be signed by one of the keys, as far as they are here.
    pub(super) fn may_have(&self, kid: Option<&str>, algorithm: Algorithm) -> bool {
        self.allows(algorithm) && self.fixed().is_none_or(|keys| keys.may_have(kid, algorithm))
    }

    /// Whether one header may name a key of both.
    pub fn overlap(&self, other: &IssuerKeys) -> bool {
        match (self.fixed(), other.fixed()) {
            (Some(own), Some(others)) => own.overlaps(others),
            _ => Algorithm::all().any(|each| self.allows(each) && other.allows(each)),
        }
    }
}

/// What to do with a token that has `jwk`, `jku`, `x5u`, `x5c` or `x5t*` in its header. These
/// members never choose the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyHints {
    /// Refuse the token.
    #[default]
    Reject,
    /// Ignore the members: some issuers (ADFS, Entra ID) write `x5t` into every token.
    Ignore,
}

keywords! { KeyHints { Reject = "reject", Ignore = "ignore" } }

impl Issuer {
    /// Whether tokens with this `iss` are its own. One without `iss` goes by its id.
    pub fn is_of(&self, iss: &str) -> bool {
        match &self.claim {
            IssuerClaim::Exact | IssuerClaim::Absent => self.issuer == *iss,
            IssuerClaim::Tenants(tenants) => tenants.of_iss(iss).is_some(),
        }
    }

    /// Whose tenants its tokens are of, if it has any.
    pub fn tenants(&self) -> Option<&TenantIssuer> {
        match &self.claim {
            IssuerClaim::Tenants(tenants) => Some(tenants),
            IssuerClaim::Exact | IssuerClaim::Absent => None,
        }
    }

    /// The tenant of a token of this issuer, if it has several.
    pub(super) fn tenant_of(&self, claims: &Claims) -> Result<Option<Arc<Tenant>>, TokenRefusal> {
        self.tenants().map(|tenants| tenants.of(claims).map(Arc::new)).transpose()
    }

    /// Whether requests may carry its tokens at this place.
    pub(super) fn is_from(&self, place: Option<TokenPlace>) -> bool {
        self.from.is_empty() || place.is_none_or(|place| self.from.contains(&place))
    }

    /// Whether a token without `iss` may be one of either: their tokens have none, come from one
    /// place, and may be signed by keys of one name.
    pub fn is_confused_with(&self, other: &Issuer) -> bool {
        let is_of = |place: &TokenPlace| other.is_from(Some(*place));
        let is_at_one_place = self.from.is_empty() || self.from.iter().any(is_of);
        let is_without = |issuer: &Issuer| issuer.claim == IssuerClaim::Absent;
        is_without(self) && is_without(other) && is_at_one_place && self.keys.overlap(&other.keys)
    }

    /// Checks the members of a token's header that depend on the issuer.
    pub(super) fn check_header(
        &self,
        algorithm: Algorithm,
        typ: Option<&str>,
        has_key_hint: bool,
    ) -> Result<(), TokenRefusal> {
        if !self.keys.allows(algorithm) {
            let allowed: Vec<Algorithm> = self.keys.allowed().collect();
            return Err(wrong_algorithm(&allowed, Some(algorithm.keyword())));
        }
        if has_key_hint && self.key_hints == KeyHints::Reject {
            return Err(TokenError::KeyHint.into());
        }
        let is_expected = |typ: &str| {
            let typ = without_application(typ);
            self.types.iter().any(|known| without_application(known).eq_ignore_ascii_case(typ))
        };
        if self.types.is_empty() || typ.is_some_and(is_expected) {
            return Ok(());
        }
        let expected = QuotedList(self.types.iter().map(String::as_str));
        let found = QuotedList(typ.into_iter());
        let detail = format!("expected {expected}, found {found}");
        Err(TokenRefusal::new(TokenError::UnexpectedType, detail))
    }

    /// Checks the claims and gives them the names that the policy has for them. The times come back
    /// as a [`Validity`], which is checked again at each use of the token. A claim of the wrong
    /// type is an error and never counts as absent.
    pub(super) fn check_claims(&self, claims: Claims) -> Result<(Claims, Validity), TokenRefusal> {
        let times = TimeClaims::of(&claims)?;
        if self.require_exp && times.expires.is_none() {
            return Err(TokenError::MissingClaim("exp").into());
        }
        if self.max_age.is_some() && times.issued.is_none() {
            return Err(TokenError::MissingClaim("iat").into());
        }
        if let Some(longest) = self.max_lifetime {
            let expires = times.expires.ok_or(TokenError::MissingClaim("exp"))?;
            let issued = times.issued.ok_or(TokenError::MissingClaim("iat"))?;
            if expires > issued + longest {
                let lifetime = (expires.as_micros() - issued.as_micros()) / 1_000_000;
                let detail = format_args!("{lifetime} s instead of {} s", longest.as_secs());
                return Err(TokenRefusal::new(TokenError::TooLongLived, detail));
            }
        }
        let claims = self.claims.check(claims)?;
        Ok((claims, times.validity(self.leeway, self.max_age)))
    }
}

/// A type without the prefix that may be left out (RFC 7515 section 4.1.9).
fn without_application(typ: &str) -> &str {
    //= rfc7515#section-4.1.9
    //# A recipient using the media type value MUST treat it as if "application/" were prepended to
    //# any "typ" value not containing a '/'
    const PREFIX: &str = "application/";
    match typ.split_at_checked(PREFIX.len()) {
        Some((prefix, rest)) if prefix.eq_ignore_ascii_case(PREFIX) => rest,
        _ => typ,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::jwt::tests::issuer;

    fn claims(value: &Value) -> Claims {
        Claims::parse(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn token_with_too_long_a_lifetime_is_refused() {
        let keys = crate::KeySet::from_secret(&[1; 32], &[]).unwrap();
        let hour = Some(Duration::from_secs(3600));
        let issuer = Issuer { max_lifetime: hour, ..issuer("me", keys) };
        for (given, expected) in [
            (json!({ "iat": 1000, "exp": 4600 }), Ok(())),
            (json!({ "iat": 1000, "exp": 4601 }), Err(TokenError::TooLongLived)),
            (json!({ "exp": 4600 }), Err(TokenError::MissingClaim("iat"))),
        ] {
            let result = issuer.check_claims(claims(&given)).map(|_| ());
            assert_eq!(result.map_err(|refusal| refusal.error), expected, "{given}");
        }
    }
}
