//! Tokens that name a tier which the policy does not have: a plan that was renamed, or misspelled.
//!
//! Their callers have the default tier, which nobody would notice. So they are counted, and the log
//! names the claim, and never the value.

use tollgate_clock::Timestamp;
use tollgate_identity::Identifier;
use tollgate_observe::metrics::PolicySeries;

use super::request_state::RequestState;

/// Counts a request with such a token, and warns once in a while in the whole process.
pub(super) fn note_unknown_tier(
    series: &PolicySeries,
    state: &RequestState<'_>,
    identifier: &Identifier,
    now: Timestamp,
) {
    let (Some(policy), Some(identity)) = (state.policy, &state.identity) else { return };
    let Some(claim) = identity.unknown_tier(&policy.identity) else { return };
    series.own.unknown_tiers.increment();
    if identifier.unknown_tiers.take(now) {
        let default = policy.identity.tiers.get(identity.tier).map_or("", |tier| &tier.name);
        tracing::warn!(
            policy = %policy.name,
            %claim,
            tier = %default,
            "a token names a tier that the policy does not have: its caller has the default one"
        );
    }
}
