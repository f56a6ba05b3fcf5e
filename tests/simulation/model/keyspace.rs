//! The keys of a server, when they expire, and which of them a command has changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use tollgate_clock::Timestamp;

use super::{Role, command_error::CommandError, hashes::Hash, sorted_sets::SortedSet};

/// All keys.
#[derive(Debug, Default)]
pub(super) struct Keyspace {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// Keys that were changed or removed since this was last taken.
    changed: BTreeSet<Vec<u8>>,
}

/// What is stored at a key.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    value: Rc<Value>,
    /// In milliseconds since the epoch; none: never.
    expires_at: Option<i64>,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    String(Vec<u8>),
    Hash(Hash),
    SortedSet(SortedSet),
}

/// A key, and what is there after a change; none: nothing.
pub(super) type Change = (Vec<u8>, Option<Entry>);

impl Keyspace {
    /// A keyspace with what another one has.
    pub(super) fn copy_of(entries: &BTreeMap<Vec<u8>, Entry>) -> Keyspace {
        Keyspace { entries: entries.clone(), changed: BTreeSet::new() }
    }

    pub(super) fn entries(&self) -> &BTreeMap<Vec<u8>, Entry> {
        &self.entries
    }

    /// What was changed since this was last called.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        let keys = std::mem::take(&mut self.changed);
        let change = |key: Vec<u8>| {
            let entry = self.entries.get(&key).cloned();
            (key, entry)
        };
        keys.into_iter().map(change).collect()
    }

    /// Makes a change of another server.
    pub(super) fn apply(&mut self, (key, entry): &Change) {
        match entry {
            Some(entry) => self.entries.insert(key.clone(), entry.clone()),
            None => self.entries.remove(key),
        };
    }

    /// Makes a change that is this server's own.
    pub(super) fn change(&mut self, change: Change) {
        self.apply(&change);
        self.changed.insert(change.0);
    }

    /// Removes all that has expired.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        let is_over = |(_, entry): &(&Vec<u8>, &Entry)| entry.is_over(millis(now));
        let over: Vec<_> =
            self.entries.iter().filter(is_over).map(|(key, _)| key.clone()).collect();
        for key in over {
            self.change((key, None));
        }
    }
}

impl Entry {
    fn is_over(&self, now: i64) -> bool {
        self.expires_at.is_some_and(|at| now > at)
    }

    /// When it expires, in milliseconds since the epoch; none: never.
    pub(super) fn expires_at(&self) -> Option<i64> {
        self.expires_at
    }

    /// About how many bytes it takes.
    pub(super) fn size(&self) -> usize {
        match &*self.value {
            Value::String(value) => value.len(),
            Value::Hash(hash) => hash.size(),
            Value::SortedSet(set) => set.size(),
        }
    }
}

impl Value {
    /// Whether it is a collection without members, which is no value.
    fn is_nothing(&self) -> bool {
        match self {
            Value::String(_) => false,
            Value::Hash(hash) => hash.len() == 0,
            Value::SortedSet(set) => set.len() == 0,
        }
    }
}

/// The keys as a command uses them.
pub(super) struct Keys<'s> {
    space: &'s mut Keyspace,
    pub(super) now: Timestamp,
    /// Whether keys that have expired are removed: a replica leaves that to its primary.
    removes_expired: bool,
}

impl<'s> Keys<'s> {
    /// The keys of a server in this role.
    pub(super) fn new(space: &'s mut Keyspace, now: Timestamp, role: &Role) -> Keys<'s> {
        Keys { space, now, removes_expired: *role == Role::Primary }
    }

    /// The present instant, in milliseconds since the epoch.
    pub(super) fn now(&self) -> i64 {
        millis(self.now)
    }

    fn entry(&mut self, key: &[u8]) -> Option<&Entry> {
        let now = self.now();
        if self.space.entries.get(key).is_some_and(|entry| entry.is_over(now)) {
            if self.removes_expired {
                self.space.change((key.to_vec(), None));
            }
            return None;
        }
        self.space.entries.get(key)
    }

    pub(super) fn contains(&mut self, key: &[u8]) -> bool {
        self.entry(key).is_some()
    }

    /// The string at a key; none: nothing is there.
    pub(super) fn string(&mut self, key: &[u8]) -> Result<Option<&Vec<u8>>, CommandError> {
        match self.entry(key).map(|entry| &*entry.value) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(_) => Err(CommandError::WrongType),
        }
    }

    /// The hash at a key; none: nothing is there.
    pub(super) fn hash(&mut self, key: &[u8]) -> Result<Option<&Hash>, CommandError> {
        match self.entry(key).map(|entry| &*entry.value) {
            None => Ok(None),
            Some(Value::Hash(hash)) => Ok(Some(hash)),
            Some(_) => Err(CommandError::WrongType),
        }
    }

    /// The sorted set at a key; none: nothing is there.
    pub(super) fn sorted_set(&mut self, key: &[u8]) -> Result<Option<&SortedSet>, CommandError> {
        match self.entry(key).map(|entry| &*entry.value) {
            None => Ok(None),
            Some(Value::SortedSet(set)) => Ok(Some(set)),
            Some(_) => Err(CommandError::WrongType),
        }
    }

    /// Stores a value that expires then.
    pub(super) fn set(&mut self, key: &[u8], value: Value, expires_at: Option<i64>) {
        let entry = Entry { value: Rc::new(value), expires_at };
        self.space.change((key.to_vec(), Some(entry)));
    }

    /// Stores a value that expires when the one before would have; a collection without members is
    /// removed.
    pub(super) fn replace(&mut self, key: &[u8], value: Value) {
        let expires_at = self.entry(key).and_then(|entry| entry.expires_at);
        match value.is_nothing() {
            true => self.space.change((key.to_vec(), None)),
            false => self.set(key, value, expires_at),
        }
    }

    /// Sets when a key expires; whether it is there.
    pub(super) fn expire(&mut self, key: &[u8], at: i64) -> bool {
        let Some(mut entry) = self.entry(key).cloned() else { return false };
        entry.expires_at = Some(at);
        let entry = (at > self.now()).then_some(entry);
        self.space.change((key.to_vec(), entry));
        true
    }

    /// Removes a key; whether it was there.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let is_there = self.contains(key);
        if is_there {
            self.space.change((key.to_vec(), None));
        }
        is_there
    }
}

fn millis(at: Timestamp) -> i64 {
    (at.as_micros() / 1000) as i64
}
