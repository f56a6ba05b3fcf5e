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
    collections::VecDeque,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    servers::{ReplicaLink, Server},
    topology::{Answer, Topology},
};
use crate::settings::Endpoint;

/// How often the servers are queried within the allowed lag, and the longest pause.
const QUERIES_PER_LAG: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Offsets of a primary that are kept.
const KEPT: usize = 128;

/// The offsets of one primary at the instants at which it was queried.
#[derive(Debug, Default)]
pub(super) struct WriteMarks {
    /// When a worker last began a query.
    asked: Option<Instant>,
    /// Its replication ID: offsets under another one cannot be compared.
    history: String,
    /// When it was queried, and its offset: the latest query for each offset, oldest first.
    marks: VecDeque<(Instant, u64)>,
}

impl WriteMarks {
    /// Whether a query is due `now`; if so, the calling worker must make it.
    fn is_due(&mut self, now: Instant, pause: Duration) -> bool {
        let is_due = self.asked.is_none_or(|asked| now.duration_since(asked) >= pause / 2);
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }

    /// Records the offset of a primary that was queried at the instant `asked`.
    fn note(&mut self, asked: Instant, Progress { history, offset }: &Progress) {
        let continues = self.history == *history
            && self.marks.back().is_none_or(|(_, before)| before <= offset);
        if !continues {
            self.marks.clear();
            self.history.clone_from(history);
        }
        if self.marks.back().is_some_and(|(_, before)| before == offset) {
            self.marks.pop_back();
        }
        if self.marks.len() >= KEPT {
            self.marks.pop_front();
        }
        self.marks.push_back((asked, *offset));
    }

    /// How far a replica with this progress is behind, and the instant before which it has
    /// everything, if that is known.
    fn locate(&self, replica: &Progress) -> (ReplicaLink, Option<Instant>) {
        let (Some((oldest, _)), Some((newest, _))) = (self.marks.front(), self.marks.back()) else {
            return (ReplicaLink::Unknown, None);
        };
        if self.history != replica.history {
            return (ReplicaLink::Down, None);
        }
        let mut reached = self.marks.iter().rev().filter(|(_, mark)| *mark <= replica.offset);
        match reached.next() {
            Some((at, _)) => (ReplicaLink::Up(newest.duration_since(*at)), Some(*at)),
            // It is behind by at least this much.
            None => (ReplicaLink::Up(newest.duration_since(*oldest)), None),
        }
    }
}

