//! How the connections to a server are shared among clients when they become scarce.
//!
//! While more than the last eighth of the connections, or streams in HTTP/2, is free, requests get
//! them in the order of their arrival. A client's address gets one of the last eighth only while it
//! uses fewer than are free, and waits otherwise: so something is left for new clients. The eighth
//! is rounded down, so fewer than eight connections are not shared out. An address that uses none
//! is never kept waiting here.
//!
//! What is counted is what requests use, not what is kept for the next: the count of an address has
//! no list of addresses that clients could fill, but a sketch. Each address has a counter in each
//! of two rows, by a secret hash, and its count is the lesser. Another address that is counted too
//! high for that would have to meet it in both.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tokio::sync::oneshot::{self, Receiver, Sender};
use tollgate_policy::Bounds;

/// What clients use of a server, and who waits for more.
#[derive(Debug)]
pub(super) struct ClientShares {
    in_use: AtomicUsize,
    /// Connections that there may be, as was said last.
    connections: AtomicUsize,
    /// What each is good for.
    streams: AtomicUsize,
    rows: [Box<[AtomicU32]>; 2],
    hasher: RandomState,
    /// How many wait: for asking without the lock.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    turns: u64,
}

#[derive(Debug)]
struct Waiting {
    turn: u64,
    counters: Counters,
    sender: Sender<Share>,
}

/// The counters of an address, one in each row. None: the address is not known, and is not bounded.
type Counters = Option<[u16; 2]>;

/// What one request uses, until it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<ClientShares>,
    counters: Counters,
}

/// A place in the queue, given up when it is dropped.
#[derive(Debug)]
pub(super) struct QueuedShare {
    shares: Arc<ClientShares>,
    number: u64,
    receiver: Receiver<Share>,
}

/// What came of asking for a share.
#[derive(Debug)]
pub(super) enum ShareOutcome {
    /// It is within what the address may have.
    Share(Share),
    /// It will be, when something of this or other addresses has ended.
    Queued(QueuedShare),
    /// Too many wait already.
    Full,
}

const COUNTERS: usize = 1024;

/// One part in so many is kept for those who use little.
const SHARED_OUT: usize = 8;

impl Default for ClientShares {
    fn default() -> Self {
        let row = || (0..COUNTERS).map(|_| AtomicU32::new(0)).collect();
        ClientShares {
            in_use: AtomicUsize::new(0),
            connections: AtomicUsize::new(usize::MAX),
            streams: AtomicUsize::new(1),
            rows: [row(), row()],
            hasher: RandomState::new(),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
        }
    }
}

impl ClientShares {
    /// A share for a request of `client`, where a connection is good for so many `streams`.
    pub(super) fn take(
        self: &Arc<Self>,
        client: Option<u128>,
        streams: usize,
        bounds: &Bounds,
    ) -> ShareOutcome {
        put(&self.streams, streams);
        let counters = client.map(|client| {
            let hash = self.hasher.hash_one(client);
            [hash, hash >> 32].map(|part| (part as usize % COUNTERS) as u16)
        });
        // Who waits is not overtaken by the same address; another may have what it is due.
        let is_behind = self.waiting.load(SeqCst) > 0 && self.used(counters) > 0;
        if !is_behind && let Some(share) = self.claim(counters) {
            return ShareOutcome::Share(share);
        }
        let mut state = self.queue.lock();
        if state.waiting.len() >= bounds.queue {
            // Clients that fill the queue do not keep another address from its share. None of its
            // own requests is overtaken: one that waited would have got the share already.
            return self.claim(counters).map_or(ShareOutcome::Full, ShareOutcome::Share);
        }
        state.turns += 1;
        let (turn, (sender, receiver)) = (state.turns, oneshot::channel());
        state.waiting.push_back(Waiting { turn, counters, sender });
        self.waiting.store(state.waiting.len(), SeqCst);
        drop(state);
        // What has become free before this one was in the queue was not given to it.
        self.serve();
        ShareOutcome::Queued(QueuedShare { shares: Arc::clone(self), number: turn, receiver })
    }

    /// There may be so many connections from now on.
    pub(super) fn bound(self: &Arc<Self>, bounds: &Bounds) {
        put(&self.connections, bounds.max_connections.get());
        self.serve();
    }

