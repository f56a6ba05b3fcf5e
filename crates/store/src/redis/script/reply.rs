//! The replies of scripts: the instant, and for each charge whether it fits and what its counter
//! holds then.

use redis::Value;
use smallvec::SmallVec;
use tollgate_limit::{
    AnyState, Charge, Count, DecidedBy, Decision, Outcome, Outcomes, Retry, Stance, Verdict,
};

use super::{
    algorithm::{self, CounterReply, Decided},
    reply_reader::{BadReply, ReplyReader},
};

/// The decision of a script.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// In the form of every store.
    pub(crate) decision: Decision,
    /// What the counters hold now, in the order of the charges.
    pub(crate) counts: SmallVec<[Count; 2]>,
}

impl Reply {
    /// The reply to a peek, which denies nothing.
    pub(in crate::redis) fn of_peek(mut self) -> Reply {
        for outcome in &mut self.decision.outcomes {
            outcome.standing.retry = Retry::Now;
        }
        self
    }
}

/// Reads the reply to [`charge`](super::charge) or [`peek`](super::peek), for the same charges; for
/// a peek, with costs of zero.
///
/// # Errors
/// If no script returns such a reply.
pub(in crate::redis) fn read(charges: &[Charge<'_>], reply: &Value) -> Result<Reply, BadReply> {
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
pub(in crate::redis) fn read_state(
    charge: &Charge<'_>,
    reply: &Value,
) -> Result<Option<AnyState>, BadReply> {
    let mut reply = ReplyReader::new(reply)?;
    reply.instant()?;
    let state = algorithm::decode_state(charge.quota, &mut reply)?;
    reply.finish(state)
}
