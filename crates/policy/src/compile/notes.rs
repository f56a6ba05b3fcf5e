//! What is good to know about a policy in which nothing is wrong: what a limit does by default that
//! depends on what tokens have, and what servers may read otherwise than it is written.

use tollgate_identity::Auth;

use tollgate_limit::Quota;

use crate::{KeyPart, Limit, Period, Policy, file::RawPolicy};

/// A limit of a sliding window below which one request more or less is a tenth or more of it.
const ENOUGH_TO_ESTIMATE: u32 = 10;

/// A line for each of these things.
pub(super) fn notes(raw: &RawPolicy, policy: &Policy) -> Vec<String> {
    let mut notes = unsaid_claims(raw, policy);
    notes.extend(policy.limits.iter().filter_map(few_in_a_sliding_window));
    notes.extend(unsaid_audiences(policy));
    notes.extend(unknown_servers(policy));
    notes.extend(routes_before_earlier_ones(policy));
    notes
}

/// A line for each limit that counts by claims and does not say how requests without them are
/// treated.
///
/// This is no warning: that the limit does not apply to them is often what is meant, and
/// `on_missing: skip` says so.
fn unsaid_claims(raw: &RawPolicy, policy: &Policy) -> Vec<String> {
    let limits = policy.limits.iter().zip(raw.limits.iter());
    let unsaid = limits.filter(|(_, (_, raw))| raw.on_missing.is_none());
    let note = |name: &str, claims: String| {
        format!(
            "limit {name} does not count tokens without {claims}, or with an object, a list of \
             several or nothing there; `on_missing: deny` refuses them, `on_missing: skip` leaves \
             it at that"
        )
    };
    unsaid
        .filter_map(|(limit, _)| {
            let claims = limit.per.parts.iter().filter(|part| matches!(part, KeyPart::Claim(_)));
            let claims: Vec<String> = claims.map(ToString::to_string).collect();
            (!claims.is_empty()).then(|| note(&limit.name, claims.join(" and ")))
        })
        .collect()
}

/// A line for a limit that is too small for the estimate of a sliding window.
fn few_in_a_sliding_window(limit: &Limit) -> Option<String> {
    let overrides = limit.overrides.0.iter().map(|own| &own.allowances);
    let mut all = limit.rates.iter().chain(&limit.candidate).chain(overrides).flatten();
    let few = all.find_map(|allowance| match &allowance.quota {
        Quota::SlidingWindow(few) if (1..ENOUGH_TO_ESTIMATE).contains(&few.limit) => Some(few),
        _ => None,
    })?;
    Some(format!(
        "limit {} denies some callers that stay below {}/{}: a sliding window estimates, and of so \
         few, one too many matters; `algorithm: sliding_log` counts exactly",
        limit.name,
        few.limit,
        Period::Length(few.window)
    ))
}

/// One line for all upstreams of which nobody says what serves them.
fn unknown_servers(policy: &Policy) -> Option<String> {
    let unknown = policy.upstreams.iter().filter(|upstream| upstream.paths.is_none());
    let upstreams = listed("upstream", unknown.map(|upstream| &*upstream.name))?;
    Some(format!(
        "nothing says what serves {upstreams}: routes take paths as they are written, and with \
         `paths: express`, say, what that framework takes for them (docs/frameworks.md)"
    ))
}

/// One line for all issuers whose tokens may be for anyone.
fn unsaid_audiences(policy: &Policy) -> Option<String> {
    let accepts_any = |issuer: usize| {
        policy.routes.iter().any(|route| match &route.auth {
            Auth::Optional(accepted) | Auth::Required(accepted) => {
                accepted.issuers.contains(issuer) && accepted.claims.audience.is_empty()
            }
            Auth::None => false,
        })
    };
    let issuers = policy.identity.issuers.iter().enumerate();
    let any = issuers.filter(|(at, issuer)| issuer.claims.audience.is_empty() && accepts_any(*at));
    let issuers = listed("issuer", any.map(|(_, issuer)| issuer.name.as_str()))?;
    Some(format!(
        "tokens of {issuers} are good whatever they are for: with `audience: [my-api]`, say, those \
         for other services are refused"
    ))
}

/// Names in a row: `upstreams a, b and c`. None: there are none.
fn listed<'n>(kind: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let names: Vec<&str> = names.collect();
    match names.as_slice() {
        [] => None,
        [name] => Some(format!("{kind} {name}")),
        [others @ .., last] => Some(format!("{kind}s {} and {last}", others.join(", "))),
    }
}

/// A line for each route that goes before an earlier one whose servers may take its paths for that
/// one's.
fn routes_before_earlier_ones(policy: &Policy) -> Vec<String> {
    let line = |(earlier, later): (usize, usize)| {
        let [earlier, later] = [policy.routes.get(earlier)?, policy.routes.get(later)?];
        let upstream = policy.upstreams.get(earlier.upstream)?;
        Some(format!(
            "route {} takes its own paths before route {}, which comes first: upstream {} may read \
             them as paths of that one, and a route that spells them out is closer",
            later.name, earlier.name, upstream.name
        ))
    };
    policy.router.preceded().into_iter().filter_map(line).collect()
}
