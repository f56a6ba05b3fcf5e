//! What a counter costs in memory, a sweep in time, and a flood of fresh keys the callers who are
//! known: `cargo bench --bench memory [KEYS]`.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "it reports, and stops if it cannot")]

use std::time::{Duration, Instant};

use tollgate_clock::Timestamp;
use tollgate_limit::{Align, Charge, Decision, FixedWindow, Key, KeyHasher, LimitId, Quota};
use tollgate_store::{MemoryStore, NoRoom};

const START: Timestamp = Timestamp::from_secs(1_790_000_000);
const HOUR: Duration = Duration::from_secs(3600);
const STEPS: usize = 10;

fn main() {
    let keys = std::env::args().filter_map(|text| text.parse().ok()).next().unwrap_or(10_000_000);
    let store = MemoryStore::new(keys, [0; 16]);
    let quota = Quota::FixedWindow(FixedWindow { limit: 5000, align: Align::FirstRequest(HOUR) });
    let (hasher, id) = (KeyHasher::new([7; 16]), LimitId::new("bench", "core", "fixed_window", 1));
    let charge = |number: usize| {
        let owner = hasher.hash([(b'u', number.to_le_bytes().as_slice())]);
        store.charge(&[Charge::new(Key::new(owner, owner, id), &quota, 1)], START)
    };
    let before = resident_bytes();
    for step in 0..STEPS {
        for number in keys / STEPS * step..keys / STEPS * (step + 1) {
            charge(number).unwrap();
        }
        let bytes = resident_bytes() - before;
        println!("{} keys: {:.1} bytes a key", store.len(), bytes as f64 / store.len() as f64);
    }

    // As workers do: a few shards at a time, ten times a second.
    let mut slowest = Duration::ZERO;
    let sweeps = 128;
    let started = Instant::now();
    for _ in 0..sweeps {
        let began = Instant::now();
        store.sweep(START);
        slowest = slowest.max(began.elapsed());
    }
    let mean = started.elapsed() / sweeps;
    println!(
        "a sweep, ten times a second: {mean:?} on average, {slowest:?} at worst: {:.3} % of a core",
        mean.as_secs_f64() * 10.0 * 100.0
    );
    flood(keys, charge);
}

fn flood(keys: usize, charge: impl Fn(usize) -> Result<Decision, NoRoom>) {
    const CALLERS: usize = 1000;
    let ask_known = || {
        let started = Instant::now();
        for number in 0..CALLERS {
            charge(number).unwrap();
        }
        started.elapsed() / CALLERS as u32
    };
    let alone = (0..20).map(|_| ask_known()).min().unwrap();
    let mut refused = 0;
    let mut among = Duration::MAX;
    for round in 0..20 {
        for number in 0..10 * CALLERS {
            refused += usize::from(charge(keys + round * 10 * CALLERS + number).is_err());
        }
        among = among.min(ask_known());
    }
    println!(
        "a known caller: {alone:?} alone, {among:?} among ten fresh keys for each, {refused} of {} \
         refused",
        200 * CALLERS
    );
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kibibytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kibibytes * 1024
}
