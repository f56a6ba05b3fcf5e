//! Redis servers that say that they are primary of a shard, and are not used: what other clients
//! write to them is lost. All workers of the process share the list, and log it again and again
//! until one primary is left.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Time between two lines in the log about the same server.
const REMINDER: Duration = Duration::from_secs(60);

/// After this time a server that does not answer is dropped from the list.
const EXPIRY: Duration = Duration::from_secs(10);

/// Advice for when the servers do not report enough to choose between them.
const ADVICE: &str = "let the user INFO, and GET and SET this key; delete it if no proxy wrote it";

/// The rivals that are known.
#[derive(Debug, Default)]
pub struct Rivals {
    known: Mutex<BTreeMap<String, KnownRival>>,
    has_warned_ambiguous: AtomicBool,
}

#[derive(Debug)]
struct KnownRival {
    rival: Rival,
    /// When it last reported that it is primary.
    last_seen: Instant,
    /// When it was last logged.
    logged: Instant,
}

/// A server that says that it is primary, and is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// Its host and port, and its database unless that is 0.
    pub server: String,
    /// The name of the shard, or of the service.
    pub shard: String,
    /// The server that is used, in the same form.
    pub used: String,
}

impl Rival {
    fn warn(&self) {
        let Rival { server, shard, used } = self;
        tracing::warn!(
            shard,
            used,
            unused = server,
            "two redis servers are primary of one shard: what the unused one takes is lost"
        );
    }
}

impl Rivals {
    /// Records that a server says that it is primary, and is not used.
    pub(crate) fn note(&self, rival: Rival) {
        let now = Instant::now();
        let mut known = self.known.lock();
        match known.get_mut(&rival.server) {
            Some(known_rival) => (known_rival.rival, known_rival.last_seen) = (rival, now),
            None => {
                rival.warn();
                known.insert(
                    rival.server.clone(),
                    KnownRival { rival, last_seen: now, logged: now },
                );
            }
        }
    }

    /// Records that a server is used, or says that it is no primary.
    pub(crate) fn settle(&self, server: &str) {
        let known_rival = self.known.lock().remove(server);
        if let Some(KnownRival { rival: Rival { server, shard, .. }, .. }) = known_rival {
            tracing::info!(shard, server, "this redis server is no longer a second primary");
        }
    }

    /// Warns once that the servers do not report enough to choose between two primaries.
    pub(crate) fn warn_ambiguous(&self, key: &str) {
        if !self.has_warned_ambiguous.swap(true, Ordering::Relaxed) {
            let advice = ADVICE;
            tracing::warn!(
                key,
                advice,
                "redis does not report where the data of its primaries come from: of two primaries, \
                 the one in use stays in use"
            );
        }
    }

    /// All of them, by name.
    pub fn report(&self) -> Vec<Rival> {
        let known = self.known.lock();
        let recent = known.values().filter(|known_rival| known_rival.last_seen.elapsed() < EXPIRY);
        recent.map(|known_rival| known_rival.rival.clone()).collect()
    }

    /// Logs those that were not logged for a while.
    pub(crate) fn remind(&self) {
        let mut known = self.known.lock();
        known.retain(|_, known_rival| known_rival.last_seen.elapsed() < EXPIRY);
        for known_rival in
            known.values_mut().filter(|known_rival| known_rival.logged.elapsed() >= REMINDER)
        {
            known_rival.rival.warn();
            known_rival.logged = Instant::now();
        }
    }
}
