//! Callers that are one to an upstream that reads `X-Tollgate-Subject`: the same name by two
//! issuers, or by two kinds of callers.

use tollgate_identity::{Auth, CallerKey, IdentityRules};
use tollgate_yaml::{Check, Span, warning::Rule};

use crate::{
    Policy,
    compile::Compiler,
    file::{RawIdentity, RawPolicy},
};

/// Whose word a subject is.
#[derive(Clone, Copy)]
struct Origin<'p> {
    /// The position of the issuer.
    issuer: usize,
    /// The position of the entry of `callers`.
    rule: usize,
    kind: &'p str,
    /// Its tenant, with a slash, if the issuer has several.
    tenant: &'static str,
}

impl Compiler<'_> {
    pub(super) fn warn_of_shared_subjects(&mut self, raw: &RawPolicy, policy: &Policy) {
        if raw.identity.shared_subjects {
            return;
        }
        for (position, upstream) in policy.upstreams.iter().enumerate() {
            let [one, other, ..] = origins(policy, position)[..] else { continue };
            let message = format!(
                "{} and {} have one `X-Tollgate-Subject` at upstream `{}`",
                called(one, policy),
                called(other, policy),
                upstream.name
            );
            let help = "have the upstream read `X-Tollgate-Caller`, and write \
                        `shared_subjects: true` under `identity`";
            let Some(place) = place(&raw.identity, one, other) else { continue };
            self.warn(Rule::SharedSubject, place, message, help);
            return;
        }
    }
}

/// Whose subjects get to the upstream at this position.
fn origins(policy: &Policy, upstream: usize) -> Vec<Origin<'_>> {
    let rules = &policy.identity;
    let is_taken = |issuer: usize| {
        policy.routes.iter().filter(|route| route.upstream == upstream).any(|route| {
            match &route.auth {
                Auth::None => false,
                Auth::Optional(accepted) | Auth::Required(accepted) => {
                    accepted.issuers.contains(issuer)
                }
            }
        })
    };
    let issuers = (0..=rules.api_keys_position()).filter(|issuer| is_taken(*issuer));
    let all = issuers.flat_map(|issuer| of_issuer(rules, issuer));
    all.flat_map(|origin| {
        let has_tenants =
            rules.issuers.get(origin.issuer).is_some_and(|own| own.tenants().is_some());
        let tenants: &[&str] = if has_tenants { &["one/", "another/"] } else { &[""] };
        tenants.iter().map(move |tenant| Origin { tenant, ..origin })
    })
    .collect()
}

/// The kinds of callers that tokens of an issuer, or API keys, name.
fn of_issuer(rules: &IdentityRules, issuer: usize) -> impl Iterator<Item = Origin<'_>> {
    let is_key = issuer == rules.api_keys_position();
    let has_keys = rules.api_keys.is_some();
    rules.callers.iter().enumerate().filter_map(move |(rule, caller)| {
        let names = match caller.key {
            CallerKey::Claim(_) => !is_key,
            CallerKey::ApiKey(_) => is_key && has_keys,
            CallerKey::Certificate(_) | CallerKey::Address { .. } => false,
        };
        names.then_some(Origin { issuer, rule, kind: &caller.name, tenant: "" })
    })
}

/// Caller 42 of an origin, as policies write it.
fn called(origin: Origin<'_>, policy: &Policy) -> String {
    let Origin { issuer, kind, tenant, rule: _ } = origin;
    match policy.identity.issuer_in_names(issuer) {
        Some(issuer) => format!("`{issuer}/{tenant}{kind}:42`"),
        None => format!("`{tenant}{kind}:42`"),
    }
}

/// Where the second of two origins is written: the kind or, if both have one, the issuer.
fn place(identity: &RawIdentity, one: Origin<'_>, other: Origin<'_>) -> Option<Span> {
    if one.rule != other.rule {
        return identity.callers.get(other.rule).map(|caller| caller.value.name.span);
    }
    let of_jwt = identity.jwt.get(other.issuer).map(|issuer| issuer.value.issuer.span);
    of_jwt.or_else(|| identity.introspection.as_ref().map(|other| other.value.url.span))
}
