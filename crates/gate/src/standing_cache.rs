//! Standings that callers have just queried, kept for a moment: a caller that queries all the time
//! makes no work for Redis.
//!
//! A caller causes up to ten queries to the store in a second. After that it gets the latest
//! result, as long as that is not older than a second and the caller was charged nothing since; or
//! it waits for a query that is pending. Charges by other processes show a second later.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use quick_cache::sync::Cache;
use smallvec::SmallVec;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, Decision, Quota};

/// How long a result may be used again.
const MAX_AGE: Duration = Duration::from_secs(1);

/// How many queries a caller causes in that time, whatever is cached.
const MAX_QUERIES: u32 = 10;

/// Callers that are remembered; the standings of a caller that is forgotten are queried again.
const MAX_CALLERS: usize = 4_096;

/// Callers that have queried their standings recently, by a hash of policy and identity.
pub(super) struct StandingCache {
    callers: Cache<u128, Arc<Caller>>,
    /// When the last result is too old, in microseconds since the epoch: most of the time that has
    /// passed, and charges need not be noted.
    until: AtomicU64,
    /// How long the store may take.
    store_timeout: Duration,
}

type Caller = watch::Sender<State>;

#[derive(Default)]
struct State {
    /// Since when `queries` are counted.
    since: Option<Instant>,
    queries: u32,
    /// Queries without a result yet.
    pending: u32,
    /// When the caller was last charged, if that was after the first query.
    changed: Option<Instant>,
    result: Option<CachedStandings>,
}

struct CachedStandings {
    queried: QueryTime,
    counters: SmallVec<[(u128, Quota); 4]>,
    decision: Decision,
}

/// When a query began.
#[derive(Clone, Copy)]
struct QueryTime {
    instant: Instant,
    /// The same by the clock that requests are judged by.
    now: Timestamp,
}

/// How to get a caller's standings.
pub(super) enum Lookup {
    /// They are here.
    Cached(Decision),
    /// Query the store for them.
    Query(StandingQuery),
}

impl StandingCache {
    /// With a store that responds within this time.
    pub(super) fn new(store_timeout: Duration) -> StandingCache {
        let callers = Cache::new(MAX_CALLERS);
        StandingCache { callers, until: AtomicU64::new(0), store_timeout }
    }

    /// The standings of `caller` on these counters at `now`, or that the store has to be queried.
    /// Waits for a pending query, but no longer than the store may take.
    pub(super) async fn look_up(
        &self,
        caller: u128,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Lookup {
        let deadline = Instant::now() + self.store_timeout;
        self.until.fetch_max((now + self.store_timeout + MAX_AGE).as_micros(), Ordering::Relaxed);
        let known = self.callers.get(&caller).unwrap_or_else(|| {
            let new = Arc::default();
            self.callers.insert(caller, Arc::clone(&new));
            new
        });
        loop {
            let mut waiting = match next_step(&known, charges, now, deadline) {
                ControlFlow::Break(lookup) => return lookup,
                ControlFlow::Continue(waiting) => waiting,
            };
            // Changed or timed out: the state says what to do next.
            let _ = timeout_at(deadline, waiting.changed()).await;
        }
    }

    /// Whether charges need not be noted at `now`.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        now.as_micros() >= self.until.load(Ordering::Relaxed)
    }

    /// Forgets all results, but not how often callers have queried.
    pub(super) fn forget_all(&self) {
        for (_, known) in self.callers.iter() {
            known.send_modify(|state| state.changed = Some(Instant::now()));
        }
    }

    /// Notes that a caller was charged: cached results are out of date.
    pub(super) fn note_change(&self, caller: u128) {
        if let Some(known) = self.callers.get(&caller) {
            known.send_modify(|state| state.changed = Some(Instant::now()));
        }
    }
}

