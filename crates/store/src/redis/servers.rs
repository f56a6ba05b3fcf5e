//! The servers of one store.
//!
//! Each server's state is shared by all workers of the process (`server`).

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tollgate_settings::RedisAddress;

use super::{server::Server, server_report::ServerReport};

/// The servers of one store. Holds those that a worker uses, and drops the others.
#[derive(Default)]
pub struct Servers {
    by_address: Mutex<HashMap<RedisAddress, Weak<Server>>>,
    /// Whether some callers' primary is not known; none: no worker has looked yet.
    lacks_primary: Mutex<Option<bool>>,
}

impl Servers {
    /// The server at an address, the same for all workers.
    pub(super) fn at(&self, address: &RedisAddress) -> Arc<Server> {
        let mut servers = self.by_address.lock();
        if let Some(server) = servers.get(address).and_then(Weak::upgrade) {
            return server;
        }
        servers.retain(|_, server| server.strong_count() > 0);
        let server = Arc::new(Server::new(address));
        servers.insert(address.clone(), Arc::downgrade(&server));
        server
    }

    /// A report of all servers, in the order of their names.
    pub fn report(&self) -> Vec<ServerReport> {
        let servers: Vec<Arc<Server>> =
            self.by_address.lock().values().filter_map(Weak::upgrade).collect();
        let mut reports: Vec<_> = servers.iter().map(|server| server.report()).collect();
        reports.sort_by(|one, other| one.server.cmp(&other.server));
        // Addresses that differ only by user are one server.
        reports.dedup_by(|one, other| one.server == other.server);
        reports
    }

    /// Records whether some callers' primary is not known, as a worker has found.
    pub(super) fn set_lacks_primary(&self, lacks_primary: bool) {
        *self.lacks_primary.lock() = Some(lacks_primary);
    }

    /// The same by a worker that has not queried any server yet; does not replace another worker's
    /// finding.
    pub(super) fn suppose_lacks_primary(&self, lacks_primary: bool) {
        self.lacks_primary.lock().get_or_insert(lacks_primary);
    }

    /// Whether some callers' primary is not known.
    pub fn lacks_primary(&self) -> bool {
        self.lacks_primary.lock().unwrap_or(true)
    }
}
