//! The space-saving algorithm: the keys that weigh most in a stream, in bounded memory.

use rustc_hash::FxHashMap;

use super::summary::{Estimate, Summary};

/// Keys that a sketch has at most. A key with more than this part of all weight is always there.
pub const CAPACITY: usize = 256;

/// The longest name that is kept; what is longer is cut.
pub const MAX_NAME_BYTES: usize = 320;

/// The keys that weigh most, with their names.
///
/// For each of them, its true weight is at least `count - error` and at most `count`; of a key that
/// is not there, at most [`Summary::unlisted`]. Both are at most the whole weight / [`CAPACITY`]
/// off.
#[derive(Debug, Default)]
pub struct SpaceSaving {
    entries: Vec<Entry>,
    /// Positions in `entries` by key.
    positions: FxHashMap<u64, u16>,
    /// Once there are [`CAPACITY`] entries, their positions as a heap, the lightest first.
    heap: Vec<u16>,
    /// Weight whose key was not known.
    unnamed: u64,
    /// The weight of the whole stream.
    total: u64,
}

#[derive(Debug)]
struct Entry {
    key: u64,
    count: u64,
    error: u64,
    tier: u16,
    /// Its place in the heap.
    place: u16,
    name: String,
}

impl SpaceSaving {
    /// Adds `weight` to a key. `name` writes the key's name, and is called only when the key enters
    /// the sketch.
    pub fn add(&mut self, key: u64, tier: u16, weight: u64, name: impl FnOnce(&mut String)) {
        self.total = self.total.saturating_add(weight);
        if let Some(position) = self.positions.get(&key).copied() {
            let Some(entry) = self.entries.get_mut(usize::from(position)) else { return };
            entry.count = entry.count.saturating_add(weight);
            entry.tier = tier;
            let place = entry.place;
            if !self.heap.is_empty() {
                self.sink(place.into());
            }
        } else if self.entries.len() < CAPACITY {
            let mut entry =
                Entry { key, count: weight, error: 0, tier, place: 0, name: String::new() };
            write_name(&mut entry.name, name);
            self.positions.insert(key, self.entries.len() as u16);
            self.entries.push(entry);
            if self.entries.len() == CAPACITY {
                self.build_heap();
            }
        } else {
            let Some(entry) =
                self.heap.first().and_then(|lightest| self.entries.get_mut(usize::from(*lightest)))
            else {
                return;
            };
            if let Some(position) = self.positions.remove(&entry.key) {
                self.positions.insert(key, position);
            }
            entry.key = key;
            entry.error = entry.count;
            entry.count = entry.count.saturating_add(weight);
            entry.tier = tier;
            write_name(&mut entry.name, name);
            self.sink(0);
        }
    }

    /// Adds weight of a key that is not known: any key may have it.
    pub fn add_unnamed(&mut self, weight: u64) {
        self.total = self.total.saturating_add(weight);
        self.unnamed = self.unnamed.saturating_add(weight);
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.unnamed == 0
    }

    /// What is known of the stream so far.
    pub fn summary(&self) -> Summary {
        let lightest = match self.heap.first() {
            Some(lightest) => self.entries.get(usize::from(*lightest)).map_or(0, |own| own.count),
            None => 0,
        };
        let estimate = |entry: &Entry| Estimate {
            key: entry.key,
            name: entry.name.as_str().into(),
            tier: entry.tier,
            least: entry.count - entry.error,
            most: entry.count.saturating_add(self.unnamed),
        };
        Summary {
            entries: self.entries.iter().map(estimate).collect(),
            unlisted: lightest.saturating_add(self.unnamed),
            total: self.total,
        }
    }

    fn build_heap(&mut self) {
        let mut order: Vec<u16> = (0..self.entries.len() as u16).collect();
        // A sorted list is a heap.
        order.sort_by_key(|position| self.count_of(*position));
        for (place, position) in order.iter().enumerate() {
            if let Some(entry) = self.entries.get_mut(usize::from(*position)) {
                entry.place = place as u16;
            }
        }
        self.heap = order;
    }

    fn count_of(&self, position: u16) -> u64 {
        self.entries.get(usize::from(position)).map_or(u64::MAX, |entry| entry.count)
    }

    /// Moves an entry that has grown to its place in the heap.
    fn sink(&mut self, mut place: usize) {
        let Some(moved) = self.heap.get(place).copied() else { return };
        let count = self.count_of(moved);
        loop {
            let [left, right] = [2 * place + 1, 2 * place + 2];
            let child = |place: usize| {
                let position = *self.heap.get(place)?;
                Some((self.count_of(position), place, position))
            };
            let Some(mut lighter) = child(left) else { break };
            if let Some(other) = child(right).filter(|other| other.0 < lighter.0) {
                lighter = other;
            }
            let (of_child, below, position) = lighter;
            if of_child >= count {
                break;
            }
            self.put(place, position);
            place = below;
        }
        self.put(place, moved);
    }

    fn put(&mut self, place: usize, position: u16) {
        if let Some(slot) = self.heap.get_mut(place) {
            *slot = position;
        }
        if let Some(entry) = self.entries.get_mut(usize::from(position)) {
            entry.place = place as u16;
        }
    }
}

