//! What a process does every so often for the proxies that share a Redis with it. One of its
//! workers does it at a time, in the background, and no request waits for it.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher, Hasher},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tollgate_clock::Timestamp;

use crate::{
    Store,
    redis::{CommandError, ProxyAnnouncement, ProxyList},
};

/// This process among the proxies that share a Redis.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// A random number that no other process has.
    pub(crate) number: u64,
    /// The same as its name.
    pub(crate) name: String,
}

/// Work of which one worker of the process does one piece at a time.
#[derive(Debug, Default)]
pub(crate) struct Duty {
    is_busy: AtomicBool,
    /// Whether this process is ending and does it no more.
    has_ended: AtomicBool,
    /// When a worker last began it.
    begun: Mutex<Option<Instant>>,
}

/// Held while a worker does its duty. Dropped with its task, so that another worker may when this
/// one ends.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Duty>);

/// What came of an announcement in each Redis.
pub(crate) struct AnnounceReplies {
    /// What other proxies announce, by their names.
    pub(crate) others: HashMap<String, String>,
    pub(crate) failures: Vec<CommandError>,
}

impl Default for Heartbeat {
    fn default() -> Self {
        let number = RandomState::new().build_hasher().finish();
        Heartbeat { number, name: format!("{number:016x}") }
    }
}

impl Duty {
    /// A turn for the calling worker, if no other has one and the duty is due: `is_due` says so by
    /// the time since the last turn.
    pub(crate) fn take_turn(
        self: &Arc<Self>,
        now: Instant,
        is_due: impl FnOnce(Duration) -> bool,
    ) -> Option<Turn> {
        let mut begun = self.begun.lock();
        let is_due = begun.is_none_or(|begun| is_due(now.saturating_duration_since(begun)));
        let may_begin = is_due && !self.has_ended.load(Ordering::Relaxed);
        if !may_begin || self.is_busy.swap(true, Ordering::Relaxed) {
            return None;
        }
        *begun = Some(now);
        Some(Turn(Arc::clone(self)))
    }

    /// Gives out no more turns.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Relaxed);
    }
}

impl Store {
    /// Does in the background what is due: announces this proxy to others, describes it for people,
    /// and reads what others have reset.
    pub(crate) fn beat(self: &Rc<Self>, now: Timestamp) {
        if self.redis().next().is_some() {
            self.announce_if_due(now);
            self.describe_if_due();
            self.read_resets_if_due();
        }
    }

    /// Announces `text` in a list of each Redis, and reads at most `max_others` texts of others.
    pub(crate) async fn announce_in(
        &self,
        list: ProxyList,
        text: &str,
        max_others: usize,
        deadline: Instant,
    ) -> AnnounceReplies {
        let name = &self.stores.heartbeat.name;
        let announcement = ProxyAnnouncement { list, name, text, max_others };
        let mut replies = AnnounceReplies { others: HashMap::new(), failures: Vec::new() };
        for redis in self.redis() {
            match redis.announce(&announcement, deadline).await {
                Ok(others) => replies.others.extend(others),
                Err(error) => {
                    tracing::debug!(?list, %error, "this proxy could not be announced to others");
                    replies.failures.push(error);
                }
            }
        }
        replies
    }

    /// Withdraws what this proxy announces, which ends.
    pub(crate) async fn withdraw(&self, deadline: Instant) {
        self.stores.peers.duty.end();
        self.stores.fleet.duty.end();
        for list in [ProxyList::Moves, ProxyList::Fleet] {
            // If that fails, the announcement expires.
            self.announce_in(list, "", 0, deadline).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_has_a_turn_at_a_time_and_only_when_it_is_due() {
        let duty = Arc::<Duty>::default();
        let now = Instant::now();
        let turn = duty.take_turn(now, |_| false);
        assert!(turn.is_some(), "the first is due");
        assert!(duty.take_turn(now, |_| true).is_none(), "another worker has it");
        drop(turn);
        let later = now + Duration::from_secs(2);
        assert!(duty.take_turn(later, |age| age > Duration::from_secs(2)).is_none());
        assert!(duty.take_turn(later, |age| age >= Duration::from_secs(2)).is_some());
        duty.end();
        assert!(duty.take_turn(later, |_| true).is_none(), "the process ends");
    }
}
