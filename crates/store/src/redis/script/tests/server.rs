//! A Redis server of a test's own.

use std::{
    collections::HashSet,
    io::{BufRead, BufReader},
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use redis::{Connection, ConnectionLike, Pipeline, Value};
use tempfile::TempDir;

use super::*;

/// A server, killed when it is dropped.
pub(super) struct Server {
    connection: Connection,
    /// Scripts that it has.
    known: HashSet<&'static str>,
    process: Child,
    _directory: TempDir,
}

impl Server {
    /// Starts one on a free port.
    pub(super) fn start() -> Server {
        // Another process may take a port between when it is found to be free and when it is used.
        (0..10).find_map(|_| Server::try_start()).expect("redis-server starts")
    }

    fn try_start() -> Option<Server> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let directory = tempfile::tempdir().unwrap();
        let mut process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .current_dir(&directory)
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-server is installed");
        let log = BufReader::new(process.stdout.take().unwrap());
        let is_ready =
            log.lines().map_while(Result::ok).any(|line| line.contains("Ready to accept"));
        let connection = redis::Client::open(("127.0.0.1", port)).unwrap().get_connection();
        match connection {
            Ok(connection) if is_ready => {
                let known = HashSet::new();
                Some(Server { connection, known, process, _directory: directory })
            }
            _ => {
                let _ = process.kill();
                let _ = process.wait();
                None
            }
        }
    }

    /// The reply to a call.
    pub(super) fn run(&mut self, call: &Call) -> Value {
        self.run_all(&[call]).remove(0)
    }

    /// The replies to calls that are sent together.
    pub(super) fn run_all(&mut self, calls: &[&Call]) -> Vec<Value> {
        let mut pipeline = Pipeline::new();
        for call in calls {
            if self.known.insert(&call.script.sha) {
                pipeline.cmd("SCRIPT").arg("LOAD").arg(&call.script.body).ignore();
            }
        }
        if calls.is_empty() {
            return Vec::new();
        }
        for call in calls {
            pipeline.add_command(call.evalsha());
        }
        pipeline.query(&mut self.connection).unwrap()
    }

    /// The reply to a call, read.
    pub(super) fn read(&mut self, charges: &[Charge<'_>], call: &Call) -> Reply {
        let reply = self.run(call);
        read(charges, &reply).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
    }

    pub(super) fn command(&mut self, words: &[&str]) -> Value {
        let mut command = Cmd::new();
        command.arg(words);
        self.connection.req_command(&command).unwrap()
    }

    /// Executes a command that is no call of a script by its hash.
    pub(super) fn execute(&mut self, command: &Cmd) -> Value {
        self.connection.req_command(command).unwrap()
    }

    /// What is stored.
    pub(super) fn get(&mut self, prefix: &str, key: Key) -> Value {
        self.on_key("GET", prefix, key)
    }

    /// Milliseconds until a charge's counter is forgotten.
    pub(super) fn ttl(&mut self, charge: &Charge<'_>) -> i64 {
        match self.on_key("PTTL", "test", charge.key) {
            Value::Int(millis) => millis,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn expect_ttl(&mut self, charge: &Charge<'_>, cause: &str) {
        assert!(self.ttl(charge) > 0, "after {cause}: {:?}", charge.quota);
    }

    fn on_key(&mut self, name: &str, prefix: &str, key: Key) -> Value {
        let mut command = Cmd::new();
        command.arg(name).arg(key_name(prefix, key).as_slice());
        self.connection.req_command(&command).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
