//! What is known of a stream, or of several streams together.

use std::sync::Arc;

use rustc_hash::FxHashMap;

/// What is known of the keys of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The keys that weigh most, in no order.
    pub entries: Vec<Estimate>,
    /// The most that a key weighs that is not among them.
    pub unlisted: u64,
    /// The weight of the whole stream.
    pub total: u64,
}

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The key.
    pub key: u64,
    /// Its name.
    pub name: Arc<str>,
    /// The number of the tier that it had last.
    pub tier: u16,
    /// It weighs at least this.
    pub least: u64,
    /// It weighs at most this.
    pub most: u64,
}

impl Summary {
    /// What is known of several streams together. The bounds of a key are the sums of its bounds in
    /// each stream: where a stream does not list it, 0 and what that stream's unlisted keys weigh
    /// at most. So the error of the whole is at most the sum of the errors.
    pub fn merged(all: impl IntoIterator<Item = Summary>) -> Summary {
        let mut sums: FxHashMap<u64, Estimate> = FxHashMap::default();
        let mut whole = Summary::default();
        for Summary { entries, unlisted, total } in all {
            whole.unlisted = whole.unlisted.saturating_add(unlisted);
            whole.total = whole.total.saturating_add(total);
            for mut entry in entries {
                // No key that is listed weighs less than one that is not may.
                entry.most = entry.most.saturating_sub(unlisted);
                match sums.get_mut(&entry.key) {
                    Some(sum) => {
                        sum.least = sum.least.saturating_add(entry.least);
                        sum.most = sum.most.saturating_add(entry.most);
                        sum.tier = entry.tier;
                    }
                    None => {
                        sums.insert(entry.key, entry);
                    }
                }
            }
        }
        let with_rest = |mut entry: Estimate| {
            entry.most = entry.most.saturating_add(whole.unlisted);
            entry
        };
        whole.entries = sums.into_values().map(with_rest).collect();
        whole
    }

    /// Keeps the keys that weigh most, sorted by that.
    pub fn keep(&mut self, most: usize) {
        self.entries.sort_unstable_by(|one, other| {
            other.most.cmp(&one.most).then_with(|| one.name.cmp(&other.name))
        });
        if let Some(cut) = self.entries.get(most) {
            self.unlisted = self.unlisted.max(cut.most);
        }
        self.entries.truncate(most);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::sketch::SpaceSaving;

    proptest! {
        /// Several workers and minutes, each with keys of its own and shared ones.
        #[test]
        fn prop_bounds_hold_after_merging_and_cutting(
            streams in prop::collection::vec(
                prop::collection::vec((0_u64..600, 1_u64..50), 0..900), 1..6),
            kept in 1_usize..100,
        ) {
            let mut truth = BTreeMap::new();
            let mut summaries = Vec::new();
            for (at, stream) in streams.iter().enumerate() {
                let mut sketch = SpaceSaving::default();
                for (key, weight) in stream {
                    sketch.add(*key, 0, *weight, |name| name.push_str(&key.to_string()));
                    *truth.entry(*key).or_insert(0) += weight;
                }
                let mut summary = sketch.summary();
                // Minutes that have ended keep fewer.
                if at % 2 == 0 {
                    summary.keep(kept);
                }
                summaries.push(summary);
            }
            let mut merged = Summary::merged(summaries);
            prop_assert_eq!(merged.total, truth.values().sum::<u64>());
            merged.keep(kept);
            for (key, weight) in truth {
                match merged.entries.iter().find(|entry| entry.key == key) {
                    Some(entry) => prop_assert!(
                        entry.least <= weight && weight <= entry.most, "{:?} {}", entry, weight),
                    None => prop_assert!(weight <= merged.unlisted),
                }
            }
        }
    }

    #[test]
    fn exact_streams_merge_exactly() {
        let stream = |pairs: &[(u64, u64)]| {
            let mut sketch = SpaceSaving::default();
            for (key, weight) in pairs {
                sketch.add(*key, 3, *weight, |name| name.push('x'));
            }
            sketch.summary()
        };
        let mut merged = Summary::merged([stream(&[(1, 5), (2, 1)]), stream(&[(2, 7)])]);
        merged.keep(10);
        let found: Vec<_> =
            merged.entries.iter().map(|own| (own.key, own.least, own.most)).collect();
        assert_eq!(found, [(2, 8, 8), (1, 5, 5)]);
        assert_eq!((merged.unlisted, merged.total), (0, 13));
    }
}
