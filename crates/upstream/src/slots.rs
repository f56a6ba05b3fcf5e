//! How many connections a server may have, of all workers together, and the requests that wait for
//! one.
//!
//! A connection holds a [`Slot`] from before it is made until its socket is closed, so the bound is
//! exact, but for a worker's only connection in HTTP/2, which it gets in any case. A slot that
//! becomes free goes to the request that has waited longest; it can be taken directly only while no
//! request waits. Requests that find a kept connection touch nothing here.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::{
    Notify,
    futures::Notified,
    oneshot::{self, Receiver, Sender},
};
use tollgate_policy::Bounds;

/// The connections that one server has and may have.
#[derive(Debug, Default)]
pub struct Slots {
    state: Mutex<State>,
    /// How many requests wait, to be read without the lock.
    waiting: AtomicUsize,
    /// Notified when a request begins to wait: workers then close connections that they do not use.
    wanted: Notify,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    max: usize,
    queue: VecDeque<Waiting>,
    tickets: u64,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    claimant: Claimant,
    since: Instant,
    sender: Sender<Slot>,
}

/// The right to one connection.
#[derive(Debug)]
pub struct Slot(Arc<Slots>);

/// A position in the queue, given up when this is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    slots: Arc<Slots>,
    number: u64,
    receiver: Receiver<Slot>,
    /// The queue was full: the request waits just long enough for another worker to close an unused
    /// connection.
    is_beyond_queue: bool,
}

/// The pool of a worker that needs a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimant {
    pub(super) pool: PoolId,
    /// The pool is for HTTP/2 and has no connection. It gets one even beyond the bound: it cannot
    /// use those of other workers, and a stream may keep them for hours.
    pub(super) needs_first_connection: bool,
}

/// Identifies a pool within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolId(u64);

/// The result of a request for a slot.
#[derive(Debug)]
pub(super) enum SlotOutcome {
    /// A slot was free.
    Slot(Slot),
    /// The request waits for one.
    Queued(Ticket),
    /// Too many requests wait already.
    Full,
}

/// How much longer a request of another worker must have waited than one of this worker before this
/// worker closes a connection for it. Its own requests can use the connection at once.
const MIN_LEAD: Duration = Duration::from_millis(100);

/// How many requests may wait for a moment when the queue is full.
const MAX_BEYOND_QUEUE: usize = 64;

/// How long a request waits when the queue is full.
const BEYOND_QUEUE_WAIT: Duration = Duration::from_millis(50);

impl PoolId {
    pub(super) fn unique() -> PoolId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        PoolId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Slots {
    /// A slot, or a place in the queue for one, of the length that the request's policy says.
    pub(super) fn take(self: &Arc<Self>, bounds: &Bounds, claimant: Claimant) -> SlotOutcome {
        let mut state = self.state.lock();
        if state.taken < state.max || claimant.needs_first_connection {
            state.taken += 1;
            return SlotOutcome::Slot(Slot(Arc::clone(self)));
        }
        // Even if the queue is full, another worker may have an unused connection. It closes that
        // only when a request waits, so a few more may wait for a moment.
        let is_beyond_queue = state.queue.len() >= bounds.queue;
        if state.queue.len() >= bounds.queue.saturating_add(MAX_BEYOND_QUEUE) {
            return SlotOutcome::Full;
        }
        state.tickets += 1;
        let ticket = state.tickets;
        let (sender, receiver) = oneshot::channel();
        state.queue.push_back(Waiting { ticket, claimant, since: Instant::now(), sender });
        self.waiting.store(state.queue.len(), Ordering::Release);
        drop(state);
        self.wanted.notify_waiters();
        SlotOutcome::Queued(Ticket {
            slots: Arc::clone(self),
            number: ticket,
            receiver,
            is_beyond_queue,
        })
    }

    /// There may be so many connections from now on. If there is more room than before, requests
    /// that wait are served.
    pub(super) fn bound(self: &Arc<Self>, bounds: &Bounds) {
        let mut state = self.state.lock();
        state.max = bounds.max_connections.get();
        let places = state.max.saturating_sub(state.taken).min(state.queue.len());
        if places == 0 {
            return;
        }
        let served: Vec<Waiting> = state.queue.drain(..places).collect();
        state.taken += places;
        self.waiting.store(state.queue.len(), Ordering::Release);
        drop(state);
        for next in served {
            // If the request has just ended, the slot comes back.
            let _ = next.sender.send(Slot(Arc::clone(self)));
        }
    }

    /// Whether a slot is free.
    pub(super) fn has_free(&self) -> bool {
        let state = self.state.lock();
        state.taken < state.max
    }

    /// Whether a request waits.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Waits until a request begins to wait.
    pub(super) fn wanted(&self) -> Notified<'_> {
        self.wanted.notified()
    }

