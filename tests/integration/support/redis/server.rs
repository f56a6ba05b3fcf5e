//! One Redis server.

use std::{
    fs,
    net::TcpListener,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use redis::{Client, Connection, FromRedisValue, RedisResult, Value};
use tempfile::TempDir;

use super::{
    Certificates, PATIENCE, eventually,
    process::{Process, log},
};
use crate::support::free_port;

/// A server on a port of its own, without anything on disk unless it is set to save.
pub(crate) struct Redis {
    options: Options,
    ports: Ports,
    /// Declared before the folder that it works in, and so ended before that goes.
    process: Mutex<Process>,
    folder: TempDir,
    /// For the test's own commands: made when it is needed, and again after a failure.
    connection: Mutex<Option<Connection>>,
}

/// What a server is started with, where it differs from others.
#[derive(Clone, Default)]
pub(crate) struct Options {
    arguments: Vec<String>,
    password: Option<String>,
    has_tls: bool,
    /// What a sentinel is to do. It keeps what it learns in a file, which it must have to begin
    /// with.
    sentinel: Option<String>,
}

#[derive(Clone, Copy)]
struct Ports {
    plain: u16,
    tls: Option<u16>,
}

impl Options {
    /// A line of its configuration file.
    pub(crate) fn set(mut self, name: &str, values: &[&str]) -> Options {
        self.arguments.push(format!("--{name}"));
        self.arguments.extend(values.iter().map(|value| (*value).to_owned()));
        self
    }

    /// Asks clients that name no user for this password.
    pub(crate) fn password(mut self, password: &str) -> Options {
        self.password = Some(password.to_owned());
        self.set("requirepass", &[password]).set("masterauth", &[password])
    }

    /// Knows one more user, with all rights.
    pub(crate) fn user(self, name: &str, password: &str) -> Options {
        self.set("user", &[name, "on", &format!(">{password}"), "~*", "&*", "+@all"])
    }

    /// Refuses writes once it has so much.
    pub(crate) fn max_memory(self, bytes: u64) -> Options {
        self.set("maxmemory", &[&bytes.to_string()]).set("maxmemory-policy", &["noeviction"])
    }

    /// Follows the server on this port.
    pub(crate) fn replica_of(self, port: u16) -> Options {
        self.set("replicaof", &["127.0.0.1", &port.to_string()])
    }

    /// Speaks TLS at its URL; the test itself goes on without.
    pub(crate) fn tls(self, certificates: &Certificates) -> Options {
        self.tls_that_asks(certificates, "no")
    }

    /// Speaks TLS at its URL, with clients that have a certificate.
    pub(crate) fn mutual_tls(self, certificates: &Certificates) -> Options {
        self.tls_that_asks(certificates, "yes")
    }

    fn tls_that_asks(mut self, certificates: &Certificates, clients: &str) -> Options {
        self.has_tls = true;
        self.set("tls-cert-file", &[&certificates.path("server.pem")])
            .set("tls-key-file", &[&certificates.path("server.key")])
            .set("tls-ca-cert-file", &[&certificates.path("ca.pem")])
            .set("tls-auth-clients", &[clients])
    }

    /// A sentinel with these lines in its configuration file.
    pub(super) fn sentinel(lines: &str) -> Options {
        Options { sentinel: Some(lines.to_owned()), ..Options::default() }
    }

    /// Starts it, and waits until it answers.
    pub(crate) fn start(&self) -> Redis {
        const ATTEMPTS: usize = 5;
        for _ in 0..ATTEMPTS {
            let tls = self.has_tls.then(free_port);
            let ports = Ports { plain: free_port(), tls };
            let folder = tempfile::tempdir().unwrap();
            if let Some(lines) = &self.sentinel {
                let lines = format!("port {}\nbind 127.0.0.1\n{lines}", ports.plain);
                fs::write(folder.path().join(SENTINEL), lines).unwrap();
            }
            let process = Mutex::new(Process::start(folder.path(), &self.line(ports)));
            let connection = Mutex::default();
            let redis = Redis { options: self.clone(), ports, process, folder, connection };
            if redis.is_listening() {
                redis.wait_until_loaded();
                return redis;
            }
        }
        panic!("others take all ports");
    }

    /// Starts several at a time.
    pub(super) fn start_all(all: &[Options]) -> Vec<Redis> {
        thread::scope(|scope| {
            let starts: Vec<_> = all.iter().map(|one| scope.spawn(|| one.start())).collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        })
    }

    fn line(&self, ports: Ports) -> Vec<String> {
        if self.sentinel.is_some() {
            return [SENTINEL, "--sentinel"].map(str::to_owned).to_vec();
        }
        let mut line = Options::default()
            .set("port", &[&ports.plain.to_string()])
            .set("bind", &["127.0.0.1"])
            .set("save", &[""])
            .set("appendonly", &["no"])
            // A new replica has its data at once, and over the wire.
            .set("repl-diskless-sync", &["yes"])
            .set("repl-diskless-sync-delay", &["0"])
            .set("rdb-del-sync-files", &["yes"]);
        if let Some(port) = ports.tls {
            line = line.set("tls-port", &[&port.to_string()]);
        }
        line.arguments.extend_from_slice(&self.arguments);
        line.arguments
    }
}

impl Redis {
    pub(crate) fn start() -> Redis {
        Options::default().start()
    }

    /// To be started otherwise than others.
    pub(crate) fn with() -> Options {
        Options::default()
    }

    pub(crate) fn port(&self) -> u16 {
        self.ports.plain
    }

    /// Where clients find it, without a user.
    pub(crate) fn url(&self) -> String {
        match self.ports.tls {
            Some(port) => format!("rediss://127.0.0.1:{port}"),
            None => format!("redis://127.0.0.1:{}", self.ports.plain),
        }
    }

    /// Its part of a settings file.
    pub(crate) fn settings(&self) -> String {
        format!("url: {}", self.url())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process().id()
    }

    /// Sends a command, and fails the test when it is refused.
    pub(crate) fn command(&self, words: &[&str]) -> Value {
        self.ask(words)
    }

    /// Sends a command for an answer of a certain form.
    pub(crate) fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_ask(words).unwrap_or_else(|error| panic!("{words:?}: {error}\n{}", self.log()))
    }

    /// Sends a command that may fail.
    pub(crate) fn try_ask<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut kept = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match &mut *kept {
            Some(connection) => connection,
            none => none.insert(self.connect()?),
        };
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let answer = command.query(connection);
        if answer.as_ref().is_err_and(redis::RedisError::is_unrecoverable_error) {
            *kept = None;
        }
        answer
    }

    /// The names of the counters that it has.
    pub(crate) fn counters(&self) -> Vec<String> {
        let mut names: Vec<String> = self.ask(&["KEYS", "*"]);
        let is_counter = |name: &str| {
            // A marker of a reset ends with an exclamation mark.
            ![":key-secret", ":proxies", ":fleet", ":roster", ":resets", "!"]
                .iter()
                .any(|it| name.ends_with(it))
        };
        names.retain(|name| is_counter(name));
        names
    }

    /// How many scripts it has run for requests: all, but for those by which proxies announce
    /// themselves, each of which sets a field once.
    pub(crate) fn scripts_for_requests(&self) -> u64 {
        let stats: String = self.ask(&["INFO", "commandstats"]);
        let calls = |name: &str| -> u64 {
            let of = |line: &str| line.split(['=', ',']).nth(1)?.parse::<u64>().ok();
            stats.lines().filter(|line| line.starts_with(name)).filter_map(of).sum()
        };
        calls("cmdstat_eval") - calls("cmdstat_hset:")
    }

    /// A connection of one's own.
    pub(crate) fn connect(&self) -> RedisResult<Connection> {
        let user = match &self.options.password {
            Some(password) => format!(":{password}@"),
            None => String::new(),
        };
        let client = Client::open(format!("redis://{user}127.0.0.1:{}", self.ports.plain))?;
        let connection = client.get_connection_with_timeout(ANSWER)?;
        connection.set_read_timeout(Some(ANSWER))?;
        connection.set_write_timeout(Some(ANSWER))?;
        Ok(connection)
    }

    /// The value of this field of `INFO`.
    pub(crate) fn info(&self, field: &str) -> String {
        let all: String = self.ask(&["INFO", "everything"]);
        let value = find(&all, field);
        value.unwrap_or_else(|| panic!("there is no {field}:\n{all}")).to_owned()
    }

    /// Forgets all scripts.
    pub(crate) fn flush_scripts(&self) {
        self.command(&["SCRIPT", "FLUSH"]);
    }

    /// Whether it runs, and is not paused.
    pub(crate) fn is_up(&self) -> bool {
        self.process().is_up()
    }

    /// Suspends it: its connections stay open, and it does not answer.
    pub(crate) fn pause(&self) {
        self.process().pause();
    }

    pub(crate) fn resume(&self) {
        self.process().resume();
    }

    /// Ends it at once. What it did not save is lost.
    pub(crate) fn kill(&self) {
        self.process().kill();
    }

    /// Writes its data down, for when it is started again.
    pub(crate) fn save(&self) {
        // One that goes on for a replica comes first.
        let save = || self.try_ask::<Value>(&["SAVE"]).ok();
        eventually("its data are saved", save);
    }

    /// Kills it, if it still runs, and starts it again on the same port, with what it has saved.
    pub(crate) fn restart(&self) {
        self.start_again(&[]);
        self.wait_until_loaded();
    }

    /// Starts it again with data that takes it long to load; meanwhile it answers `LOADING`.
    pub(crate) fn restart_loading(&self) {
        const KEYS: usize = 3_000;
        const DELAY: Duration = Duration::from_millis(10);
        let mut fill = redis::pipe();
        for key in 0..KEYS {
            fill.set(format!("filler:{key}"), "x".repeat(100));
        }
        fill.exec(&mut self.connect().unwrap()).unwrap();
        self.save();
        let delay = DELAY.as_micros().to_string();
        // It looks at its connections after so many bytes.
        let often = ["--loading-process-events-interval-bytes", "1024"];
        self.start_again(&[&["--key-load-delay", &delay], &often[..]].concat());
        assert!(self.is_loading(), "there was nothing to load");
    }

    /// Has it load what is left in no time.
    pub(crate) fn finish_loading(&self) {
        self.command(&["CONFIG", "SET", "key-load-delay", "0"]);
        self.wait_until_loaded();
    }

    fn start_again(&self, more: &[&str]) {
        self.kill();
        let mut line = self.options.line(self.ports);
        line.extend(more.iter().map(|word| (*word).to_owned()));
        let is_free = || TcpListener::bind(("127.0.0.1", self.ports.plain)).is_ok();
        eventually("the port is free again", || is_free().then_some(()));
        *self.process() = Process::start(self.folder.path(), &line);
        assert!(self.is_listening(), "another process took the port:\n{}", self.log());
    }

    /// Waits until it answers; false when its port was taken.
    fn is_listening(&self) -> bool {
        // Another server may answer in its place.
        let id = self.pid().to_string();
        let is_it = |all: String| find(&all, "process_id") == Some(&id);
        eventually("the server answers", || {
            if self.process().has_ended() {
                let log = self.log();
                assert!(
                    log.contains("in use"),
                    "redis-server {:?}:\n{log}",
                    self.options.arguments
                );
                return Some(false);
            }
            self.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
            self.try_ask(&["INFO", "server"]).is_ok_and(is_it).then_some(true)
        })
    }

    fn is_loading(&self) -> bool {
        self.info("loading") == "1"
    }

    fn wait_until_loaded(&self) {
        if self.options.sentinel.is_none() {
            eventually("the server has loaded", || (!self.is_loading()).then_some(()));
        }
    }

    fn log(&self) -> String {
        log(self.folder.path())
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file of a sentinel.
const SENTINEL: &str = "sentinel.conf";

/// How long it may take to answer one command.
const ANSWER: Duration = PATIENCE;

/// The value of a line `field:value`.
fn find<'t>(lines: &'t str, field: &str) -> Option<&'t str> {
    lines.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
}