/// How to get the standings now; else the query that is pending, to wait for.
fn next_step(
    caller: &Arc<Caller>,
    charges: &[Charge<'_>],
    now: Timestamp,
    deadline: Instant,
) -> ControlFlow<Lookup, watch::Receiver<State>> {
    let instant = Instant::now();
    let is_overdue = instant >= deadline;
    let mut next = ControlFlow::Continue(caller.subscribe());
    caller.send_if_modified(|state| {
        if state.since.is_none_or(|since| instant.duration_since(since) >= MAX_AGE) {
            state.since = Some(instant);
            state.queries = 0;
        }
        let queried = QueryTime { instant, now };
        let result = state.result.as_ref().filter(|result| {
            state.changed.is_none_or(|changed| changed < result.queried.instant)
                && result.is_about(charges)
                && result.is_fresh(queried)
        });
        match result {
            Some(result) if state.queries >= MAX_QUERIES => {
                next = ControlFlow::Break(Lookup::Cached(result.decision_at(now)));
            }
            None if state.queries >= MAX_QUERIES && state.pending > 0 && !is_overdue => {}
            _ => {
                state.queries = state.queries.saturating_add(1);
                state.pending += 1;
                let query = StandingQuery { caller: Arc::clone(caller), queried };
                next = ControlFlow::Break(Lookup::Query(query));
            }
        }
        // Nothing changed for those that wait.
        false
    });
    next
}

impl CachedStandings {
    fn is_about(&self, charges: &[Charge<'_>]) -> bool {
        let is_same = |((entry, quota), charge): (&(u128, Quota), &Charge<'_>)| {
            *entry == charge.key.entry && quota == charge.quota
        };
        self.counters.len() == charges.len() && self.counters.iter().zip(charges).all(is_same)
    }

    /// Whether it is young enough, by the time that has really passed and by the clock of requests.
    fn is_fresh(&self, at: QueryTime) -> bool {
        let QueryTime { instant, now } = self.queried;
        at.instant.duration_since(instant) < MAX_AGE && (now..now + MAX_AGE).contains(&at.now)
    }

    fn decision_at(&self, now: Timestamp) -> Decision {
        let age = now.saturating_since(self.queried.now);
        Decision { now: self.decision.now + age, ..self.decision.clone() }
    }
}

/// A query to the store, pending until this is dropped.
pub(super) struct StandingQuery {
    caller: Arc<Caller>,
    queried: QueryTime,
}

impl StandingQuery {
    /// Passes what the store says about these counters to those that wait.
    pub(super) fn finish(self, charges: &[Charge<'_>], decision: &Decision) {
        let counters = charges.iter().map(|charge| (charge.key.entry, charge.quota.clone()));
        let result = CachedStandings {
            queried: self.queried,
            counters: counters.collect(),
            decision: decision.clone(),
        };
        self.caller.send_modify(|state| {
            let is_newer = |old: &CachedStandings| old.queried.instant > result.queried.instant;
            if !state.result.as_ref().is_some_and(is_newer) {
                state.result = Some(result);
            }
        });
    }
}

impl Drop for StandingQuery {
    fn drop(&mut self) {
        self.caller.send_modify(|state| state.pending -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tollgate_limit::{Outcomes, Verdict};

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);
    const ALICE: u128 = 7;

    fn decision() -> Decision {
        Decision { verdict: Verdict::Allow, outcomes: Outcomes::default(), now: NOW }
    }

    /// As many queries as a caller causes without waiting.
    async fn queries(cache: &StandingCache) -> Vec<StandingQuery> {
        let mut queries = Vec::new();
        for _ in 0..MAX_QUERIES {
            match cache.look_up(ALICE, &[], NOW).await {
                Lookup::Query(query) => queries.push(query),
                Lookup::Cached(_) => panic!("nothing is cached"),
            }
        }
        queries
    }

    #[tokio::test]
    async fn caller_that_queries_too_often_waits_for_a_result_and_gets_it_again() {
        let cache = StandingCache::new(Duration::from_secs(600));
        let mut queries = queries(&cache).await;
        let finish = async { queries.remove(0).finish(&[], &decision()) };
        let (found, ()) = tokio::join!(biased; cache.look_up(ALICE, &[], NOW), finish);
        assert!(matches!(found, Lookup::Cached(_)));
        // Half a second later by the clock, the decision is of that time.
        let later = NOW + MAX_AGE / 2;
        let Lookup::Cached(found) = cache.look_up(ALICE, &[], later).await else { panic!() };
        assert_eq!(found.now, later);
        drop(queries);
        assert!(matches!(cache.look_up(ALICE, &[], NOW + MAX_AGE).await, Lookup::Query(_)));
    }

    #[tokio::test]
    async fn query_that_is_given_up_is_made_by_one_that_waits() {
        let cache = StandingCache::new(Duration::from_secs(600));
        let queries = queries(&cache).await;
        let give_up = async { drop(queries) };
        let (found, ()) = tokio::join!(biased; cache.look_up(ALICE, &[], NOW), give_up);
        assert!(matches!(found, Lookup::Query(_)));
    }

    #[tokio::test]
    async fn no_caller_waits_longer_than_the_store_may_take() {
        let cache = StandingCache::new(Duration::ZERO);
        let _queries = queries(&cache).await;
        assert!(matches!(cache.look_up(ALICE, &[], NOW).await, Lookup::Query(_)));
    }

    #[tokio::test]
    async fn charge_in_between_has_the_store_queried_again() {
        let cache = StandingCache::new(Duration::from_secs(600));
        for query in queries(&cache).await {
            query.finish(&[], &decision());
        }
        assert!(matches!(cache.look_up(ALICE, &[], NOW).await, Lookup::Cached(_)));
        assert!(!cache.is_idle(NOW));
        cache.note_change(ALICE);
        assert!(matches!(cache.look_up(ALICE, &[], NOW).await, Lookup::Query(_)));
    }
}
