//! A table from keys to small states that grows by a quarter at a time, so that it is never much
//! larger than what is in it.
//!
//! Entries lie in the order of their keys (ordered linear probing: Amble and Knuth, "Ordered hash
//! tables", 1974). The slot that a key points at, its home, grows with the key; an entry is in its
//! home, or behind it with no free slot between. So a search ends at the first entry that is not
//! less, whether or not the key is there, after three or four steps even when the table is nearly
//! full. And to grow is to move the entries on, each once and in order, which is cheap enough to be
//! done often.

use std::{array, mem};

use tollgate_clock::Timestamp;
use tollgate_limit::State;

/// By how much a table grows at once.
const GROWTH: f64 = 1.25;

/// The fewest homes, but for the stagger. So few that the first entries of a table share lines of
/// the processor's cache: with 10,000 callers, each of a thousand tables has ten entries.
const FIRST_HOMES: f64 = 12.0;

/// The most entries there may be for a hundred homes.
const MAX_PERCENT: usize = 86;

/// The fewest slots behind the last home, for entries that are pushed out of it. More are added
/// when these are full.
const OVERFLOW: usize = 8;

/// Slots that are allocated together.
const SEGMENT: usize = 256;

/// Slots that a search looks at together.
const STRIDE: usize = 4;

/// Bits of a key that are a tag.
pub(super) const TAG_BITS: u32 = 16;

/// Bits of a key behind the tag that are the marks of its entry.
const MARK_BITS: u32 = 3;

/// Bits of a key that do not distinguish it from others. The bits that are left are enough: the
/// probability that two of 2^21 keys are equal is 2^-68, and of 2^27 keys 2^-56.
pub(super) const ALIKE_BITS: u32 = TAG_BITS + MARK_BITS;

/// States by key.
///
/// A key is the output of a pseudo-random function under a secret: no client can choose keys that
/// lie close together. Keys that do are found all the same, but not fast.
///
/// The first [`ALIKE_BITS`] bits of a key do not distinguish it from others. The first
/// [`TAG_BITS`] of them are a tag, which stays as it was when the entry was made, and is returned
/// when the entry is removed. In the place of the others the table keeps the marks of an entry.
pub(super) struct Table<S> {
    /// None at first; then the homes and the overflow, the last slot of which is always free.
    slots: Slots<S>,
    homes: usize,
    /// Homes before they were rounded down, so that all steps of growth are equal.
    size: f64,
    len: usize,
}

/// A long array in short segments.
///
/// Arrays that were outgrown would leave holes in the heap that are too small for the arrays that
/// come after: a fifth of all memory, with a thousand tables. Segments of one size leave none.
struct Slots<S>(Vec<Box<Segment<S>>>);

/// Slots that are allocated together.
struct Segment<S>([Slot<S>; SEGMENT]);

/// An entry, or room for one.
struct Slot<S> {
    place: SortKey,
    state: S,
}

/// An entry, found: its state, and its marks, of which a new entry has none.
pub(super) struct Entry<'t, S> {
    pub(super) state: &'t mut S,
    place: &'t mut SortKey,
}

/// What is remembered of an entry besides its state, for a store that also keeps it elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// It was used since this mark was last taken away.
    Used = 1,
    /// It was changed since it was last saved.
    Changed = 2,
    /// It was saved, in this state or in an earlier one.
    Saved = 4,
}

/// A key as a place in the order of entries.
///
/// The low half comes first: shards are distinguished by the high bits of their owners, which the
/// keys of one shard may therefore have in common. Tag and marks come last, so that a key is found
/// whatever they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SortKey {
    low: u64,
    high: u64,
}

impl<S: State> Table<S> {
    /// An empty table, which allocates nothing.
    ///
    /// `stagger`, from 0 to 1, shifts its sizes by that part of a step: tables that fill at one
    /// rate then neither grow all at once nor are all at their emptiest at once.
    pub(super) fn new(stagger: f64) -> Self {
        let size = FIRST_HOMES * GROWTH.powf(stagger - 1.0);
        Table { slots: Slots(Vec::new()), homes: 0, size, len: 0 }
    }

    /// Entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Slots, free or not.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// The state of `key`.
    pub(super) fn find(&self, key: u128) -> Option<&S> {
        let place = SortKey::of(key);
        let slot = self.slots.get(self.position(place))?;
        slot.place.is_same_key(place).then_some(&slot.state)
    }

