//! Decisions of a store with very many callers: those that are hot, those that were not seen for a
//! while, new ones, and a mix as of real traffic. Each store is measured by the same calls as a worker
//! makes them.
//!
//! `cargo bench --bench disk` measures a million callers in memory and on disk.
//! `KEYS=100000000 STORE='disk: { path: /var/tmp/counters }' cargo bench --bench disk` measures one
//! store, which may be in Redis as well; what is in the folder is kept. With `FILLED=1` the callers
//! are there already.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "it reports, and stops if it cannot"
)]

use std::{
    cell::Cell,
    fmt::Write as _,
    fs,
    path::Path,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{runtime::Builder, task::LocalSet};
use tollgate_clock::{Clock, Timestamp};
use tollgate_limit::{Align, Charge, FixedWindow, Key, LimitId, Quota};
use tollgate_settings::Settings;
use tollgate_store::{MemoryStore, Store, Stores, open_disk};
use tollgate_yaml::Sources;

const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

/// Callers that are asked about again and again.
const HOT: u64 = 10_000;

/// Requests of each measurement, at most.
const REQUESTS: u64 = 1_000_000;

/// Requests that are decided at the same time, where they may wait for the disk.
const AT_ONCE: u64 = 64;

fn main() {
    let keys = variable("KEYS").map_or(1_000_000, |keys| keys.parse().expect("a number of keys"));
    println!("{}", HEADINGS.join("\t"));
    match variable("STORE") {
        Some(store) => measure(&store, keys),
        None => {
            measure(&format!("memory: {{ max_keys: {} }}", keys * 2), keys);
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("counters");
            // So little memory that most of the callers are on disk only.
            measure(&format!("disk: {{ path: {}, memory: 16MiB }}", path.display()), keys);
        }
    }
}

const HEADINGS: [&str; 7] =
    ["store", "callers", "decisions/s", "p50 us", "p99 us", "p99.9 us", "most us"];

fn measure(settings: &str, keys: u64) {
    let stores = stores(settings);
    let name = settings.split(':').next().unwrap_or_default().trim().to_owned();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let store = Store::start(Arc::clone(&stores));
        store.ready(now()).await;
        let bench = Bench { store: Rc::clone(&store), name, quota: quota() };
        bench.all(&stores, keys).await;
        store.finish(now()).await;
    });
    if let Some(disk) = stores.disk() {
        let begun = Instant::now();
        disk.finish();
        println!("# closed in {:.1} s", begun.elapsed().as_secs_f64());
    }
}

struct Bench {
    store: Rc<Store>,
    name: String,
    quota: Quota,
}

impl Bench {
    async fn all(&self, stores: &Arc<Stores>, keys: u64) {
        let begun = Instant::now();
        if variable("FILLED").is_none() {
            self.run("new, one by one", keys, |number| number).await;
            println!("# {keys} callers in {:.1} s", begun.elapsed().as_secs_f64());
        }
        if let Some(disk) = stores.disk() {
            settle(disk);
            report(stores, keys);
            let begun = Instant::now();
            disk.compact().expect("tables are merged");
            println!("# merged in {:.1} s", begun.elapsed().as_secs_f64());
            report(stores, keys);
        }
        let requests = keys.min(REQUESTS);
        self.run("hot, first", HOT * 20, |number| number % HOT).await;
        self.run("hot", requests, |number| number % HOT).await;
        self.run_at_once("new", requests / 2, |number| keys + number).await;
        self.run_at_once("cold", requests / 2, |number| mix(number) as u64 % keys).await;
        self.run_at_once("zipf", requests, |number| zipf(number, keys)).await;
        self.beside(keys).await;
        report(stores, keys);
    }

    /// One request after the other.
    async fn run(&self, callers: &str, requests: u64, caller: impl Fn(u64) -> u64) {
        let mut times = Times::default();
        let begun = Instant::now();
        for number in 0..requests {
            let asked = Instant::now();
            self.charge(caller(number)).await;
            times.add(asked.elapsed());
            // As a worker does between requests.
            if number.is_multiple_of(1024) {
                self.store.tick(now());
                tokio::task::yield_now().await;
            }
        }
        times.print(&self.name, callers, requests, begun.elapsed());
    }

    /// Many at once: each waits for its own counter only.
    async fn run_at_once(&self, callers: &str, requests: u64, caller: impl Fn(u64) -> u64) {
        let next = Cell::new(0);
        let begun = Instant::now();
        let one = async || {
            let mut times = Times::default();
            while next.get() < requests {
                let number = next.replace(next.get() + 1);
                let asked = Instant::now();
                self.charge(caller(number)).await;
                times.add(asked.elapsed());
                if number.is_multiple_of(64) {
                    tokio::task::yield_now().await;
                }
            }
            times
        };
        let all = futures_util::future::join_all((0..AT_ONCE).map(|_| one())).await;
        let took = begun.elapsed();
        let times = all.into_iter().fold(Times::default(), Times::with);
        times.print(&self.name, callers, requests, took);
    }

    /// Hot callers, alone and while others have to be read from disk.
    async fn beside(&self, keys: u64) {
        for (callers, others) in [("hot, nobody beside", 0), ("hot, cold ones beside", AT_ONCE)] {
            let is_done = Cell::new(false);
            let number = Cell::new(1 << 40);
            let cold = async || {
                while !is_done.get() {
                    number.set(number.get() + 1);
                    self.charge(mix(number.get()) as u64 % keys).await;
                    tokio::task::yield_now().await;
                }
            };
            let hot = async {
                let mut times = Times::default();
                let begun = Instant::now();
                for number in 0..100_000 {
                    let asked = Instant::now();
                    self.charge(number % HOT).await;
                    times.add(asked.elapsed());
                    if number.is_multiple_of(16) {
                        tokio::task::yield_now().await;
                    }
                }
                is_done.set(true);
                times.print(&self.name, callers, 100_000, begun.elapsed());
            };
            let all = futures_util::future::join_all((0..others).map(|_| cold()));
            tokio::join!(hot, all);
        }
    }

