//! Which of a limit's overrides applies to a request.

use tollgate_identity::Identity;
use tollgate_policy::{KeyValue, Limit, Override, Wanted};

use super::{
    charge_context::{
        ChargeContext,
        keys::{KeyBuilder, counted_claim},
    },
    judge_input::JudgeInput,
};

impl ChargeContext<'_, '_> {
    /// The first override that is in force and applies to this request.
    pub fn override_of<'p>(
        &self,
        limit: &'p Limit,
        identity: &Identity<'_>,
    ) -> Option<&'p Override> {
        let keys = KeyBuilder { context: self, per: &limit.per, identity };
        let applies = |own: &&Override| {
            own.is_in_force(self.input.now) && own.of.iter().all(|own| keys.has(own))
        };
        limit.overrides.0.iter().find(applies)
    }
}

impl KeyBuilder<'_, '_, '_> {
    fn has(&self, KeyValue { part, value }: &KeyValue) -> bool {
        let KeyBuilder { context, identity, .. } = self;
        let JudgeInput { head, client, .. } = context.input;
        match value {
            Wanted::Caller(name) => {
                identity.caller.as_ref().is_some_and(|caller| name.is_of(caller))
            }
            Wanted::Network(network) => network.contains(&client.address),
            Wanted::Host(pattern) => head.host().is_some_and(|host| pattern.matches(host)),
            Wanted::Path(pattern) => {
                let reading = context.route.map(|route| route.reading);
                reading.is_some_and(|reading| pattern.takes(head.request_path(), reading))
            }
            Wanted::Claim { value, issuer } => {
                // A key has fields, not claims.
                let keys_at = context.policy.identity.api_keys_position();
                identity.token.as_ref().map(|known| &known.token).is_some_and(|token| {
                    let claim = part.name().and_then(|name| token.claims.lookup(name));
                    token.issuer != keys_at
                        && issuer.is_none_or(|issuer| issuer == token.issuer)
                        && claim.map(counted_claim) == Some(value)
                })
            }
            Wanted::Text(text) => self.has_text(part, text),
        }
    }
}
