//! What a caller gets that queries its standings: from the store, or as the store had it a moment
//! ago.

use tollgate_clock::Timestamp;
use tollgate_identity::{Identity, Prefixes};
use tollgate_policy::Policy;
use tollgate_response::Rejection;

use super::{
    built_in_limits::STANDINGS, charge_context::ChargeContext, charge_plan::ChargePlan,
    judge::Judge, standing_cache::Lookup, tally::Tally,
};

impl Judge {
    /// How a caller stands on every limit that can be reported without a route.
    pub(super) async fn look_up<'p>(
        &self,
        context: ChargeContext<'_, 'p>,
        identity: &Identity<'_>,
        tally: &mut Option<Tally<'p>>,
    ) -> Result<(), Rejection> {
        let plan = context.plan_for_standings(identity);
        let now = context.input.now;
        // Counters in the process are cheaper to read than to cache.
        if context.input.dry_run.is_some() || !self.shared.stores.settings().is_shared() {
            let decision = self.store.peek(&plan.charges, now).await;
            *tally = Some(Tally::peeked(plan, decision, now));
            return Ok(());
        }
        let caller = self.cache_key(context.policy, identity);
        let decision = match self.shared.standing_cache.look_up(caller, &plan.charges, now).await {
            Lookup::Cached(decision) => decision,
            Lookup::Query(query) => {
                self.admit_query(&context, identity, tally)?;
                let decision = self.store.peek(&plan.charges, now).await;
                query.finish(&plan.charges, &decision);
                decision
            }
        };
        *tally = Some(Tally::peeked(plan, decision, now));
        Ok(())
    }

    /// Whether the client's address may cause one more query to Redis. That is counted in the
    /// process, since it is there to spare Redis.
    ///
    /// # Errors
    /// Why it may not; `tally` says what it was denied by.
    fn admit_query<'p>(
        &self,
        context: &ChargeContext<'_, 'p>,
        identity: &Identity<'_>,
        tally: &mut Option<Tally<'p>>,
    ) -> Result<(), Rejection> {
        if context.policy.exempt.contains(identity) {
            return Ok(());
        }
        let mut plan = ChargePlan::default();
        STANDINGS.add_to(&mut plan, context, identity);
        let now = context.input.now;
        // Without room for another counter the query goes on: it is not this client's fault.
        let Ok(decision) = self.shared.stores.memory.charge(&plan.charges, now) else {
            return Ok(());
        };
        let charged = Tally::charged(plan, decision, now, self.store.unsettled());
        match charged.denial(identity, now, context.policy.responses.jitter) {
            Some(rejection) => {
                *tally = Some(charged);
                Err(rejection)
            }
            None => Ok(()),
        }
    }

    /// Notes that a caller's standings are not those in the cache any more.
    pub(super) fn note_change(&self, policy: &Policy, identity: &Identity<'_>, now: Timestamp) {
        if !self.shared.standing_cache.is_idle(now) {
            self.shared.standing_cache.note_change(self.cache_key(policy, identity));
        }
    }

    /// What a caller's standings are cached by: its address too, since limits may count by that.
    fn cache_key(&self, policy: &Policy, identity: &Identity<'_>) -> u128 {
        let identifier = &self.shared.identifier;
        let address = identifier.hash_address(identity.address, Prefixes::default()).to_le_bytes();
        let caller = identity.caller.as_ref().map_or(0, |caller| caller.hash).to_le_bytes();
        let parts =
            [(b'p', policy.name.as_bytes()), (b'a', &address[..]), (b'c', caller.as_slice())];
        identifier.hasher.hash(parts)
    }
}
