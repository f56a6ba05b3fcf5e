//! What a worker has seen of a limit in a minute.

use tollgate_clock::Timestamp;

use super::{distinct::DistinctKeys, space_saving::SpaceSaving};

/// What callers are ranked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Units that were charged.
    Units,
    /// Requests that were denied.
    Denials,
    /// Requests that would have been denied if the limit were enforced.
    WouldBeDenials,
}

/// Whether a limit has denied a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// It has not.
    No,
    /// It would have, if it were enforced.
    Would,
    /// It has.
    Yes,
}

/// What a limit has decided about one request of a caller.
#[derive(Clone, Copy, Debug)]
pub struct Sighting {
    /// A hash of the caller; none: it is not known who it was.
    pub key: Option<u64>,
    /// The number of its tier.
    pub tier: u16,
    /// Units that it was charged.
    pub units: u64,
    /// Whether the request was denied.
    pub denied: Denied,
    /// Whether the caller has used more than 80 % of the limit.
    pub is_near: bool,
}

/// The minute that an instant is in, counted from the epoch.
pub(super) fn minute_of(now: Timestamp) -> u64 {
    now.as_micros() / 60_000_000
}

/// A minute of a worker.
#[derive(Debug, Default)]
pub(super) struct Minute {
    pub(super) number: u64,
    pub(super) units: SpaceSaving,
    pub(super) denials: SpaceSaving,
    pub(super) would_be_denials: SpaceSaving,
    /// The callers past 80 %, by the number of their tier.
    pub(super) near: Vec<(u16, DistinctKeys)>,
}

impl Minute {
    pub(super) fn add(&mut self, seen: &Sighting, name: &dyn Fn(&mut String)) {
        let Sighting { key, tier, units, denied, is_near } = *seen;
        let ranked = [
            (&mut self.units, units),
            (&mut self.denials, (denied == Denied::Yes).into()),
            (&mut self.would_be_denials, (denied == Denied::Would).into()),
        ];
        for (sketch, weight) in ranked.into_iter().filter(|(_, weight)| *weight > 0) {
            match key {
                Some(key) => sketch.add(key, tier, weight, name),
                None => sketch.add_unnamed(weight),
            }
        }
        let Some(key) = key else { return };
        if is_near || denied != Denied::No {
            near_of(&mut self.near, tier).add(key);
        }
    }

    /// Whether there is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        self.units.is_empty()
            && self.denials.is_empty()
            && self.would_be_denials.is_empty()
            && self.near.is_empty()
    }

    pub(super) fn sketch(&self, measure: Measure) -> &SpaceSaving {
        match measure {
            Measure::Units => &self.units,
            Measure::Denials => &self.denials,
            Measure::WouldBeDenials => &self.would_be_denials,
        }
    }
}

/// The set of a tier, which is made if there is none.
pub(super) fn near_of(near: &mut Vec<(u16, DistinctKeys)>, tier: u16) -> &mut DistinctKeys {
    let at = near.iter().position(|(own, _)| *own == tier).unwrap_or_else(|| {
        near.push((tier, DistinctKeys::default()));
        near.len() - 1
    });
    #[expect(clippy::indexing_slicing, reason = "the position was found, or just made")]
    &mut near[at].1
}
