//! Two servers that follow each other, are promoted and restarted: which replication IDs they
//! report and which data they have, beside two real ones.

use std::collections::HashMap;

use super::{
    super::{Address, Role, Server},
    real::{self, RealServer, command},
};
use crate::chance::Chance;

/// Random histories, and their steps.
const HISTORIES: u64 = 2;
const STEPS: usize = 12;

/// What happens to one of the servers.
#[derive(Clone, Copy, Debug)]
enum Event {
    Write,
    Promote,
    /// It follows the other one, if that is primary.
    Follow,
    Save,
    RestartAsPrimary,
    /// The same as [`Event::RestartAsPrimary`] if the other one is not primary.
    RestartAsReplica,
}

const EVENTS: [Event; 9] = [
    Event::Write,
    Event::Write,
    Event::Write,
    Event::Promote,
    Event::Follow,
    Event::Follow,
    Event::Save,
    Event::RestartAsPrimary,
    Event::RestartAsReplica,
];

/// Two servers of each kind.
struct Servers {
    real: [RealServer; 2],
    model: [Server; 2],
    /// The numbers of the replication IDs that each kind has reported, in their order.
    seen: [HashMap<String, usize>; 2],
}

/// What a server reports, and what it has.
#[derive(Debug, PartialEq)]
struct Report {
    role: String,
    id: usize,
    previous_id: usize,
    values: Vec<Vec<u8>>,
}

#[test]
fn replication_ids_and_data_go_on_as_in_redis() {
    for seed in 0..HISTORIES {
        let mut chance = Chance::new(seed);
        let mut servers = Servers::start();
        let mut told = Vec::new();
        for step in 0..STEPS {
            let (at, event) = (chance.below(2), *chance.pick(&EVENTS));
            told.push((at, event));
            servers.happen(at, event, step);
            servers.catch_up();
            for at in 0..2 {
                let (expected, found) = servers.reports(at);
                assert_eq!(found, expected, "seed {seed} server {at} after {told:?}");
            }
        }
    }
}

#[test]
fn server_with_a_log_begins_another_history_with_all_its_data() {
    let mut servers = Servers::start();
    servers.real[0].execute(&["CONFIG", "SET", "appendonly", "yes"]);
    servers.real[0].until(&["INFO", "persistence"], "aof_rewrite_in_progress:0");
    servers.happen(1, Event::Follow, 0);
    servers.catch_up();
    servers.happen(0, Event::Write, 0);
    servers.catch_up();
    servers.model[0].sync_log();
    servers.real[0].restart(&["--appendonly", "yes"]);
    servers.model[0].restart(Role::Primary);
    servers.model[1].lose_link();
    servers.catch_up();
    for at in 0..2 {
        let (expected, found) = servers.reports(at);
        assert_eq!(found, expected, "server {at}");
        assert_eq!(found.values[0], b"$1\r\n0\r\n");
    }
}

impl Servers {
    fn start() -> Servers {
        let real = [0, 1].map(|_| RealServer::start(&["--repl-diskless-sync-delay", "0"]));
        let model = [0, 1].map(|at: usize| Server::new(address(&real[at]), at as u64));
        Servers { real, model, seen: Default::default() }
    }

    fn happen(&mut self, at: usize, event: Event, step: usize) {
        let other_is_primary = self.model[1 - at].role == Role::Primary;
        let other = address(&self.real[1 - at]);
        let port = other.port.to_string();
        match event {
            Event::Write => self.write(at, step),
            Event::Promote => {
                self.real[at].execute(&["REPLICAOF", "NO", "ONE"]);
                self.model[at].promote();
            }
            Event::Follow if other_is_primary => {
                self.real[at].execute(&["REPLICAOF", "127.0.0.1", &port]);
                // One that follows that server already goes on.
                if self.model[at].role == Role::Primary {
                    self.model[at].follow(other);
                }
            }
            Event::Follow => {}
            Event::Save => {
                self.real[at].execute(&["SAVE"]);
                self.model[at].save();
            }
            Event::RestartAsReplica if other_is_primary => {
                self.real[at].restart(&["--replicaof", "127.0.0.1", &port]);
                self.model[at].restart(Role::Replica { primary: other, is_linked: false });
            }
            Event::RestartAsPrimary | Event::RestartAsReplica => {
                self.real[at].restart(&[]);
                self.model[at].restart(Role::Primary);
                self.model[1 - at].lose_link();
            }
        }
    }

    fn write(&mut self, at: usize, step: usize) {
        let words = command(&["SET", &format!("key{}", step % 3), &step.to_string()]);
        let now = self.real[at].now();
        let expected = self.real[at].execute_all(std::slice::from_ref(&words)).remove(0);
        let mut session = self.model[at].connect();
        let reply = self.model[at].handle(now, &mut session, &words);
        assert_eq!(session.encode(&reply), expected);
    }

    /// Replicas get what they lack.
    fn catch_up(&mut self) {
        for at in 0..2 {
            let Role::Replica { is_linked, .. } = self.model[at].role else { continue };
            let [first, second] = &mut self.model;
            let (replica, primary) = if at == 0 { (first, second) } else { (second, first) };
            if !is_linked {
                let resync = primary.resync(replica.position());
                replica.accept(resync);
            }
            let effects: Vec<_> =
                primary.effects_after(replica.position().offset).cloned().collect();
            effects.iter().for_each(|effect| replica.apply(effect).unwrap());

            self.real[at].until(&["INFO", "replication"], "master_link_status:up");
            let written = self.real[1 - at].field("replication", "master_repl_offset");
            let reached = format!("slave_repl_offset:{written}\r\n");
            self.real[at].until(&["INFO", "replication"], &reached);
        }
    }

    /// What the real server reports, and what the model does.
    fn reports(&mut self, at: usize) -> (Report, Report) {
        let keys = ["key0", "key1", "key2"].map(|key| command(&["GET", key]));
        let now = self.real[at].now();
        let real = &mut self.real[at];
        let fields = ["role", "master_replid", "master_replid2"];
        let expected = fields.map(|field| real.field("replication", field));
        let expected = report(&mut self.seen[0], expected, real.execute_all(&keys));

        let model = &mut self.model[at];
        let mut session = model.connect();
        let info = model.handle(now, &mut session, &command(&["INFO", "replication"]));
        let info = session.encode(&info);
        let found = fields.map(|field| real::field(&info, field));
        let values = keys.map(|key| {
            let reply = model.handle(now, &mut session, &key);
            session.encode(&reply)
        });
        (expected, report(&mut self.seen[1], found, values.to_vec()))
    }
}

fn report(
    seen: &mut HashMap<String, usize>,
    [role, id, previous_id]: [String; 3],
    values: Vec<Vec<u8>>,
) -> Report {
    let [id, previous_id] = [id, previous_id].map(|id| {
        let next = seen.len();
        *seen.entry(id).or_insert(next)
    });
    Report { role, id, previous_id, values }
}

fn address(real: &RealServer) -> Address {
    Address::new("127.0.0.1", real.port)
}
