//! Refunds of one counter that wait for its store.

use smallvec::SmallVec;
use tollgate_limit::{DecidedBy, Receipt};

/// Most refunds of one counter that wait, apart from those under one receipt, which are added up.
pub(super) const MAX_REFUNDS: usize = 64;

/// Units that were given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refund {
    pub(super) receipt: Receipt,
    pub(super) units: u32,
    /// The store that had decided, and has the charge too; none: it was decided here.
    pub(super) from: Option<DecidedBy>,
}

/// The refunds of one counter that wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refunds(pub(super) SmallVec<[Refund; 1]>);

impl Refunds {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn add(&mut self, refund: Refund) {
        let Refund { receipt, units, from } = refund;
        let is_full = self.0.len() >= MAX_REFUNDS;
        let is_same = |own: &&mut Refund| own.receipt == receipt && own.from == from;
        match self.0.iter_mut().find(is_same) {
            Some(same) => same.units = same.units.saturating_add(units),
            None if !is_full => self.0.push(refund),
            None => tracing::debug!("too many refunds of a counter wait: one was dropped"),
        }
    }

    pub(super) fn add_all(&mut self, others: Refunds) {
        others.0.into_iter().for_each(|refund| self.add(refund));
    }
}
