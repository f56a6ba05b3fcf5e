//! One interleaving: requests of one caller that reserve units of one or two limits, and are
//! settled in another order.

use std::{iter, time::Duration};

use proptest::{
    prelude::Rng,
    test_runner::{Config, RngSeed, TestRng, TestRunner},
};
use tollgate_clock::Timestamp;
use tollgate_gate::tally::adjustment;
use tollgate_limit::{Charge, DecidedBy, Decision, Gcra, Outcome, Quota, TokenBucket, Verdict};
use tollgate_store::{Adjustment, MemoryStore};

use super::{
    super::{
        histories::alike,
        subject::{one, without_leases},
    },
    bound::{self, Admitted},
    ledger::{Entry, Ledger},
};
use crate::support::{MINUTE, START};

/// How often something happens before the requests in flight are ended.
const STEPS: usize = 30;

/// Requests of one caller, and what has become of them.
pub(super) struct Interleaving {
    seed: u64,
    random: TestRng,
    counters: Vec<Counter>,
    owner: String,
    /// Whether no request costs more than it reserves.
    is_bounded: bool,
    now: Timestamp,
    requests: Vec<Request>,
    steps: usize,
    events: Vec<Event>,
}

struct Counter {
    name: &'static str,
    quota: Quota,
    ledger: Ledger,
    /// When it was last said to be whole again.
    reset: Timestamp,
}

/// A request that was admitted.
struct Request {
    reserved: u32,
    cost: u32,
    at: Timestamp,
    settled: Option<usize>,
    /// Whether nothing more happens to it.
    is_over: bool,
    /// Of each counter.
    charged: Vec<Charged>,
}

/// A charge that was taken.
struct Charged {
    /// Its position in the ledger; none: it takes nothing.
    position: Option<usize>,
    /// What the store has said, and what the store in the process has said.
    outcome: Outcome,
    in_process: Outcome,
}

/// What happened, for the message if it went wrong.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "read by whoever looks for a fault")]
enum Event {
    Asked { at: Timestamp, reserve: u32, verdict: Verdict },
    Ended { at: Timestamp, request: usize, cost: u32 },
    Lost { request: usize },
}

/// What happens next.
pub(super) enum Step {
    /// Requests come at once, which reserve this.
    Ask(Vec<u32>),
    /// What a request has cost is known now.
    Settle(usize),
    Wait,
}

impl Interleaving {
    pub(super) fn new(seed: u64, owner: String) -> Interleaving {
        let config = Config { rng_seed: RngSeed::Fixed(seed), ..Default::default() };
        let mut random = TestRunner::new(config).new_rng();
        let mut below = |bound: u64| random.next_u64() % bound;
        // Up to three times as much is still a log's limit.
        let limit = [1 + below(12), 20 + below(200), 1000 + below(2000)][below(3) as usize];
        let count = forms(1).len() as u64;
        let kinds = [seed % count, below(count)];
        let counters = iter::zip(kinds, [1, 1 + below(3)]);
        let counters: Vec<Counter> = counters
            .take(1 + (below(4) == 0) as usize)
            .map(|(kind, times)| {
                let (name, quota) = forms((limit * times) as u32).swap_remove(kind as usize);
                Counter { name, quota, ledger: Ledger::default(), reset: START }
            })
            .collect();
        let is_bounded = below(2) == 0;
        let now = START + Duration::from_micros(below(7_200_000_000));
        let (requests, events) = (Vec::new(), Vec::new());
        Interleaving { seed, random, counters, owner, is_bounded, now, requests, steps: 0, events }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound.max(1)
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// Charges of `cost` on all its counters.
    pub(super) fn charges(&self, cost: u32) -> Vec<Charge<'_>> {
        let counters = self.counters.iter().enumerate();
        counters.map(|(index, counter)| counter.charge(&self.owner, index, cost)).collect()
    }

    /// What happens next; none: all is over.
    pub(super) fn next(&mut self) -> Option<Step> {
        self.steps += 1;
        self.advance();
        let in_flight: Vec<usize> =
            (0..self.requests.len()).filter(|index| !self.requests[*index].is_over).collect();
        let kind = if self.steps > STEPS { 10 } else { self.below(20) };
        let count = match kind {
            0..8 => 1,
            8..10 => 2 + self.below(3),
            10..19 if !in_flight.is_empty() => {
                let request = in_flight[self.below(in_flight.len() as u64) as usize];
                return Some(self.end(request));
            }
            _ if self.steps > STEPS => return None,
            _ => return Some(Step::Wait),
        };
        Some(Step::Ask((0..count).map(|_| self.any_reserve()).collect()))
    }

