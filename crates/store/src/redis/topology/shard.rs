//! The servers of a shard as the settings list them. All of them are queried, and the origin of
//! their data decides which one is used (`lineage`).

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use tokio::time::Instant;
use tollgate_settings::RedisAddress;

use super::{
    Topology,
    choice::{Choice, PriorState, RosterRead, SelfReport, choose},
    lineage::{Lineage, Roster},
    queries::Answer,
};
use crate::redis::{info::info, rivals::Rival, server_report::ServerRole};

/// How long a server with older data is not used in place of one that does not answer. Requests are
/// decided without Redis meanwhile. A server that hangs, or is restarted with its data, is back by
/// then.
const MAX_WAIT_FOR_NEWEST: Duration = Duration::from_secs(5);

/// Writes the replication ID in use to the roster.
const CLAIM: &str = include_str!("claim.lua");

/// A shard's servers.
pub(in crate::redis) struct ShardServers {
    /// The shard's name for operators.
    shard: String,
    /// In the order of the settings.
    all: Vec<RedisAddress>,
    state: RefCell<State>,
    /// Whether the roster cannot be written.
    cannot_write: Cell<bool>,
}

struct State {
    /// Whether the servers were queried. Until then it is not known which one is to be used.
    has_reviewed: bool,
    /// The position of the server that takes charges.
    current: usize,
    /// Servers that say that they are primary, and are not used.
    rivals: Vec<usize>,
    /// The newest roster that was seen in use, and the position of the server that had it.
    newest: Option<(Roster, usize)>,
    /// When that server last answered.
    last_answer: Instant,
}

impl ShardServers {
    pub(super) fn new(shard: &str, primary: &RedisAddress, replicas: &[RedisAddress]) -> Self {
        let all: Vec<RedisAddress> = std::iter::once(primary).chain(replicas).cloned().collect();
        let state = State {
            // A server without alternatives is used whatever it reports.
            has_reviewed: all.len() == 1,
            current: 0,
            rivals: Vec::new(),
            newest: None,
            last_answer: Instant::now(),
        };
        ShardServers {
            shard: shard.to_owned(),
            all,
            state: RefCell::new(state),
            cannot_write: Cell::new(false),
        }
    }

    /// The server that takes charges; none before the servers were queried.
    pub(super) fn primary(&self) -> Option<&RedisAddress> {
        let state = self.state.borrow();
        self.all.get(state.current).filter(|_| state.has_reviewed)
    }

    /// The servers that may be its replicas.
    pub(super) fn replicas(&self) -> Vec<RedisAddress> {
        let state = self.state.borrow();
        let is_replica = |at: usize| at != state.current && !state.rivals.contains(&at);
        let all = self.all.iter().enumerate();
        all.filter(|(at, _)| is_replica(*at)).map(|(_, address)| address.clone()).collect()
    }

    /// The role of each server.
    pub(super) fn roles(&self) -> Vec<(RedisAddress, ServerRole)> {
        let state = self.state.borrow();
        let role = |at: usize| match at {
            at if state.rivals.contains(&at) => ServerRole::Rival,
            at if at == state.current => ServerRole::Primary,
            _ => ServerRole::Replica,
        };
        let all = self.all.iter().enumerate();
        all.map(|(at, address)| (address.clone(), role(at))).collect()
    }

