//! Random calls of the store's scripts: what happens to a few counters of one caller.

use std::collections::HashMap;

use tollgate_limit::AlgorithmKind;

use super::{
    super::Reply,
    counters::{Counter, Receipt, doubles},
    real::command,
    store_scripts::{self as scripts, at_time, script},
};
use crate::chance::Chance;

/// What happens.
pub(super) struct History {
    /// How many steps it has.
    pub(super) steps: usize,
    chance: Chance,
    counters: Vec<Counter>,
    /// The time of the charges, and when they began, in microseconds.
    now: u64,
    begun: u64,
    receipts: Vec<(usize, Receipt)>,
    states: Vec<(AlgorithmKind, Vec<f64>)>,
    /// The hashes of scripts that were called before.
    sent: HashMap<String, String>,
}

/// What is read in the reply to a call.
pub(super) enum Reading {
    Nothing,
    /// What a charge says of these counters.
    Charge(Vec<usize>),
    State(usize),
}

/// The opcodes of counter.lua.
const CHARGE: u8 = 0;
const PEEK: u8 = 1;
const TAKE: u8 = 2;
const GIVE_BACK: u8 = 3;
const RENEW: u8 = 4;
const SEED: u8 = 5;
const ADD: u8 = 6;
const READ_STATE: u8 = 7;

/// An instant at which nothing special happens: 2026-11-29.
const NOW: u64 = 1_795_953_600_000_000;

/// Counters of a history, and how many of them may lose what they hold: the others get long.
const COUNTERS: usize = 6;
const LOSABLE: usize = 4;

impl History {
    pub(super) fn new(seed: u64) -> History {
        let mut chance = Chance::new(seed);
        let name = |number| format!("tollgate:{{AAAAAAAAAAA}}{number}");
        let has_long_logs = seed % 5 == 4;
        let counter = |number| match has_long_logs {
            true => Counter::long_log(name(number)),
            false => Counter::random(&mut chance, name(number), NOW),
        };
        let counters = (0..COUNTERS).map(counter).collect();
        let (receipts, states, sent) = (Vec::new(), Vec::new(), HashMap::new());
        let steps = if has_long_logs { 1000 } else { 250 };
        History { steps, chance, counters, now: NOW, begun: NOW, receipts, states, sent }
    }

    /// The next command, and what its reply says.
    pub(super) fn step(&mut self) -> (Vec<Vec<u8>>, Reading) {
        self.advance();
        match self.chance.below(62) {
            0..38 => self.charge(),
            38..41 => self.charge_fixed_window(),
            41..48 => self.settle(),
            48..51 => self.read_state(),
            51..55 => self.copy(),
            55..58 => (self.reset(), Reading::Nothing),
            58 => (self.announce(), Reading::Nothing),
            59 => (self.announce_resets(), Reading::Nothing),
            60 => (self.claim(), Reading::Nothing),
            _ => (self.overwrite(), Reading::Nothing),
        }
    }

    /// Learns from a reply what later calls name.
    pub(super) fn learn(&mut self, reading: &Reading, reply: &Reply) {
        let Reply::Bulk(reply) = reply else { return };
        match reading {
            Reading::Nothing => {}
            Reading::Charge(counters) => {
                let mut rest = &reply[8..];
                for counter in counters {
                    let (numbers, after) = doubles(&rest[1..], self.counters[*counter].numbers());
                    self.receipts.push((*counter, self.counters[*counter].receipt(&numbers)));
                    rest = after;
                }
            }
            Reading::State(counter) => {
                let counter = &self.counters[*counter];
                self.states.push((counter.kind, counter.state(reply)));
            }
        }
    }

    /// The names of all keys that it may have written.
    pub(super) fn keys(&self) -> Vec<String> {
        let counters = self.counters.iter();
        let counters = counters.flat_map(|counter| [counter.name.clone(), marker(&counter.name)]);
        let others = ["proxies", "resets", "roster"].map(|name| format!("tollgate:{name}"));
        counters.chain(others).collect()
    }

    /// Time passes, or the clock goes back: by a little or by a lot.
    fn advance(&mut self) {
        self.now = match self.chance.below(12) {
            0..5 => self.now,
            5..7 => self.now + self.chance.within(0..5000),
            7..9 => self.now + self.chance.within(0..5_000_000),
            9 => self.now + self.chance.within(0..600_000_000),
            10 => self.now - self.chance.within(0..6_000_000),
            _ => self.now - self.chance.within(0..300_000_000),
        };
    }

