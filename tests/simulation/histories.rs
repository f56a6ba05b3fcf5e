//! Histories of drills with real servers, judged as simulations are: what each caller was admitted,
//! as `tests/drills/run.py --histories FOLDER` writes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
    time::Duration,
};

use serde::Deserialize;
use tollgate_clock::Timestamp;
use tollgate_limit::{Align, DecidedBy, FixedWindow, Key, LimitId};

use crate::{
    judge::{Facts, judge},
    ledger::{Admission, Ledger},
    limits::Limit,
};

/// The first line of a history.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drill {
    units: u32,
    window_seconds: u64,
    proxies: u32,
    lives: u32,
    forgets: bool,
}

/// Each other line: a request that was admitted. Instants are Unix seconds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Admitted {
    caller: String,
    asked: f64,
    answered: f64,
    reset: u64,
    is_alone: bool,
}

/// What is broken in a history.
fn judge_history(text: &str) -> Vec<String> {
    let mut lines = text.lines();
    let drill: Drill = serde_json::from_str(lines.next().expect("a first line")).unwrap();
    let mut callers: Vec<String> = Vec::new();
    let mut ledger = Ledger::default();
    for line in lines {
        let admitted: Admitted = serde_json::from_str(line).unwrap();
        let known = callers.iter().position(|caller| *caller == admitted.caller);
        let caller = known.unwrap_or(callers.len());
        if known.is_none() {
            callers.push(admitted.caller);
        }
        ledger.admissions.push(Admission {
            limit: (caller, 0),
            proxy: 0,
            units: 1,
            at: Timestamp::from_micros((admitted.answered * 1e6) as u64),
            reset: Timestamp::from_secs(admitted.reset),
            asked: Duration::from_secs_f64(admitted.asked),
            answered: Duration::from_secs_f64(admitted.answered),
            decided_by: if admitted.is_alone { DecidedBy::Local } else { DecidedBy::Current },
            refunded: None,
            is_late: false,
        });
    }
    let limits: Vec<_> = callers.iter().map(|caller| drill.limits(caller)).collect();
    judge(&limits, &ledger, &drill.facts())
}

impl Drill {
    /// Callers of drills have one limit, and simulated ones have two.
    fn limits(&self, caller: &str) -> [Limit; 2] {
        let align = Align::Epoch(Duration::from_secs(self.window_seconds));
        let quota = FixedWindow { limit: self.units, align };
        let key = Key::new(0, 0, LimitId::new("drill", "core", "any", 0));
        ["", " (not charged)"].map(|note| Limit {
            name: format!("{caller}{note}"),
            quota: quota.clone().into(),
            key,
        })
    }

    fn facts(&self) -> Facts {
        Facts {
            instances: self.proxies,
            lives: self.lives,
            has_lost_data: self.forgets,
            was_replaced: self.forgets,
            were_moved: false,
            may_decide_twice: false,
            has_set_clock: false,
            has_lost_pending: false,
            doubts: Vec::new(),
            unknown_charges: 0,
            used: BTreeMap::new(),
            primaries: BTreeSet::new(),
            ..Facts::default()
        }
    }
}

/// The folder of those that are kept.
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/simulation/histories");

/// Judges those in the folder of the variable `HISTORIES`, or those that are kept.
#[test]
fn histories_hold() {
    let folder = env::var_os("HISTORIES").unwrap_or(KEPT.into());
    let mut broken = Vec::new();
    let mut number = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let faults = judge_history(&fs::read_to_string(&path).unwrap());
        broken.extend(faults.iter().map(|fault| format!("{}: {fault}", path.display())));
        number += 1;
    }
    assert!(number > 0, "there is no history in {}", Path::new(&folder).display());
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn history_with_too_much_is_broken() {
    let kept = include_str!("histories/short.jsonl");
    for (times, is_alone) in [(401, true), (201, false)] {
        let of_kind = format!("\"is_alone\": {is_alone}");
        let line = kept.lines().rfind(|line| line.contains(&of_kind)).unwrap();
        let more = format!("{kept}{}", format!("{line}\n").repeat(times));
        assert!(!judge_history(&more).is_empty(), "alone: {is_alone}");
    }
}
