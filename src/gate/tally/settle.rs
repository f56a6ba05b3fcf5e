//! Puts right what was charged, now that the response is known.

use std::rc::Rc;

use http::{HeaderMap, HeaderName, StatusCode};

use super::{Item, Role, Tally};
use crate::{
    clock::Timestamp,
    gate::{
        Shared,
        abandoned::{Due, Dues, units_without_head},
        dearest::source,
    },
    limit::{Charge, Quota, Receipt},
    store::{Adjustment, Store},
};

/// What a response says about the costs of its request.
#[derive(Clone, Copy)]
pub(in crate::gate) struct Answer<'r> {
    pub(in crate::gate) status: StatusCode,
    pub(in crate::gate) headers: &'r HeaderMap,
    /// The name of the request's route.
    pub(in crate::gate) route: &'r str,
    /// The request's sender showed a good token.
    pub(in crate::gate) is_authenticated: bool,
    /// The request asked whether what its client has is still current.
    pub(in crate::gate) is_revalidation: bool,
    /// The request's sender has broken it off, and this is no answer of the upstream.
    pub(in crate::gate) is_broken_off: bool,
}

impl Tally<'_> {
    /// Puts right what was charged, now that the response is known; before its head leaves, so that
    /// it tells the numbers after that. True if there was something to put right.
    ///
    /// Every charge is put right once, in one direction: a receipt is used up by it. From then on the
    /// charge says what it has come to, which the log tells.
    pub(in crate::gate) fn settle(
        &mut self,
        store: &Rc<Store>,
        response: Answer<'_>,
        shared: &Shared,
    ) -> bool {
        let mut is_corrected = false;
        if !self.is_open {
            return is_corrected;
        }
        let asked = self.asked.limits.iter().zip(&mut self.asked.charges);
        let mut items = asked.zip(&mut self.outcomes).peekable();
        while let Some(((asked, charge), outcome)) = items.next() {
            let bound = items.next_if(|((asked, _), _)| asked.role == Role::Refund);
            let item = Item { asked, charge, outcome };
            let is_due = item.is_refund_due(response);
            let has_room = bound.as_ref().is_none_or(|(_, bound)| bound.receipt.is_some());
            match (is_due && charge.takes(), has_room) {
                (true, true) => shared.refunds.count_given(),
                (true, false) => shared.refunds.count_withheld(),
                (false, _) => {}
            }
            let told = item.told_cost(response, shared);
            let correction = item.correction(response, is_due && has_room, told);
            if let Some(((_, of_refunds), bound)) = bound
                && let Some(receipt) = bound.receipt.take().filter(|_| !is_due)
            {
                let unused = Adjustment::GiveBack(receipt);
                store.settle(of_refunds, bound, unused, shared.clock.now());
            }
            let Some((adjustment, cost)) = correction else { continue };
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
}

impl Tally<'_> {
    /// Whether only the response tells what something of this costs.
    pub(in crate::gate) fn awaits_cost(&self) -> bool {
        self.is_open && self.items().any(|item| item.told_by().is_some())
    }

    /// The charges whose cost the response's head would tell, on the route of this name.
    pub(in crate::gate) fn dues(&self, route: &str, shared: &Shared) -> Dues {
        if !self.is_open {
            return Dues::new();
        }
        let now = shared.clock.now();
        let due = |item: Item<'_, '_>| {
            let header = item.told_by()?.clone();
            Some(Due {
                charge: item.charge.into(),
                outcome: *item.outcome,
                header,
                source: source(item.asked.allowance.id, route),
                abandoned: item.cost_without_head(route, shared, now),
            })
        };
        self.items().filter_map(due).collect()
    }

    /// Gives everything back, of a request that need not have been charged.
    pub(in crate::gate) fn give_back(self, store: &Rc<Store>, now: Timestamp) {
        for (charge, outcome) in self.asked.charges.iter().zip(&self.outcomes) {
            if let Some(receipt) = outcome.receipt {
                store.settle(charge, outcome, Adjustment::GiveBack(receipt), now);
            }
        }
    }
}

