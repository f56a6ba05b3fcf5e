//! Receipts: what a program shows to correct what it was charged.
//!
//! A receipt is signed under the counters' secret, so every proxy that shares the counters takes
//! it, and nobody can make one up. It is bound to the windows that were charged, ends with the last
//! of them, and is used once: a counter of its own, of one unit, is charged when it is shown.

use std::{rc::Rc, time::Duration};

use aws_lc_rs::{hmac, rand};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use tollgate_clock::Timestamp;
use tollgate_gate::tally::{DecidedCharge, Tally};
use tollgate_limit::{
    Align, Charge, DecidedBy, Fallback, FixedWindow, Hashing, Key, LimitId, Origin, Quota, Scope,
    Verdict, WhenFull,
};
use tollgate_policy::{Allowance, Limit, Policies, Policy};
use tollgate_store::{Store, StoreError};

/// Why a receipt is not taken.
#[derive(Debug, thiserror::Error)]
pub(in crate::decisions) enum ReceiptError {
    /// It was not made here, or was changed.
    #[error("this is no receipt of this proxy, or of one that shares its counters")]
    Forged,
    /// Its windows are over.
    #[error("the receipt has ended, with the window that was charged")]
    Ended,
    /// It was shown before.
    #[error("the receipt was used before")]
    Used,
    /// The policy has changed since.
    #[error("the receipt is of a limit that is not in force any more")]
    Gone,
    /// The receipt has nothing of this kind.
    #[error("the receipt has nothing to {0}")]
    Nothing(&'static str),
    /// Whether it was used before cannot be found out.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a receipt says. Numbers are of microseconds and units.
#[derive(Serialize, Deserialize)]
struct Written {
    /// The policy.
    p: Box<str>,
    /// Makes it distinct.
    n: [u8; 16],
    /// When it ends.
    e: u64,
    /// What was taken.
    t: Vec<ReceiptEntry>,
    /// The program's instant; none: it was charged when it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
}

/// What was taken of one window of a limit.
#[derive(Serialize, Deserialize)]
struct ReceiptEntry {
    /// The limit.
    l: Box<str>,
    /// The owner of the counter, and its entry.
    o: u128,
    k: u128,
    /// The cost.
    c: u32,
    /// The algorithm's receipt.
    a: u64,
    i: u64,
    /// Which store has decided.
    d: u8,
}

/// The part of a receipt that is redeemed. Each is used once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::decisions) enum Part {
    /// Units of rates.
    Units,
    /// Slots of limits with `concurrent`.
    Slots,
}

/// What a receipt is shown for.
#[derive(Clone, Copy)]
pub(in crate::decisions) struct RedeemRequest<'r> {
    pub(in crate::decisions) receipt: &'r str,
    pub(in crate::decisions) part: Part,
    /// Only this limit; none: all.
    pub(in crate::decisions) limit: Option<&'r str>,
}

/// What a receipt was made for, once it is redeemed.
pub(in crate::decisions) struct Redemption<'p> {
    pub(in crate::decisions) policy: &'p Policy,
    pub(in crate::decisions) charges: Vec<ReceiptCharge<'p>>,
    /// The program's instant; none: it was charged when it came.
    pub(in crate::decisions) at: Option<Timestamp>,
}

/// A charge that a receipt was made for.
pub(in crate::decisions) struct ReceiptCharge<'p> {
    pub(in crate::decisions) limit: &'p Limit,
    pub(in crate::decisions) window_secs: Option<u64>,
    pub(in crate::decisions) charge: Charge<'p>,
    pub(in crate::decisions) receipt: tollgate_limit::Receipt,
    pub(in crate::decisions) decided_by: DecidedBy,
}

const VERSION: u8 = 1;
const MAC_BYTES: usize = 32;
/// Longer texts are none of ours.
const MAX_TEXT: usize = 4096;

/// The kinds of parts that are hashed here: those of receipts, and of signatures.
const RECEIPT: u8 = b'R';
const SIGNATURE: u8 = b'S';

