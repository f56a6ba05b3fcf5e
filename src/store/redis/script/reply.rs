//! What scripts answer: the instant, and for each charge whether it fits and what its counter holds
//! then.

use redis::Value;
use smallvec::SmallVec;

use super::NEVER;
use crate::{
    clock::Timestamp,
    limit::{
        Algorithm, AnyState, Bucket, Charge, Concurrency, Count, DecidedBy, Decision, Entry, Level,
        Log, Outcome, Outcomes, Part, Quota, Receipt, Retry, SlidingLog, Stance, Standing, Tail,
        Verdict, Window, Windows,
    },
};

/// What a script decided.
#[derive(Clone, Debug)]
pub(in crate::store) struct Reply {
    /// As every store tells it.
    pub(in crate::store) decision: Decision,
    /// What the counters hold now, in the order of the charges.
    pub(in crate::store) counts: SmallVec<[Count; 2]>,
}

impl Reply {
    /// As it is told to who only asks: nobody is denied for that.
    pub(in crate::store::redis) fn told(mut self) -> Reply {
        for outcome in &mut self.decision.outcomes {
            outcome.standing.retry = Retry::Now;
        }
        self
    }
}

/// Why a reply cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::store) enum BadReply {
    /// Scripts answer with a string of bytes.
    #[error("the reply is of another kind than what scripts return")]
    Kind,
    /// It ends too early or too late for the charges it is about.
    #[error("the reply is not as long as it should be: {0} bytes")]
    Length(usize),
    /// There is a number in it that is none of those that are counted.
    #[error("the reply has a number in it that counts nothing")]
    Number,
}

/// Reads the reply to [`charge`](super::charge) or [`peek`](super::peek), for the same charges; for a
/// peek, with costs of zero.
///
/// # Errors
/// If no script replied that.
pub(in crate::store::redis) fn read(
    charges: &[Charge<'_>],
    reply: &Value,
) -> Result<Reply, BadReply> {
    let Value::BulkString(bytes) = reply else { return Err(BadReply::Kind) };
    let mut rest = Rest { bytes, length: bytes.len() };
    let now = rest.instant()?;
    let mut reply = Reply {
        decision: Decision { verdict: Verdict::Allow, outcomes: Outcomes::new(), now },
        counts: SmallVec::new(),
    };
    for charge in charges {
        let told = Told { charge, fits: rest.flag()?, now };
        let (count, standing, receipt) = told.read(&mut rest)?;
        if !told.fits && charge.stance == Stance::Enforce {
            reply.decision.verdict = Verdict::Deny;
        }
        // Whether it was taken depends on the verdict, which is not known yet.
        let receipt = (told.fits && charge.takes()).then_some(receipt);
        let outcome = Outcome { standing, receipt, decided_by: DecidedBy::Current };
        reply.decision.outcomes.push(outcome);
        reply.counts.push(count);
    }
    if reply.decision.verdict == Verdict::Deny {
        reply.decision.outcomes.iter_mut().for_each(|outcome| outcome.receipt = None);
    }
    rest.bytes.is_empty().then_some(reply).ok_or(BadReply::Length(rest.length))
}

/// Reads the reply to [`state`](super::state), for the same charge; none of leases.
///
/// # Errors
/// If no script replied that.
pub(in crate::store::redis) fn read_state(
    charge: &Charge<'_>,
    reply: &Value,
) -> Result<Option<AnyState>, BadReply> {
    let Value::BulkString(bytes) = reply else { return Err(BadReply::Kind) };
    let mut rest = Rest { bytes, length: bytes.len() };
    let now = rest.instant()?;
    let state = match charge.quota {
        Quota::SlidingLog(quota) => Some(rest.log(quota)?.to_any()),
        _ => Told { charge, fits: true, now }.read(&mut rest)?.0.state(),
    };
    rest.bytes.is_empty().then_some(state).ok_or(BadReply::Length(rest.length))
}

/// What is known of a charge before its counter is.
struct Told<'c> {
    charge: &'c Charge<'c>,
    fits: bool,
    now: Timestamp,
}

