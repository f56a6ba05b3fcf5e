//! Parts of a policy in words, as people write and read them.

use std::time::Duration;

use tollgate_identity::{
    AcceptedIssuers, AcceptedTokens, Auth, Caller, CallerKey, ClaimRules, IdentityRules,
    RequiredClaim, TierSource, Tiers,
};
use tollgate_limit::{Align, Detail, Quota, Terms, WhenFull};
use tollgate_policy::{
    CallerName, Cors, Cost, Enforcement, HeaderEdits, HostPattern, KeyPart, OriginPattern, Origins,
    Per, Period, Policy, Preflight, Refund, Statuses,
};

use super::caller_classes::{CallerSource, claim_path};

/// The quota and its algorithm: `5000/hour`, `30/minute by gcra, burst 10`.
pub fn quota(quota: &Quota) -> String {
    let Terms { units, details, .. } = quota.terms();
    let mut words = match length(quota) {
        Some(length) => format!("{units}/{length}"),
        None => format!("{units} at once"),
    };
    let counted = match quota.align() {
        Some(_) => alignment(quota),
        None => quota.terms().window.map(|_| quota.kind().name().to_owned()),
    };
    words.extend(counted.map(|counted| format!(" by {counted}")));
    words.extend(details.into_iter().map(|(field, detail)| match detail {
        Detail::Set => format!(", {field}"),
        Detail::Units(units) => format!(", {field} {units}"),
        Detail::Time(time) => format!(", {field} {}", Period::Length(time)),
    }));
    words
}

/// The length of the window; none: there is no window.
pub(super) fn length(quota: &Quota) -> Option<String> {
    match quota.align() {
        Some(Align::Calendar(calendar)) => Some(calendar.unit.name().to_owned()),
        Some(Align::FirstRequest(_) | Align::Epoch(_)) | None => quota.terms().window.map(word),
    }
}

/// Where windows begin, if it is not with the first request.
pub(super) fn alignment(quota: &Quota) -> Option<String> {
    match quota.align()? {
        Align::FirstRequest(_) => None,
        Align::Epoch(_) => Some("epoch".into()),
        Align::Calendar(calendar) => Some(format!("calendar {}", calendar.zone_name())),
    }
}

fn word(length: Duration) -> String {
    let names = [(1, "second"), (60, "minute"), (3600, "hour"), (86_400, "day"), (604_800, "week")];
    let name = names.iter().find(|(secs, _)| Duration::from_secs(*secs) == length);
    name.map_or_else(|| Period::Length(length).to_string(), |(_, name)| (*name).to_owned())
}

/// What a limit is counted per: `caller`, `client.ip (/32, IPv6 /56), path`.
pub(super) fn per(per: &Per) -> String {
    let part = |part: &KeyPart| match (part, per.ipv4_prefix, per.ipv6_prefix) {
        (KeyPart::ClientIp, 32, 64) => part.to_string(),
        (KeyPart::ClientIp, v4, v6) => format!("{} (/{v4}, IPv6 /{v6})", part),
        _ => part.to_string(),
    };
    list(per.parts.iter().map(part))
}

/// A caller, with the issuer where the policy knows several: by its id, since two policies may call
/// one issuer by two names.
pub(super) fn caller(name: &CallerName, policy: &Policy) -> String {
    match name.issuer.and_then(|at| policy.identity.issuer_id(at)) {
        Some(issuer) => format!("{issuer}/{name}"),
        None => name.to_string(),
    }
}

/// The claim, field or address that identifies callers.
pub(crate) fn caller_key(key: &CallerKey) -> String {
    match key {
        CallerKey::Claim(claim) => format!("jwt.{claim}"),
        CallerKey::ApiKey(field) => format!("api_key.{field}"),
        CallerKey::Certificate(name) => format!("client_certificate.{}", name.keyword()),
        CallerKey::Address { ipv6_prefix: 64 } => "client.ip".to_owned(),
        CallerKey::Address { ipv6_prefix } => format!("client.ip (IPv6 /{ipv6_prefix})"),
    }
}

/// What identifies callers with `source`, before and after.
pub(super) fn caller_keys(callers: [Option<&Caller>; 2], source: CallerSource<'_>) -> [String; 2] {
    let [before, after] =
        callers.map(|caller| caller.map_or("none".to_owned(), |own| caller_key(&own.key)));
    if before != after {
        return [before, after];
    }
    if let Some(ids) = source.renamed() {
        return ids.map(|id| format!("{before} of {id}"));
    }
    match (callers, source.claims()) {
        ([Some(old), Some(new)], Some([rules, rules_after])) => {
            // The same name, read from elsewhere.
            let claim = |caller: &Caller, rules: &ClaimRules| match &caller.key {
                CallerKey::Claim(claim) => format!("{} as jwt.{claim}", claim_path(rules, claim)),
                other => caller_key(other),
            };
            [claim(old, rules), claim(new, rules_after)]
        }
        _ => [before, after],
    }
}

/// Where a tier comes from.
pub(super) fn tier_source(source: &TierSource, tiers: &Tiers) -> String {
    let name = |at: usize| tiers.get(at).map(|tier| tier.name.to_string()).unwrap_or_default();
    match source {
        TierSource::Default => format!("the default, {}", name(tiers.default)),
        TierSource::Fixed(at) => name(*at),
        TierSource::Claim(claim) => format!("claim {claim}"),
        TierSource::Table(table) => {
            let entries = table.entries.iter();
            let entries = entries.map(|(value, tier)| format!("{value}: {}", name(*tier)));
            let all = entries.chain([format!("else {}", name(table.default))]);
            format!("claim {} ({})", table.claim, list(all))
        }
    }
}

