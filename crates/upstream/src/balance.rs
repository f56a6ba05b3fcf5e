//! Which server gets a request: pure choices among servers with weights, some of which are not to
//! be chosen.
//!
//! Chance, turns and hashes come in as arguments. Servers are positions; `is_eligible` says which
//! of them may be chosen.

use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
};

/// The servers' shares of the requests.
#[derive(Debug, Default)]
pub(super) struct Weights {
    /// The sums of all weights up to each.
    sums: Box<[f64]>,
}

impl Weights {
    /// Of servers with these weights, which are positive.
    pub(super) fn new(weights: impl IntoIterator<Item = f64>) -> Weights {
        let mut sum = 0.0;
        let sums = weights.into_iter().map(|weight| {
            sum += weight;
            sum
        });
        Weights { sums: sums.collect() }
    }

    /// The weight of one.
    pub(super) fn weight(&self, at: usize) -> f64 {
        let sum = |at: usize| self.sums.get(at).copied().unwrap_or_default();
        sum(at) - at.checked_sub(1).map_or(0.0, sum)
    }

    /// One by chance, each as often as its weight says.
    fn draw(&self, chance: u64) -> Option<usize> {
        let point = fraction(chance) * self.sums.last()?;
        Some(self.sums.partition_point(|sum| *sum <= point).min(self.sums.len() - 1))
    }

    /// One by chance of those that are eligible.
    fn draw_among(&self, chance: u64, is_eligible: impl Fn(usize) -> bool) -> Option<usize> {
        let eligible = || (0..self.sums.len()).filter(|at| is_eligible(*at));
        let point = fraction(chance) * eligible().map(|at| self.weight(at)).sum::<f64>();
        let mut sum = 0.0;
        let drawn = eligible().find(|at| {
            sum += self.weight(*at);
            point < sum
        });
        // Sums of fractions may fall short of the point by an ulp.
        drawn.or_else(|| eligible().last())
    }

    /// Of two different ones that chance draws, the one with the lower load for its weight; the
    /// first drawn if they are alike.
    pub(super) fn less_loaded(
        &self,
        chances: [u64; 2],
        is_eligible: impl Fn(usize) -> bool,
        load: impl Fn(usize) -> usize,
    ) -> Option<usize> {
        let [first, second] = chances;
        // Nearly always all are eligible: no need to look at more than two of them.
        let first = match self.draw(first).filter(|at| is_eligible(*at)) {
            Some(at) => at,
            None => self.draw_among(first, &is_eligible)?,
        };
        let other = |at: usize| at != first && is_eligible(at);
        let second = match self.draw(second).filter(|at| other(*at)) {
            Some(at) => Some(at),
            None => self.draw_among(second, other),
        };
        let Some(second) = second else { return Some(first) };
        let load = |at: usize| load(at) as f64 / self.weight(at);
        Some(if load(second) < load(first) { second } else { first })
    }

    /// The one that a caller always gets, if it is eligible: the highest of what the caller's hash
    /// and each one's name come to (weighted rendezvous hashing). Without one that goes away, only
    /// its own callers get another.
    pub(super) fn rendezvous(
        &self,
        caller: u128,
        name: impl Fn(usize) -> u64,
        is_eligible: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let score = |at: usize| {
            let hash = mix(mix(caller as u64 ^ name(at)) ^ (caller >> 64) as u64);
            // Exponentially distributed at the rate of the weight: the least of these is each one's
            // as often as its weight says.
            -(1.0 - fraction(hash)).ln() / self.weight(at)
        };
        let eligible = (0..self.sums.len()).filter(|at| is_eligible(*at));
        eligible
            .map(|at| (at, score(at)))
            .min_by(|one, other| one.1.total_cmp(&other.1))
            .map(|one| one.0)
    }
}

/// Turns of servers: each one's as often as its weight says, and as far apart as can be.
#[derive(Debug, Default)]
pub(super) struct Schedule(Box<[u32]>);

/// Turns after which a schedule begins again, if not earlier: weights are kept as far as these
/// allow.
const MAX_TURNS: f64 = 4096.0;

impl Schedule {
    /// For servers with these shares.
    pub(super) fn new(shares: &Weights) -> Schedule {
        let count = shares.sums.len();
        let weights = (0..count).map(|at| shares.weight(at));
        let Some(least) = weights.clone().min_by(f64::total_cmp) else {
            return Schedule::default();
        };
        let total: f64 = weights.clone().sum();
        let scale = (1.0 / least).min(MAX_TURNS.max(count as f64) / total);
        let turns = turns_of(&weights.map(|weight| weight * scale).collect::<Vec<f64>>());
        let length: u64 = turns.iter().sum();
        let mut credits = vec![0_i64; count];
        let order = (0..length).map(|_| {
            // Each member earns its weight; the one with the most credit pays for all and has the
            // turn.
            for (credit, turns) in credits.iter_mut().zip(&turns) {
                *credit += turns.cast_signed();
            }
            let richest = (0..count).rev().max_by_key(|at| credits.get(*at).copied());
            let at = richest.unwrap_or_default();
            if let Some(credit) = credits.get_mut(at) {
                *credit -= length.cast_signed();
            }
            u32::try_from(at).unwrap_or_default()
        });
        Schedule(order.collect())
    }

    /// Whose turn it is. Those who are not eligible miss theirs, for everybody: the others keep
    /// their order and their shares.
    pub(super) fn next(
        &self,
        turn: impl Fn() -> usize,
        is_eligible: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let order = &self.0;
        // Others take turns too, so as many turns as there are servers may miss some of them.
        let own = (0..order.len()).find_map(|_| {
            let at = *order.get(turn().checked_rem(order.len())?)? as usize;
            is_eligible(at).then_some(at)
        });
        own.or_else(|| order.iter().map(|at| *at as usize).find(|at| is_eligible(*at)))
    }
}

/// Small whole numbers in the proportion of weights, of which none is below 1 by much.
fn turns_of(weights: &[f64]) -> Vec<u64> {
    // Weights that are whole multiples of a fraction, as when a server's is shared by its
    // addresses, are kept exactly if a small factor makes them whole.
    let is_whole = |factor: f64| {
        weights.iter().all(|weight| {
            let scaled = weight * factor;
            (scaled - scaled.round()).abs() < 1e-6
        })
    };
    let total: f64 = weights.iter().sum();
    let fits = |factor: &f64| *factor == 1.0 || factor * total <= MAX_TURNS;
    let mut factors = (1..=64_u32).map(f64::from).take_while(fits);
    let largest = factors.clone().last().unwrap_or(1.0);
    let factor = factors.find(|factor| is_whole(*factor)).unwrap_or(largest);
    weights.iter().map(|weight| ((weight * factor).round() as u64).max(1)).collect()
}

/// A random number from the thread's own generator: threads do not wait for each other.
pub(super) fn chance() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(()));
    }
    STATE.with(|state| {
        // The steps of SplitMix64: any seed will do.
        let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        mix(next)
    })
}

/// Spreads all bits of a number over all of another (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// A number from 0 up to 1, which it never is.
fn fraction(number: u64) -> f64 {
    (number >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests;
