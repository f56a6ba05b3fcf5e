//! The announcements of proxies that share this Redis, in hashes called `<prefix>:proxies` and
//! `<prefix>:fleet`. No counter has such a name: a counter's name has a brace after the colon.
//!
//! Each shard has the whole hash, so proxies know of each other as long as one shard answers.

use std::{collections::HashMap, time::Duration};

use redis::{FromRedisValue, Value};
use tokio::time::Instant;

use super::{RedisStore, secret::CommandError};

/// How long an announcement is valid.
const VALIDITY: Duration = Duration::from_secs(10);

const FOREIGN: CommandError = CommandError::Foreign("its answer cannot be read");

/// Which announcements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyList {
    /// Which callers a proxy has moved to another store: proxies decide by it.
    Moves,
    /// What a proxy says of itself: people read it.
    Fleet,
}

impl ProxyList {
    /// The name of its hash, after the prefix.
    fn name(self) -> &'static str {
        match self {
            ProxyList::Moves => "proxies",
            ProxyList::Fleet => "fleet",
        }
    }
}

/// What a proxy announces.
pub(crate) struct ProxyAnnouncement<'a> {
    pub(crate) list: ProxyList,
    pub(crate) name: &'a str,
    /// Empty: the proxy ends, and its announcement is removed.
    pub(crate) text: &'a str,
    /// Most announcements of others to return; zero: none are read.
    pub(crate) max_others: usize,
}

impl RedisStore {
    /// Writes an announcement, and returns those of others by the name of their proxy.
    ///
    /// # Errors
    /// Why that failed on every server.
    pub(crate) async fn announce(
        &self,
        announcement: &ProxyAnnouncement<'_>,
        deadline: Instant,
    ) -> Result<HashMap<String, String>, CommandError> {
        let key = format!("{}:{}", self.settings.prefix, announcement.list.name());
        let mut script = redis::cmd("EVAL");
        script.arg(include_str!("announce.lua")).arg(1).arg(&key);
        script.arg(announcement.name).arg(announcement.text);
        script.arg(VALIDITY.as_millis() as u64).arg(announcement.max_others);
        let mut others = None;
        let mut failure = CommandError::Away;
        for partition in self.topology.placement.partitions_of(&key) {
            let reply = self.execute_command(partition, script.clone(), deadline).await;
            match reply.and_then(|reply| read(reply, announcement.max_others)) {
                Ok(read) => others.get_or_insert_with(HashMap::new).extend(read),
                Err(error) => failure = error,
            }
        }
        others.ok_or(failure)
    }
}

/// Reads the announcements in the script's reply: how many there are, then names and texts.
fn read(reply: Value, max: usize) -> Result<HashMap<String, String>, CommandError> {
    let Value::Array(mut count) = reply else { return Err(FOREIGN) };
    if count.is_empty() {
        return Err(FOREIGN);
    }
    let announcements = count.split_off(1);
    match count.as_slice() {
        [Value::Int(count)] if *count > max as i64 => Err(CommandError::TooMany(*count as usize)),
        [Value::Int(_)] => {
            HashMap::from_redis_value(Value::Array(announcements)).map_err(|_| FOREIGN)
        }
        _ => Err(FOREIGN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1000;

    #[test]
    fn replies_that_the_script_does_not_make_are_refused() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let found = read(Value::Array(vec![Value::Int(1), text("a"), text("1 0 5")]), MAX).unwrap();
        assert_eq!(found.get("a").map(String::as_str), Some("1 0 5"));
        assert_eq!(
            read(Value::Array(vec![Value::Int(1001)]), MAX),
            Err(CommandError::TooMany(1001))
        );
        for reply in [Value::Nil, Value::Array(vec![]), Value::Array(vec![text("a")])] {
            assert_eq!(read(reply, MAX), Err(FOREIGN));
        }
    }
}
