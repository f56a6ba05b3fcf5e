//! What is remembered by key: bounded, and swept bit by bit.
//!
//! Keys are 128 bits of a keyed hash, so a client cannot choose where they go, and a long key takes
//! no more memory than a short one. The table is many small ones: growing one of them moves few
//! entries, so no command waits for long.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A value that after some time says no more than none.
pub(super) trait Fading {
    /// The instant from which it is as good as none, in the unit of the caller's `now`.
    fn faded_at(&self) -> i64;
}

/// Values by the hash of their key.
pub(super) struct Table<V> {
    shards: Box<[Shard<V>]>,
    max_keys: usize,
    len: usize,
    /// The shard that is swept next.
    swept: usize,
    /// Values that were removed because they said nothing any more.
    pub(super) expired: u64,
    /// Values that were removed although they said something: the table was full.
    pub(super) evicted: u64,
}

/// Entries side by side, so that they can be walked, and where each is.
struct Shard<V> {
    places: HashMap<u128, u32, BuildHasherDefault<Hashed>>,
    entries: Vec<(u128, V)>,
    /// The entry that is looked at next.
    hand: usize,
}

const SHARDS: usize = 256;

/// Entries that an insertion looks at, to remove what says nothing.
const GLANCES: usize = 2;

/// Entries of which the one goes that fades first, when the table is full.
const CANDIDATES: usize = 16;

impl<V: Fading> Table<V> {
    pub(super) fn new(max_keys: usize) -> Self {
        let shard = || Shard { places: HashMap::default(), entries: Vec::new(), hand: 0 };
        Table {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            max_keys,
            len: 0,
            swept: 0,
            expired: 0,
            evicted: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether more than half of the room is used.
    pub(super) fn is_half_full(&self) -> bool {
        self.len > self.max_keys / 2
    }

    /// What is there, even if it has faded.
    pub(super) fn find(&self, key: u128) -> Option<&V> {
        self.shards.get(shard_of(key))?.find(key)
    }

    /// Replaces what is there, or makes room for one more.
    pub(super) fn put(&mut self, key: u128, value: V, now: i64) {
        let home = shard_of(key);
        if let Some(there) = self.shards.get_mut(home).and_then(|shard| shard.find_mut(key)) {
            *there = value;
            return;
        }
        self.sweep(home, GLANCES, now);
        if self.len >= self.max_keys {
            self.evict(home, now);
        }
        if self.len < self.max_keys
            && let Some(shard) = self.shards.get_mut(home)
            && let Ok(place) = u32::try_from(shard.entries.len())
        {
            shard.places.insert(key, place);
            shard.entries.push((key, value));
            self.len += 1;
        }
    }

    /// Removes it. Whether it was there.
    pub(super) fn remove(&mut self, key: u128) -> bool {
        let Some(shard) = self.shards.get_mut(shard_of(key)) else { return false };
        let Some(place) = shard.places.get(&key) else { return false };
        let place = *place as usize;
        shard.remove_at(place);
        self.len -= 1;
        true
    }

    /// Looks at so many entries of the next shard, and removes those that have faded.
    pub(super) fn sweep_some(&mut self, glances: usize, now: i64) {
        self.swept = (self.swept + 1) % SHARDS;
        self.sweep(self.swept, glances, now);
    }

    fn sweep(&mut self, shard: usize, glances: usize, now: i64) {
        let Some(shard) = self.shards.get_mut(shard) else { return };
        for _ in 0..glances.min(shard.entries.len()) {
            if shard.at_hand(now) {
                self.expired += 1;
                self.len -= 1;
            }
        }
    }

    /// Removes one entry: of the shard at `home`, or of the next one that has any.
    fn evict(&mut self, home: usize, now: i64) {
        let shards = (home..SHARDS).chain(0..home);
        for at in shards {
            let Some(shard) = self.shards.get_mut(at) else { continue };
            let Some((place, faded_at)) = shard.first_to_fade() else { continue };
            shard.remove_at(place);
            self.len -= 1;
            match faded_at <= now {
                true => self.expired += 1,
                false => self.evicted += 1,
            }
            return;
        }
    }
}

impl<V: Fading> Shard<V> {
    fn find(&self, key: u128) -> Option<&V> {
        let place = *self.places.get(&key)?;
        self.entries.get(place as usize).map(|(_, value)| value)
    }

    fn find_mut(&mut self, key: u128) -> Option<&mut V> {
        let place = *self.places.get(&key)?;
        self.entries.get_mut(place as usize).map(|(_, value)| value)
    }

    /// Looks at the entry at hand and goes on. Whether it was removed.
    fn at_hand(&mut self, now: i64) -> bool {
        if self.hand >= self.entries.len() {
            self.hand = 0;
        }
        let faded = self.entries.get(self.hand).is_some_and(|(_, value)| value.faded_at() <= now);
        match faded {
            true => self.remove_at(self.hand),
            false => self.hand += 1,
        }
        faded
    }

    /// Of the entries from the hand on, the one that fades first.
    fn first_to_fade(&mut self) -> Option<(usize, i64)> {
        let count = self.entries.len();
        let candidates = (0..CANDIDATES.min(count)).filter_map(|step| {
            let place = (self.hand + step) % count;
            self.entries.get(place).map(|(_, value)| (place, value.faded_at()))
        });
        let first = candidates.min_by_key(|(_, faded_at)| *faded_at);
        self.hand = if count == 0 { 0 } else { (self.hand + CANDIDATES) % count };
        first
    }

    fn remove_at(&mut self, place: usize) {
        if place >= self.entries.len() {
            return;
        }
        let (key, _) = self.entries.swap_remove(place);
        self.places.remove(&key);
        // The last one has taken its place.
        if let Some((moved, _)) = self.entries.get(place)
            && let Some(entry) = self.places.get_mut(moved)
        {
            *entry = u32::try_from(place).unwrap_or(u32::MAX);
        }
        if self.entries.capacity() > 64 && self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(self.entries.len() * 2);
            self.places.shrink_to(self.places.len() * 2);
        }
    }
}

/// The map of the shard uses the other half of the hash.
fn shard_of(key: u128) -> usize {
    (key >> 64) as usize % SHARDS
}

/// Keys are hashes already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.first_chunk().map_or(0, |low| u64::from_ne_bytes(*low));
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Fading for i64 {
        fn faded_at(&self) -> i64 {
            *self
        }
    }

