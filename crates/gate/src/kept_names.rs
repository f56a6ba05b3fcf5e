//! The names of counters that are charged more later, or that the log has: when the head of the
//! request has gone, or the call that named them.

use smallvec::SmallVec;
use tollgate_policy::KeyPart;

use super::tally::{DecidedCharge, Tally};

/// Writes the name of the counter of a charge whose limit counts by anything else than one caller
/// or address. It is called only for names that enter a sketch.
pub(super) type NameCounter<'c> = dyn Fn(&DecidedCharge<'_, '_>, &mut String) + 'c;

/// Such names, by what their keys are of.
#[derive(Default)]
pub(super) struct KeptNames(Vec<(u128, String)>);

/// The names of the counters that a call names, by what their keys are of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterNames(SmallVec<[(u128, String); 2]>);

impl CounterNames {
    /// Adds a counter.
    pub fn add(&mut self, tuple: u128, name: String) {
        self.0.push((tuple, name));
    }

    /// The name that was added first.
    pub(super) fn first(&self) -> Option<&str> {
        self.0.first().map(|(_, name)| name.as_str())
    }

    /// The name of the counter of a charge.
    pub fn of(&self, own: &DecidedCharge<'_, '_>) -> Option<&str> {
        let tuple = own.charge.key.tuple(own.planned.allowance.id);
        self.0.iter().find(|(known, _)| *known == tuple).map(|(_, name)| name.as_str())
    }
}

impl KeptNames {
    /// Those of a request whose head is still here.
    pub(super) fn of(tally: &Tally<'_>, name: &NameCounter<'_>) -> KeptNames {
        let mut kept = Vec::new();
        for own in tally.all() {
            let limit = own.planned.limit;
            let tuple = own.charge.key.tuple(own.planned.allowance.id);
            let is_kept = own.planned.cost.source.is_some()
                && !matches!(limit.per.parts.as_slice(), [KeyPart::Caller | KeyPart::ClientIp])
                && kept.last().is_none_or(|(last, _)| *last != tuple);
            if is_kept {
                let mut text = String::new();
                name(&own, &mut text);
                kept.push((tuple, text));
            }
        }
        KeptNames(kept)
    }

    /// Writes the name of the counter of a charge.
    pub(super) fn write(&self, own: &DecidedCharge<'_, '_>, to: &mut String) {
        let tuple = own.charge.key.tuple(own.planned.allowance.id);
        let its = self.0.iter().find(|(known, _)| *known == tuple);
        its.iter().for_each(|(_, name)| to.push_str(name));
    }
}
