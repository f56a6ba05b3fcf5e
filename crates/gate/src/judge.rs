//! What is decided about a request before anything is forwarded: its route, its caller, and what
//! they are charged.
//!
//! Real requests and dry runs take the same way. What a dry run does otherwise is in its
//! [`DryRun`](super::dry_run::DryRun), which is read in three places: who the caller is, whether a
//! charge is taken, and whether an address is remembered for its bad tokens.

use std::{mem, pin::pin, rc::Rc, sync::Arc};

use tollgate_clock::Timestamp;
use tollgate_identity::Identity;
use tollgate_limit::Verdict;
use tollgate_policy::Policy;
use tollgate_response::Rejection;
use tollgate_store::Store;
use tollgate_wire::target::Form;

use super::{
    Shared,
    body_look::declared_bytes,
    charge_context::ChargeContext,
    charge_plan::ChargePlan,
    cors::{Preflight, preflight},
    foresee::foresee,
    head::asks_for_standings,
    judge_input::JudgeInput,
    max_forwards,
    request_state::{Action, Forward, RequestState},
    revalidation::is_revalidation,
    tally::Tally,
};

/// Decides about requests.
pub struct Judge {
    /// What all workers share.
    pub shared: Arc<Shared>,
    pub(super) store: Rc<Store>,
}

impl Judge {
    /// A judge of one worker, which charges in its store.
    pub fn new(shared: Arc<Shared>, store: Rc<Store>) -> Judge {
        Judge { shared, store }
    }

    /// Drops the counters in the process that are over.
    pub fn sweep(&self, now: Timestamp) {
        self.store.sweep_all(now);
    }

    /// Counters in the process.
    pub fn counters(&self) -> usize {
        self.store.counters()
    }

