//! Puts right what was charged, now that the response is known.

use std::rc::Rc;

use http::{HeaderMap, HeaderName, StatusCode};

use super::{Item, Tally};
use crate::{
    clock::{Clock, Timestamp},
    limit::{Charge, Quota},
    store::{Adjustment, Store},
};

/// What a response says about the costs of its request.
#[derive(Clone, Copy)]
pub(in crate::gate) struct Answer<'r> {
    pub(in crate::gate) status: StatusCode,
    pub(in crate::gate) headers: &'r HeaderMap,
    /// The request's sender showed a good token.
    pub(in crate::gate) is_authenticated: bool,
    /// The request asked whether what its client has is still current.
    pub(in crate::gate) is_revalidation: bool,
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
        clock: &Clock,
    ) -> bool {
        let mut is_corrected = false;
        if !self.is_open {
            return is_corrected;
        }
        let asked = self.asked.limits.iter().zip(&mut self.asked.charges);
        for ((asked, charge), outcome) in asked.zip(&mut self.outcomes) {
            let Some((adjustment, cost)) = Item { asked, charge, outcome }.correction(response)
            else {
                continue;
            };
            let settling = Charge { cost, ..*charge };
            let settled = store.settle((&settling, outcome), adjustment, clock.now());
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
    /// Gives everything back, of a request that need not have been charged.
    pub(in crate::gate) fn give_back(self, store: &Rc<Store>, now: Timestamp) {
        for Item { charge, outcome, .. } in self.items() {
            if let Some(receipt) = outcome.receipt {
                store.settle((charge, outcome), Adjustment::GiveBack(receipt), now);
            }
        }
    }
}

impl Item<'_, '_> {
    /// What is to be taken or given back, and how much of it.
    fn correction(&self, answer: Answer<'_>) -> Option<(Adjustment, u32)> {
        let Item { asked, charge, outcome } = self;
        if let Quota::Concurrency(_) = charge.quota {
            return None;
        }
        let taken = outcome.receipt;
        if taken.is_none() && charge.cost > 0 {
            // It is only observed, and did not fit.
            return None;
        }
        let refund = &asked.limit.refund;
        let is_uncounted =
            asked.limit.count_when.is_some_and(|statuses| !statuses.contains(answer.status));
        let names_status = refund.everybody.contains(answer.status)
            || (answer.is_authenticated && refund.authenticated.contains(answer.status));
        // A client that has nothing to revalidate has no free requests either.
        let is_due = answer.status != StatusCode::NOT_MODIFIED || answer.is_revalidation;
        let is_refunded = is_uncounted || (names_status && is_due);
        let cost = match is_refunded {
            true => 0,
            false => cost_in(answer.headers, asked.cost.from_response_header.as_ref()?)?,
        };
        match (cost.checked_sub(charge.cost), taken) {
            (Some(0), _) => None,
            (Some(extra), _) => Some((Adjustment::Take, extra)),
            (None, Some(receipt)) => Some((Adjustment::GiveBack(receipt), charge.cost - cost)),
            (None, None) => None,
        }
    }
}

/// What a response says its request has cost; none if it says so in no way that can be read, and the
/// reserve stands.
fn cost_in(headers: &HeaderMap, name: &HeaderName) -> Option<u32> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let digits = value.to_str().ok()?.trim();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse::<u32>().unwrap_or(MAX_COST).min(MAX_COST))
}

/// The most that a limit can be: a response that says it has cost more is taken to have cost this.
const MAX_COST: u32 = i32::MAX as u32;
