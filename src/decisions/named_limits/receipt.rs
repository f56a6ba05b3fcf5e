//! Receipts: what a program shows to correct what it was charged.
//!
//! A receipt is signed under the counters' secret, so every proxy that shares the counters takes
//! it, and nobody can make one up. It is bound to the windows that were charged, ends with the last
//! of them or with a reset of their counters, and is used once for each of its limits. Both are
//! marks in the store (`marks`).

use std::{collections::BTreeSet, rc::Rc};

use aws_lc_rs::{hmac, rand};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use tollgate_clock::Timestamp;
use tollgate_gate::{
    CounterNames,
    tally::{DecidedCharge, Tally},
};
use tollgate_limit::{Charge, DecidedBy, Hashing, Key, Quota, Verdict};
use tollgate_policy::{Allowance, Limit, Policies, Policy};
use tollgate_store::{CorrectionRoom, Store, StoreError};

use super::{
    charges::Asker,
    marks::{self, MarkedUse, Part},
    settlement::{SettledCost, SettlementError},
};

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
    /// A counter was reset since.
    #[error("the receipt has ended, as its counter was reset")]
    Reset,
    /// It cannot cost what it is to cost.
    #[error(transparent)]
    Settlement(#[from] SettlementError),
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
    /// When it was made, by the clock of the store. Those of earlier releases do not say.
    #[serde(default)]
    w: u64,
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
    /// What the entry is of, without the window; none: the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    h: Option<u128>,
    /// What the limit allowed at once, and the microseconds until all of it is back: of its rates,
    /// which share a counter, the one that was charged. Those of earlier releases do not say.
    #[serde(default)]
    m: (u32, u64),
    /// The cost.
    c: u32,
    /// The algorithm's receipt.
    a: u64,
    i: u64,
    /// Which store has decided.
    d: u8,
    /// The name of the counter, with the first of its windows. Receipts of earlier releases have
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    n: Option<String>,
}

/// What a receipt is made of, beside what was taken.
pub(in crate::decisions) struct ReceiptTerms<'r> {
    pub(in crate::decisions) policy: &'r Policy,
    /// The names of the counters.
    pub(in crate::decisions) names: &'r CounterNames,
    /// The program's instant; none: it was charged when it came.
    pub(in crate::decisions) at: Option<Timestamp>,
    pub(in crate::decisions) now: Timestamp,
}

/// What a receipt is shown for.
#[derive(Clone, Copy)]
pub(in crate::decisions) struct RedeemRequest<'r> {
    pub(in crate::decisions) receipt: &'r str,
    pub(in crate::decisions) part: Part,
    /// Only this limit; none: all.
    pub(in crate::decisions) limit: Option<&'r str>,
    /// What is to have been charged in the end.
    pub(in crate::decisions) cost: SettledCost<'r>,
}

/// What a receipt was made for, once it is redeemed.
pub(in crate::decisions) struct Redemption<'p> {
    pub(in crate::decisions) policy: &'p Policy,
    pub(in crate::decisions) charges: Vec<ReceiptCharge<'p>>,
    /// The program's instant; none: it was charged when it came.
    pub(in crate::decisions) at: Option<Timestamp>,
    /// To be kept until the charges are corrected.
    pub(in crate::decisions) room: CorrectionRoom,
}

/// A charge that a receipt was made for.
pub(in crate::decisions) struct ReceiptCharge<'p> {
    pub(in crate::decisions) limit: &'p Limit,
    /// What its counter is of: the same in all windows of the limit.
    pub(in crate::decisions) tuple: u128,
    pub(in crate::decisions) window_secs: Option<u64>,
    /// What was charged.
    pub(in crate::decisions) charge: Charge<'p>,
    /// What is to have been charged in the end.
    pub(in crate::decisions) settled_cost: u32,
    pub(in crate::decisions) receipt: tollgate_limit::Receipt,
    pub(in crate::decisions) decided_by: DecidedBy,
    /// The name of its counter, of the first window. None: of others, and where it is not known.
    pub(in crate::decisions) name: Option<String>,
}

/// Receipts of one limit. Those of several, made by releases before, are used as a whole.
const USED_AS_A_WHOLE: u8 = 1;
/// Receipts of several limits, each of which is used apart. Releases before do not take them, as
/// they would take them again as a whole.
const USED_BY_LIMIT: u8 = 2;
const MAC_BYTES: usize = 32;
/// Longer texts are none of ours: 8 charges of limits with 4 windows, and the longest names and
/// keys, come to less.
const MAX_TEXT: usize = 32 * 1024;

