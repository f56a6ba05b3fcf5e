//! How callers stand, told again as it was told a moment ago: whoever asks all the time makes no work
//! for Redis.
//!
//! A caller is told anew ten times a second. After that it is told what was found out last, as long
//! as that is not older than a second and the caller was charged nothing since; or it waits for what is
//! being found out. By this process, that is: what others do is seen a second later.

use std::{
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

use crate::{
    clock::Timestamp,
    limit::{Charge, Decision, Quota},
};

/// How long an answer may be told again.
const MAX_AGE: Duration = Duration::from_secs(1);

/// How often a caller is told anew in that time, whatever it was told before.
const FRESH: u32 = 10;

/// Callers that are known at most; who is forgotten is told anew.
const MAX_CALLERS: usize = 4_096;

/// Callers that have asked lately, by a hash of who they are.
pub(super) struct Lookups {
    callers: Cache<u128, Arc<Caller>>,
    /// When the last answer is too old, in microseconds since the epoch: most of the time that has
    /// passed, and charges need not be noted.
    until: AtomicU64,
    /// How long the store may take.
    patience: Duration,
}

type Caller = watch::Sender<State>;

#[derive(Default)]
struct State {
    /// Since when `fresh` is counted.
    since: Option<Instant>,
    fresh: u32,
    /// Questions that the store has not answered yet.
    pending: u32,
    /// When the caller was last charged, as far as that matters.
    changed: Option<Instant>,
    answer: Option<Answer>,
}

struct Answer {
    asked: (Instant, Timestamp),
    counters: SmallVec<[(u128, Quota); 4]>,
    decision: Decision,
}

/// What becomes of a question.
enum Course {
    /// It was answered just now.
    Answered(Decision),
    /// It is for the store.
    Ask(Question),
    /// Somebody else asks.
    Wait(watch::Receiver<State>),
}

/// What a caller is to be told.
pub(super) enum Lookup {
    /// This.
    Known(Decision),
    /// What the store says.
    Ask(Question),
}

impl Lookups {
    /// With a store that takes no longer than this to answer.
    pub(super) fn new(patience: Duration) -> Lookups {
        Lookups { callers: Cache::new(MAX_CALLERS), until: AtomicU64::new(0), patience }
    }

    /// What `caller` is told that asks about these counters at `now`, or that the store has to be
    /// asked. That may have to be waited for, but no longer than the store may take.
    pub(super) async fn look(
        &self,
        caller: u128,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Lookup {
        let begun = Instant::now();
        let deadline = begun + self.patience;
        self.until.fetch_max((now + self.patience + MAX_AGE).as_micros(), Ordering::Relaxed);
        let known = self.callers.get(&caller).unwrap_or_else(|| {
            let fresh = Arc::default();
            self.callers.insert(caller, Arc::clone(&fresh));
            fresh
        });
        loop {
            let mut waiting = match course(&known, charges, now, Instant::now() >= deadline) {
                Course::Answered(decision) => return Lookup::Known(decision),
                Course::Ask(question) => return Lookup::Ask(question),
                Course::Wait(waiting) => waiting,
            };
            // Whatever comes of it, the state says what to do.
            let _ = timeout_at(deadline, waiting.changed()).await;
        }
    }

    /// Whether charges need not be noted at `now`.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        now.as_micros() >= self.until.load(Ordering::Relaxed)
    }

    /// What is known of a caller is not so any more.
    pub(super) fn note_change(&self, caller: u128) {
        if let Some(known) = self.callers.get(&caller) {
            known.send_modify(|state| state.changed = Some(Instant::now()));
        }
    }
}

fn course(
    caller: &Arc<Caller>,
    charges: &[Charge<'_>],
    now: Timestamp,
    is_patience_over: bool,
) -> Course {
    let instant = Instant::now();
    let waiting = caller.subscribe();
    let mut course = Course::Wait(waiting);
    caller.send_if_modified(|state| {
        if state.since.is_none_or(|since| instant.duration_since(since) >= MAX_AGE) {
            (state.since, state.fresh) = (Some(instant), 0);
        }
        let answer = state.answer.as_ref().filter(|answer| {
            state.changed.is_none_or(|changed| changed < answer.asked.0)
                && answer.is_about(charges)
                && answer.is_good(instant, now)
        });
        match answer {
            Some(answer) if state.fresh >= FRESH => course = Course::Answered(answer.at(now)),
            None if state.fresh >= FRESH && state.pending > 0 && !is_patience_over => {}
            _ => {
                state.fresh = state.fresh.saturating_add(1);
                state.pending += 1;
                let asked = (instant, now);
                course = Course::Ask(Question { caller: Arc::clone(caller), asked });
            }
        }
        // Those who wait need not know.
        false
    });
    course
}

impl Answer {
    fn is_about(&self, charges: &[Charge<'_>]) -> bool {
        let is_same = |((entry, quota), charge): (&(u128, Quota), &Charge<'_>)| {
            *entry == charge.key.entry && quota == charge.quota
        };
        self.counters.len() == charges.len() && self.counters.iter().zip(charges).all(is_same)
    }

    /// Whether it may be told, by the time that has really passed and by what the clock says of that.
    fn is_good(&self, instant: Instant, now: Timestamp) -> bool {
        let (begun, at) = self.asked;
        instant.duration_since(begun) < MAX_AGE && (at..at + MAX_AGE).contains(&now)
    }

    fn at(&self, now: Timestamp) -> Decision {
        let age = now.saturating_since(self.asked.1);
        Decision { now: self.decision.now + age, ..self.decision.clone() }
    }
}

/// A question to the store, until this is dropped.
pub(super) struct Question {
    caller: Arc<Caller>,
    asked: (Instant, Timestamp),
}

impl Question {
    /// Tells those who wait what the store says about these counters.
    pub(super) fn answer(self, charges: &[Charge<'_>], decision: &Decision) {
        let counters = charges.iter().map(|charge| (charge.key.entry, charge.quota.clone()));
        let answer =
            Answer { asked: self.asked, counters: counters.collect(), decision: decision.clone() };
        self.caller.send_modify(|state| {
            let is_newer = |old: &Answer| old.asked.0 > answer.asked.0;
            if !state.answer.as_ref().is_some_and(is_newer) {
                state.answer = Some(answer);
            }
        });
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.caller.send_modify(|state| state.pending -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Outcomes, Verdict};

    const NOW: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);
    const ALICE: u128 = 7;

    fn decision() -> Decision {
        Decision { verdict: Verdict::Allow, outcomes: Outcomes::default(), now: NOW }
    }

    /// All questions that the store is asked for a caller without waiting.
    async fn questions(lookups: &Lookups) -> Vec<Question> {
        let mut questions = Vec::new();
        for _ in 0..FRESH {
            match lookups.look(ALICE, &[], NOW).await {
                Lookup::Ask(question) => questions.push(question),
                Lookup::Known(_) => panic!("nothing is known"),
            }
        }
        questions
    }

    #[tokio::test]
    async fn those_who_ask_too_often_wait_for_the_answer_and_are_told_it_again() {
        let lookups = Lookups::new(Duration::from_secs(600));
        let mut questions = questions(&lookups).await;
        let answer = async { questions.remove(0).answer(&[], &decision()) };
        let (found, ()) = tokio::join!(biased; lookups.look(ALICE, &[], NOW), answer);
        assert!(matches!(found, Lookup::Known(_)));
        // Half a second later by the clock it says so.
        let later = NOW + MAX_AGE / 2;
        let Lookup::Known(found) = lookups.look(ALICE, &[], later).await else { panic!() };
        assert_eq!(found.now, later);
        drop(questions);
        assert!(matches!(lookups.look(ALICE, &[], NOW + MAX_AGE).await, Lookup::Ask(_)));
    }

    #[tokio::test]
    async fn question_that_is_given_up_is_asked_by_who_waits() {
        let lookups = Lookups::new(Duration::from_secs(600));
        let questions = questions(&lookups).await;
        let give_up = async { drop(questions) };
        let (found, ()) = tokio::join!(biased; lookups.look(ALICE, &[], NOW), give_up);
        assert!(matches!(found, Lookup::Ask(_)));
    }

    #[tokio::test]
    async fn nobody_waits_longer_than_the_store_may_take() {
        let lookups = Lookups::new(Duration::ZERO);
        let _questions = questions(&lookups).await;
        assert!(matches!(lookups.look(ALICE, &[], NOW).await, Lookup::Ask(_)));
    }

    #[tokio::test]
    async fn charge_in_between_has_the_store_asked_again() {
        let lookups = Lookups::new(Duration::from_secs(600));
        for question in questions(&lookups).await {
            question.answer(&[], &decision());
        }
        assert!(matches!(lookups.look(ALICE, &[], NOW).await, Lookup::Known(_)));
        assert!(!lookups.is_idle(NOW));
        lookups.note_change(ALICE);
        assert!(matches!(lookups.look(ALICE, &[], NOW).await, Lookup::Ask(_)));
    }
}