    /// Counts one more, if the address may have it.
    fn claim(self: &Arc<Self>, counters: Counters) -> Option<Share> {
        // First counted and then judged: two that ask at once do not get the same one.
        let in_use = self.in_use.fetch_add(1, SeqCst);
        let used = self.counters(counters).map(|count| count.fetch_add(1, SeqCst)).min();
        if self.may_have(used.unwrap_or(0), in_use) {
            return Some(Share { shares: Arc::clone(self), counters });
        }
        self.discount(counters);
        None
    }

    /// Whether an address that uses so many may have one more, where all together use `in_use`.
    fn may_have(&self, used: u32, in_use: usize) -> bool {
        let capacity = self.connections.load(SeqCst).saturating_mul(self.streams.load(SeqCst));
        let free = capacity.saturating_sub(in_use);
        free > capacity / SHARED_OUT || used == 0 || (used as usize) < free
    }

    fn discount(&self, counters: Counters) {
        for count in self.counters(counters) {
            count.fetch_sub(1, SeqCst);
        }
        self.in_use.fetch_sub(1, SeqCst);
    }

    /// What an address uses.
    fn used(&self, counters: Counters) -> u32 {
        self.counters(counters).map(|count| count.load(SeqCst)).min().unwrap_or(0)
    }

    fn counters(&self, counters: Counters) -> impl Iterator<Item = &AtomicU32> {
        let places = counters.into_iter().flatten();
        self.rows.iter().zip(places).filter_map(|(row, place)| row.get(usize::from(place)))
    }

    /// Gives shares to those who wait and may have one, the longest first.
    fn serve(self: &Arc<Self>) {
        let mut served = Vec::new();
        let mut state = self.queue.lock();
        let mut at = 0;
        while let Some(waiting) = state.waiting.get(at) {
            let may_have = self.may_have(self.used(waiting.counters), self.in_use.load(SeqCst));
            match may_have.then(|| self.claim(waiting.counters)).flatten() {
                Some(share) => served.extend(state.waiting.remove(at).map(|next| (next, share))),
                None => at += 1,
            }
        }
        self.waiting.store(state.waiting.len(), SeqCst);
        drop(state);
        for (next, share) in served {
            // If the request has just ended, the share comes back, and goes to the next.
            let _ = next.sender.send(share);
        }
    }
}

/// Stores only a change, to keep the cache line shared.
fn put(place: &AtomicUsize, number: usize) {
    if place.load(SeqCst) != number {
        place.store(number, SeqCst);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.discount(self.counters);
        if self.shares.waiting.load(SeqCst) > 0 {
            self.shares.serve();
        }
    }
}

impl QueuedShare {
    /// The share, once it is this one's turn.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Share>> {
        Pin::new(&mut self.receiver).poll(context).map(Result::ok)
    }
}

