//! Executes a script on the server of a partition: follows redirections, and tries again while the
//! server cannot serve for the moment.

use std::{borrow::Cow, rc::Rc, time::Duration};

use redis::{ServerError, Value};
use tokio::time::{Instant, sleep};
use tollgate_limit::SecretStatus;

use super::{
    RedisStore,
    call::{CallError, LateReply, RedisCall},
    node::Node,
    refusal::Refusal,
    script::Call,
    topology::Partition,
};
use crate::Unanswered;

/// Most redirections of one call in a row.
pub(super) const MAX_REDIRECTIONS: usize = 5;

/// Time before the first retry while a server cannot serve for the moment; it doubles each time.
const PAUSE: Duration = Duration::from_millis(2);

/// Time between two lines in the log about errors that servers reply.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// Characters of a server's error message that are logged.
pub(super) const MAX_DETAILS: usize = 200;

/// How a call is made.
pub(crate) struct CallOptions<'t> {
    pub(crate) deadline: Instant,
    /// The identity of the server that the call is for; none: whichever the partition has.
    pub(crate) server: Option<u64>,
    /// What happens to a reply that comes after the deadline.
    pub(crate) late_reply: Option<&'t Rc<LateReply>>,
}

/// The state of one call over its redirections and retries.
struct Attempt {
    node: Rc<Node>,
    /// Whether the server may have the script.
    has_script: bool,
    /// Whether the call follows `ASKING`.
    is_asking: bool,
    redirections: usize,
    pause: Duration,
}

impl RedisStore {
    /// Executes a script on the server of a partition, wherever the partition has moved to.
    pub(super) async fn execute(
        &self,
        partition: Partition,
        call: &Call,
        deadline: Instant,
    ) -> Result<Value, Unanswered> {
        let options = CallOptions { deadline, server: None, late_reply: None };
        self.execute_with(partition, call, options).await
    }

    /// Executes a script with these options.
    pub(super) async fn execute_with(
        &self,
        partition: Partition,
        call: &Call,
        options: CallOptions<'_>,
    ) -> Result<Value, Unanswered> {
        let CallOptions { deadline, server, late_reply } = options;
        self.require_secret()?;
        let mut attempt = Attempt {
            node: self.topology.primary(partition).ok_or(Unanswered::Away)?,
            has_script: true,
            is_asking: false,
            redirections: 0,
            pause: PAUSE,
        };
        loop {
            let Attempt { node, is_asking, pause, .. } = &attempt;
            let is_known = attempt.has_script && !node.is_first_use(call.sha());
            let command = if is_known { call.evalsha() } else { call.eval() };
            // A slot that is being moved takes its counters with it.
            let server = server.filter(|_| !is_asking);
            let request = RedisCall {
                command,
                is_asking: *is_asking,
                server,
                late_reply: late_reply.cloned(),
            };
            let error = match node.call(request, deadline).await {
                Ok(value) => return Ok(value),
                Err(CallError::Refused(error)) => error,
                // The call was for another server: its caller must prepare the new one first.
                Err(CallError::Away)
                    if server.is_some_and(|server| server != node.server_id.get()) =>
                {
                    return Err(Unanswered::Away);
                }
                // After a reply that it cannot serve, the server counts as away. Nothing was sent,
                // and its successor is being searched for.
                Err(CallError::Away) if *pause > PAUSE && Instant::now() + *pause < deadline => {
                    sleep(*pause).await;
                    attempt.pause *= 2;
                    attempt.node = self.topology.primary(partition).ok_or(Unanswered::Away)?;
                    continue;
                }
                Err(CallError::Away) => return Err(Unanswered::Away),
                Err(CallError::Busy) => return Err(Unanswered::Busy),
                Err(CallError::Timeout) => return Err(Unanswered::Timeout),
                Err(CallError::Lost) => return Err(Unanswered::Lost),
            };
            attempt =
                Box::pin(self.after_refusal(attempt, partition, call, &error, &options)).await?;
        }
    }

    /// The next attempt after an error reply.
    ///
    /// # Errors
    /// Another attempt would not help, or there is no time for it.
    async fn after_refusal(
        &self,
        attempt: Attempt,
        partition: Partition,
        call: &Call,
        error: &ServerError,
        options: &CallOptions<'_>,
    ) -> Result<Attempt, Unanswered> {
        let refusal = Refusal::of(error);
        let had_script = attempt.has_script;
        let attempt = Attempt { has_script: refusal != Refusal::NoScript, ..attempt };
        let Attempt { node, pause, .. } = &attempt;
        let redirections = attempt.redirections + 1;
        match refusal {
            Refusal::NoScript if had_script => Ok(attempt),
            Refusal::Moved(address) if redirections <= MAX_REDIRECTIONS => {
                let next = self.topology.slot_moved(partition, address, node);
                let node = next.ok_or(Unanswered::Away)?;
                Ok(Attempt { node, redirections, is_asking: false, ..attempt })
            }
            Refusal::Ask(address) if redirections <= MAX_REDIRECTIONS => {
                let next = self.topology.ask_target(address, node);
                let node = next.ok_or(Unanswered::Away)?;
                Ok(Attempt { node, redirections, is_asking: true, ..attempt })
            }
            Refusal::TryAgain | Refusal::ReadOnly
                if node.may_recover_soon() && Instant::now() + *pause < options.deadline =>
            {
                self.topology.request_review();
                if refusal == Refusal::ReadOnly {
                    // The host name may resolve to another server by now.
                    node.reconnect_wanted.notify_one();
                }
                sleep(*pause).await;
                let pause = *pause * 2;
                let node = self.topology.primary(partition).ok_or(Unanswered::Away)?;
                Ok(Attempt { node, pause, redirections: 0, is_asking: false, ..attempt })
            }
            _ => {
                self.topology.request_review();
                node.note_unable();
                let reason = reason(error, Some(call));
                if self.log_refusal(error.code(), &reason) && options.late_reply.is_some() {
                    let reason = if reason.is_empty() { error.code() } else { &reason };
                    node.config.server.note_refusal(reason);
                }
                Err(Unanswered::Refused)
            }
        }
    }

    /// # Errors
    /// The secret that keys are hashed with is not known yet.
    pub(crate) fn require_secret(&self) -> Result<(), Unanswered> {
        match &self.secret {
            Some(secret) if secret.status() == SecretStatus::Awaited => Err(Unanswered::Away),
            _ => Ok(()),
        }
    }

    /// Logs an error reply, unless one was logged a moment ago; returns whether it did.
    pub(super) fn log_refusal(&self, code: &str, reason: &str) -> bool {
        let is_due = self.may_log();
        if is_due {
            let details = reason.chars().take(MAX_DETAILS).collect::<String>();
            tracing::warn!(code, details, "redis refused");
        }
        is_due
    }

    pub(super) fn may_log(&self) -> bool {
        let is_due = self.last_logged.get().is_none_or(|at| at.elapsed() >= LOG_PAUSE);
        if is_due {
            self.last_logged.set(Some(Instant::now()));
        }
        is_due
    }
}

/// Why a server refused a command, or a script one of its commands.
pub(super) fn reason<'e>(error: &'e ServerError, call: Option<&Call>) -> Cow<'e, str> {
    let details = error.details().unwrap_or_default();
    let command = call
        .filter(|_| details.contains("can't run this command"))
        .and_then(|call| call.command_at(details));
    command.map_or(Cow::Borrowed(details), |command| {
        Cow::Owned(format!(
            "the Redis user may not run {command} (docs/redis.md has all that it needs): {details}"
        ))
    })
}
