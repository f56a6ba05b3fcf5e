//! A map by keys that are hashes already.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A map by the keys of callers. Nobody can choose them: they are hashes under a secret.
pub(super) type ByKey<V> = HashMap<u64, V, BuildHasherDefault<KeyIsHash>>;

/// Takes keys as they are: they are hashes under a secret already.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyIsHash(u64);

impl Hasher for KeyIsHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only `u64` is hashed; what else may come is still told apart.
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
