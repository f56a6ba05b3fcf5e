//! The same random histories through the in-process store and through the scripts: equal verdicts,
//! standings, retries and receipts.

use std::time::{Duration, Instant};

use redis::Value;
use tollgate_clock::Timestamp;
use tollgate_limit::{
    AlgorithmKind, Align, Calendar, CalendarUnit, Charge, Concurrency, Decision, FixedWindow, Gcra,
    Key, Outcome, OwnedCharge, Quota, Receipt, SlidingLog, SlidingWindow, Stance, TokenBucket,
};

use super::{Call, NOW, Server, at, charge, peek, read, settle};
use crate::{Adjustment, MemoryStore};

/// Histories that go on side by side, so that their calls share round trips.
const LANES: u64 = 20;
const STEPS: usize = 40;

/// Steps that are compared, in as many rounds as that takes: 150, or more on a busy machine.
const COMPARED: usize = 120_000;
const MOST_ROUNDS: u64 = 300;

/// Limits of logs that are not always read and written whole.
const LONG: u32 = 60;

/// Units that come in a year.
const MANY: u32 = 2_000_000_011;

/// Keys are forgotten a second after they are over by the clock of the charges. Here that clock
/// stands still between two steps, and a history that takes longer shows nothing.
const PATIENCE: Duration = Duration::from_millis(900);

#[test]
fn scripts_decide_as_the_store_in_the_process_does() {
    let mut server = Server::start();
    let mut compared = 0;
    for round in 0..MOST_ROUNDS {
        if compared >= COMPARED {
            break;
        }
        let mut histories: Vec<History> =
            (0..LANES).map(|lane| History::new(round * LANES + lane)).collect();
        let started = Instant::now();
        for step in 0..STEPS {
            let steps: Vec<Step> = histories.iter_mut().map(History::step).collect();
            let calls: Vec<&Call> = steps.iter().flat_map(|step| &step.calls).collect();
            let mut replies = server.run_all(&calls).into_iter();
            for (history, step_of_it) in histories.iter_mut().zip(&steps) {
                let replies: Vec<Value> = replies.by_ref().take(step_of_it.calls.len()).collect();
                let checked = history.check(step_of_it, &replies);
                if started.elapsed() > PATIENCE {
                    break;
                }
                checked.unwrap_or_else(|difference| {
                    panic!("{} step {step}: {difference}", history.seed)
                });
                compared += 1;
            }
        }
    }
    assert!(compared >= COMPARED, "too slow: only {compared} steps were compared in time");
}

#[test]
fn long_logs_decide_as_those_in_the_process_do() {
    let mut server = Server::start();
    // Nothing is over soon here: how long it takes does not matter.
    let window = Duration::from_secs(3600);
    let log = |limit| Quota::SlidingLog(SlidingLog { limit, window });
    let quotas = [1, 2, 3, 4, 5, 10].map(|times| log(times * LONG)).to_vec();
    let mut history = History { quotas, ..History::new(1) };
    let mut longest = 0;
    for step in 0..6000 {
        let step_of_it = history.step();
        let calls: Vec<&Call> = step_of_it.calls.iter().collect();
        let replies = server.run_all(&calls);
        let checked = history.check(&step_of_it, &replies);
        checked.unwrap_or_else(|difference| panic!("step {step}: {difference}"));
        if let Value::BulkString(log) = server.get("test", history.key(step % 6)) {
            longest = longest.max(log.len());
        }
    }
    assert!(longest > 2500, "logs did not get long: {longest}");
}

/// What happens to a few counters of one owner.
struct History {
    seed: u64,
    numbers: Numbers,
    memory: MemoryStore,
    quotas: Vec<Quota>,
    now: Timestamp,
    taken: Vec<Taken>,
}

/// A charge that was taken.
struct Taken {
    counter: usize,
    cost: u32,
    in_memory: Receipt,
    in_redis: Receipt,
}

