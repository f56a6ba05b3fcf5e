//! Who is calling, when limits count, who is singled out, what paths stand for, what clients are
//! told.

use std::time::Duration;

use serde::Serialize;

use super::{
    overridden,
    seats::{Family, all_named},
    words,
};
use crate::{
    identity::{
        Caller, ClaimRules, IdentityRules, InvalidToken, Issuer, IssuerKeys, KeyLocation,
        OtherSchemes, Scheme,
    },
    policy::{CallerName, HeaderProfile, Limit, Listed, OnMissing, Policy},
    target::EncodedSlash,
};

/// Something that is otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What it is.
    pub what: String,
    /// What it was; none: it was not there.
    pub before: Option<String>,
    /// What it will be; none: it is gone.
    pub after: Option<String>,
    /// What that means, where it does not speak for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

impl Change {
    pub(super) fn between(
        what: impl Into<String>,
        before: String,
        after: String,
    ) -> Option<Change> {
        let what = what.into();
        let is_other = before != after;
        is_other.then_some(Change { what, before: Some(before), after: Some(after), effect: None })
    }

    /// Pairs of fields that differ, called by `what` makes of their names.
    pub(super) fn between_fields<const N: usize>(
        before: [(&str, String); N],
        after: [(&str, String); N],
        what: impl Fn(&str) -> String,
    ) -> Vec<Change> {
        let pairs = before.into_iter().zip(after);
        let change = |((name, before), (_, after))| Change::between(what(name), before, after);
        pairs.filter_map(change).collect()
    }

    pub(super) fn added(what: &str, after: String) -> Change {
        Change { what: what.into(), before: None, after: Some(after), effect: None }
    }

    pub(super) fn removed(what: &str, before: String) -> Change {
        Change { what: what.into(), before: Some(before), after: None, effect: None }
    }

    fn meaning(mut self, effect: &str) -> Change {
        self.effect = Some(effect.into());
        self
    }
}

/// Who is calling, and how that is found out.
pub(super) fn identity(old: &Policy, new: &Policy) -> Vec<Change> {
    let is_renamed = old.name != new.name;
    let (old, new) = (&old.identity, &new.identity);
    let fields = |rules: &IdentityRules| {
        let default = rules.tiers.get(rules.tiers.default);
        let asked = rules.introspection.as_ref().map(|other| other.introspector.endpoint());
        let keys = rules.api_keys.as_ref().map(|keys| keys.id.to_string());
        let or_none = |word: Option<String>| word.unwrap_or_else(|| "none".to_owned());
        [
            ("tiers", words::list(rules.tiers.names().map(str::to_owned))),
            ("default tier", default.map(|tier| tier.name.to_string()).unwrap_or_default()),
            (
                "invalid token",
                match rules.invalid_token {
                    InvalidToken::Reject => "reject".to_owned(),
                    InvalidToken::Anonymous => "anonymous".to_owned(),
                },
            ),
            ("opaque tokens", or_none(asked.map(ToString::to_string))),
            ("api keys", or_none(keys)),
            ("tokens come from", token_sources(rules)),
            (
                "other schemes of authorization",
                match rules.sources.other_schemes {
                    OtherSchemes::Drop => "drop".to_owned(),
                    OtherSchemes::Forward => "forward".to_owned(),
                },
            ),
        ]
    };
    let mut changes = issuers(old, new);
    changes.extend(renamed_callers(old, new));
    changes.extend(kinds(old, new));
    changes.extend(Change::between_fields(fields(old), fields(new), str::to_owned));
    let told = Change::between("claims for the upstream", forwarded(old), forwarded(new));
    changes.extend(
        told.map(|told| told.meaning("what clients write there is taken out under all policies")),
    );
    // The id stands for all of the section and the files that it names, secrets included.
    if changes.is_empty() && !is_renamed && old.id != new.id {
        changes.push(Change {
            what: "keys or details of identity are others".into(),
            before: None,
            after: None,
            effect: Some("tokens are verified anew".into()),
        });
    }
    changes
}

fn forwarded(rules: &IdentityRules) -> String {
    let forwarded = &rules.forwarded;
    let headers = forwarded.headers.iter().map(|(name, claim)| format!("{name} from jwt.{claim}"));
    let payload = forwarded.payload.iter().map(|name| format!("all in {name}"));
    words::list(headers.chain(payload))
}

