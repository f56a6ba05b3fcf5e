//! The properties. The name of each function is its statement.

use std::time::Duration;

use proptest::{prelude::*, test_runner::TestCaseError};
use tollgate_clock::Timestamp;

use super::{
    START, Subject, before, decide,
    history::{History, Noise, Step, run},
};
use crate::{Bytes, MAX_SKEW, Receipt, Retry, Standing, State};

pub(crate) use super::apart::prop_clocks_that_are_apart_count_once;

/// `remaining` is the largest cost that fits, and the part of the limit that was not used.
pub(crate) fn prop_used_and_remaining_make_up_the_limit<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let mut state = S::State::default();
    let mut now = START;
    let mut exceeded = false;
    for step in &history.steps {
        exceeded |= step.forced && !subject.admits(&state, step.cost, now + step.advance);
        now = run(subject, &mut state, &[*step], now);
        let Standing { limit, used, remaining, retry, .. } = subject.standing(&state, now);
        prop_assert_eq!(remaining, limit.saturating_sub(used));
        prop_assert!(exceeded || used <= limit, "{} used of {}", used, limit);
        prop_assert_eq!(retry, Retry::Now);
        prop_assert_eq!(subject.admits(&state, 0, now), used <= limit);
        prop_assert_eq!(subject.admits(&state, remaining, now), used <= limit);
        prop_assert!(!subject.admits(&state, remaining + 1, now));
    }
    Ok(())
}

/// Strict buckets do not have this property.
pub(crate) fn prop_denial_leaves_the_state_as_it_was<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let mut state = S::State::default();
    let mut now = START;
    for step in &history.steps {
        let before = state.clone();
        let denied = !subject.admits(&state, step.cost, now + step.advance);
        now = run(subject, &mut state, &[*step], now);
        prop_assert!(!denied || step.forced || state == before, "{:?} → {:?}", before, state);
    }
    Ok(())
}

/// `next` is checked in the same way, with a cost of one.
pub(crate) fn prop_waiting_until_retry_is_enough_and_less_is_not<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let (mut state, now) = history.outcome(subject);
    retry_is_exact(subject, &mut state, history.cost, now)
}

fn retry_is_exact<S: Subject>(
    subject: &S,
    state: &mut S::State,
    cost: u32,
    now: Timestamp,
) -> Result<(), TestCaseError> {
    if subject.capacity() > 0 && !subject.admits(state, 1, now) {
        let next = subject.standing(state, now).next;
        fits_from(subject, state, 1, next)?;
        prop_assert!(next > now);
    } else if subject.capacity() > 0 {
        prop_assert_eq!(subject.standing(state, now).next, now);
    }
    if !subject.admits(state, cost, now) {
        match decide(subject, state, cost, now).1.retry {
            Retry::At(retry) => {
                prop_assert!(retry > now && cost <= subject.capacity());
                fits_from(subject, state, cost, retry)?;
            }
            Retry::Never => prop_assert!(cost > subject.capacity()),
            Retry::Now => prop_assert!(false, "it does not fit now"),
        }
    }
    Ok(())
}

fn fits_from<S: Subject>(
    subject: &S,
    state: &S::State,
    cost: u32,
    from: Timestamp,
) -> Result<(), TestCaseError> {
    let early = before(from, subject.time_step());
    prop_assert!(!subject.admits(state, cost, early), "{:?} fits before {:?}", state, from);
    prop_assert!(subject.admits(state, cost, from), "{:?} does not fit at {:?}", state, from);
    Ok(())
}

/// Such a cost does not change the state, even of a strict bucket.
pub(crate) fn prop_cost_above_the_capacity_is_never_admitted<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let (mut state, now) = history.outcome(subject);
    let before = state.clone();
    let (allowed, standing, _) = decide(subject, &mut state, subject.capacity() + 1, now);
    prop_assert_eq!((allowed, standing.retry), (false, Retry::Never));
    prop_assert_eq!(before, state);
    Ok(())
}

/// At the reset, the state may also be forgotten.
pub(crate) fn prop_limit_is_full_at_reset_and_not_before<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let (state, now) = history.outcome(subject);
    let Standing { used, reset, .. } = subject.standing(&state, now);
    prop_assert!(reset >= now);
    prop_assert_eq!(subject.standing(&state, reset).used, 0);
    prop_assert!(state.is_over(reset) || state == S::State::default());
    if used > 0 && subject.capacity() > 0 {
        prop_assert!(subject.standing(&state, before(reset, subject.time_step())).used > 0);
    }
    Ok(())
}