    /// Often no time passes. Sometimes it is the last instant before a window's end, or its end.
    fn advance(&mut self) {
        let micros = match self.below(14) {
            0..5 => 0,
            5..8 => self.below(1_000_000),
            8..11 => self.below(30_000_000),
            11 => self.below(200_000_000),
            _ => {
                let counter = self.below(self.counters.len() as u64) as usize;
                let left = self.counters[counter].reset.saturating_since(self.now);
                (left.as_micros() as u64).saturating_sub(self.below(2))
            }
        };
        self.now = self.now + Duration::from_micros(micros);
    }

    fn any_reserve(&mut self) -> u32 {
        let limit = self.counters[0].quota.capacity();
        match self.below(12) {
            0 => 0,
            1 => limit,
            2 => limit + 1,
            3..7 => 1 + self.below((limit / 8).into()) as u32,
            _ => 1 + self.below((limit / 2).into()) as u32,
        }
    }

    /// What a request comes to that has reserved so much: nothing if it is refunded, what was
    /// reserved if its client hangs up and nothing is known, else what its response tells.
    fn any_cost(&mut self, reserved: u32) -> u32 {
        match self.below(8) {
            0 => 0,
            1 => reserved,
            2..5 if !self.is_bounded => reserved + self.below(u64::from(reserved) * 3 + 4) as u32,
            _ => self.below(u64::from(reserved) + 1) as u32,
        }
    }

    /// Notes what was decided about a request.
    pub(super) fn decided(
        &mut self,
        reserve: u32,
        decision: &Decision,
        in_process: &Decision,
    ) -> Result<(), String> {
        let (at, verdict) = (self.now, decision.verdict);
        self.events.push(Event::Asked { at, reserve, verdict });
        let fits: Vec<bool> = self.counters.iter().map(|own| own.admits(reserve, at)).collect();
        self.compare(reserve, decision, in_process, &fits)?;
        let mut charged = Vec::new();
        let outcomes = decision.outcomes.iter().zip(&in_process.outcomes);
        for ((counter, fits), outcomes) in self.counters.iter_mut().zip(fits).zip(outcomes) {
            let entry = match verdict {
                Verdict::Allow if reserve > 0 => Some(Entry::Taken(reserve)),
                Verdict::Deny if !fits => Some(Entry::Denied(reserve)),
                Verdict::Allow | Verdict::Deny => None,
            };
            let position = entry.map(|entry| counter.ledger.add(at, entry));
            let [outcome, in_process] = [*outcomes.0, *outcomes.1];
            counter.compare(&outcome, at)?;
            charged.push(Charged { position, outcome, in_process });
        }
        if verdict == Verdict::Allow {
            let cost = self.any_cost(reserve);
            let (settled, is_over) = (None, false);
            self.requests.push(Request { reserved: reserve, cost, at, settled, is_over, charged });
        }
        Ok(())
    }

    /// Checks that the model and the store in the process decide likewise.
    fn compare(
        &self,
        reserve: u32,
        decision: &Decision,
        in_process: &Decision,
        fits: &[bool],
    ) -> Result<(), String> {
        let expected = if fits.contains(&false) { Verdict::Deny } else { Verdict::Allow };
        if decision.verdict != expected {
            return Err(format!("{reserve} must be {expected:?}, and was: {decision:?}"));
        }
        let charges = self.charges(reserve);
        let outcomes = decision.outcomes.iter().zip(&in_process.outcomes);
        for (charge, (outcome, in_process)) in charges.iter().zip(outcomes) {
            let is_alike = outcome.decided_by == DecidedBy::Memo
                || alike(charge, outcome) == alike(charge, in_process);
            if !is_alike {
                return Err(format!("{charge:?}: {outcome:?}, in the process {in_process:?}"));
            }
        }
        Ok(())
    }