    /// Whether `pool` should close an unused connection for a request of another pool, rather than
    /// keep it for its own requests.
    pub(super) fn prefers_another(&self, pool: PoolId) -> bool {
        let state = self.state.lock();
        let Some(head) = state.queue.front() else { return false };
        let own = state.queue.iter().find(|waiting| waiting.claimant.pool == pool);
        own.is_none_or(|own| own.since.saturating_duration_since(head.since) > MIN_LEAD)
    }

    /// The slots in use.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.state.lock().taken
    }

    /// The request that gets a slot which has become free. None: no request waits, and the slot can
    /// be taken.
    fn hand_on(&self) -> Option<Sender<Slot>> {
        let mut state = self.state.lock();
        // A policy may have lowered the bound meanwhile.
        let next = if state.taken <= state.max { state.queue.pop_front() } else { None };
        if next.is_none() {
            state.taken -= 1;
        }
        self.waiting.store(state.queue.len(), Ordering::Release);
        let is_wanted = !state.queue.is_empty();
        drop(state);
        if is_wanted {
            self.wanted.notify_waiters();
        }
        next.map(|waiting| waiting.sender)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(next) = self.0.hand_on() {
            // If the request has just ended, the slot comes back, and is dropped again.
            let _ = next.send(Slot(Arc::clone(&self.0)));
        }
    }
}

impl Ticket {
    /// How long the request may wait.
    pub(super) fn max_wait(&self, bounds: &Bounds) -> Duration {
        if self.is_beyond_queue { BEYOND_QUEUE_WAIT } else { bounds.queue_timeout }
    }

    /// The slot, once it is this ticket's turn.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Slot>> {
        Pin::new(&mut self.receiver).poll(context).map(Result::ok)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.slots.state.lock();
        let place = state.queue.iter().position(|waiting| waiting.ticket == self.number);
        let given_up = place.and_then(|place| state.queue.remove(place));
        self.slots.waiting.store(state.queue.len(), Ordering::Release);
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

    fn claimant() -> Claimant {
        Claimant { pool: PoolId::unique(), needs_first_connection: false }
    }

    fn take(slots: &Arc<Slots>, bounds: &Bounds) -> Slot {
        slots.bound(bounds);
        match slots.take(bounds, claimant()) {
            SlotOutcome::Slot(slot) => slot,
            other => panic!("no slot but {other:?}"),
        }
    }

    fn queue(slots: &Arc<Slots>, bounds: &Bounds, claimant: Claimant) -> Ticket {
        slots.bound(bounds);
        match slots.take(bounds, claimant) {
            SlotOutcome::Queued(ticket) => ticket,
            other => panic!("not queued but {other:?}"),
        }
    }

