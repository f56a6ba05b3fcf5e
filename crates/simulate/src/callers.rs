//! What would become of each caller: of the worst ones, and in comparison with other policies.

use std::fmt::Write as _;

use rustc_hash::FxHashMap;
use tollgate_clock::Timestamp;
use tollgate_preview::{Judgement, PastVerdict};

use super::{Against, CallerChange, WorstCaller, curve::share};

/// How many callers are named.
const NAMED: usize = 10;

/// Callers who were denied and are remembered by name, for each list.
const MAX_NAMES: usize = 1_000_000;

/// Requests that are counted together.
const WAITING: usize = 64;

/// All callers, by a hash of the name that the log has for them.
#[derive(Default)]
pub(super) struct CallerCounts {
    all: FxHashMap<u64, CallerCount>,
    /// Callers of requests that are not counted yet. The memory that several of them need is waited
    /// for together, where it is not in a cache of the processor.
    waiting: Vec<u64>,
    names: FxHashMap<u64, Box<DeniedCaller>>,
}

/// What was counted of a caller.
#[derive(Clone, Copy, Default)]
struct CallerCount {
    requests: u64,
    /// Requests that were denied, or would have been by limits that only count.
    denied: u32,
    /// The same without candidates: what is compared with other policies.
    compared: u32,
    /// The same by the other policies.
    against: u32,
    /// Whether an enforced limit has denied one.
    is_denied: bool,
}

/// What a report says of a caller that was denied.
pub(super) struct DeniedCaller {
    /// Kind and value.
    pub(super) caller: String,
    pub(super) tier: String,
    /// When it was denied for the first time.
    pub(super) first: Timestamp,
    /// A command that explains that request.
    pub(super) explain: String,
    /// How often each limit has denied it.
    pub(super) limits: Vec<(Box<str>, u64)>,
}

impl DeniedCaller {
    fn add(&mut self, limit: &str) {
        match self.limits.iter_mut().find(|(name, _)| **name == *limit) {
            Some((_, count)) => *count += 1,
            None => self.limits.push((limit.into(), 1)),
        }
    }
}

impl CallerCounts {
    /// Counts requests of a caller.
    pub(super) fn add(&mut self, caller: u64, requests: u32) {
        self.waiting.extend(std::iter::repeat_n(caller, requests as usize));
        if self.waiting.len() >= WAITING {
            self.count_waiting();
        }
    }

    /// Counts those that wait. This must come before the answers.
    pub(super) fn count_waiting(&mut self) {
        for caller in self.waiting.drain(..) {
            self.all.entry(caller).or_default().requests += 1;
        }
    }

    /// Counts that the request was denied, or would have been, by the limits that had no room.
    /// `describe` is called for the first one of a caller.
    pub(super) fn add_denial(
        &mut self,
        caller: u64,
        judged: &Judgement<'_>,
        describe: impl FnOnce() -> DeniedCaller,
    ) {
        let count = self.all.entry(caller).or_default();
        count.denied = count.denied.saturating_add(1);
        let is_compared = judged.would_deny_enforced();
        count.compared = count.compared.saturating_add(is_compared.into());
        count.is_denied |= judged.verdict == PastVerdict::Denied;
        self.name(caller, describe);
        let Some(named) = self.names.get_mut(&caller) else { return };
        for charge in judged.charges.iter().filter(|charge| !charge.fits) {
            named.add(&charge.limit.name);
        }
    }

    /// Counts that the other policies deny the request, or would.
    pub(super) fn add_denial_against(
        &mut self,
        caller: u64,
        describe: impl FnOnce() -> DeniedCaller,
    ) {
        let against = &mut self.all.entry(caller).or_default().against;
        *against = against.saturating_add(1);
        self.name(caller, describe);
    }

    fn name(&mut self, caller: u64, describe: impl FnOnce() -> DeniedCaller) {
        if self.names.len() < MAX_NAMES {
            self.names.entry(caller).or_insert_with(|| Box::new(describe()));
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> u64 {
        self.all.len() as u64
    }

    /// How many an enforced limit has denied at least once.
    pub(super) fn denied(&self) -> u64 {
        self.all.values().filter(|count| count.is_denied).count() as u64
    }

    /// Those that were denied most.
    pub(super) fn worst(&self) -> Vec<WorstCaller> {
        let mut denied: Vec<(&u64, &CallerCount)> =
            self.all.iter().filter(|(_, count)| count.denied > 0).collect();
        denied.sort_by_key(|(caller, count)| (std::cmp::Reverse(count.denied), **caller));
        let named = denied.into_iter().filter_map(|(caller, count)| {
            let named = self.names.get(caller)?;
            let limit = named.limits.iter().max_by_key(|(_, count)| *count);
            Some(WorstCaller {
                caller: named.caller.clone(),
                tier: named.tier.clone(),
                limit: limit.map(|(name, _)| name.to_string()).unwrap_or_default(),
                requests: count.requests,
                denied: count.denied.into(),
                denied_share: share(count.denied.into(), count.requests),
                first_denied: named.first.to_string(),
                explain: named.explain.clone(),
            })
        });
        named.take(NAMED).collect()
    }

    /// In comparison with the other policies.
    pub(super) fn against(&self, policies: String, requests: u64) -> Against {
        let mut against = Against { policies, ..Against::default() };
        let mut better: Vec<(u32, u64)> = Vec::new();
        let mut worse: Vec<(u32, u64)> = Vec::new();
        for (caller, count) in &self.all {
            against.denied += u64::from(count.against);
            against.denied_by_these += u64::from(count.compared);
            match count.compared.cmp(&count.against) {
                std::cmp::Ordering::Less => better.push((count.against - count.compared, *caller)),
                std::cmp::Ordering::Greater => {
                    worse.push((count.compared - count.against, *caller));
                }
                std::cmp::Ordering::Equal => against.callers_same += 1,
            }
        }
        against.denied_share = share(against.denied, requests);
        against.callers_better = better.len() as u64;
        against.callers_worse = worse.len() as u64;
        against.better = self.changes(better);
        against.worse = self.changes(worse);
        against
    }

    fn changes(&self, mut by: Vec<(u32, u64)>) -> Vec<CallerChange> {
        let requests = |caller: &u64| self.all.get(caller).map(|count| count.requests);
        by.sort_by_key(|(change, caller)| {
            (std::cmp::Reverse(*change), std::cmp::Reverse(requests(caller)), *caller)
        });
        let named = by.into_iter().filter_map(|(_, caller)| {
            let named = self.names.get(&caller)?;
            let CallerCount { requests, compared, against, .. } = *self.all.get(&caller)?;
            Some(CallerChange {
                caller: named.caller.clone(),
                requests,
                denied: compared.into(),
                denied_against: against.into(),
            })
        });
        named.take(NAMED).collect()
    }
}

/// A word as a shell takes it.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let mut quoted = String::from("'");
    for c in word.chars() {
        match c {
            '\'' => quoted.push_str("'\\''"),
            // What could end the line, or make it look otherwise, is left out.
            c if c.is_control() => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("/a/b.c"), "/a/b.c");
        assert_eq!(quoted("/a?b=c&d"), "'/a?b=c&d'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted("$(rm)\n"), "'$(rm)\\x0a'");
        assert_eq!(quoted(""), "''");
    }
}