impl Drop for QueuedShare {
    fn drop(&mut self) {
        let mut state = self.shares.queue.lock();
        let place = state.waiting.iter().position(|waiting| waiting.turn == self.number);
        let given_up = place.and_then(|place| state.waiting.remove(place));
        self.shares.waiting.store(state.waiting.len(), SeqCst);
        drop(state);
        drop(given_up);
    }
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroUsize, task::Waker, thread};

    use super::*;

    fn bounds(max: usize, queue: usize) -> Bounds {
        let max_connections = NonZeroUsize::new(max).unwrap();
        Bounds { max_connections, queue, ..Bounds::default() }
    }

    fn take(shares: &Arc<ClientShares>, client: u128, capacity: usize) -> ShareOutcome {
        shares.bound(&bounds(capacity, 100));
        shares.take(Some(client), 1, &bounds(capacity, 100))
    }

    /// As many as a client gets.
    fn take_all(shares: &Arc<ClientShares>, client: u128, capacity: usize) -> Vec<Share> {
        shares.bound(&bounds(capacity, 0));
        let share = || match shares.take(Some(client), 1, &bounds(capacity, 0)) {
            ShareOutcome::Share(share) => Some(share),
            _ => None,
        };
        std::iter::from_fn(share).collect()
    }

    fn share_of(turn: &mut QueuedShare) -> Option<Share> {
        match turn.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(share) => share,
            Poll::Pending => None,
        }
    }

    #[test]
    fn last_eighth_is_shared_out_and_the_rest_is_first_come_first_served() {
        for (capacity, expected) in [
            (1, &[1][..]),
            (2, &[2]),
            (4, &[4]),
            (7, &[7]),
            (8, &[7, 1]),
            (15, &[14, 1]),
            (16, &[14, 1, 1]),
            (32, &[28, 2, 1, 1]),
            (1024, &[896, 64, 32]),
        ] {
            let shares = Arc::<ClientShares>::default();
            let taken: Vec<Vec<Share>> = (0u128..)
                .take(expected.len())
                .map(|client| take_all(&shares, client, capacity))
                .collect();
            let sizes: Vec<usize> = taken.iter().map(Vec::len).collect();
            assert_eq!(sizes, expected, "of {capacity}");
            // An address that uses none waits for a connection, not for its share.
            assert!(!take_all(&shares, 1 << 64, capacity).is_empty());
        }
    }

    #[test]
    fn address_that_uses_less_than_is_free_may_have_of_the_last_eighth() {
        let shares = Arc::<ClientShares>::default();
        shares.bound(&bounds(64, 0));
        let take = |client, count| -> Vec<ShareOutcome> {
            (0..count).map(|_| shares.take(Some(client), 1, &bounds(64, 0))).collect()
        };
        let _taken = [take(1, 54), take(2, 2)];
        let more = [1, 2, 3].map(|client| take_all(&shares, client, 64));
        assert_eq!(more.map(|more| more.len()), [0, 3, 3]);
    }

    #[test]
    fn who_fills_the_queue_keeps_no_other_address_from_what_it_may_have() {
        let shares = Arc::<ClientShares>::default();
        shares.bound(&bounds(32, 1));
        let take = |client| shares.take(Some(client), 1, &bounds(32, 1));
        let _greedy: Vec<ShareOutcome> = (0..28).map(|_| take(1)).collect();
        let _turn = take(1);
        assert!(matches!(take(1), ShareOutcome::Full));
        let other: Vec<ShareOutcome> = (0..2).map(|_| take(2)).collect();
        assert!(other.iter().all(|taken| matches!(taken, ShareOutcome::Share(_))), "{other:?}");
        assert!(matches!(take(2), ShareOutcome::Full));
    }

    #[test]
    fn who_is_not_known_is_not_bounded() {
        let shares = Arc::<ClientShares>::default();
        shares.bound(&bounds(4, 0));
        let taken: Vec<ShareOutcome> =
            (0..10).map(|_| shares.take(None, 1, &bounds(4, 0))).collect();
        assert!(taken.iter().all(|taken| matches!(taken, ShareOutcome::Share(_))));
    }

    #[test]
    fn what_becomes_free_goes_to_who_may_have_it() {
        let shares = Arc::<ClientShares>::default();
        let mut greedy = take_all(&shares, 1, 8);
        let other = take_all(&shares, 2, 8);
        assert_eq!((greedy.len(), other.len()), (7, 1));
        let mut turns: Vec<QueuedShare> = (0..2)
            .map(|_| match take(&shares, 1, 8) {
                ShareOutcome::Queued(turn) => turn,
                shared => panic!("not queued but {shared:?}"),
            })
            .collect();
        // One has gone, and one uses none by now.
        drop(turns.remove(0));
        assert!(share_of(&mut turns[0]).is_none());
        // The last free one is for a new address.
        greedy.pop();
        assert!(share_of(&mut turns[0]).is_none());
        greedy.pop();
        let share = share_of(&mut turns[0]).unwrap();
        drop((share, turns, greedy, other));
        assert_eq!((shares.in_use.load(SeqCst), shares.used(None)), (0, 0));
        assert_eq!(take_all(&shares, 1, 8).len(), 7);
    }

    #[test]
    fn everything_is_given_back_under_concurrency() {
        let shares = Arc::<ClientShares>::default();
        thread::scope(|scope| {
            for client in 0..4 {
                let shares = &shares;
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        match take(shares, client % 2, 3) {
                            ShareOutcome::Queued(mut turn) => drop(share_of(&mut turn)),
                            taken => drop(taken),
                        }
                    }
                });
            }
        });
        assert_eq!(shares.in_use.load(SeqCst), 0);
        assert!(shares.rows.iter().flatten().all(|count| count.load(SeqCst) == 0));
    }
}
