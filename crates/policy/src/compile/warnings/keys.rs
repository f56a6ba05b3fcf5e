//! Limits by what clients choose freely: a client with another value has another counter, and makes
//! as many of them as it likes where no limit by address stands beside.

use tollgate_identity::Auth;
use tollgate_yaml::{Check, warning::Rule};

use crate::{
    Chooser, DescriptorValue, Enforcement, KeyPart, Limit, Policy, Route, compile::Compiler,
    file::RawPolicy,
};

/// What Envoy fills with the client's address, and its network: a client does not choose them.
const ADDRESSES: [&str; 2] = ["remote_address", "masked_remote_address"];

impl Compiler<'_> {
    /// Keys of programs and descriptors of Envoy are mostly what clients have sent.
    pub(super) fn warn_of_unsaid_keys(&mut self, raw: &RawPolicy, policy: &Policy) {
        for (at, (limit, (_, raw))) in policy.limits.iter().zip(raw.limits.iter()).enumerate() {
            let is_asked = |part: &&KeyPart| match part {
                KeyPart::Descriptor(name) => {
                    !ADDRESSES.contains(&&**name) && !has_fixed_values(at, name, policy)
                }
                part => part.chooser() == Chooser::Program,
            };
            let Some(part) = limit.per.parts.iter().find(is_asked) else { continue };
            if raw.verified.is_some() {
                continue;
            }
            let message = format!(
                "who chooses `{part}` is not said: its counters have the room of `unverified_keys`"
            );
            let help = "write `verified: true` if no client can make up values, as where there is \
                        one for each of your accounts; else `verified: false`";
            self.warn(Rule::UnverifiedKey, raw.per.span, message, help);
        }
    }

    pub(super) fn warn_of_free_keys(&mut self, raw: &RawPolicy, policy: &Policy) {
        for (at, (limit, (_, raw))) in policy.limits.iter().zip(raw.limits.iter()).enumerate() {
            let Some(part) = free_part(limit).filter(|_| !is_bounded(at, policy)) else { continue };
            let message = format!(
                "clients choose `{part}` freely, and have another counter for each value of it"
            );
            let help = "list a limit by `client.ip` beside it on each route, or count by what is \
                        verified, such as `caller`";
            self.warn(Rule::UnverifiedKey, raw.per.span, message, help);
        }
    }
}

/// Whether all descriptors that are charged to a limit have one value of a key, which `rls` says.
fn has_fixed_values(limit: usize, name: &str, policy: &Policy) -> bool {
    let charged = policy.descriptors.iter().filter(|rule| rule.limits.contains(&limit));
    let mut keys = charged.flat_map(|rule| &rule.keys).filter(|key| *key.name == *name).peekable();
    keys.peek().is_some()
        && keys.all(|key| {
            key.counted_as.is_some() || matches!(key.value, Some(DescriptorValue::Exactly(_)))
        })
}

/// The first part of a limit's key that clients choose freely, unless another part is verified.
fn free_part(limit: &Limit) -> Option<String> {
    let mut free = None;
    let has_address = limit.per.parts.contains(&KeyPart::ClientIp);
    for part in &limit.per.parts {
        let is_free = match part.chooser() {
            Chooser::Identity | Chooser::Issuer => return None,
            Chooser::Client => true,
            // What an address asks for here and there may well be counted apart.
            Chooser::Hosts => limit.open.hosts && !has_address,
            Chooser::Paths => limit.open.paths && !has_address,
            Chooser::Nobody
            | Chooser::Network
            | Chooser::Segments
            | Chooser::Calls
            | Chooser::Methods
            | Chooser::Program => false,
        };
        free = free.or_else(|| is_free.then(|| part.to_string()));
    }
    free
}

/// Whether each route that lists a limit bounds what one client sends by another.
fn is_bounded(limit: usize, policy: &Policy) -> bool {
    let bounds = |route: &Route| {
        let mut others = route.limits.iter().filter_map(|other| policy.limits.get(*other));
        others.any(|other| is_bound(other, route))
    };
    let mut charging =
        policy.routes.iter().filter(|route| route.limits.contains(&limit)).peekable();
    charging.peek().is_some() && charging.all(bounds)
}

/// Whether a limit is by address, or by a caller who must have a token, and by nothing that clients
/// choose.
fn is_bound(limit: &Limit, route: &Route) -> bool {
    let is_client = |part: &KeyPart| match part {
        KeyPart::ClientIp => true,
        KeyPart::Caller => matches!(route.auth, Auth::Required(_)),
        _ => false,
    };
    let parts = &limit.per.parts;
    limit.enforcement != Enforcement::Shadow
        && parts.iter().any(is_client)
        && parts.iter().all(|part| is_client(part) || *part == KeyPart::Method)
}