/// The charge is given back in whole or in part, after other charges.
pub(crate) fn prop_refund_never_leaves_more_than_had_the_charge_not_been<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let (earlier, later) = history.steps.split_at(history.steps.len() / 2);
    let mut twins = Twins::charge(subject, history, earlier);
    for step in later {
        if !twins.step(subject, step) {
            return Ok(());
        }
    }
    twins.give_back(subject);
    for instant in history.instants(subject, &twins.refunded, twins.now) {
        let [refunded, uncharged] = twins.standings(subject, instant);
        prop_assert!(refunded.remaining <= uncharged.remaining, "{:?} at {:?}", twins, instant);
    }
    Ok(())
}

/// Only for a charge that was admitted. Strict buckets do not have this property.
pub(crate) fn prop_refund_with_no_charge_in_between_is_exact<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let mut twins = Twins::charge(subject, history, &history.steps);
    if !twins.admitted {
        return Ok(());
    }
    twins.now = twins.now + history.probes.first().copied().unwrap_or_default();
    twins.give_back(subject);
    for instant in history.instants(subject, &twins.refunded, twins.now) {
        let [_, uncharged] = twins.standings(subject, instant);
        let [refunded, _] = twins.standings(subject, instant + subject.refund_rounding());
        prop_assert!(refunded.remaining >= uncharged.remaining, "{:?} at {:?}", twins, instant);
    }
    Ok(())
}

/// Two keys with the same history, except for one charge that only the first had.
#[derive(Debug)]
struct Twins<State> {
    refunded: State,
    uncharged: State,
    receipt: Receipt,
    /// Whether the charge fitted.
    admitted: bool,
    /// Units to give back.
    cost: u32,
    now: Timestamp,
}

impl<State: crate::State> Twins<State> {
    fn charge<S: Subject<State = State>>(
        subject: &S,
        history: &History,
        earlier: &[Step],
    ) -> Twins<State> {
        let mut refunded = S::State::default();
        let now = run(subject, &mut refunded, earlier, START);
        if S::ANCHORED && refunded.is_over(now) {
            subject.take(&mut refunded, 1, now);
        }
        let mut uncharged = refunded.clone();
        let cost = history.cost;
        let kept = if S::DIVISIBLE { history.capacity % 2 } else { 0 };
        let admitted = subject.admits(&refunded, cost + kept, now);
        let receipt = subject.take(&mut refunded, cost + kept, now);
        if kept > 0 {
            subject.take(&mut uncharged, kept, now);
        }
        Twins { refunded, uncharged, receipt, admitted, cost, now }
    }

    /// Applies a step to both: the uncharged key takes each charge that the refunded key admits. Its
    /// memory is not bounded: else a full log could count more without the charge than with it,
    /// since it puts other charges together.
    /// Returns false if the uncharged key has lost its anchor, because then the two cannot be
    /// compared any more.
    fn step<S: Subject<State = State>>(&mut self, subject: &S, step: &Step) -> bool {
        self.now = self.now + step.advance;
        let comparable = !(S::ANCHORED && self.uncharged.is_over(self.now));
        if step.forced || subject.admits(&self.refunded, step.cost, self.now) {
            if step.cost > 0 {
                subject.take(&mut self.refunded, step.cost, self.now);
                subject.take_apart(&mut self.uncharged, step.cost, self.now);
            }
        } else {
            subject.on_denied(&mut self.refunded, step.cost, self.now);
        }
        comparable
    }

    fn give_back<S: Subject<State = State>>(&mut self, subject: &S) {
        subject.give_back(&mut self.refunded, self.receipt, self.cost, self.now);
    }

    fn standings<S: Subject<State = State>>(&self, subject: &S, now: Timestamp) -> [Standing; 2] {
        [subject.standing(&self.refunded, now), subject.standing(&self.uncharged, now)]
    }
}

/// A refund of a charge that no longer counts does not reduce later charges.
pub(crate) fn prop_refund_of_a_forgotten_charge_changes_nothing<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let (mut state, charged) = history.outcome(subject);
    let receipt = subject.take(&mut state, history.cost, charged);
    let now = subject.standing(&state, charged).reset.max(charged + subject.memory());
    subject.take(&mut state, 1, now);
    let mut refunded = state.clone();
    for now in history.instants(subject, &state, now) {
        subject.give_back(&mut refunded, receipt, history.cost, now);
        prop_assert_eq!(subject.standing(&refunded, now), subject.standing(&state, now));
    }
    Ok(())
}

