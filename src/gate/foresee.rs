//! What a charge would come to, from how the limits stand: nothing is taken to find out.

use crate::limit::{Charge, DecidedBy, Decision, Quota, Retry, Stance, Verdict};

/// The decision about `charges` that a store would make which has told how their limits stand.
///
/// Only when to come back is not always the store's own word: of a cost of several units, the end of
/// the window is told, and a strict bucket would start its wait over.
pub(super) fn foresee(charges: &[Charge<'_>], mut decision: Decision) -> Decision {
    for (charge, outcome) in charges.iter().zip(&mut decision.outcomes) {
        let standing = &mut outcome.standing;
        // Every algorithm admits what remains and not a unit more; where more was used than a lowered
        // limit has, nothing.
        let is_exceeded = standing.used > standing.limit;
        let fits = charge.cost <= standing.remaining && !is_exceeded;
        if fits || outcome.decided_by == DecidedBy::Nobody {
            continue;
        }
        standing.retry = match (charge.quota, charge.cost) {
            _ if charge.cost > standing.limit => Retry::Never,
            (Quota::Concurrency(slots), _) => Retry::At(decision.now + slots.retry_after),
            (_, 1) if !is_exceeded => Retry::At(standing.next),
            _ => Retry::At(standing.reset),
        };
        if charge.stance == Stance::Enforce {
            decision.verdict = Verdict::Deny;
        }
    }
    decision
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        clock::Timestamp,
        limit::{
            Align, Concurrency, FixedWindow, Gcra, Key, LimitId, SlidingLog, SlidingWindow,
            Standing, TokenBucket,
        },
        store::MemoryStore,
    };

    const MINUTE: Duration = Duration::from_secs(60);

    fn quota(kind: usize, limit: u32) -> Quota {
        let (interval, strict) = (MINUTE, false);
        match kind {
            0 => Quota::FixedWindow(FixedWindow { limit, align: Align::FirstRequest(MINUTE) }),
            1 => Quota::FixedWindow(FixedWindow { limit, align: Align::Epoch(MINUTE) }),
            2 => Quota::SlidingWindow(SlidingWindow::new(limit, MINUTE).unwrap()),
            3 => Quota::SlidingLog(SlidingLog { limit, window: MINUTE }),
            4 => Quota::TokenBucket(TokenBucket { capacity: limit, refill: 2, interval, strict }),
            5 => Quota::Gcra(Gcra::new(limit, MINUTE, limit, 9).unwrap()),
            _ => {
                let (lease, retry_after) = (MINUTE, Duration::from_secs(1));
                Quota::Concurrency(Concurrency { limit, lease, retry_after })
            }
        }
    }

    proptest! {
        #[test]
        fn prop_what_is_foreseen_is_what_is_decided(
            kind in 0..7_usize,
            // A limit that changes on the way may be exceeded already.
            steps in prop::collection::vec((0..40_u64, 0..5_u32, 0..6_u32), 1..30),
        ) {
            let store = MemoryStore::new(100, [0; 16]);
            let key = Key::new(1, 1, LimitId::new("p", "l", "", 0));
            let mut now = Timestamp::from_secs(1_790_000_000);
            for (seconds, cost, limit) in steps {
                now = now + Duration::from_secs(seconds);
                let quota = quota(kind, limit);
                let cost = if kind == 6 { 1 } else { cost };
                let charges = [Charge::new(key, &quota, cost)];
                let foreseen = foresee(&charges, store.peek(&charges, now));
                let decided = store.charge(&charges, now).unwrap();
                prop_assert_eq!(foreseen.verdict, decided.verdict);
                let Standing { used, limit, remaining, .. } = foreseen.outcomes[0].standing;
                if used <= limit && (cost == 1 || cost <= remaining) {
                    let retries = [foreseen, decided].map(|own| own.outcomes[0].standing.retry);
                    prop_assert_eq!(retries[0], retries[1]);
                }
            }
        }
    }
}
