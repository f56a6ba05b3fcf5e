//! The decision about a charge, predicted from how the limits stand. Nothing is taken.

use tollgate_limit::{Charge, DecidedBy, Decision, Stance, Verdict};

/// The decision that a store would make about `charges`, from its reply to a peek.
///
/// The verdict is exact, the instant to retry at is not always: for a cost of several units it is
/// the end of the window, and a strict bucket would start its interval over.
pub(super) fn foresee(charges: &[Charge<'_>], mut decision: Decision) -> Decision {
    for (charge, outcome) in charges.iter().zip(&mut decision.outcomes) {
        let standing = &mut outcome.standing;
        // Every algorithm admits exactly what remains, and nothing if a lowered limit is exceeded.
        let fits = charge.cost <= standing.remaining && standing.used <= standing.limit;
        if fits || outcome.decided_by == DecidedBy::NoStore {
            continue;
        }
        standing.retry = charge.quota.foresee(standing, charge.cost, decision.now);
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
    use tollgate_clock::Timestamp;
    use tollgate_limit::{
        AlgorithmKind, Align, FixedWindow, Key, LimitId, Quota, Standing, TokenBucket,
    };
    use tollgate_store::MemoryStore;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// A quota of each algorithm with this limit, and windows that begin without a request.
    fn quotas(limit: u32) -> Vec<Quota> {
        let plain = AlgorithmKind::ALL.map(|kind| Quota::plain(kind, limit, MINUTE).unwrap());
        let aligned = FixedWindow { limit, align: Align::Epoch(MINUTE) };
        let bucket = TokenBucket {
            capacity: limit,
            refill: 2,
            interval: MINUTE,
            even: false,
            strict: false,
        };
        plain.into_iter().chain([aligned.into(), bucket.into()]).collect()
    }

    proptest! {
        #[test]
        fn prop_what_is_foreseen_is_what_is_decided(
            which in 0..AlgorithmKind::ALL.len() + 2,
            // A limit that changes on the way may be exceeded already.
            steps in prop::collection::vec((0..40_u64, 0..5_u32, 0..6_u32), 1..30),
        ) {
            let store = MemoryStore::new(100, [0; 16]);
            let key = Key::new(1, 1, LimitId::new("p", "l", "", 0));
            let mut now = Timestamp::from_secs(1_790_000_000);
            for (seconds, cost, limit) in steps {
                now = now + Duration::from_secs(seconds);
                let quota = &quotas(limit)[which];
                let cost = if quota.holds_leases() { 1 } else { cost };
                let charges = [Charge::new(key, quota, cost)];
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