/// Callers whose counters are others than before, wherever a limit is counted per caller.
fn renamed_callers(old: &IdentityRules, new: &IdentityRules) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for named in all_named(old, new) {
        let over = match (named.is_same_caller(Family::V4), named.is_same_caller(Family::V6)) {
            (true, true) => continue,
            (true, false) => " over IPv6",
            _ => "",
        };
        let [before, after] = words::named_by([named.before, named.after], named.source);
        let what = format!("caller {}{over}", named.kind());
        let effect = Some("counts anew wherever a limit is per caller".into());
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
                changes.push(gone.meaning("its tokens are no longer taken"));
            }
        }
    }
    for issuer in &new.issuers {
        if old.issuers.iter().all(|other| other.issuer != issuer.issuer) {
            let added = Change::added("issuer", issuer.issuer.clone());
            changes.push(added.meaning("its tokens are taken"));
        }
    }
    changes
}

fn issuer_fields(old: &Issuer, new: &Issuer) -> Vec<Change> {
    let fields = |issuer: &Issuer| {
        let age = |age: Option<Duration>| age.map_or("any".into(), |age| format!("{age:?}"));
        let [mut required, mut names] = claim_rules(&issuer.claims);
        required.sort();
        names.sort();
        [
            ("name", issuer.name.clone()),
            ("audience", words::list(issuer.claims.audience.iter().cloned())),
            ("required claims", words::list(required)),
            ("claim names", words::list(names)),
            ("types", words::list(issuer.types.iter().cloned())),
            ("leeway", format!("{:?}", issuer.leeway)),
            ("max age", age(issuer.max_age)),
            ("max lifetime", age(issuer.max_lifetime)),
            (
                "keys",
                match &issuer.keys {
                    IssuerKeys::Fixed(_) => "of the policy".into(),
                    IssuerKeys::Remote { spec, .. } => match &spec.location {
                        KeyLocation::Jwks(endpoint) => endpoint.to_string(),
                        KeyLocation::Discovery { .. } => "by discovery".into(),
                    },
                },
            ),
        ]
    };
    let what = |what: &str| format!("issuer {}: {what}", old.issuer);
    Change::between_fields(fields(old), fields(new), what)
}

/// The claims that must be there, and what claims are called by others.
fn claim_rules(rules: &ClaimRules) -> [Vec<String>; 2] {
    let required = rules.required.iter().map(|claim| match claim.accepted.as_slice() {
        [] => claim.path.to_string(),
        values => {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            format!("{} ({})", claim.path, values.join(" or "))
        }
    });
    let names = rules.names.iter().map(|(name, place)| format!("{name} from {place}"));
    [required.collect(), names.collect()]
}

/// Kinds of callers whose tier comes from elsewhere, or who are called otherwise.
fn kinds(old: &IdentityRules, new: &IdentityRules) -> Vec<Change> {
    let tier =
        |caller: &Caller, rules: &IdentityRules| words::tier_source(&caller.tier, &rules.tiers);
    let mut changes = Vec::new();
    for caller in &old.callers {
        if let Some(other) = new.callers.iter().find(|other| other.name == caller.name) {
            let what = format!("tier of {}", caller.name);
            changes.extend(Change::between(what, tier(caller, old), tier(other, new)));
        } else if let Some(other) = new.callers.iter().find(|other| other.key == caller.key) {
            let (before, after) = (caller.name.to_string(), other.name.to_string());
            let renamed = Change::between("kind of caller", before, after);
            changes.extend(renamed.map(|change| change.meaning("counters stay")));
        }
    }
    changes
}

fn token_sources(rules: &IdentityRules) -> String {
    let sources = &rules.sources;
    let header = sources.header.as_ref().map(|name| format!("header {name}"));
    let cookie = sources.cookie.as_ref().map(|name| format!("cookie {name}"));
    let forwarded = sources.forward.then(|| "and go on to the upstream".to_owned());
    let query = sources.query.as_ref().map(|name| format!("query parameter {name}"));
    let by = |schemes: &[Scheme]| {
        let words: Vec<&str> = schemes.iter().map(|scheme| scheme.keyword()).collect();
        (!words.is_empty()).then(|| format!("authorization by {}", words.join(" or ")))
    };
    let keys = sources.api_key.as_ref().map(|name| format!("API keys in {name}"));
    let shown_keys = by(&sources.key_schemes).map(|place| format!("API keys in {place}"));
    let all = [by(&sources.schemes), header, cookie, query, keys, shown_keys, forwarded];
    words::list(all.into_iter().flatten())
}