impl Item<'_, '_> {
    /// Whether the request has what it was charged; else it is only observed, and did not fit.
    fn is_taken(&self) -> bool {
        self.outcome.receipt.is_some() || !self.charge.takes()
    }

    /// The response field that tells what this costs in the end, if it is taken and one does.
    fn told_by(&self) -> Option<&HeaderName> {
        let is_lease = matches!(self.charge.quota, Quota::Concurrency(_));
        let header = self.asked.cost.from_response_header.as_ref();
        header.filter(|_| self.is_taken() && !is_lease)
    }

    /// What the response says that this has cost, which is remembered; or what it costs because the
    /// client did not wait for one. None: it says nothing.
    fn told_cost(&self, answer: Answer<'_>, shared: &Shared) -> Option<u32> {
        let header = self.told_by()?;
        let now = shared.clock.now();
        if answer.is_broken_off {
            return Some(self.cost_without_head(answer.route, shared, now));
        }
        let cost = cost_in(answer.headers, header)?;
        shared.dearest.note(source(self.asked.allowance.id, answer.route), cost, now);
        Some(cost)
    }

    /// What it costs if its response's head is never seen.
    fn cost_without_head(&self, route: &str, shared: &Shared, now: Timestamp) -> u32 {
        let Item { asked, charge, .. } = self;
        let units = (charge.cost, charge.quota.capacity());
        let remembered = (&shared.dearest, source(asked.allowance.id, route));
        units_without_head(asked.cost, units, remembered, now)
    }

    /// Whether the response's status gives back what was taken.
    fn is_refund_due(&self, answer: Answer<'_>) -> bool {
        let is_lease = matches!(self.charge.quota, Quota::Concurrency(_));
        // To break a request off is no way to have it for nothing.
        let is_kept = answer.is_broken_off && self.told_by().is_some();
        // A client that has nothing to revalidate has no free requests either.
        let is_current = answer.status != StatusCode::NOT_MODIFIED || answer.is_revalidation;
        let statuses = self.asked.limit.refund.statuses(answer.is_authenticated);
        let is_named = statuses.contains(answer.status) && is_current;
        is_named && self.is_taken() && !is_lease && !is_kept
    }

    /// What is to be taken or given back, and how much of it.
    fn correction(
        &self,
        answer: Answer<'_>,
        is_refunded: bool,
        told: Option<u32>,
    ) -> Option<(Adjustment, u32)> {
        let Item { asked, charge, outcome } = self;
        if let Quota::Concurrency(_) = charge.quota {
            return None;
        }
        if !self.is_taken() {
            return None;
        }
        let is_uncounted =
            asked.limit.count_when.is_some_and(|statuses| !statuses.contains(answer.status));
        let cost = if is_refunded || is_uncounted { 0 } else { told? };
        adjustment(charge.cost, cost, outcome.receipt)
    }
}

/// What is to be taken or given back, and how much, of what was `charged` and has come to `cost`.
pub(in crate::gate) fn adjustment(
    charged: u32,
    cost: u32,
    taken: Option<Receipt>,
) -> Option<(Adjustment, u32)> {
    match (cost.checked_sub(charged), taken) {
        (Some(0), _) => None,
        (Some(extra), _) => Some((Adjustment::Take, extra)),
        (None, Some(receipt)) => Some((Adjustment::GiveBack(receipt), charged - cost)),
        (None, None) => None,
    }
}

/// What a response says its request has cost; none if it says so in no way that can be read, and the
/// reserve stands.
pub(in crate::gate) fn cost_in(headers: &HeaderMap, name: &HeaderName) -> Option<u32> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let digits = value.to_str().ok()?.trim();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse::<u32>().unwrap_or(MAX_COST).min(MAX_COST))
}

/// The most that a limit can be: a response that says it has cost more is taken to have cost this.
const MAX_COST: u32 = i32::MAX as u32;
