//! A table from keys to small states that, once it has begun to grow, is never less than two thirds
//! full.
//!
//! Entries lie in the order of their keys (ordered linear probing: Amble and Knuth, "Ordered hash
//! tables", 1974). The slot that a key points at, its home, grows with the key; an entry is in its
//! home, or behind it with no free slot between. So a search ends at the first entry that is not
//! less, whether or not the key is there, after three or four steps even when the table is nearly
//! full. And to grow is to copy from one array to another in order, which is cheap enough to be done
//! by a quarter where other tables double.

use std::mem;

use crate::{clock::Timestamp, limit::State};

/// By how much a table grows at once.
const GROWTH: f64 = 1.25;

/// Homes in the smallest array, but for the stagger.
const FIRST_HOMES: f64 = 8.0;

/// The most entries there may be for a hundred homes.
const MAX_PERCENT: usize = 86;

/// Slots behind the last home, for entries that are pushed out of it. More are added when these are
/// full, which with random keys is rare.
const OVERFLOW: usize = 16;

/// States by key.
///
/// A key is the output of a pseudo-random function under a secret: nobody can choose keys that lie
/// close together. Keys that do are found all the same, but not fast.
pub(super) struct Table<S> {
    /// None at first; then the homes and the overflow, the last slot of which is always free.
    slots: Vec<Slot<S>>,
    homes: usize,
    /// Homes before they were rounded down, so that all steps of growth are equal.
    size: f64,
    len: usize,
}

/// An entry, or room for one.
struct Slot<S> {
    place: Place,
    state: S,
}

/// A key as a place in the order of entries.
///
/// The low half comes first: the high bits tell shards apart, so that the keys of one shard may have
/// them in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    low: u64,
    high: u64,
}

impl<S: State> Table<S> {
    /// An empty table, which allocates nothing.
    ///
    /// `stagger`, from 0 to 1, shifts its sizes by that part of a step: tables that fill at one rate
    /// then neither grow all at once nor are all at their emptiest at once.
    pub(super) fn new(stagger: f64) -> Self {
        let size = FIRST_HOMES * GROWTH.powf(stagger - 1.0);
        Table { slots: Vec::new(), homes: 0, size, len: 0 }
    }

    /// Entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Slots, free or not.
    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// The state of `key`.
    pub(super) fn find(&self, key: u128) -> Option<&S> {
        let place = Place::of(key);
        let slot = self.slots.get(self.position(place))?;
        (slot.place == place).then_some(&slot.state)
    }

    /// The state of `key`, to be changed.
    pub(super) fn find_mut(&mut self, key: u128) -> Option<&mut S> {
        let place = Place::of(key);
        let at = self.position(place);
        let slot = self.slots.get_mut(at)?;
        (slot.place == place).then_some(&mut slot.state)
    }

    /// The state of `key`, a default one if it had none; true if it had none.
    pub(super) fn entry(&mut self, key: u128) -> (&mut S, bool) {
        let place = Place::of(key);
        let mut at = self.position(place);
        let is_new = self.slots.get(at).is_none_or(|slot| slot.place != place);
        if is_new {
            if !fits(self.len + 1, self.homes) {
                self.resize(self.size * GROWTH);
                at = self.position(place);
            }
            self.insert(at, Slot { place, state: S::default() });
        }
        let slot = self.slots.get_mut(at);
        // There always is one. Were there none, a charge would go uncounted rather than panic.
        (slot.map_or_else(|| Box::leak(Box::default()), |slot| &mut slot.state), is_new)
    }

    /// Forgets `key`, and tells its state.
    pub(super) fn remove(&mut self, key: u128) -> Option<S> {
        let place = Place::of(key);
        let at = self.position(place);
        let (mut hole, behind) = self.slots.get_mut(at..)?.split_first_mut()?;
        if hole.place != place {
            return None;
        }
        let removed = mem::replace(hole, Slot::free());
        for (at, slot) in (at + 1..).zip(behind) {
            if slot.is_free() || slot.place.home(self.homes) == at {
                break;
            }
            mem::swap(hole, slot);
            hole = slot;
        }
        self.len -= 1;
        Some(removed.state)
    }

    /// Forgets what is over, gives memory back when few entries are left, and tells how many went.
    pub(super) fn sweep(&mut self, now: Timestamp) -> usize {
        let before = self.len;
        self.settle(|state| !state.is_over(now));
        self.shrink();
        before - self.len
    }

