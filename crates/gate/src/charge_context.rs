//! From route, identity and request to charges: which counters a request is charged on.

mod counters;
pub mod keys;
pub(super) mod names;

use http::StatusCode;
use smallvec::SmallVec;
use tollgate_identity::{AcceptedTokens, Auth, CurrentKeys, Identifier, Identity};
use tollgate_policy::{Allowance, Cost, Enforcement, Limit, OnMissing, Policy, Route};
use tollgate_response::Rejection;
use tollgate_usage::mcp::Message;

use self::{
    counters::LimitShare,
    keys::{KeyBuilder, is_ambiguous},
};
use super::{
    body_look::LookedInto,
    charge_plan::{ChargePlan, ChargeRole},
    judge_input::JudgeInput,
    revalidation::is_revalidation,
    unfit_claims::warn_of_unfit_claim,
};

/// What charges are made from.
#[derive(Clone, Copy)]
pub struct ChargeContext<'r, 'p> {
    /// Finds out who is calling.
    pub identifier: &'r Identifier,
    /// The policy for the host.
    pub policy: &'p Policy,
    /// None: the caller queries its standings, on no route in particular.
    pub route: Option<&'p Route>,
    /// What the request is judged by.
    pub input: &'r JudgeInput<'r>,
    /// The message in its body that is charged; none: the whole request is.
    pub message: Option<&'r Message>,
}

/// Callers may query their standings with any good token, or with none.
static ANY_TOKEN: Auth = Auth::Optional(AcceptedTokens::ALL);

