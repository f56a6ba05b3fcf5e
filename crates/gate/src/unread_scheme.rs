//! Warns that clients use a scheme in `Authorization` that the policy does not list: most likely
//! they send a credential by it, and are anonymous until the operator adds the scheme.

use std::time::Duration;

use tollgate_clock::Throttle;
use tollgate_identity::{Auth, KNOWN_SCHEME_NAMES, OtherSchemes};

use super::charge_context::ChargeContext;

/// Time between two lines about the same scheme.
const PAUSE: Duration = Duration::from_secs(3600);

/// How often each scheme is logged; the last is for all unknown ones. A client that makes schemes
/// up neither fills the log nor keeps the known ones out of it.
#[derive(Debug)]
pub struct UnreadSchemes([Throttle; KNOWN_SCHEME_NAMES + 1]);

impl Default for UnreadSchemes {
    fn default() -> Self {
        UnreadSchemes([const { Throttle::new(PAUSE) }; KNOWN_SCHEME_NAMES + 1])
    }
}

/// Warns about a request without a token whose `Authorization` is of another scheme: once an hour
/// for each scheme in the whole process, and never with the value. Not where the policy forwards
/// other schemes, since its author knows of them.
pub(super) fn warn_of_unread_scheme(
    UnreadSchemes(throttles): &UnreadSchemes,
    context: &ChargeContext<'_, '_>,
) {
    let sources = &context.policy.identity.sources;
    if context.input.dry_run.is_some()
        || *context.auth() == Auth::None
        || sources.other_schemes == OtherSchemes::Forward
    {
        return;
    }
    let Some((at, name)) = sources.unread_scheme(context.input.client.headers) else { return };
    if !throttles.get(at).is_some_and(|throttle| throttle.take(context.input.now)) {
        return;
    }
    tracing::warn!(
        policy = %context.policy.name,
        scheme = name.unwrap_or("one that is not known"),
        "ignored authorization by a scheme that the policy does not list: if clients send tokens or \
         API keys by it, add the scheme to identity.token.schemes or to identity.api_keys.schemes"
    );
}
