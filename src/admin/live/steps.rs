//! The last hour in steps of five seconds.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::counts::{AddedQuantiles, CountTotals, RequestCounts, TierCounts, TierName};

/// The length of a step.
pub(super) const STEP: Duration = Duration::from_secs(5);

/// Steps that are kept: an hour.
pub(super) const KEPT_STEPS: usize = 720;

/// Limits and tiers whose steps are kept. One has 12 bytes a step, so all have 2.2 MB at most.
pub(super) const MAX_TIERS: usize = 256;

/// The steps, and what they were counted from.
pub(super) struct Steps {
    /// When the last one ended.
    at: Instant,
    /// What was counted until then.
    counted: CountTotals,
    /// How many there were so far.
    pub(super) number: u64,
    /// The oldest first.
    pub(super) all: VecDeque<Step>,
    /// As many of each.
    tiers: BTreeMap<TierName, VecDeque<TierStep>>,
}

/// What came in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(in crate::admin) struct Step {
    /// Requests that ended.
    pub(super) ended: u32,
    /// Those that were denied.
    pub(super) denied: u32,
    /// Those that limits would have denied if they were enforced.
    pub(super) would_be_denied: u32,
    /// Those whose response had a status of 500 or above.
    pub(super) errors: u32,
    /// What the proxy itself took for half of them at most, in seconds. None: there were none.
    pub(super) added_p50: Option<f32>,
    /// The same for all but one of a hundred.
    pub(super) added_p99: Option<f32>,
}

/// What a limit decided about requests of a tier in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub(in crate::admin) struct TierStep {
    /// Requests that fitted.
    pub(super) allowed: u32,
    /// Those that were denied.
    pub(super) denied: u32,
    /// Those that would have been, if the limit were enforced for the caller.
    pub(super) would_be_denied: u32,
}

impl Steps {
    /// None yet. What was counted before now belongs to the first one.
    pub(super) fn new(now: Instant) -> Steps {
        Steps {
            at: now,
            counted: CountTotals::default(),
            number: 0,
            all: VecDeque::new(),
            tiers: BTreeMap::new(),
        }
    }

    /// Whether a step has ended.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now - self.at >= STEP
    }

    /// Ends the steps that have ended by now. If there are several, the process was halted
    /// meanwhile: all but the last one are empty.
    pub(super) fn take(&mut self, now: Instant, counted: &CountTotals) {
        let ended = (now - self.at).as_secs() / STEP.as_secs();
        let Some(empty) = ended.checked_sub(1) else { return };
        self.number += ended;
        // What the ticks are late by does not add up.
        self.at += STEP * u32::try_from(ended).unwrap_or(u32::MAX);
        for _ in 0..empty.min(KEPT_STEPS as u64) {
            push(&mut self.all, Step::default());
            self.tiers.values_mut().for_each(|steps| push(steps, TierStep::default()));
        }
        let before = std::mem::replace(&mut self.counted, counted.clone());
        let added = counted.added.since(&before.added);
        push(&mut self.all, Step::of(counted.requests.since(before.requests), added));
        for (name, counts) in &counted.limits {
            if !self.tiers.contains_key(name) && self.tiers.len() >= MAX_TIERS {
                continue;
            }
            let kept = self.all.len();
            let steps = self.tiers.entry(name.clone()).or_insert_with(|| {
                std::iter::repeat_n(TierStep::default(), kept.saturating_sub(1)).collect()
            });
            push(steps, TierStep::of(*counts, before.of_tier(name)));
        }
    }

    /// The steps of a limit and a tier, the oldest first.
    pub(super) fn of_tier(&self, name: &TierName) -> impl Iterator<Item = TierStep> {
        self.tiers.get(name).into_iter().flatten().copied()
    }
}

fn push<S>(steps: &mut VecDeque<S>, step: S) {
    if steps.len() >= KEPT_STEPS {
        steps.pop_front();
    }
    steps.push_back(step);
}

impl Step {
    fn of(requests: RequestCounts, added: AddedQuantiles) -> Step {
        Step {
            ended: small(requests.ended),
            denied: small(requests.denied),
            would_be_denied: small(requests.would_be_denied),
            errors: small(requests.errors),
            added_p50: added.p50.map(|seconds| seconds as f32),
            added_p99: added.p99.map(|seconds| seconds as f32),
        }
    }
}

impl TierStep {
    fn of(now: TierCounts, before: TierCounts) -> TierStep {
        let since = |now: u64, before: u64| small(now.saturating_sub(before));
        TierStep {
            allowed: since(now.allowed, before.allowed),
            denied: since(now.denied, before.denied),
            would_be_denied: since(now.would_be_denied, before.would_be_denied),
        }
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> TierName {
        let limit = format!("limit-{number}").into();
        TierName { policy: "api".into(), limit, tier: "free".into() }
    }

    fn counted(ended: u64, denied: &[u64]) -> CountTotals {
        let of = |denied: &u64| TierCounts { denied: *denied, ..TierCounts::default() };
        CountTotals {
            requests: RequestCounts { ended, ..RequestCounts::default() },
            limits: denied.iter().enumerate().map(|(at, own)| (name(at), of(own))).collect(),
            ..CountTotals::default()
        }
    }

    fn ended(steps: &Steps) -> Vec<u32> {
        steps.all.iter().map(|step| step.ended).collect()
    }

    fn denied(steps: &Steps, number: usize) -> Vec<u32> {
        steps.of_tier(&name(number)).map(|step| step.denied).collect()
    }

    #[test]
    fn step_has_what_came_in_it_and_limits_have_as_many() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut steps = Steps::new(start);
        steps.take(at(4.9), &counted(3, &[1]));
        assert_eq!((steps.number, steps.is_due(at(4.9))), (0, false));
        steps.take(at(5.4), &counted(5, &[1]));
        assert!(steps.is_due(at(10.0)));
        steps.take(at(10.0), &counted(5, &[2, 7]));
        assert_eq!((ended(&steps), denied(&steps, 0)), (vec![5, 0], vec![1, 1]));
        assert_eq!(denied(&steps, 1), [0, 7]);
        // Halted for three steps.
        steps.take(at(25.1), &counted(6, &[2, 8]));
        assert_eq!((steps.number, ended(&steps)), (5, vec![5, 0, 0, 0, 1]));
        assert_eq!(denied(&steps, 1), [0, 7, 0, 0, 1]);
    }

    #[test]
    fn hour_and_limits_are_bounded() {
        let start = Instant::now();
        let mut steps = Steps::new(start);
        let many: Vec<u64> = (0..MAX_TIERS as u64 + 9).collect();
        for number in 1..=800 {
            steps.take(start + STEP * number, &counted(number.into(), &many));
        }
        assert_eq!((steps.all.len(), steps.tiers.len()), (KEPT_STEPS, MAX_TIERS));
        assert!(steps.tiers.values().all(|own| own.len() == KEPT_STEPS));
        // Halted for a year.
        steps.take(start + STEP * 6_000_000, &counted(0, &many));
        assert_eq!((steps.all.len(), steps.number), (KEPT_STEPS, 6_000_000));
        assert_eq!(size_of::<TierStep>(), 12);
    }
}
