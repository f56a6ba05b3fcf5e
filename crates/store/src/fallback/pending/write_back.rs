//! Writes pending charges to the store that is to have them.

use std::{
    rc::{Rc, Weak},
    time::Duration,
};

use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout_at},
};
use tollgate_clock::Timestamp;
use tollgate_limit::{AnyState, Charge, DecidedBy, OwnedCharge};

use super::WriteState;
use crate::{
    Backend, Store, Unanswered,
    call_time::CallTime,
    fallback::waiting_refunds::Refunds,
    redis::{CallOptions, CopiedState, LateReply},
};

/// A write without a reply may be repeated after this time. A reply, or the end of the connection,
/// ends it sooner; this is for the case that its worker has ended.
const MAX_IN_DOUBT: Duration = Duration::from_secs(60);

/// A write of a counter's pending charges.
struct Write {
    charge: OwnedCharge,
    to: DecidedBy,
    /// The units to add; none: only refunds.
    delta: Option<AnyState>,
    /// What the local counter held when the write began; none: it did not exist.
    state: Option<AnyState>,
    /// The latest reset of the counter that was known then.
    reset: Option<u64>,
    /// What is given back after that.
    refunds: Refunds,
}

impl Store {
    /// Writes the pending charges of these counters to the store that is about to decide them.
    /// Charges that are pending for another store are written in the background: this request need
    /// not wait for that store.
    ///
    /// # Errors
    /// The store is not known to have them in time.
    pub(crate) async fn write_back(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        to: DecidedBy,
        time: CallTime,
    ) -> Result<(), Unanswered> {
        let pending = &self.stores.pending;
        if pending.is_empty() {
            return Ok(());
        }
        let writing = async {
            for entry in charges.iter().map(|charge| charge.key.entry) {
                pending.wait_for_write(entry, to).await;
                match pending.write_state(entry, to) {
                    None => {}
                    Some(write) if write.may_begin() => {
                        let written = self.start_write(entry, time.now).await;
                        written.unwrap_or(Err(Unanswered::BadReply))?;
                    }
                    Some(_) => return Err(Unanswered::Away),
                }
            }
            Ok(())
        };
        timeout_at(time.deadline, writing).await.unwrap_or(Err(Unanswered::Timeout))
    }

    /// Writes some of the charges that no request has written.
    pub(crate) fn write_back_some(self: &Rc<Self>, now: Timestamp) {
        for entry in self.stores.pending.due() {
            self.start_write(entry, now);
        }
    }