/// Whether a route requires tokens, and of which issuers.
pub(crate) fn auth(auth: &Auth, policy: &Policy) -> String {
    let (word, accepted) = match auth {
        Auth::None => return "none".into(),
        Auth::Optional(accepted) => ("optional", accepted),
        Auth::Required(accepted) => ("required", accepted),
    };
    let AcceptedTokens { issuers, claims } = accepted;
    let mut of = Vec::new();
    if let AcceptedIssuers::Only(positions) = issuers {
        of.push(list(positions.iter().map(|at| issuer(&policy.identity, *at))));
    }
    if !claims.audience.is_empty() {
        of.push(format!("for {}", list(claims.audience.iter().cloned())));
    }
    if !claims.required.is_empty() {
        of.push(format!("with {}", list(claims.required.iter().map(required_claim))));
    }
    if of.is_empty() { word.into() } else { format!("{word} ({})", of.join(", ")) }
}

/// A claim that must be there, with its accepted values.
pub(crate) fn required_claim(claim: &RequiredClaim) -> String {
    let RequiredClaim { path, accepted } = claim;
    if accepted.is_empty() {
        return path.to_string();
    }
    let values: Vec<String> = accepted.iter().map(ToString::to_string).collect();
    format!("{path} ({})", values.join(" or "))
}

/// The name of an issuer in routes.
pub(crate) fn issuer(rules: &IdentityRules, at: usize) -> String {
    let named = rules.issuers.get(at).map(|issuer| issuer.name.as_str());
    named.or_else(|| rules.issuer_id(at)).unwrap_or_default().to_owned()
}

/// What a request costs.
pub(super) fn cost(cost: &Cost) -> String {
    let Cost { by_method, default, source, reserve, abandoned } = cost;
    let methods = by_method.iter().map(|(method, units)| format!("{method} {units}"));
    let mut words: Vec<String> = methods.collect();
    words.push(match words.is_empty() {
        true => default.to_string(),
        false => format!("others {default}"),
    });
    if let Some(reserve) = reserve {
        words.push(format!("reserved by the body: {reserve}"));
    }
    if let Some(source) = source {
        words.push(format!("then from {source}"));
        words.extend(abandoned.map(|units| format!("{units} if abandoned")));
    }
    list(words)
}

/// Which responses are refunded.
pub(super) fn refund(refund: &Refund) -> String {
    let Refund { everybody: all, authenticated, at_most } = refund;
    let statuses = match (*all == Statuses::default(), authenticated == all) {
        (true, true) => "none".into(),
        (true, false) => format!("{authenticated} for authenticated callers"),
        (false, true) => all.to_string(),
        (false, false) => format!("{all}; for authenticated callers {authenticated}"),
    };
    match at_most {
        Some(percent) => format!("{statuses}; at most {percent}%"),
        None => statuses,
    }
}

/// For which callers a limit is enforced.
pub(super) fn enforcement(enforcement: Enforcement) -> String {
    match enforcement {
        Enforcement::AllCallers => "enforced".into(),
        Enforcement::Shadow => "shadow".into(),
        Enforcement::Percent(percent) => format!("enforced for {percent} %"),
    }
}

/// The decision about requests that find no room for a counter.
pub(super) fn when_full(full: WhenFull) -> &'static str {
    match full {
        WhenFull::OpenWhileAlone => "open while redis is unreachable",
        WhenFull::Open => "open",
        WhenFull::Closed => "closed",
    }
}

/// The origins whose pages may read responses.
pub(super) fn readers(cors: &Cors) -> String {
    list(reader_words(cors))
}

fn reader_words(cors: &Cors) -> Vec<String> {
    let origin = |origin: &OriginPattern| match origin {
        OriginPattern::Exact(origin) => origin.to_string(),
        OriginPattern::Below { scheme, suffix } => format!("{scheme}*{suffix}"),
    };
    // The preflight is not about reading.
    let Cors { origins, credentials, preflight: _ } = cors;
    let mut words: Vec<String> = match origins {
        Origins::Any => vec!["*".into()],
        Origins::Patterns(patterns) => patterns.iter().map(origin).collect(),
    };
    words.extend(credentials.then(|| "with credentials".into()));
    words
}

/// What pages of other origins may do.
pub(super) fn cors(cors: &Cors) -> String {
    let mut words = reader_words(cors);
    words.push(match &cors.preflight {
        Preflight::Check => "preflight check".into(),
        Preflight::Pass => "preflight pass".into(),
        Preflight::Answer { methods, headers, max_age } => {
            let methods = methods.iter().map(ToString::to_string);
            let headers = headers.iter().map(ToString::to_string);
            let max_age = max_age.map(|time| format!("{time:?}"));
            let details: Vec<String> = methods.chain(headers).chain(max_age).collect();
            match details.is_empty() {
                true => "preflight answer".into(),
                false => format!("preflight answer ({})", details.join(" ")),
            }
        }
    });
    list(words)
}

/// Which fields are changed, without their values.
pub(super) fn header_edits(edits: &HeaderEdits) -> String {
    let HeaderEdits { remove, set, add } = edits;
    let removed = remove.iter().map(|name| format!("remove {name}"));
    let set = set.iter().map(|(name, _)| format!("set {name}"));
    let added = add.iter().map(|(name, _)| format!("add {name}"));
    list(removed.chain(set).chain(added))
}

/// A host as policies write it.
pub(crate) fn host(pattern: &HostPattern) -> String {
    match pattern {
        HostPattern::Exact(name) => name.to_string(),
        HostPattern::Below(suffix) => format!("*{suffix}"),
    }
}

/// Words with commas, or `none`.
pub(crate) fn list(words: impl IntoIterator<Item = String>) -> String {
    let words: Vec<String> = words.into_iter().collect();
    match words.is_empty() {
        true => "none".into(),
        false => words.join(", "),
    }
}