    async fn charge(&self, caller: u64) {
        let owner = mix(caller);
        let key = Key::new(owner, owner, LimitId::new("bench", "monthly", "", 0));
        let decision = self.store.charge(&[Charge::new(key, &self.quota, 1)], now()).await;
        assert!(decision.is_ok(), "{decision:?}");
    }
}

/// Times of requests: how many took about as long, within 2 percent. So a hundred million of them take
/// no memory that counters would have.
struct Times {
    counts: Vec<u64>,
    most: Duration,
}

/// Steps between a time and its double.
const STEPS: u32 = 32;

impl Default for Times {
    fn default() -> Times {
        Times { counts: vec![0; (u64::BITS * STEPS) as usize], most: Duration::ZERO }
    }
}

impl Times {
    fn add(&mut self, time: Duration) {
        let nanos = (time.as_nanos() as u64).max(u64::from(STEPS));
        let doublings = nanos.ilog2() - STEPS.ilog2();
        let step = (nanos >> doublings) as u32 - STEPS;
        if let Some(count) = self.counts.get_mut((doublings * STEPS + step) as usize) {
            *count += 1;
        }
        self.most = self.most.max(time);
    }

    fn with(mut self, other: Times) -> Times {
        self.counts.iter_mut().zip(other.counts).for_each(|(own, others)| *own += others);
        self.most = self.most.max(other.most);
        self
    }

    /// The time in which this part of all was done, in microseconds.
    fn at(&self, part: f64) -> f64 {
        let all: u64 = self.counts.iter().sum();
        let mut left = (all as f64 * part) as u64;
        let place = self.counts.iter().position(|count| {
            let is_here = left < *count;
            left = left.saturating_sub(*count);
            is_here
        });
        let place = place.unwrap_or_default() as u32;
        let nanos = u64::from(STEPS + place % STEPS) << (place / STEPS);
        nanos as f64 / 1000.0
    }

    fn print(self, store: &str, callers: &str, requests: u64, took: Duration) {
        let mut line = String::new();
        let rate = requests as f64 / took.as_secs_f64();
        let _ = write!(line, "{store}\t{callers}\t{rate:.0}");
        for part in [0.5, 0.99, 0.999] {
            let _ = write!(line, "\t{:.1}", self.at(part));
        }
        println!("{line}\t{:.1}", self.most.as_secs_f64() * 1e6);
    }
}

/// Waits until the disk has been looked through and its tables are written.
fn settle(disk: &tollgate_store::Disk) {
    let begun = Instant::now();
    while !disk.report().is_filter_ready && begun.elapsed() < Duration::from_secs(600) {
        std::thread::park_timeout(Duration::from_millis(100));
    }
    disk.save();
}

fn report(stores: &Stores, keys: u64) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    println!("# {} {}", line("VmHWM"), line("VmRSS"));
    if let Some(disk) = stores.disk() {
        let report = disk.report();
        let files = report.tables_bytes + report.journal_bytes;
        println!(
            "# memory of counters {} MiB, filter {} MiB, indexes {} MiB; on disk {} MiB, {} bytes a \
             key; reads {} found, {} absent; survey {:?}",
            report.memory_bytes >> 20,
            report.filter_bytes >> 20,
            report.tables_memory_bytes >> 20,
            files >> 20,
            files / report.survey.map_or(keys, |survey| survey.live).max(1),
            report.reads_found,
            report.reads_absent,
            report.survey,
        );
    }
}

fn stores(settings: &str) -> Arc<Stores> {
    let text = format!(
        "version: 1\nlisteners: [{{ address: 127.0.0.1:0 }}]\nstore: {{ {settings}, deadline: 10s }}\n"
    );
    let settings = Settings::parse(Path::new("tollgate.yaml"), &text, &Sources::system());
    let settings = settings.unwrap_or_else(|problems| panic!("{problems:?}")).store;
    let disk = settings.disk().zip(settings.disk_bounds());
    let disk = disk.map(|(disk, bounds)| {
        open_disk(disk, bounds, None, Clock::System).unwrap_or_else(|error| panic!("{error}"))
    });
    let memory = MemoryStore::new(settings.bounds, [7; 16]);
    Arc::new(Stores::new(settings, memory, Clock::System).with_disk(disk))
}

fn quota() -> Quota {
    Quota::FixedWindow(FixedWindow { limit: 1_000_000, align: Align::FirstRequest(MONTH) })
}

fn now() -> Timestamp {
    Clock::System.now()
}

/// A hash of a caller, as spread as a real one.
fn mix(number: u64) -> u128 {
    let half = |seed: u64| {
        let mixed = (seed ^ seed >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    };
    let number = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    u128::from(half(number)) << 64 | u128::from(half(number ^ 0x5851_F42D_4C95_7F2D))
}

/// A caller of so many by Zipf's law: each rank comes as often as its reciprocal says.
fn zipf(number: u64, keys: u64) -> u64 {
    let uniform = (mix(number) >> 64) as f64 / 2_f64.powi(64);
    let rank = ((keys as f64).ln() * uniform).exp();
    (rank as u64 - 1).min(keys - 1)
}

fn variable(name: &str) -> Option<String> {
    Sources::system().variable(name)
}