    /// The entry of `key`, to be changed.
    pub(super) fn find_mut(&mut self, key: u128) -> Option<Entry<'_, S>> {
        let place = SortKey::of(key);
        let slot = self.slots.get_mut(self.position(place))?;
        slot.place.is_same_key(place).then_some(slot.entry())
    }

    /// The entry of `key`, one with a default state if it had none; true if it had none. There
    /// always is one.
    pub(super) fn entry(&mut self, key: u128) -> Option<(Entry<'_, S>, bool)> {
        let place = SortKey::of(key);
        let mut at = self.position(place);
        let is_new = self.slots.get(at).is_none_or(|slot| !slot.place.is_same_key(place));
        if is_new {
            if !fits(self.len + 1, self.homes) {
                self.resize(self.size * GROWTH);
                at = self.position(place);
            }
            self.insert(at, Slot { place, state: S::default() });
        }
        let slot = self.slots.get_mut(at)?;
        Some((slot.entry(), is_new))
    }

    /// Removes `key`, and returns its tag; none if it had no state. Those behind it move up, as far
    /// as their homes let them.
    pub(super) fn remove(&mut self, key: u128) -> Option<u16> {
        let place = SortKey::of(key);
        let mut at = self.position(place);
        let slot = self.slots.get_mut(at).filter(|slot| slot.place.is_same_key(place))?;
        let tag = mem::replace(slot, Slot::free()).place.tag();
        self.len -= 1;
        while let Some(next) = self.slots.get_mut(at + 1)
            && !next.is_free()
            && next.place.home(self.homes) <= at
        {
            let entry = mem::replace(next, Slot::free());
            self.slots.put(at, entry);
            at += 1;
        }
        Some(tag)
    }

    /// Forgets what is over, but for what was changed since it was saved elsewhere; gives memory
    /// back when few entries are left, and passes `dropped` the tag of each that went. Where
    /// nothing is saved, no entry is marked as changed.
    pub(super) fn sweep(&mut self, now: Timestamp, dropped: impl FnMut(u16)) {
        // The disk may have an earlier state, which is not over.
        let is_needed = |entry: &Entry<'_, S>| entry.has(Mark::Changed) && entry.has(Mark::Saved);
        let keep = |entry: &mut Entry<'_, S>| is_needed(entry) || !entry.state.is_over(now);
        self.retain(keep, dropped);
    }

    /// Forgets the entries that `keep` does not keep, gives memory back when few are left, and
    /// passes `dropped` the tag of each that went.
    pub(super) fn retain(
        &mut self,
        mut keep: impl FnMut(&mut Entry<'_, S>) -> bool,
        mut dropped: impl FnMut(u16),
    ) {
        // Before this slot all entries are where they belong; from it to `at` all slots are free.
        let mut settled = 0;
        for at in 0..self.slots.len() {
            let Some(slot) = self.slots.get_mut(at).filter(|slot| !slot.is_free()) else {
                continue;
            };
            if !keep(&mut slot.entry()) {
                dropped(slot.place.tag());
                *slot = Slot::free();
                self.len -= 1;
                continue;
            }
            let place = slot.place.home(self.homes).max(settled);
            if place < at {
                let entry = mem::replace(slot, Slot::free());
                self.slots.put(place, entry);
            }
            settled = place + 1;
        }
        self.shrink();
    }

    /// Makes room for so many entries more. A caller that inserts many in the order of
    /// [`Table::iter`] must
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

    /// Gives all entries to another table, where they take the place of those that it has too; the
    /// tags of these are pushed to `twice`.
    pub(super) fn empty_into(&mut self, other: &mut Self, twice: &mut Vec<u16>) {
        if other.len == 0 {
            mem::swap(self, other);
            return;
        }
        let emptied = mem::replace(self, Table::new(0.0));
        other.reserve(emptied.len);
        for (key, state) in emptied.iter() {
            let Some((there, is_new)) = other.entry(key) else { continue };
            *there.state = state.clone();
            if !is_new {
                twice.push(SortKey::of(key).tag());
            }
        }
    }

    /// Calls `each` for every entry.
    pub(super) fn for_each(&mut self, mut each: impl FnMut(&mut Entry<'_, S>)) {
        let slots = self.slots.0.iter_mut().flat_map(|segment| &mut segment.0);
        slots.filter(|slot| !slot.is_free()).for_each(|slot| each(&mut slot.entry()));
    }

    /// Bytes of memory that the table takes.
    pub(super) fn bytes(&self) -> usize {
        let held: usize = match S::HOLDS_MEMORY {
            true => self.iter().map(|(_, state)| state.held_bytes()).sum(),
            false => 0,
        };
        // A small table has many slots that are free and were never used.
        let slots = self.slots.len().min(self.len * 3 / 2);
        slots * size_of::<Slot<S>>() + held
    }

    /// All entries, in the order of their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u128, &S)> {
        let entries = self.slots.iter().filter(|slot| !slot.is_free());
        entries.map(|slot| (slot.place.key(), &slot.state))
    }

    /// Reads the memory at which a search for `key` begins, so that it is in the processor's cache
    /// when the search comes. Reads for several keys wait for memory together, searches one after
    /// the other. The caller must use the result, or the compiler leaves out the read.
    pub(super) fn touch(&self, key: u128) -> u64 {
        let home = SortKey::of(key).home(self.homes);
        self.slots.get(home).map_or(0, |slot| slot.place.low)
    }

    /// Where `place` is, or would be inserted.
    fn position(&self, place: SortKey) -> usize {
        let place = place.without_tag();
        let mut at = place.home(self.homes);
        while let Some(slots) = self.slots.rest_of_segment(at) {
            match first_not_less(slots, place) {
                Some(ahead) => return at + ahead,
                None => at += slots.len(),
            }
        }
        at
    }

    /// Puts an entry where it belongs, and moves those behind it on, up to the next free slot.
    fn insert(&mut self, at: usize, entry: Slot<S>) {
        let mut carried = entry;
        let is_full = {
            let mut slots = self.slots.tail_mut(at);
            slots.any(|slot| {
                mem::swap(slot, &mut carried);
                carried.is_free()
            });
            slots.next().is_none()
        };
        if is_full {
            self.slots.0.push(Segment::free());
        }
        self.len += 1;
    }

    /// Moves all entries to where they belong when there are so many homes. Segments that are
    /// emptied on the way are used again: a table takes no more memory while it grows than
    /// afterwards.
    fn resize(&mut self, size: f64) {
        self.size = size;
        self.homes = size as usize;
        let outgrown = mem::replace(&mut self.slots, Slots(Vec::new()));
        let mut emptied = Vec::new();
        let mut settled = 0;
        for mut segment in outgrown.0 {
            for slot in segment.0.iter_mut().filter(|slot| !slot.is_free()) {
                let entry = mem::replace(slot, Slot::free());
                let place = entry.place.home(self.homes).max(settled);
                self.slots.extend_to(place + 1, &mut emptied);
                self.slots.put(place, entry);
                settled = place + 1;
            }
            emptied.push(segment);
        }
        self.slots.extend_to((self.homes + OVERFLOW).max(settled + 1), &mut emptied);
        self.slots.0.shrink_to_fit();
    }

    /// Takes steps back, but leaves room to grow again: a table whose entries come and go is not
    /// resized at each sweep.
    fn shrink(&mut self) {
        let mut size = self.size;
        while size >= FIRST_HOMES && fits(self.len * 9 / 8, (size / GROWTH) as usize) {
            size /= GROWTH;
        }
        if self.len == 0 {
            *self = Table { slots: Slots(Vec::new()), homes: 0, size, len: 0 };
        } else if size < self.size {
            self.resize(size);
        }
    }
}

