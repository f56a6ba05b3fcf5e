//! Corrects what was charged, once the response's head is known.

use std::{rc::Rc, sync::Arc};

use http::{HeaderMap, HeaderName, StatusCode};
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, Receipt};
use tollgate_observe::metrics::LimitDecision;
use tollgate_policy::{CostSource, Statuses};
use tollgate_store::{Adjustment, Store};

use super::{ChargeRole, DecidedCharge, Tally};
use crate::{
    Shared,
    awaited_cost::{AwaitedCost, AwaitedCosts, units_without_head},
    counting::{CallerNote, CountedSender, count_adjustment},
    recent_costs::RouteLimit,
    request_state::RequestState,
};

/// What decides about the costs of a request once there is a response.
#[derive(Clone, Copy)]
pub(crate) struct ResponseFacts<'r> {
    /// The HTTP status that the response stands for: gRPC errors all have a 200.
    pub(crate) status: StatusCode,
    pub(crate) headers: &'r HeaderMap,
    /// The name of the request's route.
    pub(crate) route: &'r str,
    /// The request had a good token.
    pub(crate) is_authenticated: bool,
    /// The client asked if what it has is still current.
    pub(crate) is_revalidation: bool,
    /// The client has broken off its request, and this is no response of the upstream.
    pub(crate) is_broken_off: bool,
    /// Another proxy forwards the request: its response is never seen here.
    pub(crate) is_unseen: bool,
}

impl<'r> ResponseFacts<'r> {
    /// Of a response that came whole.
    pub(crate) fn of<'p: 'r>(
        state: &RequestState<'p>,
        status: StatusCode,
        headers: &'r HeaderMap,
    ) -> ResponseFacts<'r> {
        let identity = state.identity.as_ref();
        ResponseFacts {
            status,
            headers,
            route: state.route.map_or("", |route| &*route.name),
            is_authenticated: identity.is_some_and(|identity| identity.token.is_some()),
            is_revalidation: state.is_revalidation,
            is_broken_off: false,
            is_unseen: false,
        }
    }
}

