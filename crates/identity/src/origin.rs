//! Whose a token is, before it is verified: by its claim `iss`, by where the request carries it,
//! and without an `iss` by the key that it names.
//!
//! Each token is tried with one issuer only. A token with an `iss` is never that of an issuer whose
//! tokens have none, and the other way round.

use serde_json::Value;

use super::{
    claims::Claims,
    credential::TokenPlace,
    iss::IssuerClaim,
    issuer::Issuer,
    keys::Algorithm,
    token_error::TokenError,
    token_refusal::{Quoted, QuotedList, TokenRefusal},
};

/// What a token says of who has issued it.
pub(super) struct Origin<'t> {
    pub(super) claims: &'t Claims,
    pub(super) algorithm: Algorithm,
    pub(super) kid: Option<&'t str>,
    /// Where the request carries it. None: it is in no request.
    pub(super) place: Option<TokenPlace>,
}

impl Origin<'_> {
    /// The issuer, and its position.
    pub(super) fn select<'i>(
        &self,
        issuers: &'i [Issuer],
    ) -> Result<(usize, &'i Issuer), TokenRefusal> {
        let name = match self.claims.get("iss") {
            None => return self.select_without_iss(issuers),
            Some(Value::String(name)) => name,
            Some(_) => return Err(TokenError::MalformedClaim("iss").into()),
        };
        let mut here = issuers.iter().enumerate().filter(|(_, own)| own.is_from(self.place));
        let is_exact = |own: &Issuer| own.claim == IssuerClaim::Exact && own.issuer == *name;
        if let Some(exact) = here.clone().find(|(_, issuer)| is_exact(issuer)) {
            return Ok(exact);
        }
        let has_form = |own: &Issuer| own.tenants().is_some_and(|own| own.name_in(name).is_some());
        // A policy has no two issuers that one `iss` has the form of.
        if let Some(found) = here.find(|(_, issuer)| has_form(issuer)) {
            found.1.tenant_of(self.claims)?;
            return Ok(found);
        }
        let known = issuers.iter().filter(|issuer| issuer.claim != IssuerClaim::Absent);
        let known = QuotedList(known.map(|issuer| issuer.issuer.as_str()));
        let detail = format!("expected {known} at this place, found {}", Quoted(name));
        Err(TokenRefusal::new(TokenError::UnknownIssuer, detail))
    }

    /// The issuer of a token without `iss`: the one that has the key that the token names. A token
    /// that names no key may be of one of them only.
    fn select_without_iss<'i>(
        &self,
        issuers: &'i [Issuer],
    ) -> Result<(usize, &'i Issuer), TokenRefusal> {
        let mut without = issuers.iter().enumerate().filter(|(_, issuer)| {
            issuer.claim == IssuerClaim::Absent && issuer.is_from(self.place)
        });
        let fits = |(_, issuer): &(usize, &Issuer)| issuer.keys.may_have(self.kid, self.algorithm);
        let mut fitting = without.clone().filter(fits);
        match (fitting.next(), fitting.next()) {
            (Some(_), Some(_)) => Err(TokenError::AmbiguousKey.into()),
            // With a key of none, the token is refused as one of the first.
            (found, _) => found
                .or_else(|| without.next())
                .ok_or_else(|| TokenError::MissingClaim("iss").into()),
        }
    }
}
