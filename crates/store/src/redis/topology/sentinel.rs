//! The primary of a service that Sentinels watch. All of them are queried: one that is cut off from
//! the others reports the old primary, with an older configuration epoch.

use std::{
    cell::{Cell, RefCell},
    cmp::Reverse,
    collections::HashMap,
};

use tollgate_settings::RedisAddress;

use super::{
    Topology,
    queries::{Answer, is_outdated},
};
use crate::redis::{rivals::Rival, server_report::ServerRole};

/// A service that Sentinels watch.
pub(in crate::redis) struct Service {
    name: String,
    sentinels: Vec<RedisAddress>,
    /// None: no Sentinel has reported one yet.
    primary: RefCell<Option<RedisAddress>>,
    /// The epoch of the newest report that was used.
    epoch: Cell<u64>,
}

/// A server that Sentinels report as primary.
#[derive(Debug, PartialEq, Eq)]
struct Candidate<S> {
    server: S,
    /// The newest epoch among these Sentinels.
    epoch: u64,
    /// How many Sentinels report it.
    votes: usize,
}

impl Service {
    pub(super) fn new(name: &str, sentinels: &[RedisAddress]) -> Self {
        Service {
            name: name.to_owned(),
            sentinels: sentinels.to_vec(),
            primary: RefCell::default(),
            epoch: Cell::new(0),
        }
    }

    /// The server that takes charges.
    pub(super) fn primary(&self) -> Option<RedisAddress> {
        self.primary.borrow().clone()
    }

    /// The roles of the primary and of the Sentinels.
    pub(super) fn roles(&self) -> Vec<(RedisAddress, ServerRole)> {
        let primary = self.primary().into_iter().map(|primary| (primary, ServerRole::Primary));
        let sentinels = self.sentinels.iter().cloned().map(|it| (it, ServerRole::Sentinel));
        primary.chain(sentinels).collect()
    }

    /// Queries the Sentinels for the primary, and that server for its role.
    pub(super) async fn review(&self, topology: &Topology) {
        let command = |subcommand: &str| {
            let mut command = redis::cmd("SENTINEL");
            command.arg(subcommand).arg(&self.name);
            command
        };
        let commands = [command("get-master-addr-by-name"), command("MASTER")];
        let answers = topology.query_all(&self.sentinels, commands).await;
        let said = self.sentinels.iter().zip(answers);
        let named: Vec<(RedisAddress, u64)> =
            said.filter_map(|(sentinel, answer)| read(sentinel, answer)).collect();
        let answered = named.len();
        let candidates = candidates(named);
        let Some(first) = candidates.first() else { return };
        if is_outdated(first.epoch, self.epoch.get(), answered, self.sentinels.len()) {
            return;
        }
        let servers: Vec<RedisAddress> = candidates.iter().map(|it| it.server.clone()).collect();
        let roles = topology.query_all(&servers, [redis::cmd("ROLE")]).await;
        let roles: Vec<Option<bool>> = roles.iter().flatten().map(Answer::is_primary).collect();
        for (server, is_primary) in servers.iter().zip(&roles).skip(1) {
            let rival = server.name();
            match is_primary {
                Some(true) => {
                    topology.counts.rivals().note(Rival {
                        server: rival,
                        shard: self.name.clone(),
                        used: first.server.name(),
                    });
                }
                Some(false) => topology.counts.rivals().settle(&rival),
                None => {}
            }
        }
        // A server that is reported and not yet primary is about to be promoted. Any other one that
        // says that it is primary was deposed.
        if roles.first() == Some(&Some(true)) {
            self.epoch.set(first.epoch);
            topology.counts.rivals().settle(&first.server.name());
            self.elect(&first.server, topology);
        }
    }

    fn elect(&self, server: &RedisAddress, topology: &Topology) {
        if self.primary.borrow().as_ref() == Some(server) {
            return;
        }
        if let Some(deposed) = self.primary.replace(Some(server.clone())) {
            tracing::warn!(%server, %deposed, "another redis server is primary");
        }
        topology.note_election();
    }
}

/// The server that a Sentinel reports, and the epoch of its configuration: zero if it reports none.
fn read(sentinel: &RedisAddress, [address, master]: [Answer; 2]) -> Option<(RedisAddress, u64)> {
    let Answer::Replied(address) = address else { return None };
    let (host, port) = redis::from_redis_value::<(String, u16)>(address).ok()?;
    let epoch = match master {
        Answer::Replied(fields) => redis::from_redis_value::<HashMap<String, String>>(fields)
            .ok()
            .and_then(|fields| fields.get("config-epoch")?.parse().ok()),
        Answer::Refused | Answer::Silent => None,
    };
    Some((sentinel.at(&host, port), epoch.unwrap_or(0)))
}

/// The reported servers, the most credible first: by the newest epoch, then by the number of
/// Sentinels, then by their order.
fn candidates<S: PartialEq>(named: Vec<(S, u64)>) -> Vec<Candidate<S>> {
    let mut candidates: Vec<Candidate<S>> = Vec::new();
    for (server, epoch) in named {
        match candidates.iter_mut().find(|known| known.server == server) {
            Some(known) => {
                known.epoch = known.epoch.max(epoch);
                known.votes += 1;
            }
            None => candidates.push(Candidate { server, epoch, votes: 1 }),
        }
    }
    // The sort is stable.
    candidates.sort_by_key(|it| Reverse((it.epoch, it.votes)));
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_epoch_is_believed_and_then_the_majority() {
        let first = |named: &[(char, u64)]| candidates(named.to_vec())[0].server;
        assert_eq!(first(&[('a', 3), ('a', 3), ('b', 4)]), 'b');
        assert_eq!(first(&[('a', 4), ('b', 4), ('b', 2)]), 'b');
        assert_eq!(first(&[('a', 4), ('b', 4)]), 'a');
        assert_eq!(first(&[('a', 0)]), 'a');
        assert_eq!(candidates::<char>(Vec::new()), []);
    }
}
