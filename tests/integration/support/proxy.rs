//! The proxy itself, in this process, with a clock that the test moves.

use std::{
    io::Write,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::sync::oneshot;
use tollgate::{
    access_log::{AccessLog, Format},
    clock::{Clock, Timestamp},
    gate::Shared,
    pipe::Pipe,
    policy::{Policies, Sources, load},
    server::{Server, Stopped},
    settings::{Configuration, Settings},
};

use super::{
    Client, PATIENCE, Policy, Request, Response, SECRET, get, policy::SECRET_VARIABLE,
    upstream::pass_on,
};

/// When all tests begin: a quarter past a second, so that rounding shows.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_790_000_000_250_000);

/// A proxy on a port of its own, with one worker unless its settings say otherwise.
pub(crate) struct Proxy {
    address: SocketAddr,
    clock: Arc<AtomicU64>,
    log: Log,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<Stopped>>,
}

/// The access log, in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Proxy {
    pub(crate) fn start(policy: &Policy) -> Proxy {
        Proxy::with_settings("workers: 1", &[policy])
    }

    /// With these lines in the settings file, and with several policies.
    pub(crate) fn with_settings(settings: &str, policies: &[&Policy]) -> Proxy {
        let settings = format!("version: 1\nlisteners: [{{ address: 127.0.0.1:0 }}]\n{settings}\n");
        let settings = Settings::parse(Path::new("tollgate.yaml"), &settings)
            .unwrap_or_else(|problems| panic!("{}\n{settings}", problems[0]));
        let sources = Sources::system().with_variable(SECRET_VARIABLE, SECRET);
        let load = |(number, policy): (usize, &&Policy)| {
            let file = format!("policy-{number}.yaml");
            load(Path::new(&file), &policy.to_string(), &sources)
                .unwrap_or_else(|problems| panic!("{}\n{policy}", problems[0]))
        };
        let policies = Policies::new(policies.iter().enumerate().map(load).collect());
        Proxy::serve(Configuration { settings, policies })
    }

    fn serve(configuration: Configuration) -> Proxy {
        let clock = Arc::new(AtomicU64::new(START.as_micros()));
        let listeners = vec![Server::bind(configuration.settings.listeners[0]).unwrap()];
        let address = listeners[0].local_addr().unwrap();
        let (workers, drain) = (configuration.settings.workers, configuration.settings.drain);
        let shared = Shared::new(configuration, Clock::Manual(Arc::clone(&clock))).unwrap();
        let log = Log::default();
        let pipe = Pipe::start(log.clone(), |lost| panic!("{lost} log lines were dropped"));
        let server = Server {
            shared: Arc::new(shared),
            listeners,
            workers,
            access_log: Some(AccessLog::new(Format::Text, pipe.clone())),
            drain,
        };
        let (stop, stopping) = oneshot::channel();
        let server = thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let stopping = async { drop(stopping.await) };
            let stopped = runtime.block_on(server.run(stopping)).unwrap();
            assert!(pipe.flush(PATIENCE), "the log was not written");
            stopped
        });
        Proxy { address, clock, log, stop: Some(stop), server: Some(server) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Sends one request on a connection of its own.
    pub(crate) fn send(&self, request: Request) -> Response {
        self.connect().send(&request)
    }

    /// Gets a target without a token.
    pub(crate) fn get(&self, target: &str) -> Response {
        self.send(get(target))
    }

    /// Gets `/` with a token of `sub`.
    pub(crate) fn get_as(&self, sub: &str) -> Response {
        self.send(get("/").by(sub))
    }

    /// Lets time pass.
    pub(crate) fn advance(&self, time: Duration) {
        self.clock.fetch_add(time.as_micros() as u64, Ordering::SeqCst);
    }

    /// Tells it to shut down; it goes on with what it has begun.
    pub(crate) fn begin_shutdown(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits until it has shut down.
    pub(crate) fn wait(&mut self) -> Stopped {
        self.server.take().expect("it is running").join().unwrap()
    }

    /// Shuts it down, and tells what it has logged.
    pub(crate) fn into_log(mut self) -> String {
        self.begin_shutdown();
        self.wait();
        self.logged()
    }

    fn logged(&self) -> String {
        String::from_utf8_lossy(&self.log.0.lock().unwrap()).into_owned()
    }
}

impl Drop for Proxy {
    #[expect(clippy::print_stderr, reason = "what the proxy saw helps with a failed test")]
    fn drop(&mut self) {
        self.begin_shutdown();
        if let Some(server) = self.server.take() {
            pass_on(server.join());
        }
        if thread::panicking() {
            let log = self.logged();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines.len().saturating_sub(20);
            eprintln!("the end of the proxy's log:\n{}", lines[tail..].join("\n"));
        }
    }
}