/// Whether so many entries may share so many homes.
fn fits(len: usize, homes: usize) -> bool {
    len * 100 <= homes * MAX_PERCENT
}

/// The first slot that `place` is not behind.
///
/// A few slots are compared at once, so that the lines they lie in are fetched at once: one after
/// the other, each would be waited for.
fn first_not_less<S>(slots: &[Slot<S>], place: SortKey) -> Option<usize> {
    let less = |slot: &&Slot<S>| slot.place.low < place.low;
    let counts =
        slots.as_chunks::<STRIDE>().0.iter().map(|slots| slots.iter().filter(less).count());
    let mut at = 0;
    for count in counts {
        at += count;
        if count < STRIDE {
            break;
        }
    }
    let ahead = slots.get(at..)?.iter().position(|slot| slot.place >= place)?;
    Some(at + ahead)
}

impl<S: State> Slots<S> {
    fn len(&self) -> usize {
        self.0.len() * SEGMENT
    }

    fn get(&self, at: usize) -> Option<&Slot<S>> {
        self.0.get(at / SEGMENT)?.0.get(at % SEGMENT)
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut Slot<S>> {
        self.0.get_mut(at / SEGMENT)?.0.get_mut(at % SEGMENT)
    }

    fn rest_of_segment(&self, at: usize) -> Option<&[Slot<S>]> {
        self.0.get(at / SEGMENT)?.0.get(at % SEGMENT..)
    }

    fn iter(&self) -> impl Iterator<Item = &Slot<S>> {
        self.0.iter().flat_map(|segment| &segment.0)
    }

    /// The slots from `at` on.
    fn tail_mut(&mut self, at: usize) -> impl Iterator<Item = &mut Slot<S>> {
        let mut segments = self.0.get_mut(at / SEGMENT..).unwrap_or_default().iter_mut();
        let first = segments.next().and_then(|segment| segment.0.get_mut(at % SEGMENT..));
        first.unwrap_or_default().iter_mut().chain(segments.flat_map(|segment| &mut segment.0))
    }

    fn put(&mut self, at: usize, entry: Slot<S>) {
        if let Some(slot) = self.get_mut(at) {
            *slot = entry;
        }
    }

    /// Adds segments, `emptied` ones first, until there are at least `len` slots.
    fn extend_to(&mut self, len: usize, emptied: &mut Vec<Box<Segment<S>>>) {
        while self.len() < len {
            self.0.push(emptied.pop().unwrap_or_else(Segment::free));
        }
    }
}

impl<S: State> Segment<S> {
    fn free() -> Box<Self> {
        Box::new(Segment(array::from_fn(|_| Slot::free())))
    }
}

impl<S: State> Slot<S> {
    fn free() -> Self {
        Slot { place: SortKey::FREE, state: S::default() }
    }

