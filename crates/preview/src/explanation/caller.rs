//! Who sends a request, and how that was found out.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_gate::{charge_context::ChargeContext, judge_input::JudgeInput, respond::Reply};
use tollgate_identity::{
    Auth, Caller, CallerKey, Credential, CredentialKind, CredentialSource, Identity, IdentityRules,
    KnownToken, Scheme, TierSource, TokenSources, texts,
};
use tollgate_keyword::Keyword;
use tollgate_policy::{KeyPart, Policy, Route};
use tollgate_response::Rejection;

use super::ExplanationInput;
use crate::{diff::words, draft::DraftOutcome};

/// Who sends a request, and how that was found out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FoundCaller {
    /// Where the credential was, and of what kind it is.
    pub credential: Option<String>,
    /// Who vouches for it.
    pub issuer: Option<String>,
    /// What the policy reads from it.
    pub claims: BTreeMap<String, Value>,
    /// The caller: `user:42`.
    pub caller: Option<String>,
    /// The rule that names it so: `user: jwt.sub`.
    pub rule: Option<String>,
    /// Its tier.
    pub tier: Option<String>,
    /// Why it has this tier.
    pub tier_because: Option<String>,
    /// Why the caller is not known, or what is wrong with a credential that is ignored.
    pub problem: Option<String>,
}

/// None: the request did not come so far.
pub(super) fn found(
    context: &ChargeContext<'_, '_>,
    input: &ExplanationInput<'_, '_>,
) -> Option<FoundCaller> {
    let ChargeContext { policy, route, .. } = context;
    let rules = &policy.identity;
    let refused = match &input.result.outcome {
        DraftOutcome::Answered(Reply::Refused(Rejection::Identity(error))) => Some(error),
        _ => input.ignored.as_ref(),
    };
    let identity = input.result.state.identity.as_ref();
    // If its address has used up its limit, it is denied, and not refused for its bad token.
    let is_denied = input.result.state.tally.is_some();
    if identity.is_none() && refused.is_none() && !is_denied {
        return None;
    }
    let known = identity.and_then(|identity| identity.token.as_deref());
    let rule = identity.and_then(|identity| rule_of(identity, rules));
    let tier = identity.and_then(|identity| rules.tiers.get(identity.tier));
    let named = identity.and_then(|identity| identity.caller.as_ref());
    Some(FoundCaller {
        credential: credential(context),
        issuer: known.map(|known| words::issuer(rules, known.token.issuer)),
        claims: known.map(|known| claims(known, policy, *route)).unwrap_or_default(),
        caller: named.map(|caller| caller.name(rules).to_string()),
        rule: rule.map(|rule| format!("{}: {}", rule.name, words::caller_key(&rule.key))),
        tier: tier.map(|tier| tier.name.to_string()),
        tier_because: tier.map(|_| tier_because(rule, known, rules)),
        problem: refused.map(ToString::to_string),
    })
}

fn rule_of<'p>(identity: &Identity<'_>, rules: &'p IdentityRules) -> Option<&'p Caller> {
    let kind = identity.caller.as_ref()?.kind;
    rules.callers.iter().find(|rule| *rule.name == *kind)
}

fn credential(context: &ChargeContext<'_, '_>) -> Option<String> {
    let ChargeContext { policy, route, input, .. } = context;
    if route.is_some_and(|route| route.auth == Auth::None) {
        return Some("not read: the route has `auth: none`".into());
    }
    let JudgeInput { client, dry_run, .. } = input;
    if dry_run.is_some_and(|dry_run| dry_run.token.is_some()) {
        return Some("given as claims, which count as verified".into());
    }
    let sources = &policy.identity.sources;
    match sources.find(client.headers, client.query) {
        Ok(Some(found)) => Some(place(&found, sources)),
        Ok(None) => sources.unread_scheme(client.headers).map(|(_, name)| unread(name, sources)),
        Err(_) => Some("unclear".into()),
    }
}

