//! Fixed window with a stored end, as GitHub counts.
//!
//! The first charge opens the window and fixes its end; everything told to the client is read from
//! that stored end, so it never wobbles. Windows start with each caller's own traffic, so callers
//! do not stampede at a common boundary; the price, known from the published systems, is that up to
//! twice the limit can pass around one end.

use super::{MAX_SKEW, Quota, Retry, Standing};
use crate::clock::Timestamp;

/// Counter state: what was used, never what is left, so that a changed quota applies at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    used: u32,
    reset: Timestamp,
}

impl FixedWindow {
    /// The window as it stands at `now`: the stored one while it is open, else a fresh one.
    ///
    /// An end further away than a window and the tolerated skew means that the clock went back; the
    /// end is moved to `now + window` and the count kept. The store writes that even on a denial,
    /// else each look would heal it anew and the caller stay blocked until the wrong time came.
    pub fn open(stored: Option<FixedWindow>, quota: Quota, now: Timestamp) -> FixedWindow {
        let fresh_end = now + quota.window;
        match stored {
            Some(window) if window.is_over(now) => FixedWindow { used: 0, reset: fresh_end },
            Some(window) if window.reset > fresh_end + MAX_SKEW => {
                FixedWindow { used: window.used, reset: fresh_end }
            }
            Some(window) => window,
            None => FixedWindow { used: 0, reset: fresh_end },
        }
    }