/// A changed limit applies at once to open windows. Once it is changed back, nothing of it remains.
/// Strict buckets do not have this property.
pub(crate) fn prop_changed_limit_applies_at_once_and_changed_back_restores<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let (state, now) = history.outcome(subject);
    let former = subject.standing(&state, now);
    let changed = subject.with_capacity(history.capacity);
    let standing = changed.standing(&state, now);
    prop_assert_eq!(standing.remaining, standing.limit.saturating_sub(standing.used));
    prop_assert_eq!(standing.reset, former.reset);
    if history.steps.iter().all(|step| !step.forced) && changed.capacity() >= subject.capacity() {
        prop_assert_eq!(standing.used, former.used);
    }
    retry_is_exact(&changed, &mut state.clone(), history.cost, now)?;

    let mut denied = state.clone();
    for now in history.instants(&changed, &state, now) {
        if !changed.admits(&denied, history.cost, now) {
            decide(&changed, &mut denied, history.cost, now);
        }
    }
    prop_assert_eq!(denied, state);
    Ok(())
}

/// Charges are counted in the same way under a limit and under a higher one. Strict buckets do not
/// have this property.
pub(crate) fn prop_states_do_not_know_the_limit<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let higher = subject.with_capacity(subject.capacity() + history.capacity);
    let mut state = S::State::default();
    let mut mirror = S::State::default();
    let mut now = START;
    for step in &history.steps {
        now = now + step.advance;
        if let (_, _, Some(receipt)) = decide(subject, &mut state, step.cost, now) {
            prop_assert_eq!(receipt, higher.take(&mut mirror, step.cost, now));
        }
        prop_assert_eq!(&state, &mirror);
    }
    Ok(())
}

/// The next decision corrects a state that a clock a day ahead wrote, whether it admits or denies.
pub(crate) fn prop_service_resumes_after_the_clock_went_back_a_day<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let mut state = S::State::default();
    let now = run(subject, &mut state, &history.unforced(), START + DAY);
    let now = before(now, DAY);
    let resumed = now + subject.memory() + MAX_SKEW;
    prop_assert!(
        subject.standing(&state, now).reset <= resumed,
        "the standing is correct before that decision"
    );
    decide(subject, &mut state, history.cost, now);
    prop_assert_eq!(subject.standing(&state, resumed).used, 0);
    prop_assert!(state.is_over(resumed));
    Ok(())
}

const DAY: Duration = Duration::from_secs(86_400);

/// No state is corrected, no charge is forgotten later or sooner, and no more is admitted.
pub(crate) fn prop_clock_a_little_behind_moves_nothing_back<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let (mut state, now) = history.outcome(subject);
    subject.take(&mut state, 1, now);
    let behind = before(now, history.behind);
    let (standing, late) = (subject.standing(&state, now), subject.standing(&state, behind));
    prop_assert!(late.remaining <= standing.remaining);
    prop_assert_eq!(late.reset, standing.reset);

    let [mut on_time, mut too_late] = [state.clone(), state.clone()];
    subject.take(&mut on_time, history.cost, now);
    subject.take(&mut too_late, history.cost, behind);
    prop_assert_eq!(on_time, too_late);

    if !subject.admits(&state, history.cost, now) {
        let [mut on_time, mut too_late] = [state.clone(), state];
        subject.on_denied(&mut on_time, history.cost, now);
        subject.on_denied(&mut too_late, history.cost, behind);
        prop_assert_eq!(on_time, too_late);
    }
    Ok(())
}

/// So a store may drop such a state at any time, without an effect on decisions.
pub(crate) fn prop_state_that_is_over_decides_as_an_unused_one<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let (state, now) = history.outcome(subject);
    let mut over = false;
    let mut instants = history.instants(subject, &state, now);
    instants.sort();
    for instant in instants {
        prop_assert!(!over || state.is_over(instant), "a state that is over stays so");
        over = state.is_over(instant);
        if !over {
            continue;
        }
        let [mut kept, mut fresh] = [state.clone(), S::State::default()];
        let mut now = instant;
        for step in &history.steps {
            now = now + step.advance;
            prop_assert_eq!(subject.standing(&kept, now), subject.standing(&fresh, now));
            let (kept_allowed, kept_standing, _) = decide(subject, &mut kept, step.cost, now);
            let (allowed, standing, _) = decide(subject, &mut fresh, step.cost, now);
            prop_assert_eq!((kept_allowed, kept_standing), (allowed, standing));
        }
    }
    Ok(())
}

/// A truncated snapshot does not decode.
pub(crate) fn prop_state_survives_a_snapshot<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let (state, _) = history.outcome(subject);
    let mut bytes = Vec::new();
    state.encode(&mut bytes);
    let length = bytes.len();
    bytes.extend(&history.noise.bytes);
    let mut rest = Bytes(&bytes);
    prop_assert_eq!(S::State::decode(&mut rest), Some(state));
    prop_assert_eq!(rest.0, &history.noise.bytes);
    for cut in 0..length {
        prop_assert_eq!(S::State::decode(&mut Bytes(&bytes[..cut])), None);
    }
    Ok(())
}