    fn slot_of(ticket: &mut Ticket) -> Option<Slot> {
        match ticket.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(slot) => slot,
            Poll::Pending => None,
        }
    }

    #[test]
    fn slot_goes_to_the_request_that_has_waited_longest() {
        let slots = Arc::default();
        let bounds = bounds(1, 2);
        let slot = take(&slots, &bounds);
        let mut first = queue(&slots, &bounds, claimant());
        let mut second = queue(&slots, &bounds, claimant());
        let beyond: Vec<Ticket> =
            (0..MAX_BEYOND_QUEUE).map(|_| queue(&slots, &bounds, claimant())).collect();
        assert!(beyond.iter().all(|ticket| ticket.max_wait(&bounds) < bounds.queue_timeout));
        assert!(matches!(slots.take(&bounds, claimant()), SlotOutcome::Full));
        drop(beyond);
        drop(slot);
        let slot = slot_of(&mut first).unwrap();
        assert!(slot_of(&mut second).is_none());
        drop(slot);
        assert!(slot_of(&mut second).is_some());
        assert_eq!((slots.taken(), slots.is_wanted()), (0, false));
    }

    #[test]
    fn no_slot_is_lost_when_a_request_leaves_the_queue() {
        let slots = Arc::default();
        let bounds = bounds(1, 2);
        let slot = take(&slots, &bounds);
        let leaves = queue(&slots, &bounds, claimant());
        let mut stays = queue(&slots, &bounds, claimant());
        drop(leaves);
        drop(slot);
        assert!(slot_of(&mut stays).is_some());
        // Also if the request that leaves had got one already.
        let slot = take(&slots, &bounds);
        let leaves = queue(&slots, &bounds, claimant());
        drop(slot);
        assert_eq!(slots.taken(), 1);
        drop(leaves);
        assert_eq!(slots.taken(), 0);
    }

    #[test]
    fn lowered_bound_holds_once_connections_are_closed() {
        let slots = Arc::default();
        let high = bounds(3, 1);
        let low = bounds(1, 1);
        let taken: Vec<Slot> = (0..3).map(|_| take(&slots, &high)).collect();
        let mut ticket = queue(&slots, &low, claimant());
        for (slot, others) in taken.into_iter().zip([2, 1, 0]) {
            drop(slot);
            assert_eq!(slot_of(&mut ticket).is_some(), others == 0, "with {others} others");
        }
    }

    #[test]
    fn raised_bound_serves_requests_that_wait() {
        let slots = Arc::default();
        let low = bounds(1, 3);
        let high = bounds(3, 3);
        let _slot = take(&slots, &low);
        let mut waiting: Vec<Ticket> = (0..3).map(|_| queue(&slots, &low, claimant())).collect();
        slots.bound(&high);
        let mut new_request = queue(&slots, &high, claimant());
        let given: Vec<Slot> = waiting.iter_mut().filter_map(slot_of).collect();
        assert_eq!((given.len(), slot_of(&mut new_request).is_some()), (2, false));
        assert!(slot_of(&mut waiting[2]).is_none());
        slots.bound(&bounds(4, 3));
        assert!(slot_of(&mut waiting[2]).is_some());
        // A request from before a reload is held to what holds now, and changes nothing.
        slots.bound(&bounds(9, 3));
        assert!(matches!(slots.take(&low, claimant()), SlotOutcome::Slot(_)));
    }

    #[test]
    fn worker_that_has_no_connection_to_share_gets_one_beyond_the_bound() {
        let slots = Arc::default();
        let bounds = bounds(1, 1);
        let first = take(&slots, &bounds);
        let first_of_worker = Claimant { needs_first_connection: true, ..claimant() };
        let SlotOutcome::Slot(second) = slots.take(&bounds, first_of_worker) else {
            panic!("no slot")
        };
        // The bound holds again once one is closed.
        let mut ticket = queue(&slots, &bounds, claimant());
        drop(second);
        assert!(slot_of(&mut ticket).is_none());
        drop(first);
        assert!(slot_of(&mut ticket).is_some());
    }

    #[test]
    fn connection_is_kept_for_ones_own_unless_another_has_waited_much_longer() {
        let slots = Arc::default();
        let bounds = bounds(1, 2);
        let _slot = take(&slots, &bounds);
        let own = claimant();
        let other = claimant();
        assert!(!slots.prefers_another(own.pool));
        let _other = queue(&slots, &bounds, other);
        assert!(slots.prefers_another(own.pool));
        let _own = queue(&slots, &bounds, own);
        let since = slots.state.lock().queue[0].since;
        slots.state.lock().queue[1].since = since;
        assert!(!slots.prefers_another(own.pool));
        let late = Instant::now() + 2 * MIN_LEAD;
        slots.state.lock().queue[1].since = late;
        assert!(slots.prefers_another(own.pool));
    }

    #[test]
    fn bound_is_exact_under_concurrency() {
        const MAX: usize = 4;
        let slots = Arc::<Slots>::default();
        let bounds = bounds(MAX, 0);
        slots.bound(&bounds);
        let now = AtomicUsize::new(0);
        let most = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let taken = slots.take(&bounds, claimant());
                        if let SlotOutcome::Slot(slot) = taken {
                            most.fetch_max(
                                now.fetch_add(1, Ordering::SeqCst) + 1,
                                Ordering::SeqCst,
                            );
                            thread::yield_now();
                            now.fetch_sub(1, Ordering::SeqCst);
                            drop(slot);
                        }
                    }
                });
            }
        });
        assert!(most.into_inner() <= MAX);
        assert_eq!(slots.taken(), 0);
    }
}
