//! What is decided about a request before anything is forwarded: its route, its caller, and what
//! they are charged.
//!
//! Real requests and dry runs take the same way. What a dry run does otherwise is in its
//! [`DryRun`], which is read in three places: who the caller is, whether a charge is taken, and
//! whether an address is remembered for its bad tokens.

use std::{rc::Rc, sync::Arc};

use http::{HeaderMap, header};

use super::{
    Shared,
    charge_context::ChargeContext,
    charge_plan::ChargePlan,
    cors::{Preflight, preflight},
    dry_run::DryRun,
    foresee::foresee,
    head::{Head, asks_for_standings},
    request_state::{Action, Forward, Judgement, RequestState},
    revalidation::is_revalidation,
    tally::Tally,
};
use crate::{
    clock::Timestamp,
    identity::{Client, Identity, PublishedKeys},
    limit::Verdict,
    policy::Policy,
    response::Rejection,
    store::Store,
    wire::target::Form,
};

/// Decides about requests.
pub(crate) struct Judge {
    pub(crate) shared: Arc<Shared>,
    pub(super) store: Rc<Store>,
}

/// What a request is judged by.
#[derive(Clone, Copy)]
pub(crate) struct JudgeInput<'r, 'p> {
    pub(crate) head: &'r Head<'r>,
    /// The policy for the host, if any.
    pub(crate) policy: Option<&'p Policy>,
    pub(crate) client: Client<'r>,
    pub(crate) published_keys: &'r PublishedKeys,
    /// The one instant at which it is judged.
    pub(crate) now: Timestamp,
    /// None: a client has really sent the request.
    pub(crate) dry_run: Option<&'r DryRun>,
}

/// Why a request is refused, and what it was charged all the same.
pub(super) struct Refused<'p> {
    pub(super) tally: Option<Tally<'p>>,
    pub(super) rejection: Rejection,
}

/// What charging a request came to. Without a tally, nothing was to be charged.
pub(super) type Charged<'p> = Result<Option<Tally<'p>>, Refused<'p>>;

impl From<Rejection> for Refused<'_> {
    /// Nothing was charged.
    fn from(rejection: Rejection) -> Self {
        Refused { tally: None, rejection }
    }
}

impl Judge {
    pub(crate) fn new(shared: Arc<Shared>, store: Rc<Store>) -> Judge {
        Judge { shared, store }
    }

    /// Route, identity, limits: all that is decided before anything is forwarded.
    pub(crate) async fn judge<'p>(&self, input: JudgeInput<'_, 'p>) -> Judgement<'p> {
        let JudgeInput { head, policy, client, published_keys, now, dry_run } = input;
        if head.form == Form::Asterisk {
            return RequestState::default().then(Action::Options);
        }
        let Some(policy) = policy else {
            return RequestState::default().refuse(Rejection::NoRoute);
        };
        let is_revalidation = is_revalidation(head.method, client.headers, now);
        let state =
            RequestState { policy: Some(policy), is_revalidation, ..RequestState::default() };
        if policy.deny.contains_address(client.address) {
            return state.refuse(Rejection::Denied);
        }
        if let Some(preflight) = preflight(policy, head, client) {
            return self.judge_preflight(preflight, input, state).await;
        }
        let request = head.as_route_request(client.address);
        let destination = match asks_for_standings(policy, request) {
            true => None,
            false => match policy.route(request) {
                Some(destination) => Some(destination),
                None => return state.refuse(Rejection::NoRoute),
            },
        };
        let route = destination.map(|(route, _)| route);
        let state = RequestState { route, ..state };
        // Like the policy's deny list, it costs the client nothing: there is nothing to guess.
        if let Some(Err(refusal)) = route.map(|route| route.addresses.admit(client.address)) {
            return state.refuse(refusal);
        }
        // A body that is too large is refused before the caller is identified or charged.
        if let Some(max_bytes) = route.and_then(|route| route.max_body)
            && declared_bytes(client.headers) > max_bytes
        {
            return state.refuse(Rejection::BodyTooLarge);
        }

        let identifier = &self.shared.identifier;
        let context =
            ChargeContext { identifier, policy, route, head, client, published_keys, now, dry_run };
        if let Err(rejection) = context.check_fields() {
            return state.refuse(rejection);
        }
        let identity = match self.identify(context).await {
            Ok(identity) => identity,
            Err(Refused { tally, rejection }) => {
                return RequestState { tally, ..state }.refuse(rejection);
            }
        };
        if policy.deny.contains(&identity) {
            return RequestState { identity: Some(identity), ..state }.refuse(Rejection::Denied);
        }
        let charged = match destination {
            Some(_) => self.charge_caller(context, &identity).await,
            None => self.look_up(context, &identity).await,
        };
        let identity = Some(identity);
        match charged {
            Err(Refused { tally, rejection }) => {
                RequestState { identity, tally, ..state }.refuse(rejection)
            }
            Ok(tally) => {
                let action = match destination {
                    Some((route, upstream)) => {
                        let target = head.target(&policy.identity.sources, &route.rewrite);
                        Action::Forward(Forward { upstream, target })
                    }
                    None => Action::Standings,
                };
                RequestState { identity, tally, ..state }.then(action)
            }
        }
    }

