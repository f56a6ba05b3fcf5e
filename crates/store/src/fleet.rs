//! What the proxies that share a Redis say about themselves, for the people who run them.
//!
//! Each proxy writes a summary of itself every few seconds, in a hash called `<prefix>:fleet`; it is
//! valid for ten seconds. The summaries of others are read only while somebody asks for them: with
//! many proxies they are long. All that is done by workers in the background, and no request waits
//! for it.

use std::{
    collections::BTreeMap,
    rc::Rc,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Store,
    redis::{AnnounceError, ProxyAnnouncement, ProxyList},
};

/// Time between two summaries of a proxy.
const PAUSE: Duration = Duration::from_secs(3);

/// Time between two reads that somebody asks for.
const READ_PAUSE: Duration = Duration::from_millis(500);

/// How long summaries of others are read on after somebody has asked.
const INTEREST: Duration = Duration::from_secs(30);

/// How long a summary is valid.
const VALIDITY: Duration = Duration::from_secs(10);

/// Most other proxies whose summaries are read.
const MAX_OTHERS: usize = 500;

/// What a process knows of the proxies that share its Redis.
#[derive(Debug, Default)]
pub struct Fleet {
    state: Mutex<State>,
    /// Whether a worker is writing and reading.
    is_busy: AtomicBool,
    has_warned: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// What this process says of itself. None: it says nothing yet.
    summary: Option<String>,
    /// When that was last written, or that was tried.
    begun: Option<Instant>,
    asked: Option<Instant>,
    others: OtherProxies,
}

/// The summaries of other proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherProxies {
    /// By the random name of the process.
    pub summaries: BTreeMap<String, String>,
    /// When they were read. None: they were not read yet.
    pub read: Option<Instant>,
    /// Why they are not known, or not all of them.
    pub problem: Option<String>,
}

impl Fleet {
    /// What this process says of itself from now on.
    pub fn describe(&self, summary: String) {
        lock(&self.state).summary = Some(summary);
    }

    /// What is known of other proxies. Somebody asks, so it is read anew in the background.
    pub fn others(&self) -> OtherProxies {
        self.others_at(Instant::now())
    }

    fn others_at(&self, now: Instant) -> OtherProxies {
        let mut state = lock(&self.state);
        state.asked = Some(now);
        state.others.clone()
    }

    /// The summary to write, if that is due, and whether to read those of others. The calling
    /// worker must do it.
    fn take_turn(&self, now: Instant) -> Option<(String, bool)> {
        let mut state = lock(&self.state);
        let summary = state.summary.clone()?;
        let is_asked = state.asked.is_some_and(|asked| now - asked < INTEREST);
        let is_late = |pause| state.begun.is_none_or(|begun| now - begun >= pause);
        let is_unread = is_asked && state.others.read < state.asked;
        let is_due = is_late(PAUSE) || is_unread && is_late(READ_PAUSE);
        if !is_due || self.is_busy.swap(true, Ordering::Relaxed) {
            return None;
        }
        state.begun = Some(now);
        Some((summary, is_asked))
    }
}

/// Held while a worker writes. Dropped with its task, so that another worker may when this one ends.
struct FleetTurn(Rc<Store>);

impl Drop for FleetTurn {
    fn drop(&mut self) {
        self.0.stores.fleet.is_busy.store(false, Ordering::Relaxed);
    }
}

impl Store {
    /// Writes the summary of this proxy in the background, every few seconds.
    pub(super) fn describe_in_background(self: &Rc<Self>) {
        if self.redis().next().is_none() || self.stores.peers.has_left() {
            return;
        }
        if let Some((summary, reads)) = self.stores.fleet.take_turn(Instant::now()) {
            let turn = FleetTurn(Rc::clone(self));
            tokio::task::spawn_local(async move {
                turn.0.describe(&summary, reads).await;
            });
        }
    }

    /// Removes the summary of this proxy, which ends.
    pub(super) async fn end_description(&self, deadline: Instant) {
        let announcement = self.fleet_announcement("", 0);
        for redis in self.redis() {
            // If that fails, the summary expires.
            let _ = redis.announce(&announcement, deadline).await;
        }
    }

    async fn describe(&self, summary: &str, reads: bool) {
        let fleet = &self.stores.fleet;
        let begun = Instant::now();
        let deadline = begun + self.background_timeout();
        let announcement = self.fleet_announcement(summary, if reads { MAX_OTHERS } else { 0 });
        let mut summaries = BTreeMap::new();
        let mut problem = None;
        for redis in self.redis() {
            match redis.announce(&announcement, deadline).await {
                Ok(found) => summaries.extend(found),
                Err(error) => {
                    if let AnnounceError::Refused(_) = &error
                        && !fleet.has_warned.swap(true, Ordering::Relaxed)
                    {
                        tracing::warn!(
                            %error,
                            "this proxy cannot be listed in redis for `tollgate status --fleet`"
                        );
                    }
                    problem = Some(format!("redis does not tell of other proxies: {error}"));
                }
            }
        }
        if reads {
            let others = OtherProxies { summaries, read: Some(begun), problem };
            lock(&fleet.state).others = others;
        }
    }

    fn fleet_announcement<'a>(&'a self, text: &'a str, max_peers: usize) -> ProxyAnnouncement<'a> {
        let name = self.stores.peers.name();
        ProxyAnnouncement { list: ProxyList::Fleet, name, text, validity: VALIDITY, max_peers }
    }
}

/// A panic cannot leave these half-written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_is_written_every_few_seconds_and_others_are_read_when_asked_for() {
        let fleet = Fleet::default();
        let start = Instant::now();
        let turn = |now: Instant| {
            let turn = fleet.take_turn(now);
            fleet.is_busy.store(false, Ordering::Relaxed);
            turn.map(|(_, reads)| reads)
        };
        assert_eq!(turn(start), None, "it has nothing to say");
        fleet.describe("a".into());
        assert_eq!(turn(start), Some(false));
        assert_eq!(turn(start), None);
        let mut now = start + PAUSE;
        assert_eq!(turn(now), Some(false));
        now += READ_PAUSE;
        assert_eq!(turn(now), None);
        fleet.others_at(now);
        assert_eq!(turn(now), Some(true));
        lock(&fleet.state).others.read = Some(now);
        now += READ_PAUSE;
        assert_eq!(turn(now), None, "nobody has asked since");
        now += PAUSE;
        assert_eq!(turn(now), Some(true), "somebody has asked lately");
        now += INTEREST;
        assert_eq!(turn(now), Some(false));
    }

    #[test]
    fn one_worker_writes_at_a_time() {
        let fleet = Fleet::default();
        let now = Instant::now();
        fleet.describe("a".into());
        assert!(fleet.take_turn(now).is_some());
        assert!(fleet.take_turn(now + PAUSE).is_none());
    }
}