fn place(found: &Credential<'_>, sources: &TokenSources) -> String {
    let named = |what: &str, name: Option<&str>| format!("{what} {}", name.unwrap_or_default());
    match found.source {
        CredentialSource::Authorization(scheme) => {
            let what = match (found.kind, scheme) {
                (CredentialKind::Token, Scheme::Bearer) => "a bearer token",
                (CredentialKind::Token, Scheme::Token) => "a token by scheme token",
                (CredentialKind::Token, Scheme::Basic) => "a token as password of scheme basic",
                (CredentialKind::ApiKey, Scheme::Bearer) => "an API key by scheme bearer",
                (CredentialKind::ApiKey, Scheme::Token) => "an API key by scheme token",
                (CredentialKind::ApiKey, Scheme::Basic) => "an API key as password of scheme basic",
            };
            format!("{what} in header authorization")
        }
        CredentialSource::Header => {
            named("a token in header", sources.header.as_ref().map(|it| it.as_str()))
        }
        CredentialSource::Cookie => named("a token in cookie", sources.cookie.as_deref()),
        CredentialSource::Query => named("a token in query parameter", sources.query.as_deref()),
        CredentialSource::KeyHeader => {
            named("an API key in header", sources.api_key.as_ref().map(|it| it.as_str()))
        }
    }
}

/// Of what is in `Authorization` and no credential.
fn unread(scheme: Option<&str>, sources: &TokenSources) -> String {
    let listed = words::list(sources.all_schemes().map(|scheme| scheme.keyword().to_owned()));
    match scheme {
        Some(name) => format!("none: authorization has scheme {name}, the policy accepts {listed}"),
        None => {
            format!("none: authorization has an unknown scheme, the policy accepts {listed}")
        }
    }
}

fn tier_because(
    rule: Option<&Caller>,
    known: Option<&KnownToken>,
    rules: &IdentityRules,
) -> String {
    let Some(rule) = rule else { return "the default: no rule of `callers` applies".into() };
    let path = |claim: &str| source(&rule.key, claim);
    let claimed = |claim: &str| known.and_then(|known| known.token.claims.lookup(claim));
    match &rule.tier {
        TierSource::Default => format!("the default: `{}` has no `tier`", rule.name),
        TierSource::Fixed(_) => format!("set by `{}`", rule.name),
        TierSource::Claim(claim) => {
            let mut named = texts(claimed(claim));
            let only = named.next().filter(|_| named.next().is_none());
            let is_tier = only.is_some_and(|only| rules.tiers.names().any(|tier| tier == only));
            match claimed(claim) {
                Some(_) if is_tier => format!("set by {}", path(claim)),
                Some(value) => format!("the default: {} is {value}, which is no tier", path(claim)),
                None => format!("the default: there is no {}", path(claim)),
            }
        }
        TierSource::Table(table) => {
            let claim = path(&table.claim);
            let value = claimed(&table.claim);
            match (table.entry(texts(value)), value) {
                (Some((entry, _)), _) => format!("{claim} contains {entry}"),
                (None, Some(_)) => format!("the default: no value of {claim} is in the table"),
                (None, None) => format!("the default: there is no {claim}"),
            }
        }
    }
}

/// What policies call a claim, or a field of an API key.
fn source(key: &CallerKey, name: &str) -> String {
    match key {
        CallerKey::ApiKey(_) => format!("api_key.{name}"),
        CallerKey::Claim(_) | CallerKey::Certificate(_) | CallerKey::Address { .. } => {
            format!("jwt.{name}")
        }
    }
}

/// The claims that the policy reads: for the caller and its tier, for limits, and for scopes.
fn claims(known: &KnownToken, policy: &Policy, route: Option<&Route>) -> BTreeMap<String, Value> {
    let rules = &policy.identity;
    let is_key = known.token.issuer == rules.api_keys_position();
    let mut names: Vec<(String, &str)> = Vec::new();
    for rule in &rules.callers {
        match &rule.key {
            CallerKey::Claim(name) if !is_key => names.push((source(&rule.key, name), name)),
            CallerKey::ApiKey(name) if is_key => names.push((source(&rule.key, name), name)),
            _ => continue,
        }
        if let Some(name) = rule.tier.claim() {
            names.push((source(&rule.key, name), name));
        }
    }
    let limits = route.into_iter().flat_map(|route| &route.limits);
    let parts = limits.filter_map(|at| policy.limits.get(*at)).flat_map(|limit| &limit.per.parts);
    for part in parts {
        if let KeyPart::Claim(name) = part {
            names.push((format!("jwt.{name}"), name));
        }
    }
    if route.is_some_and(|route| !route.scopes.is_empty()) {
        names.extend(["scope", "scp"].map(|name| (format!("jwt.{name}"), name)));
    }
    let claims = &known.token.claims;
    let value = |(shown, name): (String, &str)| Some((shown, claims.lookup(name)?.clone()));
    names.into_iter().filter_map(value).collect()
}
