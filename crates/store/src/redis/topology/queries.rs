//! Queries that servers answer about themselves, in the background.

use std::array;

use redis::{Cmd, Value};
use tokio::{task::JoinSet, time::Instant};
use tollgate_settings::RedisAddress;

use super::{Purpose, REVIEW_TIMEOUT, Topology};
use crate::redis::call::{CallError, CallResult};

/// A server's answer to a command.
#[derive(Clone, Debug, Default)]
pub(in crate::redis) enum Answer {
    Replied(Value),
    /// An error.
    Refused,
    /// None in time.
    #[default]
    Silent,
}

impl Answer {
    /// The reply, if it is a text.
    pub(in crate::redis) fn text(&self) -> Option<&str> {
        match self {
            Answer::Replied(Value::BulkString(text)) => std::str::from_utf8(text).ok(),
            Answer::Replied(Value::VerbatimString { text, .. } | Value::SimpleString(text)) => {
                Some(text)
            }
            _ => None,
        }
    }

    /// Reads the reply to `ROLE`: whether the server is primary.
    pub(super) fn is_primary(&self) -> Option<bool> {
        let Answer::Replied(Value::Array(role)) = self else { return None };
        Some(matches!(role.first(), Some(Value::BulkString(name)) if name == b"master"))
    }
}

impl From<CallResult> for Answer {
    fn from(result: CallResult) -> Self {
        match result {
            Ok(value) => Answer::Replied(value),
            Err(CallError::Refused(_)) => Answer::Refused,
            Err(_unanswered) => Answer::Silent,
        }
    }
}

impl Topology {
    /// Queries one server.
    pub(in crate::redis) async fn query(&self, address: &RedisAddress, command: Cmd) -> Answer {
        let answers = self.query_all(std::slice::from_ref(address), [command]).await;
        answers.into_iter().flatten().next().unwrap_or_default()
    }

    /// Queries a replica on its connection for reads.
    pub(in crate::redis) async fn query_replica(
        &self,
        address: &RedisAddress,
        command: Cmd,
    ) -> Answer {
        let deadline = Instant::now() + REVIEW_TIMEOUT;
        self.node(address, Purpose::Reads).call(command, deadline).await.into()
    }

    /// Sends the same commands to several servers, and returns their answers in the same order. All
    /// are queried at once, so that one that hangs does not delay the others.
    pub(super) async fn query_all<const N: usize>(
        &self,
        addresses: &[RedisAddress],
        commands: [Cmd; N],
    ) -> Vec<[Answer; N]> {
        let deadline = Instant::now() + REVIEW_TIMEOUT;
        let mut querying = JoinSet::new();
        for (server, address) in addresses.iter().enumerate() {
            let node = self.node(address, Purpose::Charges);
            for (number, command) in commands.iter().cloned().enumerate() {
                let node = node.clone();
                querying.spawn_local(async move {
                    let answer = node.call_patiently(command, deadline).await;
                    (server, number, Answer::from(answer))
                });
            }
        }
        let mut answers: Vec<[Answer; N]> =
            addresses.iter().map(|_| array::from_fn(|_| Answer::Silent)).collect();
        while let Some(joined) = querying.join_next().await {
            if let Ok((server, number, answer)) = joined
                && let Some(slot) = answers.get_mut(server).and_then(|it| it.get_mut(number))
            {
                *slot = answer;
            }
        }
        answers
    }
}

/// Whether what a server says of the others is out of date: a newer epoch was known, and too few of
/// the queried servers have answered to disprove it. A server that is cut off from the others does
/// not know that another has replaced it.
pub(super) fn is_outdated(epoch: u64, known: u64, answered: usize, queried: usize) -> bool {
    epoch < known && answered * 2 <= queried
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_epoch_is_believed_of_a_majority_only() {
        for (epoch, answered, expected) in
            [(7, 1, false), (8, 1, false), (6, 1, true), (6, 2, false), (6, 3, false)]
        {
            assert_eq!(is_outdated(epoch, 7, answered, 3), expected, "{epoch} of {answered}");
        }
        assert!(is_outdated(6, 7, 1, 2), "half of them are no majority");
    }
}
