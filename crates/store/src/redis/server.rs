//! The state of a server, shared by all workers of the process.
//!
//! The first request that waits for a server in vain puts it in doubt for all workers: no other
//! request waits for it then, and each worker probes it on its own connection. The first reply ends
//! the doubt. A server is away once no worker has a connection to it; the first worker that reaches
//! it again notifies the others. Changes are logged once, whatever the number of workers.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use tollgate_observe::metrics::{Histogram, Shards};
use tollgate_settings::RedisAddress;

use super::{
    replication_marks::ReplicationMarks,
    server_report::{ReplicaLink, ServerHealth, ServerReport, ServerRole},
};

/// Characters of a reason that are kept.
const MAX_REASON: usize = 200;

/// How long a server that answers probes, but has left two charges in a row unanswered, gets no
/// further charge; twice as long each time, up to a maximum.
const DISTRUST: Duration = Duration::from_millis(300);
const LONGEST_DISTRUST: Duration = Duration::from_millis(1200);

/// A refusal is no longer reported after this time without another one: the server may take charges
/// again.
const REFUSAL_LASTS: Duration = Duration::from_secs(10);

/// One server.
pub(super) struct Server {
    name: String,
    /// A copy of `status.health` that is read without the lock.
    health: AtomicU8,
    status: Mutex<Status>,
    /// Its replication offsets, if it is a primary with replicas.
    pub(super) replication_marks: Mutex<ReplicationMarks>,
    /// Notified of each change of health.
    changed: Notify,
    /// How often it was reached again.
    recoveries: AtomicU32,
    /// Whether it has refused a charge since it last took one.
    has_refused: AtomicBool,
    /// How many charges put it in doubt since it last took one.
    unanswered_charges: AtomicU32,
    /// How long its replies took, by worker.
    pub(super) calls: Shards<CallTimes>,
}

/// How long replies took that a worker waited for.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct CallTimes(pub(super) Histogram<11>);

/// Upper bounds of them, in seconds.
static CALL_SECONDS: [f64; 11] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1];

impl Default for CallTimes {
    fn default() -> Self {
        CallTimes(Histogram::new(&CALL_SECONDS))
    }
}

struct Status {
    health: ServerHealth,
    /// Since when it has this health.
    since: Instant,
    /// Open connections of all workers.
    connections: usize,
    last_error: Option<String>,
    /// When it last refused a charge, and with which message.
    refusal: Option<(Instant, String)>,
    role: ServerRole,
    link: ReplicaLink,
    /// If it is a replica, it has everything that was written before this instant.
    current_at: Option<Instant>,
}

impl Server {
    pub(super) fn new(address: &RedisAddress) -> Server {
        Server {
            name: address.name(),
            health: AtomicU8::new(ServerHealth::Unknown as u8),
            status: Mutex::new(Status {
                health: ServerHealth::Unknown,
                since: Instant::now(),
                connections: 0,
                last_error: None,
                refusal: None,
                role: ServerRole::Unknown,
                link: ReplicaLink::Unknown,
                current_at: None,
            }),
            replication_marks: Mutex::default(),
            changed: Notify::new(),
            recoveries: AtomicU32::new(0),
            has_refused: AtomicBool::new(false),
            calls: Shards::default(),
            unanswered_charges: AtomicU32::new(0),
        }
    }

    /// Whether it is in doubt or away, so that no request should wait for it.
    pub(super) fn is_doubted(&self) -> bool {
        self.health.load(Ordering::Relaxed) >= ServerHealth::Doubted as u8
    }

    /// Whether it is known to be away, or has been in doubt for at least this time.
    pub(super) fn is_away_or_doubted_for(&self, time: Duration) -> bool {
        if !self.is_doubted() {
            return false;
        }
        let status = self.status.lock();
        match status.health {
            ServerHealth::Away => true,
            ServerHealth::Doubted => status.since.elapsed() >= time,
            ServerHealth::Unknown | ServerHealth::Serving => false,
        }
    }

