//! What is good to know about a policy in which nothing is wrong: what a limit does by default that
//! depends on what tokens have.

use crate::{KeyPart, Policy, file::RawPolicy};

/// A line for each limit that counts by claims and does not say how requests without them are
/// treated.
///
/// This is no warning: that the limit does not apply to them is often what is meant, and
/// `on_missing: skip` says so.
pub(super) fn notes(raw: &RawPolicy, policy: &Policy) -> Vec<String> {
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
