//! Redis servers that say that they are primary of a shard, and are not used: whatever else writes
//! to them is lost. All workers of the process know them together, and they are told of until one
//! primary is left.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Time between two words in the log about the same server.
const REMINDER: Duration = Duration::from_secs(60);

/// How long one that does not answer is still told of.
const MEMORY: Duration = Duration::from_secs(10);

/// What to do about servers that do not tell enough.
const ADVICE: &str = "let the user INFO, and GET and SET this key; delete it if no proxy wrote it";

/// Those that are known.
#[derive(Debug, Default)]
pub struct Rivals {
    known: Mutex<BTreeMap<String, Noted>>,
    has_told_blindness: AtomicBool,
}

#[derive(Debug)]
struct Noted {
    rival: Rival,
    /// When it last said that it is primary.
    seen: Instant,
    /// When it was last told of.
    told: Instant,
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
    /// A server says that it is primary, and is not used.
    pub(super) fn note(&self, rival: Rival) {
        let now = Instant::now();
        let mut known = self.lock();
        match known.get_mut(&rival.server) {
            Some(noted) => (noted.rival, noted.seen) = (rival, now),
            None => {
                rival.warn();
                known.insert(rival.server.clone(), Noted { rival, seen: now, told: now });
            }
        }
    }

    /// A server is used, or says that it is no primary.
    pub(super) fn settle(&self, server: &str) {
        let noted = self.lock().remove(server);
        if let Some(Noted { rival: Rival { server, shard, .. }, .. }) = noted {
            tracing::info!(shard, server, "this redis server is no second primary any more");
        }
    }

    /// Servers do not tell enough to know which of two is right. That is logged once.
    pub(super) fn tell_blindness(&self, key: &str) {
        if !self.has_told_blindness.swap(true, Ordering::Relaxed) {
            let advice = ADVICE;
            tracing::warn!(
                key,
                advice,
                "redis does not tell where the data of its primaries come from: of two, the one in \
                 use stays in use"
            );
        }
    }

    /// All of them, by name.
    pub fn report(&self) -> Vec<Rival> {
        let known = self.lock();
        let recent = known.values().filter(|noted| noted.seen.elapsed() < MEMORY);
        recent.map(|noted| noted.rival.clone()).collect()
    }

    /// Logs those that were not told of lately.
    pub(super) fn remind(&self) {
        let mut known = self.lock();
        known.retain(|_, noted| noted.seen.elapsed() < MEMORY);
        for noted in known.values_mut().filter(|noted| noted.told.elapsed() >= REMINDER) {
            noted.rival.warn();
            noted.told = Instant::now();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Noted>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
