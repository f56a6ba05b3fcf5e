//! Random counters, as scripts know them, and what their replies say.

use tollgate_limit::AlgorithmKind;

use crate::chance::Chance;

/// A counter with its limit: a record of `counter.lua`.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    pub(super) name: String,
    pub(super) kind: AlgorithmKind,
    pub(super) limit: u32,
    span: f64,
    x: f64,
    y: f64,
}

/// The limit of logs that are not always read and written whole.
const LONG: u32 = 300;

/// A charge that was taken: what a script needs to give it back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receipt {
    pub(super) at: f64,
    pub(super) number: f64,
}

impl Counter {
    /// Any counter; `now` is about the time.
    pub(super) fn random(chance: &mut Chance, name: String, now: u64) -> Counter {
        let kind = *chance.pick(&AlgorithmKind::ALL);
        let limit = if chance.is_one_in(6) { 100 } else { chance.below(12) as u32 };
        let millis = if chance.is_one_in(3) { chance.within(1..20_000) } else { 3_600_000 };
        let micros = (millis * 1000) as f64;
        let next = now as f64 + micros;
        let (span, x, y) = match kind {
            AlgorithmKind::FixedWindow => {
                let (x, y) =
                    *chance.pick(&[(0.0, 0.0), (0.0, 0.0), (-1.0, 0.0), (next, next + micros)]);
                (micros, x, y)
            }
            AlgorithmKind::SlidingWindow => (millis as f64, 1000.0, 0.0),
            AlgorithmKind::SlidingLog | AlgorithmKind::Concurrency => (micros, 0.0, 0.0),
            AlgorithmKind::TokenBucket => {
                // An even bucket of five steps, or one that is refilled at once, and each strict or
                // not.
                let strict = chance.below(2) as f64;
                let even = *chance.pick(&[0.0, 10.0]);
                (5.0 * micros, 5.0 * chance.below(5) as f64, strict + even)
            }
            AlgorithmKind::Gcra => {
                let grain = *chance.pick(&[1.0, 20.0, 1000.0]);
                (micros / grain, grain, 1.0 + chance.below(20) as f64)
            }
        };
        Counter { name, kind, limit, span: span.floor(), x, y }
    }

    /// A log that gets long.
    pub(super) fn long_log(name: String) -> Counter {
        let (span, kind) = (86_400e6, AlgorithmKind::SlidingLog);
        Counter { name, kind, limit: LONG, span, x: 0.0, y: 0.0 }
    }

    /// A cost that is near what matters.
    pub(super) fn cost(&self, chance: &mut Chance) -> u32 {
        match chance.below(8) {
            // A log gets long by small costs only.
            _ if self.limit == LONG => 1 + chance.below(2) as u32,
            0 => 0,
            1 => self.limit,
            2 => self.limit + 1,
            _ => 1 + chance.below(2) as u32,
        }
    }

    /// Its record in the argument of a script.
    pub(super) fn record(&self, is_enforced: bool, cost: u32) -> Vec<u8> {
        let mut record = vec![self.kind.number(), u8::from(is_enforced)];
        record.extend_from_slice(&cost.to_le_bytes());
        record.extend_from_slice(&self.limit.to_le_bytes());
        for number in [self.span, self.x, self.y] {
            record.extend_from_slice(&number.to_le_bytes());
        }
        record
    }

    /// The receipt in what a charge replies of it.
    pub(super) fn receipt(&self, numbers: &[f64]) -> Receipt {
        match self.kind {
            AlgorithmKind::FixedWindow => Receipt { at: numbers[1], number: 0.0 },
            AlgorithmKind::SlidingWindow => Receipt { at: numbers[2], number: 0.0 },
            AlgorithmKind::SlidingLog => Receipt { at: numbers[4], number: numbers[5] },
            AlgorithmKind::TokenBucket | AlgorithmKind::Gcra => {
                Receipt { at: numbers[1], number: numbers[0] }
            }
            AlgorithmKind::Concurrency => Receipt { at: numbers[1], number: numbers[2] },
        }
    }

    /// How many numbers a charge replies of it.
    pub(super) fn numbers(&self) -> usize {
        match self.kind {
            AlgorithmKind::FixedWindow => 2,
            AlgorithmKind::SlidingLog => 6,
            _ => 3,
        }
    }

    /// The numbers of its state in the reply of `read_state.lua`.
    pub(super) fn state(&self, reply: &[u8]) -> Vec<f64> {
        let (_, mut rest) = doubles(reply, 1);
        if self.kind != AlgorithmKind::SlidingLog {
            return doubles(rest, rest.len() / 8).0;
        }
        let mut state = Vec::new();
        let (next, slots) = doubles(rest, 1);
        state.extend(next);
        rest = slots;
        while rest.len() >= 20 {
            let (at, after) = doubles(rest, 1);
            let (cost, after) = after.split_at(4);
            let (number, after) = doubles(after, 1);
            let cost = u32::from_le_bytes([cost[0], cost[1], cost[2], cost[3]]);
            state.extend([at[0], cost.into(), number[0]]);
            rest = after;
        }
        state
    }
}

/// The first so many numbers, and the bytes after them.
pub(super) fn doubles(bytes: &[u8], count: usize) -> (Vec<f64>, &[u8]) {
    let (numbers, rest) = bytes.split_at(8 * count);
    let (numbers, _) = numbers.as_chunks::<8>();
    (numbers.iter().map(|number| f64::from_le_bytes(*number)).collect(), rest)
}