/// Something that happens.
#[derive(Default)]
struct Step {
    calls: Vec<Call>,
    /// What all calls must answer, if that is looked at.
    expected: Option<Expected>,
}

struct Expected {
    counters: Vec<usize>,
    charges: Vec<OwnedCharge>,
    decision: Decision,
}

impl History {
    fn new(seed: u64) -> History {
        let mut numbers = Numbers(seed);
        let quotas = (0..6).map(|_| numbers.quota()).collect();
        let memory = MemoryStore::new(1000, [0; 16]);
        History { seed, numbers, memory, quotas, now: NOW, taken: Vec::new() }
    }

    fn step(&mut self) -> Step {
        self.now = self.numbers.advance(self.now, Duration::from_secs(5));
        let call = match self.numbers.below(20) {
            0 => self.change_a_rate(),
            1 | 2 => self.give_back(),
            3 => self.renew(),
            4 => Some(self.take()),
            _ => return self.decide(),
        };
        Step { calls: call.into_iter().collect(), expected: None }
    }

    fn key(&self, counter: usize) -> Key {
        let owner = u128::from(self.seed) << 64;
        Key { owner, entry: owner + counter as u128 }
    }

    fn decide(&mut self) -> Step {
        let count = 1 + self.numbers.below(4) as usize;
        let first = self.numbers.below(6) as usize;
        let is_peek = self.numbers.below(10) == 0;
        let counters: Vec<usize> = (first..first + count).map(|counter| counter % 6).collect();
        let quotas = self.quotas.clone();
        let charges: Vec<Charge<'_>> = counters
            .iter()
            .map(|counter| {
                let quota = &quotas[*counter];
                let cost = if is_peek { 0 } else { self.numbers.cost(quota) };
                let is_observed = self.numbers.below(6) == 0;
                let stance = if is_observed { Stance::Observe } else { Stance::Enforce };
                Charge { stance, ..Charge::new(self.key(*counter), quota, cost) }
            })
            .collect();
        let mut calls = vec![charge("test", &charges, at(self.now))];
        if is_peek {
            calls.insert(0, peek("test", &charges, at(self.now)));
        }
        let decision = self.memory.charge(&charges, self.now).unwrap();
        let charges = charges.iter().map(OwnedCharge::from).collect();
        Step { calls, expected: Some(Expected { counters, charges, decision }) }
    }

    /// Looks whether `replies` are what they must be.
    fn check(&mut self, step: &Step, replies: &[Value]) -> Result<(), String> {
        let Some(expected) = &step.expected else { return Ok(()) };
        let charges: Vec<Charge<'_>> = expected.charges.iter().map(OwnedCharge::charge).collect();
        let mut found = None;
        for reply in replies {
            let reply = read(&charges, reply).map_err(|error| format!("{error}: {reply:?}"))?;
            compare(&charges, &expected.decision, &reply.decision)?;
            found = Some(reply.decision);
        }
        let found = found.into_iter().flat_map(|found| found.outcomes);
        let outcomes = expected.decision.outcomes.iter().zip(found);
        for ((counter, charge), (expected, found)) in
            expected.counters.iter().zip(charges).zip(outcomes)
        {
            if let (Some(in_memory), Some(in_redis)) = (expected.receipt, found.receipt) {
                let counter = *counter;
                let cost = charge.cost;
                self.taken.push(Taken { counter, cost, in_memory, in_redis });
            }
        }
        Ok(())
    }

    /// Gives back a part of a charge.
    fn give_back(&mut self) -> Option<Call> {
        let index = self.numbers.below(self.taken.len().max(1) as u64) as usize;
        let taken = (index < self.taken.len()).then(|| self.taken.swap_remove(index))?;
        let cost = 1 + self.numbers.below(taken.cost.into()) as u32;
        let charge = Charge::new(self.key(taken.counter), &self.quotas[taken.counter], cost);
        self.memory.settle(&charge, Adjustment::GiveBack(taken.in_memory), self.now);
        let adjustment = Adjustment::GiveBack(taken.in_redis);
        Some(settle("test", &charge, adjustment, at(self.now)))
    }

