//! What proxies that share this Redis say of themselves, in a hash called `<prefix>:proxies`. No
//! counter is called so: its name has a brace after the colon.
//!
//! Each shard has all of it, so that proxies know of each other for as long as one of them answers.

use std::{collections::HashMap, time::Duration};

use redis::{FromRedisValue, Value};
use tokio::time::Instant;

use super::{RedisStore, secret::NoSecret};
use crate::store::others::MOST;

/// Why it is not known what other proxies say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::store) enum Untold {
    /// No server answers.
    #[error("it is away")]
    Away,
    /// It answered that it will not, in these words.
    #[error("{0}")]
    Refused(String),
    /// What has the name is nothing that a proxy has written.
    #[error("its answer cannot be read")]
    Foreign,
    /// There are more than can be looked at.
    #[error("there are {0}")]
    TooMany(usize),
}

impl From<NoSecret> for Untold {
    fn from(error: NoSecret) -> Self {
        match error {
            NoSecret::Away => Untold::Away,
            NoSecret::Refused(words) => Untold::Refused(words),
            NoSecret::Foreign => Untold::Foreign,
        }
    }
}

impl RedisStore {
    /// Says `words` under a name, good for so long, or, if there are none, that the proxy goes. Tells
    /// what others say, by name, if it asks.
    ///
    /// # Errors
    /// Why that is not known, if no server tells.
    pub(in crate::store) async fn announce(
        &self,
        name: &str,
        words: &str,
        (good_for, asks): (Duration, bool),
        deadline: Instant,
    ) -> Result<HashMap<String, String>, Untold> {
        let key = format!("{}:proxies", self.settings.prefix);
        let most = if asks { MOST } else { 0 };
        let mut script = redis::cmd("EVAL");
        script.arg(include_str!("announce.lua")).arg(1).arg(&key);
        script.arg(name).arg(words).arg(good_for.as_millis() as u64).arg(most);
        let (mut others, mut obstacle) = (None, Untold::Away);
        for home in self.topology.homes(&key) {
            let told = match self.ask(home, script.clone(), deadline).await {
                Ok(reply) => read(reply),
                Err(error) => Err(error.into()),
            };
            match told {
                Ok(told) => others.get_or_insert_with(HashMap::new).extend(told),
                Err(error) => obstacle = error,
            }
        }
        others.ok_or(obstacle)
    }
}

/// What others say, in a reply to the script.
fn read(reply: Value) -> Result<HashMap<String, String>, Untold> {
    let Value::Array(mut told) = reply else { return Err(Untold::Foreign) };
    if told.is_empty() {
        return Err(Untold::Foreign);
    }
    let words = told.split_off(1);
    match told.as_slice() {
        [Value::Int(others)] if *others > MOST as i64 => Err(Untold::TooMany(*others as usize)),
        [Value::Int(_)] => {
            HashMap::from_redis_value(Value::Array(words)).map_err(|_| Untold::Foreign)
        }
        _ => Err(Untold::Foreign),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_that_the_script_does_not_make_are_told_apart() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let found = read(Value::Array(vec![Value::Int(1), text("a"), text("1 0 5")])).unwrap();
        assert_eq!(found.get("a").map(String::as_str), Some("1 0 5"));
        assert_eq!(read(Value::Array(vec![Value::Int(1001)])), Err(Untold::TooMany(1001)));
        for reply in [Value::Nil, Value::Array(vec![]), Value::Array(vec![text("a")])] {
            assert_eq!(read(reply), Err(Untold::Foreign));
        }
    }
}
