//! Denials of the last second, so that the retries of one client do not reach Redis.
//!
//! A request that was denied by a fixed window or a meter will be denied until a known instant
//! unless something is given back. The same request is denied from here until then, but for no
//! longer than a second, since another proxy may give something back.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, DecidedBy, Decision, Key, Outcome, Quota, Retry, Stance};

use crate::recent::Recent;

/// The most denials that are remembered.
const CAPACITY: usize = 10_000;

/// How long a denial is used at most.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Denials, by the counter that denied.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    denials: Recent<u128, CachedDenial, CAPACITY>,
    /// When counters were last reset, as `Resets::generation` counts it.
    generation: u64,
}

#[derive(Debug)]
struct CachedDenial {
    charges: SmallVec<[DeniedCharge; 2]>,
    decision: Decision,
    /// By this process' clock.
    at: Timestamp,
    until: Timestamp,
}

/// A charge of the denied request. The quota is part of it: a quota that was raised since does not
/// deny any more.
#[derive(Debug, PartialEq, Eq)]
struct DeniedCharge {
    entry: u128,
    cost: u32,
    stance: Stance,
    quota: Quota,
}

impl Memo {
    /// The denial of the same request, if it is still valid, as one of [`DecidedBy::Memo`]. When
    /// counters were reset since, all denials are forgotten: they are of the last second, and
    /// resets are rare.
    pub(crate) fn recall(
        &mut self,
        charges: &[Charge<'_>],
        generation: u64,
        now: Timestamp,
    ) -> Option<Decision> {
        if self.generation != generation {
            *self = Memo { generation, ..Memo::default() };
        }
        if self.denials.is_empty() {
            return None;
        }
        let denial = charges.iter().find_map(|charge| self.denials.get(&charge.key.entry))?;
        let is_same = |(denied, charge): (&DeniedCharge, &Charge<'_>)| {
            denied.entry == charge.key.entry
                && denied.cost == charge.cost
                && denied.stance == charge.stance
                && denied.quota == *charge.quota
        };
        let is_valid = (denial.at..denial.until).contains(&now)
            && denial.charges.len() == charges.len()
            && denial.charges.iter().zip(charges).all(is_same);
        let age = now.saturating_since(denial.at);
        is_valid.then(|| {
            let mut decision = denial.decision.clone();
            decision.now = decision.now + age;
            for outcome in &mut decision.outcomes {
                if is_of_store(outcome) {
                    outcome.decided_by = DecidedBy::Memo;
                }
            }
            decision
        })
    }

    /// Remembers a denial that will last. `now` is the instant of the request, so that the denial
    /// lasts no longer by this process' clock than by the store's.
    pub(crate) fn remember(&mut self, charges: &[Charge<'_>], decision: &Decision, now: Timestamp) {
        if charges.iter().any(|charge| charge.quota.writes_denials()) {
            return;
        }
        let mut outcomes = charges.iter().zip(&decision.outcomes);
        let lasting = outcomes.find_map(|(charge, outcome)| {
            Some((charge.key, lasts(charge, outcome, decision.now)?))
        });
        let Some((key, span)) = lasting else { return };
        let denied = |charge: &Charge<'_>| DeniedCharge {
            entry: charge.key.entry,
            cost: charge.cost,
            stance: charge.stance,
            quota: charge.quota.clone(),
        };
        let charges = charges.iter().map(denied).collect();
        let denial =
            CachedDenial { charges, decision: decision.clone(), at: now, until: now + span };
        self.denials.insert(key.entry, denial);
    }

    /// Forgets the denials of a counter, to which something was given back.
    pub(crate) fn forget(&mut self, key: Key) {
        self.denials.remove(&key.entry);
    }
}

/// How long a charge will be denied; none if it was not, or if that cannot be known.
fn lasts(charge: &Charge<'_>, outcome: &Outcome, now: Timestamp) -> Option<Duration> {
    let Retry::At(retry) = outcome.standing.retry else { return None };
    let span = retry.saturating_since(now).min(MAX_AGE);
    let is_denied = charge.stance == Stance::Enforce && is_of_store(outcome) && !span.is_zero();
    (is_denied && charge.quota.denies_until_retry()).then_some(span)
}

/// Whether a store has decided, and not the process in its place.
fn is_of_store(outcome: &Outcome) -> bool {
    matches!(outcome.decided_by, DecidedBy::Current | DecidedBy::Next)
}
