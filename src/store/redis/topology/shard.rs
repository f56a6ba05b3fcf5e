//! The servers of a shard as the configuration names them. Which of them is used is found out from
//! all of them: where their data come from tells which one goes on (`history`).

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Topology,
    history::{History, Roster},
    questions::Answer,
    verdict::{Hearing, Known, RosterRead, Verdict, judge},
};
use crate::{
    settings::Endpoint,
    store::{redis::servers::ServerRole, rivals::Rival},
};

/// How long a server with older data is not used in place of one that does not answer. Requests are
/// decided without Redis meanwhile; a server that hangs, or is started again with its data, is back
/// by then.
const HOLD_OUT: Duration = Duration::from_secs(5);

/// Writes down which line of data is in use.
const CLAIM: &str = include_str!("claim.lua");

/// A shard's servers.
pub(super) struct Servers {
    /// What people call the shard.
    shard: String,
    /// In the order of the configuration.
    all: Vec<Endpoint>,
    state: RefCell<State>,
    /// Nothing can be written down.
    is_mute: Cell<bool>,
}

struct State {
    /// Whether the servers were asked. Until then nobody knows which is to be used.
    has_looked: bool,
    /// The place of the server that takes charges.
    present: usize,
    /// Those that say that they do, and are not used.
    rivals: Vec<usize>,
    /// The newest line of data that was seen in use, and the place of the server that had it.
    newest: Option<(Roster, usize)>,
    /// When that server last answered.
    heard: Instant,
}

impl Servers {
    pub(super) fn new(shard: &str, primary: &Endpoint, replicas: &[Endpoint]) -> Self {
        let all: Vec<Endpoint> = std::iter::once(primary).chain(replicas).cloned().collect();
        let state = State {
            // One that is alone is used whatever it says.
            has_looked: all.len() == 1,
            present: 0,
            rivals: Vec::new(),
            newest: None,
            heard: Instant::now(),
        };
        let (shard, state) = (shard.to_owned(), RefCell::new(state));
        Servers { shard, all, state, is_mute: Cell::new(false) }
    }

    /// The server that takes charges; none before the servers were asked.
    pub(super) fn primary(&self) -> Option<&Endpoint> {
        let state = self.state.borrow();
        self.all.get(state.present).filter(|_| state.has_looked)
    }

    /// The servers that may follow it.
    pub(super) fn replicas(&self) -> Vec<Endpoint> {
        let state = self.state.borrow();
        let is_replica = |at: usize| at != state.present && !state.rivals.contains(&at);
        let all = self.all.iter().enumerate();
        all.filter(|(at, _)| is_replica(*at)).map(|(_, endpoint)| endpoint.clone()).collect()
    }

    /// What each of them is for.
    pub(super) fn roles(&self) -> Vec<(Endpoint, ServerRole)> {
        let state = self.state.borrow();
        let role = |at: usize| match at {
            at if state.rivals.contains(&at) => ServerRole::Rival,
            at if at == state.present => ServerRole::Primary,
            _ => ServerRole::Replica,
        };
        let all = self.all.iter().enumerate();
        all.map(|(at, endpoint)| (endpoint.clone(), role(at))).collect()
    }

    pub(super) fn all(&self) -> &[Endpoint] {
        &self.all
    }

