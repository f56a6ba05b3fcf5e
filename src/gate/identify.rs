//! Who is calling, and who pays for what cannot be told.
//!
//! A bad token costs a signature check, or a question to its issuer, and whoever makes them up has
//! plenty. So failures are charged to the client's address, and an address that has used up its
//! limit is charged before anything dear is done for it.

use super::{charges::Charges, judge::Judge, tally::Tally, unread_scheme::warn_of_unread_scheme};
use crate::{
    identity::{CredentialError, Identity, IdentityError},
    policy::Auth,
    response::Rejection,
};

impl Judge {
    /// Who sends a request.
    ///
    /// # Errors
    /// Why that cannot be told, and what the address was charged for it.
    pub(super) async fn identify<'p>(
        &self,
        charges: Charges<'_, 'p>,
    ) -> Result<Identity<'p>, (Option<Tally<'p>>, Rejection)> {
        let distrust = &self.shared.distrust;
        let patience = distrust.watch(&charges);
        let found = self.find_caller(charges, || distrust.permit(&charges)).await;
        patience.end();
        match found {
            Ok(identity) => {
                if identity.token.is_none() {
                    warn_of_unread_scheme(&self.shared, &charges);
                }
                Ok(identity)
            }
            Err(IdentityError::TooManyBadTokens) => self.identify_untrusted(charges).await,
            Err(error) => {
                if error == IdentityError::Missing {
                    warn_of_unread_scheme(&self.shared, &charges);
                }
                Err(self.charge_address(charges, error).await)
            }
        }
    }

    /// Charges the address first. If it can pay after all, the token is looked at, and a good one is
    /// not paid for.
    async fn identify_untrusted<'p>(
        &self,
        charges: Charges<'_, 'p>,
    ) -> Result<Identity<'p>, (Option<Tally<'p>>, Rejection)> {
        let Charges { identifier, policy, client, now, .. } = charges;
        let payer = identifier.payer(&policy.identity, charges.auth(), client);
        let asked = match &payer.caller {
            Some(_) => charges.of(&payer).map_err(|rejection| (None, rejection))?,
            None => charges.by_address(&payer),
        };
        let (tally, denied) = self.charge(asked, charges, &payer).await;
        if let Some(rejection) = denied {
            self.distrust(&charges, tally.as_ref());
            return Err((tally, rejection));
        }
        let distrust = &self.shared.distrust;
        distrust.forget(&charges);
        let patience = distrust.watch(&charges);
        let found = self.find_caller(charges, || Some(())).await;
        patience.end();
        let is_clients_fault = found.as_ref().is_err_and(is_clients_fault);
        let tally = match tally {
            Some(tally) if !is_clients_fault => {
                tally.give_back(&self.store, now);
                None
            }
            tally => tally,
        };
        found.map_err(|error| (tally, error.into()))
    }

    /// Remembers the address of a request with a bad token that was denied: `tally` says until when.
    pub(super) fn distrust(&self, charges: &Charges<'_, '_>, tally: Option<&Tally<'_>>) {
        if charges.is_charged()
            && let Some(until) = tally.and_then(Tally::denied_until)
        {
            self.shared.distrust.add(charges, until);
        }
    }

    /// What is wrong with the credentials of a request that goes on without them. For explanations.
    pub(super) async fn ignored(
        &self,
        charges: Charges<'_, '_>,
        identity: Option<&Identity<'_>>,
    ) -> Option<IdentityError> {
        let Auth::Optional(accepted) = &charges.route?.auth else { return None };
        if identity?.token.is_some() {
            return None;
        }
        let Charges { identifier, policy, client, now, .. } = charges;
        let auth = Auth::Required(accepted.clone());
        let found = identifier.identify(&policy.identity, &auth, client, now, || Some(())).await;
        found.err().filter(|error| *error != IdentityError::Missing)
    }

    async fn find_caller<'p, P>(
        &self,
        charges: Charges<'_, 'p>,
        permit: impl FnOnce() -> Option<P>,
    ) -> Result<Identity<'p>, IdentityError> {
        let Charges { identifier, policy, client, now, script, .. } = charges;
        let (auth, rules) = (charges.auth(), &policy.identity);
        match script.and_then(|script| script.token.clone()) {
            Some(token) => {
                // It counts as shown beside what the headers show.
                if rules.sources.find(client.headers, client.query)?.is_some() {
                    return Err(CredentialError::Several.into());
                }
                identifier.identify_verified(rules, auth, token, client, now)
            }
            None => identifier.identify(rules, auth, client, now, permit).await,
        }
    }

    /// A request whose sender could not be identified is charged to its address where the route has
    /// a limit by address (or, without a route, the policy), and to nobody else: whoever it claims to
    /// be must not pay for it. Without that, guessing tokens would be free.
    async fn charge_address<'p>(
        &self,
        charges: Charges<'_, 'p>,
        error: IdentityError,
    ) -> (Option<Tally<'p>>, Rejection) {
        if !is_clients_fault(&error) {
            return (None, error.into());
        }
        let rules = &charges.policy.identity;
        let nobody = self.shared.identifier.unidentified(rules, charges.client.address);
        let asked = charges.by_address(&nobody);
        let (tally, denied) = self.charge(asked, charges, &nobody).await;
        if denied.is_some() {
            self.distrust(&charges, tally.as_ref());
        }
        (tally, denied.unwrap_or(Rejection::Identity(error)))
    }
}

/// Nobody pays for a token that was not looked at: because its issuer cannot be asked, or because the
/// issuer is being asked about too many others of the address.
fn is_clients_fault(error: &IdentityError) -> bool {
    !matches!(error, IdentityError::Unavailable | IdentityError::TooManyLookups)
}
