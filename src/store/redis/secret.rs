//! The secret that counters' names are hashed under, as Redis keeps it for all proxies: 16 bytes in
//! hexadecimal, as `<prefix>:key-secret`.
//!
//! No counter is called so: its name has a brace after the colon. In a cluster it is in one slot. Each
//! shard has a copy, so that it outlives any of them; where copies differ, the first shard's is
//! right.

use redis::{Cmd, Value};
use tokio::time::Instant;

use super::{
    MAX_DETAILS, MAX_REDIRECTIONS, RedisStore, batch::Request, node::CallError, refusal::Refusal,
    topology::Place,
};

/// Why Redis keeps no secret for this process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::store) enum NoSecret {
    /// It does not answer, or not yet.
    #[error("redis is away")]
    Away,
    /// It answered that it will not, in these words.
    #[error("{0}")]
    Refused(String),
    /// What has its name is nothing that a proxy has written.
    #[error("its value is not 32 hexadecimal digits")]
    Foreign,
}

/// A secret that Redis keeps.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Kept {
    pub(in crate::store) secret: [u8; 16],
    /// It had none until now.
    pub(in crate::store) is_new: bool,
}

/// When a secret is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    IfNone,
    Always,
}

impl RedisStore {
    /// The name of the secret in Redis.
    pub(in crate::store) fn secret_name(&self) -> String {
        format!("{}:key-secret", self.settings.prefix)
    }

    /// The secret that Redis keeps. It is `own` if there is none yet: of several processes that ask
    /// at the same time, each is told the same one.
    ///
    /// # Errors
    /// Why it keeps none, if no server does.
    pub(in crate::store) async fn keep_secret(
        &self,
        own: [u8; 16],
        deadline: Instant,
    ) -> Result<Kept, NoSecret> {
        let name = self.secret_name();
        let (mut copies, mut obstacle) = (Vec::new(), NoSecret::Away);
        for home in self.topology.homes(&name) {
            match self.read_secret(home, &name, deadline).await {
                Ok(copy) => copies.push((home, copy)),
                // That one is away is told elsewhere.
                Err(NoSecret::Away) => {}
                Err(error) => obstacle = error,
            }
        }
        let found = copies.iter().find_map(|(_, copy)| *copy);
        let kept = match (found, copies.first()) {
            (Some(secret), _) => Kept { secret, is_new: false },
            (None, None) => return Err(obstacle),
            (None, Some((first, _))) => {
                self.write_secret(*first, &name, own, (Write::IfNone, deadline)).await?;
                let secret = self.read_secret(*first, &name, deadline).await?;
                // Gone again already: all is to be begun anew.
                Kept { secret: secret.ok_or(NoSecret::Away)?, is_new: true }
            }
        };
        for (home, copy) in copies {
            let write = match copy {
                None => Write::IfNone,
                Some(_) => Write::Always,
            };
            if copy != Some(kept.secret)
                && let Err(error) =
                    self.write_secret(home, &name, kept.secret, (write, deadline)).await
            {
                tracing::debug!(%error, "the key secret could not be copied to a shard");
            }
        }
        Ok(kept)
    }

    /// Makes `secret` the one that Redis keeps, in place of another.
    ///
    /// # Errors
    /// Why a server does not.
    pub(in crate::store) async fn replace_secret(
        &self,
        secret: [u8; 16],
        deadline: Instant,
    ) -> Result<(), NoSecret> {
        let name = self.secret_name();
        for home in self.topology.homes(&name) {
            if self.read_secret(home, &name, deadline).await? != Some(secret) {
                self.write_secret(home, &name, secret, (Write::Always, deadline)).await?;
            }
        }
        Ok(())
    }

    async fn read_secret(
        &self,
        home: Place,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<[u8; 16]>, NoSecret> {
        let mut command = redis::cmd("GET");
        command.arg(name);
        match self.ask(home, command, deadline).await? {
            Value::Nil => Ok(None),
            Value::BulkString(text) => decode(&text).map(Some).ok_or(NoSecret::Foreign),
            _ => Err(NoSecret::Foreign),
        }
    }

    async fn write_secret(
        &self,
        home: Place,
        name: &str,
        secret: [u8; 16],
        (write, deadline): (Write, Instant),
    ) -> Result<(), NoSecret> {
        let mut command = redis::cmd("SET");
        command.arg(name).arg(format!("{:032x}", u128::from_be_bytes(secret)));
        if write == Write::IfNone {
            command.arg("NX");
        }
        self.ask(home, command, deadline).await.map(drop)
    }

    /// Has the server of a place execute a command, wherever the place may have moved to.
    pub(super) async fn ask(
        &self,
        place: Place,
        command: Cmd,
        deadline: Instant,
    ) -> Result<Value, NoSecret> {
        let mut node = self.topology.primary(place).ok_or(NoSecret::Away)?;
        let mut is_asking = false;
        for _ in 0..=MAX_REDIRECTIONS {
            let request = Request { is_asking, ..Request::from(command.clone()) };
            let error = match node.call(request, deadline).await {
                Ok(value) => return Ok(value),
                Err(CallError::Refused(error)) => error,
                Err(_unanswered) => return Err(NoSecret::Away),
            };
            let refusal = Refusal::of(&error);
            is_asking = matches!(refusal, Refusal::Ask(_));
            let next = match refusal {
                Refusal::Moved(address) => self.topology.moved(place, address, &node),
                Refusal::Ask(address) => self.topology.asked(address, &node),
                Refusal::Final => {
                    let words = format!("{} {}", error.code(), error.details().unwrap_or_default());
                    return Err(NoSecret::Refused(words.chars().take(MAX_DETAILS).collect()));
                }
                Refusal::ReadOnly | Refusal::NotNow | Refusal::NoScript => {
                    self.topology.doubt();
                    // It is asked again and again: once is enough.
                    if self.complained.get().is_none() {
                        self.complain(&error);
                    }
                    return Err(NoSecret::Away);
                }
            };
            node = next.ok_or(NoSecret::Away)?;
        }
        Err(NoSecret::Away)
    }
}

/// The secret in a text of 32 hexadecimal digits.
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
            "a secret that somebody has typed",
        ] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
        assert_eq!(decode(&[0xff; 32]), None);
    }
}
