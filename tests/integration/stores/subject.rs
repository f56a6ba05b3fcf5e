//! The store of a test, and what is charged to it.

use std::{
    cell::Cell,
    panic::resume_unwind,
    path::Path,
    pin::{Pin, pin},
    rc::Rc,
    slice,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    task::{Context, Wake, Waker},
    thread::{self, JoinHandle},
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    runtime::Builder,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{LocalSet, spawn_local},
    time::sleep,
};
use tollgate_clock::{Clock, Timestamp};
use tollgate_limit::{
    AlgorithmKind, Align, Calendar, CalendarUnit, Charge, Concurrency, DecidedBy, Decision,
    FixedWindow, Key, KeyHasher, LimitId, Outcome, OwnedCharge, Quota, Receipt, Retry, Standing,
    TokenBucket, Verdict,
};
use tollgate_settings::Settings;
use tollgate_store::{Adjustment, MemoryStore, Store, Stores, open_disk};
use tollgate_yaml::Sources;

use crate::support::{Cluster, MINUTE, PATIENCE, Redis, SECOND, START, Shards};

/// Where the counters of one test are, for all stores that open it.
pub(super) struct Home {
    /// The store in the settings file.
    settings: String,
    /// The counters, if they are in the process.
    stores: Option<Arc<Stores>>,
    /// Whether all counters leave memory before anything is done.
    is_cold: bool,
    /// The folder of counters on disk.
    _folder: Option<TempDir>,
}

impl Home {
    pub(super) fn memory() -> Home {
        let settings = "memory: {}".to_owned();
        let stores = Some(stores(&settings));
        Home { settings, stores, is_cold: false, _folder: None }
    }

    pub(super) fn disk() -> Home {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        let path = path.display();
        let settings = format!("disk: {{ path: {path}, flush: 10ms }}, deadline: 10s");
        let stores = Some(stores(&settings));
        Home { settings, stores, is_cold: false, _folder: Some(folder) }
    }

    /// The same, and every counter is read from disk whenever it is needed.
    pub(super) fn cold() -> Home {
        let mut home = Home::disk();
        home.is_cold = true;
        home
    }

    pub(super) fn single() -> Home {
        static SERVER: OnceLock<Redis> = OnceLock::new();
        Home::redis(&SERVER.get_or_init(Redis::start).settings())
    }

    pub(super) fn sharded() -> Home {
        static SERVERS: OnceLock<Shards> = OnceLock::new();
        Home::redis(&SERVERS.get_or_init(|| Shards::start(3)).settings())
    }

    pub(super) fn cluster() -> Home {
        static SERVERS: OnceLock<Cluster> = OnceLock::new();
        Home::redis(&SERVERS.get_or_init(Cluster::start).settings())
    }

    /// Tests share servers, but no keys.
    fn redis(topology: &str) -> Home {
        static TESTS: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("test-{}", TESTS.fetch_add(1, Ordering::Relaxed));
        let settings =
            format!("redis: {{ {topology}, prefix: {prefix}, clock: proxy }}, deadline: 10s");
        Home { settings, stores: None, is_cold: false, _folder: None }
    }

    /// A proxy's way there.
    pub(super) fn open(&self) -> Subject {
        self.open_one_of(1)
    }

    /// The same for one of so many proxies.
    pub(super) fn open_one_of(&self, instances: usize) -> Subject {
        let start = || stores(&format!("{}, instances: {instances}", self.settings));
        Subject::start(self.stores.clone().unwrap_or_else(start), self.is_cold)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(disk) = self.stores.as_ref().and_then(|stores| stores.disk()) {
            disk.finish();
        }
    }
}

fn stores(settings: &str) -> Arc<Stores> {
    let text =
        format!("version: 1\nlisteners: [{{ address: 127.0.0.1:0 }}]\nstore: {{ {settings} }}\n");
    let settings = Settings::parse(Path::new("tollgate.yaml"), &text, &Sources::system());
    let settings = settings.unwrap_or_else(|problems| panic!("{}\n{text}", problems[0]));
    let clock = Clock::Manual(Arc::new(START.as_micros().into()));
    let disk = settings.store.disk().zip(settings.store.disk_bounds());
    let disk = disk.map(|(disk, bounds)| {
        open_disk(disk, bounds, Some([7; 16]), clock.clone())
            .unwrap_or_else(|error| panic!("{error}"))
    });
    let memory = MemoryStore::new(1_000_000, [7; 16]);
    Arc::new(Stores::new(settings.store, memory, clock).with_disk(disk))
}