    /// A request has waited for it in vain.
    pub(super) fn doubt(&self) {
        let mut status = self.status.lock();
        if matches!(status.health, ServerHealth::Unknown | ServerHealth::Serving) {
            self.set_health(&mut status, ServerHealth::Doubted);
        }
    }

    /// It has answered, soon enough to be of use.
    pub(super) fn note_answer(&self) {
        let mut status = self.status.lock();
        if status.health == ServerHealth::Serving {
            return;
        }
        if status.health == ServerHealth::Away {
            tracing::info!(server = %self.name, "redis is back");
        }
        self.recoveries.fetch_add(1, Ordering::Relaxed);
        self.set_health(&mut status, ServerHealth::Serving);
    }

    /// A worker cannot reach it: it is away, unless another worker still has a connection. Returns
    /// whether it answers that worker.
    pub(super) fn note_unreachable(&self, reason: &dyn fmt::Display) -> bool {
        let mut status = self.status.lock();
        if status.connections == 0 {
            self.become_away(&mut status, reason);
        }
        status.health == ServerHealth::Serving
    }

    /// It answers too late to be of use, unless another worker has found otherwise.
    pub(super) fn note_late(&self) {
        let mut status = self.status.lock();
        if status.health == ServerHealth::Doubted {
            self.become_away(&mut status, &"it answers too late");
        }
    }

    fn become_away(&self, status: &mut Status, reason: &dyn fmt::Display) {
        status.last_error = Some(reason.to_string().chars().take(MAX_REASON).collect());
        if status.health != ServerHealth::Away {
            tracing::warn!(server = %self.name, %reason, "redis is away");
            self.set_health(status, ServerHealth::Away);
        }
    }

