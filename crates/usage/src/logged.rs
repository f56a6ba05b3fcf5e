//! What a log says that a request has used.

use std::time::Duration;

use crate::json::Amount;

/// What a log says that a request has used. What it does not say is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedUse {
    /// What it has cost, where only its response told that.
    pub costs: Vec<LoggedCost>,
    /// Bytes of its body.
    pub request_bytes: Option<u64>,
    /// Bytes of the body of its response.
    pub response_bytes: Option<u64>,
    /// Until its response had ended.
    pub took: Option<Duration>,
}

/// What a request has cost a limit, as a log says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedCost {
    /// The limit; none: the log does not say.
    pub limit: Option<Box<str>>,
    /// Units; none: the response did not tell.
    pub units: Option<u64>,
    /// What was charged before the response told that; none: the log does not say.
    pub reserved: Option<u64>,
}

impl LoggedUse {
    /// Units that it has cost a limit of this name, where its response told that. What another
    /// limit has cost stands in, as limits are renamed.
    pub fn reported_cost(&self, limit: &str) -> Option<u64> {
        let reported = || self.costs.iter().filter(|own| own.units.is_some());
        reported().find(|own| own.is_of(limit)).or_else(|| reported().next())?.units
    }

    /// What was charged to a limit of this name before its response told anything.
    pub fn reserved(&self, limit: &str) -> Option<u64> {
        self.costs.iter().find(|own| own.limit.is_none() || own.is_of(limit))?.reserved
    }
}

impl LoggedCost {
    /// What is written as a cost; none: it is no number of units.
    pub fn parse(text: &str) -> Option<LoggedCost> {
        let units = Amount::parse(text)?.units;
        Some(LoggedCost { units: Some(units), ..LoggedCost::default() })
    }

    fn is_of(&self, limit: &str) -> bool {
        self.limit.as_deref() == Some(limit)
    }
}
