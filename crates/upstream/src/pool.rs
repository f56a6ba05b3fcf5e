//! A worker's connections to one server: kept between requests, shared among them, bounded together
//! with those of other workers.
//!
//! Connections in HTTP/1.1 are a stack, the warmest on top. A request that finds one there touches
//! nothing that is shared with other threads but a counter that says whether a request waits.

pub(super) mod http2;
mod share;

use std::{
    cell::{Cell, OnceCell, RefCell},
    future::poll_fn,
    pin::pin,
    rc::{Rc, Weak},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::{task::AbortHandle, time::timeout};
use tollgate_clock::deadline::{TICK, Ticker};
use tollgate_policy::{Protocol, Upstream};

use super::{
    Member, UpstreamError,
    dial::Dialer,
    frames::MAX_STREAMS,
    http1,
    slots::{Claimant, PoolId, Slot, SlotOutcome, Slots, Ticket},
    wait_queue::WaitQueue,
};

/// Unused connections to one server, per worker.
const MAX_IDLE: usize = 256;

/// A worker's connections to one server.
pub(super) struct Pool {
    id: PoolId,
    pub(super) member: Arc<Member>,
    pub(super) ticker: Rc<Ticker>,
    protocol: Protocol,
    /// Unused ones in HTTP/1.1.
    idle: RefCell<Vec<Idle>>,
    /// All in HTTP/2.
    shared: RefCell<Vec<Rc<http2::Connection>>>,
    /// Those in HTTP/2 that take no more requests, while they still have some.
    retired: RefCell<Vec<Weak<http2::Connection>>>,
    /// Connections in HTTP/2 that are being made.
    dialing: Cell<usize>,
    wait_queue: WaitQueue,
    /// The task that closes unused connections when another worker needs one.
    giver: OnceCell<AbortHandle>,
}

struct Idle {
    connection: Box<http1::Connection>,
    /// The tick at which it is closed.
    until: u32,
}

/// What a request can be sent with.
pub(super) enum Carrier {
    Http1(Box<http1::Connection>),
    Http2(http2::Permit),
}

/// Where a carrier comes from.
pub(super) enum CarrierSource {
    /// It is there, and was used before.
    Kept(Carrier),
    /// It is to be made.
    New(Slot),
}

impl Pool {
    pub(super) fn new(member: &Arc<Member>, ticker: &Rc<Ticker>, protocol: Protocol) -> Rc<Pool> {
        let pool = Rc::new(Pool {
            id: PoolId::unique(),
            member: Arc::clone(member),
            ticker: Rc::clone(ticker),
            protocol,
            idle: RefCell::default(),
            shared: RefCell::default(),
            retired: RefCell::default(),
            dialing: Cell::new(0),
            wait_queue: WaitQueue::default(),
            giver: OnceCell::new(),
        });
        let giver = give_up_when_wanted(Rc::downgrade(&pool), Arc::clone(&member.slots));
        let _ = pool.giver.set(tokio::task::spawn_local(giver).abort_handle());
        pool
    }

    /// Something to send a request with: a connection that is there, or the right to make one.
    /// Waits for its turn if there is neither.
    pub(super) async fn acquire(
        self: &Rc<Self>,
        upstream: &Upstream,
    ) -> Result<CarrierSource, UpstreamError> {
        if self.wait_queue.is_empty()
            && let Some(carrier) = self.free()
        {
            return Ok(CarrierSource::Kept(carrier));
        }
        // An HTTP/2 connection that is being made will serve other requests, too.
        if self.wait_queue.len() < self.dialing.get() * MAX_STREAMS {
            return Box::pin(self.wait(None, upstream)).await;
        }
        self.claim(upstream).await
    }

    /// The right to make a connection, or, if there may be no more of them, one that is there.
    pub(super) async fn acquire_new(
        self: &Rc<Self>,
        upstream: &Upstream,
    ) -> Result<CarrierSource, UpstreamError> {
        // One in HTTP/2 that is going away has been noticed, and others are as good as new.
        if self.protocol == Protocol::Http2 {
            return self.acquire(upstream).await;
        }
        self.make_room();
        self.claim(upstream).await
    }

    /// The right to make a connection, and nothing else.
    pub(super) async fn slot(&self, upstream: &Upstream) -> Result<Slot, UpstreamError> {
        self.make_room();
        // It cannot use the pool's connections, so it waits as a pool of its own.
        let claimant = Claimant { pool: PoolId::unique(), needs_first_connection: false };
        let mut ticket = match self.member.slots.take(&upstream.bounds, claimant) {
            SlotOutcome::Slot(slot) => return Ok(slot),
            SlotOutcome::Queued(ticket) => ticket,
            SlotOutcome::Full => return Err(UpstreamError::Busy),
        };
        let deadline = self.ticker.deadline();
        deadline.set(ticket.max_wait(&upstream.bounds));
        let slot = poll_fn(|context| match ticket.poll(context) {
            Poll::Pending if deadline.poll_passed(context) => Poll::Ready(None),
            polled => polled,
        });
        slot.await.ok_or(UpstreamError::Busy)
    }

    /// Closes the coldest connection if there is no room for another.
    fn make_room(&self) {
        if !self.member.slots.has_free() {
            drop(self.take_coldest());
        }
    }

    fn take_coldest(&self) -> Option<Idle> {
        let mut idle = self.idle.borrow_mut();
        if idle.is_empty() { None } else { Some(idle.remove(0)) }
    }

    async fn claim(self: &Rc<Self>, upstream: &Upstream) -> Result<CarrierSource, UpstreamError> {
        match self.member.slots.take(&upstream.bounds, self.claimant()) {
            SlotOutcome::Slot(slot) => Ok(CarrierSource::New(slot)),
            SlotOutcome::Queued(ticket) => Box::pin(self.wait(Some(ticket), upstream)).await,
            SlotOutcome::Full => Err(UpstreamError::Busy),
        }
    }

    /// Waits in line: for a connection of this worker, or for a slot by its ticket, whichever comes
    /// first. Without a ticket it waits for one that is being made.
    async fn wait(
        self: &Rc<Self>,
        mut ticket: Option<Ticket>,
        upstream: &Upstream,
    ) -> Result<CarrierSource, UpstreamError> {
        let deadline = self.ticker.deadline();
        deadline.set(match &ticket {
            Some(ticket) => ticket.max_wait(&upstream.bounds),
            None => upstream.connect_timeout,
        });
        let place = self.wait_queue.join();
        poll_fn(|context| {
            if place.is_first()
                && let Some(carrier) = self.free()
            {
                return Poll::Ready(Ok(CarrierSource::Kept(carrier)));
            }
            if ticket.is_none() && self.dialing.get() == 0 && !self.has_room() {
                // It has come to nothing, or has no room left.
                match self.member.slots.take(&upstream.bounds, self.claimant()) {
                    SlotOutcome::Slot(slot) => return Poll::Ready(Ok(CarrierSource::New(slot))),
                    SlotOutcome::Queued(queued) => {
                        deadline.set(queued.max_wait(&upstream.bounds));
                        ticket = Some(queued);
                    }
                    SlotOutcome::Full => return Poll::Ready(Err(UpstreamError::Busy)),
                }
            }
            if let Some(ticket) = &mut ticket
                && let Poll::Ready(Some(slot)) = ticket.poll(context)
            {
                return Poll::Ready(Ok(CarrierSource::New(slot)));
            }
            if deadline.poll_passed(context) {
                return Poll::Ready(Err(match ticket {
                    Some(_) => UpstreamError::Busy,
                    None => UpstreamError::ConnectTimeout,
                }));
            }
            place.wait(context);
            Poll::Pending
        })
        .await
    }

    /// What was acquired, made now if it is not there yet.
    pub(super) async fn carrier(
        self: &Rc<Self>,
        acquired: CarrierSource,
        dialer: &Dialer,
        upstream: &Upstream,
    ) -> Result<Carrier, UpstreamError> {
        match acquired {
            CarrierSource::Kept(carrier) => Ok(carrier),
            // Boxed, since it is rare, and its size would be that of every request's future.
            CarrierSource::New(slot) => Box::pin(self.connect(slot, dialer, upstream)).await,
        }
    }

    /// Makes the connection that a slot is for.
    async fn connect(
        self: &Rc<Self>,
        slot: Slot,
        dialer: &Dialer,
        upstream: &Upstream,
    ) -> Result<Carrier, UpstreamError> {
        match self.protocol {
            Protocol::Http1 => {
                let stream = dialer.dial(&self.member, Protocol::Http1, upstream).await?;
                let deadline = self.ticker.deadline();
                let pool = Rc::downgrade(self);
                let connection = http1::Connection::new(stream, slot, deadline, pool);
                Ok(Carrier::Http1(connection))
            }
            Protocol::Http2 => {
                let _dialing = Dialing::begin(self);
                let connecting = async {
                    let stream = dialer.dial(&self.member, Protocol::Http2, upstream).await?;
                    http2::Connection::new(stream, slot).await
                };
                let connection = timeout(upstream.connect_timeout, connecting)
                    .await
                    .unwrap_or(Err(UpstreamError::ConnectTimeout))?;
                let permit = http2::Permit::new(&connection, self);
                self.shared.borrow_mut().push(connection);
                Ok(Carrier::Http2(permit))
            }
        }
    }

    /// A connection that is there and can take a request. Whether one in HTTP/1.1 is still open
    /// shows when it is used: a connection that was closed is noticed before
    /// anything is written.
    fn free(self: &Rc<Self>) -> Option<Carrier> {
        match self.protocol {
            Protocol::Http1 => {
                let idle = self.idle.borrow_mut().pop()?;
                Some(Carrier::Http1(idle.connection))
            }
            Protocol::Http2 => {
                let shared = self.shared.borrow();
                let connection = shared.iter().find(|connection| connection.has_room())?;
                Some(Carrier::Http2(http2::Permit::new(connection, self)))
            }
        }
    }

    /// Whether a connection in HTTP/2 can take a request. Who is first in line takes it.
    fn has_room(&self) -> bool {
        self.shared.borrow().iter().any(|connection| connection.has_room())
    }

    fn claimant(&self) -> Claimant {
        let needs_first_connection = self.protocol == Protocol::Http2
            && self.shared.borrow().is_empty()
            && self.dialing.get() == 0
            && !self.has_retired();
        Claimant { pool: self.id, needs_first_connection }
    }

    /// Whether a connection is open that takes no more requests, and still has some. A server that
    /// retires each connection could have any number of them otherwise.
    fn has_retired(&self) -> bool {
        let mut retired = self.retired.borrow_mut();
        retired.retain(|connection| connection.strong_count() > 0);
        !retired.is_empty()
    }

    /// Keeps an unused HTTP/1.1 connection for at most `keep_alive`, unless a request of another
    /// worker waits for one.
    pub(crate) fn keep(&self, connection: Box<http1::Connection>, keep_alive: Duration) {
        let slots = &self.member.slots;
        let ticks = u32::try_from(keep_alive.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX);
        let is_unwanted = ticks == 0
            || self.ticker.is_draining()
            || slots.is_wanted() && slots.prefers_another(self.id);
        let mut idle = self.idle.borrow_mut();
        if !is_unwanted && idle.len() < MAX_IDLE {
            idle.push(Idle { connection, until: self.ticker.now().saturating_add(ticks) });
            drop(idle);
            self.wait_queue.wake_first();
        }
    }

    /// A stream of a connection in HTTP/2 has ended.
    pub(super) fn stream_ended(&self) {
        self.forget_over();
        self.wait_queue.wake_first();
    }

    /// Lets go of connections in HTTP/2 that take no more requests. Each closes with its last
    /// stream.
    fn forget_over(&self) {
        let is_over = |connection: &Rc<http2::Connection>| connection.is_over();
        if self.shared.borrow().iter().any(is_over) {
            let mut shared = self.shared.borrow_mut();
            let over: Vec<_> = shared.extract_if(.., |connection| is_over(connection)).collect();
            drop(shared);
            self.retired.borrow_mut().extend(over.iter().map(Rc::downgrade));
            drop(over);
            self.has_retired();
        }
    }

    /// Closes connections that were not used for as long as they are kept, and those that the
    /// server has closed. The others give their buffers back: a busy one needs a new one for each
    /// tick at most.
    pub(super) fn close_idle(&self, keep_alive: Duration) {
        let now = self.ticker.now();
        //= rfc9112#section-9.5
        //# Implementations SHOULD constantly monitor open connections for a received closure signal
        let is_due = |idle: &mut Idle| now >= idle.until || idle.connection.is_closed();
        let mut idle = self.idle.borrow_mut();
        let closed: Vec<Idle> = idle.extract_if(.., |idle| is_due(idle)).collect();
        idle.iter_mut().for_each(|idle| idle.connection.give_buffer_back());
        drop(idle);
        drop(closed);
        let ticks = u32::try_from(keep_alive.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX);
        let is_due = |since: u32| now.saturating_sub(since) >= ticks;
        let shared = self.shared.borrow();
        shared.iter().for_each(|connection| connection.retire_if_stuck(now));
        let unused = shared.iter().filter(|connection| connection.idle_since().is_some_and(is_due));
        unused.for_each(|connection| connection.retire());
        drop(shared);
        self.forget_over();
    }

    /// Whether it has nothing that is worth keeping.
    pub(super) fn is_empty(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) == 1
            && self.idle.borrow().is_empty()
            && self.shared.borrow().is_empty()
    }

    /// Closes unused connections for as long as a request of another worker waits for one.
    fn give_up(&self) {
        let slots = &self.member.slots;
        while slots.is_wanted() && self.wait_queue.is_empty() {
            let Some(coldest) = self.take_coldest() else { break };
            drop(coldest);
        }
        let shared = self.shared.borrow();
        if shared.is_empty() || !slots.is_wanted() {
            return;
        }
        let mut all = shared.iter();
        if let Some(unused) = all.find(|shared| self.wait_queue.is_empty() && shared.streams() == 0)
        {
            unused.retire();
        }
        drop(shared);
        self.forget_over();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(giver) = self.giver.get() {
            giver.abort();
        }
    }
}

/// Counts a connection in HTTP/2 that is being made.
struct Dialing<'p>(&'p Pool);

impl Dialing<'_> {
    fn begin(pool: &Pool) -> Dialing<'_> {
        pool.dialing.set(pool.dialing.get() + 1);
        Dialing(pool)
    }
}

impl Drop for Dialing<'_> {
    fn drop(&mut self) {
        self.0.dialing.set(self.0.dialing.get().saturating_sub(1));
        self.0.wait_queue.wake_first();
    }
}

/// Closes unused connections whenever a request begins to wait for one.
async fn give_up_when_wanted(pool: Weak<Pool>, slots: Arc<Slots>) {
    loop {
        let mut wanted = pin!(slots.wanted());
        // Before the check, so that a request which begins to wait during it is not missed.
        wanted.as_mut().enable();
        let Some(pool) = pool.upgrade() else { return };
        pool.give_up();
        drop(pool);
        wanted.await;
    }
}
