//! Counters that are written together: all of them are on disk, or none is.

use tollgate_limit::AlgorithmKind;

use super::record::{KEY_BYTES, key_bytes, write_head};

/// A counter that was put into a batch: where it is in memory, for what happens if the batch is not
/// written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchEntry {
    /// The part of the store.
    pub(crate) part: u16,
    /// The algorithm that the counter is counted by.
    pub(crate) kind: AlgorithmKind,
    pub(crate) key: u128,
}

/// Counters to write, in the form of a journal's frame.
#[derive(Default)]
pub(crate) struct Batch {
    /// Its form in a frame.
    pub(super) bytes: Vec<u8>,
    /// The counters, for what happens if they are not written.
    pub(crate) collected: Vec<BatchEntry>,
    /// Keys that the disk may have from now on.
    pub(super) kept: Vec<u128>,
    /// The tags of counters that the disk did not have.
    pub(super) new: Vec<u16>,
}

/// A change of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change<'b> {
    /// A counter has this value.
    Put(&'b [u8; KEY_BYTES], &'b [u8]),
    /// There is no such counter.
    Remove(&'b [u8; KEY_BYTES]),
}

const PUT: u8 = 1;
const REMOVE: u8 = 2;

impl Batch {
    /// Adds a counter, the state of which `encode` appends. `is_first`: the disk does not have it.
    pub(crate) fn put(
        &mut self,
        key: u128,
        (collected, tag): (BatchEntry, u16),
        is_first: bool,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        self.bytes.push(PUT);
        self.bytes.extend(key_bytes(key));
        let length_at = self.bytes.len();
        self.bytes.extend([0; 4]);
        write_head(&mut self.bytes, collected.kind, tag);
        encode(&mut self.bytes);
        let length = (self.bytes.len() - length_at - 4) as u32;
        if let Some(place) = self.bytes.get_mut(length_at..length_at + 4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        self.collected.push(collected);
        self.kept.push(key);
        if is_first {
            self.new.push(tag);
        }
    }

    /// Adds the removal of a counter.
    pub(crate) fn remove(&mut self, key: u128) {
        self.bytes.push(REMOVE);
        self.bytes.extend(key_bytes(key));
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.collected.clear();
        self.kept.clear();
        self.new.clear();
    }
}

/// The changes in the bytes of a frame, in their order. It ends with none early if the bytes are
/// not those of a batch.
pub(super) struct Changes<'b>(pub(super) &'b [u8]);

impl<'b> Iterator for Changes<'b> {
    type Item = Option<Change<'b>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let change = self.take();
        if change.is_none() {
            self.0 = &[];
        }
        Some(change)
    }
}

impl<'b> Changes<'b> {
    fn take(&mut self) -> Option<Change<'b>> {
        let (operation, rest) = self.0.split_first()?;
        let (key, rest) = rest.split_first_chunk::<KEY_BYTES>()?;
        match *operation {
            PUT => {
                let (length, rest) = rest.split_first_chunk()?;
                let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                self.0 = rest;
                Some(Change::Put(key, value))
            }
            REMOVE => {
                self.0 = rest;
                Some(Change::Remove(key))
            }
            _ => None,
        }
    }
}
