//! The model beside a real Redis: the same commands, and the same bytes in reply.

mod random_commands;
mod real;

use tollgate_clock::Timestamp;

use self::{
    random_commands::random_command,
    real::{RealServer, command},
};
use super::{Address, Server};
use crate::chance::Chance;

/// Random histories, each with so many commands.
const HISTORIES: u64 = 60;
const STEPS: usize = 150;

/// By how much a time to live may differ: a history takes less time.
const PATIENCE_MILLIS: u64 = 5_000;

/// Both servers.
struct Pair {
    real: RealServer,
    model: Server,
    now: Timestamp,
}

impl Pair {
    fn start(arguments: &[&str]) -> Pair {
        let real = RealServer::start(arguments);
        let model = Server::new(Address::new("127.0.0.1", real.port), 0);
        Pair { real, model, now: Timestamp::from_micros(0) }.empty()
    }

    /// Both without data, with the same clock.
    fn empty(mut self) -> Pair {
        self.real.reconnect();
        self.real.execute(&["FLUSHALL"]);
        self.real.execute(&["SCRIPT", "FLUSH"]);
        self.model = Server::new(Address::new("127.0.0.1", self.real.port), 0);
        let time = self.real.execute(&["TIME"]);
        let time = String::from_utf8(time).unwrap();
        let numbers: Vec<u64> = time.lines().filter_map(|line| line.parse().ok()).collect();
        self.now = Timestamp::from_micros(numbers[0] * 1_000_000 + numbers[1]);
        self
    }

    /// Executes commands on both, and compares the replies. Returns how many there were.
    fn compare(&mut self, story: &str, commands: &[Vec<Vec<u8>>]) -> usize {
        let mut session = self.model.connect();
        let replies = self.real.execute_all(commands);
        for (step, (words, expected)) in commands.iter().zip(&replies).enumerate() {
            let found = self.model.handle(self.now, &mut session, words);
            let found = session.encode(&found);
            assert!(
                found == *expected,
                "{story} step {step}: {}\nexpected {}\nfound    {}",
                readable(words.join(&b' ')),
                readable(expected.clone()),
                readable(found)
            );
        }
        commands.len()
    }
}

fn readable(bytes: Vec<u8>) -> String {
    bytes.escape_ascii().to_string()
}

#[test]
fn commands_answer_as_those_of_redis() {
    let mut pair = Pair::start(&[]);
    let mut compared = 0;
    for seed in 0..HISTORIES {
        pair = pair.empty();
        let mut chance = Chance::new(seed);
        let commands: Vec<_> = (0..STEPS).map(|_| random_command(&mut chance)).collect();
        compared += pair.compare(&format!("seed {seed}"), &commands);
    }
    assert!(compared > 5_000);
}
