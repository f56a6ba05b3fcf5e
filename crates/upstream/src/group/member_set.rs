//! The endpoints of an upstream at one moment, and how one is chosen. Immutable: each endpoint
//! keeps its own changing state, and a change of the endpoints makes a new set.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use tollgate_policy::{Balance, Ejection};

use super::{Choice, Endpoint};
use crate::{
    balance::{Schedule, Weights, chance},
    health::Probe,
};

/// The endpoints that requests can be sent to.
#[derive(Debug, Default)]
pub(crate) struct EndpointSet {
    pub(crate) endpoints: Vec<Arc<Endpoint>>,
    pub(crate) ejection: Option<Ejection>,
    pub(crate) probe: Option<Arc<Probe>>,
    weights: Weights,
    balance: Balance,
    /// Empty unless the balance is round robin.
    schedule: Schedule,
}

impl EndpointSet {
    /// Endpoints with their weights, and the rules for choosing among them.
    pub(crate) fn new(
        endpoints: Vec<(Arc<Endpoint>, f64)>,
        balance: Balance,
        ejection: Option<Ejection>,
        probe: Option<Arc<Probe>>,
    ) -> EndpointSet {
        let weights = Weights::new(endpoints.iter().map(|(_, weight)| *weight));
        let schedule = match balance {
            Balance::RoundRobin => Schedule::new(&weights),
            Balance::LeastLoaded | Balance::Caller => Schedule::default(),
        };
        let endpoints = endpoints.into_iter().map(|(endpoint, _)| endpoint).collect();
        EndpointSet { endpoints, ejection, probe, weights, balance, schedule }
    }

    /// The endpoint for a request at the instant `now`; `turn` counts the turns of round robin.
    ///
    /// Ejected endpoints get none, and endpoints that have failed this request get it only if no
    /// other is left. If all are ejected, none counts as ejected: only a request can show that an
    /// endpoint has recovered.
    pub(crate) fn choose(
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
            // Another request may have begun the trial of this endpoint by now; then it is skipped.
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
                self.weights.less_loaded([chance(), chance()], is_eligible, load)
            }
            Balance::RoundRobin if choice.tried.is_empty() => {
                self.schedule.next(|| turn.fetch_add(1, Ordering::Relaxed), is_eligible)
            }
            // A retry takes no turn: if it did, with one of two servers broken, every request would
            // begin at the broken one.
            Balance::RoundRobin => {
                let own = Cell::new(turn.load(Ordering::Relaxed));
                self.schedule.next(|| own.replace(own.get().wrapping_add(1)), is_eligible)
            }
            Balance::Caller => {
                let name = |at| of(at).map_or(0, |endpoint| endpoint.name);
                self.weights.rendezvous(choice.caller, name, is_eligible)
            }
        }
    }

    /// Whether another endpoint is clean, so that this one can be ejected.
    pub(crate) fn has_another(&self, endpoint: &Endpoint) -> bool {
        let is_other = |other: &Endpoint| !std::ptr::eq(other, endpoint);
        self.endpoints.iter().any(|other| is_other(other) && other.is_clean())
    }
}
