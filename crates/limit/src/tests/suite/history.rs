//! The random requests that a property sends to a key, and the instants at which it reads the
//! state.

use std::time::Duration;

use proptest::prelude::*;
use tollgate_clock::Timestamp;

use super::{START, Subject, before, decide};
use crate::{MAX_SKEW, Standing};

/// The requests to a key, and how its state is probed after them.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) steps: Vec<Step>,
    /// A cost, at least one.
    pub(crate) cost: u32,
    /// A capacity that a limit is changed to.
    pub(crate) capacity: u32,
    /// Times from the end of the steps to each read of the state.
    pub(crate) probes: Vec<Duration>,
    /// How far a clock is behind: at most [`MAX_SKEW`].
    pub(crate) behind: Duration,
    /// Random input.
    pub(crate) noise: Noise,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Time since the step before.
    pub(crate) advance: Duration,
    pub(crate) cost: u32,
    /// Whether it is charged even if it does not fit.
    pub(crate) forced: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Noise {
    pub(crate) bytes: Vec<u8>,
    pub(crate) looks: Vec<(Timestamp, u32, u64)>,
}

/// Applies `steps` to `state` from `now` on, and returns when they end.
pub(crate) fn run<S: Subject>(
    subject: &S,
    state: &mut S::State,
    steps: &[Step],
    mut now: Timestamp,
) -> Timestamp {
    for step in steps {
        now = now + step.advance;
        if step.forced && step.cost > 0 {
            subject.take(state, step.cost, now);
        } else {
            decide(subject, state, step.cost, now);
        }
    }
    now
}

impl History {
    /// The state after all steps, and when they end.
    pub(crate) fn outcome<S: Subject>(&self, subject: &S) -> (S::State, Timestamp) {
        let mut state = S::State::default();
        let now = run(subject, &mut state, &self.steps, START);
        (state, now)
    }

    /// The steps without force.
    pub(crate) fn unforced(&self) -> Vec<Step> {
        self.steps.iter().map(|step| Step { forced: false, ..*step }).collect()
    }

    /// Instants at which to read a state: those in its standing, those next to them, and the
    /// probes.
    pub(crate) fn instants<S: Subject>(
        &self,
        subject: &S,
        state: &S::State,
        now: Timestamp,
    ) -> Vec<Timestamp> {
        let Standing { reset, next, .. } = subject.standing(state, now);
        let step = subject.time_step();
        let probes = self.probes.iter().map(|probe| now + *probe);
        [now, before(next, step), next, before(reset, step), reset, reset + step]
            .into_iter()
            .chain(probes)
            .filter(|instant| *instant >= now)
            .collect()
    }
}

pub(crate) fn any_history() -> impl Strategy<Value = History> {
    (
        prop::collection::vec(step(), 1..40),
        1_u32..8,
        0_u32..16,
        prop::collection::vec(advance(), 4..12),
        (0..=MAX_SKEW.as_micros() as u64).prop_map(Duration::from_micros),
        noise(),
    )
        .prop_map(|(steps, cost, capacity, probes, behind, noise)| History {
            steps,
            cost,
            capacity,
            probes,
            behind,
            noise,
        })
}

fn step() -> impl Strategy<Value = Step> {
    (advance(), 0_u32..5, prop::bool::weighted(0.1)).prop_map(|(advance, cost, forced)| Step {
        advance,
        cost,
        forced,
    })
}

/// Often in the same instant or at the edge of a window, sometimes beyond it.
fn advance() -> impl Strategy<Value = Duration> {
    prop_oneof![
        3 => Just(0),
        3 => 0_u64..5_000,
        3 => 0_u64..3_000_000,
        1 => 0_u64..30_000_000,
        2 => (0_u64..30).prop_map(|halves| halves * 500_000),
    ]
    .prop_map(Duration::from_micros)
}

fn noise() -> impl Strategy<Value = Noise> {
    let instant = prop_oneof![any::<u64>(), 0_u64..1 << 51, Just(u64::MAX)];
    let cost = prop_oneof![any::<u32>(), 0_u32..20, Just(u32::MAX)];
    let look = (instant.prop_map(Timestamp::from_micros), cost, any::<u64>());
    (prop::collection::vec(any::<u8>(), 0..100), prop::collection::vec(look, 1..12))
        .prop_map(|(bytes, looks)| Noise { bytes, looks })
}