impl Told<'_> {
    /// What the counter holds, how it stands, and the receipt if the charge was taken.
    fn read(&self, rest: &mut Rest<'_>) -> Result<(Count, Standing, Receipt), BadReply> {
        Ok(match self.charge.quota {
            Quota::FixedWindow(quota) => {
                let window = Window { used: rest.count()?, reset: rest.instant()? };
                let standing = self.standing(quota, &window);
                (Count::FixedWindow(window), standing, quota.receipt(&window))
            }
            Quota::SlidingWindow(quota) => {
                let (current, previous) = (rest.count()?, rest.count()?);
                let windows = Windows { current, previous, expires: rest.instant()? };
                let standing = self.standing(quota, &windows);
                (Count::SlidingWindow(windows), standing, quota.receipt(&windows))
            }
            Quota::TokenBucket(quota) => {
                let (deficit, mark) = (rest.count()?, rest.instant()?);
                let bucket = Bucket { deficit, mark, full: rest.instant()? };
                let standing = self.standing(quota, &bucket);
                (Count::TokenBucket(bucket), standing, quota.receipt(&bucket))
            }
            Quota::Gcra(quota) => {
                let level = rest.number()?.saturating_mul(quota.grain());
                let level = Level { level, at: rest.instant()?, full: rest.instant()? };
                let standing = self.standing(quota, &level);
                (Count::Gcra(level), standing, quota.receipt(&level))
            }
            Quota::SlidingLog(quota) => self.read_log(quota, rest)?,
            Quota::Concurrency(quota) => self.read_leases(quota, rest)?,
        })
    }

    /// The standing of a state that is known whole.
    fn standing<A: Algorithm>(&self, quota: &A, state: &A::State) -> Standing {
        let retry = match self.fits {
            true => Retry::Now,
            false => quota.retry(state, self.charge.cost, self.now),
        };
        Standing { retry, ..quota.standing(state, self.now) }
    }

    fn read_log(
        &self,
        quota: &SlidingLog,
        rest: &mut Rest<'_>,
    ) -> Result<(Count, Standing, Receipt), BadReply> {
        let used = rest.number()?;
        let [newest, one, all] = [rest.some_instant()?, rest.some_instant()?, rest.some_instant()?];
        let leaves = |at: Timestamp| at + quota.window;
        let tail = Tail { used, reset: newest.map(leaves), next: one.map(leaves) };
        let retry = match self.fits {
            true => Retry::Now,
            false => quota.retry_after(all.map(leaves), self.charge.cost, self.now),
        };
        let standing = Standing { retry, ..quota.standing_of(&tail, self.now) };
        let receipt = Receipt { at: rest.instant()?, number: rest.number()? };
        let expires = tail.reset.unwrap_or_default();
        let newest = newest.unwrap_or_default();
        Ok((Count::SlidingLog { used: standing.used, newest, expires }, standing, receipt))
    }

    fn read_leases(
        &self,
        quota: &Concurrency,
        rest: &mut Rest<'_>,
    ) -> Result<(Count, Standing, Receipt), BadReply> {
        let used = rest.count()?;
        let retry = match self.fits {
            true => Retry::Now,
            false => quota.retry_of(self.charge.cost, self.now),
        };
        let standing = Standing { retry, ..quota.standing_of(used, self.now) };
        let receipt = Receipt { at: rest.instant()?, number: rest.number()? };
        Ok((Count::Concurrency { used }, standing, receipt))
    }
}

/// The rest of a reply.
struct Rest<'r> {
    bytes: &'r [u8],
    /// Of all of it.
    length: usize,
}

impl Rest<'_> {
    fn flag(&mut self) -> Result<bool, BadReply> {
        let [byte] = self.take()?;
        Ok(byte == 1)
    }

    /// A number; an instant may be -1, for none.
    fn double(&mut self) -> Result<f64, BadReply> {
        self.take().map(f64::from_le_bytes)
    }

    fn number(&mut self) -> Result<u64, BadReply> {
        let double = self.double()?;
        (double >= 0.0 && double.is_finite()).then_some(double as u64).ok_or(BadReply::Number)
    }

    /// A number that saturates as those of states do.
    fn count(&mut self) -> Result<u32, BadReply> {
        self.number().map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    }

    fn instant(&mut self) -> Result<Timestamp, BadReply> {
        let micros = self.number()?;
        Ok(Timestamp::from_micros(if micros < NEVER { micros } else { u64::MAX }))
    }

    fn some_instant(&mut self) -> Result<Option<Timestamp>, BadReply> {
        if self.bytes.starts_with(&(-1_f64).to_le_bytes()) {
            return self.double().map(|_| None);
        }
        self.instant().map(Some)
    }

    /// A whole log: the number of its next charge, and all entries.
    fn log(&mut self, quota: &SlidingLog) -> Result<Log, BadReply> {
        let (charges, mut entries) = (self.number()?, Vec::new());
        while !self.bytes.is_empty() {
            let (at, cost) = (self.instant()?, u32::from_le_bytes(self.take()?));
            entries.push(Entry { at, cost, number: self.number()? });
        }
        Ok(Log::of_entries(entries.into_iter(), charges, quota.window))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], BadReply> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(BadReply::Length(self.length))?;
        self.bytes = rest;
        Ok(*taken)
    }
}