/// An offset under a replication ID.
#[derive(Debug, PartialEq, Eq)]
struct Progress {
    history: String,
    offset: u64,
}

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
        let field = |name: &str| {
            let mut fields = text.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(own, _)| *own == name).map(|(_, value)| value.trim_end())
        };
        let progress = |offset: &str| {
            let history = field("master_replid")?.to_owned();
            Some(Progress { history, offset: field(offset)?.parse().ok()? })
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
            for (primary, replicas) in topology.replicated_primaries() {
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
    primary: Endpoint,
    replicas: Vec<Endpoint>,
    pause: Duration,
) {
    // Connects first, so that no reader has to wait for a connection.
    topology.connect_replicas(&replicas);
    let (server, asked) = (topology.server(&primary), Instant::now());
    if !server.write_marks().is_due(asked, pause) {
        return;
    }
    let answer = topology.query(&primary, info_replication()).await;
    if let Some(ReplicationInfo::Writes(progress)) = ReplicationInfo::read(&answer) {
        server.write_marks().note(asked, &progress);
    }
    let mut measuring = JoinSet::new();
    for replica in replicas {
        let (topology, server) = (Rc::clone(&topology), Arc::clone(&server));
        measuring.spawn_local(async move {
            let answer = topology.query_replica(&replica, info_replication()).await;
            let (link, current_at) = lag_of(&server, ReplicationInfo::read(&answer));
            topology.server(&replica).note_link(link, current_at);
        });
    }
    while measuring.join_next().await.is_some() {}
}

fn lag_of(primary: &Server, info: Option<ReplicationInfo>) -> (ReplicaLink, Option<Instant>) {
    match info {
        Some(ReplicationInfo::Follows(progress)) => primary.write_marks().locate(&progress),
        Some(ReplicationInfo::Writes(_) | ReplicationInfo::IsCutOff) => (ReplicaLink::Down, None),
        None => (ReplicaLink::Unknown, None),
    }
}

fn info_replication() -> redis::Cmd {
    let mut command = redis::cmd("INFO");
    command.arg("replication");
    command
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(history: &str, offset: u64) -> Progress {
        Progress { history: history.to_owned(), offset }
    }

    /// A primary that was queried once a second and had these offsets.
    fn written(begun: Instant, offsets: &[u64]) -> WriteMarks {
        let mut written = WriteMarks::default();
        for (second, offset) in (0..).zip(offsets) {
            written.note(begun + SECOND * second, &at("a", *offset));
        }
        written
    }

    #[test]
    fn replica_is_as_old_as_the_last_question_whose_answer_it_has_reached() {
        let begun = Instant::now();
        let written = written(begun, &[100, 150, 150, 200]);
        for (offset, behind, reached) in
            [(200, 0, 3), (250, 0, 3), (199, 1, 2), (150, 1, 2), (149, 3, 0), (100, 3, 0)]
        {
            let (link, current_at) = written.locate(&at("a", offset));
            assert_eq!(link, ReplicaLink::Up(SECOND * behind), "{offset}");
            assert_eq!(current_at, Some(begun + SECOND * reached), "{offset}");
        }
        let (link, current_at) = written.locate(&at("a", 99));
        assert_eq!((link, current_at), (ReplicaLink::Up(SECOND * 3), None), "nobody knows");
    }

    #[test]
    fn idle_primary_has_replicas_that_are_not_behind() {
        let begun = Instant::now();
        let written = written(begun, &[100; 1_000]);
        let (link, current_at) = written.locate(&at("a", 100));
        assert_eq!(
            (link, current_at),
            (ReplicaLink::Up(Duration::ZERO), Some(begun + SECOND * 999))
        );
        assert_eq!(written.marks.len(), 1);
    }

    #[test]
    fn what_is_kept_of_a_busy_primary_is_bounded() {
        let offsets: Vec<u64> = (0..1_000).collect();
        let written = written(Instant::now(), &offsets);
        assert_eq!(written.marks.len(), KEPT);
        assert_eq!(written.locate(&at("a", 999)).0, ReplicaLink::Up(Duration::ZERO));
    }

    #[test]
    fn replica_of_another_history_does_not_follow() {
        let begun = Instant::now();
        let mut written = written(begun, &[100, 200]);
        assert_eq!(written.locate(&at("b", 200)), (ReplicaLink::Down, None));
        // Another server has replaced it, or it was restarted.
        for (history, offset) in [("b", 300), ("b", 10)] {
            written.note(begun + SECOND * 5, &at(history, offset));
            assert_eq!(written.marks.len(), 1);
            assert_eq!(written.locate(&at("a", 900)), (ReplicaLink::Down, None));
            assert_eq!(written.locate(&at("b", offset)).0, ReplicaLink::Up(Duration::ZERO));
        }
        let nothing = WriteMarks::default();
        assert_eq!(nothing.locate(&at("a", 1)), (ReplicaLink::Unknown, None));
    }

    #[test]
    fn one_of_all_workers_asks() {
        let (mut written, begun) = (WriteMarks::default(), Instant::now());
        assert!(written.is_due(begun, SECOND));
        assert!(!written.is_due(begun + SECOND / 4, SECOND));
        assert!(written.is_due(begun + SECOND / 2, SECOND));
    }

    #[test]
    fn reply_of_a_server_is_read() {
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
