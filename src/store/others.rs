//! Other proxies, as far as they share a Redis with this one: each tells there every few seconds how
//! many of its callers are in a next store, and so knows of all others.
//!
//! Proxies without a next store tell that too: those who move callers must not overlook them.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher, Hasher},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{Store, Stores, moving::Announcement};
use crate::clock::Timestamp;

/// Time between two announcements of a process, in ticks of a worker: about two seconds. Any worker
/// may make one, so that with several it is less.
const PAUSE_TICKS: u32 = 20;

/// How long one is good for.
const GOOD_FOR: Duration = Duration::from_secs(10);

/// Other proxies that are looked at, at most. Where there are more, nobody is moved without being
/// told to `now`.
pub(super) const MOST: usize = 1000;

/// What a process does about announcements.
#[derive(Debug)]
pub(super) struct Others {
    /// What this process calls itself.
    name: String,
    /// Ticks since the last announcement.
    ticks: AtomicU32,
    /// The change of the move that was announced last.
    announced: AtomicU32,
    /// Whether one is being made.
    is_busy: AtomicBool,
    /// Whether the process ends, and was never there.
    has_gone: AtomicBool,
    /// Whether others were looked for since the start.
    has_looked: AtomicBool,
}

impl Default for Others {
    fn default() -> Self {
        Others {
            name: format!("{:016x}", RandomState::new().build_hasher().finish()),
            ticks: AtomicU32::new(PAUSE_TICKS),
            announced: AtomicU32::new(0),
            is_busy: AtomicBool::new(false),
            has_gone: AtomicBool::new(false),
            has_looked: AtomicBool::new(false),
        }
    }
}

impl Others {
    /// Whether it is time for an announcement; then it is this caller's to make.
    fn take_turn(&self, changes: u32) -> bool {
        let is_due = self.ticks.fetch_add(1, Ordering::Relaxed) >= PAUSE_TICKS
            || self.announced.load(Ordering::Relaxed) != changes;
        let is_mine = is_due
            && !self.has_gone.load(Ordering::Relaxed)
            && !self.is_busy.swap(true, Ordering::Relaxed);
        if is_mine {
            self.ticks.store(0, Ordering::Relaxed);
            self.announced.store(changes, Ordering::Relaxed);
        }
        is_mine
    }
}

/// The turn of who makes an announcement. It ends with the worker, too.
struct Turn(Arc<Stores>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.others.is_busy.store(false, Ordering::Relaxed);
    }
}

impl Store {
    /// Tells other proxies about this one, in the background, once in a while and after each change.
    pub(super) fn look_at_others(self: &Rc<Self>, now: Timestamp) {
        if self.redis().next().is_some()
            && self.stores.others.take_turn(self.stores.moving.changes())
        {
            let (store, turn) = (Rc::clone(self), Turn(Arc::clone(&self.stores)));
            tokio::task::spawn_local(async move {
                store.announce(now).await;
                drop(turn);
            });
        }
    }

    /// Whether other proxies, where there may be some, were told about this one, or it was tried.
    pub(super) fn has_looked_at_others(&self) -> bool {
        self.stores.others.has_looked.load(Ordering::Relaxed) || self.redis().next().is_none()
    }

    /// Tells other proxies that this one is no more.
    pub(super) async fn leave_others(&self, deadline: Instant) {
        let others = &self.stores.others;
        others.has_gone.store(true, Ordering::Relaxed);
        for redis in self.redis() {
            // If they are not told, they find out.
            let _ = redis.announce(&others.name, "", (GOOD_FOR, false), deadline).await;
        }
    }

    /// Tells each Redis about this proxy, and learns there about others, if they matter.
    async fn announce(&self, now: Timestamp) {
        let (others, moving) = (&self.stores.others, &self.stores.moving);
        let deadline = Instant::now() + self.look_timeout();
        if !others.has_looked.load(Ordering::Relaxed) {
            for redis in self.redis() {
                redis.ready(deadline).await;
            }
        }
        let looks = moving.looks_at_others();
        let words = to_words(&moving.announcement(now));
        let (mut found, mut untold) = (HashMap::new(), None);
        for redis in self.redis() {
            match redis.announce(&others.name, &words, (GOOD_FOR, looks), deadline).await {
                Ok(told) => found.extend(told),
                Err(error) => {
                    tracing::debug!(%error, "other proxies are not told about this one");
                    untold = Some(error.to_string());
                }
            }
        }
        others.has_looked.store(true, Ordering::Relaxed);
        // One that says what cannot be read is in another version's next store, or in none.
        let found: Vec<Announcement> =
            found.values().map(|words| of_words(words).unwrap_or(NOTHING)).collect();
        if looks {
            moving.hear(untold.map_or(Ok(found.as_slice()), Err), now);
        }
    }
}

/// What is known of a proxy whose words make no sense.
const NOTHING: Announcement = Announcement { charged: 0, moved: 0, age: Duration::ZERO };

fn to_words(announcement: &Announcement) -> String {
    let Announcement { charged, moved, age } = announcement;
    format!("{charged} {moved} {}", age.as_millis())
}

fn of_words(words: &str) -> Option<Announcement> {
    let mut words = words.split(' ');
    Some(Announcement {
        charged: words.next()?.parse().ok()?,
        moved: words.next()?.parse().ok()?,
        age: Duration::from_millis(words.next()?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcement_survives_being_written_down() {
        let announcement =
            Announcement { charged: 100, moved: 7, age: Duration::from_millis(86_400_123) };
        assert_eq!(of_words(&to_words(&announcement)), Some(announcement));
        for nonsense in ["", "1", "1 2", "a b c", "300 1 1", "1 2 -3"] {
            assert_eq!(of_words(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn one_announcement_is_made_at_a_time_and_none_when_the_process_ends() {
        let others = Others::default();
        assert!(others.take_turn(0));
        assert!(!others.take_turn(1), "it is being made");
        others.is_busy.store(false, Ordering::Relaxed);
        assert!(others.take_turn(1), "something has changed since");
        others.is_busy.store(false, Ordering::Relaxed);
        assert_eq!((0..PAUSE_TICKS).filter(|_| others.take_turn(1)).count(), 0);
        assert!(others.take_turn(1));
        others.is_busy.store(false, Ordering::Relaxed);
        others.has_gone.store(true, Ordering::Relaxed);
        assert!(!others.take_turn(2));
    }
}