/// The kind of parts that are hashed here: those of signatures.
const SIGNATURE: u8 = b'S';

/// A receipt for what a tally has taken, as of `now`, or at the program's instant; none: it has
/// taken nothing that could be given back.
pub(in crate::decisions) fn sign(
    hasher: &Hashing,
    tally: &Tally<'_>,
    ReceiptTerms { policy, names, at, now }: ReceiptTerms<'_>,
) -> Option<String> {
    let mut latest = None;
    let taken = tally.charges().filter_map(|own| {
        let name = names.of(&own);
        let counter = (own.planned.limit.position, name);
        let is_first_window = latest.replace(counter) != Some(counter);
        taken_by(&own, name.filter(|_| is_first_window))
    });
    let taken: Vec<ReceiptEntry> = taken.collect();
    let ends = tally.charges().filter(|own| own.outcome.receipt.is_some());
    let ends = ends.map(|own| end_of(&own, now)).max()?;
    let mut nonce = [0; 16];
    rand::fill(&mut nonce).ok()?;
    let written = Written {
        p: (*policy.name).into(),
        n: nonce,
        w: if at.is_some() { now } else { tally.store_time(now) }.as_micros(),
        e: ends.as_micros(),
        t: taken,
        at: at.map(Timestamp::as_micros),
    };
    let version = match written.limits().len() {
        0 | 1 => USED_AS_A_WHOLE,
        _ => USED_BY_LIMIT,
    };
    let mut bytes = vec![version];
    bytes.extend(serde_json::to_vec(&written).ok()?);
    let mac = hmac::sign(&signing_key(hasher), &bytes);
    bytes.extend_from_slice(mac.as_ref());
    Some(URL_SAFE_NO_PAD.encode(bytes)).filter(|text| text.len() <= MAX_TEXT)
}

fn taken_by(own: &DecidedCharge<'_, '_>, name: Option<&str>) -> Option<ReceiptEntry> {
    let receipt = own.outcome.receipt?;
    let Key { owner, entry } = own.charge.key;
    let of_tuple = own.charge.key.tuple(own.planned.allowance.id);
    Some(ReceiptEntry {
        l: own.planned.limit.name.clone(),
        o: owner,
        k: entry,
        h: (of_tuple != owner).then_some(of_tuple),
        m: rate_of(own.charge.quota),
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
        n: name.map(str::to_owned),
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
    request: RedeemRequest<'_>,
    policies: &'p Policies,
    asker: Asker<'_>,
    store: &Rc<Store>,
    now: Timestamp,
) -> Result<Redemption<'p>, ReceiptError> {
    let RedeemRequest { receipt, part, .. } = request;
    let (version, written) = verified(receipt, asker.hasher()).ok_or(ReceiptError::Forged)?;
    let at = written.at.map(Timestamp::from_micros);
    let ends = Timestamp::from_micros(written.e);
    if at.is_none() && ends <= now {
        return Err(ReceiptError::Ended);
    }
    let policy = policies.iter().find(|policy| *policy.name == *written.p);
    let policy = policy.ok_or(ReceiptError::Gone)?;
    let all = charges_of(&written.t, request, policy, asker)?;
    let charges: Vec<Charge<'_>> = all.iter().map(|own| own.charge).collect();
    let made = Timestamp::from_micros(written.w);
    if marks::was_reset_since(&charges, made, store, now).await? {
        return Err(ReceiptError::Reset);
    }
    // Before it is marked as used: the program may show it again.
    let room = store.reserve_corrections(all.iter().map(|own| (&own.charge, own.decided_by)))?;
    let quota = marks::once(at.unwrap_or(now), ends);
    let used = MarkedUse { nonce: &written.n, part, hasher: asker.hasher() };
    let used: Vec<Charge<'_>> = match version {
        USED_BY_LIMIT => {
            let limits: BTreeSet<&str> = all.iter().map(|own| &*own.limit.name).collect();
            limits.into_iter().map(|limit| used.of_limit(limit, &quota)).collect()
        }
        _ => vec![used.of_all(&quota)],
    };
    let decision = match at {
        None => store.charge(&used, now).await,
        Some(at) => {
            let decision = store.charge_at(&used, at, now);
            // Not before: the counter of an earlier use may be dropped as soon as it has ended.
            if store.client_timed().has_ended(&charges, ends) {
                return Err(ReceiptError::Ended);
            }
            decision
        }
    };
    match decision?.verdict {
        Verdict::Allow => Ok(Redemption { policy, charges: all, at, room }),
        Verdict::Deny => Err(ReceiptError::Used),
    }
}