/// When limits count, and for whom they are more than a word.
pub(super) fn limits(old: &Policy, new: &Policy) -> Vec<Change> {
    let pair = |limit: &'_ Limit| {
        let other = new.limits.iter().find(|other| other.name == limit.name)?;
        let fields = |limit: &Limit| {
            [
                ("cost", words::cost(&limit.cost)),
                ("refund", words::refund(&limit.refund)),
                (
                    "count when",
                    limit.count_when.map_or("always".into(), |set| words::statuses(&set)),
                ),
                ("mode", words::enforcement(limit.enforcement)),
                ("on store error", format!("{:?}", limit.fallback).to_lowercase()),
                ("on store full", words::when_full(limit.full).into()),
                (
                    "on missing",
                    match limit.per.on_missing {
                        OnMissing::Skip => "skip".into(),
                        OnMissing::Deny => "deny".into(),
                    },
                ),
            ]
        };
        let what = |what: &str| format!("{}: {what}", limit.name);
        Some(Change::between_fields(fields(limit), fields(other), what))
    };
    old.limits.iter().filter_map(pair).flatten().collect()
}

/// Who is refused, who is charged nothing, and until when there are other rates for some.
pub(super) fn access(old: &Policy, new: &Policy) -> Vec<Change> {
    let mut changes = Vec::new();
    for (what, before, after) in
        [("deny", &old.deny, &new.deny), ("exempt", &old.exempt, &new.exempt)]
    {
        let (before, after) = (entries(before, old), entries(after, new));
        let gone = before.iter().filter(|entry| !after.contains(entry));
        changes.extend(gone.map(|entry| Change::removed(what, entry.clone())));
        let added = after.iter().filter(|entry| !before.contains(entry));
        changes.extend(added.map(|entry| Change::added(what, entry.clone())));
    }
    changes.extend(overridden::changes(old, new));
    changes
}

fn entries(listed: &Listed, policy: &Policy) -> Vec<String> {
    let networks = listed.networks.iter().map(ToString::to_string);
    networks.chain(listed.callers.iter().map(|name| caller(name, policy))).collect()
}

/// A caller, with the issuer where the policy knows several.
pub(super) fn caller(name: &CallerName, policy: &Policy) -> String {
    match name.issuer.and_then(|at| policy.identity.issuer_id(at)) {
        Some(issuer) => format!("{issuer}/{name}"),
        None => name.to_string(),
    }
}

/// What paths stand for.
pub(super) fn paths(old: &Policy, new: &Policy) -> Vec<Change> {
    let word = |policy: &Policy| match policy.encoded_slash {
        EncodedSlash::Reject => "reject".to_owned(),
        EncodedSlash::Keep => "keep".into(),
        EncodedSlash::Decode => "decode".into(),
    };
    Change::between("encoded slash", word(old), word(new)).into_iter().collect()
}

/// What clients are told.
pub(super) fn responses(old: &Policy, new: &Policy) -> Vec<Change> {
    let fields = |policy: &Policy| {
        let told = &policy.responses;
        let text = |text: Option<&str>| text.unwrap_or("none").to_owned();
        let headers = match told.headers {
            HeaderProfile::Github => "github",
            HeaderProfile::Ietf => "ietf",
            HeaderProfile::Both => "both",
            HeaderProfile::None => "none",
        };
        let core = policy.core.and_then(|at| policy.limits.get(at));
        [
            ("headers", headers.to_owned()),
            ("denied status", told.denied_status.as_u16().to_string()),
            ("documentation url", text(told.documentation_url.as_deref())),
            ("realm", told.realm.to_string()),
            ("rate limit path", text(told.rate_limit_path.as_deref())),
            ("pages that may read it", text(policy.cors.as_deref().map(words::readers).as_deref())),
            ("jitter", format!("{:?}", told.jitter)),
            ("shadow header", told.shadow_header.to_string()),
            ("limit that stands for all", text(core.map(|limit| &*limit.name))),
        ]
    };
    Change::between_fields(fields(old), fields(new), str::to_owned)
}
