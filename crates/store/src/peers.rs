//! Other proxies that share a Redis with this one. Each proxy announces there every few seconds how
//! many of its callers are in a next store, and reads the announcements of the others.
//!
//! Proxies without a next store announce themselves as well: a proxy that moves callers must know
//! of them.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher, Hasher},
    rc::Rc,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};

use tokio::time::Instant;
use tollgate_clock::Timestamp;

use super::{
    Store,
    moving::Announcement,
    redis::{ProxyAnnouncement, ProxyList},
};

/// Time between two announcements of a process, in ticks of a worker: about two seconds. Any worker
/// may make one, so it is less with several workers.
const PAUSE_TICKS: u32 = 20;

/// How long an announcement is valid.
const VALIDITY: Duration = Duration::from_secs(10);

/// Most other proxies that are read. Where there are more, callers are moved only by `now`.
pub(super) const MAX_PEERS: usize = 1000;

/// What a process knows and announces about proxies.
#[derive(Debug)]
pub(super) struct Peers {
    /// The random name of this process.
    name: String,
    /// Ticks since the last announcement.
    ticks: AtomicU32,
    /// The change of the move that was announced last.
    announced: AtomicU32,
    /// Whether a worker is announcing.
    is_busy: AtomicBool,
    /// Whether this process is ending and announces no more.
    has_left: AtomicBool,
    /// Whether an announcement was made or tried since the start.
    has_announced: AtomicBool,
}

impl Default for Peers {
    fn default() -> Self {
        Peers {
            name: format!("{:016x}", RandomState::new().build_hasher().finish()),
            ticks: AtomicU32::new(PAUSE_TICKS),
            announced: AtomicU32::new(0),
            is_busy: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            has_announced: AtomicBool::new(false),
        }
    }
}

impl Peers {
    /// The random name of this process.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether this process is ending and announces no more.
    pub(super) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    /// Whether an announcement is due; if so, the calling worker must make it.
    fn take_turn(&self, changes: u32) -> bool {
        let is_due = self.ticks.fetch_add(1, Ordering::Relaxed) >= PAUSE_TICKS
            || self.announced.load(Ordering::Relaxed) != changes;
        let is_mine = is_due
            && !self.has_left.load(Ordering::Relaxed)
            && !self.is_busy.swap(true, Ordering::Relaxed);
        if is_mine {
            self.ticks.store(0, Ordering::Relaxed);
            self.announced.store(changes, Ordering::Relaxed);
        }
        is_mine
    }
}

/// Held while a worker announces. Dropped with its task, so that another worker may announce when
/// this one ends.
struct AnnouncementTurn(Rc<Store>);

impl Drop for AnnouncementTurn {
    fn drop(&mut self) {
        self.0.stores.peers.is_busy.store(false, Ordering::Relaxed);
    }
}

impl Store {
    /// Announces this proxy in the background: every few seconds, and after each change of the
    /// move.
    pub(super) fn announce_in_background(self: &Rc<Self>, now: Timestamp) {
        if self.redis().next().is_some()
            && self.stores.peers.take_turn(self.stores.moving.changes())
        {
            let store = Rc::clone(self);
            let turn = AnnouncementTurn(Rc::clone(self));
            tokio::task::spawn_local(async move {
                store.announce(now).await;
                drop(turn);
            });
        }
    }

    /// Whether this proxy was announced, or that was tried, or is not needed.
    pub(super) fn has_announced(&self) -> bool {
        self.stores.peers.has_announced.load(Ordering::Relaxed) || self.redis().next().is_none()
    }

    /// Withdraws the announcement of this proxy, which ends.
    pub(super) async fn withdraw(&self, deadline: Instant) {
        let peers = &self.stores.peers;
        peers.has_left.store(true, Ordering::Relaxed);
        let announcement = ProxyAnnouncement {
            list: ProxyList::Moves,
            name: &peers.name,
            text: "",
            validity: VALIDITY,
            max_peers: 0,
        };
        for redis in self.redis() {
            // If that fails, the announcement expires.
            let _ = redis.announce(&announcement, deadline).await;
        }
    }

    /// Announces this proxy in each Redis, and reads the announcements of others if they matter.
    async fn announce(&self, now: Timestamp) {
        let peers = &self.stores.peers;
        let moving = &self.stores.moving;
        let deadline = Instant::now() + self.background_timeout();
        if !peers.has_announced.load(Ordering::Relaxed) {
            for redis in self.redis() {
                redis.ready(deadline).await;
            }
        }
        let needs_peers = moving.needs_peers();
        let text = encode(&moving.announcement(now));
        let announcement = ProxyAnnouncement {
            list: ProxyList::Moves,
            name: &peers.name,
            text: &text,
            validity: VALIDITY,
            max_peers: if needs_peers { MAX_PEERS } else { 0 },
        };
        let mut found = HashMap::new();
        let mut failure = None;
        for redis in self.redis() {
            match redis.announce(&announcement, deadline).await {
                Ok(announced) => found.extend(announced),
                Err(error) => {
                    tracing::debug!(%error, "this proxy could not be announced to other proxies");
                    failure = Some(error.to_string());
                }
            }
        }
        peers.has_announced.store(true, Ordering::Relaxed);
        // An unreadable announcement is that of another version, and counts as one without a next
        // store.
        let found: Vec<Announcement> =
            found.values().map(|text| decode(text).unwrap_or(UNREADABLE)).collect();
        if needs_peers {
            moving.update(failure.map_or(Ok(found.as_slice()), Err), now);
        }
    }
}

/// Stands for a proxy whose announcement cannot be read.
const UNREADABLE: Announcement = Announcement { charged: 0, moved: 0, age: Duration::ZERO };

fn encode(announcement: &Announcement) -> String {
    let Announcement { charged, moved, age } = announcement;
    format!("{charged} {moved} {}", age.as_millis())
}

fn decode(text: &str) -> Option<Announcement> {
    let mut fields = text.split(' ');
    Some(Announcement {
        charged: fields.next()?.parse().ok()?,
        moved: fields.next()?.parse().ok()?,
        age: Duration::from_millis(fields.next()?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcement_survives_being_written_down() {
        let announcement =
            Announcement { charged: 100, moved: 7, age: Duration::from_millis(86_400_123) };
        assert_eq!(decode(&encode(&announcement)), Some(announcement));
        for nonsense in ["", "1", "1 2", "a b c", "300 1 1", "1 2 -3"] {
            assert_eq!(decode(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn one_announcement_is_made_at_a_time_and_none_when_the_process_ends() {
        let peers = Peers::default();
        assert!(peers.take_turn(0));
        assert!(!peers.take_turn(1), "it is being made");
        peers.is_busy.store(false, Ordering::Relaxed);
        assert!(peers.take_turn(1), "something has changed since");
        peers.is_busy.store(false, Ordering::Relaxed);
        assert_eq!((0..PAUSE_TICKS).filter(|_| peers.take_turn(1)).count(), 0);
        assert!(peers.take_turn(1));
        peers.is_busy.store(false, Ordering::Relaxed);
        peers.has_left.store(true, Ordering::Relaxed);
        assert!(!peers.take_turn(2));
    }
}