/// A receipt for what a tally has taken, as of `now`, or at the program's instant; none: it has
/// taken nothing that could be given back.
pub(in crate::decisions) fn sign(
    hasher: &Hashing,
    policy: &Policy,
    tally: &Tally<'_>,
    at: Option<Timestamp>,
    now: Timestamp,
) -> Option<String> {
    let taken: Vec<ReceiptEntry> = tally.charges().filter_map(|own| taken_by(&own)).collect();
    let ends = tally.charges().filter(|own| own.outcome.receipt.is_some());
    let ends = ends.map(|own| end_of(&own, now)).max()?;
    let mut nonce = [0; 16];
    rand::fill(&mut nonce).ok()?;
    let written = Written {
        p: (*policy.name).into(),
        n: nonce,
        e: ends.as_micros(),
        t: taken,
        at: at.map(Timestamp::as_micros),
    };
    let mut bytes = vec![VERSION];
    bytes.extend(serde_json::to_vec(&written).ok()?);
    let mac = hmac::sign(&signing_key(hasher), &bytes);
    bytes.extend_from_slice(mac.as_ref());
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

fn taken_by(own: &DecidedCharge<'_, '_>) -> Option<ReceiptEntry> {
    let receipt = own.outcome.receipt?;
    Some(ReceiptEntry {
        l: own.planned.limit.name.clone(),
        o: own.charge.key.owner,
        k: own.charge.key.entry,
        c: own.charge.cost,
        a: receipt.at.as_micros(),
        i: receipt.number,
        d: match own.outcome.decided_by {
            DecidedBy::Current => 0,
            DecidedBy::Next => 1,
            DecidedBy::Local => 2,
            DecidedBy::ClientTime => 3,
            DecidedBy::Memo | DecidedBy::NoStore => return None,
        },
    })
}

/// When a charge cannot be given back any more.
fn end_of(own: &DecidedCharge<'_, '_>, now: Timestamp) -> Timestamp {
    own.charge.quota.lease().map_or(own.standing().reset, |lease| now + lease)
}

/// Takes a receipt apart and uses up the part of it that is asked for, which may be narrowed to one
/// limit.
///
/// # Errors
/// [`ReceiptError`].
pub(in crate::decisions) async fn redeem<'p>(
    RedeemRequest { receipt, part, limit }: RedeemRequest<'_>,
    policies: &'p Policies,
    hasher: &Hashing,
    store: &Rc<Store>,
    now: Timestamp,
) -> Result<Redemption<'p>, ReceiptError> {
    let written = verified(receipt, hasher).ok_or(ReceiptError::Forged)?;
    let at = written.at.map(Timestamp::from_micros);
    let ends = Timestamp::from_micros(written.e);
    if at.is_none() && ends <= now {
        return Err(ReceiptError::Ended);
    }
    let policy = policies.iter().find(|policy| *policy.name == *written.p);
    let policy = policy.ok_or(ReceiptError::Gone)?;
    let all = written.t.iter().map(|taken| redeemed(taken, policy).ok_or(ReceiptError::Gone));
    let mut all = all.collect::<Result<Vec<_>, _>>()?;
    all.retain(|own| {
        own.charge.quota.holds_leases() == (part == Part::Slots)
            && limit.is_none_or(|limit| *limit == *own.limit.name)
    });
    if all.is_empty() {
        return Err(ReceiptError::Nothing(match part {
            Part::Units => "settle of that: slots of `concurrent` are released",
            Part::Slots => "release: no limit in it has `concurrent`",
        }));
    }
    let quota = once(at.unwrap_or(now), ends);
    let charge = [use_of(&written.n, part, &quota, hasher)];
    let decision = match at {
        None => store.charge(&charge, now).await,
        Some(at) => {
            let decision = store.charge_at(&charge, at, now);
            // Not before: the counter of an earlier use may be dropped as soon as it has ended.
            let charges: Vec<Charge<'_>> = all.iter().map(|own| own.charge).collect();
            if store.client_timed().has_ended(&charges, ends) {
                return Err(ReceiptError::Ended);
            }
            decision
        }
    };
    match decision?.verdict {
        Verdict::Allow => Ok(Redemption { policy, charges: all, at }),
        Verdict::Deny => Err(ReceiptError::Used),
    }
}

/// One unit until a receipt ends.
fn once(from: Timestamp, ends: Timestamp) -> Quota {
    let length = Duration::from_secs(ends.saturating_since(from).as_secs() + 1);
    Quota::FixedWindow(FixedWindow { limit: 1, align: Align::FirstRequest(length) })
}

/// A charge of the counter that each part of a receipt has for itself.
fn use_of<'q>(nonce: &[u8; 16], part: Part, quota: &'q Quota, hasher: &Hashing) -> Charge<'q> {
    let kind: &[u8] = match part {
        Part::Units => b"units",
        Part::Slots => b"slots",
    };
    let hash = hasher.hash([(RECEIPT, nonce.as_slice()), (RECEIPT, kind)]);
    Charge {
        scope: Scope::Shared,
        origin: Origin::Verified,
        fallback: Fallback::Closed,
        full: WhenFull::Closed,
        // The length may be another one when it is shown again, and must not make another counter.
        ..Charge::new(Key::new(hash, hash, LimitId::new("", "receipt", "once", 0)), quota, 1)
    }
}

fn verified(text: &str, hasher: &Hashing) -> Option<Written> {
    let bytes = URL_SAFE_NO_PAD.decode(text.get(..).filter(|text| text.len() <= MAX_TEXT)?).ok()?;
    let (signed, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)?;
    hmac::verify(&signing_key(hasher), signed, mac).ok()?;
    let (version, json) = signed.split_first()?;
    serde_json::from_slice(json).ok().filter(|_| *version == VERSION)
}

fn signing_key(hasher: &Hashing) -> hmac::Key {
    let half = |which: &'static [u8]| hasher.hash([(SIGNATURE, which)]).to_le_bytes();
    hmac::Key::new(hmac::HMAC_SHA256, &[half(b"first"), half(b"second")].concat())
}

/// A charge as it was, by the policy that is in force now: its rate may be another one.
fn redeemed<'p>(taken: &ReceiptEntry, policy: &'p Policy) -> Option<ReceiptCharge<'p>> {
    let limit = policy.limits.iter().find(|limit| limit.name == taken.l && limit.is_named())?;
    let of_overrides = limit.overrides.0.iter().map(|own| &own.allowances);
    let mut allowances = limit.rates.iter().chain(of_overrides).flatten();
    let is_it = |allowance: &&Allowance| Key::new(taken.o, taken.o, allowance.id).entry == taken.k;
    let allowance = allowances.find(is_it)?;
    let key = Key { owner: taken.o, entry: taken.k };
    let charge = Charge {
        scope: limit.scope(),
        fallback: limit.fallback,
        full: limit.full,
        ..Charge::new(key, &allowance.quota, taken.c)
    };
    Some(ReceiptCharge {
        limit,
        window_secs: allowance.window_secs,
        charge,
        receipt: tollgate_limit::Receipt { at: Timestamp::from_micros(taken.a), number: taken.i },
        decided_by: match taken.d {
            0 => DecidedBy::Current,
            1 => DecidedBy::Next,
            3 => DecidedBy::ClientTime,
            _ => DecidedBy::Local,
        },
    })
}
