//! Policies, and the counters of a simulation: it judges by the time of the log.

use std::{
    collections::BTreeMap,
    mem::take,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate_clock::{Clock, Timestamp};
use tollgate_gate::{Shared, past_costs::PastCosts};
use tollgate_identity::PublishedKeys;
use tollgate_policy::Policies;
use tollgate_preview::{Judgement, PastRequest, Rehearsal};
use tollgate_settings::{MemoryBounds, Settings};
use tollgate_store::HeldLeases;

/// The most counters of a simulation: of a log there is no end.
const MAX_KEYS: usize = 1 << 30;

/// The most requests, and the most new counters, between two sweeps of the counters that are over,
/// if few counters are in use.
const REQUESTS_A_SWEEP: usize = 1 << 12;
const NEW_A_SWEEP: usize = 1 << 8;

/// Judges requests of the past, each at its time.
pub(super) struct PastJudge<'p> {
    policies: &'p Policies,
    rehearsal: Rehearsal,
    clock: Arc<AtomicU64>,
    /// The requests that have not ended, by the time at which they do, and their number.
    in_flight: BTreeMap<(Timestamp, u64), InFlight>,
    judged: u64,
    /// Requests since the latest sweep.
    unswept: usize,
    /// The counters in use after the latest sweep, and the most after any.
    keys: usize,
    peak_keys: usize,
}

/// What ends with a request.
struct InFlight {
    /// What it holds of limits of requests in flight.
    leases: Option<HeldLeases>,
    /// What is settled then.
    costs: PastCosts,
}

impl<'p> PastJudge<'p> {
    pub(super) fn new(policies: &'p Policies, settings: Option<&Settings>) -> PastJudge<'p> {
        let clock: Arc<AtomicU64> = Arc::default();
        let shared = Arc::new(Shared::offline(settings, Clock::Manual(Arc::clone(&clock))));
        let bounds = MemoryBounds::from(MAX_KEYS);
        let rehearsal = Rehearsal::with_room(&shared, &PublishedKeys::default(), bounds);
        PastJudge {
            policies,
            rehearsal,
            clock,
            in_flight: BTreeMap::new(),
            judged: 0,
            unswept: 0,
            keys: 0,
            peak_keys: 0,
        }
    }

    /// Judges a request that came at `now` and took some time. Times may not go back.
    pub(super) async fn judge(
        &mut self,
        past: &mut PastRequest,
        now: Timestamp,
        took: Duration,
        judged: &mut Judgement<'p>,
    ) {
        self.end_those_before(now);
        self.clock.store(now.as_micros(), Ordering::Relaxed);
        self.rehearsal.replay(self.policies, past, judged).await;
        self.judged += 1;
        let (leases, costs) = (judged.leases.take(), take(&mut judged.costs));
        if leases.is_some() || !costs.is_empty() {
            self.in_flight.insert((now + took, self.judged), InFlight { leases, costs });
        }
        self.unswept += 1;
        if self.is_sweep_due() {
            self.sweep(now);
        }
    }

    /// Whether to sweep the counters that are over: those are not in use. A sweep looks at all
    /// counters, so with many of them sweeps are rare; in a short log they are frequent, since it
    /// has a peak, too.
    fn is_sweep_due(&self) -> bool {
        let of_log = usize::try_from(self.judged / 64).unwrap_or(usize::MAX);
        let requests = of_log.clamp(16, REQUESTS_A_SWEEP).max(self.keys / 4);
        let new = of_log.clamp(16, NEW_A_SWEEP).max(self.keys / 8);
        self.unswept >= requests || self.rehearsal.counters() >= self.keys + new
    }

    /// The most counters that were in use at once. A peak that came and went between two sweeps is
    /// missing.
    pub(super) fn peak_keys(&mut self) -> u64 {
        let now = Timestamp::from_micros(self.clock.load(Ordering::Relaxed));
        self.sweep(now);
        self.peak_keys as u64
    }

    fn sweep(&mut self, now: Timestamp) {
        self.rehearsal.sweep(now);
        self.unswept = 0;
        self.keys = self.rehearsal.counters();
        self.peak_keys = self.peak_keys.max(self.keys);
    }

    fn end_those_before(&mut self, now: Timestamp) {
        while let Some(first) = self.in_flight.first_entry()
            && let (end, _) = *first.key()
            && end <= now
        {
            self.clock.store(end.as_micros(), Ordering::Relaxed);
            let InFlight { leases, costs } = first.remove();
            drop(leases);
            self.rehearsal.settle_past_costs(costs);
        }
    }
}