    /// Ends a request: its proxy is lost and never settles it, or what it has cost is known.
    fn end(&mut self, request: usize) -> Step {
        let is_lost = self.below(12) == 0;
        let admitted = self.requests.len();
        let ended = &mut self.requests[request];
        ended.is_over = true;
        if is_lost {
            ended.cost = ended.reserved;
            self.events.push(Event::Lost { request });
            return Step::Wait;
        }
        ended.settled = Some(admitted);
        self.events.push(Event::Ended { at: self.now, request, cost: ended.cost });
        Step::Settle(request)
    }

    /// Settles a request with `settle`, in the order of its charges, as the gate does.
    pub(super) fn settle(
        &mut self,
        request: usize,
        in_process: &MemoryStore,
        settle: impl Fn(&Charge<'_>, &Outcome, Adjustment),
    ) {
        let Request { reserved, cost, .. } = self.requests[request];
        let charges: Vec<_> = self.charges(reserved);
        let charged = &self.requests[request].charged;
        let mut entries = Vec::new();
        for (charge, own) in charges.iter().zip(charged) {
            let made = adjustment(reserved, cost, own.outcome.receipt);
            entries.push(made.map(|(adjustment, units)| match adjustment {
                Adjustment::GiveBack(_) => {
                    Entry::GivenBack { of: own.position.expect("it was taken"), units }
                }
                Adjustment::Take | Adjustment::Renew(_) => Entry::Taken(units),
            }));
            if let Some((adjustment, units)) = made {
                settle(&Charge { cost: units, ..*charge }, &own.outcome, adjustment);
            }
            if let Some((adjustment, cost)) = adjustment(reserved, cost, own.in_process.receipt) {
                in_process.settle(&Charge { cost, ..*charge }, adjustment, self.now);
            }
        }
        for (counter, entry) in self.counters.iter_mut().zip(entries) {
            if let Some(entry) = entry {
                counter.ledger.add(self.now, entry);
            }
        }
    }

    /// Checks what is promised, once all is over.
    pub(super) fn check(&self) -> Result<(), String> {
        for (index, counter) in self.counters.iter().enumerate() {
            let admitted = |(number, request): (usize, &Request)| Admitted {
                number,
                at: request.at,
                reset: request.charged[index].outcome.standing.reset,
                reserved: request.reserved,
                cost: request.cost,
                settled: request.settled,
            };
            let admitted: Vec<Admitted> = self.requests.iter().enumerate().map(admitted).collect();
            bound::check(&counter.quota, &admitted)?;
        }
        Ok(())
    }

    /// A problem, with all that is needed to find its cause.
    pub(super) fn explain(&self, problem: &str) -> String {
        let quotas: Vec<&Quota> = self.counters.iter().map(|counter| &counter.quota).collect();
        let events: Vec<String> = self.events.iter().map(|event| format!("{event:?}")).collect();
        format!("seed {} of {quotas:?}: {problem}\nafter\n{}", self.seed, events.join("\n"))
    }
}

impl Counter {
    fn charge(&self, owner: &str, index: usize, cost: u32) -> Charge<'_> {
        Charge { cost, ..one(owner, &format!("{index} {}", self.name), &self.quota) }
    }

    fn admits(&self, cost: u32, now: Timestamp) -> bool {
        self.ledger.used(&self.quota, now).leaves(cost, self.quota.capacity())
    }

    /// Checks that as much is used as the model says.
    fn compare(&mut self, outcome: &Outcome, now: Timestamp) -> Result<(), String> {
        self.reset = outcome.standing.reset;
        let used = self.ledger.used(&self.quota, now).units();
        // A denial that is remembered is reported as it was.
        match outcome.decided_by == DecidedBy::Memo || outcome.standing.used == used {
            true => Ok(()),
            false => Err(format!("{used} are used, and not as in {:?}", outcome.standing)),
        }
    }
}

/// So many units a minute or so, by each algorithm that counts costs and each form of it.
fn forms(limit: u32) -> Vec<(&'static str, Quota)> {
    let bucket = |interval, strict| {
        let (capacity, refill) = (limit, limit.div_ceil(3));
        Quota::TokenBucket(TokenBucket { capacity, refill, interval, even: true, strict })
    };
    let burst = Gcra::new(limit.div_ceil(2), MINUTE, limit, limit).expect("it is exact");
    let others = [
        ("even token bucket", bucket(MINUTE, false)),
        ("even strict token bucket", bucket(MINUTE / 7, true)),
        ("gcra of a burst", Quota::Gcra(burst)),
    ];
    without_leases(limit).into_iter().chain(others).collect()
}
