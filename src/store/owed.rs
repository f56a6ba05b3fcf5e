//! What this process has admitted alone, until the store has it.
//!
//! While a store does not answer, limits are decided here by this process' share (`local`). What is
//! taken then is owed: the difference between what the counter here holds and what it held before. The
//! first request that the store can decide about pays it first, and what nobody asks for is paid in
//! the background. Until the store has told how it stands then, the counter here goes on from where it
//! is: a second outage gives nobody a second share.
//!
//! Nothing is owed for windows that have ended, nor for requests in flight, whose leases end here.
//! A payment whose reply is late is waited for, and nobody else waits. One whose connection broke is
//! made again: at worst a caller is charged twice for what it used in one outage, and no limit lets
//! too much through.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    pin::pin,
    rc::{Rc, Weak},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{Instant, sleep, timeout_at},
};

use super::{Backend, Store, Unanswered, redis::Orphan};
use crate::{
    clock::Timestamp,
    limit::{AnyState, Charge, DecidedBy, OwnedCharge},
};

/// Counters of which something is owed, at most. What is admitted alone on others is not owed.
const MAX_DEBTS: usize = 65_536;

/// Debts that a worker pays, or finds to be over, each time that it looks.
const A_LOOK: usize = 256;

/// After this time a payment without a reply may be made again. A reply, or the end of the connection,
/// ends it sooner; this is for a worker that has ended meanwhile.
const DOUBT: Duration = Duration::from_secs(60);

/// What the process owes, of all workers.
#[derive(Debug, Default)]
pub(super) struct Owed {
    debts: Mutex<Debts>,
    /// How many there are: most of the time none, and nobody needs the lock.
    count: AtomicUsize,
    /// Told of each payment that has ended.
    ended: Notify,
}

/// Whoever has these decides alone, and nobody pays or forgets a debt meanwhile.
#[derive(Debug, Default)]
pub(super) struct Debts {
    /// By counter.
    by_entry: HashMap<u128, Debt>,
    /// The order in which they are paid in the background.
    queue: VecDeque<u128>,
}

/// What is owed of one counter.
#[derive(Debug)]
struct Debt {
    charge: OwnedCharge,
    /// The store that it is owed to.
    to: DecidedBy,
    /// What the counter here held before; none: nothing.
    base: Option<AnyState>,
    payment: Payment,
    is_queued: bool,
}

/// What is being done about a debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payment {
    /// Nothing.
    Due,
    /// Somebody waits for its reply, but not for longer than until this instant.
    OnItsWay(Instant),
    /// The reply is late, and may come until this instant.
    InDoubt(Instant),
}

/// A payment of a debt.
struct Bill {
    charge: OwnedCharge,
    to: DecidedBy,
    /// What is paid.
    beyond: AnyState,
    /// What the counter here held then.
    state: AnyState,
}

impl Owed {
    /// How many counters have something that the store does not.
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// None: nothing is owed of this counter to this store.
    fn payment(&self, entry: u128, to: DecidedBy) -> Option<Payment> {
        if self.is_empty() {
            return None;
        }
        let debts = self.lock();
        debts.by_entry.get(&entry).filter(|debt| debt.to == to).map(|debt| debt.payment)
    }

