//! How often names come.

use std::collections::BTreeMap;

/// Different names of one sort that are counted: a log may have any text for them.
const MOST_NAMES: usize = 1000;

/// Numbers by name, for a bounded number of names.
#[derive(Default)]
pub(super) struct Counts<K, V>(pub(super) BTreeMap<K, V>);

impl<K: Ord, V: Default> Counts<K, V> {
    /// What belongs to a name; none: there are too many.
    pub(super) fn of(&mut self, name: K) -> Option<&mut V> {
        if self.0.len() >= MOST_NAMES && !self.0.contains_key(&name) {
            return None;
        }
        Some(self.0.entry(name).or_default())
    }
}

impl<K: Clone> Counts<K, u64> {
    /// The names, those that come most often first.
    pub(super) fn names(&self) -> Vec<K> {
        let mut all: Vec<(&K, &u64)> = self.0.iter().collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        all.into_iter().map(|(name, _)| name.clone()).collect()
    }
}
