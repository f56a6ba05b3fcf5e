//! The proxy itself, in this process, with a clock that the test moves.

use std::{
    io::Write,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::sync::oneshot;
use tollgate::{
    callers::{
        self, CallerError, CallerQuery, CallerReport, DenialReport, PolicyReport,
        top::{RankBy, TopQuery, TopReport, top},
    },
    server::{Listener, Server, Stopped},
};
use tollgate_clock::{Clock, Timestamp};
use tollgate_gate::{DenialFilter, Refunds, Shared};
use tollgate_keyword::Keyword;
use tollgate_observe::{access_log::AccessLog, pipe::Pipe, trace::Tracer};
use tollgate_policy::{Policies, load};
use tollgate_settings::{Configuration, Settings};
use tollgate_store::Stores;
use tollgate_upstream::downstream::{Faults, Handshakes};
use tollgate_yaml::Sources;

use super::{
    Client, PATIENCE, Policy, Request, Response, SECRET, get, options, policy::SECRET_VARIABLE,
    upstream::pass_on,
};

/// How long the last spans may take at the end, as in the program.
const FLUSH: Duration = Duration::from_secs(1);

/// When all tests begin: a quarter past a second, so that rounding shows.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_790_000_000_250_000);

/// Seconds since the epoch of an instant, as RFC 3339 writes it.
pub(crate) fn seconds(instant: &str) -> u64 {
    let instant: jiff::Timestamp = instant.parse().unwrap();
    instant.as_second().try_into().unwrap()
}

/// A proxy on a port of its own, with one worker unless its settings say otherwise.
pub(crate) struct Proxy {
    address: SocketAddr,
    /// Where other programs ask over HTTP or by gRPC, in the order of the settings.
    asked_at: Vec<SocketAddr>,
    clock: Clock,
    stores: Arc<Stores>,
    shared: Arc<Shared>,
    settings: Settings,
    log: Log,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<Stopped>>,
}

/// The access log, in memory. Notifies of each write.
#[derive(Clone, Default)]
struct Log(Arc<(Mutex<Vec<u8>>, Condvar)>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.0.lock().unwrap()).into_owned()
    }

    /// Waits until what is written is as wanted.
    fn wait_until(&self, is_wanted: impl Fn(&str) -> bool) {
        let (bytes, written) = &*self.0;
        let is_not_yet = |bytes: &mut Vec<u8>| !is_wanted(&String::from_utf8_lossy(bytes));
        let guard = bytes.lock().unwrap();
        let (guard, waited) = written.wait_timeout_while(guard, PATIENCE, is_not_yet).unwrap();
        drop(guard);
        assert!(!waited.timed_out(), "the log does not contain what was waited for");
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let (all, written) = &*self.0;
        all.lock().unwrap().extend(bytes);
        written.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Compiles policies under the names that a proxy gives them.
pub(crate) fn compile(policies: &[&Policy]) -> Policies {
    let sources = Sources::system().with_variable(SECRET_VARIABLE, SECRET);
    let load = |(number, policy): (usize, &&Policy)| {
        let file = format!("policy-{number}.yaml");
        load(Path::new(&file), &policy.to_string(), &sources)
            .unwrap_or_else(|problems| panic!("{}\n{policy}", problems[0]))
    };
    Policies::new(policies.iter().enumerate().map(load).collect())
}

fn parse(listeners: &str, settings: &str) -> Result<Settings, String> {
    let text = format!("version: 1\nlisteners: {listeners}\n{settings}\n");
    let sources = Sources::system().with_variable(SECRET_VARIABLE, SECRET);
    Settings::parse(Path::new("tollgate.yaml"), &text, &sources).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        format!("{}\n{text}", problems.join("\n"))
    })
}

impl Proxy {
    pub(crate) fn start(policy: &Policy) -> Proxy {
        Proxy::with_settings("workers: 1", &[policy])
    }

    /// With one worker and this store, which says in its responses when it did not decide.
    pub(crate) fn with_store(store: &str, policy: &Policy) -> Proxy {
        let settings = format!("workers: 1\nstore: {{ {store}, fallback_header: true }}");
        Proxy::with_settings(&settings, &[policy])
    }

