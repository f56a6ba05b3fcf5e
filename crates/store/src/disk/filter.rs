//! Which keys the disk may have: a Bloom filter in blocks (Putze, Sanders, Singler, "Cache-, hash-
//! and space-efficient Bloom filters", 2007), so that each question reads one line of the
//! processor's cache.
//!
//! A key that the disk has is always found; one key in a hundred or two that it does not have is
//! taken for one that it has, and is looked for in vain. Workers ask while the disk's thread adds.

use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a block: 512 bits, a line of the processor's cache.
const BLOCK: usize = 8;

/// Bits of the filter for each key that it is made for.
const BITS_A_KEY: usize = 12;

/// Bits that a key sets in its block.
const PROBES: u32 = 6;

/// The fewest keys that a filter is made for.
const FEWEST: usize = 1 << 16;

/// Keys that the disk may have.
pub(super) struct Filter {
    /// None: everything may be there, because there was no survey yet.
    blocks: Option<Box<[[AtomicU64; BLOCK]]>>,
    /// Keys that it was made for.
    capacity: usize,
    /// Keys that were added.
    added: AtomicU64,
}

impl Filter {
    /// A filter that takes every key for one that the disk may have.
    pub(super) fn unknown() -> Filter {
        Filter { blocks: None, capacity: 0, added: AtomicU64::new(0) }
    }

    /// An empty filter for at least so many keys.
    pub(super) fn new(keys: usize) -> Filter {
        let capacity = keys.max(FEWEST);
        let blocks = (capacity * BITS_A_KEY).div_ceil(BLOCK * 64);
        let blocks = (0..blocks).map(|_| Default::default()).collect();
        Filter { blocks: Some(blocks), capacity, added: AtomicU64::new(0) }
    }

    /// Whether the disk may have a key.
    pub(super) fn may_have(&self, key: u128) -> bool {
        let Some(block) = self.block(key) else { return true };
        bits(key).all(|(word, bit)| {
            block.get(word).is_some_and(|word| word.load(Ordering::Acquire) & bit != 0)
        })
    }

    /// The disk has a key from now on.
    pub(super) fn add(&self, key: u128) {
        let Some(block) = self.block(key) else { return };
        if self.may_have(key) {
            return;
        }
        for (word, bit) in bits(key) {
            if let Some(word) = block.get(word) {
                word.fetch_or(bit, Ordering::Release);
            }
        }
        self.added.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether there was a survey, so that the filter knows the keys of the disk.
    pub(super) fn is_known(&self) -> bool {
        self.blocks.is_some()
    }

    /// Whether more keys were added than it was made for, so that it errs too often.
    pub(super) fn is_full(&self) -> bool {
        self.is_known() && self.added.load(Ordering::Relaxed) > self.capacity as u64
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.as_ref().map_or(0, |blocks| size_of_val(&**blocks))
    }

    fn block(&self, key: u128) -> Option<&[AtomicU64; BLOCK]> {
        let blocks = self.blocks.as_ref()?;
        // Keys are hashes: the low half is as good as random.
        let at = (u128::from(key as u64) * blocks.len() as u128) >> 64;
        blocks.get(at as usize)
    }
}

/// The bits of a key in its block: word and bit.
fn bits(key: u128) -> impl Iterator<Item = (usize, u64)> {
    let hash = (key >> 64) as u64;
    (0..PROBES).map(move |probe| {
        let bit = (hash >> (probe * 7)) & 511;
        ((bit / 64) as usize, 1 << (bit % 64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> u128 {
        let mix = |seed: u64| {
            let mixed = (seed ^ seed >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB)
        };
        u128::from(mix(number)) << 64 | u128::from(mix(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    #[test]
    fn every_key_that_was_added_is_found_and_few_others_are() {
        let filter = Filter::new(100_000);
        (0..100_000).for_each(|number| filter.add(key(number) << 19 >> 19));
        assert!((0..100_000).all(|number| filter.may_have(key(number) << 19 >> 19)));
        let others = (100_000..200_000).filter(|number| filter.may_have(key(*number) << 19 >> 19));
        let others = others.count();
        assert!(others < 2_000, "{others} of 100,000 are taken for others");
        assert!(!filter.is_full(), "a key that seems to be there is not counted again");
        (100_000..102_000).for_each(|number| filter.add(key(number) << 19 >> 19));
        assert!(filter.is_full());
    }

    #[test]
    fn filter_that_knows_nothing_takes_every_key() {
        let filter = Filter::unknown();
        filter.add(1);
        assert!(filter.may_have(2) && !filter.is_known() && filter.bytes() == 0);
    }
}
