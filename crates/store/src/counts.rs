//! Counts of store events that are not visible elsewhere: decisions that Redis did not make,
//! decisions in which two stores disagree, and requests for which there was no room.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_keyword::Keyword;
use tollgate_settings::StoreKind;

use super::{NoRoom, Rivals, Unanswered};

/// Totals since the start, by event.
#[derive(Debug, Default)]
pub struct Counts {
    unanswered: [Total; Unanswered::KEYWORDS.len()],
    /// Charges that Redis may or may not have taken: the connection broke before the reply.
    pub unknown: Total,
    /// Local admissions that are never written to Redis, because too many counters have pending
    /// ones.
    pub unowed: Total,
    /// Decisions that were mirrored to the next store.
    pub mirrored: Total,
    /// Mirrored decisions in which the next store decided otherwise.
    pub disagreed: Total,
    /// Decisions that could not be mirrored, because the next store did not respond.
    pub unmirrored: Total,
    no_room: [Total; NoRoom::KEYWORDS.len()],
    /// Charges that were not counted because there was no room for their counters: their limits are
    /// open in that case.
    pub uncounted: Total,
    rivals: Rivals,
}

/// A total, and the part of it that was logged.
#[derive(Debug, Default)]
pub struct Total {
    total: AtomicU64,
    logged: AtomicU64,
}

impl Counts {
    /// Decisions that the store did not make, for this reason.
    pub fn unanswered(&self, reason: Unanswered) -> u64 {
        self.unanswered_for(reason).map_or(0, Total::get)
    }

    /// Requests refused for want of room for a counter, for this reason.
    pub fn no_room(&self, reason: NoRoom) -> u64 {
        self.no_room_for(reason).map_or(0, Total::get)
    }

    /// Redis servers that say that they are primary, and are not used.
    pub fn rivals(&self) -> &Rivals {
        &self.rivals
    }

    fn unanswered_for(&self, reason: Unanswered) -> Option<&Total> {
        self.unanswered.get(reason as usize)
    }

    fn no_room_for(&self, reason: NoRoom) -> Option<&Total> {
        self.no_room.get(reason as usize)
    }

    pub(super) fn count_no_room(&self, reason: NoRoom) {
        self.no_room_for(reason).into_iter().for_each(|total| total.add(1));
    }

    pub(super) fn count_unanswered(&self, reason: Unanswered) {
        self.unanswered_for(reason).into_iter().for_each(|total| total.add(1));
    }

    pub(super) fn count_mirrored(&self, agrees: bool) {
        self.mirrored.add(1);
        self.disagreed.add(usize::from(!agrees));
    }

    /// Logs what was not logged yet of a store of this kind. It is called about once a second, so
    /// that an outage is not logged with every request.
    pub(super) fn report(&self, store: &StoreKind) {
        let is_on_disk = matches!(store, StoreKind::Disk(_));
        for reason in Unanswered::all() {
            let decisions = self.unanswered_for(reason).map_or(0, Total::take_unlogged);
            match (decisions, is_on_disk || reason.is_of_disk()) {
                (0, _) => {}
                (_, true) => tracing::warn!(decisions, %reason, "the disk store did not decide"),
                (_, false) => tracing::warn!(decisions, %reason, "redis did not decide"),
            }
        }
        for reason in NoRoom::all() {
            let refused = self.no_room_for(reason).map_or(0, Total::take_unlogged);
            if refused > 0 {
                let advice = reason.advice();
                tracing::warn!(refused, %reason, advice, "no room for new counters");
            }
        }
        let charges = self.uncounted.take_unlogged();
        if charges > 0 {
            let advice = NoRoom::Full.advice();
            tracing::warn!(charges, advice, "no room for new counters: requests pass uncounted");
        }
        let charges = self.unknown.take_unlogged();
        if charges > 0 {
            tracing::warn!(
                charges,
                "redis may or may not have taken these charges: the connection broke before its reply"
            );
        }
        let requests = self.unowed.take_unlogged();
        if requests > 0 {
            tracing::warn!(
                requests,
                "local admissions will not be written to redis: too many callers have pending ones"
            );
        }
        let decisions = self.mirrored.take_unlogged();
        let disagreed = self.disagreed.take_unlogged();
        if disagreed > 0 {
            tracing::warn!(decisions, disagreed, "the next store would decide otherwise");
        }
        self.rivals.remind();
        let decisions = self.unmirrored.take_unlogged();
        if decisions > 0 {
            tracing::warn!(decisions, "the next store did not respond: nothing was mirrored");
        }
    }
}

impl Total {
    /// How many there were.
    pub fn get(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, number: usize) {
        self.total.fetch_add(number as u64, Ordering::Relaxed);
    }

    /// What was added since the last call.
    fn take_unlogged(&self) -> u64 {
        let total = self.get();
        total.saturating_sub(self.logged.swap(total, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests;
