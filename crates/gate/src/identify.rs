//! Who is calling, and who pays for a request whose caller is not known.
//!
//! A bad token costs a signature check, or a request to its issuer, and an attacker can send any
//! number of them. So failures are charged to the client's address, and an address that has used up
//! its limit is charged before any such work is done for it.

use tollgate_identity::{Auth, CredentialError, Identity, IdentityError};
use tollgate_response::Rejection;

use super::{
    charge_context::ChargeContext, judge::Judge, judge_input::JudgeInput, tally::Tally,
    unread_scheme::warn_of_unread_scheme,
};

impl Judge {
    /// Identifies the caller.
    ///
    /// # Errors
    /// Why the caller is not known; `tally` says what the address was charged for it.
    pub(super) async fn identify<'p>(
        &self,
        context: ChargeContext<'_, 'p>,
        tally: &mut Option<Tally<'p>>,
    ) -> Result<Identity<'p>, Rejection> {
        let distrust = &self.shared.distrust;
        let wait = distrust.guard_wait(&context);
        let found = self.find_caller(context, || distrust.permit(&context)).await;
        wait.end();
        let has_no_token = match &found {
            Ok(identity) => identity.token.is_none(),
            Err(error) => *error == IdentityError::Missing,
        };
        if has_no_token {
            warn_of_unread_scheme(&self.shared.unread_schemes, &context);
        }
        match found {
            Ok(identity) => Ok(identity),
            Err(IdentityError::TooManyBadTokens) => {
                Box::pin(self.identify_untrusted(context, tally)).await
            }
            Err(error) => Err(Box::pin(self.charge_address(context, error, tally)).await),
        }
    }

    /// Charges the address first. If it has room after all, the token is verified, and a good token
    /// gives the charge back.
    async fn identify_untrusted<'p>(
        &self,
        context: ChargeContext<'_, 'p>,
        tally: &mut Option<Tally<'p>>,
    ) -> Result<Identity<'p>, Rejection> {
        let ChargeContext { identifier, policy, input, .. } = context;
        let payer = identifier.payer(&policy.identity, context.auth(), input.client);
        let plan = &mut match &payer.caller {
            Some(_) => context.plan(&payer)?,
            None => context.plan_by_address(&payer),
        };
        if let Err(rejection) = self.charge(plan, context, &payer, tally).await {
            self.distrust(&context, tally.as_ref());
            return Err(rejection);
        }
        let distrust = &self.shared.distrust;
        distrust.forget(&context);
        let wait = distrust.guard_wait(&context);
        let found = self.find_caller(context, || Some(())).await;
        wait.end();
        if !found.as_ref().is_err_and(is_clients_fault)
            && let Some(tally) = tally.take()
        {
            tally.give_back(&self.store, input.now);
        }
        Ok(found?)
    }

    /// Remembers the address of a request with a bad token that was denied, until the time in
    /// `tally`.
    pub(super) fn distrust(&self, context: &ChargeContext<'_, '_>, tally: Option<&Tally<'_>>) {
        if context.is_charged()
            && let Some(until) = tally.and_then(Tally::denied_until)
        {
            self.shared.distrust.add(context, until);
        }
    }

    /// What is wrong with the credentials of a request that goes on without them. For explanations.
    pub async fn ignored(
        &self,
        context: ChargeContext<'_, '_>,
        identity: Option<&Identity<'_>>,
    ) -> Option<IdentityError> {
        let Auth::Optional(accepted) = &context.route?.auth else { return None };
        if identity?.token.is_some() {
            return None;
        }
        let ChargeContext { identifier, policy, input, .. } = context;
        let auth = Auth::Required(accepted.clone());
        let keys = context.current_keys();
        let found =
            identifier.identify(&policy.identity, &auth, input.client, keys, || Some(())).await;
        found.err().filter(|error| *error != IdentityError::Missing)
    }

    async fn find_caller<'p, P>(
        &self,
        context: ChargeContext<'_, 'p>,
        permit: impl FnOnce() -> Option<P>,
    ) -> Result<Identity<'p>, IdentityError> {
        let ChargeContext { identifier, policy, input, .. } = context;
        let &JudgeInput { client, now, dry_run, .. } = input;
        let auth = context.auth();
        let rules = &policy.identity;
        if let Some(caller) = dry_run.and_then(|dry_run| dry_run.caller.as_ref()) {
            return identifier.identify_assumed(rules, auth, caller, client);
        }
        match dry_run.and_then(|dry_run| dry_run.token.clone()) {
            Some(token) => {
                // It counts as one credential beside those in the headers.
                if rules.sources.find(client.headers, client.query)?.is_some() {
                    return Err(CredentialError::Several.into());
                }
                identifier.identify_verified(rules, auth, token, client, now)
            }
            None => identifier.identify(rules, auth, client, context.current_keys(), permit).await,
        }
    }

    /// Charges a request whose caller could not be identified, where the route has a limit by
    /// address (or, without a route, the policy). Only the address is charged, because a claimed
    /// identity is not verified and its owner must not pay. Without a charge, guessing tokens would
    /// be free. Returns why the request is refused.
    async fn charge_address<'p>(
        &self,
        context: ChargeContext<'_, 'p>,
        error: IdentityError,
        tally: &mut Option<Tally<'p>>,
    ) -> Rejection {
        if !is_clients_fault(&error) {
            return error.into();
        }
        let rules = &context.policy.identity;
        let unidentified = self.shared.identifier.unidentified(rules, context.input.client.address);
        let plan = &mut context.plan_by_address(&unidentified);
        match self.charge(plan, context, &unidentified, tally).await {
            Ok(()) => Rejection::Identity(error),
            Err(rejection) => {
                self.distrust(&context, tally.as_ref());
                rejection
            }
        }
    }
}

/// Whether a refused token is charged to the client. A token that could not be verified is not
/// charged: because its issuer cannot be reached, or because too many others of the address are
/// being verified.
fn is_clients_fault(error: &IdentityError) -> bool {
    !matches!(error, IdentityError::Unavailable | IdentityError::TooManyLookups)
}