    /// Queries all servers, and uses the one with the current data.
    pub(super) async fn review(&self, topology: &Topology) {
        if self.all.len() == 1 {
            return;
        }
        let roster = roster_name(topology);
        let mut get = redis::cmd("GET");
        get.arg(&roster);
        let answers =
            topology.query_all(&self.all, [redis::cmd("ROLE"), info("replication"), get]).await;
        let has_answered = |[role, ..]: &[Answer; 3]| !matches!(role, Answer::Silent);
        let is_away = |address: &RedisAddress| topology.is_away(address);
        if !answers.iter().any(has_answered) && !self.all.iter().all(is_away) {
            // They may only be slow to connect to.
            return;
        }
        let reports: Vec<SelfReport> = answers.iter().map(read_report).collect();
        let choice = self.choose(&reports, topology);
        self.report_rivals(&reports, &choice, topology);
        let Some(winner) = choice.winner else { return };
        self.elect(winner, topology);
        let Some(address) = self.all.get(winner) else { return };
        match choice.entry {
            Some(entry) => {
                let mut claim = redis::cmd("EVAL");
                claim.arg(CLAIM).arg(1).arg(roster).arg(entry.epoch).arg(entry.id.to_string());
                match topology.query(address, claim).await {
                    Answer::Replied(_) => {
                        self.cannot_write.set(false);
                        self.state.borrow_mut().newest = Some((entry, winner));
                    }
                    Answer::Refused => self.cannot_write.set(true),
                    // The next review writes it.
                    Answer::Silent => {}
                }
            }
            None => {
                if let Some(SelfReport { roster: RosterRead::Written(own), .. }) =
                    reports.get(winner)
                {
                    self.state.borrow_mut().newest = Some((own.clone(), winner));
                }
            }
        }
    }

    fn choose(&self, reports: &[SelfReport], topology: &Topology) -> Choice {
        let mut state = self.state.borrow_mut();
        let has_reviewed = std::mem::replace(&mut state.has_reviewed, true);
        let holder = state.newest.as_ref().map(|(_, holder)| *holder);
        let has_answered = |at: usize| reports.get(at).is_some_and(|it| it.is_primary.is_some());
        if holder.is_some_and(has_answered) {
            state.last_answer = Instant::now();
        }
        let current = self.all.get(state.current);
        let prior = PriorState {
            current: state.current,
            // At the first review, no server is in use yet.
            is_away: !has_reviewed || current.is_none_or(|current| topology.is_away(current)),
            newest: state.newest.as_ref().map(|(roster, holder)| (roster, *holder)),
            is_overdue: state.last_answer.elapsed() >= MAX_WAIT_FOR_NEWEST,
            cannot_write: self.cannot_write.get(),
        };
        let choice = choose(reports, prior);
        state.rivals.clone_from(&choice.rivals);
        choice
    }

    fn elect(&self, winner: usize, topology: &Topology) {
        let before = std::mem::replace(&mut self.state.borrow_mut().current, winner);
        if before == winner {
            return;
        }
        if let (Some(server), Some(deposed)) = (self.all.get(winner), self.all.get(before)) {
            tracing::warn!(%server, %deposed, "another redis server is primary");
        }
        topology.note_election();
    }

    /// Records and drops rivals: servers that say that they are primary, and are not used.
    fn report_rivals(&self, reports: &[SelfReport], choice: &Choice, topology: &Topology) {
        let used = choice.winner.unwrap_or(self.state.borrow().current);
        let Some(used) = self.all.get(used) else { return };
        let rivals = topology.counts.rivals();
        for (at, (server, report)) in self.all.iter().zip(reports).enumerate() {
            if choice.rivals.contains(&at) {
                rivals.note(Rival {
                    server: server.name(),
                    shard: self.shard.clone(),
                    used: used.name(),
                });
            } else if report.is_primary.is_some() {
                rivals.settle(&server.name());
            }
        }
        if choice.is_ambiguous {
            rivals.warn_ambiguous(&roster_name(topology));
        }
    }
}

/// The name of the roster in Redis. No counter has that name: a counter's name has a brace after
/// the colon.
fn roster_name(topology: &Topology) -> String {
    format!("{}:roster", topology.settings.prefix)
}

/// Reads a server's answers to `ROLE`, `INFO replication` and `GET`.
fn read_report([role, info, roster]: &[Answer; 3]) -> SelfReport {
    SelfReport {
        is_primary: role.is_primary(),
        lineage: info.text().and_then(Lineage::parse),
        roster: match roster {
            Answer::Replied(redis::Value::Nil) => RosterRead::Missing,
            answer => {
                let roster = answer.text().and_then(Roster::parse);
                roster.map_or(RosterRead::Unreadable, RosterRead::Written)
            }
        },
    }
}
