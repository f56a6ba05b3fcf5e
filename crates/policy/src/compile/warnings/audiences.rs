//! Issuers whose tokens are good whatever they are for: also those that a caller gave to another
//! service, which can call this one with them.

use tollgate_identity::Auth;
use tollgate_yaml::{Check, warning::Rule};

use crate::{Policy, Route, compile::Compiler, file::RawPolicy};

impl Compiler<'_> {
    /// Issuers of which a route takes tokens without looking at `aud`. An authorization server is
    /// no such issuer: it knows who asks, and for whom a token is.
    pub(super) fn warn_of_missing_audiences(&mut self, raw: &RawPolicy, policy: &Policy) {
        let issuers = policy.identity.issuers.iter().zip(&raw.identity.jwt);
        for (at, (issuer, raw)) in issuers.enumerate() {
            let raw = &raw.value;
            let is_meant = raw.any_audience.is_some_and(|meant| meant.value);
            if is_meant || !issuer.claims.audience.is_empty() {
                continue;
            }
            let takes_any = |route: &&Route| takes_any_audience(route, at);
            let Some(route) = policy.routes.iter().find(takes_any) else { continue };
            let message = format!(
                "route `{}` takes tokens of this issuer whatever service they are for",
                route.name
            );
            let help = "write `audience: [my-api]`, say, here or in the `auth` of the route; if \
                        any is meant, write `any_audience: true`";
            self.warn(Rule::MissingAudience, raw.issuer.span, message, help);
        }
    }
}

/// Whether a route takes tokens of this issuer, and asks nothing more of what they are for.
fn takes_any_audience(route: &Route, issuer: usize) -> bool {
    match &route.auth {
        Auth::Optional(accepted) | Auth::Required(accepted) => {
            accepted.issuers.contains(issuer) && accepted.claims.audience.is_empty()
        }
        Auth::None => false,
    }
}