/// Writes a name over another one, in the memory of that one.
fn write_name(to: &mut String, name: impl FnOnce(&mut String)) {
    to.clear();
    name(to);
    if to.len() > MAX_NAME_BYTES {
        to.truncate(to.floor_char_boundary(MAX_NAME_BYTES));
    }
    if to.capacity() > MAX_NAME_BYTES {
        to.shrink_to(MAX_NAME_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn add(sketch: &mut SpaceSaving, key: u64, weight: u64) {
        sketch.add(key, 0, weight, |name| name.push_str(&format!("user:{key}")));
    }

    /// Whether the sketch is right about a stream, as far as it promises.
    #[track_caller]
    fn check(sketch: &SpaceSaving, truth: &BTreeMap<u64, u64>) {
        let summary = sketch.summary();
        assert_eq!(summary.total, truth.values().sum::<u64>());
        assert!(summary.entries.len() <= CAPACITY);
        for entry in &summary.entries {
            let true_weight = truth.get(&entry.key).copied().unwrap_or(0);
            assert!(
                entry.least <= true_weight && true_weight <= entry.most,
                "{entry:?} {true_weight}"
            );
            assert_eq!(*entry.name, format!("user:{}", entry.key));
            assert!(entry.most - entry.least <= summary.total / CAPACITY as u64);
        }
        for (key, weight) in truth {
            let is_listed = summary.entries.iter().any(|entry| entry.key == *key);
            assert!(is_listed || *weight <= summary.unlisted, "{key} {weight}");
        }
        assert!(summary.unlisted <= summary.total / CAPACITY as u64);
    }

    #[test]
    fn few_callers_are_counted_exactly() {
        let mut sketch = SpaceSaving::default();
        for round in 1..=3 {
            for key in 0..CAPACITY as u64 {
                add(&mut sketch, key, key + round);
            }
        }
        let summary = sketch.summary();
        assert_eq!(summary.entries.len(), CAPACITY);
        for entry in &summary.entries {
            assert_eq!((entry.least, entry.most), (3 * entry.key + 6, 3 * entry.key + 6));
        }
    }

    /// Ranks of a Zipf law with exponent 1, from a fixed generator.
    fn zipf(keys: u64, draws: usize) -> Vec<u64> {
        let mut sums = Vec::new();
        let mut sum = 0.0;
        for rank in 1..=keys {
            sum += 1.0 / rank as f64;
            sums.push(sum);
        }
        let mut state = 7_u64;
        let draw = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let point = (state >> 11) as f64 / (1_u64 << 53) as f64 * sum;
            sums.partition_point(|sum| *sum < point) as u64
        };
        (0..draws).map(draw).collect()
    }

    #[test]
    fn bounds_hold_on_a_zipf_stream_of_many_callers() {
        let mut sketch = SpaceSaving::default();
        let mut truth = BTreeMap::new();
        for key in zipf(100_000, 400_000) {
            add(&mut sketch, key, 1);
            *truth.entry(key).or_insert(0) += 1;
        }
        assert!(truth.len() > 30_000, "{}", truth.len());
        check(&sketch, &truth);
        let mut top = sketch.summary();
        top.keep(5);
        let keys: Vec<u64> = top.entries.iter().map(|entry| entry.key).collect();
        assert_eq!(keys, (0..5).collect::<Vec<_>>());
    }

    #[test]
    fn heavy_hitter_is_found_after_and_before_a_flood_of_names() {
        for place in [0, 50_000, 99_999] {
            let mut sketch = SpaceSaving::default();
            for key in 0..100_000 {
                if key == place {
                    add(&mut sketch, u64::MAX, 1_000);
                }
                add(&mut sketch, key, 1);
            }
            let mut summary = sketch.summary();
            summary.keep(1);
            assert_eq!(summary.entries[0].key, u64::MAX, "{place}");
        }
    }

    #[test]
    fn memory_is_bounded_whatever_names_are_chosen() {
        let mut sketch = SpaceSaving::default();
        for key in 0..5_000_u64 {
            sketch.add(key, 0, 1, |name| name.extend(std::iter::repeat_n('é', 400)));
        }
        // docs/admin.md states what that comes to.
        assert_eq!((size_of::<Entry>(), size_of::<Estimate>()), (56, 48));
        assert_eq!((sketch.entries.capacity(), sketch.heap.len()), (CAPACITY, CAPACITY));
        assert!(sketch.positions.len() == CAPACITY && sketch.positions.capacity() <= 4 * CAPACITY);
        for entry in &sketch.entries {
            assert!(entry.name.capacity() <= MAX_NAME_BYTES);
            assert!(entry.name.chars().all(|letter| letter == 'é'));
        }
    }

    proptest! {
        #[test]
        fn prop_bounds_hold(stream in prop::collection::vec((0_u64..700, 0_u64..50), 0..3000)) {
            let mut sketch = SpaceSaving::default();
            let mut truth = BTreeMap::new();
            for (key, weight) in stream {
                add(&mut sketch, key, weight);
                *truth.entry(key).or_insert(0) += weight;
            }
            check(&sketch, &truth);
        }
    }
}
