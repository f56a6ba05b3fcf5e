//! Other proxies that share a Redis with this one. Each proxy announces there every few seconds how
//! many of its callers are in a next store, and reads the announcements of the others.
//!
//! Proxies without a next store announce themselves as well: a proxy that moves callers must know
//! of them.

use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tollgate_clock::Timestamp;

use super::heartbeat::{Duty, Turn};
use crate::{
    Store,
    moving::Announcement,
    redis::{CommandError, ProxyList},
};

/// Time between two announcements of a process.
const PAUSE: Duration = Duration::from_secs(2);

/// Most other proxies that are read. Where there are more, callers are moved only by `now`.
pub(crate) const MAX_PEERS: usize = 1000;

/// What a process has announced about callers that are moved.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    pub(crate) duty: Arc<Duty>,
    /// The change of the move that was announced last.
    announced: AtomicU32,
    /// Whether an announcement was made or tried since the start.
    has_announced: AtomicBool,
}

impl Peers {
    /// A turn for an announcement, if one is due: every few seconds, and after each change.
    fn take_turn(&self, changes: u32, now: Instant) -> Option<Turn> {
        let is_changed = self.announced.load(Ordering::Relaxed) != changes;
        let turn = self.duty.take_turn(now, |age| is_changed || age >= PAUSE)?;
        self.announced.store(changes, Ordering::Relaxed);
        Some(turn)
    }
}

impl Store {
    /// Announces this proxy in the background: every few seconds, and after each change of the
    /// move.
    pub(crate) fn announce_if_due(self: &Rc<Self>, now: Timestamp) {
        let changes = self.stores.moving.changes();
        if let Some(turn) = self.stores.peers.take_turn(changes, Instant::now()) {
            let store = Rc::clone(self);
            tokio::task::spawn_local(async move {
                store.announce(now).await;
                drop(turn);
            });
        }
    }

    /// Whether this proxy was announced, or that was tried, or is not needed.
    pub(crate) fn has_announced(&self) -> bool {
        self.stores.peers.has_announced.load(Ordering::Relaxed) || self.redis().next().is_none()
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
        let max_others = if needs_peers { MAX_PEERS } else { 0 };
        let replies = self.announce_in(ProxyList::Moves, &text, max_others, deadline).await;
        peers.has_announced.store(true, Ordering::Relaxed);
        // An unreadable announcement is that of another version, and counts as one without a next
        // store.
        let decoded = replies.others.values().map(|text| decode(text).unwrap_or(UNREADABLE));
        let others: Vec<Announcement> = decoded.collect();
        if needs_peers {
            let failure = replies.failures.last().map(CommandError::to_string);
            moving.update(failure.map_or(Ok(others.as_slice()), Err), now);
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
        let now = Instant::now();
        let turn = peers.take_turn(0, now);
        assert!(turn.is_some());
        assert!(peers.take_turn(1, now).is_none(), "it is being made");
        drop(turn);
        assert!(peers.take_turn(1, now).is_some(), "something has changed since");
        assert!(peers.take_turn(1, now + PAUSE - Duration::from_millis(1)).is_none());
        assert!(peers.take_turn(1, now + PAUSE).is_some());
        peers.duty.end();
        assert!(peers.take_turn(2, now + PAUSE).is_none());
    }
}
