//! The texts of the scripts, and their hashes: made once for the process.

use std::{array, sync::LazyLock};

use crate::limit::{Charge, Quota};

/// A script.
pub(super) struct Script {
    body: String,
    sha: String,
}

/// What a script does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    ChargeFixedWindow,
    Charge,
    Peek,
    Settle,
    Tell,
    Seed,
    Add,
}

/// What scripts of several files begin with.
const BEGINNING: &str = include_str!("../counter.lua");

/// By number, the first being one.
const ALGORITHMS: [&str; 6] = [
    include_str!("../fixed_window.lua"),
    include_str!("../sliding_window.lua"),
    include_str!("../sliding_log.lua"),
    include_str!("../token_bucket.lua"),
    include_str!("../gcra.lua"),
    include_str!("../concurrency.lua"),
];

/// How many sets of algorithms there are.
const SETS: usize = 1 << ALGORITHMS.len();

/// Scripts of an ending, by the set of their algorithms.
type Scripts = LazyLock<[Script; SETS]>;

static CHARGE: Scripts = LazyLock::new(|| Script::ending_with(include_str!("../charge.lua")));
static SETTLE: Scripts = LazyLock::new(|| Script::ending_with(include_str!("../settle.lua")));
static TELL: Scripts = LazyLock::new(|| Script::ending_with(include_str!("../tell.lua")));
static SEED: Scripts = LazyLock::new(|| Script::ending_with(include_str!("../seed.lua")));
static ADD: Scripts = LazyLock::new(|| Script::ending_with(include_str!("../add.lua")));
static CHARGE_FIXED_WINDOW: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../charge_fixed_window.lua").to_owned()));

impl Script {
    /// The script that does this with the counters of `charges`.
    pub(super) fn of(deed: Deed, charges: &[Charge<'_>]) -> &'static Script {
        let scripts = match deed {
            Deed::ChargeFixedWindow => return &CHARGE_FIXED_WINDOW,
            Deed::Charge | Deed::Peek => &CHARGE,
            Deed::Settle => &SETTLE,
            Deed::Tell => &TELL,
            Deed::Seed => &SEED,
            Deed::Add => &ADD,
        };
        let [first, ..] = &**scripts;
        let set = charges.iter().fold(0, |set, charge| set | bit(algorithm(charge.quota)));
        scripts.get(set).unwrap_or(first)
    }

    /// The script itself.
    pub(super) fn body(&self) -> &str {
        &self.body
    }

    /// What a server that has seen the script calls it.
    pub(super) fn sha(&self) -> &str {
        &self.sha
    }

    fn new(body: String) -> Script {
        let sha = redis::Script::new(&body).get_hash().to_owned();
        Script { body, sha }
    }

    fn ending_with(ending: &str) -> [Script; SETS] {
        array::from_fn(|set| {
            let is_in = |number: &u8| set & bit(*number) != 0;
            let algorithms = (1..).zip(ALGORITHMS).filter(|(number, _)| is_in(number));
            let parts = [BEGINNING].into_iter().chain(algorithms.map(|(_, text)| text));
            Script::new(parts.chain([ending]).collect::<Vec<_>>().join("\n"))
        })
    }
}

/// The number of a quota's algorithm in scripts.
pub(super) fn algorithm(quota: &Quota) -> u8 {
    match quota {
        Quota::FixedWindow(_) => 1,
        Quota::SlidingWindow(_) => 2,
        Quota::SlidingLog(_) => 3,
        Quota::TokenBucket(_) => 4,
        Quota::Gcra(_) => 5,
        Quota::Concurrency(_) => 6,
    }
}

/// The set that has only the algorithm of this number.
fn bit(algorithm: u8) -> usize {
    1 << (algorithm - 1)
}