    /// Writes all pending charges, or as many as it can before the deadline.
    pub(crate) async fn write_back_all(self: &Rc<Self>, time: CallTime) {
        while !self.stores.pending.is_empty() && Instant::now() < time.deadline {
            self.write_back_some(time.now);
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn start_write(
        self: &Rc<Self>,
        entry: u128,
        now: Timestamp,
    ) -> JoinHandle<Result<(), Unanswered>> {
        tokio::task::spawn_local(write_counter(Rc::downgrade(self), entry, now))
    }

    /// Begins the write of a counter, unless one is in flight. A counter without pending charges is
    /// dropped.
    fn begin_write(&self, entry: u128, now: Timestamp) -> Option<Write> {
        let pending = &self.stores.pending;
        let mut counters = pending.lock();
        let counter = counters.by_entry.get_mut(&entry).filter(|it| it.write.may_begin())?;
        let now = self.local_time(now);
        self.apply_refunds(counter, now);
        let charge = counter.charge.charge();
        let quota = self.share(&charge);
        let state = self.stores.local.state(&charge);
        let delta =
            state.as_ref().and_then(|state| quota.beyond(state, counter.base.as_ref(), now));
        let refunds = std::mem::take(&mut counter.refunds);
        if delta.is_none() && refunds.is_empty() {
            pending.discard(&mut counters, entry);
            return None;
        }
        counter.write = WriteState::InFlight(Instant::now() + MAX_IN_DOUBT);
        counter.sent = refunds.len();
        // Under the lock: a reset that comes later finds nothing of this in the process any more.
        let reset = self.stores.resets.latest(entry);
        let charge = counter.charge.clone();
        Some(Write { charge, to: counter.to, delta, state, reset, refunds })
    }

    /// Adds pending charges to the counter in the store.
    ///
    /// # Errors
    /// The store is not known to have them.
    async fn send_write(
        &self,
        write: &Write,
        time: CallTime,
        late_reply: &Rc<LateReply>,
    ) -> Result<(), Unanswered> {
        let charge = write.charge.charge();
        let server = match self.backend(write.to) {
            Some(Backend::Redis(redis)) => {
                let partition = redis.partition(charge.key.owner);
                self.current_server(redis, write.to, partition)
            }
            Some(Backend::Memory(_) | Backend::Disk(_)) | None => 0,
        };
        self.learn_resets(time.deadline).await;
        // The counter must be complete before the pending charges are added to it.
        self.complete(&[charge], write.to, time).await?;
        let Some(delta) = &write.delta else { return Ok(()) };
        match self.backend(write.to) {
            Some(Backend::Redis(redis)) => {
                let CallTime { now, deadline } = time;
                let (server, late_reply) = (Some(server), Some(late_reply));
                let options = CallOptions { deadline, server, late_reply };
                let copied = CopiedState { state: delta, reset: write.reset };
                redis.add(&charge, copied, now, options).await
            }
            Some(Backend::Memory(memory)) => {
                memory.add(&charge, delta, time.now);
                Ok(())
            }
            Some(Backend::Disk(disk)) => {
                disk.thaw_all(&[charge], time).await?;
                disk.memory().add(&charge, delta, time.now);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Records that the store has the charges of a write. The refunds that are `left` were not
    /// sent.
    fn complete_write(&self, write: &Write, left: Refunds, now: Timestamp) {
        let pending = &self.stores.pending;
        let charge = write.charge.charge();
        let entry = charge.key.entry;
        let mut counters = pending.lock();
        let Some(counter) = counters.by_entry.get_mut(&entry) else { return };
        counter.base.clone_from(&write.state);
        counter.refunds.add_all(left);
        let has_refunds = counter.has_refunds();
        if let Some(delta) = &write.delta {
            self.add_to_cache(&charge, delta, now);
        }
        let local = self.stores.local.state(&charge);
        if !has_refunds && (local.is_none() || local == write.state) {
            pending.discard(&mut counters, entry);
        } else {
            counters.end_write(entry, WriteState::Due);
        }
        drop(counters);
        pending.ended.notify_waiters();
    }
}

/// Writes the pending charges of one counter, unless another task does. It goes on when its request
/// has ended.
async fn write_counter(store: Weak<Store>, entry: u128, now: Timestamp) -> Result<(), Unanswered> {
    let Some(store) = store.upgrade() else { return Ok(()) };
    let Some(mut write) = store.begin_write(entry, now) else { return Ok(()) };
    let refunds = std::mem::take(&mut write.refunds);
    let late_reply = Rc::<LateReply>::default();
    let deadline = Instant::now() + store.stores.settings.deadline;
    let time = CallTime { now, deadline };
    let written = store.send_write(&write, time, &late_reply).await;
    let pending = &store.stores.pending;
    match written {
        Ok(()) => {
            let charge = write.charge.charge();
            let left = store.send_refunds(&charge, write.to, refunds, time).await;
            store.complete_write(&write, left, now);
        }
        // If the call was sent, the connection has a second reference to the late reply.
        Err(Unanswered::Timeout) if Rc::strong_count(&late_reply) > 1 => {
            let until = Instant::now() + MAX_IN_DOUBT;
            pending.fail(entry, WriteState::InDoubt(until), refunds);
            let store = Rc::downgrade(&store);
            late_reply.on_reply(move |reply| match (store.upgrade(), reply) {
                (Some(store), Ok(_)) => store.complete_write(&write, Refunds::default(), now),
                (Some(store), Err(_)) => {
                    store.stores.pending.fail(entry, WriteState::Due, Refunds::default());
                }
                (None, _) => {}
            });
        }
        Err(_) => pending.fail(entry, WriteState::Due, refunds),
    }
    written
}
