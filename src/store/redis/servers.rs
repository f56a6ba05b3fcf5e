//! How each server is, as all workers of the process know it together.
//!
//! The first request that waits for a server in vain has it in doubt for all workers: nobody else
//! waits for it then, and each worker asks on its own connection whether it is there. The first
//! answer ends the doubt. A server is away once no worker has a connection to it; the first worker
//! that finds it again tells the others. What happens to a server is logged once, whatever the
//! number of workers.

mod report;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::replicas::Written;
use crate::settings::Endpoint;

pub use self::report::{ReplicaLink, ServerHealth, ServerReport, ServerRole};

/// Characters of a reason that are kept.
const MAX_REASON: usize = 200;

/// How long a server that tells that it is there, and in vain was asked for a charge twice in a row, is
/// not asked for another; twice as long each time, and at most.
const DISTRUST: Duration = Duration::from_millis(300);
const LONGEST_DISTRUST: Duration = Duration::from_millis(1200);

/// A server that so long ago refused a charge, and has not been asked for one since, may take it.
const REFUSAL_LASTS: Duration = Duration::from_secs(10);

/// The servers of one store. It has those that some worker uses, and forgets the others.
#[derive(Default)]
pub struct Servers {
    by_endpoint: Mutex<HashMap<Endpoint, Weak<Server>>>,
    /// Whether it is not known who takes the charges of some callers; none: nobody has looked.
    lacks_primary: Mutex<Option<bool>>,
}

/// One server.
pub(super) struct Server {
    name: String,
    /// The health among the notes, for those who have no time to wait for them.
    health: AtomicU8,
    notes: Mutex<Notes>,
    /// How much it has written, if it is a primary with replicas.
    written: Mutex<Written>,
    /// Told of each change of health.
    changed: Notify,
    /// How often it was found again.
    returns: AtomicU32,
    /// Whether it has refused a charge since it last took one.
    refuses: AtomicBool,
    /// How often it was in doubt for a charge since it last took one.
    vain: AtomicU32,
}

struct Notes {
    health: ServerHealth,
    /// When it became so.
    since: Instant,
    /// Connections of all workers.
    lines: usize,
    last_error: Option<String>,
    /// When it last refused a charge, and in which words.
    refusal: Option<(Instant, String)>,
    role: ServerRole,
    link: ReplicaLink,
    /// All that was written before then is in it, if it is a replica.
    current_at: Option<Instant>,
}

impl Servers {
    /// The server at an address, the same for all who ask.
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

    /// How all servers are, in the order of their names.
    pub fn report(&self) -> Vec<ServerReport> {
        let servers: Vec<Arc<Server>> = self.lock().values().filter_map(Weak::upgrade).collect();
        let mut reports: Vec<_> = servers.iter().map(|server| server.report()).collect();
        reports.sort_by(|one, other| one.server.cmp(&other.server));
        // Those that differ by their users only are one server.
        reports.dedup_by(|one, other| one.server == other.server);
        reports
    }

    /// Notes whether it is not known who takes the charges of some callers, as a worker has found.
    pub(super) fn note_lack(&self, lacks_primary: bool) {
        *self.lack() = Some(lacks_primary);
    }

    /// The same for a worker that has asked nobody yet: others may know better.
    pub(super) fn suppose_lack(&self, lacks_primary: bool) {
        self.lack().get_or_insert(lacks_primary);
    }

    /// Whether it is not known who takes the charges of some callers.
    pub fn lacks_primary(&self) -> bool {
        self.lack().unwrap_or(true)
    }