    /// With its counters in this Redis, which counts by the proxy's clock. It is waited for as long
    /// as a busy machine may take.
    pub(crate) fn with_redis(redis: &str, policy: &Policy) -> Proxy {
        let store = format!("redis: {{ {redis}, clock: proxy }}, deadline: 10s");
        Proxy::with_store(&store, policy)
    }

    /// With a store whose deadline is past the end of time, so that each request that is to be
    /// counted there panics.
    pub(crate) fn that_panics(policy: &Policy) -> Proxy {
        let store = "store: { redis: { url: redis://127.0.0.1:1 }, deadline: 1s }";
        let mut settings = parse("[{ address: 127.0.0.1:0 }]", store).unwrap();
        settings.store.deadline = Duration::MAX;
        Proxy::serve(Configuration { settings, policies: compile(&[policy]) })
    }

    /// With these lines in the settings file, and with several policies.
    pub(crate) fn with_settings(settings: &str, policies: &[&Policy]) -> Proxy {
        Proxy::with_listeners("[{ address: 127.0.0.1:0 }]", settings, policies)
    }

    /// The same, and keys of the in-process store are hashed alike in each run: which clients share
    /// the bound on counters of their own choice (one in 65,531 shares another one's) depends on
    /// that.
    pub(crate) fn with_known_secret(settings: &str, policies: &[&Policy]) -> Proxy {
        let settings = parse("[{ address: 127.0.0.1:0 }]", settings);
        let mut settings = settings.unwrap_or_else(|problems| panic!("{problems}"));
        settings.store.key_secret = Some([7; 16]);
        Proxy::serve(Configuration { settings, policies: compile(policies) })
    }

    /// With these listeners, the first of which is where tests connect to.
    pub(crate) fn with_listeners(listeners: &str, settings: &str, policies: &[&Policy]) -> Proxy {
        let settings = parse(listeners, settings).unwrap_or_else(|problems| panic!("{problems}"));
        let policies = compile(policies);
        Proxy::serve(Configuration { settings, policies })
    }

    /// With these settings and a clock that goes by itself: the system's, so many seconds ahead.
    pub(crate) fn with_clock_ahead(seconds: i64, settings: &str, policy: &Policy) -> Proxy {
        let settings = parse("[{ address: 127.0.0.1:0 }]", settings);
        let settings = settings.unwrap_or_else(|problems| panic!("{problems}"));
        let clock = Clock::Ahead(Arc::new(AtomicI64::new(seconds * 1_000_000)));
        Proxy::serve_by(clock, Configuration { settings, policies: compile(&[policy]) })
    }

    /// Reads these listeners as a reload does, and has the running ones take over their
    /// certificates. Returns how many had others.
    pub(crate) fn renew_certificates(&self, listeners: &str) -> Result<usize, String> {
        let newer = parse(listeners, "workers: 1")?;
        Ok(newer.renew_certificates(&self.settings).count())
    }

    fn serve(configuration: Configuration) -> Proxy {
        let clock = Clock::Manual(Arc::new(AtomicU64::new(START.as_micros())));
        Proxy::serve_by(clock, configuration)
    }