    /// The first argument of a script on these counters, by the clock of the proxy or of the
    /// server.
    fn argument(&mut self, opcode: u8, charges: &[(usize, u32)]) -> Vec<u8> {
        let now = if self.chance.is_one_in(4) { 0.0 } else { self.now as f64 };
        let mut argument = now.to_le_bytes().to_vec();
        argument.push(opcode);
        for (counter, cost) in charges {
            let is_enforced = !self.chance.is_one_in(6);
            argument.extend(self.counters[*counter].record(is_enforced, *cost));
        }
        argument
    }

    fn charge(&mut self) -> (Vec<Vec<u8>>, Reading) {
        let first = self.chance.below(COUNTERS);
        let count = 1 + self.chance.below(4);
        let counters: Vec<usize> = (first..first + count).map(|at| at % COUNTERS).collect();
        let opcode = if self.chance.is_one_in(6) { PEEK } else { CHARGE };
        let charges: Vec<(usize, u32)> = counters
            .iter()
            .map(|counter| (*counter, self.counters[*counter].cost(&mut self.chance)))
            .collect();
        let mut argument = self.argument(opcode, &charges);
        if self.chance.is_one_in(60) {
            argument.pop();
        }
        let command = self.on_counters(scripts::CHARGE, &counters, vec![argument]);
        (command, Reading::Charge(counters))
    }

    fn charge_fixed_window(&mut self) -> (Vec<Vec<u8>>, Reading) {
        let is_meant = |counter: &Counter| counter.kind == AlgorithmKind::FixedWindow;
        let meant = self.counters.iter().position(is_meant);
        let counter = meant.unwrap_or_else(|| self.chance.below(LOSABLE));
        let cost = 1 + self.chance.below(3) as u32;
        let argument = self.argument(CHARGE, &[(counter, cost)]);
        let name = self.counters[counter].name.clone();
        let script = at_time(scripts::CHARGE_FIXED_WINDOW, self.begun);
        (self.call(script, vec![name], vec![argument]), Reading::Nothing)
    }

    fn settle(&mut self) -> (Vec<Vec<u8>>, Reading) {
        let any = (self.chance.below(COUNTERS), Receipt { at: self.now as f64, number: 0.0 });
        let latest = self.receipts.len().saturating_sub(12);
        let receipts = &self.receipts[latest..];
        let (counter, receipt) = match receipts {
            [] => any,
            receipts => *self.chance.pick(receipts),
        };
        let opcode = *self.chance.pick(&[TAKE, GIVE_BACK, GIVE_BACK, GIVE_BACK, RENEW]);
        let cost = 1 + self.chance.below(3) as u32;
        let mut argument = self.argument(opcode, &[(counter, cost)]);
        argument.extend_from_slice(&receipt.at.to_le_bytes());
        argument.extend_from_slice(&receipt.number.to_le_bytes());
        (self.on_counters(scripts::SETTLE, &[counter], vec![argument]), Reading::Nothing)
    }

    fn read_state(&mut self) -> (Vec<Vec<u8>>, Reading) {
        let mut copied = (0..COUNTERS).filter(|counter| {
            // Leases cannot be copied.
            self.counters[*counter].kind != AlgorithmKind::Concurrency
        });
        let counter = copied.nth(self.chance.below(2)).unwrap_or(0);
        let argument = self.argument(READ_STATE, &[(counter, 0)]);
        let command = self.on_counters(scripts::READ_STATE, &[counter], vec![argument]);
        (command, Reading::State(counter))
    }

    /// A state that was read is merged into another counter, or added to it.
    fn copy(&mut self) -> (Vec<Vec<u8>>, Reading) {
        let Some((kind, mut state)) = self.states.last().cloned() else { return self.read_state() };
        if self.chance.is_one_in(2) {
            state[0] += self.chance.below(3) as f64;
        }
        let mut same = (0..COUNTERS).filter(|counter| self.counters[*counter].kind == kind);
        let counter = same.nth(self.chance.below(2)).unwrap_or(0);
        let (opcode, ending) = *self.chance.pick(&[(SEED, scripts::SEED), (ADD, scripts::ADD)]);
        let mut argument = self.argument(opcode, &[(counter, 0)]);
        state.iter().for_each(|number| argument.extend_from_slice(&number.to_le_bytes()));
        let mut arguments = vec![argument];
        if self.chance.is_one_in(2) {
            arguments.push(self.reset_name());
        }
        let kinds = [self.counters[counter].kind];
        let name = self.counters[counter].name.clone();
        let script = at_time(&script(ending, &kinds), self.begun);
        (self.call(script, vec![name.clone(), marker(&name)], arguments), Reading::Nothing)
    }

