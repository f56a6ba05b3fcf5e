//! Which seeds are run: one that is asked for, those that have failed before, and the first few
//! hundred.

use std::{
    collections::BTreeMap,
    env,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use crate::{
    faults::Fault,
    layout::Layout,
    run::{AT_LEAST, AT_MOST, EXACT, Outcome, run},
};

/// Seeds that have found a bug, of the store or of the judge, with what it was.
const HAVE_FAILED: &[(u64, &str)] = &[
    (19, "a survey of a disk missed what was written just before it (in some runs)"),
    (
        369,
        "the threads of a disk had the time of the system (where a run was held up for a minute)",
    ),
    (1396, "a server came back empty before another proxy had heard of a reset (docs/outages.md)"),
    (1426, "a merge of tables kept a state of before a reset when the latest was over"),
    (1476, "the judge took the window from the clock of a server that was set back"),
    (1787, "the same on a cluster"),
    (2161, "the judge took for written what a process wrote after its end"),
    (2338, "a late charge of before a reset was given back after it, as the store says of resets"),
    (2741, "the judge took a lease for as many as the request costs"),
    (7875, "the judge missed a refund that was written to a connection as it was cut"),
];

/// Seeds of each run of the tests.
const USUAL: u64 = 300;

/// Runs the seed of the variable `SEED`, or the first one, and prints its story.
#[test]
fn replay() {
    let seed = variable("SEED").unwrap_or(0);
    let Outcome { story, broken, .. } = run(seed);
    println!("{story}");
    assert!(broken.is_empty(), "seed {seed}: {broken:#?}");
}

#[test]
fn one_seed_tells_the_same_story_twice() {
    // 5 and 12 have disks, and 9 is calm.
    for seed in (0..6).chain([9, 12]) {
        let [first, second] = [run(seed), run(seed)].map(|outcome| outcome.story);
        let mut lines = first.lines().zip(second.lines());
        assert_eq!(lines.find(|(one, other)| one != other), None, "seed {seed}");
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}

#[test]
fn seeds_that_have_failed_hold() {
    for (seed, what) in HAVE_FAILED {
        let broken = run(*seed).broken;
        assert!(broken.is_empty(), "seed {seed} ({what}): {broken:#?}");
    }
}

/// Runs the first seeds, or `SEEDS` from `FROM` on, each or every `STEP`th, on all processors or on
/// `THREADS`. Prints how many it has run in a second, and how often each fault has struck: none may
/// be missing.
#[test]
fn first_seeds_hold() {
    let number = variable("SEEDS").unwrap_or(USUAL);
    let from = variable("FROM").unwrap_or(0);
    let begun = Instant::now();
    let step = variable("STEP").unwrap_or(1);
    let Tally { counts, failed } = run_all(from, number, step);
    let rate = number as f64 / begun.elapsed().as_secs_f64();
    println!("{number} seeds, {rate:.1} a second");
    counts.iter().for_each(|(kind, times)| println!("{times:9} {kind}"));
    failed.iter().for_each(|(seed, broken)| println!("seed {seed}: {broken:#?}"));
    let seeds: Vec<_> = failed.keys().collect();
    assert!(seeds.is_empty(), "{} of {number} seeds have failed: {seeds:?}", seeds.len());
    let names = Fault::ALL.iter().map(|fault| fault.name());
    let names = names.chain(Layout::ALL.map(Layout::name)).chain(["calm"]);
    let names = names.chain([EXACT, AT_LEAST, AT_MOST]);
    let never = |name: &&str| counts.get(name).is_none_or(|times| *times == 0);
    let missing: Vec<_> = names.filter(never).collect();
    assert!(
        missing.is_empty() || number < USUAL || step > 1,
        "these have never happened: {missing:?}"
    );
}

/// What came of many seeds.
#[derive(Default)]
struct Tally {
    /// How often each thing has happened.
    counts: BTreeMap<&'static str, u64>,
    /// What was not as promised, by seed.
    failed: BTreeMap<u64, Vec<String>>,
}

fn run_all(from: u64, number: u64, step: u64) -> Tally {
    let tally = Mutex::new(Tally::default());
    let next = AtomicU64::new(from);
    let work = || {
        loop {
            let seed = next.fetch_add(step, Ordering::Relaxed);
            if seed >= from + number * step {
                return;
            }
            let Outcome { counts, broken, .. } = run(seed);
            let mut tally = tally.lock().unwrap();
            for (kind, times) in counts {
                *tally.counts.entry(kind).or_default() += times;
            }
            if !broken.is_empty() {
                tally.failed.insert(seed, broken);
            }
        }
    };
    let processors = thread::available_parallelism().map_or(1, |number| number.get() as u64);
    thread::scope(|scope| {
        for _ in 0..variable("THREADS").unwrap_or(processors) {
            scope.spawn(work);
        }
    });
    tally.into_inner().unwrap()
}

fn variable(name: &str) -> Option<u64> {
    env::var_os(name)?.to_str()?.parse().ok()
}
