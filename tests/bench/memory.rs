//! What a counter costs in memory, and a sweep in time: `cargo bench --bench memory [KEYS]`.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "it reports, and stops if it cannot")]

use std::time::{Duration, Instant};

use tollgate::{
    clock::Timestamp,
    limit::{Align, Charge, FixedWindow, Key, KeyHasher, LimitId, Quota, Stance, Timing},
    store::MemoryStore,
};

const START: Timestamp = Timestamp::from_secs(1_790_000_000);
const HOUR: Duration = Duration::from_secs(3600);
const STEPS: usize = 10;

fn main() {
    let keys = std::env::args().filter_map(|text| text.parse().ok()).next().unwrap_or(10_000_000);
    let store = MemoryStore::new(keys, [0; 16]);
    let quota = Quota::FixedWindow(FixedWindow { limit: 5000, align: Align::FirstRequest(HOUR) });
    let (hasher, id) = (KeyHasher::new([7; 16]), LimitId::new("bench", "core", "fixed_window", 1));
    let before = resident_bytes();
    for step in 0..STEPS {
        for number in keys / STEPS * step..keys / STEPS * (step + 1) {
            let owner = hasher.hash([(b'u', number.to_le_bytes().as_slice())]);
            let (stance, timing) = (Stance::Enforce, Timing::Now);
            let key = Key::new(owner, owner, id);
            let charge = Charge { key, quota: &quota, cost: 1, stance, timing };
            store.charge(&[charge], START).unwrap();
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
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kibibytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kibibytes * 1024
}
