//! Which override is for a request, of those that a limit has.

use super::charges::Charges;
use crate::{
    identity::{Identity, cookie_values},
    policy::{KeyValue, Limit, Override},
};

impl Charges<'_, '_> {
    /// The first override that is in force and for this request.
    pub(super) fn override_of<'p>(
        &self,
        limit: &'p Limit,
        identity: &Identity<'_>,
    ) -> Option<&'p Override> {
        let applies = |own: &&Override| {
            own.is_in_force(self.now) && own.of.iter().all(|value| self.has(value, identity))
        };
        limit.overrides.0.iter().find(applies)
    }

    fn has(&self, wanted: &KeyValue, identity: &Identity<'_>) -> bool {
        let Charges { head, client, route, .. } = self;
        match wanted {
            KeyValue::Caller(name) => {
                identity.caller.as_ref().is_some_and(|caller| name.is_of(caller))
            }
            KeyValue::Address(network) => network.contains(&client.address),
            KeyValue::Host(pattern) => head.host().is_some_and(|host| pattern.matches(host)),
            KeyValue::Path(pattern) => route.is_some() && pattern.matches(&head.path),
            KeyValue::PathParameter { name, value } => {
                let segment = route.and_then(|route| route.path.parameter(name, &head.path));
                segment == Some(&**value)
            }
            KeyValue::Method(method) => {
                route.is_some() && head.method.as_str().eq_ignore_ascii_case(method.as_str())
            }
            KeyValue::Claim { name, value, issuer } => {
                // A key has fields, not claims.
                let keys_at = self.policy.identity.api_keys_at();
                identity.token.as_ref().map(|known| &known.token).is_some_and(|token| {
                    token.issuer != keys_at
                        && issuer.is_none_or(|issuer| issuer == token.issuer)
                        && token.claims.lookup(name) == Some(value)
                })
            }
            KeyValue::Header(name, value) => is_only(
                client.headers.get_all(name).iter().map(|own| own.as_bytes()),
                value.as_bytes(),
            ),
            KeyValue::Cookie { name, value } => {
                is_only(cookie_values(client.headers, name), value.as_bytes())
            }
        }
    }
}

/// Whether this value is there and no other: what is sent twice has a counter of its own.
fn is_only<'v>(mut values: impl Iterator<Item = &'v [u8]>, wanted: &[u8]) -> bool {
    values.next() == Some(wanted) && values.next().is_none()
}