    /// Asks all of them, and uses the one whose data go on.
    pub(super) async fn review(&self, topology: &Topology) {
        if self.all.len() == 1 {
            return;
        }
        let (mut info, mut get) = (redis::cmd("INFO"), redis::cmd("GET"));
        let roster = roster_name(topology);
        info.arg("replication");
        get.arg(&roster);
        let answers = topology.ask_all(&self.all, [redis::cmd("ROLE"), info, get]).await;
        let is_heard = |[role, ..]: &[Answer; 3]| !matches!(role, Answer::Silent);
        let is_away = |endpoint: &Endpoint| topology.is_away(endpoint);
        if !answers.iter().any(is_heard) && !self.all.iter().all(is_away) {
            // They may only be slow to be reached.
            return;
        }
        let hearings: Vec<Hearing> = answers.iter().map(hear).collect();
        let verdict = self.judge(&hearings, topology);
        self.tell(&hearings, &verdict, topology);
        let Some(winner) = verdict.winner else { return };
        self.elect(winner, topology);
        let Some(endpoint) = self.all.get(winner) else { return };
        match verdict.entry {
            Some(entry) => {
                let mut claim = redis::cmd("EVAL");
                claim.arg(CLAIM).arg(1).arg(roster).arg(entry.epoch).arg(entry.line.to_string());
                match topology.ask(endpoint, claim).await {
                    Answer::Said(_) => {
                        self.is_mute.set(false);
                        self.state.borrow_mut().newest = Some((entry, winner));
                    }
                    Answer::Refused => self.is_mute.set(true),
                    // It is written down at the next review.
                    Answer::Silent => {}
                }
            }
            None => {
                if let Some(Hearing { roster: RosterRead::Written(own), .. }) = hearings.get(winner)
                {
                    self.state.borrow_mut().newest = Some((own.clone(), winner));
                }
            }
        }
    }

    fn judge(&self, hearings: &[Hearing], topology: &Topology) -> Verdict {
        let mut state = self.state.borrow_mut();
        let has_looked = std::mem::replace(&mut state.has_looked, true);
        let holder = state.newest.as_ref().map(|(_, holder)| *holder);
        let is_heard = |at: usize| hearings.get(at).is_some_and(|it| it.is_primary.is_some());
        if holder.is_some_and(is_heard) {
            state.heard = Instant::now();
        }
        let present = self.all.get(state.present);
        let known = Known {
            present: state.present,
            // Nobody uses it yet.
            is_away: !has_looked || present.is_none_or(|present| topology.is_away(present)),
            newest: state.newest.as_ref().map(|(roster, holder)| (roster, *holder)),
            is_overdue: state.heard.elapsed() >= HOLD_OUT,
            is_mute: self.is_mute.get(),
        };
        let verdict = judge(hearings, known);
        state.rivals.clone_from(&verdict.rivals);
        verdict
    }

    fn elect(&self, winner: usize, topology: &Topology) {
        let before = std::mem::replace(&mut self.state.borrow_mut().present, winner);
        if before == winner {
            return;
        }
        if let (Some(server), Some(deposed)) = (self.all.get(winner), self.all.get(before)) {
            tracing::warn!(%server, %deposed, "another redis server is primary");
        }
        topology.note_election();
    }

    /// Tells of servers that claim what is another's.
    fn tell(&self, hearings: &[Hearing], verdict: &Verdict, topology: &Topology) {
        let used = verdict.winner.unwrap_or(self.state.borrow().present);
        let Some(used) = self.all.get(used) else { return };
        let rivals = topology.counts.rivals();
        for (at, (server, hearing)) in self.all.iter().zip(hearings).enumerate() {
            if verdict.rivals.contains(&at) {
                let (server, used) = (server.name(), used.name());
                rivals.note(Rival { server, shard: self.shard.clone(), used });
            } else if hearing.is_primary.is_some() {
                rivals.settle(&server.name());
            }
        }
        if verdict.is_blind {
            rivals.tell_blindness(&roster_name(topology));
        }
    }
}

/// Where a shard has written down which line of its data is in use. No counter is called so: its name
/// has a brace after the colon.
fn roster_name(topology: &Topology) -> String {
    format!("{}:roster", topology.settings.prefix)
}

/// What a server says to `ROLE`, `INFO replication` and `GET`.
fn hear([role, info, roster]: &[Answer; 3]) -> Hearing {
    Hearing {
        is_primary: role.is_primary(),
        history: info.text().and_then(History::parse),
        roster: match roster {
            Answer::Said(redis::Value::Nil) => RosterRead::Missing,
            answer => {
                let roster = answer.text().and_then(Roster::parse);
                roster.map_or(RosterRead::Unreadable, RosterRead::Written)
            }
        },
    }
}
