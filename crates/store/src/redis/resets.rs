//! Counters in this Redis that are reset, and the list of such counters that all proxies read: a
//! sorted set called `<prefix>:resets`. No counter has that name: a counter's name has a brace
//! after the colon.
//!
//! Each shard has the whole list, so proxies hear of a reset as long as one shard answers.

use std::{collections::HashMap, time::Duration};

use redis::{Cmd, FromRedisValue};
use tokio::time::{Instant, sleep};
use tollgate_limit::Key;

use super::{RedisStore, script, secret::CommandError, topology::Partition};

/// How long the list keeps a counter. A proxy that has not reached Redis for longer may copy an
/// earlier count back.
const LIFETIME: Duration = Duration::from_secs(3600);

/// How many counters the list keeps: the latest.
const MAX_LISTED: usize = 1000;

/// Time between two attempts while a server cannot serve.
const PAUSE: Duration = Duration::from_millis(20);

/// How long nothing is copied into a counter that was reset.
const COPY_GUARD: Duration = Duration::from_secs(30);

/// Why counters may not be reset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReset {
    /// A server does not answer in time.
    #[error("redis does not answer")]
    Away,
    /// A server refused, with this message.
    #[error("redis refused: {0} (docs/redis.md lists the rights that a reset needs)")]
    Refused(String),
}

/// The list as a server has it: encoded counters, and when each was listed by the server's clock.
pub(crate) type ResetList = HashMap<Vec<u8>, f64>;

/// A counter that was reset, as proxies list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListedReset {
    pub(crate) key: Key,
    /// The name of the reset: the random one of the process, but for the last bits.
    pub(crate) by: u64,
}

impl ListedReset {
    /// Its bytes in the list.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Key { owner, entry } = self.key;
        [&owner.to_be_bytes()[..], &entry.to_be_bytes(), &self.by.to_be_bytes()].concat()
    }

    /// None: no proxy wrote it.
    pub(crate) fn decode(bytes: &[u8]) -> Option<ListedReset> {
        let (owner, rest) = bytes.split_first_chunk()?;
        let (entry, rest) = rest.split_first_chunk()?;
        let key = Key { owner: u128::from_be_bytes(*owner), entry: u128::from_be_bytes(*entry) };
        Some(ListedReset { key, by: u64::from_be_bytes(rest.try_into().ok()?) })
    }
}

impl RedisStore {
    /// Deletes the counters of one owner, and lets nobody copy an earlier count into them for a
    /// while. `name` is the reset's own.
    ///
    /// # Errors
    /// Why they may still be there.
    pub(crate) async fn reset(
        &self,
        keys: &[Key],
        name: u64,
        deadline: Instant,
    ) -> Result<(), NotReset> {
        let Some(first) = keys.first() else { return Ok(()) };
        self.require_secret().map_err(|_| NotReset::Away)?;
        let command = script::reset(&self.settings.prefix, keys, name, COPY_GUARD);
        self.repeat(self.partition(first.owner), &command, deadline).await
    }

    /// Lists counters that were reset.
    ///
    /// # Errors
    /// Why no server has listed them.
    pub(crate) async fn announce_resets(
        &self,
        listed: &[ListedReset],
        deadline: Instant,
    ) -> Result<(), NotReset> {
        let key = self.resets_name();
        let mut command = redis::cmd("EVAL");
        command.arg(include_str!("announce_resets.lua")).arg(1).arg(&key);
        command.arg(LIFETIME.as_millis() as u64).arg(MAX_LISTED);
        for listed in listed {
            command.arg(listed.encode().as_slice());
        }
        let mut result = Err(NotReset::Away);
        for partition in self.topology.placement.partitions_of(&key) {
            match self.repeat(partition, &command, deadline).await {
                Ok(()) => result = Ok(()),
                Err(error) if result.is_err() => result = Err(error),
                Err(_) => {}
            }
        }
        result
    }

    /// The list of each partition that answers.
    ///
    /// # Errors
    /// Why no server has answered.
    pub(crate) async fn listed_resets(
        &self,
        deadline: Instant,
    ) -> Result<Vec<(Partition, ResetList)>, NotReset> {
        let key = self.resets_name();
        let mut command = redis::cmd("ZRANGE");
        command.arg(&key).arg(0).arg(-1).arg("WITHSCORES");
        let mut all = Vec::new();
        let mut failure = NotReset::Away;
        for partition in self.topology.placement.partitions_of(&key) {
            match self.execute_command(partition, command.clone(), deadline).await {
                // What cannot be read was written by no proxy.
                Ok(reply) => {
                    let entries: Vec<(Vec<u8>, f64)> =
                        FromRedisValue::from_redis_value(reply).unwrap_or_default();
                    all.push((partition, entries.into_iter().collect()));
                }
                Err(error) => failure = error.into(),
            }
        }
        if all.is_empty() { Err(failure) } else { Ok(all) }
    }

    fn resets_name(&self) -> String {
        format!("{}:resets", self.settings.prefix)
    }

    /// Executes a command that may be executed twice, until it is known to have been executed.
    async fn repeat(
        &self,
        partition: Partition,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<(), NotReset> {
        loop {
            match self.execute_command(partition, command.clone(), deadline).await {
                Ok(_) => return Ok(()),
                Err(CommandError::Away) if Instant::now() + PAUSE < deadline => sleep(PAUSE).await,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl From<CommandError> for NotReset {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Away => NotReset::Away,
            error => NotReset::Refused(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_counter_survives_being_written_down() {
        let key = Key { owner: u128::MAX - 2, entry: u128::MAX - 3 };
        let reset = ListedReset { key, by: u64::MAX - 5 };
        assert_eq!(ListedReset::decode(&reset.encode()), Some(reset));
        for length in [0, 39, 41] {
            assert_eq!(ListedReset::decode(&vec![1; length]), None, "{length}");
        }
    }
}