    /// Waits until nobody is paying the debt of a counter.
    async fn wait_for_payment(&self, entry: u128, to: DecidedBy) {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            if !matches!(self.payment(entry, to), Some(Payment::OnItsWay(_))) {
                return;
            }
            ended.await;
        }
    }

    /// From now on, what the counter here holds beyond `base` is owed `to` a store; false if there is
    /// no room.
    pub(super) fn begin(
        &self,
        debts: &mut Debts,
        charge: &Charge<'_>,
        (to, base): (DecidedBy, Option<AnyState>),
    ) -> bool {
        let Debts { by_entry, queue } = debts;
        let (entry, has_room) = (charge.key.entry, by_entry.len() < MAX_DEBTS);
        match by_entry.entry(entry) {
            Entry::Occupied(_) => true,
            Entry::Vacant(vacant) if has_room => {
                let (charge, payment) = (OwnedCharge::from(charge), Payment::Due);
                vacant.insert(Debt { charge, to, base, payment, is_queued: true });
                queue.push_back(entry);
                self.count.fetch_add(1, Ordering::Relaxed);
                true
            }
            Entry::Vacant(_) => false,
        }
    }

    /// A payment has ended, and it is not known that the store has it.
    fn fail(&self, entry: u128, payment: Payment) {
        self.lock().end(entry, payment);
        self.ended.notify_waiters();
    }

    /// Nothing is owed of a counter any more.
    pub(super) fn forget(&self, debts: &mut Debts, entry: u128) {
        if debts.by_entry.remove(&entry).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.ended.notify_waiters();
        }
    }

    /// Nothing is owed of any counter any more: their names are those of nobody.
    pub(super) fn forget_all(&self) {
        let mut debts = self.lock();
        *debts = Debts::default();
        self.count.store(0, Ordering::Relaxed);
        drop(debts);
        self.ended.notify_waiters();
    }

    /// Debts whose turn it is.
    fn due(&self) -> Vec<u128> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut debts = self.lock();
        let Debts { by_entry, queue } = &mut *debts;
        let due: Vec<u128> = queue.drain(..queue.len().min(A_LOOK)).collect();
        due.into_iter()
            .filter(|entry| {
                let Some(debt) = by_entry.get_mut(entry) else { return false };
                let may_begin = debt.payment.may_begin();
                debt.is_queued = !may_begin;
                if !may_begin {
                    queue.push_back(*entry);
                }
                may_begin
            })
            .collect()
    }

    /// For as long as it takes to decide or settle one request.
    pub(super) fn lock(&self) -> MutexGuard<'_, Debts> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Debts {
    /// Whether something is owed of a counter.
    pub(super) fn contains(&self, entry: u128) -> bool {
        self.by_entry.contains_key(&entry)
    }

    /// Notes how a payment ended that left something owed, and queues the rest.
    fn end(&mut self, entry: u128, payment: Payment) {
        if let Some(debt) = self.by_entry.get_mut(&entry) {
            debt.payment = payment;
            if !std::mem::replace(&mut debt.is_queued, true) {
                self.queue.push_back(entry);
            }
        }
    }
}

impl Payment {
    /// Whether nobody pays already.
    fn may_begin(self) -> bool {
        match self {
            Payment::Due => true,
            Payment::OnItsWay(until) | Payment::InDoubt(until) => Instant::now() >= until,
        }
    }
}

impl Store {
    /// Pays what is owed of these counters to the store that is about to decide about them. What is
    /// owed to another one is paid in the background: it need not answer for this.
    ///
    /// # Errors
    /// It is not known to have it in time.
    pub(super) async fn pay(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        to: DecidedBy,
        (now, deadline): (Timestamp, Instant),
    ) -> Result<(), Unanswered> {
        if self.stores.owed.is_empty() {
            return Ok(());
        }
        let owed = &self.stores.owed;
        let paying = async {
            for entry in charges.iter().map(|charge| charge.key.entry) {
                owed.wait_for_payment(entry, to).await;
                match owed.payment(entry, to) {
                    None => {}
                    Some(payment) if payment.may_begin() => {
                        let payment = self.start_payment(entry, now).await;
                        payment.unwrap_or(Err(Unanswered::BadReply))?;
                    }
                    Some(_) => return Err(Unanswered::Away),
                }
            }
            Ok(())
        };
        timeout_at(deadline, paying).await.unwrap_or(Err(Unanswered::Timeout))
    }

    /// Pays some of what nobody asks for.
    pub(super) fn pay_some(self: &Rc<Self>, now: Timestamp) {
        for entry in self.stores.owed.due() {
            self.start_payment(entry, now);
        }
    }

