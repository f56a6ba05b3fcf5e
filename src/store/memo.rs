//! Denials of the last second, so that a client that hammers does not reach Redis.
//!
//! A request that was denied by a fixed window or a meter will be denied until a known instant, as
//! long as nobody gives anything back; the same request is answered from here until then, but for no
//! longer than a second, since another proxy may give something back.

use std::time::Duration;

use smallvec::SmallVec;

use super::recent::Recent;
use crate::{
    clock::Timestamp,
    limit::{Charge, DecidedBy, Decision, Key, Outcome, Quota, Retry, Stance},
};

/// Denials that are remembered at most.
const CAPACITY: usize = 10_000;

/// How long one is good at most.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Denials, by what denied.
#[derive(Debug)]
pub(super) struct Memo(Recent<u128, Denial>);

#[derive(Debug)]
struct Denial {
    charges: SmallVec<[Asked; 2]>,
    decision: Decision,
    /// By this process' clock.
    at: Timestamp,
    until: Timestamp,
}

/// What was asked for. The quota is part of it: one that was raised since denies no more.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    entry: u128,
    cost: u32,
    stance: Stance,
    quota: Quota,
}

impl Default for Memo {
    fn default() -> Self {
        Memo(Recent::new(CAPACITY))
    }
}

impl Memo {
    /// The denial of the same request, if it is still good.
    pub(super) fn recall(&mut self, charges: &[Charge<'_>], now: Timestamp) -> Option<Decision> {
        if self.0.is_empty() {
            return None;
        }
        let denial = charges.iter().find_map(|charge| self.0.get(&charge.key.entry))?;
        let is_same = |(asked, charge): (&Asked, &Charge<'_>)| {
            asked.entry == charge.key.entry
                && asked.cost == charge.cost
                && asked.stance == charge.stance
                && asked.quota == *charge.quota
        };
        let is_good = (denial.at..denial.until).contains(&now)
            && denial.charges.len() == charges.len()
            && denial.charges.iter().zip(charges).all(is_same);
        let age = now.saturating_since(denial.at);
        is_good.then(|| Decision { now: denial.decision.now + age, ..denial.decision.clone() })
    }

    /// Remembers a denial that will last. `now` is when it was asked for: it lasts no longer by this
    /// process' clock than by the store's.
    pub(super) fn remember(&mut self, charges: &[Charge<'_>], decision: &Decision, now: Timestamp) {
        // Each denial starts the wait of a strict bucket over, and has to reach it.
        let is_strict = |charge: &Charge<'_>| matches!(charge.quota, Quota::TokenBucket(bucket) if bucket.strict);
        if charges.iter().any(is_strict) {
            return;
        }
        let mut outcomes = charges.iter().zip(&decision.outcomes);
        let lasting = outcomes.find_map(|(charge, outcome)| {
            Some((charge.key, lasts(charge, outcome, decision.now)?))
        });
        let Some((key, span)) = lasting else { return };
        let asked = |charge: &Charge<'_>| Asked {
            entry: charge.key.entry,
            cost: charge.cost,
            stance: charge.stance,
            quota: charge.quota.clone(),
        };
        let charges = charges.iter().map(asked).collect();
        let denial = Denial { charges, decision: decision.clone(), at: now, until: now + span };
        self.0.insert(key.entry, denial);
    }

    /// Something was given back.
    pub(super) fn forget(&mut self, key: Key) {
        self.0.remove(&key.entry);
    }
}

/// How long a charge will be denied; none if it was not, or nobody knows.
fn lasts(charge: &Charge<'_>, outcome: &Outcome, now: Timestamp) -> Option<Duration> {
    let is_steady = matches!(charge.quota, Quota::FixedWindow(_) | Quota::Gcra(_));
    let is_of_store = matches!(outcome.decided_by, DecidedBy::Current | DecidedBy::Next);
    let Retry::At(retry) = outcome.standing.retry else { return None };
    let span = retry.saturating_since(now).min(MAX_AGE);
    let is_denied = charge.stance == Stance::Enforce && is_of_store && !span.is_zero();
    (is_steady && is_denied).then_some(span)
}
