//! Maps whose keys are hashes already.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A map whose keys are hashes: they are not hashed again.
pub(super) type Keyed<K, V> = HashMap<K, V, BuildHasherDefault<FoldHasher>>;

/// Takes a key as its hash.
#[derive(Default)]
pub(super) struct FoldHasher(u64);

impl Hasher for FoldHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // Pointers and small numbers are spread, too.
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
