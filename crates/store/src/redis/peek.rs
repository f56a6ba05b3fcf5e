//! Reads how limits stand without charging them: from a replica that is not far behind, else from
//! the primary.
//!
//! A replica saves the primary work, and need not be waited for: when it does not answer at once,
//! the primary is queried as well, and the first answer counts. To query both each time would save
//! the primary nothing. To query only replicas that have answered lately would make callers wait
//! from the moment a replica hangs until that is noticed.

use std::{pin::pin, rc::Rc, time::Duration};

use smallvec::SmallVec;
use tokio::time::{Instant, timeout};
use tollgate_limit::Charge;

use super::{
    RedisStore, Reply,
    call::CallError,
    node::Node,
    refusal::Refusal,
    script::{self, Call},
    topology::Partition,
};
use crate::{Unanswered, call_time::CallTime};

/// How long a replica has before the primary is queried too: a part of the time that is left, and
/// at most.
const HEAD_START_PART: u32 = 8;
const LONGEST_HEAD_START: Duration = Duration::from_millis(2);

/// Which server is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeekSource {
    /// A replica that is not far behind, or the primary.
    Any,
    /// The primary, and a replica only if it does not answer: a reset, or a charge of a moment ago,
    /// is seen.
    Primary,
}

/// The standings of limits, by the kind of server that returned them.
pub(crate) enum PeekReply {
    /// The server that takes charges.
    Primary(Reply),
    /// A replica that is not far behind.
    Replica {
        /// Its reply.
        reply: Reply,
        /// It has everything that is older than this.
        behind: Duration,
    },
    /// A replica that may be far behind: the primary does not answer.
    StaleReplica(Reply),
}

impl RedisStore {
    /// Reads how the limits of `charges` stand, which are of one partition; perhaps not by the
    /// latest count.
    ///
    /// # Errors
    /// Why there is no reply.
    pub(crate) async fn peek(
        &self,
        charges: &[Charge<'_>],
        time: CallTime,
        source: PeekSource,
    ) -> Result<PeekReply, Unanswered> {
        let Some(first) = charges.first() else { return Err(Unanswered::BadReply) };
        self.require_secret()?;
        let (partition, clock) = self.place(first, time);
        let query = PeekQuery {
            call: script::peek(&self.settings.prefix, charges, clock),
            partition,
            charges: charges.iter().map(|charge| Charge { cost: 0, ..*charge }).collect(),
            deadline: time.deadline,
        };
        let reply = match source {
            PeekSource::Any => self.first_reply(&query).await,
            PeekSource::Primary => self.read_primary(&query).await,
        };
        let error = match reply {
            Err(error) => error,
            reply => return reply,
        };
        let stale_replica = self.topology.stale_replica(query.partition).ok_or(error)?;
        let reply = self.read_replica(&stale_replica, &query).await;
        reply.map(PeekReply::StaleReplica).ok_or(error)
    }

    /// The first reply, of a replica that is not far behind or of the primary.
    async fn first_reply(&self, query: &PeekQuery<'_>) -> Result<PeekReply, Unanswered> {
        let mut by_primary = pin!(self.read_primary(query));
        let Some(replica) = self.topology.replica(query.partition) else { return by_primary.await };
        let mut by_replica = pin!(self.read_replica(&replica, query));
        let behind = self.topology.replica_lag();
        let left = query.deadline.saturating_duration_since(Instant::now());
        let head_start = LONGEST_HEAD_START.min(left / HEAD_START_PART);
        let mut replica_may_reply = match timeout(head_start, &mut by_replica).await {
            Ok(Some(reply)) => return Ok(PeekReply::Replica { reply, behind }),
            Ok(None) => false,
            Err(_elapsed) => true,
        };
        loop {
            tokio::select! {
                biased;
                reply = &mut by_replica, if replica_may_reply => match reply {
                    Some(reply) => return Ok(PeekReply::Replica { reply, behind }),
                    None => replica_may_reply = false,
                },
                reply = &mut by_primary => return match reply {
                    Err(error) if replica_may_reply => {
                        let reply = by_replica.await.ok_or(error)?;
                        Ok(PeekReply::Replica { reply, behind })
                    }
                    reply => reply,
                },
            }
        }
    }

    async fn read_primary(&self, query: &PeekQuery<'_>) -> Result<PeekReply, Unanswered> {
        let reply = self.execute(query.partition, &query.call, query.deadline).await?;
        self.read(&query.charges, &reply).map(|reply| PeekReply::Primary(reply.of_peek()))
    }

    /// The reply of a replica; none if it gives no usable one.
    async fn read_replica(&self, replica: &Rc<Node>, query: &PeekQuery<'_>) -> Option<Reply> {
        let PeekQuery { call, charges, deadline, .. } = query;
        let mut reply = replica.call(call.evalsha(), *deadline).await;
        if let Err(CallError::Refused(error)) = &reply
            && Refusal::of(error) == Refusal::NoScript
        {
            reply = replica.call(call.eval(), *deadline).await;
        }
        self.read(charges, &reply.ok()?).ok().map(Reply::of_peek)
    }
}

/// A read of how limits stand.
struct PeekQuery<'c> {
    call: Call,
    partition: Partition,
    /// The charges by which the reply is read.
    charges: SmallVec<[Charge<'c>; 2]>,
    deadline: Instant,
}
