//! What this process has admitted alone, until the store has it.
//!
//! While a store does not answer, limits are decided here by this process' share. What is taken then
//! is owed: the difference between what the counter here holds and what it held before. The first
//! request that the store can decide about pays it first, and what nobody asks for is paid in the
//! background. Until it is paid the counter here goes on from where it is: a second outage gives
//! nobody a second share.
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
    limit::{AnyState, Charge, DecidedBy, OwnedCharge, Quota},
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

#[derive(Debug, Default)]
struct Debts {
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

/// What is needed to pay a debt.
struct Bill {
    charge: OwnedCharge,
    to: DecidedBy,
    base: Option<AnyState>,
}

impl Owed {
    /// How many counters have something that the store does not.
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether something is owed of a counter.
    pub(super) fn contains(&self, entry: u128) -> bool {
        !self.is_empty() && self.lock().by_entry.contains_key(&entry)
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

    /// From now on, what the counter here holds beyond `base` is owed; false if there is no room.
    fn begin(&self, charge: &Charge<'_>, to: DecidedBy, base: Option<AnyState>) -> bool {
        let mut debts = self.lock();
        let Debts { by_entry, queue } = &mut *debts;
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

    /// Has a debt on its way, unless it is already.
    fn send(&self, entry: u128) -> Option<Bill> {
        let mut debts = self.lock();
        let debt = debts.by_entry.get_mut(&entry).filter(|debt| debt.payment.may_begin())?;
        debt.payment = Payment::OnItsWay(Instant::now() + DOUBT);
        Some(Bill { charge: debt.charge.clone(), to: debt.to, base: debt.base.clone() })
    }

    /// A payment has ended, and it is not known that the store has it.
    fn fail(&self, entry: u128, payment: Payment) {
        self.lock().end(entry, |debt| debt.payment = payment);
        self.ended.notify_waiters();
    }

    /// What the counter here held when it was `paid` is owed no more. It holds this `now`.
    fn settle(&self, entry: u128, paid: AnyState, now: Option<&AnyState>) {
        let mut debts = self.lock();
        if now == Some(&paid) {
            self.forget_locked(&mut debts, entry);
        } else {
            debts.end(entry, |debt| (debt.base, debt.payment) = (Some(paid), Payment::Due));
        }
        self.ended.notify_waiters();
    }

    /// Nothing is owed of a counter any more.
    fn forget(&self, entry: u128) {
        self.forget_locked(&mut self.lock(), entry);
        self.ended.notify_waiters();
    }

    /// Nothing is owed of any counter any more: their names are those of nobody.
    pub(super) fn forget_all(&self) {
        let mut debts = self.lock();
        *debts = Debts::default();
        self.count.store(0, Ordering::Relaxed);
        drop(debts);
        self.ended.notify_waiters();
    }

    fn forget_locked(&self, debts: &mut Debts, entry: u128) {
        if debts.by_entry.remove(&entry).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
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

    fn lock(&self) -> MutexGuard<'_, Debts> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Debts {
    /// Notes how a payment ended that left something owed, and queues the rest.
    fn end(&mut self, entry: u128, note: impl FnOnce(&mut Debt)) {
        if let Some(debt) = self.by_entry.get_mut(&entry) {
            note(debt);
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
    /// Has what is taken here from now on of these counters owed to a store.
    pub(super) fn owe(&self, charges: &[Charge<'_>], to: DecidedBy) {
        for charge in charges {
            let is_lease = matches!(charge.quota, Quota::Concurrency(_));
            if is_lease || self.stores.owed.contains(charge.key.entry) {
                continue;
            }
            let base = self.stores.memory.state(charge);
            if !self.stores.owed.begin(charge, to, base) {
                self.stores.counts.count_unowed();
            }
        }
    }

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

    fn start_payment(
        self: &Rc<Self>,
        entry: u128,
        now: Timestamp,
    ) -> JoinHandle<Result<(), Unanswered>> {
        tokio::task::spawn_local(make_payment(Rc::downgrade(self), entry, now))
    }

    /// The store has what the counter here held then.
    fn settle_payment(&self, charge: &OwnedCharge, paid: AnyState) {
        let charge = charge.charge();
        let state = self.stores.memory.state(&charge);
        self.stores.owed.settle(charge.key.entry, paid, state.as_ref());
    }

    /// What the counter here holds, and what of it is owed at `now`.
    fn owed_of(&self, bill: &Bill, now: Timestamp) -> Option<(AnyState, AnyState)> {
        let charge = bill.charge.charge();
        let quota = self.share(&charge);
        let state = self.stores.memory.state(&Charge { quota: &quota, ..charge })?;
        let owed = quota.beyond(&state, bill.base.as_ref(), self.local_time(now))?;
        Some((state, owed))
    }
}

/// Pays the debt of one counter, unless that is being done. It goes on when nobody waits for it.
async fn make_payment(store: Weak<Store>, entry: u128, now: Timestamp) -> Result<(), Unanswered> {
    let Some(store) = store.upgrade() else { return Ok(()) };
    let owed = &store.stores.owed;
    let Some(bill) = owed.send(entry) else { return Ok(()) };
    let Some((state, beyond)) = store.owed_of(&bill, now) else {
        owed.forget(entry);
        return Ok(());
    };
    let charge = bill.charge.charge();
    let orphan = Rc::<Orphan>::default();
    let paid = match store.backend(bill.to) {
        Some(Backend::Redis(redis)) => {
            let deadline = Instant::now() + store.stores.settings.deadline;
            redis.add(&charge, &beyond, (now, deadline), &orphan).await
        }
        Some(Backend::Memory(_)) | None => Ok(()),
    };
    match paid {
        Ok(()) => store.settle_payment(&bill.charge, state),
        // Who else has the orphan would hand it the reply; without them, nothing was sent.
        Err(Unanswered::Timeout) if Rc::strong_count(&orphan) > 1 => {
            owed.fail(entry, Payment::InDoubt(Instant::now() + DOUBT));
            let (store, charge) = (Rc::downgrade(&store), bill.charge);
            orphan.adopt(move |reply| match (store.upgrade(), reply) {
                (Some(store), Ok(_)) => store.settle_payment(&charge, state.clone()),
                (Some(store), Err(_)) => store.stores.owed.fail(entry, Payment::Due),
                (None, _) => {}
            });
        }
        Err(_) => owed.fail(entry, Payment::Due),
    }
    paid
}
