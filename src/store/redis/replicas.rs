//! How far replicas are behind their primaries, asked again and again in the background.
//!
//! A primary numbers each byte that it hands its replicas, and a replica tells how many of them it has
//! made its own. So what a replica has is as old as the last question to the primary whose answer it
//! has reached: all that was written before that question is in it. That holds for a primary that
//! writes nothing as well, and needs no clocks that agree. How long ago a replica last heard of its
//! primary would not do: an idle primary speaks each ten seconds, and a cut link goes unnoticed for a
//! minute.
//!
//! One worker asks for all of a process. Who reads a replica looks at the age of what it has at that
//! moment: without new answers, a replica is soon too old by itself.

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

/// How often servers are asked, as a part of the age that is too old, and at most.
const LOOKS: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Answers of a primary that are kept.
const KEPT: usize = 128;

/// What one primary has written, by when it was asked.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// When somebody last set out to ask.
    asked: Option<Instant>,
    /// The name of its history: of another one, numbers mean something else.
    history: String,
    /// When it was asked, and up to where it had written: the newest question for each number, oldest
    /// first.
    marks: VecDeque<(Instant, u64)>,
}

impl Written {
    /// Whether it is time to ask again, `now`, for whoever is told so.
    fn is_due(&mut self, now: Instant, pause: Duration) -> bool {
        let is_due = self.asked.is_none_or(|asked| now.duration_since(asked) >= pause / 2);
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }

    /// A primary that was `asked` then has said this.
    fn note(&mut self, asked: Instant, Progress { history, offset }: &Progress) {
        let goes_on = self.history == *history
            && self.marks.back().is_none_or(|(_, before)| before <= offset);
        if !goes_on {
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

    /// How a replica follows that has got so far; and since when something may be missing in it, if
    /// that is known.
    fn judge(&self, replica: &Progress) -> (ReplicaLink, Option<Instant>) {
        let (Some((oldest, _)), Some((newest, _))) = (self.marks.front(), self.marks.back()) else {
            return (ReplicaLink::Unknown, None);
        };
        if self.history != replica.history {
            return (ReplicaLink::Down, None);
        }
        let mut reached = self.marks.iter().rev().filter(|(_, mark)| *mark <= replica.offset);
        match reached.next() {
            Some((at, _)) => (ReplicaLink::Up(newest.duration_since(*at)), Some(*at)),
            // By so much at least.
            None => (ReplicaLink::Up(newest.duration_since(*oldest)), None),
        }
    }
}

/// How far a server has got in a history.
#[derive(Debug, PartialEq, Eq)]
struct Progress {
    history: String,
    offset: u64,
}

/// What a server says of itself.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// It is a primary, and has written so much.
    Writes(Progress),
    /// It follows a primary, and has so much of it.
    Follows(Progress),
    /// It is to follow one, and does not.
    IsCutOff,
}

impl Said {
    /// Reads the reply to `INFO replication`; none if it is no such reply.
    fn read(answer: &Answer) -> Option<Said> {
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
            ("master", _) => progress("master_repl_offset").map(Said::Writes),
            (_, Some("up")) => progress("slave_repl_offset").map(Said::Follows),
            (_, Some(_)) => Some(Said::IsCutOff),
            _ => None,
        }
    }
}

/// Asks primaries and their replicas from time to time, for as long as the topology lives.
pub(super) async fn keep_watch(topology: Weak<Topology>) {
    loop {
        let pause = {
            let Some(topology) = topology.upgrade() else { return };
            let pause = (topology.replica_lag() / LOOKS).min(LONGEST_PAUSE);
            let mut looks = JoinSet::new();
            for (primary, replicas) in topology.followed() {
                looks.spawn_local(look(Rc::clone(&topology), primary, replicas, pause));
            }
            while looks.join_next().await.is_some() {}
            pause
        };
        sleep(pause).await;
    }
}

