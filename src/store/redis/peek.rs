//! How limits stand, for who only asks: told by a replica that is not far behind, else by the primary.
//!
//! A replica spares the primary the work, and need not be waited for: one that does not answer at once
//! is asked together with the primary, and whoever answers first is told. To ask both each time would
//! spare the primary nothing; to ask only replicas that have answered lately would still make those
//! wait who come after one has begun to hang, until that is noticed.

use std::{pin::pin, rc::Rc, time::Duration};

use smallvec::SmallVec;
use tokio::time::{Instant, timeout};

use super::{
    RedisStore, Refusal, Reply,
    node::{CallError, Node},
    script::{self, Call},
    topology::Place,
};
use crate::{clock::Timestamp, limit::Charge, store::Unanswered};

/// How long a replica has, before the primary is asked too: a part of the time that there is, and at
/// most.
const HEAD_START_PART: u32 = 8;
const LONGEST_HEAD_START: Duration = Duration::from_millis(2);

/// How limits stand, and who says so.
pub(in crate::store) enum Told {
    /// The server that takes charges.
    Primary(Reply),
    /// A replica that is not far behind.
    Replica {
        /// What it says.
        reply: Reply,
        /// What is older than this is in it.
        behind: Duration,
    },
    /// A replica that may be far behind: the primary does not answer.
    Straggler(Reply),
}

impl RedisStore {
    /// How the limits of `charges`, which are of one place, stand; perhaps not by the latest count.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(in crate::store) async fn peek(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Instant,
    ) -> Result<Told, Unanswered> {
        let Some(first) = charges.first() else { return Err(Unanswered::BadReply) };
        self.can_name()?;
        let place = self.place(first.key.owner);
        let question = Question {
            call: script::peek(&self.settings.prefix, charges, self.clock(place, now)),
            place,
            charges: charges.iter().map(|charge| Charge { cost: 0, ..*charge }).collect(),
            deadline,
        };
        let error = match self.first_told(&question).await {
            Err(error) => error,
            told => return told,
        };
        let straggler = self.topology.straggler(question.place).ok_or(error)?;
        let reply = self.read_from(&straggler, &question).await;
        reply.map(Told::Straggler).ok_or(error)
    }

    /// What a replica that is not far behind says, or the primary.
    async fn first_told(&self, question: &Question<'_>) -> Result<Told, Unanswered> {
        let mut by_primary = pin!(self.ask_primary(question));
        let Some(replica) = self.topology.replica(question.place) else { return by_primary.await };
        let mut by_replica = pin!(self.read_from(&replica, question));
        let behind = self.topology.replica_lag();
        let left = question.deadline.saturating_duration_since(Instant::now());
        let head_start = LONGEST_HEAD_START.min(left / HEAD_START_PART);
        let mut can_replica = match timeout(head_start, &mut by_replica).await {
            Ok(Some(reply)) => return Ok(Told::Replica { reply, behind }),
            // One that cannot tell is none.
            Ok(None) => false,
            Err(_elapsed) => true,
        };
        loop {
            tokio::select! {
                biased;
                reply = &mut by_replica, if can_replica => match reply {
                    Some(reply) => return Ok(Told::Replica { reply, behind }),
                    None => can_replica = false,
                },
                told = &mut by_primary => return match told {
                    Err(error) if can_replica => {
                        let reply = by_replica.await.ok_or(error)?;
                        Ok(Told::Replica { reply, behind })
                    }
                    told => told,
                },
            }
        }
    }

    async fn ask_primary(&self, question: &Question<'_>) -> Result<Told, Unanswered> {
        let reply = self.execute(question.place, &question.call, question.deadline).await?;
        self.read(&question.charges, &reply).map(|reply| Told::Primary(reply.of_peek()))
    }

    /// What a replica says; none if it cannot.
    async fn read_from(&self, replica: &Rc<Node>, question: &Question<'_>) -> Option<Reply> {
        let Question { call, charges, deadline, .. } = question;
        let mut reply = replica.call(call.evalsha(), *deadline).await;
        if let Err(CallError::Refused(error)) = &reply
            && Refusal::of(error) == Refusal::NoScript
        {
            reply = replica.call(call.eval(), *deadline).await;
        }
        self.read(charges, &reply.ok()?).ok().map(Reply::of_peek)
    }
}

/// What is asked.
struct Question<'c> {
    call: Call,
    place: Place,
    /// By which the reply is read.
    charges: SmallVec<[Charge<'c>; 2]>,
    deadline: Instant,
}