    /// Pays all that is owed, or as much as it can until `deadline`.
    pub(super) async fn pay_all(self: &Rc<Self>, now: Timestamp, deadline: Instant) {
        while !self.stores.owed.is_empty() && Instant::now() < deadline {
            self.pay_some(now);
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Brings a store what it is owed.
    ///
    /// # Errors
    /// It is not known to have it.
    async fn pay_bill(
        &self,
        bill: &Bill,
        (now, deadline): (Timestamp, Instant),
        orphan: &Rc<Orphan>,
    ) -> Result<(), Unanswered> {
        let charge = bill.charge.charge();
        let server = match self.backend(bill.to) {
            Some(Backend::Redis(redis)) => {
                let place = redis.place(charge.key.owner);
                self.meet_server((redis, bill.to), place)
            }
            _ => 0,
        };
        // What is owed comes on top of what was there before.
        self.complete(&[charge], bill.to, (now, deadline)).await?;
        match self.backend(bill.to) {
            Some(Backend::Redis(redis)) => {
                redis.add(&charge, &bill.beyond, (now, deadline), (server, orphan)).await
            }
            Some(Backend::Memory(memory)) => {
                memory.add(&charge, &bill.beyond, now);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn start_payment(
        self: &Rc<Self>,
        entry: u128,
        now: Timestamp,
    ) -> JoinHandle<Result<(), Unanswered>> {
        tokio::task::spawn_local(make_payment(Rc::downgrade(self), entry, now))
    }

    /// Has a debt on its way, unless it is already. A debt of nothing is none any more.
    fn take_bill(&self, entry: u128, now: Timestamp) -> Option<Bill> {
        let owed = &self.stores.owed;
        let mut debts = owed.lock();
        let debt = debts.by_entry.get_mut(&entry).filter(|debt| debt.payment.may_begin())?;
        let charge = debt.charge.charge();
        let (quota, now) = (self.share(&charge), self.local_time(now));
        let beyond = |state| Some((quota.beyond(&state, debt.base.as_ref(), now)?, state));
        let Some((beyond, state)) = self.stores.alone.state(&charge).and_then(beyond) else {
            owed.forget(&mut debts, entry);
            return None;
        };
        debt.payment = Payment::OnItsWay(Instant::now() + DOUBT);
        Some(Bill { charge: debt.charge.clone(), to: debt.to, beyond, state })
    }

    /// The store has what was owed.
    fn settle_bill(&self, bill: &Bill, now: Timestamp) {
        let (charge, owed) = (bill.charge.charge(), &self.stores.owed);
        let (entry, mut debts) = (charge.key.entry, owed.lock());
        let Some(debt) = debts.by_entry.get_mut(&entry) else { return };
        debt.base = Some(bill.state.clone());
        self.know_paid(&charge, &bill.beyond, now);
        if self.stores.alone.state(&charge).is_none_or(|state| state == bill.state) {
            owed.forget(&mut debts, entry);
        } else {
            debts.end(entry, Payment::Due);
        }
        drop(debts);
        owed.ended.notify_waiters();
    }
}

/// Pays the debt of one counter, unless that is being done. It goes on when nobody waits for it.
async fn make_payment(store: Weak<Store>, entry: u128, now: Timestamp) -> Result<(), Unanswered> {
    let Some(store) = store.upgrade() else { return Ok(()) };
    let Some(bill) = store.take_bill(entry, now) else { return Ok(()) };
    let orphan = Rc::<Orphan>::default();
    let deadline = Instant::now() + store.stores.settings.deadline;
    let paid = store.pay_bill(&bill, (now, deadline), &orphan).await;
    let owed = &store.stores.owed;
    match paid {
        Ok(()) => store.settle_bill(&bill, now),
        // Who else has the orphan would hand it the reply; without them, nothing was sent.
        Err(Unanswered::Timeout) if Rc::strong_count(&orphan) > 1 => {
            owed.fail(entry, Payment::InDoubt(Instant::now() + DOUBT));
            let store = Rc::downgrade(&store);
            orphan.adopt(move |reply| match (store.upgrade(), reply) {
                (Some(store), Ok(_)) => store.settle_bill(&bill, now),
                (Some(store), Err(_)) => store.stores.owed.fail(entry, Payment::Due),
                (None, _) => {}
            });
        }
        Err(_) => owed.fail(entry, Payment::Due),
    }
    paid
}
