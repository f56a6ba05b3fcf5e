//! What a caller is told that asks how it stands: by the store, or as it was told a moment ago.

use super::{
    charges::{Asked, Charges},
    judge::{Judge, Outcome},
    lookups::Lookup,
    own_limits::STANDINGS,
    tally::Tally,
};
use crate::{
    clock::Timestamp,
    identity::{Identity, Prefixes},
    policy::Policy,
    response::Rejection,
};

impl Judge {
    /// How a caller stands on every limit that can be told without a route.
    pub(super) async fn look_up<'p>(
        &self,
        charges: Charges<'_, 'p>,
        identity: &Identity<'_>,
    ) -> (Option<Tally<'p>>, Outcome<'p>) {
        let (asked, now) = (charges.of_caller(identity), charges.now);
        // What is in the process is cheaper to look at than to remember.
        if charges.script.is_some() || !self.shared.stores.settings().is_shared() {
            let decision = self.store.peek(&asked.charges, now).await;
            return (Some(Tally::peeked(asked, decision, now)), Outcome::Standings);
        }
        let lookups = &self.shared.lookups;
        let caller = self.name_of(charges.policy, identity);
        let decision = match lookups.look(caller, &asked.charges, now).await {
            Lookup::Known(decision) => decision,
            Lookup::Ask(question) => {
                if let Some((tally, rejection)) = self.deny_look(charges, identity) {
                    return (Some(tally), Outcome::Refuse(rejection));
                }
                let decision = self.store.peek(&asked.charges, now).await;
                question.answer(&asked.charges, &decision);
                decision
            }
        };
        (Some(Tally::peeked(asked, decision, now)), Outcome::Standings)
    }

    /// Why the client's address may not have Redis asked again, if it may not. It is counted in the
    /// process, for it is Redis that is to be spared.
    fn deny_look<'p>(
        &self,
        charges: Charges<'_, 'p>,
        identity: &Identity<'_>,
    ) -> Option<(Tally<'p>, Rejection)> {
        if charges.policy.exempt.contains(identity) {
            return None;
        }
        let mut asked = Asked::default();
        STANDINGS.ask(&charges, identity, &mut asked);
        let now = charges.now;
        // Without room for another counter nobody is refused: it would be the wrong one.
        let decision = self.shared.stores.memory.charge(&asked.charges, now).ok()?;
        let tally = Tally::charged(asked, decision, now, self.store.unsettled());
        let rejection = tally.denial(identity, now, charges.policy.responses.jitter)?;
        Some((tally, rejection))
    }

    /// Notes that a caller stands otherwise than it may just have been told.
    pub(super) fn note_change(&self, policy: &Policy, identity: &Identity<'_>, now: Timestamp) {
        if !self.shared.lookups.is_idle(now) {
            self.shared.lookups.note_change(self.name_of(policy, identity));
        }
    }

    /// A caller, as what it was told is remembered: by its address too, which limits may count by.
    fn name_of(&self, policy: &Policy, identity: &Identity<'_>) -> u128 {
        let identifier = &self.shared.identifier;
        let address = identifier.hash_address(identity.address, Prefixes::default()).to_le_bytes();
        let caller = identity.caller.as_ref().map_or(0, |caller| caller.hash).to_le_bytes();
        let parts =
            [(b'p', policy.name.as_bytes()), (b'a', &address[..]), (b'c', caller.as_slice())];
        identifier.hasher.hash(parts)
    }
}