impl<'r, 'p> ChargeContext<'r, 'p> {
    /// The keys that tokens are verified by.
    pub(super) fn current_keys(&self) -> CurrentKeys<'r> {
        CurrentKeys { published: self.input.published_keys, now: self.input.now }
    }

    /// Looks into the body of the request, for what its route's limits count by.
    ///
    /// # Errors
    /// The [`Rejection`]: the body does not come in time, or is too large.
    pub(super) async fn look_into_body(&self) -> Result<(), Rejection> {
        let Some(route) = self.route else { return Ok(()) };
        let JudgeInput { head, client, body, .. } = *self.input;
        let request = LookedInto {
            policy: self.policy,
            route,
            method: head.method(),
            path: head.plain_path(),
            query: client.query.unwrap_or_default(),
            headers: client.headers,
        };
        let looked = body.look(request).await?;
        let _ = self.input.facts.set(looked);
        Ok(())
    }

    /// All charges of the route.
    ///
    /// # Errors
    /// [`Rejection::MissingKey`] if the request lacks what a limit counts by and may not.
    pub(super) fn plan(&self, identity: &Identity<'_>) -> Result<ChargePlan<'p>, Rejection> {
        let mut plan = ChargePlan::of_tier(identity.tier);
        for limit in self.limits(identity) {
            self.add_limit(limit, identity, &mut plan)?;
        }
        Ok(plan)
    }

    /// Only the charges of limits by address. Where the request lacks a key of such a limit, that
    /// one is not charged.
    pub(super) fn plan_by_address(&self, identity: &Identity<'_>) -> ChargePlan<'p> {
        let mut plan = ChargePlan::of_tier(identity.tier);
        for limit in self.limits(identity).filter(|limit| limit.is_by_address()) {
            let _ = self.add_limit(limit, identity, &mut plan);
        }
        plan
    }

    /// The charges of every limit whose standing can be reported to a caller without a route. A
    /// missing key denies no such query.
    pub(super) fn plan_for_standings(&self, identity: &Identity<'_>) -> ChargePlan<'p> {
        let mut plan = ChargePlan::of_tier(identity.tier);
        for limit in self.limits(identity) {
            let _ = self.add_limit(limit, identity, &mut plan);
        }
        plan
    }

    /// Checks that the request has one value of each header and cookie that its limits count by,
    /// unless its address is exempt. This comes before the caller is identified: what cannot be
    /// counted must cost nothing either.
    ///
    /// # Errors
    /// [`Rejection::AmbiguousKey`].
    pub(super) fn check_fields(&self) -> Result<(), Rejection> {
        // A limit in shadow mode refuses nothing.
        let is_enforced = |limit: &&Limit| limit.enforcement != Enforcement::Shadow;
        let mut limits = self.possible_limits().filter(is_enforced);
        match limits.find(|limit| is_ambiguous(limit, self.input.client.headers)) {
            Some(limit) if !self.policy.exempt.contains_address(self.input.client.address) => {
                Err(Rejection::AmbiguousKey(limit.name.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Whether tokens are verified, and of which issuers.
    pub(super) fn auth(&self) -> &'p Auth {
        self.route.map_or(&ANY_TOKEN, |route| &route.auth)
    }

    /// Checks that the token grants the scopes that the route needs, and has the claims.
    ///
    /// # Errors
    /// [`Rejection::Scope`] and [`Rejection::Claim`].
    pub(super) fn check_grants(&self, identity: &Identity<'_>) -> Result<(), Rejection> {
        let Some(route) = self.route else { return Ok(()) };
        let claims = identity.token.as_ref().map(|known| &known.token.claims);
        let scopes = &route.scopes;
        if !scopes.is_empty() && !claims.is_some_and(|claims| claims.grants(scopes)) {
            return Err(Rejection::Scope(scopes.join(" ").into()));
        }
        let (Auth::Optional(accepted) | Auth::Required(accepted)) = &route.auth else {
            return Ok(());
        };
        let Some(claims) = claims else { return Ok(()) };
        match accepted.claims.unmet_by(claims) {
            Some(unmet) => Err(Rejection::Claim(unmet.expectation(claims).into())),
            None => Ok(()),
        }
    }

    /// Whether charges are taken.
    pub(super) fn is_charged(&self) -> bool {
        self.input.dry_run.is_none_or(|dry_run| dry_run.is_charged)
    }

    /// The limits that may apply to this caller, the primary one first: the route's, or the
    /// policy's where there is no route.
    pub fn limits(&self, identity: &Identity<'_>) -> impl Iterator<Item = &'p Limit> {
        let is_exempt = self.policy.exempt.contains(identity);
        self.possible_limits().filter(move |_| !is_exempt)
    }

    /// The limits that may apply to some caller.
    fn possible_limits(&self) -> impl Iterator<Item = &'p Limit> {
        let policy = self.policy;
        let order: SmallVec<[usize; 8]> = match self.route {
            Some(route) => route.limits.iter().copied().collect(),
            None => policy.core_first().collect(),
        };
        order.into_iter().filter_map(|at| policy.limits.get(at))
    }

    /// Adds the charges of one limit.
    ///
    /// # Errors
    /// [`Rejection::MissingKey`].
    pub fn add_limit(
        &self,
        limit: &'p Limit,
        identity: &Identity<'_>,
        plan: &mut ChargePlan<'p>,
    ) -> Result<(), Rejection> {
        let none = [].as_slice();
        let of_tier =
            |rates: &'p [Vec<Allowance>]| rates.get(identity.tier).map_or(none, Vec::as_slice);
        // Candidate rates are tried out on callers without an override.
        let (allowances, candidates) = match self.override_of(limit, identity) {
            Some(own) => (own.allowances.as_slice(), none),
            None => (of_tier(&limit.rates), of_tier(&limit.candidate)),
        };
        if allowances.is_empty() && candidates.is_empty() {
            return Ok(());
        }
        let JudgeInput { dry_run, now, .. } = *self.input;
        if limit.per.on_missing == OnMissing::Share && dry_run.is_none() {
            warn_of_unfit_claim(self.policy, limit, identity, self.identifier, now);
        }
        let role = match self.is_enforced(limit, identity) {
            false => ChargeRole::Shadow,
            true if plan.has_primary_besides(limit) => ChargeRole::Secondary,
            true => ChargeRole::Primary,
        };
        let share = LimitShare { limit, role, allowances, candidates };
        if self.route.is_some_and(|route| route.body.is_of_messages) {
            return self.add_messages(&share, identity, plan);
        }
        match self.counter(limit, identity, role)? {
            Some(counter) => self.add_counter(&share, counter, identity, plan),
            None => return self.without_key(limit, identity),
        }
        Ok(())
    }

    /// What becomes of a request that lacks what the limit counts by.
    ///
    /// # Errors
    /// [`Rejection::MissingKey`].
    fn without_key(&self, limit: &Limit, identity: &Identity<'_>) -> Result<(), Rejection> {
        let JudgeInput { dry_run, now, .. } = *self.input;
        match dry_run {
            Some(dry_run) => dry_run.unkeyed.borrow_mut().push(limit.position),
            None => warn_of_unfit_claim(self.policy, limit, identity, self.identifier, now),
        }
        match limit.per.on_missing {
            OnMissing::Deny if self.is_enforced(limit, identity) => {
                Err(Rejection::MissingKey(limit.name.clone()))
            }
            OnMissing::Deny | OnMissing::Skip | OnMissing::Share => Ok(()),
        }
    }

    /// Whether some response gives back what the request is charged.
    fn may_be_refunded(&self, limit: &Limit, identity: &Identity<'_>) -> bool {
        let statuses = limit.refund.statuses(identity.token.is_some());
        let unchanged = StatusCode::NOT_MODIFIED;
        let is_revalidation =
            || is_revalidation(self.input.head.method(), self.input.client.headers, self.input.now);
        statuses.names_others(unchanged) || statuses.contains(unchanged) && is_revalidation()
    }

    /// Whether a limit is enforced for this caller.
    ///
    /// Where that holds for a percentage of the callers, a hash under the counters' secret draws
    /// them: a caller that knew the draw could choose a name or an address that is never denied.
    /// Proxies that share the secret draw alike. Without a configured secret, each start draws
    /// anew, as the counters begin anew then.
    fn is_enforced(&self, limit: &Limit, identity: &Identity<'_>) -> bool {
        let percent = match limit.enforcement {
            Enforcement::AllCallers => return true,
            Enforcement::Shadow => return false,
            Enforcement::Percent(percent) => percent,
        };
        let caller = match &identity.caller {
            Some(caller) => caller.hash,
            None => KeyBuilder { context: self, per: &limit.per, identity }.address(),
        };
        let caller = caller.to_le_bytes();
        let parts = [(b'%', limit.name.as_bytes()), (b'c', caller.as_slice())];
        self.identifier.hasher.hash(parts) % 100 < percent.into()
    }

    fn cost(&self, limit: &'p Limit) -> &'p Cost {
        self.route.and_then(|route| route.cost.as_ref()).unwrap_or(&limit.cost)
    }
}
