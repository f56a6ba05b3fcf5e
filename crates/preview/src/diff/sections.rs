//! Differences of sections: identity, limits, access, paths and responses.

use std::time::Duration;

use tollgate_identity::{
    Caller, ClaimRules, ForwardedClaims, IdentityRules, Issuer, IssuerClaim, IssuerKeys,
    KeyLocation, Scheme, TokenSources,
};
use tollgate_keyword::Keyword;
use tollgate_policy::{CallerList, Limit, Per, Policy, Responses};

use super::{
    caller_classes::{Family, caller_rules},
    change::Change,
    overrides, words,
};

/// Differences in how callers are identified.
pub(super) fn identity(old: &Policy, new: &Policy) -> Vec<Change> {
    let is_renamed = old.name != new.name;
    let old = &old.identity;
    let new = &new.identity;
    let mut changes = issuers(old, new);
    changes.extend(renamed_callers(old, new));
    changes.extend(kinds(old, new));
    changes.extend(Change::between_fields(rule_fields(old), rule_fields(new), str::to_owned));
    let changed = Change::between("claims for the upstream", forwarded(old), forwarded(new));
    changes.extend(
        changed.map(|changed| {
            changed.meaning("every policy removes these headers from client requests")
        }),
    );
    // The id is a hash of the whole section and of the files that it names, secrets included.
    if changes.is_empty() && !is_renamed && old.id != new.id {
        changes.push(Change {
            what: "keys or details of identity have changed".into(),
            before: None,
            after: None,
            effect: Some("tokens are verified again".into()),
        });
    }
    changes
}

/// The rules that are compared as one text each.
fn rule_fields(rules: &IdentityRules) -> [(&'static str, String); 7] {
    // Named one by one, so that a new rule cannot be forgotten here.
    let IdentityRules {
        id: _,        // compared if nothing else differs
        issuers: _,   // `issuers`
        callers: _,   // `renamed_callers`, `kinds`
        forwarded: _, // `forwarded`
        introspection,
        api_keys,
        tiers,
        invalid_token,
        sources,
    } = rules;
    let default = tiers.get(tiers.default).map(|tier| tier.name.to_string());
    let server = introspection.as_ref().map(|other| other.introspector.server.to_string());
    let keys = api_keys.as_ref().map(|keys| keys.id.to_string());
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
    [
        ("tiers", words::list(tiers.names().map(str::to_owned))),
        ("default tier", default.unwrap_or_default()),
        ("invalid token", invalid_token.keyword().to_owned()),
        ("opaque tokens", or_none(server)),
        ("api keys", or_none(keys)),
        ("token sources", token_sources(sources)),
        ("other authorization schemes", sources.other_schemes.keyword().to_owned()),
    ]
}

fn forwarded(rules: &IdentityRules) -> String {
    let ForwardedClaims { headers, payload } = &rules.forwarded;
    let headers = headers.iter().map(|(name, claim)| format!("{name} from jwt.{claim}"));
    let payload = payload.iter().map(|name| format!("all in {name}"));
    words::list(headers.chain(payload))
}

/// Callers that get other counters in limits per caller.
fn renamed_callers(old: &IdentityRules, new: &IdentityRules) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for rules in caller_rules(old, new) {
        let over = match (rules.is_same_caller(Family::V4), rules.is_same_caller(Family::V6)) {
            (true, true) => continue,
            (true, false) => " over IPv6",
            _ => "",
        };
        let [before, after] = words::caller_keys([rules.before, rules.after], rules.source);
        let what = format!("caller {}{over}", rules.kind());
        let effect = Some("limits per caller start from zero".into());
        let change = Change { what, before: Some(before), after: Some(after), effect };
        if !changes.contains(&change) {
            changes.push(change);
        }
    }
    changes
}

fn issuers(old: &IdentityRules, new: &IdentityRules) -> Vec<Change> {
    let mut changes = Vec::new();
    for issuer in &old.issuers {
        match new.issuers.iter().find(|other| other.issuer == issuer.issuer) {
            Some(other) => changes.extend(issuer_fields(issuer, other)),
            None => {
                let gone = Change::removed("issuer", issuer.issuer.clone());
                changes.push(gone.meaning("its tokens are no longer accepted"));
            }
        }
    }
    for issuer in &new.issuers {
        if old.issuers.iter().all(|other| other.issuer != issuer.issuer) {
            let added = Change::added("issuer", issuer.issuer.clone());
            changes.push(added.meaning("its tokens are accepted"));
        }
    }
    changes
}

