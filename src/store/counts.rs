//! What happened in the stores that nobody would notice otherwise: decisions that Redis did not
//! make, those in which two stores disagree, and requests for which there was no room.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{NoRoom, Unanswered, rivals::Rivals};

/// Numbers since the start, by event.
#[derive(Debug, Default)]
pub struct Counts {
    away: Counter,
    busy: Counter,
    timeout: Counter,
    lost: Counter,
    refused: Counter,
    bad_reply: Counter,
    unknown: Counter,
    unowed: Counter,
    mirrored: Counter,
    disagreed: Counter,
    unmirrored: Counter,
    full: Counter,
    part: Counter,
    addresses: Counter,
    networks: Counter,
    unverified: Counter,
    client: Counter,
    minute: Counter,
    uncounted: Counter,
    rivals: Rivals,
}

/// A number, and how much of it was told.
#[derive(Debug, Default)]
struct Counter {
    total: AtomicU64,
    told: AtomicU64,
}

impl Counts {
    /// Decisions that Redis did not make, for this reason.
    pub fn unanswered(&self, reason: Unanswered) -> u64 {
        self.of(reason).total.load(Ordering::Relaxed)
    }

    /// Charges of which nobody knows whether Redis has taken them: the connection broke before it
    /// answered.
    pub fn unknown(&self) -> u64 {
        self.unknown.total.load(Ordering::Relaxed)
    }

    /// Decisions that were also asked of the next store.
    pub fn mirrored(&self) -> u64 {
        self.mirrored.total.load(Ordering::Relaxed)
    }

    /// Those of them that it made otherwise.
    pub fn disagreed(&self) -> u64 {
        self.disagreed.total.load(Ordering::Relaxed)
    }

    /// Decisions that were to be asked of the next store, and that it did not make.
    pub fn unmirrored(&self) -> u64 {
        self.unmirrored.total.load(Ordering::Relaxed)
    }

    /// Requests refused for want of room for a counter, for this reason.
    pub fn no_room(&self, reason: NoRoom) -> u64 {
        self.lack(reason).total.load(Ordering::Relaxed)
    }

    /// Charges that were left out for want of room for their counters: their limits are open then.
    pub fn uncounted(&self) -> u64 {
        self.uncounted.total.load(Ordering::Relaxed)
    }

    pub(super) fn count_uncounted(&self, charges: usize) {
        self.uncounted.total.fetch_add(charges as u64, Ordering::Relaxed);
    }

    /// Redis servers that say that they are primary, and are not used.
    pub fn rivals(&self) -> &Rivals {
        &self.rivals
    }

    pub(super) fn count_no_room(&self, reason: NoRoom) {
        self.lack(reason).add();
    }

    pub(super) fn count_unanswered(&self, reason: Unanswered) {
        self.of(reason).add();
    }

    pub(super) fn count_unknown(&self, charges: usize) {
        self.unknown.total.fetch_add(charges as u64, Ordering::Relaxed);
    }

    /// Admissions without Redis that it will never hear of, for too many counters have some.
    pub fn unowed(&self) -> u64 {
        self.unowed.total.load(Ordering::Relaxed)
    }

    pub(super) fn count_unowed(&self) {
        self.unowed.add();
    }

    pub(super) fn count_mirrored(&self, agrees: bool) {
        self.mirrored.add();
        if !agrees {
            self.disagreed.add();
        }
    }

    pub(super) fn count_unmirrored(&self) {
        self.unmirrored.add();
    }

    /// Logs what was not logged yet. Called once a second or so: a store that is away is told of as
    /// often, and not with every request.
    pub fn report(&self) {
        for (count, reason) in [
            (&self.away, Unanswered::Away),
            (&self.busy, Unanswered::Busy),
            (&self.timeout, Unanswered::Timeout),
            (&self.lost, Unanswered::Lost),
            (&self.refused, Unanswered::Refused),
            (&self.bad_reply, Unanswered::BadReply),
        ] {
            let decisions = count.take_untold();
            if decisions > 0 {
                tracing::warn!(decisions, %reason, "redis did not decide");
            }
        }
        for reason in NoRoom::ALL {
            let refused = self.lack(reason).take_untold();
            if refused > 0 {
                let advice = reason.advice();
                tracing::warn!(refused, %reason, advice, "no room for new counters");
            }
        }
        let charges = self.uncounted.take_untold();
        if charges > 0 {
            let advice = NoRoom::Full.advice();
            tracing::warn!(charges, advice, "no room for new counters: requests pass uncounted");
        }
        let charges = self.unknown.take_untold();
        if charges > 0 {
            tracing::warn!(
                charges,
                "nobody knows whether redis has taken these charges: the connection broke first"
            );
        }
        let requests = self.unowed.take_untold();
        if requests > 0 {
            tracing::warn!(
                requests,
                "redis will not hear of these: too many callers came meanwhile"
            );
        }
        let (decisions, disagreed) = (self.mirrored.take_untold(), self.disagreed.take_untold());
        if disagreed > 0 {
            tracing::warn!(decisions, disagreed, "the next store would decide otherwise");
        }
        self.rivals.remind();
        let decisions = self.unmirrored.take_untold();
        if decisions > 0 {
            tracing::warn!(decisions, "the next store did not answer: nothing was mirrored");
        }
    }

    fn of(&self, reason: Unanswered) -> &Counter {
        match reason {
            Unanswered::Away => &self.away,
            Unanswered::Busy => &self.busy,
            Unanswered::Timeout => &self.timeout,
            Unanswered::Lost => &self.lost,
            Unanswered::Refused => &self.refused,
            Unanswered::BadReply => &self.bad_reply,
        }
    }

    fn lack(&self, reason: NoRoom) -> &Counter {
        match reason {
            NoRoom::Full => &self.full,
            NoRoom::Part => &self.part,
            NoRoom::Addresses => &self.addresses,
            NoRoom::Networks => &self.networks,
            NoRoom::Unverified => &self.unverified,
            NoRoom::Client => &self.client,
            NoRoom::Minute => &self.minute,
        }
    }
}

impl Counter {
    fn add(&self) {
        self.total.fetch_add(1, Ordering::Relaxed);
    }

    /// What came since this was last asked.
    fn take_untold(&self) -> u64 {
        let total = self.total.load(Ordering::Relaxed);
        total.saturating_sub(self.told.swap(total, Ordering::Relaxed))
    }
}
