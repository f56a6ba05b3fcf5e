//! Budgets: requests reserve what they may cost, and are settled later, in any order, or never.
//! Whatever happens, no more is spent than the limit and what the reserves left out, and every
//! store decides as the model does, which forgets nothing.

mod bound;
mod interleaving;
mod ledger;

use std::{cell::Cell, rc::Rc, time::Duration};

use tokio::{
    task::{JoinHandle, spawn_local},
    time::Instant,
};
use tollgate_limit::{Decision, OwnedCharge};
use tollgate_store::{MemoryStore, Store};

use self::interleaving::{Interleaving, Step};
use super::subject::{Home, is_decided, owned};
use crate::support::START;

for_each_store! { no_more_is_spent_than_the_limit_and_what_reserves_left_out }

/// Interleavings in each store.
const INTERLEAVINGS: usize = 10_000;

/// How many go on side by side, so that their calls share round trips.
const LANES: usize = 50;

/// A server forgets a counter a second after it is over by the clock of the charges, which stands
/// still between two steps. So an interleaving that took longer and failed shows nothing.
const PATIENCE: Duration = Duration::from_millis(900);

/// How often interleavings that took too long are tried again.
const ATTEMPTS: usize = 5;

fn no_more_is_spent_than_the_limit_and_what_reserves_left_out(home: &Home) {
    let store = home.open();
    let seeds: Vec<u64> = (0..INTERLEAVINGS as u64).collect();
    for seeds in seeds.chunks(LANES) {
        let mut seeds = seeds.to_vec();
        let mut attempts = 0..ATTEMPTS;
        while let Some(attempt) = attempts.next().filter(|_| !seeds.is_empty()) {
            let cool_down = store.cooling();
            let run = async move |store| run(&store, attempt, seeds, &cool_down).await;
            seeds = store.run(run).unwrap_or_else(|problem| panic!("{problem}"));
        }
        assert!(seeds.is_empty(), "it took too long to try the seeds {seeds:?}");
    }
}

/// Runs the interleavings with these seeds side by side, each on counters of its own. Returns the
/// seeds of those that took too long.
async fn run(
    store: &Rc<Store>,
    attempt: usize,
    seeds: Vec<u64>,
    cool_down: &impl Fn(),
) -> Result<Vec<u64>, String> {
    let process = MemoryStore::new(1_000_000, [7; 16]);
    let begun = Instant::now();
    let lane = |seed| Interleaving::new(seed, format!("{seed} {attempt}"));
    let mut lanes: Vec<Interleaving> = seeds.into_iter().map(lane).collect();
    let mut late = Vec::new();
    while !lanes.is_empty() {
        cool_down();
        let mut next = Vec::new();
        for (lane, result) in step(store, &process, lanes).await {
            match result {
                Ok(true) => next.push(lane),
                Ok(false) => {}
                Err(_) if begun.elapsed() > PATIENCE => late.push(lane.seed()),
                Err(problem) => return Err(lane.explain(&problem)),
            }
        }
        lanes = next;
    }
    Ok(late)
}

/// An interleaving, and whether it goes on, or what is wrong.
type Stepped = (Interleaving, Result<bool, String>);

/// Does the next step of each.
async fn step(
    store: &Rc<Store>,
    process: &MemoryStore,
    lanes: Vec<Interleaving>,
) -> impl Iterator<Item = Stepped> {
    let count = Rc::new(Cell::new(0));
    let begin = |mut lane: Interleaving| {
        let step = lane.next();
        let now = lane.now();
        if let Some(Step::Settle(request)) = step {
            lane.settle(request, process, |charge, outcome, adjustment| {
                store.settle(charge, outcome, adjustment, now);
            });
        }
        let asking = match &step {
            Some(Step::Ask(reserves)) => {
                reserves.iter().map(|reserve| ask(store, &lane, *reserve, &count)).collect()
            }
            _ => Vec::new(),
        };
        (lane, step.is_some(), asking)
    };
    let begun: Vec<_> = lanes.into_iter().map(begin).collect();
    let mut done = Vec::new();
    for (mut lane, goes_on, asking) in begun {
        let mut result = if goes_on { Ok(true) } else { lane.check().map(|()| false) };
        let mut decided = Vec::new();
        for asked in asking {
            decided.push(asked.await.unwrap());
        }
        // Requests that wait for the disk are not decided in the order in which they came.
        decided.sort_by_key(|decided| decided.number);
        for Decided { reserve, decision, .. } in decided {
            let in_process = process.charge(&lane.charges(reserve), lane.now()).unwrap();
            let checked = lane.decided(reserve, &decision, &in_process);
            result = result.and_then(|goes_on| checked.map(|()| goes_on));
        }
        done.push((lane, result));
    }
    // What was settled must have arrived before the next step.
    store.finish(START).await;
    done.into_iter()
}

/// What was decided about a request.
struct Decided {
    reserve: u32,
    decision: Decision,
    /// How many were decided before.
    number: usize,
}

/// A request arrives that reserves so much. `count` counts what is decided.
fn ask(
    store: &Rc<Store>,
    lane: &Interleaving,
    reserve: u32,
    count: &Rc<Cell<usize>>,
) -> JoinHandle<Decided> {
    let (store, count) = (Rc::clone(store), Rc::clone(count));
    let (charges, now) = (owned(&lane.charges(reserve)), lane.now());
    spawn_local(async move {
        let charges: Vec<_> = charges.iter().map(OwnedCharge::charge).collect();
        let decision = store.charge(&charges, now).await.unwrap();
        assert!(is_decided(&decision), "the store did not decide: {decision:?}");
        let number = count.replace(count.get() + 1);
        Decided { reserve, decision, number }
    })
}
