//! Who there is to choose from at one moment, and how the choice is made. Immutable: what changes
//! about an endpoint it says itself, and where endpoints come or go there is another roster.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use super::{
    Choice, Endpoint,
    balance::{Schedule, Shares, chance},
    health::Question,
};
use crate::policy::{Balance, Ejection};

/// Who there is to choose from.
#[derive(Debug, Default)]
pub(super) struct Roster {
    pub(super) endpoints: Vec<Arc<Endpoint>>,
    pub(super) ejection: Option<Ejection>,
    pub(super) question: Option<Arc<Question>>,
    shares: Shares,
    balance: Balance,
    /// Empty unless requests are given out in turns.
    schedule: Schedule,
}

impl Roster {
    /// Endpoints with their weights, and what is done with them.
    pub(super) fn new(
        endpoints: Vec<(Arc<Endpoint>, f64)>,
        balance: Balance,
        ejection: Option<Ejection>,
        question: Option<Arc<Question>>,
    ) -> Roster {
        let shares = Shares::new(endpoints.iter().map(|(_, weight)| *weight));
        let schedule = match balance {
            Balance::RoundRobin => Schedule::new(&shares),
            Balance::LeastLoaded | Balance::Caller => Schedule::default(),
        };
        let endpoints = endpoints.into_iter().map(|(endpoint, _)| endpoint).collect();
        Roster { endpoints, ejection, question, shares, balance, schedule }
    }

    /// Who gets a request, at the instant that `now` tells; `turn` counts those that were given out.
    ///
    /// Those who are left out get none, and those who have failed the request already get it only if
    /// no other is there. If all are left out, it is as if none were: somebody must be asked for it
    /// to be known that they are back.
    pub(super) fn choose(
        &self,
        choice: Choice<'_>,
        turn: &AtomicUsize,
        now: Instant,
    ) -> Option<&Arc<Endpoint>> {
        if let [] | [_] = &*self.endpoints {
            return self.endpoints.first();
        }
        let is_usable = |endpoint: &Endpoint| endpoint.is_clean() || endpoint.is_usable(now);
        let is_untried = |endpoint: &Endpoint| {
            !choice.tried.iter().any(|tried| std::ptr::eq(&**tried, endpoint))
        };
        let picked = |is_eligible: &dyn Fn(&Endpoint) -> bool| {
            let at = self.pick(choice, turn, |at| {
                self.endpoints.get(at).is_some_and(|endpoint| is_eligible(endpoint))
            });
            self.endpoints.get(at?)
        };
        let admitted = |is_eligible: &dyn Fn(&Endpoint) -> bool| {
            // Who is to be tried may be another request's by now, and is left out then.
            (0..self.endpoints.len())
                .map_while(|_| picked(is_eligible))
                .find(|endpoint| endpoint.is_clean() || endpoint.admit(now, self.ejection.as_ref()))
        };
        admitted(&|endpoint| is_usable(endpoint) && is_untried(endpoint))
            .or_else(|| admitted(&is_usable))
            .or_else(|| picked(&is_untried))
            .or_else(|| picked(&|_| true))
    }

    fn pick(
        &self,
        choice: Choice<'_>,
        turn: &AtomicUsize,
        is_eligible: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let of = |at: usize| self.endpoints.get(at);
        match self.balance {
            Balance::LeastLoaded => {
                let load = |at| of(at).map_or(0, |endpoint| endpoint.in_flight());
                self.shares.less_loaded([chance(), chance()], is_eligible, load)
            }
            Balance::RoundRobin if choice.tried.is_empty() => {
                self.schedule.next(|| turn.fetch_add(1, Ordering::Relaxed), is_eligible)
            }
            // What is tried again takes no turn from others: if it did, with one of two servers broken,
            // every request would begin at that one.
            Balance::RoundRobin => {
                let own = Cell::new(turn.load(Ordering::Relaxed));
                self.schedule.next(|| own.replace(own.get().wrapping_add(1)), is_eligible)
            }
            Balance::Caller => {
                let name = |at| of(at).map_or(0, |endpoint| endpoint.name);
                self.shares.rendezvous(choice.caller, name, is_eligible)
            }
        }
    }

    /// Whether a server other than this one would get every request if this one got none.
    pub(super) fn has_another(&self, endpoint: &Endpoint) -> bool {
        let is_other = |other: &Endpoint| !std::ptr::eq(other, endpoint);
        self.endpoints.iter().any(|other| is_other(other) && other.is_clean())
    }
}
