//! What servers are asked in the background about themselves.

use std::array;

use redis::{Cmd, Value};
use tokio::{task::JoinSet, time::Instant};

use super::{REVIEW_TIMEOUT, Topology, Use};
use crate::{
    settings::Endpoint,
    store::redis::{batch::CallResult, node::CallError},
};

/// What a server says to a command.
#[derive(Clone, Debug, Default)]
pub(in crate::store::redis) enum Answer {
    Said(Value),
    /// That it may not, or cannot.
    Refused,
    /// Nothing, or too late.
    #[default]
    Silent,
}

impl Answer {
    /// What was said, if it is a text.
    pub(in crate::store::redis) fn text(&self) -> Option<&str> {
        match self {
            Answer::Said(Value::BulkString(text)) => std::str::from_utf8(text).ok(),
            Answer::Said(Value::VerbatimString { text, .. } | Value::SimpleString(text)) => {
                Some(text)
            }
            _ => None,
        }
    }

    /// What was said to `ROLE`: whether it is primary.
    pub(super) fn is_primary(&self) -> Option<bool> {
        let Answer::Said(Value::Array(role)) = self else { return None };
        Some(matches!(role.first(), Some(Value::BulkString(name)) if name == b"master"))
    }
}

impl From<CallResult> for Answer {
    fn from(result: CallResult) -> Self {
        match result {
            Ok(value) => Answer::Said(value),
            Err(CallError::Refused(_)) => Answer::Refused,
            Err(_unanswered) => Answer::Silent,
        }
    }
}

impl Topology {
    /// What a server answers.
    pub(in crate::store::redis) async fn ask(&self, endpoint: &Endpoint, command: Cmd) -> Answer {
        let answers = self.ask_all(std::slice::from_ref(endpoint), [command]).await;
        answers.into_iter().flatten().next().unwrap_or_default()
    }

    /// What a replica answers that is only read.
    pub(in crate::store::redis) async fn ask_replica(
        &self,
        endpoint: &Endpoint,
        command: Cmd,
    ) -> Answer {
        let deadline = Instant::now() + REVIEW_TIMEOUT;
        self.node(endpoint, Use::Display).call(command, deadline).await.into()
    }

    /// What each of some servers answers to the same commands, in their order. All are asked at the
    /// same time: one that hangs holds up no other.
    pub(super) async fn ask_all<const N: usize>(
        &self,
        endpoints: &[Endpoint],
        commands: [Cmd; N],
    ) -> Vec<[Answer; N]> {
        let deadline = Instant::now() + REVIEW_TIMEOUT;
        let mut asking = JoinSet::new();
        for (server, endpoint) in endpoints.iter().enumerate() {
            let node = self.node(endpoint, Use::Charges);
            for (question, command) in commands.iter().cloned().enumerate() {
                let node = node.clone();
                asking.spawn_local(async move {
                    let answer = node.call_patiently(command, deadline).await;
                    (server, question, Answer::from(answer))
                });
            }
        }
        let mut answers: Vec<[Answer; N]> =
            endpoints.iter().map(|_| array::from_fn(|_| Answer::Silent)).collect();
        while let Some(asked) = asking.join_next().await {
            if let Ok((server, question, answer)) = asked
                && let Some(place) = answers.get_mut(server).and_then(|it| it.get_mut(question))
            {
                *place = answer;
            }
        }
        answers
    }
}

/// Whether what some servers say of the others is out of date: a newer epoch was known, and too few
/// of those that were asked have answered to say that it is no more. One that is cut off from the
/// others does not know that another has taken its place.
pub(super) fn is_outdated(epoch: u64, known: u64, (answered, asked): (usize, usize)) -> bool {
    epoch < known && answered * 2 <= asked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_epoch_is_believed_of_a_majority_only() {
        for (epoch, answered, expected) in
            [(7, 1, false), (8, 1, false), (6, 1, true), (6, 2, false), (6, 3, false)]
        {
            assert_eq!(is_outdated(epoch, 7, (answered, 3)), expected, "{epoch} of {answered}");
        }
        assert!(is_outdated(6, 7, (1, 2)), "half of them are no majority");
    }
}
