//! A map of the things that happened last: bounded, and the oldest makes room for the newest.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

/// The latest entries, by name: at most `CAPACITY`.
#[derive(Debug)]
pub(super) struct Recent<K, V, const CAPACITY: usize> {
    entries: HashMap<K, V>,
    /// Names in the order in which they were inserted. Removed names may still be among them.
    order: VecDeque<K>,
}

impl<K, V, const CAPACITY: usize> Default for Recent<K, V, CAPACITY> {
    fn default() -> Self {
        Recent { entries: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Clone + Eq + Hash, V, const CAPACITY: usize> Recent<K, V, CAPACITY> {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn get(&self, name: &K) -> Option<&V> {
        self.entries.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &K) -> Option<&mut V> {
        self.entries.get_mut(name)
    }

    pub(super) fn insert(&mut self, name: K, value: V) {
        if self.entries.insert(name.clone(), value).is_some() {
            return;
        }
        self.order.push_back(name);
        if self.order.len() > CAPACITY
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }

    /// The value under a name; a default one is inserted if there is none.
    pub(super) fn entry(&mut self, name: K) -> &mut V
    where
        V: Default,
    {
        if !self.entries.contains_key(&name) {
            self.insert(name.clone(), V::default());
        }
        self.entries.entry(name).or_default()
    }

    /// Removes all entries, the oldest first.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = V> {
        let order = std::mem::take(&mut self.order);
        let mut entries = std::mem::take(&mut self.entries);
        order.into_iter().filter_map(move |name| entries.remove(&name))
    }

    pub(super) fn remove(&mut self, name: &K) -> Option<V> {
        self.entries.remove(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_makes_room_for_the_newest() {
        let mut recent = Recent::<_, _, 2>::default();
        for name in ["a", "b", "a", "c"] {
            recent.insert(name, ());
        }
        assert!(recent.get(&"a").is_none());
        assert!(recent.get(&"b").is_some() && recent.get(&"c").is_some());
    }

    #[test]
    fn what_is_taken_out_comes_in_order() {
        let mut recent = Recent::<_, _, 3>::default();
        for name in ["a", "b", "c", "d"] {
            recent.insert(name, name);
        }
        recent.remove(&"c");
        assert!(recent.drain().eq(["b", "d"]));
        assert!(recent.is_empty() && recent.drain().next().is_none());
    }

    #[test]
    fn stays_bounded_however_often_names_come_and_go() {
        let mut recent = Recent::<_, _, 10>::default();
        for number in 0..10_000 {
            recent.insert(number % 3, number);
            recent.remove(&(number % 3));
            assert!(recent.order.len() <= 10);
        }
        assert!(recent.is_empty());
    }
}