    /// Makes room for so many entries more. Whoever inserts many in the order of [`Table::iter`] must
    /// call it first: in a table that is too small for them they would all crowd at the front.
    pub(super) fn reserve(&mut self, additional: usize) {
        let mut size = self.size;
        while !fits(self.len + additional, size as usize) {
            size *= GROWTH;
        }
        if size > self.size {
            self.resize(size);
        }
    }

    /// All entries, in the order of their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u128, &S)> {
        let taken = self.slots.iter().filter(|slot| !slot.is_free());
        taken.map(|slot| (slot.place.key(), &slot.state))
    }

    /// Where `place` is, or would be inserted.
    fn position(&self, place: Place) -> usize {
        let home = place.home(self.homes);
        let run = self.slots.get(home..).unwrap_or_default();
        home + run.iter().position(|slot| slot.place >= place).unwrap_or(run.len())
    }

    /// Puts an entry where it belongs, and moves those behind it up to the next free slot.
    fn insert(&mut self, at: usize, entry: Slot<S>) {
        let mut carried = entry;
        let mut behind = self.slots.get_mut(at..).unwrap_or_default().iter_mut();
        for slot in &mut behind {
            mem::swap(slot, &mut carried);
            if carried.is_free() {
                break;
            }
        }
        self.len += 1;
        if behind.len() == 0 {
            self.slots.reserve_exact(OVERFLOW);
            self.slots.resize_with(self.slots.len() + OVERFLOW, Slot::free);
        }
    }

    /// Moves all entries to where they belong when there are so many homes, in place: a large array
    /// is then grown without a copy of it, and a table takes no more memory while it grows.
    fn resize(&mut self, size: f64) {
        self.size = size;
        self.homes = size as usize;
        let taken = self.slots.iter().filter(|slot| !slot.is_free());
        let end = taken.fold(0, |end, slot| slot.place.home(self.homes).max(end) + 1);
        let needed = (self.homes + OVERFLOW).max(end + 1);
        if needed > self.slots.len() {
            self.slots.reserve_exact(needed - self.slots.len());
            self.slots.resize_with(needed, Slot::free);
        }
        self.crowd();
        self.settle(|_| true);
        self.slots.truncate(needed);
        self.slots.shrink_to_fit();
    }

    /// Moves all entries to the end of the array, from where none has to be moved further back.
    fn crowd(&mut self) {
        let mut crowded = self.slots.len();
        for at in (0..self.slots.len()).rev() {
            if self.slots.get(at).is_some_and(|slot| !slot.is_free()) {
                crowded -= 1;
                self.slots.swap(crowded, at);
            }
        }
    }

    /// Drops the entries whose state is not to be kept, and moves the others to the front as far as
    /// they may go.
    fn settle(&mut self, keep: impl Fn(&S) -> bool) {
        // Before this slot all is settled; from it to `at` all slots are free.
        let mut settled = 0;
        for at in 0..self.slots.len() {
            let Some(slot) = self.slots.get_mut(at).filter(|slot| !slot.is_free()) else {
                continue;
            };
            if keep(&slot.state) {
                let place = slot.place.home(self.homes).max(settled);
                self.slots.swap(place, at);
                settled = place + 1;
            } else {
                *slot = Slot::free();
                self.len -= 1;
            }
        }
    }

    /// Takes steps back as far as there is room to grow afterwards: a table whose entries come and go
    /// is not resized at each sweep.
    fn shrink(&mut self) {
        let mut size = self.size;
        while size >= FIRST_HOMES && fits(self.len * 9 / 8, (size / GROWTH) as usize) {
            size /= GROWTH;
        }
        if self.len == 0 {
            *self = Table { slots: Vec::new(), homes: 0, size, len: 0 };
        } else if size < self.size {
            self.resize(size);
        }
    }
}

/// Whether so many entries may share so many homes.
fn fits(len: usize, homes: usize) -> bool {
    len * 100 <= homes * MAX_PERCENT
}

impl<S: State> Slot<S> {
    fn free() -> Self {
        Slot { place: Place::FREE, state: S::default() }
    }

    fn is_free(&self) -> bool {
        self.place == Place::FREE
    }
}

impl Place {
    /// Behind all others, so that a search ends here.
    const FREE: Place = Place { low: u64::MAX, high: u64::MAX };

    /// The place of a key. The last key is taken for the one before it.
    fn of(key: u128) -> Place {
        let key = key.min(u128::MAX - 1);
        Place { low: key as u64, high: (key >> 64) as u64 }
    }

    fn key(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }

    /// The slot it would have if all were free.
    fn home(self, homes: usize) -> usize {
        ((u128::from(self.low) * homes as u128) >> 64) as usize
    }
}