/// The store, as one worker of a proxy has it, and a clock that only the test moves.
pub(super) struct Subject {
    stores: Arc<Stores>,
    /// None: the worker has nothing more to do.
    jobs: Option<UnboundedSender<Job>>,
    worker: Option<JoinHandle<()>>,
    now: Cell<Timestamp>,
    is_cold: bool,
}

/// Whether a task that waits was called.
#[derive(Default)]
struct Called(AtomicBool);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a worker does with its store.
type Job = Box<dyn FnOnce(Rc<Store>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Like a worker of a proxy: the store's own tasks run at all times, whatever the test does.
fn run_worker(stores: Arc<Stores>, mut work: UnboundedReceiver<Job>) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let store = Store::start(stores);
        while let Some(job) = work.recv().await {
            job(Rc::clone(&store)).await;
        }
    });
}

impl Subject {
    fn start(stores: Arc<Stores>, is_cold: bool) -> Subject {
        let (jobs, work) = unbounded_channel();
        let own = Arc::clone(&stores);
        let worker = Some(thread::spawn(move || run_worker(own, work)));
        let now = Cell::new(START);
        let subject = Subject { stores, jobs: Some(jobs), worker, now, is_cold };
        subject.wait_until_connected();
        subject
    }

    /// What makes all counters leave memory, if this store is cold.
    pub(super) fn cooling(&self) -> impl Fn() + Send + 'static {
        let stores = self.is_cold.then(|| Arc::clone(&self.stores));
        move || stores.iter().for_each(|stores| stores.cool_down())
    }

    /// Another worker of the same proxy.
    pub(super) fn other_worker(&self) -> Subject {
        Subject::start(Arc::clone(&self.stores), self.is_cold)
    }

    /// Resets the counters of these charges.
    pub(super) fn reset(&self, charges: &[Charge<'_>]) {
        let keys: Vec<Key> = charges.iter().map(|charge| charge.key).collect();
        self.run(async move |store| store.reset(&keys).await.unwrap());
    }

    /// Does a worker's periodic work until `is_done`.
    pub(super) fn tick_until(&self, is_done: impl Fn() -> bool) {
        let now = self.now();
        for _ in 0..2 * PATIENCE.as_millis() / 20 {
            if is_done() {
                return;
            }
            self.run(async move |store| {
                store.tick(now);
                sleep(Duration::from_millis(20)).await;
            });
        }
        panic!("it was not done");
    }

    /// How limits stand by the latest count, for people who ask.
    pub(super) fn look(&self, charges: &[Charge<'_>]) -> Vec<Standing> {
        let charges = owned(charges);
        let now = self.now();
        let decision = self.run(async move |store| {
            let charges: Vec<_> = charges.iter().map(OwnedCharge::charge).collect();
            store.peek_latest(&charges, now).await
        });
        decision.outcomes.iter().map(|outcome| outcome.standing).collect()
    }

    pub(super) fn charge(&self, charges: &[Charge<'_>]) -> Decision {
        let charges = owned(charges);
        let now = self.now();
        let decision = self.run(async move |store| {
            let charges: Vec<_> = charges.iter().map(OwnedCharge::charge).collect();
            let decision = store.charge(&charges, now).await.unwrap();
            // What was given back for a denial must have arrived before the test goes on.
            store.finish(now).await;
            decision
        });
        assert_decided(&decision);
        decision
    }

    /// Charges many requests at the same time, and returns the decision about each.
    pub(super) fn charge_at_once<'c>(
        &self,
        requests: impl IntoIterator<Item = &'c [Charge<'c>]>,
    ) -> Vec<Decision> {
        let (requests, now): (Vec<_>, _) = (requests.into_iter().map(owned).collect(), self.now());
        let decisions = self.run(async move |store| {
            let decide = |request: Vec<OwnedCharge>| {
                let store = Rc::clone(&store);
                async move {
                    let charges: Vec<_> = request.iter().map(OwnedCharge::charge).collect();
                    store.charge(&charges, now).await.unwrap()
                }
            };
            let deciding = requests.into_iter().map(|request| spawn_local(decide(request)));
            let mut decisions = Vec::new();
            for decision in deciding.collect::<Vec<_>>() {
                decisions.push(decision.await.unwrap());
            }
            // What was given back for denials must have arrived before the test goes on.
            store.finish(now).await;
            decisions
        });
        decisions.iter().for_each(assert_decided);
        decisions
    }

    /// Charges, and goes away when a reply has arrived that is not read yet.
    pub(super) fn abandon(&self, charges: &[Charge<'_>]) {
        let charges = owned(charges);
        let now = self.now();
        self.run(async move |store| {
            let charges: Vec<_> = charges.iter().map(OwnedCharge::charge).collect();
            let mut charging = pin!(store.charge(&charges, now));
            let called = Arc::new(Called::default());
            let waker = Waker::from(Arc::clone(&called));
            let polled = charging.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending(), "it need not be asked: {polled:?}");
            while !called.0.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(1)).await;
            }
        });
    }

    /// What `GET /rate_limit` would report: perhaps not by the latest count.
    pub(super) fn peek(&self, charges: &[Charge<'_>]) -> Vec<Standing> {
        let charges = owned(charges);
        let now = self.now();
        let decision = self.run(async move |store| {
            let charges: Vec<_> = charges.iter().map(OwnedCharge::charge).collect();
            store.peek(&charges, now).await
        });
        decision.outcomes.iter().map(|outcome| outcome.standing).collect()
    }

    /// Puts right what was charged, and waits until that has arrived.
    pub(super) fn settle(&self, charge: &Charge<'_>, outcome: &Outcome, adjustment: Adjustment) {
        let charge = OwnedCharge::from(charge);
        let outcome = *outcome;
        let now = self.now();
        self.run(async move |store| {
            store.settle(&charge.charge(), &outcome, adjustment, now);
            store.finish(now).await;
        });
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now.get()
    }

    pub(super) fn set_clock(&self, now: Timestamp) {
        self.now.set(now);
    }

    /// Does something with the store as its worker does.
    pub(super) fn run<T: Send + 'static>(
        &self,
        job: impl AsyncFnOnce(Rc<Store>) -> T + Send + 'static,
    ) -> T {
        if self.is_cold {
            self.stores.cool_down();
        }
        let (sender, result) = mpsc::channel();
        let job: Job =
            Box::new(|store| Box::pin(async move { drop(sender.send(job(store).await)) }));
        assert!(self.jobs.as_ref().unwrap().send(job).is_ok(), "the worker has ended");
        result.recv_timeout(2 * PATIENCE).expect("the store answers")
    }

    /// Waits until the servers of all callers decide: some of so many callers are on each.
    fn wait_until_connected(&self) {
        let quota = fixed(1);
        let nothing = |number| Charge { cost: 0, ..one(&format!("probe {number}"), "any", &quota) };
        let probes = owned(&(0..30).map(nothing).collect::<Vec<_>>());
        self.run(async move |store| {
            for probe in &probes {
                let probe = [probe.charge()];
                while !store.charge(&probe, START).await.is_ok_and(|made| is_decided(&made)) {
                    sleep(Duration::from_millis(1)).await;
                }
            }
        });
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(Err(panic)) = self.worker.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

pub(super) fn owned(charges: &[Charge<'_>]) -> Vec<OwnedCharge> {
    charges.iter().map(OwnedCharge::from).collect()
}

/// Whether the store itself has decided, and not the process in its place.
pub(super) fn is_decided(decision: &Decision) -> bool {
    decision.outcomes.iter().all(|outcome| match outcome.decided_by {
        DecidedBy::Current | DecidedBy::Memo => true,
        // After a denial no other store has to be queried.
        DecidedBy::NoStore => decision.verdict == Verdict::Deny,
        DecidedBy::Next | DecidedBy::ClientTime | DecidedBy::Local => false,
    })
}

fn assert_decided(decision: &Decision) {
    assert!(is_decided(decision), "the store did not decide: {decision:?}");
}

impl Subject {
    /// Charges what fits.
    pub(super) fn take(&self, charge: &Charge<'_>) -> Outcome {
        let decision = self.charge(slice::from_ref(charge));
        assert_eq!(decision.verdict, Verdict::Allow, "{charge:?}: {decision:?}");
        decision.outcomes[0]
    }

    /// Charges what does not fit.
    pub(super) fn deny(&self, charge: &Charge<'_>) -> Standing {
        let decision = self.charge(slice::from_ref(charge));
        assert_eq!(decision.verdict, Verdict::Deny, "{charge:?}: {decision:?}");
        assert_eq!(decision.outcomes[0].receipt, None);
        decision.outcomes[0].standing
    }

    pub(super) fn take_times(&self, times: u32, charge: &Charge<'_>) {
        for _ in 0..times {
            self.take(charge);
        }
    }

    pub(super) fn deny_times(&self, times: u32, charge: &Charge<'_>) {
        for _ in 0..times {
            self.deny(charge);
        }
    }

    /// Whether all charges were taken.
    pub(super) fn allows(&self, charges: &[Charge<'_>]) -> bool {
        self.charge(charges).verdict == Verdict::Allow
    }

    /// How a limit stands by the latest count: a charge of nothing asks who decides.
    pub(super) fn standing(&self, charge: &Charge<'_>) -> Standing {
        let nothing = Charge { cost: 0, ..*charge };
        let standing = self.charge(slice::from_ref(&nothing)).outcomes[0].standing;
        Standing { retry: Retry::Now, ..standing }
    }

    pub(super) fn standings(&self, charges: &[Charge<'_>]) -> Vec<Standing> {
        charges.iter().map(|charge| self.standing(charge)).collect()
    }

    pub(super) fn used(&self, charge: &Charge<'_>) -> u32 {
        self.standing(charge).used
    }

    pub(super) fn give_back(&self, charge: &Charge<'_>, outcome: &Outcome) {
        self.settle(charge, outcome, Adjustment::GiveBack(receipt(outcome)));
    }

    /// Lets time pass.
    pub(super) fn advance(&self, time: Duration) {
        self.set_clock(self.now() + time);
    }

    /// Has the clock jump back.
    pub(super) fn turn_back(&self, time: Duration) {
        let micros = self.now().as_micros() - time.as_micros() as u64;
        self.set_clock(Timestamp::from_micros(micros));
    }
}

pub(super) fn receipt(outcome: &Outcome) -> Receipt {
    outcome.receipt.expect("something was taken")
}

/// A charge of one unit.
pub(super) fn one<'q>(owner: &str, limit: &str, quota: &'q Quota) -> Charge<'q> {
    let owner = KeyHasher::new([7; 16]).hash([(b'u', owner.as_bytes())]);
    Charge::new(Key::new(owner, owner, LimitId::new("test", limit, "any", 60)), quota, 1)
}

/// So many units in each minute from the first charge on.
pub(super) fn fixed(limit: u32) -> Quota {
    Quota::FixedWindow(FixedWindow { limit, align: Align::FirstRequest(MINUTE) })
}

/// So many units a minute or so, by each algorithm and form of it, with a name.
pub(super) fn quotas(limit: u32) -> Vec<(&'static str, Quota)> {
    let plain = AlgorithmKind::ALL
        .map(|kind| (kind.name(), Quota::plain(kind, limit, MINUTE).expect("it is exact")));
    let window = |align| Quota::FixedWindow(FixedWindow { limit, align });
    let hour = Calendar::new(CalendarUnit::Hour, "Asia/Kathmandu").unwrap();
    let bucket = |strict| {
        let (capacity, refill, interval) = (limit, 1, MINUTE);
        Quota::TokenBucket(TokenBucket { capacity, refill, interval, even: false, strict })
    };
    let forms = [
        ("fixed window of the epoch", window(Align::Epoch(MINUTE))),
        ("fixed window of the calendar", window(Align::Calendar(hour))),
        ("slow token bucket", bucket(false)),
        ("strict token bucket", bucket(true)),
    ];
    plain.into_iter().chain(forms).collect()
}

/// The same of fixed windows.
pub(super) fn fixed_windows(limit: u32) -> Vec<(&'static str, Quota)> {
    quotas(limit).into_iter().filter(|(_, quota)| quota.align().is_some()).collect()
}

/// The same without those that hold leases.
pub(super) fn without_leases(limit: u32) -> Vec<(&'static str, Quota)> {
    quotas(limit).into_iter().filter(|(_, quota)| !quota.holds_leases()).collect()
}

/// So many leases of a minute at once.
pub(super) fn places(limit: u32) -> Quota {
    Quota::Concurrency(Concurrency { limit, lease: MINUTE, retry_after: SECOND })
}
