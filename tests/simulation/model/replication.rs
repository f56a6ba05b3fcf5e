//! Replication as data: what a primary writes is a sequence of effects, and who carries them to a
//! replica decides when they come, and whether.
//!
//! A server that says that it has a past up to an offset is compared by replication IDs, as Redis
//! does: <https://redis.io/docs/latest/operate/oss_and_stack/management/replication/>.

use std::{collections::VecDeque, rc::Rc};

use super::{
    Address, Server,
    address::Identities,
    disk::{Disk, Snapshot},
    keyspace::{Change, Keyspace},
};

/// What a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Primary,
    Replica {
        primary: Address,
        /// Whether effects of the primary come.
        is_linked: bool,
    },
}

/// How far which history has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) id: String,
    pub(crate) offset: u64,
}

/// The history of a server's data.
#[derive(Clone, Debug)]
pub(super) struct Lineage {
    pub(super) current: Position,
    /// The history that it went on from, and where.
    pub(super) previous: Option<Position>,
}

/// What one command has changed, which a replica changes at once.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    /// Where it follows.
    after: Position,
    /// The offset after it.
    end: u64,
    changes: Rc<[Change]>,
}

/// The latest effects, for replicas that were away for a while.
#[derive(Debug)]
pub(super) struct Backlog {
    /// The offset before the first of them.
    begin: u64,
    effects: VecDeque<Effect>,
}

/// How a replica continues.
#[derive(Clone, Debug)]
pub(crate) enum Resync {
    /// With the effects that it lacks, in the history with this ID.
    Partial { id: String, effects: Vec<Effect> },
    /// With all data.
    Full(Snapshot),
}

/// An effect does not follow what a replica has: it must ask for a [`Resync`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap;

/// Effects that are kept for replicas that were away.
const BACKLOG: usize = 1000;

/// About how many bytes an effect has beside keys and values.
const OVERHEAD: usize = 40;

impl Lineage {
    /// One that begins.
    pub(super) fn new(identities: &mut Identities) -> Lineage {
        Lineage { current: Position { id: identities.next(), offset: 0 }, previous: None }
    }

    /// One that goes on from another one.
    pub(super) fn after(previous: Position, identities: &mut Identities) -> Lineage {
        let current = Position { id: identities.next(), offset: previous.offset };
        Lineage { current, previous: Some(previous) }
    }
}

impl Backlog {
    /// An empty one.
    pub(super) fn new(begin: u64) -> Backlog {
        Backlog { begin, effects: VecDeque::new() }
    }

    fn push(&mut self, effect: Effect) {
        self.effects.push_back(effect);
        if self.effects.len() > BACKLOG
            && let Some(oldest) = self.effects.pop_front()
        {
            self.begin = oldest.end;
        }
    }
}

impl Server {
    /// How far its data have come.
    pub(crate) fn position(&self) -> &Position {
        &self.lineage.current
    }

    /// Makes it primary. Its data are another history from here on.
    pub(crate) fn promote(&mut self) {
        if self.role != Role::Primary {
            self.role = Role::Primary;
            self.lineage = Lineage::after(self.lineage.current.clone(), &mut self.identities);
        }
    }

    /// Makes it a replica. It keeps its data until [`Server::accept`].
    pub(crate) fn follow(&mut self, primary: Address) {
        self.role = Role::Replica { primary, is_linked: false };
    }

    /// It has lost its primary.
    pub(crate) fn lose_link(&mut self) {
        if let Role::Replica { is_linked, .. } = &mut self.role {
            *is_linked = false;
        }
    }

    /// What a replica at this position needs to follow this server.
    pub(crate) fn resync(&mut self, replica: &Position) -> Resync {
        let Lineage { current, previous } = &self.lineage;
        let is_known = replica.id == current.id
            || previous.as_ref().is_some_and(|previous| {
                replica.id == previous.id && replica.offset <= previous.offset
            });
        let kept = self.backlog.as_ref().filter(|backlog| {
            is_known && (backlog.begin..=current.offset).contains(&replica.offset)
        });
        if let Some(backlog) = kept {
            let missing = backlog.effects.iter().filter(|effect| effect.end > replica.offset);
            return Resync::Partial { id: current.id.clone(), effects: missing.cloned().collect() };
        }
        if self.backlog.is_none() {
            // Nobody could have followed the history so far.
            let offset = current.offset;
            self.lineage = Lineage::new(&mut self.identities);
            self.lineage.current.offset = offset;
            self.backlog = Some(Backlog::new(offset));
        }
        Resync::Full(Snapshot::of(self))
    }

    /// Takes what its primary has sent, and is linked to it.
    pub(crate) fn accept(&mut self, resync: Resync) {
        let Role::Replica { is_linked, .. } = &mut self.role else { return };
        *is_linked = true;
        match resync {
            Resync::Full(snapshot) => {
                self.keyspace = Keyspace::copy_of(&snapshot.entries);
                if let Some(position) = snapshot.position.clone() {
                    self.backlog = Some(Backlog::new(position.offset));
                    self.lineage = Lineage { current: position, previous: None };
                }
                // It comes in a file, which stays.
                self.disk = Disk(snapshot);
            }
            Resync::Partial { id, effects } => {
                let position = self.lineage.current.clone();
                self.backlog.get_or_insert_with(|| Backlog::new(position.offset));
                if id != position.id {
                    self.lineage.current.id = id;
                    self.lineage.previous = Some(position);
                }
                effects.iter().for_each(|effect| self.take(effect));
            }
        }
    }

    /// The effects after an offset, as far as they are kept: what a replica that is linked gets.
    pub(crate) fn effects_after(&self, offset: u64) -> impl Iterator<Item = &Effect> {
        let effects = self.backlog.iter().flat_map(|backlog| &backlog.effects);
        effects.filter(move |effect| effect.end > offset)
    }

    /// Takes an effect of its primary.
    ///
    /// # Errors
    /// It is not linked, or does not follow what it has.
    pub(crate) fn apply(&mut self, effect: &Effect) -> Result<(), Gap> {
        let is_linked = matches!(self.role, Role::Replica { is_linked: true, .. });
        if !is_linked || effect.after != self.lineage.current {
            return Err(Gap);
        }
        self.take(effect);
        Ok(())
    }

    fn take(&mut self, effect: &Effect) {
        effect.changes.iter().for_each(|change| self.keyspace.apply(change));
        self.lineage.current.offset = effect.end;
        if let Some(backlog) = &mut self.backlog {
            backlog.push(effect.clone());
        }
    }

    /// Records what the command that was just executed has changed.
    pub(super) fn record(&mut self) {
        let changes = self.keyspace.take_changes();
        // Without replicas, nothing is counted.
        let Some(backlog) = self.backlog.as_mut().filter(|_| !changes.is_empty()) else { return };
        let size = |(key, entry): &Change| {
            OVERHEAD + key.len() + entry.as_ref().map_or(0, |entry| entry.size())
        };
        let after = self.lineage.current.clone();
        let end = after.offset + changes.iter().map(size).sum::<usize>() as u64;
        self.lineage.current.offset = end;
        backlog.push(Effect { after, end, changes: changes.into() });
    }
}

#[cfg(test)]
mod tests;