    fn set_health(&self, status: &mut Status, health: ServerHealth) {
        status.health = health;
        status.since = Instant::now();
        self.health.store(health as u8, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Waits for the next change of health after this was called.
    pub(super) fn changed(&self) -> impl Future<Output = ()> {
        self.changed.notified()
    }

    /// How often it was reached again until now.
    pub(super) fn recoveries(&self) -> u32 {
        self.recoveries.load(Ordering::Relaxed)
    }

    /// Waits until it was reached again since the count was `recoveries`.
    pub(super) async fn recovered_since(&self, recoveries: u32) {
        loop {
            let changed = self.changed.notified();
            if self.recoveries() != recoveries {
                return;
            }
            changed.await;
        }
    }

    /// It has refused a charge with this message.
    pub(super) fn note_refusal(&self, message: &str) {
        let message = message.chars().take(MAX_REASON).collect();
        self.status.lock().refusal = Some((Instant::now(), message));
        self.has_refused.store(true, Ordering::Relaxed);
    }

    /// A charge has waited for it in vain, and put it in doubt.
    pub(super) fn count_unanswered_charge(&self) {
        self.unanswered_charges.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits before a server that answers probes gets a charge again: at once at first, but longer
    /// if it has answered probes before and then left charges unanswered, as a server does that
    /// blocks all writes.
    pub(super) async fn until_trusted(&self) {
        let begun = Instant::now();
        loop {
            let changed = self.changed.notified();
            let Some(times) = self.unanswered_charges.load(Ordering::Relaxed).checked_sub(2) else {
                return;
            };
            let distrust = DISTRUST.saturating_mul(1 << times.min(16)).min(LONGEST_DISTRUST);
            if !self.is_doubted() || timeout_at(begun + distrust, changed).await.is_err() {
                return;
            }
        }
    }

    /// It has taken a charge, in time or not.
    pub(super) fn note_charge_taken(&self) {
        if self.unanswered_charges.load(Ordering::Relaxed) > 0 {
            self.unanswered_charges.store(0, Ordering::Relaxed);
            self.changed.notify_waiters();
        }
        if self.has_refused.load(Ordering::Relaxed) {
            self.has_refused.store(false, Ordering::Relaxed);
            self.status.lock().refusal = None;
        }
    }

    /// Records its role, as a worker has found.
    pub(super) fn note_role(&self, role: ServerRole) {
        self.status.lock().role = role;
    }

    /// The same by a worker that has not queried any server yet; does not replace another worker's
    /// finding.
    pub(super) fn suppose_role(&self, role: ServerRole) {
        let mut status = self.status.lock();
        if status.role == ServerRole::Unknown {
            status.role = role;
        }
    }

    /// Records how far it is behind its primary, and the instant before which it has everything.
    pub(super) fn note_link(&self, link: ReplicaLink, current_at: Option<Instant>) {
        let mut status = self.status.lock();
        status.link = link;
        status.current_at = current_at;
    }

    /// Whether it is known to have everything that was written longer than `age` ago.
    pub(super) fn is_current(&self, age: Duration) -> bool {
        self.status.lock().current_at.is_some_and(|at| at.elapsed() <= age)
    }

    pub(super) fn report(&self) -> ServerReport {
        let status = self.status.lock();
        let refusal = status.refusal.as_ref().filter(|(at, _)| at.elapsed() < REFUSAL_LASTS);
        ServerReport {
            server: self.name.clone(),
            role: status.role,
            health: status.health,
            lasted: status.since.elapsed(),
            last_error: status.last_error.clone(),
            refusal: refusal.map(|(_, message)| message.clone()),
            link: status.link,
            calls: self
                .calls
                .read(|all| Histogram::total(&CALL_SECONDS, all.iter().map(|own| &own.0))),
        }
    }
}

/// An open connection to a server.
pub(super) struct OpenConnection(Arc<Server>);

impl OpenConnection {
    pub(super) fn new(server: &Arc<Server>) -> OpenConnection {
        server.status.lock().connections += 1;
        OpenConnection(Arc::clone(server))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut status = self.0.status.lock();
        status.connections = status.connections.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Arc<Server> {
        Arc::new(Server::new(&RedisAddress::new("10.0.0.1", 6379)))
    }

    fn health(server: &Server) -> ServerHealth {
        let health = server.report().health;
        assert_eq!(server.is_doubted(), health >= ServerHealth::Doubted);
        health
    }

    #[test]
    fn reply_ends_the_doubt() {
        let server = server();
        server.doubt();
        assert_eq!(health(&server), ServerHealth::Doubted);
        server.note_answer();
        assert_eq!(health(&server), ServerHealth::Serving);
    }

    #[test]
    fn server_is_away_when_no_worker_has_a_connection() {
        let server = server();
        let connections = [OpenConnection::new(&server), OpenConnection::new(&server)];
        server.note_answer();
        for connection in connections {
            assert!(server.note_unreachable(&"refused"), "the server answers other workers");
            assert_eq!(health(&server), ServerHealth::Serving);
            drop(connection);
        }
        assert!(!server.note_unreachable(&"refused"));
        assert_eq!(health(&server), ServerHealth::Away);
        assert_eq!(server.report().last_error.as_deref(), Some("refused"));
        server.doubt();
        assert_eq!(health(&server), ServerHealth::Away, "it is away already");
    }

    #[test]
    fn late_answer_to_one_worker_changes_nothing_for_the_others() {
        let server = server();
        server.note_answer();
        server.note_late();
        assert_eq!(health(&server), ServerHealth::Serving);
        server.doubt();
        server.note_late();
        assert_eq!(health(&server), ServerHealth::Away);
    }

    #[tokio::test]
    async fn waiting_worker_is_notified_when_another_has_reached_the_server() {
        let server = server();
        let before = server.recoveries();
        server.note_unreachable(&"refused");
        let waiting = server.recovered_since(before);
        server.note_answer();
        waiting.await;
        server.recovered_since(before).await;
    }
}
