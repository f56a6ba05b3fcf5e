//! The texts of the scripts, and their hashes: made once for the process.

use std::{array, sync::LazyLock};

use tollgate_limit::{AlgorithmKind, Charge};

use super::{algorithm::lua, operation::Operation};

/// A script.
pub(super) struct Script {
    pub(super) body: String,
    pub(super) sha: String,
}

/// What the scripts of several files begin with.
const BEGINNING: &str = include_str!("counter.lua");

/// What stands for an algorithm's number in its Lua file.
const KIND: &str = "[KIND]";

/// How many sets of algorithms there are.
const SETS: usize = 1 << AlgorithmKind::ALL.len();

/// The scripts with one ending, by the set of their algorithms.
type Scripts = LazyLock<[Script; SETS]>;

static CHARGE: Scripts = LazyLock::new(|| Script::ending_with(include_str!("charge.lua")));
static SETTLE: Scripts = LazyLock::new(|| Script::ending_with(include_str!("settle.lua")));
static READ_STATE: Scripts = LazyLock::new(|| Script::ending_with(include_str!("read_state.lua")));
static SEED: Scripts = LazyLock::new(|| Script::ending_with(include_str!("seed.lua")));
static ADD: Scripts = LazyLock::new(|| Script::ending_with(include_str!("add.lua")));
static CHARGE_FIXED_WINDOW: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("charge_fixed_window.lua").to_owned()));

impl Script {
    /// The script of an operation on the counters of `charges`.
    pub(super) fn of(operation: Operation, charges: &[Charge<'_>]) -> &'static Script {
        let scripts = match operation {
            Operation::ChargeFixedWindow => return &CHARGE_FIXED_WINDOW,
            Operation::Charge | Operation::Peek => &CHARGE,
            Operation::Take | Operation::GiveBack | Operation::Renew => &SETTLE,
            Operation::Seed => &SEED,
            Operation::Add => &ADD,
            Operation::ReadState => &READ_STATE,
        };
        let [first, ..] = &**scripts;
        let set = charges.iter().fold(0, |set, charge| set | bit(charge.quota.kind()));
        scripts.get(set).unwrap_or(first)
    }

    /// The command in the line that an error names, as in `… on @user_script:33.`
    pub(super) fn command_at(&self, details: &str) -> Option<&str> {
        let (_, place) = details.split_once("@user_script:")?;
        let number: usize =
            place.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()?;
        let line = self.body.lines().nth(number.checked_sub(1)?)?;
        line.split_once("call('")?.1.split('\'').next()
    }

    fn new(body: String) -> Script {
        let sha = redis::Script::new(&body).get_hash().to_owned();
        Script { body, sha }
    }

    fn ending_with(ending: &str) -> [Script; SETS] {
        let sources = AlgorithmKind::ALL.map(|kind| (bit(kind), numbered(kind)));
        array::from_fn(|set| {
            let algorithms = sources.iter().filter(|(bit, _)| set & bit != 0);
            let parts = [BEGINNING].into_iter().chain(algorithms.map(|(_, source)| &**source));
            Script::new(parts.chain([ending]).collect::<Vec<_>>().join("\n"))
        })
    }
}

/// The Lua source of an algorithm, with its number.
fn numbered(kind: AlgorithmKind) -> String {
    lua(kind).replace(KIND, &format!("[{}]", kind.number()))
}

/// The set that has only this algorithm.
fn bit(kind: AlgorithmKind) -> usize {
    1 << (kind.number() - 1)
}