    fn lack(&self) -> MutexGuard<'_, Option<bool>> {
        self.lacks_primary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Endpoint, Weak<Server>>> {
        self.by_endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    fn new(endpoint: &Endpoint) -> Server {
        Server {
            name: endpoint.name(),
            health: AtomicU8::new(ServerHealth::Unknown as u8),
            notes: Mutex::new(Notes {
                health: ServerHealth::Unknown,
                since: Instant::now(),
                lines: 0,
                last_error: None,
                refusal: None,
                role: ServerRole::Unknown,
                link: ReplicaLink::Unknown,
                current_at: None,
            }),
            written: Mutex::default(),
            changed: Notify::new(),
            returns: AtomicU32::new(0),
            refuses: AtomicBool::new(false),
            vain: AtomicU32::new(0),
        }
    }

    /// Whether it is in doubt or away, so that nobody should wait for it.
    pub(super) fn is_doubted(&self) -> bool {
        self.health.load(Ordering::Relaxed) >= ServerHealth::Doubted as u8
    }

    /// Whether it is known to be away, or in doubt for at least so long.
    pub(super) fn is_away_or_doubted_for(&self, time: Duration) -> bool {
        if !self.is_doubted() {
            return false;
        }
        let notes = self.notes();
        match notes.health {
            ServerHealth::Away => true,
            ServerHealth::Doubted => notes.since.elapsed() >= time,
            ServerHealth::Unknown | ServerHealth::Serving => false,
        }
    }

    /// Somebody has waited for it in vain.
    pub(super) fn doubt(&self) {
        let mut notes = self.notes();
        if matches!(notes.health, ServerHealth::Unknown | ServerHealth::Serving) {
            self.become_so(&mut notes, ServerHealth::Doubted);
        }
    }

    /// It has answered, soon enough to be of use.
    pub(super) fn answer(&self) {
        let mut notes = self.notes();
        if notes.health == ServerHealth::Serving {
            return;
        }
        if notes.health == ServerHealth::Away {
            tracing::info!(server = %self.name, "redis is back");
        }
        self.returns.fetch_add(1, Ordering::Relaxed);
        self.become_so(&mut notes, ServerHealth::Serving);
    }

    /// A worker cannot reach it: it is away, unless another worker still has a connection. Tells
    /// whether it answers that one.
    pub(super) fn miss(&self, reason: &dyn fmt::Display) -> bool {
        let mut notes = self.notes();
        if notes.lines == 0 {
            self.leave(&mut notes, reason);
        }
        notes.health == ServerHealth::Serving
    }

    /// It answers, but too late to be of use; unless another worker has found otherwise.
    pub(super) fn be_late(&self) {
        let mut notes = self.notes();
        if notes.health == ServerHealth::Doubted {
            self.leave(&mut notes, &"it answers too late");
        }
    }

    fn leave(&self, notes: &mut Notes, reason: &dyn fmt::Display) {
        notes.last_error = Some(reason.to_string().chars().take(MAX_REASON).collect());
        if notes.health != ServerHealth::Away {
            tracing::warn!(server = %self.name, %reason, "redis is away");
            self.become_so(notes, ServerHealth::Away);
        }
    }

    fn become_so(&self, notes: &mut Notes, health: ServerHealth) {
        (notes.health, notes.since) = (health, Instant::now());
        self.health.store(health as u8, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Waits for the next change of its health after this was called.
    pub(super) fn changed(&self) -> impl Future<Output = ()> {
        self.changed.notified()
    }

    /// How often it was found again until now.
    pub(super) fn returns(&self) -> u32 {
        self.returns.load(Ordering::Relaxed)
    }

    /// Waits until it was found again more often than so.
    pub(super) async fn returned_since(&self, returns: u32) {
        loop {
            let changed = self.changed.notified();
            if self.returns() != returns {
                return;
            }
            changed.await;
        }
    }

    /// It has refused to take a charge, in these words.
    pub(super) fn refuse(&self, words: &str) {
        let words = words.chars().take(MAX_REASON).collect();
        self.notes().refusal = Some((Instant::now(), words));
        self.refuses.store(true, Ordering::Relaxed);
    }

    /// A charge is waited for in vain, and has it in doubt.
    pub(super) fn count_vain(&self) {
        self.vain.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until its word that it is there is enough to ask it for a charge: not at once when it
    /// had said so before, and did not take one. It may let nobody write.
    pub(super) async fn trusted(&self) {
        let asked = Instant::now();
        loop {
            let changed = self.changed.notified();
            let Some(times) = self.vain.load(Ordering::Relaxed).checked_sub(2) else { return };
            let distrust = DISTRUST.saturating_mul(1 << times.min(16)).min(LONGEST_DISTRUST);
            if !self.is_doubted() || timeout_at(asked + distrust, changed).await.is_err() {
                return;
            }
        }
    }

    /// It has taken a charge, in time or not.
    pub(super) fn take(&self) {
        if self.vain.load(Ordering::Relaxed) > 0 {
            self.vain.store(0, Ordering::Relaxed);
            self.changed.notify_waiters();
        }
        if self.refuses.load(Ordering::Relaxed) {
            self.refuses.store(false, Ordering::Relaxed);
            self.notes().refusal = None;
        }
    }

    /// Notes what it is for, as a worker has found.
    pub(super) fn note_role(&self, role: ServerRole) {
        self.notes().role = role;
    }

    /// The same for a worker that has asked nobody yet: others may know better.
    pub(super) fn suppose_role(&self, role: ServerRole) {
        let mut notes = self.notes();
        if notes.role == ServerRole::Unknown {
            notes.role = role;
        }
    }

    /// Notes how far it is behind its primary, and before when nothing is missing in it.
    pub(super) fn note_link(&self, link: ReplicaLink, current_at: Option<Instant>) {
        let mut notes = self.notes();
        (notes.link, notes.current_at) = (link, current_at);
    }

    /// Whether all that was written longer than `age` ago is known to be in it.
    pub(super) fn is_current(&self, age: Duration) -> bool {
        self.notes().current_at.is_some_and(|at| at.elapsed() <= age)
    }

    /// How much it has written, if it is a primary with replicas.
    pub(super) fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self) -> ServerReport {
        let notes = self.notes();
        let refusal = notes.refusal.as_ref().filter(|(at, _)| at.elapsed() < REFUSAL_LASTS);
        ServerReport {
            server: self.name.clone(),
            role: notes.role,
            health: notes.health,
            lasted: notes.since.elapsed(),
            last_error: notes.last_error.clone(),
            refusal: refusal.map(|(_, words)| words.clone()),
            link: notes.link,
        }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection to a server, for as long as it lasts.
pub(super) struct Line(Arc<Server>);

impl Line {
    pub(super) fn new(server: &Arc<Server>) -> Line {
        server.notes().lines += 1;
        Line(Arc::clone(server))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut notes = self.0.notes();
        notes.lines = notes.lines.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Arc<Server> {
        Servers::default().at(&Endpoint::new("10.0.0.1", 6379))
    }

    fn health(server: &Server) -> ServerHealth {
        let health = server.report().health;
        assert_eq!(server.is_doubted(), health >= ServerHealth::Doubted);
        health
    }

    #[test]
    fn workers_share_what_they_know_of_a_server() {
        let (servers, endpoint) = (Servers::default(), Endpoint::new("10.0.0.1", 6379));
        let (one, other) = (servers.at(&endpoint), servers.at(&endpoint));
        one.doubt();
        assert_eq!(health(&other), ServerHealth::Doubted);
        other.answer();
        assert_eq!(health(&one), ServerHealth::Serving);
    }

    #[test]
    fn server_that_nobody_uses_is_forgotten() {
        let servers = Servers::default();
        let (one, other) = (Endpoint::new("10.0.0.1", 6379), Endpoint::new("10.0.0.2", 6379));
        let kept = servers.at(&one);
        drop(servers.at(&other));
        let names: Vec<String> = servers.report().into_iter().map(|it| it.server).collect();
        assert_eq!(names, [kept.name.as_str()]);
        for port in 1..100 {
            drop(servers.at(&Endpoint::new("10.0.0.3", port)));
        }
        assert!(servers.lock().len() <= 2);
    }

    #[test]
    fn server_is_away_when_no_worker_has_a_connection() {
        let server = server();
        let lines = [Line::new(&server), Line::new(&server)];
        server.answer();
        for line in lines {
            assert!(server.miss(&"refused"), "others are answered");
            assert_eq!(health(&server), ServerHealth::Serving);
            drop(line);
        }
        assert!(!server.miss(&"refused"));
        assert_eq!(health(&server), ServerHealth::Away);
        assert_eq!(server.report().last_error.as_deref(), Some("refused"));
        server.doubt();
        assert_eq!(health(&server), ServerHealth::Away, "that is known already");
    }

    #[test]
    fn one_worker_that_is_answered_late_says_nothing_about_the_others() {
        let server = server();
        server.answer();
        server.be_late();
        assert_eq!(health(&server), ServerHealth::Serving);
        server.doubt();
        server.be_late();
        assert_eq!(health(&server), ServerHealth::Away);
    }

    #[tokio::test]
    async fn worker_that_waits_hears_that_another_has_found_the_server() {
        let server = server();
        let before = server.returns();
        server.miss(&"refused");
        let waiting = server.returned_since(before);
        server.answer();
        waiting.await;
        server.returned_since(before).await;
    }
}