/// Asks a primary, and then its replicas, unless another worker does.
async fn look(topology: Rc<Topology>, primary: Endpoint, replicas: Vec<Endpoint>, pause: Duration) {
    // Nobody should have to wait for a connection who wants to read.
    topology.connect_replicas(&replicas);
    let (server, asked) = (topology.server(&primary), Instant::now());
    if !server.written().is_due(asked, pause) {
        return;
    }
    let answer = topology.ask(&primary, question()).await;
    if let Some(Said::Writes(progress)) = Said::read(&answer) {
        server.written().note(asked, &progress);
    }
    let mut looks = JoinSet::new();
    for replica in replicas {
        let (topology, server) = (Rc::clone(&topology), Arc::clone(&server));
        looks.spawn_local(async move {
            let answer = topology.ask_replica(&replica, question()).await;
            let (link, current_at) = judge(&server, Said::read(&answer));
            topology.server(&replica).note_link(link, current_at);
        });
    }
    while looks.join_next().await.is_some() {}
}

fn judge(primary: &Server, said: Option<Said>) -> (ReplicaLink, Option<Instant>) {
    match said {
        Some(Said::Follows(progress)) => primary.written().judge(&progress),
        Some(Said::Writes(_) | Said::IsCutOff) => (ReplicaLink::Down, None),
        None => (ReplicaLink::Unknown, None),
    }
}

fn question() -> redis::Cmd {
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

    /// A primary that was asked once a second and had written so much each time.
    fn written(begun: Instant, offsets: &[u64]) -> Written {
        let mut written = Written::default();
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
            let (link, current_at) = written.judge(&at("a", offset));
            assert_eq!(link, ReplicaLink::Up(SECOND * behind), "{offset}");
            assert_eq!(current_at, Some(begun + SECOND * reached), "{offset}");
        }
        let (link, current_at) = written.judge(&at("a", 99));
        assert_eq!((link, current_at), (ReplicaLink::Up(SECOND * 3), None), "nobody knows");
    }

    #[test]
    fn idle_primary_has_replicas_that_are_not_behind() {
        let begun = Instant::now();
        let written = written(begun, &[100; 1_000]);
        let (link, current_at) = written.judge(&at("a", 100));
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
        assert_eq!(written.judge(&at("a", 999)).0, ReplicaLink::Up(Duration::ZERO));
    }

    #[test]
    fn replica_of_another_history_does_not_follow() {
        let begun = Instant::now();
        let mut written = written(begun, &[100, 200]);
        assert_eq!(written.judge(&at("b", 200)), (ReplicaLink::Down, None));
        // Another server has taken its place; or the same one has begun anew.
        for (history, offset) in [("b", 300), ("b", 10)] {
            written.note(begun + SECOND * 5, &at(history, offset));
            assert_eq!(written.marks.len(), 1);
            assert_eq!(written.judge(&at("a", 900)), (ReplicaLink::Down, None));
            assert_eq!(written.judge(&at("b", offset)).0, ReplicaLink::Up(Duration::ZERO));
        }
        let nothing = Written::default();
        assert_eq!(nothing.judge(&at("a", 1)), (ReplicaLink::Unknown, None));
    }

    #[test]
    fn one_of_all_workers_asks() {
        let (mut written, begun) = (Written::default(), Instant::now());
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
            (primary.to_owned(), Some(Said::Writes(at("a", 70)))),
            (replica("up"), Some(Said::Follows(at("a", 71)))),
            (replica("down"), Some(Said::IsCutOff)),
            ("role:slave\r\n".to_owned(), None),
            ("role:master\r\nmaster_repl_offset:-1\r\n".to_owned(), None),
            (String::new(), None),
        ] {
            let bytes = Value::BulkString(text.clone().into_bytes());
            assert_eq!(Said::read(&Answer::Said(bytes)), expected, "{text}");
        }
        assert_eq!(Said::read(&Answer::Said(Value::Nil)), None);
    }
}