    /// Route, identity, limits: all that is decided before anything is forwarded, by the policy for
    /// the host, if there is one. What is found out on the way is put into `state`, which also
    /// holds what a refused request was charged.
    pub async fn judge<'p>(
        &self,
        input: &JudgeInput<'_>,
        policy: Option<&'p Policy>,
        state: &mut RequestState<'p>,
    ) -> Action<'p> {
        let action = pin!(self.decide(input, policy, state)).await;
        let ends_here = || max_forwards::ends_here(input.head.method, input.client.headers);
        match action.unwrap_or_else(Action::Refuse) {
            Action::Forward(_) if !input.is_asked && ends_here() => Action::Options,
            action => action,
        }
    }

    async fn decide<'p>(
        &self,
        input: &JudgeInput<'_>,
        policy: Option<&'p Policy>,
        state: &mut RequestState<'p>,
    ) -> Result<Action<'p>, Rejection> {
        let &JudgeInput { head, client, now, is_asked, .. } = input;
        if head.form == Form::Asterisk {
            return Ok(Action::Options);
        }
        let policy = policy.ok_or(Rejection::NoRoute)?;
        state.policy = Some(policy);
        state.overriding_method.clone_from(&head.overriding_method);
        state.is_revalidation = is_revalidation(head.method(), client.headers, now);
        self.admit(policy, input)?;
        if let Some(preflight) = preflight(policy, input) {
            return Box::pin(self.judge_preflight(preflight, policy, input, state)).await;
        }
        let request = head.as_route_request(client.address);
        let destination = match asks_for_standings(policy, request) {
            true => None,
            false => Some(policy.route(request).ok_or(Rejection::NoRoute)?),
        };
        let route = destination.map(|(route, _)| route);
        state.route = route;
        if let Some(route) = route {
            // Like the policy's deny list, it costs the client nothing: there is nothing to guess.
            route.addresses.admit(client.address)?;
            head.check_query_in_path(route, &policy.identity.sources)?;
            // A proxy that asks forwards the target as it came.
            if is_asked {
                head.check_spelled_out(route)?;
                head.check_query_override(route)?;
            }
            // A body that is too large is refused before the caller is identified or charged.
            if route.max_body.is_some_and(|most| declared_bytes(client.headers) > most) {
                return Err(Rejection::BodyTooLarge);
            }
        }

        let identifier = &self.shared.identifier;
        let context = ChargeContext { identifier, policy, route, input, message: None };
        context.check_fields()?;
        let RequestState { identity, tally, .. } = state;
        //= rfc9110#section-3.3
        //# a server MUST NOT assume that two requests on the same connection are from the same user
        //# agent unless the connection is secured and specific to that agent
        let identity = identity.insert(pin!(self.identify(context, tally)).await?);
        if policy.deny.contains(identity) {
            return Err(Rejection::Denied);
        }
        let Some((route, upstream)) = destination else {
            // Boxed: it is rare, and keeps the common future small.
            Box::pin(self.look_up(context, identity, tally)).await?;
            return Ok(Action::Standings);
        };
        pin!(self.charge_caller(context, identity, tally)).await?;
        let target = head.target(&policy.identity.sources, route);
        Ok(Action::Forward(Forward { upstream, target }))
    }

    /// The same for a browser's preflight request.
    async fn judge_preflight<'p>(
        &self,
        preflight: Preflight<'p>,
        policy: &'p Policy,
        input: &JudgeInput<'_>,
        state: &mut RequestState<'p>,
    ) -> Result<Action<'p>, Rejection> {
        let Preflight { route, cors, action } = preflight;
        state.route = route;
        state.cors = Some(cors);
        if let Some(route) = route {
            route.addresses.admit(input.client.address)?;
            if input.is_asked {
                input.head.check_spelled_out(route)?;
                input.head.check_query_override(route)?;
            }
        }
        if let Action::Forward(_) = &action {
            let identifier = &self.shared.identifier;
            let context = ChargeContext { identifier, policy, route, input, message: None };
            self.charge_preflight(context, &mut state.tally).await?;
        }
        Ok(action)
    }

    /// Checks what costs nobody anything: that the policy does not refuse the client's address, and
    /// that this proxy has not forwarded the request before.
    fn admit(&self, policy: &Policy, input: &JudgeInput<'_>) -> Result<(), Rejection> {
        if policy.deny.contains_address(input.client.address) {
            return Err(Rejection::Denied);
        }
        //= rfc9110#section-7.6
        //# An intermediary MUST NOT forward a message to itself unless it is protected from an
        //# infinite request loop
        match &self.shared.via {
            // A proxy that asks forwards the request itself, and may stand behind this one.
            Some(via) if !input.is_asked && via.has_passed(input.client.headers) => {
                Err(Rejection::Loop)
            }
            _ => Ok(()),
        }
    }

    /// Charges an identified caller what its route's limits say.
    async fn charge_caller<'p>(
        &self,
        context: ChargeContext<'_, 'p>,
        identity: &Identity<'_>,
        tally: &mut Option<Tally<'p>>,
    ) -> Result<(), Rejection> {
        if context.route.is_some_and(|route| route.body.is_any) {
            // Boxed: it is rare. Only who is let in has the proxy read a body.
            Box::pin(context.look_into_body()).await?;
        }
        let plan = &mut context.plan(identity)?;
        let charged = pin!(self.charge(plan, context, identity, tally)).await;
        if charged.is_err() && identity.has_bad_token {
            self.distrust(&context, tally.as_ref());
        }
        charged?;
        // After the charge: a caller pays for the response that says which scope it lacks.
        context.check_grants(identity)
    }

    /// Takes all charges or none. Without charges, `tally` stays as it is; else the plan is moved
    /// there. It is handed over by reference, so that it is moved only once.
    ///
    /// # Errors
    /// Why the request is denied; `tally` says what it was denied by.
    pub(super) async fn charge<'p>(
        &self,
        plan: &mut ChargePlan<'p>,
        context: ChargeContext<'_, 'p>,
        identity: &Identity<'_>,
        tally: &mut Option<Tally<'p>>,
    ) -> Result<(), Rejection> {
        if plan.charges.is_empty() {
            return Ok(());
        }
        let tally = match context.is_charged() {
            true => {
                let decision = self.store.charge(&plan.charges, context.input.now).await?;
                if decision.verdict == Verdict::Allow {
                    self.note_change(context.policy, identity, context.input.now);
                }
                let plan = mem::take(plan);
                tally.insert(Tally::charged(
                    plan,
                    decision,
                    context.input.now,
                    self.store.unsettled(),
                ))
            }
            false => {
                let peeked = self.store.peek(&plan.charges, context.input.now).await;
                let decision = foresee(&plan.charges, peeked);
                tally.insert(Tally::peeked(mem::take(plan), decision, context.input.now))
            }
        };
        match tally.denial(identity, context.input.now, context.policy.responses.jitter) {
            Some(rejection) => Err(rejection),
            None => Ok(()),
        }
    }
}
