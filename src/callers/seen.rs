//! Names of counters that this proxy has seen lately, for people who know only some of the values.
//!
//! Counters have no names, only hashes. But the names of those that weigh most are in memory, for
//! `top`, and so are those of the latest denials.

use std::borrow::Cow;

use tollgate_clock::Timestamp;
use tollgate_gate::{CountedKey, DenialFilter, KEPT_DENIALS, Shared};
use tollgate_observe::sketch::{Estimate, KEPT_MINUTES, LimitRef, MAX_NAME_BYTES, Measure};
use tollgate_policy::{Limit, Policy};

/// The most names of a limit.
const MAX_SEEN: usize = 10;

/// Of names that are cut, how many bytes less than the most are kept at most: a character is never
/// cut.
const MAX_REST_BYTES: usize = 3;

/// A command about the counters of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterCommand {
    /// How they stand.
    Look,
    /// Making them as never used.
    Reset,
}

/// What finds the names.
#[derive(Clone, Copy)]
pub(super) struct SeenNames<'s> {
    shared: &'s Shared,
    now: Timestamp,
}

impl CounterCommand {
    /// The command line, for a shell.
    pub fn line(self, name: &str) -> String {
        let name = quoted(name);
        match self {
            CounterCommand::Look => format!("tollgate look {name}"),
            CounterCommand::Reset => format!("tollgate reset {name} --why TEXT"),
        }
    }
}

impl<'s> SeenNames<'s> {
    pub(super) fn new(shared: &'s Shared) -> SeenNames<'s> {
        SeenNames { shared, now: shared.clock.now() }
    }

    /// The names of counters of a limit that have the values of a key; or, if the limit counts by
    /// none of them, those that had no room for it. Those that denied most come first.
    pub(super) fn of(&self, key: &CountedKey<'_>, policy: &Policy, limit: &Limit) -> Vec<String> {
        let mut names = Vec::new();
        let mut add = |name: String| {
            if names.len() < MAX_SEEN && !names.contains(&name) {
                names.push(name);
            }
        };
        if key.is_of(limit) {
            let hashing = &self.shared.identifier.hasher;
            let all = self.ranked(policy, limit).chain(self.denied(policy, limit, None));
            all.filter_map(|name| key.name_from_seen(hashing, policy, limit, &name))
                .for_each(&mut add);
        } else {
            let denied = self.denied(policy, limit, Some(key.name()));
            denied.filter(|name| CountedKey::is_name_of(policy, limit, name)).for_each(&mut add);
        }
        names
    }

    /// Whole names of the counters that weigh most.
    fn ranked(&self, policy: &Policy, limit: &Limit) -> impl Iterator<Item = String> {
        let limit = LimitRef { policy: policy.name.clone(), limit: limit.name.clone() };
        let measures = [Measure::Denials, Measure::WouldBeDenials, Measure::Units];
        let by = move |measure| {
            let callers = &self.shared.series.callers;
            let summary = callers.summary(&limit, measure, KEPT_MINUTES, self.now);
            let mut entries = summary.map(|own| own.entries).unwrap_or_default();
            entries.sort_unstable_by(|one, other| {
                other.most.cmp(&one.most).then_with(|| one.name.cmp(&other.name))
            });
            entries.into_iter()
        };
        let is_whole = |own: &Estimate| own.name.len() + MAX_REST_BYTES < MAX_NAME_BYTES;
        measures.into_iter().flat_map(by).filter(is_whole).map(|own| own.name.to_string())
    }

    /// The names of counters that had no room, of this caller or of all, the latest ones first.
    fn denied(
        &self,
        policy: &Policy,
        limit: &Limit,
        caller: Option<String>,
    ) -> impl Iterator<Item = String> {
        let [policy, limit] = [&policy.name, &limit.name].map(|name| Some(name.to_string()));
        let filter = DenialFilter { caller, policy, limit };
        let found = self.shared.denials.after(0, &filter, KEPT_DENIALS);
        found.entries.into_iter().rev().flat_map(|entry| entry.counters.clone())
    }
}

/// A name as a shell takes it: in single quotes it reads all but the quote as it is.
fn quoted(name: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match name.chars().all(is_plain) {
        true => Cow::Borrowed(name),
        false => Cow::Owned(format!("'{}'", name.replace('\'', r"'\''"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_reads_the_name_of_a_command_as_it_is() {
        for (name, expected) in [
            ("path.owner=one,caller=main/user:42", "path.owner=one,caller=main/user:42"),
            ("path=/a b", "'path=/a b'"),
            ("path=/it's", r"'path=/it'\''s'"),
            ("header.x=(hash 9f2ac81b04d7)", "'header.x=(hash 9f2ac81b04d7)'"),
        ] {
            assert_eq!(CounterCommand::Look.line(name), format!("tollgate look {expected}"));
        }
    }
}
