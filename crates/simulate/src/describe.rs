//! What a report says of a caller who is denied for the first time: its name, and a command that
//! explains that request.

use std::fmt::Write as _;

use http::{HeaderName, header};
use serde_json::{Map, Value};
use tollgate_clock::Timestamp;
use tollgate_identity::{CallerKey, TierSource};
use tollgate_limit::Scope;
use tollgate_policy::Policy;
use tollgate_preview::{JudgedCharge, Judgement, PastRequest};

use super::callers::{DeniedCaller, quoted};

/// Describes the caller of `past`, which was judged by the policies that the command line calls
/// `policies`.
pub(super) fn describe(
    policies: &str,
    past: &PastRequest,
    time: Timestamp,
    judged: &Judgement<'_>,
) -> DeniedCaller {
    let identity = judged.identity.as_ref();
    let caller = caller_of(past, judged);
    let tiers = judged.policy.map(|policy| &policy.identity.tiers);
    let tier = identity.and_then(|identity| tiers?.names().nth(identity.tier));
    DeniedCaller {
        caller,
        tier: tier.unwrap_or_default().to_owned(),
        first: time,
        explain: explain(policies, past, judged),
        limits: Vec::new(),
    }
}

/// Whose counter a charge is on.
pub(super) fn name_of(
    charge: &JudgedCharge<'_>,
    past: &PastRequest,
    judged: &Judgement<'_>,
) -> String {
    match charge.limit.scope() {
        Scope::Address => past.draft.address.to_string(),
        Scope::Caller | Scope::Shared => caller_of(past, judged),
    }
}

fn caller_of(past: &PastRequest, judged: &Judgement<'_>) -> String {
    let resolved = judged.identity.as_ref().and_then(|identity| identity.caller.as_ref());
    match (resolved, judged.policy) {
        (Some(caller), Some(policy)) => caller.name(&policy.identity).to_string(),
        _ => past.draft.address.to_string(),
    }
}

/// The command that explains a request.
fn explain(policies: &str, past: &PastRequest, judged: &Judgement<'_>) -> String {
    let mut command =
        format!("tollgate explain --policy {} --address {}", quoted(policies), past.draft.address);
    match credential_of(judged) {
        Some(Credential::Claims(claims)) => {
            let _ = write!(command, " --claims {}", quoted(&claims));
        }
        // No log has it.
        Some(Credential::ApiKey) => command.push_str(" --api-key KEY"),
        None => {}
    }
    let head = &past.draft.head;
    for name in judged.policy.map(counted_headers).unwrap_or_default() {
        if let Some(value) = head.headers.get(&name).and_then(|value| value.to_str().ok()) {
            let _ = write!(command, " -H {}", quoted(&format!("{name}: {value}")));
        }
    }
    let url = match head.headers.get(header::HOST).and_then(|host| host.to_str().ok()) {
        Some(host) => format!("http://{host}{}", head.uri),
        None => head.uri.to_string(),
    };
    let _ = write!(command, " {} {}", quoted(head.method.as_str()), quoted(&url));
    command
}

/// The headers that limits of a policy count by.
fn counted_headers(policy: &Policy) -> Vec<HeaderName> {
    let mut names = Vec::new();
    for part in policy.limits.iter().flat_map(|limit| &limit.per.parts) {
        if let Some(name) = part.field().filter(|name| !names.contains(name)) {
            names.push(name);
        }
    }
    names
}

/// What shows who the caller is.
enum Credential {
    /// A token with these claims, as JSON.
    Claims(String),
    /// An API key.
    ApiKey,
}

/// What shows who the caller is, if it is more than an address. Claims are those that the log has,
/// and those that the caller's name and tier follow from.
fn credential_of(judged: &Judgement<'_>) -> Option<Credential> {
    let rules = &judged.policy?.identity;
    let identity = judged.identity.as_ref()?;
    let caller = identity.caller.as_ref()?;
    let rule = rules.callers.iter().find(|rule| *rule.name == *caller.kind)?;
    let claim = match &rule.key {
        CallerKey::Claim(claim) => claim,
        CallerKey::ApiKey(_) => return Some(Credential::ApiKey),
        CallerKey::Address { .. } | CallerKey::Certificate(_) => return None,
    };
    let known = identity.token.as_ref().map(|known| &known.token.claims);
    let mut claims = known.map(|known| known.members().clone()).unwrap_or_default();
    if let Some(tenant) = &caller.tenant {
        add(&mut claims, "iss", Some(&tenant.iss));
    } else if let Some(issuer) = caller.issuer.filter(|_| rules.issuers.len() > 1) {
        add(&mut claims, "iss", rules.issuer_id(issuer));
    }
    add(&mut claims, claim, Some(&caller.value.to_string()));
    let tier = match &rule.tier {
        TierSource::Claim(claim) => Some((claim, rules.tiers.names().nth(identity.tier))),
        TierSource::Table(table) => {
            let of_tier = table.entries.iter().find(|(_, tier)| *tier == identity.tier);
            Some((&table.claim, of_tier.map(|(value, _)| &**value)))
        }
        TierSource::Default | TierSource::Fixed(_) => None,
    };
    if let Some((claim, value)) = tier {
        add(&mut claims, claim, value);
    }
    serde_json::to_string(&claims).ok().map(Credential::Claims)
}

/// Adds a claim, unless the log has it.
fn add(claims: &mut Map<String, Value>, name: &str, value: Option<&str>) {
    if let Some(value) = value
        && !claims.contains_key(name)
    {
        claims.insert(name.to_owned(), value.into());
    }
}
