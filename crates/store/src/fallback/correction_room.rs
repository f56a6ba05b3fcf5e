//! Room for corrections that wait for their store.
//!
//! A receipt is taken once. Before it is marked as used, there must be room for what it gives back
//! (`refunds`), or that would be lost.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_limit::{Charge, DecidedBy};

use super::cache::is_lease;
use crate::{Store, StoreError, Stores, Unanswered};

/// Room for one correction of each of some charges, until it is dropped.
pub struct CorrectionRoom {
    stores: Arc<Stores>,
    entries: SmallVec<[u128; 2]>,
}

impl Store {
    /// Keeps room to correct these charges where another counter has them than the one that they
    /// were decided by, and corrections have to wait for its store.
    ///
    /// # Errors
    /// [`StoreError::Unanswered`]: too much waits already.
    pub fn reserve_corrections<'c>(
        &self,
        charges: impl IntoIterator<Item = (&'c Charge<'c>, DecidedBy)>,
    ) -> Result<CorrectionRoom, StoreError> {
        let mut room =
            CorrectionRoom { stores: Arc::clone(&self.stores), entries: SmallVec::new() };
        for (charge, decided_by) in charges {
            if self.is_decided_elsewhere(charge, decided_by) && !is_lease(charge) {
                let entry = charge.key.entry;
                if !self.stores.pending.lock().reserve(entry) {
                    return Err(Unanswered::Busy.into());
                }
                room.entries.push(entry);
            }
        }
        Ok(room)
    }
}

impl Drop for CorrectionRoom {
    fn drop(&mut self) {
        if !self.entries.is_empty() {
            let mut counters = self.stores.pending.lock();
            self.entries.iter().for_each(|entry| counters.release(*entry));
        }
    }
}
