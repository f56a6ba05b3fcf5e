//! The decision about a charge, predicted from how the limits stand. Nothing is taken.

use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, DecidedBy, Decision, Quota, Retry, Stance, Standing, Verdict};

/// The decision that a store would make about `charges`, from its reply to a peek.
///
/// The verdict is exact, the instant to retry at is not always: for a cost of several units it is
/// the end of the window, and a strict bucket would start its interval over.
pub(super) fn foresee(charges: &[Charge<'_>], mut decision: Decision) -> Decision {
    for (charge, outcome) in charges.iter().zip(&mut decision.outcomes) {
        let standing = &mut outcome.standing;
        // Every algorithm admits exactly what remains, and nothing if a lowered limit is exceeded.
        let fits = charge.cost <= standing.remaining && !is_exceeded(standing);
        if fits || outcome.decided_by == DecidedBy::NoStore {
            continue;
        }
        standing.retry = retry(charge, standing, decision.now);
        if charge.stance == Stance::Enforce {
            decision.verdict = Verdict::Deny;
        }
    }
    decision
}

/// When a charge that does not fit will fit, as far as `standing` shows.
fn retry(charge: &Charge<'_>, standing: &Standing, now: Timestamp) -> Retry {
    if charge.cost > standing.limit {
        return Retry::Never;
    }
    match charge.quota {
        Quota::Concurrency(leases) => Retry::At(now + leases.retry_after),
        Quota::FixedWindow(_)
        | Quota::SlidingWindow(_)
        | Quota::SlidingLog(_)
        | Quota::TokenBucket(_)
        | Quota::Gcra(_) => match charge.cost {
            1 if !is_exceeded(standing) => Retry::At(standing.next),
            _ => Retry::At(standing.reset),
        },
    }
}

fn is_exceeded(standing: &Standing) -> bool {
    standing.used > standing.limit
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tollgate_clock::Timestamp;
    use tollgate_limit::{
        AlgorithmKind, Align, Concurrency, FixedWindow, Gcra, Key, LimitId, SlidingLog,
        SlidingWindow, Standing, TokenBucket,
    };
    use tollgate_store::MemoryStore;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// The forms of an algorithm, with this limit.
    fn forms(kind: AlgorithmKind, limit: u32) -> Vec<Quota> {
        let window = |align| Quota::FixedWindow(FixedWindow { limit, align });
        match kind {
            AlgorithmKind::FixedWindow => {
                vec![window(Align::FirstRequest(MINUTE)), window(Align::Epoch(MINUTE))]
            }
            AlgorithmKind::SlidingWindow => {
                vec![Quota::SlidingWindow(SlidingWindow::new(limit, MINUTE).unwrap())]
            }
            AlgorithmKind::SlidingLog => {
                vec![Quota::SlidingLog(SlidingLog { limit, window: MINUTE })]
            }
            AlgorithmKind::TokenBucket => vec![Quota::TokenBucket(TokenBucket {
                capacity: limit,
                refill: 2,
                interval: MINUTE,
                strict: false,
            })],
            AlgorithmKind::Gcra => {
                vec![Quota::Gcra(Gcra::new(limit, MINUTE, limit, 9).unwrap())]
            }
            AlgorithmKind::Concurrency => vec![Quota::Concurrency(Concurrency {
                limit,
                lease: MINUTE,
                retry_after: Duration::from_secs(1),
            })],
        }
    }

    proptest! {
        #[test]
        fn prop_what_is_foreseen_is_what_is_decided(
            kind in prop::sample::select(&AlgorithmKind::ALL[..]),
            form in 0..2_usize,
            // A limit that changes on the way may be exceeded already.
            steps in prop::collection::vec((0..40_u64, 0..5_u32, 0..6_u32), 1..30),
        ) {
            let store = MemoryStore::new(100, [0; 16]);
            let key = Key::new(1, 1, LimitId::new("p", "l", "", 0));
            let mut now = Timestamp::from_secs(1_790_000_000);
            for (seconds, cost, limit) in steps {
                now = now + Duration::from_secs(seconds);
                let forms = forms(kind, limit);
                let quota = &forms[form % forms.len()];
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
