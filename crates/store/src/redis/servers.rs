//! The servers of one store.
//!
//! Each server's state is shared by all workers of the process (`server`).

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::{Mutex, MutexGuard};
use tollgate_settings::Endpoint;

use super::{server::Server, server_report::ServerReport};

/// The servers of one store. Holds those that a worker uses, and drops the others.
#[derive(Default)]
pub struct Servers {
    by_endpoint: Mutex<HashMap<Endpoint, Weak<Server>>>,
    /// Whether some callers' primary is not known; none: no worker has looked yet.
    lacks_primary: Mutex<Option<bool>>,
}

impl Servers {
    /// The server at an address, the same for all workers.
    pub(super) fn at(&self, endpoint: &Endpoint) -> Arc<Server> {
        let mut servers = self.lock();
        if let Some(server) = servers.get(endpoint).and_then(Weak::upgrade) {
            return server;
        }
        servers.retain(|_, server| server.strong_count() > 0);
        let server = Arc::new(Server::new(endpoint));
        servers.insert(endpoint.clone(), Arc::downgrade(&server));
        server
    }

    /// A report of all servers, in the order of their names.
    pub fn report(&self) -> Vec<ServerReport> {
        let servers: Vec<Arc<Server>> = self.lock().values().filter_map(Weak::upgrade).collect();
        let mut reports: Vec<_> = servers.iter().map(|server| server.report()).collect();
        reports.sort_by(|one, other| one.server.cmp(&other.server));
        // Endpoints that differ only by user are one server.
        reports.dedup_by(|one, other| one.server == other.server);
        reports
    }

    /// Records whether some callers' primary is not known, as a worker has found.
    pub(super) fn set_lacks_primary(&self, lacks_primary: bool) {
        *self.lock_lacks_primary() = Some(lacks_primary);
    }

    /// The same by a worker that has not queried any server yet; does not replace another worker's
    /// finding.
    pub(super) fn suppose_lacks_primary(&self, lacks_primary: bool) {
        self.lock_lacks_primary().get_or_insert(lacks_primary);
    }

    /// Whether some callers' primary is not known.
    pub fn lacks_primary(&self) -> bool {
        self.lock_lacks_primary().unwrap_or(true)
    }

    fn lock_lacks_primary(&self) -> MutexGuard<'_, Option<bool>> {
        self.lacks_primary.lock()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Endpoint, Weak<Server>>> {
        self.by_endpoint.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_the_state_of_a_server() {
        let servers = Servers::default();
        let endpoint = Endpoint::new("10.0.0.1", 6379);
        let server = servers.at(&endpoint);
        server.doubt();
        assert!(servers.at(&endpoint).is_doubted());
    }

    #[test]
    fn unused_server_is_dropped() {
        let servers = Servers::default();
        let kept = servers.at(&Endpoint::new("10.0.0.1", 6379));
        drop(servers.at(&Endpoint::new("10.0.0.2", 6379)));
        let names: Vec<String> = servers.report().into_iter().map(|it| it.server).collect();
        assert_eq!(names, [kept.report().server]);
        for port in 1..100 {
            drop(servers.at(&Endpoint::new("10.0.0.3", port)));
        }
        assert!(servers.lock().len() <= 2);
    }
}
