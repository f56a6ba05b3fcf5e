//! The replies of scripts: the instant, and for each charge whether it fits and what its counter
//! holds then.

use redis::Value;
use smallvec::SmallVec;

use super::{
    NEVER,
    algorithm::{self, CounterReply, Decided},
};
use crate::{
    clock::Timestamp,
    limit::{
        AnyState, Charge, Count, DecidedBy, Decision, Outcome, Outcomes, Retry, Stance, Verdict,
    },
};

/// The decision of a script.
#[derive(Clone, Debug)]
pub(in crate::store) struct Reply {
    /// In the form of every store.
    pub(in crate::store) decision: Decision,
    /// What the counters hold now, in the order of the charges.
    pub(in crate::store) counts: SmallVec<[Count; 2]>,
}

impl Reply {
    /// The reply to a peek, which denies nothing.
    pub(in crate::store::redis) fn of_peek(mut self) -> Reply {
        for outcome in &mut self.decision.outcomes {
            outcome.standing.retry = Retry::Now;
        }
        self
    }
}

/// Why a reply cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::store) enum BadReply {
    /// It is not a string of bytes.
    #[error("the reply is not a string of bytes, which every script returns")]
    Kind,
    /// It is too short or too long for its charges.
    #[error("the reply has an unexpected length: {0} bytes")]
    Length(usize),
    /// It has a number that is negative or not finite.
    #[error("the reply has a number that is negative or not finite")]
    Number,
}

/// Reads the reply to [`charge`](super::charge) or [`peek`](super::peek), for the same charges; for
/// a peek, with costs of zero.
///
/// # Errors
/// If no script returns such a reply.
pub(in crate::store::redis) fn read(
    charges: &[Charge<'_>],
    reply: &Value,
) -> Result<Reply, BadReply> {
    let mut bytes = ReplyReader::new(reply)?;
    let now = bytes.instant()?;
    let mut reply = Reply {
        decision: Decision { verdict: Verdict::Allow, outcomes: Outcomes::new(), now },
        counts: SmallVec::new(),
    };
    for charge in charges {
        let decided = Decided { charge, fits: bytes.flag()?, now };
        let CounterReply { count, standing, receipt } = algorithm::decode(&decided, &mut bytes)?;
        if !decided.fits && charge.stance == Stance::Enforce {
            reply.decision.verdict = Verdict::Deny;
        }
        // Whether it was taken depends on the verdict, which is not known yet.
        let receipt = (decided.fits && charge.takes()).then_some(receipt);
        let outcome = Outcome { standing, receipt, decided_by: DecidedBy::Current };
        reply.decision.outcomes.push(outcome);
        reply.counts.push(count);
    }
    if reply.decision.verdict == Verdict::Deny {
        reply.decision.outcomes.iter_mut().for_each(|outcome| outcome.receipt = None);
    }
    bytes.finish(reply)
}

/// Reads the reply to [`state`](super::state), for the same charge; none for leases.
///
/// # Errors
/// If no script returns such a reply.
pub(in crate::store::redis) fn read_state(
    charge: &Charge<'_>,
    reply: &Value,
) -> Result<Option<AnyState>, BadReply> {
    let mut reply = ReplyReader::new(reply)?;
    reply.instant()?;
    let state = algorithm::decode_state(charge.quota, &mut reply)?;
    reply.finish(state)
}

/// The rest of a reply.
pub(super) struct ReplyReader<'r> {
    bytes: &'r [u8],
    /// The length of the whole reply.
    length: usize,
}

impl<'r> ReplyReader<'r> {
    fn new(reply: &'r Value) -> Result<Self, BadReply> {
        let Value::BulkString(bytes) = reply else { return Err(BadReply::Kind) };
        Ok(ReplyReader { bytes, length: bytes.len() })
    }

    /// Returns `value` if the whole reply was read.
    fn finish<T>(&self, value: T) -> Result<T, BadReply> {
        if self.is_empty() { Ok(value) } else { Err(BadReply::Length(self.length)) }
    }

    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn flag(&mut self) -> Result<bool, BadReply> {
        let [byte] = self.take()?;
        Ok(byte == 1)
    }

    /// A number.
    pub(super) fn number(&mut self) -> Result<u64, BadReply> {
        let double = self.double()?;
        (double >= 0.0 && double.is_finite()).then_some(double as u64).ok_or(BadReply::Number)
    }

    /// A number that saturates as the numbers of states do.
    pub(super) fn count(&mut self) -> Result<u32, BadReply> {
        self.number().map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    }

    /// An instant.
    pub(super) fn instant(&mut self) -> Result<Timestamp, BadReply> {
        let micros = self.number()?;
        Ok(Timestamp::from_micros(if micros < NEVER { micros } else { u64::MAX }))
    }

    /// An instant, or -1 for none.
    pub(super) fn some_instant(&mut self) -> Result<Option<Timestamp>, BadReply> {
        if self.bytes.starts_with(&(-1_f64).to_le_bytes()) {
            return self.double().map(|_| None);
        }
        self.instant().map(Some)
    }

    fn double(&mut self) -> Result<f64, BadReply> {
        self.take().map(f64::from_le_bytes)
    }

    /// The next bytes.
    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], BadReply> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(BadReply::Length(self.length))?;
        self.bytes = rest;
        Ok(*taken)
    }
}
