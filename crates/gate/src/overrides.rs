//! Which of a limit's overrides applies to a request.

use tollgate_identity::{Identity, cookie_to_count, unescaped_cookie};
use tollgate_policy::{KeyValue, Limit, Override};

use super::{
    charge_context::ChargeContext,
    charge_context::keys::{counted_claim, only_value},
    judge_input::JudgeInput,
};

impl ChargeContext<'_, '_> {
    /// The first override that is in force and applies to this request.
    pub fn override_of<'p>(
        &self,
        limit: &'p Limit,
        identity: &Identity<'_>,
    ) -> Option<&'p Override> {
        let applies = |own: &&Override| {
            own.is_in_force(self.input.now) && own.of.iter().all(|value| self.has(value, identity))
        };
        limit.overrides.0.iter().find(applies)
    }

    fn has(&self, wanted: &KeyValue, identity: &Identity<'_>) -> bool {
        let ChargeContext { route, input, .. } = self;
        let JudgeInput { head, client, .. } = input;
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
                let keys_at = self.policy.identity.api_keys_position();
                identity.token.as_ref().map(|known| &known.token).is_some_and(|token| {
                    token.issuer != keys_at
                        && issuer.is_none_or(|issuer| issuer == token.issuer)
                        && token.claims.lookup(name).map(counted_claim) == Some(value)
                })
            }
            KeyValue::Header(name, value) => {
                only_value(client.headers, name) == Some(value.as_bytes())
            }
            // No request has one: programs and Envoy name it.
            KeyValue::Key(_) | KeyValue::Descriptor { .. } => false,
            KeyValue::Cookie { name, value } => {
                let own = cookie_to_count(client.headers, name).ok().flatten();
                own.is_some_and(|own| own == unescaped_cookie(value.as_bytes()))
            }
        }
    }
}
