//! Resets counters: they become as never used, in every store and in all that proxies remember of
//! them.
//!
//! A store that has the counters deletes them. That alone is not enough: a proxy remembers denials
//! for a second (`memo`), what Redis last reported (`cache`), its shares while Redis was away
//! (`fallback`), charges that are still to be written (`pending`), and, while callers are moved,
//! the counters of the store before. Redis therefore keeps a list of the counters that were reset
//! lately. Each proxy reads it twice a second and drops what it remembers of them.
//!
//! A proxy that has not read the list yet must not bring an earlier count back meanwhile. So a
//! reset leaves a marker beside each counter, as long as which the scripts that copy counts refuse
//! to. The marker lasts longer than a proxy copies without having read the list again.
//!
//! What was charged after the reset is copied all the same. Marker and list have the name of the
//! reset. A proxy that copies names the latest reset of which it had dropped what it remembered
//! before it read the state, and the scripts let that pass.
//!
//! The alternatives: a number that every charge reads along with its counters would cost each of
//! them another key. Messages by publish and subscribe are lost by a proxy that is reconnecting,
//! which would need the list all the same.

use std::{
    collections::HashMap,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tollgate_limit::Key;

use super::heartbeat::Duty;
use crate::{
    Backend, NotReset, Store,
    recent::Recent,
    redis::{ListedReset, Partition, ResetList},
};

/// Time between two reads of the list.
const PAUSE: Duration = Duration::from_millis(500);

/// How old the last read may be when a proxy copies a count: less than a marker lasts
/// (`COPY_GUARD`) by more than a copy takes.
const MAX_READ_AGE: Duration = Duration::from_secs(10);

/// Most counters of which the latest reset is known: what others charge after an earlier one may be
/// refused while its marker lasts.
const MAX_LATEST: usize = 10_000;

/// How many bits of a reset's name tell it from others of its process.
const NUMBER_BITS: u32 = 16;

/// What the workers of a process know of counters that were reset.
#[derive(Debug)]
pub(crate) struct Resets {
    /// How often this process has dropped what it remembered of some counters.
    generation: AtomicU64,
    /// The random name of this process.
    name: u64,
    /// How many resets this process has named.
    named: AtomicU64,
    /// The latest resets of counters of which this process has dropped what it remembered.
    latest: Mutex<Recent<u128, u64, MAX_LATEST>>,
    /// The lists as they were last read, by the number of the store and of the partition.
    known: Mutex<HashMap<(usize, usize), ResetList>>,
    /// When the lists were last read.
    read: Mutex<Option<Instant>>,
    duty: Arc<Duty>,
    has_warned: AtomicBool,
}

impl Resets {
    /// No counter was reset. The process has this random name.
    pub(crate) fn new(name: u64) -> Resets {
        Resets {
            generation: AtomicU64::new(0),
            name,
            named: AtomicU64::new(0),
            latest: Mutex::default(),
            known: Mutex::default(),
            read: Mutex::default(),
            duty: Arc::default(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// How often this process has dropped what it remembered of some counters. A reply to a call
    /// that was made before must not be remembered after.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What was remembered of some counters was dropped.
    pub(crate) fn begin_generation(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// A name for a reset by this process.
    fn next_name(&self) -> u64 {
        let number = self.named.fetch_add(1, Ordering::Relaxed) & ((1 << NUMBER_BITS) - 1);
        self.name >> NUMBER_BITS << NUMBER_BITS | number
    }

    /// Notes resets: of their counters nothing is remembered from before.
    fn note(&self, resets: &[ListedReset]) {
        let mut latest = self.latest.lock();
        resets.iter().for_each(|reset| latest.insert(reset.key.entry, reset.by));
    }

    /// The latest reset of a counter that is known: to be asked before a state is read that is
    /// copied into it.
    pub(crate) fn latest(&self, entry: u128) -> Option<u64> {
        self.latest.lock().get(&entry).copied()
    }

    /// Whether the last read is so recent that markers cover what came after it.
    fn is_recent(&self) -> bool {
        self.read.lock().is_some_and(|at| at.elapsed() < MAX_READ_AGE)
    }

    /// Whether this process has made a reset.
    fn is_own(&self, reset: &ListedReset) -> bool {
        (reset.by ^ self.name) >> NUMBER_BITS == 0
    }

    /// Replaces the list of a partition, and returns what was reset since it was last read, the
    /// latest last; also by this process, whose resets may be later than those of others.
    fn news(&self, at: (usize, Partition), list: ResetList) -> Vec<ListedReset> {
        let mut known = self.known.lock();
        let before = known.entry((at.0, at.1.index())).or_default();
        let is_new = |(entry, listed): &(&Vec<u8>, &f64)| before.get(*entry) != Some(*listed);
        let mut new: Vec<_> = list.iter().filter(is_new).collect();
        new.sort_by(|one, other| one.1.total_cmp(other.1));
        let new = new.into_iter().filter_map(|(entry, _)| ListedReset::decode(entry)).collect();
        *before = list;
        new
    }
}

impl Store {
    /// Makes counters as never used: in the stores, in what this process remembers, and within a
    /// second in what other proxies remember that share a Redis. Leases are ended: what is in
    /// flight is not counted any more.
    ///
    /// What a request that began before gives back or takes after may reach the new window.
    ///
    /// # Errors
    /// [`NotReset`] if a server did not answer or refused. Some of the counters may be reset then;
    /// the call may be repeated.
    pub async fn reset(&self, keys: &[Key]) -> Result<(), NotReset> {
        let deadline = Instant::now() + self.background_timeout();
        let by = self.stores.resets.next_name();
        let mut by_owner: HashMap<u128, Vec<Key>> = HashMap::new();
        for key in keys {
            by_owner.entry(key.owner).or_default().push(*key);
        }
        let mut result = Ok(());
        // The store before comes first: of a caller who is being moved, its counters are copied.
        for redis in self.redis() {
            for keys in by_owner.values() {
                result = result.and(redis.reset(keys, by, deadline).await);
            }
        }
        // Replies from before the deletion that come later are not remembered either.
        self.stores.forget(keys);
        let listed: Vec<ListedReset> =
            keys.iter().map(|key| ListedReset { key: *key, by }).collect();
        self.stores.resets.note(&listed);
        for redis in self.redis() {
            result = result.and(redis.announce_resets(&listed, deadline).await);
        }
        result?;
        keys.iter().for_each(|key| self.stores.waiting.given_back(key.entry));
        Ok(())
    }

    /// Reads in the background, twice a second, which counters other proxies have reset.
    pub(crate) fn read_resets_if_due(self: &Rc<Self>) {
        let turn = self.stores.resets.duty.take_turn(Instant::now(), |age| age >= PAUSE);
        if let Some(turn) = turn {
            let store = Rc::clone(self);
            tokio::task::spawn_local(async move {
                store.read_resets(Instant::now() + store.background_timeout()).await;
                drop(turn);
            });
        }
    }

    /// Reads which counters other proxies have reset, unless that was done lately. Must be called
    /// before a count is copied into a store that other proxies share.
    pub(crate) async fn learn_resets(&self, deadline: Instant) {
        if !self.stores.resets.is_recent() {
            self.read_resets(deadline).await;
        }
    }

    /// Drops what this process remembers of counters that other proxies have reset.
    pub(crate) async fn read_resets(&self, deadline: Instant) {
        let resets = &self.stores.resets;
        let begun = Instant::now();
        let backends = [Some(&self.current), self.next.as_ref()];
        let all = backends.into_iter().enumerate();
        for (number, redis) in all.filter_map(|(at, one)| Some((at, one.and_then(Backend::redis)?)))
        {
            match redis.listed_resets(deadline).await {
                Ok(lists) => {
                    for (partition, list) in lists {
                        let news = resets.news((number, partition), list);
                        // Of its own ones nothing is remembered since it made them.
                        let others = news.iter().filter(|listed| !resets.is_own(listed));
                        let keys: Vec<Key> = others.map(|listed| listed.key).collect();
                        if !keys.is_empty() {
                            self.stores.forget(&keys);
                        }
                        resets.note(&news);
                    }
                    *resets.read.lock() = Some(begun);
                }
                Err(error) => {
                    let is_refusal = matches!(error, NotReset::Refused(_));
                    if is_refusal {
                        // To ask again before each copy would only delay requests.
                        *resets.read.lock() = Some(begun);
                    }
                    if is_refusal && !resets.has_warned.swap(true, Ordering::Relaxed) {
                        tracing::warn!(
                            %error,
                            "cannot read which counters other proxies have reset"
                        );
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u64 = 7 << NUMBER_BITS;

    fn listed(entry: u128, by: u64) -> ListedReset {
        ListedReset { key: Key { owner: entry << 64 | 1, entry }, by }
    }

    #[test]
    fn resets_that_were_not_read_before_are_news() {
        let resets = Resets::new(OWN);
        let list = |entries: &[(ListedReset, f64)]| {
            entries.iter().map(|(reset, at)| (reset.encode().to_vec(), *at)).collect()
        };
        let [first, second] = [0, 1].map(Partition::at);
        let other = listed(1, 8 << NUMBER_BITS);
        let all = [(other, 100.0), (listed(2, OWN | 3), 101.0)];
        let found = resets.news((0, first), list(&all));
        assert_eq!(found, all.map(|(reset, _)| reset));
        assert_eq!([0, 1].map(|at| resets.is_own(&found[at])), [false, true]);
        assert_eq!(resets.news((0, first), list(&all)), []);
        assert_eq!(resets.news((0, second), list(&all)), found, "another server's list");
        // The clock of the server that is primary now may be behind.
        assert_eq!(resets.news((0, first), list(&[(other, 90.0)])), [other], "once more");
        let both = [(listed(1, 9 << NUMBER_BITS), 80.0), (listed(1, 8 << NUMBER_BITS), 70.0)];
        resets.note(&resets.news((0, first), list(&both)));
        assert_eq!(resets.latest(both[0].0.key.entry), Some(9 << NUMBER_BITS), "the latest");
        // An earlier one of another proxy that is heard of later.
        let both = [(listed(3, OWN | 1), 80.0), (listed(3, 8 << NUMBER_BITS), 70.0)];
        resets.note(&[both[0].0]);
        resets.note(&resets.news((0, first), list(&both)));
        assert_eq!(resets.latest(both[0].0.key.entry), Some(OWN | 1), "its own is the latest");
        assert_eq!(resets.news((0, first), HashMap::from([(vec![1, 2], 3.0)])), []);
    }
}