fn issuer_fields(old: &Issuer, new: &Issuer) -> Vec<Change> {
    let name = &old.issuer;
    Change::between_fields(fields_of(old), fields_of(new), |field| {
        format!("issuer {name}: {field}")
    })
}

fn fields_of(issuer: &Issuer) -> [(&'static str, String); 12] {
    // Named one by one, so that a new field cannot be forgotten here.
    let Issuer {
        issuer: _,      // the same: issuers are found by it
        key_hints: _,   // shown as details of identity, by the id of all rules
        require_exp: _, // no policy sets it
        name,
        claims: ClaimRules { audience, required, names },
        claim,
        from,
        types,
        lenient,
        leeway,
        max_age,
        max_lifetime,
        keys,
    } = issuer;
    let age = |age: &Option<Duration>| age.map_or("any".into(), |age| format!("{age:?}"));
    let mut required: Vec<String> = required.iter().map(words::required_claim).collect();
    required.sort();
    let mut names: Vec<String> =
        names.iter().map(|(name, place)| format!("{name} from {place}")).collect();
    names.sort();
    let tenants = match claim {
        IssuerClaim::Tenants(tenants) => tenants.to_string(),
        IssuerClaim::Exact | IssuerClaim::Absent => "none".to_owned(),
    };
    let keys = match keys {
        IssuerKeys::Fixed(_) => "from the policy".into(),
        IssuerKeys::Remote { spec, .. } => match &spec.location {
            KeyLocation::Jwks(server) => server.to_string(),
            KeyLocation::Discovery { .. } => "by discovery".into(),
        },
    };
    [
        ("name", name.clone()),
        ("tenants", tenants),
        ("from", words::list(from.iter().map(|place| place.keyword().to_owned()))),
        ("audience", words::list(audience.iter().cloned())),
        ("required claims", words::list(required)),
        ("claim names", words::list(names)),
        ("types", words::list(types.iter().cloned())),
        ("lenient", words::list(lenient.iter().map(|own| own.keyword().to_owned()))),
        ("leeway", format!("{leeway:?}")),
        ("max age", age(max_age)),
        ("max lifetime", age(max_lifetime)),
        ("keys", keys),
    ]
}

/// Kinds of callers with another source of the tier, or another name.
fn kinds(old: &IdentityRules, new: &IdentityRules) -> Vec<Change> {
    let tier = |caller: &Caller, rules: &IdentityRules| {
        // Named one by one, so that a new field cannot be forgotten here.
        let Caller { name: _, key: _, tier } = caller;
        words::tier_source(tier, &rules.tiers)
    };
    let mut changes = Vec::new();
    for caller in &old.callers {
        if let Some(other) = new.callers.iter().find(|other| other.name == caller.name) {
            let what = format!("tier of {}", caller.name);
            changes.extend(Change::between(what, tier(caller, old), tier(other, new)));
        } else if let Some(other) = new.callers.iter().find(|other| other.key == caller.key) {
            let before = caller.name.to_string();
            let renamed = Change::between("kind of caller", before, other.name.to_string());
            changes.extend(renamed.map(|change| change.meaning("counters stay")));
        }
    }
    changes
}

fn token_sources(sources: &TokenSources) -> String {
    // Named one by one, so that a new source cannot be forgotten here.
    let TokenSources {
        other_schemes: _, // a field of its own
        schemes,
        key_schemes,
        header,
        cookie,
        query,
        api_key,
        forward,
    } = sources;
    let by = |schemes: &[Scheme]| {
        let keywords: Vec<&str> = schemes.iter().map(|scheme| scheme.keyword()).collect();
        (!keywords.is_empty()).then(|| format!("authorization by {}", keywords.join(" or ")))
    };
    let all = [
        by(schemes),
        header.as_ref().map(|name| format!("header {name}")),
        cookie.as_ref().map(|name| format!("cookie {name}")),
        query.as_ref().map(|name| format!("query parameter {name}")),
        api_key.as_ref().map(|name| format!("API keys in {name}")),
        by(key_schemes).map(|place| format!("API keys in {place}")),
        forward.then(|| "forwarded to the upstream".to_owned()),
    ];
    words::list(all.into_iter().flatten())
}

/// Differences in when limits count and which callers are enforced.
pub(super) fn limits(old: &Policy, new: &Policy) -> Vec<Change> {
    let pair = |limit: &Limit| {
        let other = new.limits.iter().find(|other| other.name == limit.name)?;
        let what = |what: &str| format!("{}: {what}", limit.name);
        Some(Change::between_fields(limit_fields(limit), limit_fields(other), what))
    };
    old.limits.iter().filter_map(pair).flatten().collect()
}

fn limit_fields(limit: &Limit) -> [(&'static str, String); 8] {
    // Named one by one, so that a new field cannot be forgotten here.
    let Limit {
        name: _,      // the same: limits are found by it
        position: _,  // changes nothing
        resource: _,  // the name
        open: _,      // follows from the routes
        rates: _,     // windows
        candidate: _, // windows
        overrides: _, // windows, access
        // What a limit is counted per is part of the keys that `windows` compares.
        per: Per { on_missing, parts: _, ipv4_prefix: _, ipv6_prefix: _ },
        verified,
        cost,
        refund,
        count_when,
        enforcement,
        fallback,
        full,
    } = limit;
    let count_when = count_when.map_or("always".into(), |statuses| statuses.to_string());
    [
        ("cost", words::cost(cost)),
        ("refund", words::refund(refund)),
        ("count when", count_when),
        ("mode", words::enforcement(*enforcement)),
        ("on store error", fallback.keyword().to_owned()),
        ("on store full", words::when_full(*full).to_owned()),
        ("on missing", on_missing.keyword().to_owned()),
        ("verified", if *verified { "yes" } else { "no" }.to_owned()),
    ]
}

/// Differences in denied and exempt callers, in what the access log hides, and in overrides.
pub(super) fn access(old: &Policy, new: &Policy) -> Vec<Change> {
    let mut changes = Vec::new();
    for (what, before, after) in
        [("deny", &old.deny, &new.deny), ("exempt", &old.exempt, &new.exempt)]
    {
        let before = entries(before, old);
        let after = entries(after, new);
        let gone = before.iter().filter(|entry| !after.contains(entry));
        changes.extend(gone.map(|entry| Change::removed(what, entry.clone())));
        let added = after.iter().filter(|entry| !before.contains(entry));
        changes.extend(added.map(|entry| Change::added(what, entry.clone())));
    }
    let in_log = new.facts.iter().filter_map(|fact| {
        let before = old.facts.iter().find(|before| before.name == fact.name)?;
        let [before, after] = [before, fact].map(|fact| match fact.is_hashed {
            true => "hashed".to_owned(),
            false => "plain".to_owned(),
        });
        Change::between(format!("{} in the access log", fact.name), before, after)
    });
    changes.extend(in_log);
    changes.extend(overrides::changes(old, new));
    changes
}

fn entries(listed: &CallerList, policy: &Policy) -> Vec<String> {
    let CallerList { networks, callers } = listed;
    let networks = networks.iter().map(ToString::to_string);
    networks.chain(callers.iter().map(|name| words::caller(name, policy))).collect()
}

/// Differences in how paths and methods are read.
pub(super) fn paths(old: &Policy, new: &Policy) -> Vec<Change> {
    let fields = |policy: &Policy| {
        [
            ("encoded slash", policy.encoded_slash.keyword().to_owned()),
            ("method override", policy.method_override.keyword().to_owned()),
        ]
    };
    Change::between_fields(fields(old), fields(new), str::to_owned)
}

/// Differences in responses.
pub(super) fn responses(old: &Policy, new: &Policy) -> Vec<Change> {
    Change::between_fields(response_fields(old), response_fields(new), str::to_owned)
}

fn response_fields(policy: &Policy) -> [(&'static str, String); 10] {
    // Named one by one, so that a new field cannot be forgotten here.
    let Responses {
        schemes: _, // identity: where tokens come from
        headers,
        denied_status,
        mcp_denied_status,
        documentation_url,
        realm,
        rate_limit_path,
        jitter,
        shadow_header,
    } = &policy.responses;
    let text = |text: Option<&str>| text.unwrap_or("none").to_owned();
    let mcp_status = mcp_denied_status.map(|status| status.as_u16().to_string());
    let mcp_status = mcp_status.unwrap_or_else(|| "the same".to_owned());
    let readers = policy.cors.as_deref().map(words::readers);
    let core = policy.core.and_then(|at| policy.limits.get(at));
    [
        ("headers", headers.keyword().to_owned()),
        ("denied status", denied_status.as_u16().to_string()),
        ("denied status of MCP", mcp_status),
        ("documentation url", text(documentation_url.as_deref())),
        ("realm", realm.to_string()),
        ("rate limit path", text(rate_limit_path.as_deref())),
        ("origins that may read the rate limit path", text(readers.as_deref())),
        ("jitter", format!("{jitter:?}")),
        ("shadow header", shadow_header.to_string()),
        ("core limit", text(core.map(|limit| &*limit.name))),
    ]
}
