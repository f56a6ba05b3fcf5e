//! The secret that keys are hashed with, as Redis keeps it for all proxies: 16 bytes in
//! hexadecimal, under the name `<prefix>:key-secret`.
//!
//! No counter has that name: a counter's name has a brace after the colon. In a cluster the secret
//! is in one slot. Each shard has a copy, so that it outlives any of them; where copies differ, the
//! first shard's is right.

use redis::{Cmd, Value};
use tokio::time::Instant;

use super::{
    RedisStore,
    call::CallError,
    call::RedisCall,
    execute::{MAX_DETAILS, MAX_REDIRECTIONS, reason},
    refusal::Refusal,
    topology::Partition,
};

/// Why a command has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommandError {
    /// No server answers, or not yet.
    #[error("it is away")]
    Away,
    /// A server refused, with this message.
    #[error("{0}")]
    Refused(String),
    /// No proxy wrote what has the name, for this reason.
    #[error("{0}")]
    Foreign(&'static str),
    /// There are more announcements than can be read.
    #[error("there are {0}, too many to read")]
    TooMany(usize),
}

const FOREIGN: CommandError = CommandError::Foreign("its value is not 32 hexadecimal digits");

/// The secret in Redis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredSecret {
    pub(crate) secret: [u8; 16],
    /// It was written just now.
    pub(crate) is_new: bool,
}

/// When a secret is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteMode {
    IfNone,
    Always,
}

impl RedisStore {
    /// The secret's name in Redis.
    pub(crate) fn secret_name(&self) -> String {
        format!("{}:key-secret", self.settings.prefix)
    }

    /// Reads the secret from Redis. If there is none yet, `own` is written: of several processes
    /// that do so at once, all read the same one.
    ///
    /// # Errors
    /// Why there is none, if no server has one.
    pub(crate) async fn keep_secret(
        &self,
        own: [u8; 16],
        deadline: Instant,
    ) -> Result<StoredSecret, CommandError> {
        let name = self.secret_name();
        let mut copies = Vec::new();
        let mut failure = CommandError::Away;
        for partition in self.topology.placement.partitions_of(&name) {
            match self.read_secret(partition, deadline).await {
                Ok(copy) => copies.push((partition, copy)),
                // That a server is away is logged elsewhere.
                Err(CommandError::Away) => {}
                Err(error) => failure = error,
            }
        }
        let found = copies.iter().find_map(|(_, copy)| *copy);
        let kept = match (found, copies.first()) {
            (Some(secret), _) => StoredSecret { secret, is_new: false },
            (None, None) => return Err(failure),
            (None, Some((first, _))) => {
                self.write_secret(*first, own, WriteMode::IfNone, deadline).await?;
                let secret = self.read_secret(*first, deadline).await?;
                // It is gone again already: the next attempt begins anew.
                StoredSecret { secret: secret.ok_or(CommandError::Away)?, is_new: true }
            }
        };
        for (partition, copy) in copies {
            let mode = match copy {
                None => WriteMode::IfNone,
                Some(_) => WriteMode::Always,
            };
            if copy != Some(kept.secret)
                && let Err(error) = self.write_secret(partition, kept.secret, mode, deadline).await
            {
                tracing::debug!(%error, "the key secret could not be copied to a shard");
            }
        }
        Ok(kept)
    }

    /// Replaces the secret in Redis by `secret`.
    ///
    /// # Errors
    /// Why a server does not have it.
    pub(crate) async fn replace_secret(
        &self,
        secret: [u8; 16],
        deadline: Instant,
    ) -> Result<(), CommandError> {
        let name = self.secret_name();
        for partition in self.topology.placement.partitions_of(&name) {
            if self.read_secret(partition, deadline).await? != Some(secret) {
                self.write_secret(partition, secret, WriteMode::Always, deadline).await?;
            }
        }
        Ok(())
    }

    async fn read_secret(
        &self,
        partition: Partition,
        deadline: Instant,
    ) -> Result<Option<[u8; 16]>, CommandError> {
        let mut command = redis::cmd("GET");
        command.arg(self.secret_name());
        match self.execute_command(partition, command, deadline).await? {
            Value::Nil => Ok(None),
            Value::BulkString(text) => decode(&text).map(Some).ok_or(FOREIGN),
            _ => Err(FOREIGN),
        }
    }

    async fn write_secret(
        &self,
        partition: Partition,
        secret: [u8; 16],
        mode: WriteMode,
        deadline: Instant,
    ) -> Result<(), CommandError> {
        let mut command = redis::cmd("SET");
        command.arg(self.secret_name()).arg(format!("{:032x}", u128::from_be_bytes(secret)));
        if mode == WriteMode::IfNone {
            command.arg("NX");
        }
        self.execute_command(partition, command, deadline).await.map(drop)
    }

    /// Executes a command on the server of a partition, wherever the partition has moved to.
    pub(super) async fn execute_command(
        &self,
        partition: Partition,
        command: Cmd,
        deadline: Instant,
    ) -> Result<Value, CommandError> {
        let mut node = self.topology.primary(partition).ok_or(CommandError::Away)?;
        let mut is_asking = false;
        for _ in 0..=MAX_REDIRECTIONS {
            let request = RedisCall { is_asking, ..RedisCall::from(command.clone()) };
            let error = match node.call(request, deadline).await {
                Ok(value) => return Ok(value),
                Err(CallError::Refused(error)) => error,
                Err(_unanswered) => return Err(CommandError::Away),
            };
            let refusal = Refusal::of(&error);
            is_asking = matches!(refusal, Refusal::Ask(_));
            let next = match refusal {
                Refusal::Moved(address) => self.topology.slot_moved(partition, address, &node),
                Refusal::Ask(address) => self.topology.ask_target(address, &node),
                Refusal::Final => {
                    let message =
                        format!("{} {}", error.code(), error.details().unwrap_or_default());
                    return Err(CommandError::Refused(message.chars().take(MAX_DETAILS).collect()));
                }
                Refusal::ReadOnly | Refusal::TryAgain | Refusal::NoScript => {
                    self.topology.request_review();
                    // Queries are repeated, so one line in the log is enough.
                    if self.last_logged.get().is_none() {
                        self.log_refusal(error.code(), &reason(&error, None));
                    }
                    return Err(CommandError::Away);
                }
            };
            node = next.ok_or(CommandError::Away)?;
        }
        Err(CommandError::Away)
    }
}

/// Parses 32 hexadecimal digits.
fn decode(text: &[u8]) -> Option<[u8; 16]> {
    let text = std::str::from_utf8(text).ok()?;
    let is_ours = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok().filter(|_| is_ours)?;
    Some(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_proxy_writes_is_a_secret() {
        let secret = *b"0123456789abcde\xff";
        assert_eq!(decode(b"303132333435363738396162636465ff"), Some(secret));
        for text in [
            "",
            "303132333435363738396162636465",
            "303132333435363738396162636465ff0",
            "+03132333435363738396162636465ff",
            "303132333435363738396162636465fg",
            "a secret that was typed by hand!",
        ] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
        assert_eq!(decode(&[0xff; 32]), None);
    }
}