    fn serve_by(clock: Clock, configuration: Configuration) -> Proxy {
        let bind = |settings| Listener::bind(settings).unwrap();
        let listeners: Vec<Listener> = configuration.settings.all_listeners().map(bind).collect();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let address = listeners[0].address().unwrap().tcp().unwrap_or(nowhere);
        let settings = configuration.settings.clone();
        let asked_at = listeners.iter().skip(settings.listeners.len());
        let asked_at = asked_at.filter_map(|listener| listener.address().unwrap().tcp()).collect();
        let workers = configuration.settings.workers;
        let drain = configuration.settings.drain;
        let shared = Arc::new(Shared::new(configuration, clock.clone()).unwrap());
        let stores = Arc::clone(&shared.stores);
        let log = Log::default();
        let pipe = Pipe::start(log.clone(), |lost| panic!("{lost} log lines were dropped"));
        let server = Server {
            shared: Arc::clone(&shared),
            listeners,
            workers,
            access_log: settings.access_log.map(|own| AccessLog::new(own, pipe.clone())),
            drain,
        };
        let (stop, stopping) = oneshot::channel();
        let tracer = Arc::clone(&shared);
        let server = thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let stopping = async { drop(stopping.await) };
            let stopped = runtime.block_on(server.run(stopping)).unwrap();
            assert!(pipe.flush(PATIENCE), "the log was not written");
            if let Some(tracer) = &tracer.tracer {
                tracer.finish(FLUSH);
            }
            stopped
        });
        Proxy {
            address,
            asked_at,
            clock,
            stores,
            shared,
            settings,
            log,
            stop: Some(stop),
            server: Some(server),
        }
    }

    /// Puts other policies in force.
    pub(crate) fn install(&self, policies: &[&Policy]) {
        self.shared.install(compile(policies));
    }

    /// How a server of its first upstream is: the first of its addresses.
    pub(crate) fn server_state(&self, server: usize) -> &'static str {
        let report = self.shared.keeper.as_ref().unwrap().report();
        report[0].servers[server].members[0].state.keyword()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its stores, for what they have counted and who is moved between them.
    pub(crate) fn stores(&self) -> &Arc<Stores> {
        &self.stores
    }

    /// How the limits of a caller stand, as `tollgate look` shows it.
    pub(crate) fn look(&self, caller: &str) -> Result<PolicyReport, CallerError> {
        let query = CallerQuery { caller: caller.into(), ..CallerQuery::default() };
        callers::read(&self.shared, &query).map(|mut report| report.policies.remove(0))
    }

    /// All that a look tells.
    pub(crate) fn look_whole(&self, query: &CallerQuery) -> Result<CallerReport, CallerError> {
        callers::read(&self.shared, query)
    }

    /// Resets the limits of a caller, as `tollgate reset` does.
    pub(crate) fn reset(&self, caller: &str) {
        self.try_reset(caller).unwrap();
    }

    /// The same, if it can be done.
    pub(crate) fn try_reset(&self, caller: &str) -> Result<(), CallerError> {
        let query = CallerQuery { caller: caller.into(), ..CallerQuery::default() };
        callers::reset(&self.shared, &query).map(drop)
    }

    /// Who has used limits most in these minutes, as `tollgate top` shows it.
    pub(crate) fn top(&self, by: RankBy, minutes: u64) -> TopReport {
        let query = TopQuery { by, minutes, ..TopQuery::default() };
        top(&self.shared, &query, self.shared.clock.now()).unwrap()
    }

    /// The latest denials, as the admin listener tells them.
    pub(crate) fn denials(&self) -> Vec<DenialReport> {
        callers::denials(&self.shared, 0, &DenialFilter::default(), usize::MAX).denials
    }

    /// Units that a limit has taken, and those of them that were given back, as `/metrics` has them.
    pub(crate) fn units(&self, limit: &str) -> [u64; 2] {
        let totals = self.shared.series.totals();
        let limits = totals.iter().flat_map(|policy| &policy.limits);
        let its = limits.filter(|own| *own.limit == *limit);
        its.fold([0; 2], |[taken, back], own| [taken + own.charged, back + own.refunded])
    }

    /// Who has taken units of a limit in the last minutes, and how many.
    pub(crate) fn ranked(&self, limit: &str) -> Vec<(String, u64)> {
        let all = self.top(RankBy::Units, 10).callers.into_iter();
        all.filter(|own| own.limit == limit).map(|own| (own.name, own.count)).collect()
    }

    /// What exports its spans.
    pub(crate) fn tracer(&self) -> &Tracer {
        self.shared.tracer.as_ref().expect("it exports spans")
    }

    /// What it has given back.
    pub(crate) fn refunds(&self) -> &Refunds {
        &self.shared.refunds
    }

    /// What went wrong with connections.
    pub(crate) fn faults(&self) -> &Faults {
        self.shared.admission.faults()
    }

    /// How TLS handshakes ended.
    pub(crate) fn handshakes(&self) -> &Handshakes {
        self.shared.admission.handshakes()
    }

    /// Connections that there are.
    pub(crate) fn connections(&self) -> usize {
        self.shared.admission.connections()
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Sends one request on a connection of its own.
    pub(crate) fn send(&self, request: Request) -> Response {
        self.connect().send(&request)
    }

    /// Sends one request to the first listener at which other programs ask.
    pub(crate) fn ask(&self, request: Request) -> Response {
        Client::connect(self.asked_at(0)).send(&request)
    }

    /// Where other programs ask: at the listener of this position.
    pub(crate) fn asked_at(&self, position: usize) -> SocketAddr {
        self.asked_at[position]
    }

    /// Programs that wait for room.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.stores.waiting.number()
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
        match &self.clock {
            Clock::Manual(clock) => clock.fetch_add(time.as_micros() as u64, Ordering::SeqCst),
            Clock::Ahead(ahead) => {
                ahead.fetch_add(time.as_micros() as i64, Ordering::SeqCst) as u64
            }
            Clock::System | Clock::Simulated(_) => panic!("a test cannot move this clock"),
        };
    }

    /// Lets time pass until this instant, as RFC 3339 writes it.
    pub(crate) fn advance_to(&self, instant: &str) {
        let instant = Timestamp::from_secs(seconds(instant));
        let now = self.clock.now();
        assert!(now <= instant, "it has passed");
        self.advance(instant.saturating_since(now));
    }

    /// Has the clock jump back.
    pub(crate) fn turn_back(&self, time: Duration) {
        match &self.clock {
            Clock::Manual(clock) => clock.fetch_sub(time.as_micros() as u64, Ordering::SeqCst),
            Clock::Ahead(ahead) => {
                ahead.fetch_sub(time.as_micros() as i64, Ordering::SeqCst) as u64
            }
            Clock::System | Clock::Simulated(_) => panic!("a test cannot move this clock"),
        };
    }

    /// How the caller of this request stands on all limits, as `GET /rate_limit` reports it.
    pub(crate) fn standings(&self, request: Request) -> serde_json::Value {
        let response = self.send(request);
        response.assert_status(200);
        response.json()["resources"].clone()
    }

    /// What a caller has used of a limit.
    pub(crate) fn used(&self, sub: &str, limit: &str) -> u64 {
        let standings = self.standings(get("/rate_limit").by(sub));
        let used = standings[limit]["used"].as_u64();
        used.unwrap_or_else(|| panic!("no limit {limit} in {standings}"))
    }

    /// Waits until its one worker has done what is due from time to time: it renews leases, and
    /// then writes down the log.
    pub(crate) fn wait_for_tick(&self) {
        let asked = |log: &str| log.matches(" OPTIONS * ").count();
        let before = asked(&self.logged());
        self.send(options("*")).assert_status(204);
        self.log.wait_until(|log| asked(log) > before);
    }

    /// Waits until the log has this in it.
    pub(crate) fn wait_until_logged(&self, text: &str) {
        self.wait_until_logged_times(text, 1);
    }

    /// Waits until the log has this in it so many times.
    pub(crate) fn wait_until_logged_times(&self, text: &str, times: usize) {
        self.log.wait_until(|log| log.matches(text).count() >= times);
    }

    /// How many times the log has this in it.
    pub(crate) fn logged_times(&self, text: &str) -> usize {
        self.logged().matches(text).count()
    }

    /// Begins to shut it down; it finishes the requests that it has begun.
    pub(crate) fn begin_shutdown(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits until it has shut down.
    pub(crate) fn wait(&mut self) -> Stopped {
        self.server.take().expect("it is running").join().unwrap()
    }

    /// Shuts it down, and returns what it has logged.
    pub(crate) fn into_log(mut self) -> String {
        self.begin_shutdown();
        self.wait();
        self.logged()
    }

    fn logged(&self) -> String {
        self.log.text()
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