/// The charges of a receipt that are settled, each with what it is to have cost.
///
/// # Errors
/// [`ReceiptError`], in which case none is settled.
fn charges_of<'p>(
    taken: &[ReceiptEntry],
    request: RedeemRequest<'_>,
    policy: &'p Policy,
    asker: Asker<'_>,
) -> Result<Vec<ReceiptCharge<'p>>, ReceiptError> {
    let RedeemRequest { part, limit, cost, .. } = request;
    let all = taken.iter().map(|taken| redeemed(taken, policy, asker).ok_or(ReceiptError::Gone));
    let mut all = all.collect::<Result<Vec<_>, _>>()?;
    all.retain(|own| {
        own.charge.quota.holds_leases() == (part == Part::Slots)
            && limit.is_none_or(|limit| *limit == *own.limit.name)
    });
    let Some(first) = all.first().map(|own| own.limit) else {
        return Err(ReceiptError::Nothing(match part {
            Part::Units => "settle of that: slots of `concurrent` are released",
            Part::Slots => "release: no limit in it has `concurrent`",
        }));
    };
    all.retain(|own| cost.is_for(own.limit));
    if all.is_empty() {
        return Err(SettlementError::NotByUsage(first.name.clone()).into());
    }
    for own in &mut all {
        own.settled_cost = cost.of(own.limit, &own.charge)?;
    }
    Ok(all)
}

impl Written {
    /// Its limits, each once.
    fn limits(&self) -> BTreeSet<&str> {
        self.t.iter().map(|taken| &*taken.l).collect()
    }
}

/// The version of a receipt, and what it says.
fn verified(text: &str, hasher: &Hashing) -> Option<(u8, Written)> {
    let bytes = URL_SAFE_NO_PAD.decode(text.get(..).filter(|text| text.len() <= MAX_TEXT)?).ok()?;
    let (signed, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)?;
    hmac::verify(&signing_key(hasher), signed, mac).ok()?;
    let (version, json) = signed.split_first()?;
    let is_known = [USED_AS_A_WHOLE, USED_BY_LIMIT].contains(version);
    Some((*version, serde_json::from_slice(json).ok().filter(|_| is_known)?))
}

fn signing_key(hasher: &Hashing) -> hmac::Key {
    let half = |which: &'static [u8]| hasher.hash([(SIGNATURE, which)]).to_le_bytes();
    hmac::Key::new(hmac::HMAC_SHA256, &[half(b"first"), half(b"second")].concat())
}

fn rate_of(quota: &Quota) -> (u32, u64) {
    (quota.capacity(), quota.longest().as_micros() as u64)
}

/// A charge as it was, by the policy that is in force now: its rate may be another one.
fn redeemed<'p>(
    taken: &ReceiptEntry,
    policy: &'p Policy,
    asker: Asker<'_>,
) -> Option<ReceiptCharge<'p>> {
    let is_it = |limit: &&Limit| limit.name == taken.l && !limit.is_of_descriptors();
    let limit = policy.limits.iter().find(is_it)?;
    let of_tuple = taken.h.unwrap_or(taken.o);
    let of_overrides = limit.overrides.0.iter().map(|own| &own.allowances);
    let allowances = limit.rates.iter().chain(of_overrides).flatten();
    let is_it = |allowance: &&Allowance| Key::new(taken.o, of_tuple, allowance.id).entry == taken.k;
    let own: Vec<&Allowance> = allowances.filter(is_it).collect();
    let is_of_rate = |allowance: &&&Allowance| rate_of(&allowance.quota) == taken.m;
    let allowance = own.iter().find(is_of_rate).or(own.first())?;
    let key = Key { owner: taken.o, entry: taken.k };
    let charge = Charge {
        scope: limit.scope(),
        origin: asker.origin_of_key(limit),
        fallback: limit.fallback,
        full: limit.full,
        ..Charge::new(key, &allowance.quota, taken.c)
    };
    Some(ReceiptCharge {
        limit,
        tuple: of_tuple,
        window_secs: allowance.window_secs,
        charge,
        settled_cost: taken.c,
        receipt: tollgate_limit::Receipt { at: Timestamp::from_micros(taken.a), number: taken.i },
        decided_by: match taken.d {
            0 => DecidedBy::Current,
            1 => DecidedBy::Next,
            3 => DecidedBy::ClientTime,
            _ => DecidedBy::Local,
        },
        name: taken.n.clone(),
    })
}
