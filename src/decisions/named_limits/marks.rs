//! Marks that are kept beside counters: that a part of a receipt was used, and when a counter was
//! reset.
//!
//! A mark is a counter of one unit, wherever counters are: so it outlives the process as they do,
//! and all proxies that share them see it. It has room apart from them ([`Origin::Mark`]).

use std::{rc::Rc, time::Duration};

use tollgate_clock::Timestamp;
use tollgate_limit::{
    Align, Charge, Fallback, FixedWindow, Hashing, Key, LimitId, Origin, Quota, Scope, WhenFull,
};
use tollgate_store::{Store, StoreError};

/// The part of a receipt that is redeemed. Each is used once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::decisions) enum Part {
    /// Units of rates.
    Units,
    /// Slots of limits with `concurrent`.
    Slots,
}

/// The kind of parts that are hashed here.
const RECEIPT: u8 = b'R';
const LIMIT: u8 = b'l';

/// A shorter window is not kept on disk.
const SHORTEST: Duration = Duration::from_secs(60);

/// The longest window that there is.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// One unit until a receipt ends, or longer.
pub(super) fn once(from: Timestamp, ends: Timestamp) -> Quota {
    let left = Duration::from_secs(ends.saturating_since(from).as_secs() + 1);
    one_in(left.max(SHORTEST))
}

/// The marks that a part of a receipt was used.
pub(super) struct MarkedUse<'m> {
    pub(super) nonce: &'m [u8; 16],
    pub(super) part: Part,
    pub(super) hasher: &'m Hashing,
}

impl MarkedUse<'_> {
    /// That all limits in it were.
    pub(super) fn of_all<'q>(&self, quota: &'q Quota) -> Charge<'q> {
        let owner = self.owner();
        // The length may be another one when it is shown again, and must not make another counter.
        mark(Key::new(owner, owner, LimitId::new("", "receipt", "once", 0)), quota)
    }

    /// That this limit was. It is kept with those of the other limits, so that all or none is
    /// marked.
    pub(super) fn of_limit<'q>(&self, limit: &str, quota: &'q Quota) -> Charge<'q> {
        let parts =
            [(RECEIPT, self.nonce.as_slice()), (RECEIPT, self.kind()), (LIMIT, limit.as_bytes())];
        let entry = self.hasher.hash(parts);
        mark(Key::new(self.owner(), entry, LimitId::new("", "receipt", "once", 0)), quota)
    }

    fn owner(&self) -> u128 {
        self.hasher.hash([(RECEIPT, self.nonce.as_slice()), (RECEIPT, self.kind())])
    }

    fn kind(&self) -> &'static [u8] {
        match self.part {
            Part::Units => b"units",
            Part::Slots => b"slots",
        }
    }
}

/// Marks that the counters of these charges were reset at `now`.
///
/// # Errors
/// As of [`Store::charge`].
pub(crate) async fn note_reset(
    charges: &[Charge<'_>],
    store: &Rc<Store>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let quotas: Vec<Quota> = charges.iter().map(while_receipts_last).collect();
    for (charge, quota) in charges.iter().zip(&quotas) {
        // That it was marked in the meantime is as good.
        store.charge(&[mark(of_reset(charge.key), quota)], now).await?;
    }
    Ok(())
}

/// Whether one of these counters was reset after `made`.
///
/// # Errors
/// As of [`Store::peek_known`].
pub(super) async fn was_reset_since(
    charges: &[Charge<'_>],
    made: Timestamp,
    store: &Rc<Store>,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let quotas: Vec<Quota> = charges.iter().map(while_receipts_last).collect();
    let marks: Vec<Charge<'_>> = charges
        .iter()
        .zip(&quotas)
        .map(|(charge, quota)| mark(of_reset(charge.key), quota))
        .collect();
    let peeked = store.peek_known(&marks, now).await?;
    Ok(peeked.outcomes.iter().zip(&quotas).any(|(outcome, quota)| {
        let reset_at = outcome.standing.reset.saturating_sub(quota.longest());
        outcome.standing.used > 0 && reset_at > made
    }))
}

/// The key of the mark that a counter was reset.
pub(crate) fn of_reset(key: Key) -> Key {
    Key::new(key.owner, key.entry, LimitId::new("", "receipt", "reset", 0))
}

/// One unit for as long as a receipt of a charge may be taken.
fn while_receipts_last(charge: &Charge<'_>) -> Quota {
    one_in(charge.quota.longest().clamp(SHORTEST, LONGEST))
}

fn one_in(length: Duration) -> Quota {
    Quota::FixedWindow(FixedWindow { limit: 1, align: Align::FirstRequest(length) })
}

fn mark(key: Key, quota: &Quota) -> Charge<'_> {
    Charge {
        scope: Scope::Shared,
        origin: Origin::Mark,
        fallback: Fallback::Closed,
        full: WhenFull::Closed,
        ..Charge::new(key, quota, 1)
    }
}