    /// Whether the window has ended: its end is inclusive.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now >= self.reset
    }

    /// Whether `cost` fits.
    pub fn admits(&self, quota: Quota, cost: u32) -> bool {
        u64::from(self.used) + u64::from(cost) <= u64::from(quota.limit)
    }

    /// The window with `cost` taken.
    #[must_use]
    pub fn charge(self, cost: u32) -> FixedWindow {
        FixedWindow { used: self.used.saturating_add(cost), ..self }
    }

    /// What to tell the client about this window.
    pub fn standing(&self, quota: Quota, now: Timestamp) -> Standing {
        Standing {
            limit: quota.limit,
            remaining: quota.limit.saturating_sub(self.used),
            used: self.used,
            reset: self.reset,
            next: if self.used < quota.limit { now } else { self.reset },
            retry: Retry::Now,
        }
    }

    /// When `cost`, which does not fit now, will.
    pub fn retry(&self, quota: Quota, cost: u32) -> Retry {
        if cost > quota.limit { Retry::Never } else { Retry::At(self.reset) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_790_000_000);

    /// One decision as a store makes it: open, ask, charge.
    fn decide(
        state: &mut Option<FixedWindow>,
        quota: Quota,
        cost: u32,
        now: Timestamp,
    ) -> (bool, Standing) {
        let window = FixedWindow::open(*state, quota, now);
        if window.admits(quota, cost) {
            let charged = window.charge(cost);
            *state = Some(charged);
            (true, charged.standing(quota, now))
        } else {
            let retry = window.retry(quota, cost);
            (false, Standing { retry, ..window.standing(quota, now) })
        }
    }

    fn quota(limit: u32, seconds: u64) -> Quota {
        Quota { limit, window: Duration::from_secs(seconds) }
    }

    #[test]
    fn reset_is_fixed_by_the_first_charge() {
        let mut state = None;
        for step in 0..5_u64 {
            let now = START + Duration::from_millis(step * 700);
            let (_, standing) = decide(&mut state, quota(3, 60), 1, now);
            assert_eq!(standing.reset, START + Duration::from_secs(60));
        }
    }

    #[test]
    fn window_is_closed_at_its_reset_and_not_before() {
        let mut state = None;
        decide(&mut state, quota(1, 60), 1, START);
        let reset = START + Duration::from_secs(60);
        let before = Timestamp::from_micros(reset.as_micros() - 1);
        assert!(!decide(&mut state, quota(1, 60), 1, before).0);
        assert!(decide(&mut state, quota(1, 60), 1, reset).0);
    }

    #[test]
    fn raising_a_limit_keeps_the_count_and_the_reset() {
        let mut state = None;
        for _ in 0..3 {
            decide(&mut state, quota(3, 60), 1, START);
        }
        let (allowed, standing) = decide(&mut state, quota(10, 60), 1, START);
        assert!(allowed);
        assert_eq!((standing.used, standing.remaining), (4, 6));
        assert_eq!(standing.reset, START + Duration::from_secs(60));
    }

    #[test]
    fn lowering_a_limit_below_what_was_used_denies_until_reset_without_underflow() {
        let mut state = None;
        for _ in 0..5 {
            decide(&mut state, quota(5, 60), 1, START);
        }
        let (allowed, standing) = decide(&mut state, quota(2, 60), 1, START);
        assert!(!allowed);
        assert_eq!((standing.used, standing.remaining), (5, 0));
        assert_eq!(standing.retry, Retry::At(START + Duration::from_secs(60)));
    }

    #[test]
    fn cost_above_the_limit_is_never_admitted() {
        let (allowed, standing) = decide(&mut None, quota(5, 60), 6, START);
        assert!(!allowed);
        assert_eq!((standing.retry, standing.remaining), (Retry::Never, 5));
    }

    #[test]
    fn zero_quota_denies_always() {
        let (allowed, standing) = decide(&mut None, quota(0, 60), 1, START);
        assert!(!allowed);
        assert_eq!((standing.retry, standing.remaining, standing.used), (Retry::Never, 0, 0));
    }

    #[test]
    fn clock_that_jumped_back_a_day_heals_within_one_window() {
        let tomorrow = START + Duration::from_secs(86_400);
        let mut state = None;
        for _ in 0..3 {
            decide(&mut state, quota(3, 60), 1, tomorrow);
        }
        let healed = FixedWindow::open(state, quota(3, 60), START);
        assert_eq!(healed, FixedWindow { used: 3, reset: START + Duration::from_secs(60) });
    }

    #[test]
    fn clock_that_is_a_little_behind_changes_nothing() {
        let mut state = None;
        decide(&mut state, quota(3, 60), 1, START + Duration::from_secs(4));
        let opened = FixedWindow::open(state, quota(3, 60), START);
        assert_eq!(Some(opened), state);
    }

    /// The model: a list of everything that was admitted since the window opened.
    #[derive(Default)]
    struct Model {
        opened: Option<Timestamp>,
        admitted: Vec<u32>,
    }

    impl Model {
        fn decide(&mut self, quota: Quota, cost: u32, now: Timestamp) -> bool {
            if self.opened.is_some_and(|opened| now >= opened + quota.window) {
                *self = Model::default();
            }
            let fits = self.admitted.iter().map(|cost| u64::from(*cost)).sum::<u64>()
                + u64::from(cost)
                <= u64::from(quota.limit);
            if fits {
                self.opened.get_or_insert(now);
                self.admitted.push(cost);
            }
            fits
        }
    }

    proptest! {
        #[test]
        fn prop_every_decision_equals_the_model(
            limit in 0_u32..8,
            seconds in 1_u64..20,
            steps in prop::collection::vec((0_u64..9_000_000, 1_u32..4), 1..60),
        ) {
            let (quota, mut state, mut model) = (quota(limit, seconds), None, Model::default());
            let mut now = START;
            for (advance, cost) in steps {
                now = now + Duration::from_micros(advance);
                let before = state;
                let (allowed, standing) = decide(&mut state, quota, cost, now);
                prop_assert_eq!(allowed, model.decide(quota, cost, now));
                prop_assert_eq!(standing.used + standing.remaining, limit);
                if !allowed {
                    prop_assert_eq!(before, state, "a denied request leaves the state as it was");
                }
            }
        }

        #[test]
        fn prop_waiting_until_retry_is_enough_and_a_microsecond_less_is_not(
            limit in 1_u32..8,
            seconds in 1_u64..20,
            cost in 1_u32..8,
            elapsed in 0_u64..1_000_000,
        ) {
            let quota = quota(limit, seconds);
            let mut state = None;
            while decide(&mut state, quota, 1, START).0 {}
            let now = START + Duration::from_micros(elapsed);
            let (_, standing) = decide(&mut state, quota, cost, now);
            match standing.retry {
                Retry::At(instant) => {
                    let just_before = Timestamp::from_micros(instant.as_micros() - 1);
                    prop_assert!(!decide(&mut state.clone(), quota, cost, just_before).0);
                    prop_assert!(decide(&mut state, quota, cost, instant).0);
                }
                Retry::Never => prop_assert!(cost > limit),
                Retry::Now => prop_assert!(false, "an exhausted window admits nothing"),
            }
        }
    }
}
