//! Counters that are over go when tables are merged.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use lsm_tree::compaction::filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict};
use tollgate_clock::{Clock, Timestamp};

use crate::disk::record::Record;

/// What lets counters that are over go when tables are merged.
pub(super) struct Expiry {
    pub(super) clock: Clock,
    /// Set when what takes long is to end before it is done.
    pub(super) is_stopped: AtomicBool,
    pub(super) dropped: AtomicU64,
}

/// Makes the filter of each merge.
pub(super) struct ExpiryFactory(pub(super) Arc<Expiry>);

/// Lets counters that are over go, by their algorithm's own rule.
struct ExpiryFilter {
    expiry: Arc<Expiry>,
    now: Timestamp,
    dropped: u64,
}

impl Factory for ExpiryFactory {
    fn name(&self) -> &str {
        "expiry"
    }

    fn make_filter(&self, _context: &Context) -> Box<dyn CompactionFilter> {
        Box::new(ExpiryFilter { now: self.0.clock.now(), expiry: Arc::clone(&self.0), dropped: 0 })
    }
}

impl CompactionFilter for ExpiryFilter {
    fn filter_item(
        &mut self,
        item: ItemAccessor<'_>,
        _context: &Context,
    ) -> lsm_tree::Result<Verdict> {
        if self.expiry.is_stopped.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::Interrupted).into());
        }
        let value = item.value()?;
        // What cannot be read is kept: it is for people to decide about.
        let is_over = Record::read(&value).and_then(|record| record.is_over(self.now));
        // An earlier state of the counter may be over later: after a reset or a refund, less is
        // used. It must not come back, whether it is in a deeper level or in the same merge, so a
        // tombstone takes the place of what goes. In the last level none is left of that.
        Ok(if is_over == Some(true) {
            self.dropped += 1;
            Verdict::Remove
        } else {
            Verdict::Keep
        })
    }

    fn finish(self: Box<Self>) {
        self.expiry.dropped.fetch_add(self.dropped, Ordering::Relaxed);
    }
}