impl Tally<'_> {
    /// Corrects what was charged, before the response's head leaves, so that its limit headers have
    /// the numbers after that. Returns whether anything was corrected.
    ///
    /// Every charge is corrected once, in one direction, which uses up its receipt. From then on
    /// the charge has the cost that it came to, which goes into the log. None for `sender`: the
    /// request is not counted.
    pub(crate) fn settle(
        &mut self,
        store: &Rc<Store>,
        response: ResponseFacts<'_>,
        shared: &Shared,
        sender: Option<&CountedSender<'_>>,
    ) -> bool {
        let mut is_corrected = false;
        if !self.is_open {
            return is_corrected;
        }
        let tier = self.plan.tier;
        // The latest counter whose first window was seen.
        let mut counted: Option<(usize, ChargeRole, u64)> = None;
        let planned = self.plan.limits.iter().zip(&mut self.plan.charges);
        let mut all = planned.zip(&mut self.outcomes).peekable();
        while let Some(((planned, charge), outcome)) = all.next() {
            let bound = all.next_if(|((planned, _), _)| planned.role == ChargeRole::Refund);
            let own = DecidedCharge { planned, charge, outcome };
            let counter = (planned.limit.position, planned.role, own.counter());
            let is_first = counted.replace(counter) != Some(counter);
            let is_due = own.is_refund_due(response);
            let has_room = bound.as_ref().is_none_or(|(_, bound)| bound.receipt.is_some());
            match (is_due && charge.takes(), has_room) {
                (true, true) => shared.refunds.count_given(),
                (true, false) => shared.refunds.count_withheld(),
                (false, _) => {}
            }
            self.refunded.extend((is_due && has_room).then_some(charge.key));
            let final_cost = own.final_cost(response, shared);
            let correction = own.correction(response, is_due && has_room, final_cost);
            if let Some(((_, of_refunds), bound)) = bound
                && let Some(receipt) = bound.receipt.take().filter(|_| !is_due)
            {
                let unused = Adjustment::GiveBack(receipt);
                store.settle(of_refunds, bound, unused, shared.clock.now());
            }
            // Most requests need none.
            let counters = || {
                let sender = sender.filter(|_| is_first)?;
                own.counters(sender.series, tier)
            };
            if let Some(cost) = final_cost
                && let Some(counters) = counters()
            {
                counters.settle(charge.cost, cost);
            }
            let Some((adjustment, cost)) = correction else { continue };
            if let Some(sender) = sender.filter(|_| is_first) {
                if let Some(counters) = counters() {
                    count_adjustment(counters, adjustment, cost);
                }
                // What is given back stays noted: a sketch can only grow.
                if let Adjustment::Take = adjustment {
                    let (decision, now) = (LimitDecision::Allow, shared.clock.now());
                    sender.note(&own, tier, CallerNote { units: cost, decision, now });
                }
            }
            let settling = Charge { cost, ..*charge };
            let settled = store.settle(&settling, outcome, adjustment, shared.clock.now());
            charge.cost = match adjustment {
                Adjustment::GiveBack(_) => charge.cost.saturating_sub(cost),
                Adjustment::Take | Adjustment::Renew(_) => charge.cost.saturating_add(cost),
            };
            outcome.receipt = None;
            outcome.standing = settled.unwrap_or(outcome.standing);
            is_corrected = true;
        }
        is_corrected
    }

    /// Whether only the response tells what some of this costs.
    pub(crate) fn awaits_cost(&self) -> bool {
        self.is_open && self.charges().any(|own| own.cost_source().is_some())
    }

    /// Whether the body of the response tells what some of this costs.
    pub(crate) fn awaits_body(&self) -> bool {
        let is_body = |own: DecidedCharge<'_, '_>| match own.cost_source().map(|source| &**source) {
            Some(CostSource::Body(_)) => true,
            Some(_) | None => false,
        };
        self.is_open && self.charges().any(is_body)
    }

    /// The charges whose cost the response is to tell and has not told yet, on the route of this
    /// name. None for `sender`: the request is not counted.
    pub(crate) fn awaited_costs(
        &self,
        route: &str,
        shared: &Shared,
        sender: Option<&CountedSender<'_>>,
    ) -> AwaitedCosts {
        if !self.is_open {
            return AwaitedCosts::new();
        }
        let tier = self.plan.tier;
        let now = shared.clock.now();
        let mut awaited = AwaitedCosts::new();
        let mut latest: Option<DecidedCharge<'_, '_>> = None;
        for (position, own) in self.charges().enumerate() {
            let is_first = latest.is_none_or(|latest| !own.is_of_same_counter(&latest));
            latest = Some(own);
            let source = own.cost_source().filter(|_| !self.refunded.contains(&own.charge.key));
            let Some(source) = source else { continue };
            awaited.push(AwaitedCost {
                position,
                charge: own.charge.into(),
                outcome: *own.outcome,
                source: Arc::clone(source),
                place: RouteLimit::new(own.planned.allowance.id, route),
                input_units: own.planned.input_units,
                units_without_head: own.cost_without_head(route, shared, now),
                counters: sender
                    .and_then(|sender| own.counters(sender.series, tier))
                    .filter(|_| is_first)
                    .cloned(),
                late: sender.and_then(|sender| sender.late_units(&own, tier)).filter(|_| is_first),
            });
        }
        awaited
    }

    /// Those of them that not the head of the response tells.
    pub(crate) fn body_costs(
        &self,
        route: &str,
        shared: &Shared,
        sender: Option<&CountedSender<'_>>,
    ) -> AwaitedCosts {
        let mut costs = self.awaited_costs(route, shared, sender);
        costs.retain(|cost| !matches!(*cost.source, CostSource::Header(_)));
        costs
    }

    /// Gives everything back, of a request that was charged without need.
    pub(crate) fn give_back(self, store: &Rc<Store>, now: Timestamp) {
        for (charge, outcome) in self.plan.charges.iter().zip(&self.outcomes) {
            if let Some(receipt) = outcome.receipt {
                store.settle(charge, outcome, Adjustment::GiveBack(receipt), now);
            }
        }
    }
}

