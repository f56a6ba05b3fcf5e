//! How far replicas are behind their primaries, measured again and again in the background.
//!
//! A primary numbers each byte that it sends to its replicas, and a replica reports how many of
//! them it has applied. So a replica has everything that was written before the last query of the
//! primary whose offset it has reached. This also holds for a primary that writes nothing, and
//! needs no clocks that agree. The time since a replica last received data would not do: an idle
//! primary sends something every ten seconds only, and a broken link goes unnoticed for a minute.
//!
//! One worker measures for all workers of a process. A reader checks the age of a replica's data at
//! that moment, so without new measurements a replica soon counts as too old.

use std::{
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tollgate_settings::RedisAddress;

use super::{
    info::{field, info},
    replication_marks::Progress,
    server::Server,
    server_report::ReplicaLink,
    topology::{Answer, Topology},
};

/// How often the servers are queried within the allowed lag, and the longest pause.
const QUERIES_PER_LAG: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What a server reports about its replication.
#[derive(Debug, PartialEq, Eq)]
enum ReplicationInfo {
    /// It is a primary with this offset.
    Writes(Progress),
    /// It replicates a primary up to this offset.
    Follows(Progress),
    /// It is a replica without a link to its primary.
    IsCutOff,
}

impl ReplicationInfo {
    /// Reads the reply to `INFO replication`; none if it cannot be read.
    fn read(answer: &Answer) -> Option<ReplicationInfo> {
        let text = answer.text()?;
        let field = |name: &str| field(text, name);
        let progress = |offset: &str| {
            let replication_id = field("master_replid")?.to_owned();
            Some(Progress { replication_id, offset: field(offset)?.parse().ok()? })
        };
        match (field("role")?, field("master_link_status")) {
            ("master", _) => progress("master_repl_offset").map(ReplicationInfo::Writes),
            (_, Some("up")) => progress("slave_repl_offset").map(ReplicationInfo::Follows),
            (_, Some(_)) => Some(ReplicationInfo::IsCutOff),
            _ => None,
        }
    }
}

/// Measures all replicas from time to time, as long as the topology lives.
pub(super) async fn watch(topology: Weak<Topology>) {
    loop {
        let pause = {
            let Some(topology) = topology.upgrade() else { return };
            let pause = (topology.replica_lag() / QUERIES_PER_LAG).min(LONGEST_PAUSE);
            let mut measuring = JoinSet::new();
            for (primary, replicas) in topology.placement.replicated_primaries() {
                measuring.spawn_local(measure(Rc::clone(&topology), primary, replicas, pause));
            }
            while measuring.join_next().await.is_some() {}
            pause
        };
        sleep(pause).await;
    }
}

/// Queries a primary, and then its replicas, unless another worker does.
async fn measure(
    topology: Rc<Topology>,
    primary: RedisAddress,
    replicas: Vec<RedisAddress>,
    pause: Duration,
) {
    // Connects first, so that no reader has to wait for a connection.
    topology.connect_replicas(&replicas);
    let server = topology.servers.at(&primary);
    let queried = Instant::now();
    if !server.replication_marks.lock().is_due(queried, pause) {
        return;
    }
    let answer = topology.query(&primary, info("replication")).await;
    if let Some(ReplicationInfo::Writes(progress)) = ReplicationInfo::read(&answer) {
        server.replication_marks.lock().note(queried, &progress);
    }
    let mut measuring = JoinSet::new();
    for replica in replicas {
        let topology = Rc::clone(&topology);
        let server = Arc::clone(&server);
        measuring.spawn_local(async move {
            let answer = topology.query_replica(&replica, info("replication")).await;
            let (link, current_at) = lag_of(&server, ReplicationInfo::read(&answer));
            topology.servers.at(&replica).note_link(link, current_at);
        });
    }
    while measuring.join_next().await.is_some() {}
}

fn lag_of(primary: &Server, info: Option<ReplicationInfo>) -> (ReplicaLink, Option<Instant>) {
    match info {
        Some(ReplicationInfo::Follows(progress)) => {
            primary.replication_marks.lock().locate(&progress)
        }
        Some(ReplicationInfo::Writes(_) | ReplicationInfo::IsCutOff) => (ReplicaLink::Down, None),
        None => (ReplicaLink::Unknown, None),
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn at(replication_id: &str, offset: u64) -> Progress {
        Progress { replication_id: replication_id.to_owned(), offset }
    }

    #[test]
    fn info_of_primaries_and_replicas_is_read() {
        let primary = "# Replication\r\nrole:master\r\nconnected_slaves:1\r\nmaster_replid:a\r\n\
                       master_repl_offset:70\r\n";
        let replica = |link: &str| {
            format!(
                "role:slave\r\nmaster_link_status:{link}\r\nslave_read_repl_offset:72\r\n\
                 slave_repl_offset:71\r\nmaster_replid:a\r\nmaster_repl_offset:71\r\n"
            )
        };
        for (text, expected) in [
            (primary.to_owned(), Some(ReplicationInfo::Writes(at("a", 70)))),
            (replica("up"), Some(ReplicationInfo::Follows(at("a", 71)))),
            (replica("down"), Some(ReplicationInfo::IsCutOff)),
            ("role:slave\r\n".to_owned(), None),
            ("role:master\r\nmaster_repl_offset:-1\r\n".to_owned(), None),
            (String::new(), None),
        ] {
            let bytes = Value::BulkString(text.clone().into_bytes());
            assert_eq!(ReplicationInfo::read(&Answer::Replied(bytes)), expected, "{text}");
        }
        assert_eq!(ReplicationInfo::read(&Answer::Replied(Value::Nil)), None);
    }
}
