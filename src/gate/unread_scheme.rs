//! Says that clients show something in `Authorization` by a scheme that the policy does not list: most
//! likely they mean a credential by it, and count as nobody as long as it is not noticed.

use std::time::Duration;

use super::{Shared, charges::Charges};
use crate::{
    clock::Throttle,
    identity::{KNOWN_SCHEME_NAMES, OtherSchemes},
    policy::Auth,
};

/// Time between two lines about the same scheme.
const PAUSE: Duration = Duration::from_secs(3600);

/// When each scheme was last told of; the last is for all that are not known. Whoever makes schemes up
/// fills no log, and keeps none of the others from being told.
#[derive(Debug)]
pub struct UnreadSchemes([Throttle; KNOWN_SCHEME_NAMES + 1]);

impl Default for UnreadSchemes {
    fn default() -> Self {
        UnreadSchemes([const { Throttle::new(PAUSE) }; KNOWN_SCHEME_NAMES + 1])
    }
}

/// Warns about a request without a token whose `Authorization` is of another scheme: once an hour for
/// each scheme in the whole process, and never with the value. A policy that lets others go on knows
/// of them.
pub(super) fn warn_of_unread_scheme(shared: &Shared, charges: &Charges<'_, '_>) {
    let sources = &charges.policy.identity.sources;
    if charges.script.is_some()
        || *charges.auth() == Auth::None
        || sources.other_schemes == OtherSchemes::Forward
    {
        return;
    }
    let Some((at, name)) = sources.unread_scheme(charges.client.headers) else { return };
    let UnreadSchemes(told) = &shared.unread_schemes;
    if !told.get(at).is_some_and(|told| told.take(charges.now)) {
        return;
    }
    tracing::warn!(
        policy = %charges.policy.name,
        scheme = name.unwrap_or("one that is not known"),
        "ignored authorization by a scheme that the policy does not list: if clients mean a token or \
         a key by it, add the scheme to identity.token.schemes or to identity.api_keys.schemes"
    );
}
