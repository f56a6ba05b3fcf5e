//! The differential run: an algorithm against a model of it.

use std::time::Duration;

use tollgate_clock::Timestamp;

use super::{START, Subject, decide};
use crate::{Retry, Standing};

/// A second implementation of an algorithm: slow and exact, with another method.
pub(crate) trait Model {
    /// Whether `cost` fits.
    fn admits(&self, cost: u32, now: Timestamp) -> bool;

    /// Counts `cost`.
    fn take(&mut self, cost: u32, now: Timestamp);

    /// Gives back the charge at `index`, in the order in which charges were taken.
    fn give_back(&mut self, index: usize, now: Timestamp);

    /// The standing of the key; `retry` is [`Retry::Now`].
    fn standing(&self, now: Timestamp) -> Standing;

    /// When `cost`, which does not fit now, will fit.
    fn retry(&self, cost: u32, now: Timestamp) -> Retry;
}

/// Lets subjects and their models decide the same random requests and refunds, 100 for each of 1000
/// seeds. Every decision and the standing that is returned with it must be equal.
///
/// The message of a failure has its seed and step. To repeat only that run, put that seed in place
/// of the range.
pub(crate) fn assert_equals_model<S: Subject, M: Model>(any: impl Fn(&mut Numbers) -> (S, M)) {
    for seed in 0..1000 {
        let mut numbers = Numbers(seed);
        let (subject, mut model) = any(&mut numbers);
        let mut state = S::State::default();
        let mut now = START;
        let mut receipts = Vec::new();
        for step in 0..100 {
            now = now + numbers.advance(subject.memory());
            let cost = numbers.below(u64::from(subject.capacity().min(6)) + 2) as u32;
            let fits = model.admits(cost, now);
            if fits && cost > 0 {
                model.take(cost, now);
            }
            let retry = if fits { Retry::Now } else { model.retry(cost, now) };
            let standing = Standing { retry, ..model.standing(now) };

            let (allowed, found, receipt) = decide(&subject, &mut state, cost, now);
            let context = format!("seed {seed}, step {step}: {cost} at {now:?} by {subject:?}");
            assert_eq!((allowed, found), (fits, standing), "{context}");
            receipts.extend(receipt.map(|receipt| Some((receipt, cost))));

            if numbers.below(4) == 0 && !receipts.is_empty() {
                let recent = numbers.below(receipts.len().min(6) as u64) as usize;
                let index = receipts.len() - 1 - recent;
                if let Some((receipt, cost)) = receipts[index].take() {
                    subject.give_back(&mut state, receipt, cost, now);
                    model.give_back(index, now);
                }
            }
        }
    }
}

/// The earliest instant from `from` to `to` at which `holds` is true, if it stays true after it.
pub(crate) fn first_instant(
    from: Timestamp,
    to: Timestamp,
    step: Duration,
    holds: impl Fn(Timestamp) -> bool,
) -> Timestamp {
    let steps = to.saturating_since(from).as_micros() / step.as_micros();
    let mut low = 0;
    let mut high = steps as u32;
    while low < high {
        let middle = (low + high) / 2;
        if holds(from + step * middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    from + step * low
}

/// Numbers that look random, and are the same for the same seed (SplitMix64).
pub(crate) struct Numbers(u64);

impl Numbers {
    /// A number from zero to `bound` exclusive.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// A time: often zero, and sometimes close to an edge of a window of `memory`.
    fn advance(&mut self, memory: Duration) -> Duration {
        let micros = memory.as_micros() as u64;
        Duration::from_micros(match self.below(16) {
            0..4 => 0,
            4..6 => self.below(3),
            6..11 => self.below(micros / 8 + 1),
            11..13 => self.below(micros / 2 + 1),
            13 => micros - self.below(2),
            14 => micros / 2,
            _ => self.below(3 * micros),
        })
    }
}