impl DecidedCharge<'_, '_> {
    /// Whether the charge was taken; else its limit is only observed, and it did not fit.
    fn is_taken(&self) -> bool {
        self.outcome.receipt.is_some() || !self.charge.takes()
    }

    /// Whether the rest of the response tells the final cost.
    pub(crate) fn is_awaited(&self) -> bool {
        let is_of_head = |source: &Arc<CostSource>| matches!(&**source, CostSource::Header(_));
        self.cost_source().is_some_and(|source| !is_of_head(source))
    }

    /// What tells the final cost, if the charge was taken and something does.
    fn cost_source(&self) -> Option<&Arc<CostSource>> {
        let is_lease = self.charge.quota.holds_leases();
        let source = self.planned.cost.source.as_ref();
        source.filter(|_| self.is_taken() && !is_lease)
    }

    /// The cost that the response's head names, which is remembered; or the cost of a request that
    /// the client has broken off. None: the head names none.
    fn final_cost(&self, response: ResponseFacts<'_>, shared: &Shared) -> Option<u32> {
        let source = self.cost_source()?;
        if response.is_unseen {
            return None;
        }
        let now = shared.clock.now();
        if response.is_broken_off {
            return Some(self.cost_without_head(response.route, shared, now));
        }
        let CostSource::Header(header) = &**source else { return None };
        let cost = cost_in(response.headers, header)?;
        let source = RouteLimit::new(self.planned.allowance.id, response.route);
        shared.recent_costs.note(source, cost, now);
        Some(cost)
    }

    /// The cost if the response's head never comes.
    fn cost_without_head(&self, route: &str, shared: &Shared, now: Timestamp) -> u32 {
        let source = RouteLimit::new(self.planned.allowance.id, route);
        units_without_head(self.planned.cost, self.charge, || shared.recent_costs.of(source, now))
    }

    /// Whether the response's status gives back what was taken.
    fn is_refund_due(&self, response: ResponseFacts<'_>) -> bool {
        let is_lease = self.charge.quota.holds_leases();
        // Breaking a request off must not make it free.
        let is_kept = response.is_broken_off && self.cost_source().is_some();
        // A client that has nothing to revalidate has no free requests either.
        let is_current = response.status != StatusCode::NOT_MODIFIED || response.is_revalidation;
        let statuses = self.planned.limit.refund.statuses(response.is_authenticated);
        let is_named = statuses.contains(response.status) && is_current;
        is_named && !response.is_unseen && self.is_taken() && !is_lease && !is_kept
    }

    /// Whether to take more or to give back, and how much.
    fn correction(
        &self,
        response: ResponseFacts<'_>,
        is_refunded: bool,
        final_cost: Option<u32>,
    ) -> Option<(Adjustment, u32)> {
        let DecidedCharge { planned, charge, outcome } = self;
        if charge.quota.holds_leases() || !self.is_taken() {
            return None;
        }
        let is_counted =
            |statuses: Statuses| !response.is_unseen && statuses.contains(response.status);
        let is_uncounted = planned.limit.count_when.is_some_and(|statuses| !is_counted(statuses));
        let cost = if is_refunded || is_uncounted { 0 } else { final_cost? };
        adjustment(charge.cost, cost, outcome.receipt)
    }
}

/// Whether to take more or to give back, and how much, of what was `charged` and has come to
/// `cost`.
pub fn adjustment(charged: u32, cost: u32, taken: Option<Receipt>) -> Option<(Adjustment, u32)> {
    match (cost.checked_sub(charged), taken) {
        (Some(0), _) => None,
        (Some(extra), _) => Some((Adjustment::Take, extra)),
        (None, Some(receipt)) => Some((Adjustment::GiveBack(receipt), charged - cost)),
        (None, None) => None,
    }
}

/// The cost that a response names; none if the field is not there once with a number, and what was
/// reserved stays charged.
pub(crate) fn cost_in(headers: &HeaderMap, name: &HeaderName) -> Option<u32> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let digits = value.to_str().ok()?.trim();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse::<u32>().unwrap_or(MAX_COST).min(MAX_COST))
}

/// The most that a limit can be: a response that names a higher cost counts as this.
const MAX_COST: u32 = i32::MAX as u32;
