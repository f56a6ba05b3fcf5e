//! A permutation of 128-bit numbers that only the holder of its key can follow.
//!
//! A Feistel network of four rounds, each with SipHash-1-3 under a key of its own. Four rounds of a
//! pseudo-random function make a pseudo-random permutation, which resists attackers that may query
//! it in both directions (Luby and Rackoff, 1988), up to some 2^32 numbers and for a cost of some
//! ten nanoseconds a round. Being a permutation, it never maps two numbers to one.

use std::hash::{BuildHasher, RandomState};

use siphasher::sip::SipHasher13;

/// A permutation under its key.
pub(super) struct Permutation {
    rounds: [SipHasher13; 4],
}

impl Permutation {
    /// A permutation under a random key.
    pub(super) fn random() -> Self {
        // The standard library's hasher keys are the operating system's random numbers.
        let random = RandomState::new();
        Permutation::with_key(|word| random.hash_one(word))
    }

    /// The permutation whose key has these eight words.
    fn with_key(word: impl Fn(u64) -> u64) -> Self {
        let round = |at: u64| SipHasher13::new_with_keys(word(2 * at), word(2 * at + 1));
        Permutation { rounds: [round(0), round(1), round(2), round(3)] }
    }

    /// The image of a number.
    pub(super) fn permute(&self, number: u128) -> u128 {
        let mut left = (number >> 64) as u64;
        let mut right = number as u64;
        for round in &self.rounds {
            (left, right) = (right, left ^ round.hash(&right.to_le_bytes()));
        }
        (u128::from(left) << 64) | u128::from(right)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// With a fixed key, so that the tests always see the same numbers.
    fn fixed() -> Permutation {
        Permutation::with_key(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The number that has this image.
    fn invert(permutation: &Permutation, number: u128) -> u128 {
        let mut left = (number >> 64) as u64;
        let mut right = number as u64;
        for round in permutation.rounds.iter().rev() {
            (left, right) = (right ^ round.hash(&left.to_le_bytes()), left);
        }
        (u128::from(left) << 64) | u128::from(right)
    }

    proptest! {
        #[test]
        fn prop_every_number_is_an_image(number: u128, seed: u64) {
            let permutation = Permutation::with_key(|word| seed ^ word);
            prop_assert_eq!(invert(&permutation, permutation.permute(number)), number);
            prop_assert_eq!(permutation.permute(invert(&permutation, number)), number);
        }
    }

    #[test]
    fn neighbours_have_unrelated_images() {
        let permutation = fixed();
        let images: Vec<u128> = (0..2001).map(|number| permutation.permute(number)).collect();
        let mut flipped = [0; 128];
        let mut ascents = 0;
        let mut differing = 0;
        for pair in images.windows(2) {
            let difference = pair[0] ^ pair[1];
            differing += difference.count_ones();
            ascents += u32::from(pair[0] < pair[1]);
            for (bit, count) in flipped.iter_mut().enumerate() {
                *count += u32::from(difference >> bit & 1 == 1);
            }
        }
        // A hundred and more of two thousand is five standard deviations.
        assert!((63 * 2000..65 * 2000).contains(&differing), "{differing} bits differ");
        assert!((850..1150).contains(&ascents), "{ascents} of 2000 ascend");
        assert!(flipped.iter().all(|count| (850..1150).contains(count)), "{flipped:?}");
        // The distance between two images reveals nothing about that between the numbers.
        let distances: std::collections::HashSet<u128> =
            images.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        assert_eq!(distances.len(), 2000);
    }

    #[test]
    fn two_keys_make_two_permutations() {
        let one = Permutation::random();
        let other = Permutation::random();
        assert!((0..8).all(|number| one.permute(number) != other.permute(number)));
    }
}