    fn is_free(&self) -> bool {
        self.place == SortKey::FREE
    }

    fn entry(&mut self) -> Entry<'_, S> {
        Entry { state: &mut self.state, place: &mut self.place }
    }
}

impl<S> Entry<'_, S> {
    /// The tag that the entry was made with.
    pub(super) fn tag(&self) -> u16 {
        self.place.tag()
    }

    /// The key, without tag and marks.
    pub(super) fn key(&self) -> u128 {
        self.place.key() << ALIKE_BITS >> ALIKE_BITS
    }

    /// Whether the entry has a mark.
    pub(super) fn has(&self, mark: Mark) -> bool {
        self.place.high & mark as u64 != 0
    }

    /// Marks the entry. Returns whether it had not this mark.
    pub(super) fn mark(&mut self, mark: Mark) -> bool {
        let is_new = !self.has(mark);
        self.place.high |= mark as u64;
        is_new
    }

    /// Takes a mark away. Returns whether the entry had it.
    pub(super) fn unmark(&mut self, mark: Mark) -> bool {
        let was_there = self.has(mark);
        self.place.high &= !(mark as u64);
        was_there
    }
}

impl SortKey {
    /// Behind all others, so that a search ends here.
    const FREE: SortKey = SortKey { low: u64::MAX, high: u64::MAX };

    /// The place of a key, without marks: so it is never that of a free slot.
    fn of(key: u128) -> SortKey {
        let high = ((key >> 64) as u64).rotate_left(ALIKE_BITS);
        SortKey { low: key as u64, high: high >> MARK_BITS << MARK_BITS }
    }

    /// The key with its tag, and without marks.
    fn key(self) -> u128 {
        let high = self.high >> MARK_BITS << MARK_BITS;
        u128::from(high.rotate_right(ALIKE_BITS)) << 64 | u128::from(self.low)
    }

    fn tag(self) -> u16 {
        (self.high >> MARK_BITS) as u16
    }

    /// Where the entries of this key begin, whatever their tags.
    fn without_tag(self) -> SortKey {
        SortKey { high: self.high >> ALIKE_BITS << ALIKE_BITS, ..self }
    }

    fn is_same_key(self, other: SortKey) -> bool {
        self.without_tag() == other.without_tag() && self != SortKey::FREE
    }

    /// The slot it would have if all were free.
    fn home(self, homes: usize) -> usize {
        ((u128::from(self.low) * homes as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests;
