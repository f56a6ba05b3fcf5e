//! Chance that a seed decides: each part of a simulation has its own, so that a part that draws
//! once more does not change what the others draw.

use std::{ops::Range, time::Duration};

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Chance(seed)
    }

    /// Chance of its own for a part.
    pub(crate) fn part(&mut self) -> Chance {
        Chance(self.draw())
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `most`.
    pub(crate) fn below(&mut self, most: usize) -> usize {
        ((u128::from(self.draw()) * most as u128) >> 64) as usize
    }

    /// Whether what happens once in so many times happens now.
    pub(crate) fn is_one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below((range.end - range.start) as usize) as u64
    }

    /// A time of so many milliseconds, to the microsecond.
    pub(crate) fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_micros(self.within(range.start * 1000..range.end * 1000))
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
