//! The model beside a real Redis: the same commands, and the same bytes in reply.

mod clusters;
mod conditions;
mod counters;
mod failovers;
mod random_calls;
mod random_commands;
mod real;
mod sentinels;
mod states;
mod store_scripts;

use std::time::{Duration, Instant};

use tollgate_clock::Timestamp;

use self::{
    random_calls::History,
    random_commands::random_command,
    real::{RealServer, command},
};
use super::{Address, Server, Session};
use crate::chance::Chance;

/// Random histories of commands, each of so many steps, and of calls of the store's scripts.
const HISTORIES: u64 = 40;
const STEPS: usize = 250;

/// A counter is kept for a second at least, and for the model no time passes: a history that takes
/// longer shows nothing.
const PATIENCE: Duration = Duration::from_millis(900);

/// Both servers, without data, and with the same clock.
struct Pair<'r> {
    real: &'r mut RealServer,
    model: Server,
    session: Session,
    now: Timestamp,
    /// The commands of the model, and its replies.
    replies: Vec<(Vec<Vec<u8>>, Vec<u8>)>,
}

impl Pair<'_> {
    /// They speak this version of the protocol.
    fn new<'r>(real: &'r mut RealServer, protocol: &str) -> Pair<'r> {
        real.reconnect();
        real.execute(&["HELLO", protocol]);
        real.execute(&["FLUSHALL"]);
        real.execute(&["SCRIPT", "FLUSH"]);
        let mut model = Server::new(Address::new("127.0.0.1", real.port), 0);
        let mut session = model.connect();
        let now = real.now();
        model.handle(now, &mut session, &command(&["HELLO", protocol]));
        Pair { real, model, session, now, replies: Vec::new() }
    }

    /// Executes a command on the model.
    fn execute(&mut self, words: Vec<Vec<u8>>) -> super::Reply {
        let reply = self.model.handle(self.now, &mut self.session, &words);
        self.replies.push((words, self.session.encode(&reply)));
        reply
    }

    /// Executes the commands on the real server, and compares the replies. Returns how many there
    /// were: none if that took longer than `patience`.
    fn compare(&mut self, story: &str, patience: Duration) -> usize {
        let (commands, replies): (Vec<_>, Vec<_>) = self.replies.drain(..).unzip();
        let begun = Instant::now();
        let expected = self.real.execute_all(&commands);
        if begun.elapsed() > patience {
            return 0;
        }
        for (step, (expected, found)) in expected.iter().zip(&replies).enumerate() {
            assert!(
                found == expected,
                "{story} step {step}: {}\nexpected {}\nfound    {}",
                commands[step].join(&b' ').escape_ascii(),
                expected.escape_ascii(),
                found.escape_ascii()
            );
        }
        expected.len()
    }

    /// Compares when keys expire.
    fn compare_expiry(&mut self, story: &str, keys: &[String]) {
        let queries: Vec<_> = keys.iter().map(|key| command(&["PEXPIRETIME", key])).collect();
        let expected = self.real.execute_all(&queries);
        let now = self.now.as_micros() as i64 / 1000;
        // In milliseconds, of which one more may have begun.
        let passed = self.real.now().saturating_since(self.now).as_millis() as i64 + 1;
        for (key, expected) in keys.iter().zip(expected) {
            let expected: i64 = real::integer(&expected);
            let found = self.model.expires_at(key.as_bytes());
            let is_near = match found {
                Some(found) => (0..=passed).contains(&(expected - found)),
                None => expected < 0,
            };
            // What the real server has removed meanwhile was about to expire.
            let is_over = expected == -2 && found.is_some_and(|found| found - now <= passed);
            assert!(is_near || is_over, "{story} {key}: expected {expected}, found {found:?}");
        }
    }
}

#[test]
fn commands_answer_as_those_of_redis() {
    let mut real = RealServer::start(&[]);
    let mut compared = 0;
    for seed in 0..HISTORIES {
        let mut pair = Pair::new(&mut real, if seed % 2 == 0 { "2" } else { "3" });
        let mut chance = Chance::new(seed);
        (0..STEPS).for_each(|_| drop(pair.execute(random_command(&mut chance))));
        compared += pair.compare(&format!("seed {seed}"), Duration::MAX);
    }
    assert_eq!(compared, HISTORIES as usize * STEPS);
}

#[test]
fn scripts_of_the_store_answer_as_in_redis() {
    let mut real = RealServer::start(&[]);
    let mut compared = 0;
    for seed in 0..HISTORIES {
        let mut pair = Pair::new(&mut real, if seed % 2 == 0 { "2" } else { "3" });
        let mut history = History::new(seed);
        for _ in 0..history.steps {
            let (words, reading) = history.step();
            let reply = pair.execute(words);
            history.learn(&reading, &reply);
        }
        for key in history.keys() {
            for read in [&["GET", &key][..], &["HGETALL", &key], &["ZRANGE", &key, "0", "-1"]] {
                pair.execute(command(read));
            }
        }
        let story = format!("seed {seed}");
        compared += pair.compare(&story, PATIENCE);
        pair.compare_expiry(&story, &history.keys());
    }
    assert!(compared > 10_000, "too slow: only {compared} calls were compared in time");
}
