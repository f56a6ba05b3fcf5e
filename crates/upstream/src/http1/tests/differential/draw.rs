//! Random choices, the same for the same seed: SplitMix64.

/// What a response is made by.
pub(super) struct Draw {
    state: u64,
    /// Few things are unusual.
    pub(super) is_calm: bool,
}

impl Draw {
    pub(super) fn new(seed: u64) -> Draw {
        let mut draw = Draw { state: seed, is_calm: false };
        draw.is_calm = draw.chance(60);
        draw
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick(&mut self, choices: &[&'static str]) -> &'static str {
        choices[self.below(choices.len())]
    }

    /// One of these, in so many of a hundred draws the usual one.
    pub(super) fn mostly(
        &mut self,
        percent: usize,
        usual: &'static str,
        choices: &[&'static str],
    ) -> &'static str {
        let is_usual = self.chance(percent) || self.is_calm && self.chance(85);
        if is_usual { usual } else { self.pick(choices) }
    }
}