/// For any content of a snapshot, any instant and any cost.
pub(crate) fn prop_no_input_panics_or_overflows<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let Noise { bytes, looks } = &history.noise;
    let decoded = S::State::decode(&mut Bytes(bytes));
    for mut state in decoded.into_iter().chain([history.outcome(subject).0]) {
        for (now, cost, number) in looks {
            let now = *now;
            let cost = *cost;
            decide(subject, &mut state, cost, now);
            let noise = Receipt { at: now, number: *number };
            subject.give_back(&mut state, noise, cost, now);
            let receipt = subject.take(&mut state, cost.max(1), now);
            let standing = subject.standing(&state, now);
            prop_assert_eq!(standing.remaining, standing.limit.saturating_sub(standing.used));
            subject.retry(&state, cost, now);
            subject.give_back(&mut state, receipt, *number as u32, now);
            state.is_over(now);
        }
    }
    Ok(())
}

/// The difference between a counter and its earlier state, added to the earlier state, gives the
/// counter again. One exception: units of a full log that a later charge has joined count for as
/// long as that charge; in the sum they expire when they would have expired without it.
pub(crate) fn prop_what_was_taken_since_can_be_added<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let (earlier, later) = history.steps.split_at(history.steps.len() / 2);
    let mut base = S::State::default();
    let mut now = START;
    now = run(subject, &mut base, earlier, now);
    let at_first = subject.standing(&base, now);
    let is_full = at_first.used >= at_first.limit;
    let mut state = base.clone();
    now = run(subject, &mut state, later, now);

    let mut sum = base.clone();
    match subject.beyond(&state, &base, now) {
        Some(beyond) => subject.add(&mut sum, &beyond, now),
        None => prop_assert_eq!(
            subject.standing(&state, now).used,
            subject.standing(&base, now).used,
            "nothing was taken"
        ),
    }
    for instant in history.instants(subject, &state, now) {
        let [whole, sum, base] =
            [&state, &sum, &base].map(|state| subject.standing(state, instant).used);
        let gone = if is_full { at_first.used.saturating_sub(base) } else { 0 };
        if instant == now {
            prop_assert!(sum <= whole, "{} of {} at {:?}", sum, whole, instant);
        }
        prop_assert!(sum + gone >= whole, "{} of {} at {:?}", sum, whole, instant);
    }
    Ok(())
}

/// A charge that is added counts for at least as long as in the counter that took it.
pub(crate) fn prop_sum_of_two_counters_holds_what_either_does<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let (ours, theirs) = history.steps.split_at(history.steps.len() / 2);
    let mut sum = S::State::default();
    let mut other = S::State::default();
    let mut now = run(subject, &mut sum, ours, START);
    now = now.max(run(subject, &mut other, theirs, START));
    let [mine, their] = [&sum, &other].map(|state| subject.standing(state, now).used);
    subject.add(&mut sum, &other, now);
    let used = subject.standing(&sum, now).used;
    prop_assert!(used >= mine.max(their), "{} and {} make {}", mine, their, used);
    prop_assert!(used <= mine + their, "{} and {} make {}", mine, their, used);
    Ok(())
}

/// What is joined counts no less than either and no more than both; a second time changes nothing.
pub(crate) fn prop_join_of_two_counters_holds_the_greater<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    let (ours, theirs) = history.steps.split_at(history.steps.len() / 2);
    let mut state = S::State::default();
    let mut other = S::State::default();
    let mut now = run(subject, &mut state, ours, START);
    now = now.max(run(subject, &mut other, theirs, START));
    let [mine, their] = [&state, &other].map(|state| subject.standing(state, now).used);
    let mut joined = state.clone();
    subject.join(&mut joined, &other, now);
    let used = subject.standing(&joined, now).used;
    prop_assert!(used >= mine.max(their), "{} and {} make {}", mine, their, used);
    prop_assert!(used <= mine + their, "{} and {} make {}", mine, their, used);
    for state in [&state, &other] {
        let mut again = joined.clone();
        prop_assert!(!subject.join(&mut again, state, now));
        prop_assert_eq!(subject.standing(&again, now), subject.standing(&joined, now));
    }
    Ok(())
}

/// A day before, which would be corrected if it were the time of a clock.
pub(crate) fn prop_no_instant_before_its_mark_moves_a_state_back<S: Subject>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    const DAY: Duration = Duration::from_secs(86_400);
    let (mut state, now) = history.outcome(subject);
    let earlier = before(now, DAY);
    for cost in [1, history.cost, subject.capacity() + 1] {
        let (mark, standing) = (subject.mark(&state), subject.standing(&state, now));
        prop_assert!(mark <= now);
        decide(subject, &mut state, cost, earlier.max(mark));
        let later = subject.standing(&state, now);
        prop_assert!(subject.mark(&state) >= mark);
        prop_assert!(later.used >= standing.used && later.reset >= standing.reset);
    }
    Ok(())
}
