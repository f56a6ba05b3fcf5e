//! What the proxies that share a Redis say about themselves, for the people who run them.
//!
//! Each proxy writes a summary of itself every few seconds, in a hash called `<prefix>:fleet`; it
//! is valid for ten seconds. The summaries of others are read only while somebody asks for them:
//! with many proxies they are long. All that is done by workers in the background, and no request
//! waits for it.

use std::{
    collections::BTreeMap,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::heartbeat::{Duty, Turn};
use crate::{
    Store,
    redis::{CommandError, ProxyList},
};

/// Time between two summaries of a proxy.
const PAUSE: Duration = Duration::from_secs(3);

/// Time between two reads that somebody asks for.
const READ_PAUSE: Duration = Duration::from_millis(500);

/// How long summaries of others are read on after somebody has asked.
const INTEREST: Duration = Duration::from_secs(30);

/// Most other proxies whose summaries are read.
const MAX_OTHERS: usize = 500;

/// What a process knows of the proxies that share its Redis.
#[derive(Debug, Default)]
pub struct Fleet {
    state: Mutex<State>,
    pub(crate) duty: Arc<Duty>,
    has_warned: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// What this process says of itself. None: it says nothing yet.
    summary: Option<String>,
    asked: Option<Instant>,
    others: OtherProxies,
}

/// What a worker is to write and read.
struct FleetTurn {
    turn: Turn,
    summary: String,
    /// Whether to read the summaries of others.
    reads: bool,
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
        self.state.lock().summary = Some(summary);
    }

    /// What is known of other proxies. Somebody asks, so it is read anew in the background.
    pub fn others(&self) -> OtherProxies {
        self.others_at(Instant::now())
    }

    fn others_at(&self, now: Instant) -> OtherProxies {
        let mut state = self.state.lock();
        state.asked = Some(now);
        state.others.clone()
    }

    /// The summary to write, if that is due, and whether to read those of others.
    fn take_turn(&self, now: Instant) -> Option<FleetTurn> {
        let state = self.state.lock();
        let summary = state.summary.clone()?;
        let reads = state.asked.is_some_and(|asked| now - asked < INTEREST);
        let is_unread = reads && state.others.read < state.asked;
        let is_due = |age| age >= PAUSE || is_unread && age >= READ_PAUSE;
        Some(FleetTurn { turn: self.duty.take_turn(now, is_due)?, summary, reads })
    }
}

impl Store {
    /// Writes the summary of this proxy in the background, every few seconds.
    pub(crate) fn describe_if_due(self: &Rc<Self>) {
        if let Some(FleetTurn { turn, summary, reads }) =
            self.stores.fleet.take_turn(Instant::now())
        {
            let store = Rc::clone(self);
            tokio::task::spawn_local(async move {
                store.describe(&summary, reads).await;
                drop(turn);
            });
        }
    }

    async fn describe(&self, summary: &str, reads: bool) {
        let fleet = &self.stores.fleet;
        let begun = Instant::now();
        let deadline = begun + self.background_timeout();
        let max_others = if reads { MAX_OTHERS } else { 0 };
        let replies = self.announce_in(ProxyList::Fleet, summary, max_others, deadline).await;
        let is_refusal = |error: &&CommandError| matches!(error, CommandError::Refused(_));
        if let Some(error) = replies.failures.iter().find(is_refusal)
            && !fleet.has_warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                %error,
                "this proxy cannot be listed in redis for `tollgate status --fleet`"
            );
        }
        if reads {
            let problem = replies.failures.last();
            let problem =
                problem.map(|error| format!("redis does not tell of other proxies: {error}"));
            let summaries = replies.others.into_iter().collect();
            fleet.state.lock().others = OtherProxies { summaries, read: Some(begun), problem };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_is_written_every_few_seconds_and_others_are_read_when_asked_for() {
        let fleet = Fleet::default();
        let start = Instant::now();
        let turn = |now: Instant| fleet.take_turn(now).map(|turn| turn.reads);
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
        fleet.state.lock().others.read = Some(now);
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
        let turn = fleet.take_turn(now);
        assert!(turn.is_some());
        assert!(fleet.take_turn(now + PAUSE).is_none());
    }
}
