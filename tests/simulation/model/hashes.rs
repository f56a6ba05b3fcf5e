//! Hashes, and the commands on them.

use super::{
    command_error::CommandError,
    keyspace::{Keys, Value},
    reply::Reply,
};

/// A hash: its fields in the order in which they came, as Redis has those of a small one.
#[derive(Clone, Debug, Default)]
pub(super) struct Hash(Vec<(Vec<u8>, Vec<u8>)>);

impl Hash {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many bytes its fields and values have.
    pub(super) fn size(&self) -> usize {
        self.0.iter().map(|(field, value)| field.len() + value.len()).sum()
    }

    /// Sets a field; whether it is new.
    fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        match self.0.iter_mut().find(|(known, _)| known == field) {
            Some((_, before)) => {
                *before = value.to_vec();
                false
            }
            None => {
                self.0.push((field.to_vec(), value.to_vec()));
                true
            }
        }
    }

    /// Removes a field; whether it was there.
    fn remove(&mut self, field: &[u8]) -> bool {
        let at = self.0.iter().position(|(known, _)| known == field);
        at.map(|at| self.0.remove(at)).is_some()
    }
}

/// `HSET key (field value)…`.
pub(super) fn set(keys: &mut Keys<'_>, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    let (pairs, rest) = words[2..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(CommandError::WrongArity("hset"));
    }
    let mut hash = keys.hash(&words[1])?.cloned().unwrap_or_default();
    let new = pairs.iter().filter(|[field, value]| hash.set(field, value)).count();
    keys.replace(&words[1], Value::Hash(hash));
    Ok(Reply::count(new))
}

/// `HDEL key field…`.
pub(super) fn delete(keys: &mut Keys<'_>, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    let mut hash = keys.hash(&words[1])?.cloned().unwrap_or_default();
    let removed = words[2..].iter().filter(|field| hash.remove(field)).count();
    if removed > 0 {
        keys.replace(&words[1], Value::Hash(hash));
    }
    Ok(Reply::count(removed))
}

/// `HLEN key`.
pub(super) fn length(keys: &mut Keys<'_>, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    Ok(Reply::count(keys.hash(&words[1])?.map_or(0, Hash::len)))
}

/// `HGETALL key`.
pub(super) fn all(keys: &mut Keys<'_>, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
    let hash = keys.hash(&words[1])?.cloned().unwrap_or_default();
    let pairs = hash.0.into_iter().map(|(field, value)| (Reply::Bulk(field), Reply::Bulk(value)));
    Ok(Reply::Map(pairs.collect()))
}