    /// The same for a browser's preflight request.
    async fn judge_preflight<'p>(
        &self,
        preflight: Preflight<'p>,
        input: JudgeInput<'_, 'p>,
        state: RequestState<'p>,
    ) -> Judgement<'p> {
        let Preflight { route, cors, action } = preflight;
        let JudgeInput { head, client, published_keys, now, dry_run, .. } = input;
        let state = RequestState { route, cors: Some(cors), ..state };
        if let Some(Err(refusal)) = route.map(|route| route.addresses.admit(client.address)) {
            return state.refuse(refusal);
        }
        let (Some(policy), Action::Forward(_)) = (state.policy, &action) else {
            return state.then(action);
        };
        let identifier = &self.shared.identifier;
        let context =
            ChargeContext { identifier, policy, route, head, client, published_keys, now, dry_run };
        match self.charge_preflight(context).await {
            Ok(tally) => RequestState { tally, ..state }.then(action),
            Err(Refused { tally, rejection }) => RequestState { tally, ..state }.refuse(rejection),
        }
    }

    /// Charges an identified caller what its route's limits say.
    async fn charge_caller<'p>(
        &self,
        context: ChargeContext<'_, 'p>,
        identity: &Identity<'_>,
    ) -> Charged<'p> {
        let plan = context.plan(identity)?;
        let tally = match self.charge(plan, context, identity).await {
            Ok(tally) => tally,
            Err(refused) => {
                if identity.has_bad_token {
                    self.distrust(&context, refused.tally.as_ref());
                }
                return Err(refused);
            }
        };
        // After the charge: a caller pays for the response that says which scope it lacks.
        match context.lacks_scope(identity) {
            Some(scopes) => Err(Refused { tally, rejection: Rejection::Scope(scopes.into()) }),
            None => Ok(tally),
        }
    }

    /// Takes all charges or none.
    pub(super) async fn charge<'p>(
        &self,
        plan: ChargePlan<'p>,
        context: ChargeContext<'_, 'p>,
        identity: &Identity<'_>,
    ) -> Charged<'p> {
        if plan.charges.is_empty() {
            return Ok(None);
        }
        let tally = match context.is_charged() {
            true => {
                let decision = self.store.charge(&plan.charges, context.now).await;
                let decision = decision.map_err(Rejection::from)?;
                if decision.verdict == Verdict::Allow {
                    self.note_change(context.policy, identity, context.now);
                }
                Tally::charged(plan, decision, context.now, self.store.unsettled())
            }
            false => {
                let peeked = self.store.peek(&plan.charges, context.now).await;
                let decision = foresee(&plan.charges, peeked);
                Tally::peeked(plan, decision, context.now)
            }
        };
        match tally.denial(identity, context.now, context.policy.responses.jitter) {
            Some(rejection) => Err(Refused { tally: Some(tally), rejection }),
            None => Ok(Some(tally)),
        }
    }
}

/// The length that a request declares for its body; zero if it declares none.
fn declared_bytes(headers: &HeaderMap) -> u64 {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|digits| digits.parse().ok()).unwrap_or_default()
}
