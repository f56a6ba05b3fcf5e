//! Other rates for single callers, and for single values of what a limit counts by.

use std::fmt;

use tollgate_clock::Timestamp;

use super::{Allowances, KeyValue};

/// Other rates than those of the tiers. The first that is for a request applies.
#[derive(Clone, Debug, Default)]
pub struct Overrides(pub Vec<Override>);

/// Another rate, for some requests.
#[derive(Clone, Debug)]
pub struct Override {
    /// What a request must have, all of it. Never empty.
    pub of: Vec<KeyValue>,
    /// What may be used.
    pub allowances: Allowances,
    /// From this instant on, no longer; none: it has no end.
    pub until: Option<Timestamp>,
    /// The reason, for people.
    pub why: Box<str>,
}

impl Override {
    /// Whether its end has not come.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl fmt::Display for Override {
    /// The caller that it is for, as it may be shown to people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = self.of.iter().map(ToString::to_string).collect();
        f.write_str(&values.join(" and "))
    }
}