    /// A hash that is as spread as a real one.
    fn key(number: u128) -> u128 {
        number.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
    }

    #[test]
    fn what_is_put_is_found_until_it_is_removed() {
        let mut table = Table::new(10_000);
        (0..5000).for_each(|number| table.put(key(number), 1000 + number as i64, 0));
        table.put(key(7), 4, 0);
        assert_eq!((table.len(), table.find(key(7)).copied()), (5000, Some(4)));
        assert_eq!((0..5000).filter(|number| table.find(key(*number)).is_some()).count(), 5000);
        assert!(table.remove(key(7)) && !table.remove(key(7)));
        assert_eq!(table.len(), 4999);
        (0..5000).for_each(|number| {
            table.remove(key(number));
        });
        assert_eq!((table.len(), table.expired, table.evicted), (0, 0, 0));
    }

    #[test]
    fn full_table_removes_what_has_faded_before_what_has_not() {
        let mut table = Table::new(1000);
        for number in 0..500 {
            table.put(key(number), 10, 0);
            table.put(key(number + 500), 10_000, 0);
        }
        for number in 1000..1200 {
            table.put(key(number), 10_000, 20);
        }
        assert!(table.len() <= 1000);
        assert!(table.evicted < 20, "{} were evicted, {} had faded", table.evicted, table.expired);
        for number in 2000..9000 {
            table.put(key(number), 10_000, 20);
            assert!(table.len() <= 1000);
            assert!(table.find(key(number)).is_some(), "the new one is in it");
        }
        assert_eq!(table.expired, 500);
    }

    #[test]
    fn sweeping_removes_what_has_faded_and_gives_memory_back() {
        let mut table = Table::new(100_000);
        (0..50_000).for_each(|number| table.put(key(number), (number % 50) as i64, -1));
        (0..SHARDS * 40).for_each(|_| table.sweep_some(50, 48));
        assert_eq!((table.len(), table.expired), (1000, 49_000));
        let held: usize = table.shards.iter().map(|shard| shard.entries.capacity()).sum();
        assert!(held < 20_000, "{held}");
    }
}
