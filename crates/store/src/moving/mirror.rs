//! Charges the store that does not decide as well, and counts whether it agrees.

use std::rc::Rc;

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, DecidedBy, Decision, Outcome, OwnedCharge, Receipt, Verdict};

use super::MoveState;
use crate::{Adjustment, Backend, Store, call_time::CallTime};

/// Most refunds that a worker keeps of one counter while the mirror has not replied.
const MAX_EARLY: usize = 64;

/// The store that is charged though it does not decide about a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mirror {
    /// The current store: the caller is moved, and other proxies still let that store decide.
    Current,
    /// The next store: the caller is mirrored.
    Next,
}

/// A request's charges that are mirrored, with the decision of the store that decided.
struct MirroredRequest {
    decided: Vec<(OwnedCharge, Outcome)>,
    verdict: Verdict,
}

/// A charge that is mirrored, with the outcome of the store that decided.
#[derive(Clone, Copy)]
struct MirroredCharge<'m, 'c> {
    charge: Charge<'c>,
    decided: &'m Outcome,
}

/// How a mirror's decisions compare with those of the store that decided.
struct Comparison {
    agrees: bool,
    has_replied: bool,
    has_failed: bool,
}

impl Mirror {
    fn decided_by(self) -> DecidedBy {
        match self {
            Mirror::Current => DecidedBy::Current,
            Mirror::Next => DecidedBy::Next,
        }
    }
}

impl Store {
    /// Which store is charged as well for the counters of an owner. The current store is so only in
    /// Redis: no other proxy uses the counters of this process.
    fn mirror_of(&self, owner: u128) -> Option<Mirror> {
        match self.move_state(owner)? {
            MoveState::Mirrored => Some(Mirror::Next),
            MoveState::Moved => (self.current.redis().is_some()
                && self.stores.moving.charges_both())
            .then_some(Mirror::Current),
        }
    }

    /// Charges the mirror of each owner in the background, and counts whether it agrees.
    pub(crate) fn mirror(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        decision: &Decision,
        now: Timestamp,
    ) {
        if self.next.is_none() {
            return;
        }
        for mirror in [Mirror::Next, Mirror::Current] {
            let is_mirrored = |(charge, _): &(&Charge<'_>, &Outcome)| {
                self.mirror_of(charge.key.owner) == Some(mirror)
            };
            let pairs = charges.iter().zip(&decision.outcomes).filter(is_mirrored);
            let decided: Vec<_> =
                pairs.map(|(charge, outcome)| (OwnedCharge::from(charge), *outcome)).collect();
            if !decided.is_empty() {
                let store = Rc::clone(self);
                let request = MirroredRequest { decided, verdict: decision.verdict };
                tokio::task::spawn_local(async move {
                    store.mirror_request(mirror, &request, now).await;
                });
            }
        }
    }

    async fn mirror_request(
        self: &Rc<Self>,
        mirror: Mirror,
        request: &MirroredRequest,
        now: Timestamp,
    ) {
        let time = CallTime { now, deadline: Instant::now() + self.stores.settings.deadline };
        let decided = request.decided.iter();
        let all: Vec<MirroredCharge<'_, '_>> = decided
            .map(|(charge, decided)| MirroredCharge { charge: charge.charge(), decided })
            .collect();
        let charges: Vec<Charge<'_>> = all.iter().map(|one| one.charge).collect();
        let mut total = Comparison { agrees: true, has_replied: false, has_failed: false };
        for group in self.groups(&charges, |_| mirror.decided_by()) {
            let mirrored: SmallVec<[_; 2]> = group.members(&all).copied().collect();
            let compared = self.mirror_group(mirror, &mirrored, request.verdict, time).await;
            total.agrees &= compared.agrees;
            total.has_replied |= compared.has_replied;
            total.has_failed |= compared.has_failed;
        }
        if total.has_replied {
            self.stores.counts.count_mirrored(total.agrees);
        }
        if total.has_failed {
            self.stores.counts.unmirrored.add(1);
        }
    }