    fn renew(&mut self) -> Option<Call> {
        let is_lease = |taken: &&Taken| self.quotas[taken.counter].holds_leases();
        let taken = self.taken.iter().rfind(is_lease)?;
        let charge = Charge::new(self.key(taken.counter), &self.quotas[taken.counter], 1);
        self.memory.settle(&charge, Adjustment::Renew(taken.in_memory), self.now);
        let adjustment = Adjustment::Renew(taken.in_redis);
        Some(settle("test", &charge, adjustment, at(self.now)))
    }

    /// Takes what a response turned out to cost.
    fn take(&mut self) -> Call {
        let counter = self.numbers.below(6) as usize;
        let cost = self.numbers.cost(&self.quotas[counter]).max(1);
        let charge = Charge::new(self.key(counter), &self.quotas[counter], cost);
        self.memory.settle(&charge, Adjustment::Take, self.now);
        settle("test", &charge, Adjustment::Take, at(self.now))
    }

    fn change_a_rate(&mut self) -> Option<Call> {
        let counter = self.numbers.below(6) as usize;
        self.numbers.change(&mut self.quotas[counter]);
        None
    }
}

fn compare(charges: &[Charge<'_>], expected: &Decision, found: &Decision) -> Result<(), String> {
    let is_same = |(charge, (left, right)): (&Charge<'_>, (&Outcome, &Outcome))| {
        // Each store numbers leases of the same instant in its own way.
        let same_receipt = match charge.quota.holds_leases() {
            true => left.receipt.map(|it| it.at) == right.receipt.map(|it| it.at),
            false => left.receipt == right.receipt,
        };
        left.standing == right.standing && same_receipt
    };
    let mut outcomes = charges.iter().zip(expected.outcomes.iter().zip(&found.outcomes));
    let is_equal = expected.verdict == found.verdict
        && expected.now == found.now
        && expected.outcomes.len() == found.outcomes.len()
        && outcomes.all(is_same);
    let difference = || format!("{charges:#?}\nexpected {expected:#?}\nfound {found:#?}");
    is_equal.then_some(()).ok_or_else(difference)
}

/// Pseudo-random numbers (splitmix64), so that a history can be named.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// A later instant, or one to which the clock went back: by a little or by a lot.
    pub(super) fn advance(&mut self, now: Timestamp, scale: Duration) -> Timestamp {
        let scale = scale.as_micros() as u64;
        let micros = now.as_micros();
        Timestamp::from_micros(match self.below(24) {
            0..8 => micros,
            8..12 => micros + self.below(5000),
            12..17 => micros + self.below(scale),
            17 => micros + self.below(10 * scale),
            18..21 => micros + scale / 10 * self.below(30),
            21 => micros - self.below(5_000_000),
            22 => micros - self.below(20_000_000),
            _ => micros - self.below(3 * 86_400_000_000),
        })
    }

    fn cost(&mut self, quota: &Quota) -> u32 {
        let capacity = quota.capacity();
        // A log gets long by small costs only.
        let is_long = matches!(quota, Quota::SlidingLog(quota) if quota.limit >= LONG);
        match self.below(if is_long { 300 } else { 8 }) {
            0 => 0,
            1 => capacity,
            2 => capacity + 1,
            3 => capacity / 3 + 1,
            4 => self.below(u64::from(capacity) + 1) as u32,
            _ => 1 + self.below(2) as u32,
        }
    }

    fn quota(&mut self) -> Quota {
        let millis = match self.below(3) {
            0 => 1 + self.below(20_000),
            _ => (1 + self.below(20)) * 1000,
        };
        let window = Duration::from_millis(millis);
        let day = Duration::from_secs(86_400);
        let limit = self.limit();
        let kinds = AlgorithmKind::ALL;
        match kinds[self.below(kinds.len() as u64) as usize] {
            AlgorithmKind::FixedWindow => match self.below(3) {
                0 => fixed(limit, Align::FirstRequest(window)),
                1 => fixed(limit, Align::Epoch(window)),
                _ => {
                    let unit = [CalendarUnit::Hour, CalendarUnit::Day, CalendarUnit::Month];
                    let unit = unit[self.below(3) as usize];
                    let zone = ["UTC", "Europe/Berlin"][self.below(2) as usize];
                    fixed(limit, Align::Calendar(Calendar::new(unit, zone).unwrap()))
                }
            },
            AlgorithmKind::SlidingWindow if self.below(3) == 0 => {
                Quota::SlidingWindow(SlidingWindow::new(1_000_000 + limit, day).unwrap())
            }
            AlgorithmKind::SlidingWindow => {
                Quota::SlidingWindow(SlidingWindow::new(limit, window).unwrap())
            }
            AlgorithmKind::SlidingLog => Quota::SlidingLog(SlidingLog { limit, window }),
            AlgorithmKind::TokenBucket if self.below(4) == 0 => {
                // The products of these are beyond what doubles hold.
                let (capacity, refill, strict) = (300 + limit, MANY, self.below(2) == 0);
                let interval = 366 * day;
                Quota::TokenBucket(TokenBucket { capacity, refill, interval, even: true, strict })
            }
            AlgorithmKind::TokenBucket => {
                let refill = self.below(5) as u32;
                let strict = self.below(2) == 0;
                let interval = window / (1 + self.below(10) as u32);
                let even = self.below(2) == 0;
                let capacity = limit;
                Quota::TokenBucket(TokenBucket { capacity, refill, interval, even, strict })
            }
            AlgorithmKind::Gcra if self.below(2) == 0 => {
                Quota::Gcra(Gcra::new(1_000_000 + limit, day, 500_000 + limit, 1).unwrap())
            }
            AlgorithmKind::Gcra => Quota::Gcra(Gcra::new(limit, window, self.limit(), 20).unwrap()),
            AlgorithmKind::Concurrency => {
                Quota::Concurrency(Concurrency { limit, lease: window, retry_after: window })
            }
        }
    }

    fn limit(&mut self) -> u32 {
        match self.below(12) {
            0 => 0,
            1 => 100 + self.below(100) as u32,
            _ => 1 + self.below(12) as u32,
        }
    }

    /// Another rate of the same limit: the same algorithm and window. A meter keeps its grain.
    fn change(&mut self, quota: &mut Quota) {
        let by = self.limit();
        match quota {
            Quota::FixedWindow(quota) => quota.limit = by,
            Quota::SlidingWindow(quota) => {
                *quota = SlidingWindow::new(by, quota.window).unwrap();
            }
            Quota::SlidingLog(quota) if quota.limit >= LONG => quota.limit = LONG + 10 * by,
            Quota::SlidingLog(quota) => quota.limit = by,
            Quota::TokenBucket(quota) if quota.refill >= MANY => quota.refill = MANY + by,
            Quota::TokenBucket(quota) => {
                (quota.capacity, quota.refill) = (by, self.below(5) as u32);
                quota.strict = self.below(2) == 0;
                quota.even = self.below(4) > 0;
            }
            Quota::Gcra(quota) => {
                let large = if quota.time_grain() == 1 { 0 } else { 1_000_000 };
                quota.limit = large + by;
                quota.burst = large + self.limit();
            }
            Quota::Concurrency(quota) => {
                quota.limit = by;
                quota.lease = Duration::from_millis(1 + self.below(20_000));
            }
        }
    }
}

fn fixed(limit: u32, align: Align) -> Quota {
    Quota::FixedWindow(FixedWindow { limit, align })
}
