//! What would become of each caller: of the worst ones, and in comparison with other policies.

use std::fmt::Write as _;

use rustc_hash::FxHashMap;
use tollgate_clock::Timestamp;
use tollgate_preview::{Judgement, PastVerdict};

use super::{Against, CallerChange, WorstCaller, curve::share};

/// How many callers are named.
const NAMED: usize = 10;

/// The most memory for what a report says of callers, in bytes. Past it those are kept that were
/// denied most.
const MAX_NAME_BYTES: usize = 32 * 1024 * 1024;

/// The most characters of a word in a command.
const MAX_WORD: usize = 1000;

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
    /// The memory of `names`, about, in bytes.
    name_bytes: usize,
    /// Callers have a name only with more denials than this.
    unnamed: u32,
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

impl CallerCount {
    /// The more, the more a report has to say of the caller.
    fn denials(&self) -> u32 {
        self.denied.max(self.against)
    }
}

/// What a report says of a caller that was denied.
pub(super) struct DeniedCaller {
    /// Kind and value.
    pub(super) caller: String,
    pub(super) tier: String,
    /// When it was denied for the first time; of one whose name was dropped meanwhile, the first
    /// time after that.
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

    /// Its memory, about, in bytes.
    fn bytes(&self) -> usize {
        const FIXED: usize = 2 * size_of::<DeniedCaller>();
        FIXED + self.caller.len() + self.tier.len() + self.explain.len()
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
        let denials = count.denials();
        self.name(caller, denials, describe);
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
        let count = self.all.entry(caller).or_default();
        count.against = count.against.saturating_add(1);
        let denials = count.denials();
        self.name(caller, denials, describe);
    }

    fn name(&mut self, caller: u64, denials: u32, describe: impl FnOnce() -> DeniedCaller) {
        if denials <= self.unnamed || self.names.contains_key(&caller) {
            return;
        }
        let named = Box::new(describe());
        self.name_bytes += named.bytes();
        self.names.insert(caller, named);
        if self.name_bytes > MAX_NAME_BYTES {
            self.drop_names();
        }
    }

    /// Drops the half of the names whose callers were denied least.
    fn drop_names(&mut self) {
        let denials = |caller: &u64| self.all.get(caller).map_or(0, CallerCount::denials);
        let mut named: Vec<(u32, u64)> =
            self.names.keys().map(|caller| (denials(caller), *caller)).collect();
        named.sort_unstable();
        named.truncate(named.len() / 2);
        for (denials, caller) in named {
            self.unnamed = denials;
            self.name_bytes -= self.names.remove(&caller).map_or(0, |dropped| dropped.bytes());
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

/// A word as a shell takes it. What is beyond [`MAX_WORD`] is an ellipsis: the command stays one
/// that can be pasted.
pub(super) fn quoted(word: &str) -> String {
    let end = word.char_indices().nth(MAX_WORD).map(|(end, _)| end);
    let (word, ellipsis) = match end.and_then(|end| word.get(..end)) {
        Some(kept) => (kept, "…"),
        None => (word, ""),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && ellipsis.is_empty() && word.chars().all(is_plain) {
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
    quoted.push_str(ellipsis);
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_bounded_memory_and_those_denied_most_keep_theirs() {
        let mut counts = CallerCounts::default();
        let described = |caller: u64| DeniedCaller {
            caller: caller.to_string(),
            tier: String::new(),
            first: Timestamp::from_secs(1),
            explain: "x".repeat(1000),
            limits: Vec::new(),
        };
        for caller in 0..200_000 {
            counts.add_denial_against(caller, || described(caller));
            // One in a thousand has a second denial.
            if caller % 1000 == 0 {
                counts.add_denial_against(caller, || described(caller));
            }
            assert!(counts.name_bytes <= MAX_NAME_BYTES);
        }
        let bytes: usize = counts.names.values().map(|named| named.bytes()).sum();
        assert_eq!(counts.name_bytes, bytes);
        assert!(bytes > MAX_NAME_BYTES / 4, "{bytes}");
        let against = counts.against(String::new(), 1);
        assert_eq!(against.worse.len() + against.better.len(), NAMED);
        assert!((0..200).all(|twice| counts.names.contains_key(&(twice * 1000))));
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("/a/b.c"), "/a/b.c");
        assert_eq!(quoted("/a?b=c&d"), "'/a?b=c&d'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted("$(rm)\n"), "'$(rm)\\x0a'");
        assert_eq!(quoted(""), "''");
        let long = "é".repeat(MAX_WORD);
        assert_eq!(quoted(&long), format!("'{long}'"));
        assert_eq!(quoted(&format!("{long}'")), format!("'{long}…'"));
    }
}