    fn reset(&mut self) -> Vec<Vec<u8>> {
        let counter = self.chance.below(LOSABLE);
        let name = self.counters[counter].name.clone();
        let reset = self.reset_name();
        self.call(
            scripts::RESET.to_owned(),
            vec![name.clone(), marker(&name)],
            vec![b"900000".to_vec(), reset],
        )
    }

    fn reset_name(&mut self) -> Vec<u8> {
        self.chance.within(0..3).to_be_bytes().to_vec()
    }

    fn claim(&mut self) -> Vec<Vec<u8>> {
        let epoch = self.chance.below(9).to_string().into_bytes();
        let id = self.chance.draw().to_string().into_bytes();
        self.call(scripts::CLAIM.to_owned(), vec!["tollgate:roster".to_owned()], vec![epoch, id])
    }

    fn announce(&mut self) -> Vec<Vec<u8>> {
        let name = format!("proxy-{}", self.chance.below(7)).into_bytes();
        let text = if self.chance.is_one_in(5) { "" } else { "1 0 5 and more" };
        let most = self.chance.below(5).to_string().into_bytes();
        let script = self.by_some_clock(scripts::ANNOUNCE);
        let arguments = vec![name, text.as_bytes().to_vec(), b"10000".to_vec(), most];
        self.call(script, vec!["tollgate:proxies".to_owned()], arguments)
    }

    fn announce_resets(&mut self) -> Vec<Vec<u8>> {
        let mut arguments = vec![b"60000".to_vec(), b"5".to_vec()];
        arguments
            .extend((0..self.chance.below(4)).map(|_| self.chance.draw().to_le_bytes().to_vec()));
        let script = self.by_some_clock(scripts::ANNOUNCE_RESETS);
        self.call(script, vec!["tollgate:resets".to_owned()], arguments)
    }

    /// A script for which it is one of a few times, some of which are further apart than an
    /// announcement is valid.
    fn by_some_clock(&mut self, script: &str) -> String {
        at_time(script, self.begun + *self.chance.pick(&[0, 1_000_001, 9_000_000, 70_000_000]))
    }

    /// A counter is removed, or something else than a state is written.
    fn overwrite(&mut self) -> Vec<Vec<u8>> {
        let counter = self.chance.below(LOSABLE);
        let name = &*self.counters[counter].name;
        match self.chance.below(6) {
            0 => command(&["SET", name, ""]),
            1 => command(&["SET", name, "1"]),
            2 => {
                command(&["SET", name, "a text that is longer than a state, but for that of logs"])
            }
            _ => command(&["DEL", name]),
        }
    }

    /// A script on counters, whose keys are sometimes those of others.
    fn on_counters(
        &mut self,
        ending: &str,
        counters: &[usize],
        arguments: Vec<Vec<u8>>,
    ) -> Vec<Vec<u8>> {
        let kinds: Vec<AlgorithmKind> =
            counters.iter().map(|counter| self.counters[*counter].kind).collect();
        let script = at_time(&script(ending, &kinds), self.begun);
        let by = usize::from(self.chance.is_one_in(150));
        let name = |counter: &usize| self.counters[(counter + by) % COUNTERS].name.clone();
        let keys = counters.iter().map(name).collect();
        self.call(script, keys, arguments)
    }

    /// A call by the script's hash, or with the script itself.
    fn call(&mut self, script: String, keys: Vec<String>, arguments: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let (name, script) = match self.sent.get(&script) {
            Some(sha) => ("EVALSHA", sha.clone()),
            None => {
                let sha = redis::Script::new(&script).get_hash().to_owned();
                // Now and then a server is asked for a script that it does not know.
                match self.chance.is_one_in(50) {
                    true => ("EVALSHA", sha),
                    false => {
                        self.sent.insert(script.clone(), sha);
                        ("EVAL", script)
                    }
                }
            }
        };
        let mut words = vec![name.as_bytes().to_vec(), script.into_bytes()];
        words.push(keys.len().to_string().into_bytes());
        words.extend(keys.into_iter().map(String::into_bytes));
        words.extend(arguments);
        words
    }
}

/// The name of the marker that a counter was reset.
fn marker(counter: &str) -> String {
    format!("{counter}!")
}
