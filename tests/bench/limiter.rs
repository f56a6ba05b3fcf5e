//! What a decision costs: `cargo bench --bench limiter`.
//!
//! `charge` is an algorithm alone, on one state that stays in the cache. `decide` is the whole
//! in-process store: locks, look-ups and all limits of a request, for callers drawn at random from
//! all that it knows, so that at ten million of them nearly every look misses the cache.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use divan::{Bencher, black_box};
use tollgate_clock::Timestamp;
use tollgate_limit::{
    Algorithm, Align, Calendar, CalendarUnit, Charge, Concurrency, FixedWindow, Gcra, Key, LimitId,
    Quota, SlidingLog, SlidingWindow, TokenBucket,
};
use tollgate_store::MemoryStore;

fn main() {
    divan::main();
}

const START: Timestamp = Timestamp::from_secs(1_790_000_000);
const HOUR: Duration = Duration::from_secs(3600);
const LIMIT: u32 = 1000;

/// One decision after another on one state, ten microseconds apart.
fn charge_again<A: Algorithm>(bencher: Bencher<'_, '_>, algorithm: &A) {
    let mut state = A::State::default();
    let mut now = START;
    bencher.bench_local(|| {
        now = now + Duration::from_micros(10);
        if algorithm.admits(&state, 1, now) {
            black_box(algorithm.take(&mut state, 1, now));
        }
        algorithm.standing(&state, now)
    });
}

mod charge {
    use super::*;

    #[divan::bench]
    fn fixed_window(bencher: Bencher<'_, '_>) {
        charge_again(bencher, &FixedWindow { limit: LIMIT, align: Align::FirstRequest(HOUR) });
    }

    #[divan::bench]
    fn fixed_window_of_the_calendar(bencher: Bencher<'_, '_>) {
        let calendar = Calendar::new(CalendarUnit::Month, "Europe/Berlin").unwrap();
        charge_again(bencher, &FixedWindow { limit: LIMIT, align: Align::Calendar(calendar) });
    }

    #[divan::bench]
    fn sliding_window(bencher: Bencher<'_, '_>) {
        charge_again(bencher, &SlidingWindow::new(LIMIT, HOUR).unwrap());
    }

    #[divan::bench]
    fn sliding_log(bencher: Bencher<'_, '_>) {
        charge_again(bencher, &SlidingLog { limit: LIMIT, window: HOUR });
    }

    #[divan::bench]
    fn token_bucket(bencher: Bencher<'_, '_>) {
        let capacity = LIMIT;
        let refill = 1;
        let (even, strict) = (false, false);
        let interval = Duration::from_millis(3);
        charge_again(bencher, &TokenBucket { capacity, refill, interval, even, strict });
    }

    #[divan::bench]
    fn gcra(bencher: Bencher<'_, '_>) {
        charge_again(bencher, &Gcra::new(LIMIT, HOUR, LIMIT, 1).unwrap());
    }

    #[divan::bench]
    fn concurrency(bencher: Bencher<'_, '_>) {
        let lease = HOUR;
        let retry_after = Duration::from_secs(1);
        charge_again(bencher, &Concurrency { limit: 100, lease, retry_after });
    }
}

const THOUSAND: usize = 1_000;
const TEN_MILLION: usize = 10_000_000;

/// Callers that are drawn before the clock starts.
const DRAWN: usize = 1 << 20;

/// A store that knows so many callers, each with one window, and some of them at random.
struct Callers {
    store: MemoryStore,
    drawn: Vec<u128>,
    next: AtomicUsize,
}

/// A pseudo-random function, as the keyed hash of a caller is one.
fn caller(number: usize) -> u128 {
    let mix = |mut x: u64| {
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    };
    let number = number as u64 + 1;
    let high = mix(number);
    let low = mix(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    u128::from(high) << 64 | u128::from(low)
}

static QUOTA: OnceLock<Quota> = OnceLock::new();

fn quota() -> &'static Quota {
    let align = Align::FirstRequest(HOUR);
    QUOTA.get_or_init(|| Quota::FixedWindow(FixedWindow { limit: u32::MAX >> 1, align }))
}

fn charge_of(owner: u128, limit: &str) -> Charge<'static> {
    let key = Key::new(owner, owner, LimitId::new("bench", limit, "fixed_window", 3_600_000_000));
    Charge::new(key, quota(), 1)
}

impl Callers {
    fn new(count: usize) -> Callers {
        let store = MemoryStore::new(usize::MAX >> 1, [0; 16]);
        for number in 0..count {
            store.charge(&[charge_of(caller(number), "core")], START).unwrap();
        }
        let draw = |index: usize| caller((caller(index + count) % count as u128) as usize);
        Callers { store, drawn: (0..DRAWN).map(draw).collect(), next: AtomicUsize::new(0) }
    }

    fn of(count: usize) -> &'static Callers {
        static FEW: OnceLock<Callers> = OnceLock::new();
        static MANY: OnceLock<Callers> = OnceLock::new();
        let callers = if count == THOUSAND { &FEW } else { &MANY };
        callers.get_or_init(|| Callers::new(count))
    }

    /// Where a thread begins to draw: no two draw the same callers at the same time.
    fn start(&self) -> usize {
        self.next.fetch_add(DRAWN / 7, Ordering::Relaxed)
    }
}

mod decide {
    use super::*;

    #[divan::bench(args = [THOUSAND, TEN_MILLION], threads = [1, 2], sample_size = 50_000, sample_count = 20)]
    fn one_limit(bencher: Bencher<'_, '_>, keys: usize) {
        decide(bencher, Callers::of(keys), ["core"]);
    }

    #[divan::bench(args = [THOUSAND, TEN_MILLION], threads = [1, 2], sample_size = 50_000, sample_count = 20)]
    fn four_limits(bencher: Bencher<'_, '_>, keys: usize) {
        decide(bencher, Callers::of(keys), ["core", "search", "writes", "monthly"]);
    }

    fn decide<const N: usize>(bencher: Bencher<'_, '_>, callers: &Callers, limits: [&str; N]) {
        let ids = limits.map(|limit| charge_of(0, limit));
        thread_local!(static AT: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) });
        bencher.bench(|| {
            let at = AT.get().unwrap_or_else(|| callers.start()) + 1;
            AT.set(Some(at));
            let owner = callers.drawn.get(at % DRAWN).copied().unwrap_or_default();
            let charges = ids.map(|charge| Charge {
                key: Key { owner, entry: charge.key.entry ^ owner },
                ..charge
            });
            callers.store.charge(&charges, START)
        });
    }
}
