//! What a server has on disk, and its restart.

use std::collections::BTreeMap;

use super::{
    Condition, Position, Role, Server,
    keyspace::{Entry, Keyspace},
    replication::{Backlog, Lineage},
    scripts::Scripts,
};

/// What was written last; nothing at first.
#[derive(Debug, Default)]
pub(super) struct Disk(pub(super) Snapshot);

/// All data of a server at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(super) entries: BTreeMap<Vec<u8>, Entry>,
    /// Where in which history; none: that was not written down.
    pub(super) position: Option<Position>,
}

impl Snapshot {
    pub(super) fn of(server: &Server) -> Snapshot {
        // A server that never had a replica writes down no position.
        let position = server.backlog.as_ref().map(|_| server.position().clone());
        Snapshot { entries: server.keyspace.entries().clone(), position }
    }
}

impl Server {
    /// Saves a snapshot (`SAVE`).
    pub(crate) fn save(&mut self) {
        self.disk = Disk(Snapshot::of(self));
    }

    /// Writes all changes until now to the log of a server that keeps one (`appendonly`): such a
    /// log has no position.
    pub(crate) fn sync_log(&mut self) {
        self.disk = Disk(Snapshot { position: None, ..Snapshot::of(self) });
    }

    /// It loses its disk.
    pub(crate) fn lose_disk(&mut self) {
        self.disk = Disk::default();
    }

    /// Restarts it in this role, with what is on its disk. Its sessions have ended.
    pub(crate) fn restart(&mut self, role: Role) {
        let Disk(Snapshot { entries, position }) = &self.disk;
        self.keyspace = Keyspace::copy_of(entries);
        self.run_id = self.identities.next();
        self.scripts = Scripts::new();
        self.condition = Condition::default();
        self.backlog = None;
        self.lineage = match (position.clone(), &role) {
            (None, _) => Lineage::new(&mut self.identities),
            (Some(current), Role::Replica { .. }) => Lineage { current, previous: None },
            (Some(previous), Role::Primary) => {
                self.backlog = Some(Backlog::new(previous.offset));
                Lineage::after(previous, &mut self.identities)
            }
        };
        self.role = role;
        self.lose_link();
    }
}