    /// Charges the mirror for what one call decides.
    async fn mirror_group(
        self: &Rc<Self>,
        mirror: Mirror,
        mirrored: &[MirroredCharge<'_, '_>],
        verdict: Verdict,
        time: CallTime,
    ) -> Comparison {
        let mut compared = Comparison { agrees: true, has_replied: false, has_failed: false };
        let charges: SmallVec<[Charge<'_>; 2]> = mirrored.iter().map(|it| it.charge).collect();
        let carried = match mirror {
            // The current store has its own counters.
            Mirror::Current => Ok(charges.iter().map(|_| false).collect()),
            Mirror::Next => self.carry_over(&charges, time).await,
        };
        let carried: SmallVec<[bool; 2]> = match carried {
            Ok(carried) => carried,
            Err(error) => {
                tracing::debug!(%error, "a caller could not be mirrored");
                return Comparison { has_failed: true, ..compared };
            }
        };
        // A counter that was carried over just now includes this charge, under the same receipt.
        let mut to_charge = SmallVec::<[MirroredCharge<'_, '_>; 2]>::new();
        for (one, is_carried) in mirrored.iter().zip(carried) {
            compared.has_replied |= is_carried;
            match (is_carried, one.decided.receipt) {
                (true, Some(receipt)) => self.pair(mirror, &one.charge, receipt, receipt, time.now),
                (true, None) => {}
                (false, _) => to_charge.push(*one),
            }
        }
        if to_charge.is_empty() {
            return compared;
        }
        let Some(decision) = self.charge_mirror(mirror, &to_charge, time).await else {
            return Comparison { has_failed: true, ..compared };
        };
        compared.has_replied = true;
        for (MirroredCharge { charge, decided }, outcome) in
            to_charge.iter().zip(&decision.outcomes)
        {
            compared.agrees &= outcome.fits() == decided.fits();
            match (decided.receipt, outcome.receipt) {
                (Some(decided), Some(own)) => self.pair(mirror, charge, decided, own, time.now),
                // The request was denied by another limit.
                (None, Some(own)) if verdict == Verdict::Deny => {
                    self.settle_in(mirror, charge, Adjustment::GiveBack(own), time.now);
                }
                _ => {}
            }
        }
        compared
    }

    /// The mirror's decision about charges of one partition; none if it does not answer.
    async fn charge_mirror(
        self: &Rc<Self>,
        mirror: Mirror,
        mirrored: &[MirroredCharge<'_, '_>],
        time: CallTime,
    ) -> Option<Decision> {
        let charges: SmallVec<[Charge<'_>; 2]> = mirrored.iter().map(|it| it.charge).collect();
        match self.backend(mirror.decided_by())? {
            Backend::Memory(memory) => memory.charge(&charges, time.now).ok(),
            Backend::Disk(disk) => disk.charge_when_resident(&charges, time).await.ok(),
            Backend::Redis(redis) => match redis.charge(&charges, time, None).await {
                Ok(reply) => Some(reply.decision),
                Err(error) => {
                    tracing::debug!(%error, "a decision could not be mirrored");
                    None
                }
            },
        }
    }

    /// Remembers the mirror's receipt of a charge by the receipt of the store that decided. What
    /// was given back in that store before the mirror had replied is given back in the mirror now.
    fn pair(
        self: &Rc<Self>,
        mirror: Mirror,
        charge: &Charge<'_>,
        decided: Receipt,
        own: Receipt,
        now: Timestamp,
    ) {
        let entry = charge.key.entry;
        let mut records = self.move_records.borrow_mut();
        records.receipts.insert((mirror, entry, decided), own);
        let refunds = records.early.get_mut(&(mirror, entry));
        let refunded = refunds.and_then(|refunds| {
            let position = refunds.iter().position(|(receipt, _)| *receipt == decided)?;
            Some(refunds.swap_remove(position))
        });
        drop(records);
        if let Some((_, cost)) = refunded {
            self.settle_in(mirror, &Charge { cost, ..*charge }, Adjustment::GiveBack(own), now);
        }
    }

    /// Applies an adjustment to the mirrored charge as well.
    pub(crate) fn settle_mirrored(
        self: &Rc<Self>,
        charge: &Charge<'_>,
        decided_by: DecidedBy,
        adjustment: Adjustment,
        now: Timestamp,
    ) {
        let mirror = match (self.mirror_of(charge.key.owner), decided_by) {
            (Some(Mirror::Next), DecidedBy::Current) => Mirror::Next,
            (Some(Mirror::Current), DecidedBy::Next) => Mirror::Current,
            _ => return,
        };
        let entry = charge.key.entry;
        let own =
            |receipt| self.move_records.borrow().receipts.get(&(mirror, entry, receipt)).copied();
        let adjustment = match adjustment {
            Adjustment::Take => Adjustment::Take,
            Adjustment::GiveBack(receipt) => match own(receipt) {
                Some(own) => Adjustment::GiveBack(own),
                None => {
                    let mut records = self.move_records.borrow_mut();
                    let early = records.early.entry((mirror, entry));
                    // Bounded, because a mirror may never reply.
                    if early.len() < MAX_EARLY {
                        early.push((receipt, charge.cost));
                    }
                    return;
                }
            },
            Adjustment::Renew(receipt) => match own(receipt) {
                Some(own) => Adjustment::Renew(own),
                None => return,
            },
        };
        self.settle_in(mirror, charge, adjustment, now);
    }

    fn settle_in(
        self: &Rc<Self>,
        mirror: Mirror,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        now: Timestamp,
    ) {
        self.settle_at(mirror.decided_by(), charge, adjustment, now);
    }

    /// Applies an adjustment in one store, whichever has decided.
    pub(crate) fn settle_at(
        self: &Rc<Self>,
        at: DecidedBy,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        now: Timestamp,
    ) {
        match self.backend(at) {
            Some(Backend::Memory(memory)) => {
                memory.settle(charge, adjustment, now);
            }
            Some(Backend::Disk(disk)) => {
                self.settle_on_disk(disk, charge, adjustment, now);
            }
            Some(Backend::Redis(redis)) => redis.settle(charge, adjustment, now),
            None => {}
        }
    }
}
