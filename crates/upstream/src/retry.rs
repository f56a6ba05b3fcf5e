//! When a request is tried again: how often, and at what cost to a server that is in trouble
//! already.

use std::{cell::Cell, sync::Arc};

use smallvec::SmallVec;
use tollgate_clock::deadline::TICK;
use tollgate_policy::Retries;

use super::{Member, UpstreamError};

/// What all requests of a worker to one upstream may spend on being tried again.
///
/// Each request earns a share of a retry, so that retries never are more than that share of what is
/// asked anyway: a server that fails everything is not asked twice as much for it.
pub(super) struct Budget {
    /// In hundredths of a retry.
    left: Cell<u32>,
    /// The tick at which a few were last allowed for nothing.
    granted: Cell<u32>,
}

/// The tries of one request.
pub(super) struct Tries {
    /// The servers that have failed it.
    pub(super) tried: SmallVec<[Arc<Member>; 2]>,
    left: u8,
}

/// What a failed try has cost the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    /// Nothing: it never had the request, or did not look at it.
    NeverSent,
    /// As much as any request, perhaps.
    Sent,
}

const RETRY: u32 = 100;

/// Retries that are allowed however few the requests, once in a while.
const FEW: u32 = 3 * RETRY;
const WHILE_TICKS: u32 = 10_000 / TICK.as_millis() as u32;

/// Retries that can be saved up: what was earned in good times is not to be spent all at once.
const MOST: u32 = 20 * RETRY;

impl Budget {
    pub(super) fn new() -> Budget {
        Budget { left: Cell::new(FEW), granted: Cell::new(0) }
    }

    /// A request earns its share.
    pub(super) fn earn(&self, retries: &Retries) {
        self.left.set(self.left.get().saturating_add(retries.budget_percent.into()).min(MOST));
    }

    /// Takes one retry, if there is one left at this tick.
    fn spend(&self, now: u32) -> bool {
        if self.left.get() < FEW && now.saturating_sub(self.granted.get()) >= WHILE_TICKS {
            self.granted.set(now);
            self.left.set(FEW);
        }
        let left = self.left.get().checked_sub(RETRY);
        self.left.set(left.unwrap_or(self.left.get()));
        left.is_some()
    }
}

impl Tries {
    pub(super) fn new(retries: &Retries) -> Tries {
        Tries { tried: SmallVec::new(), left: retries.attempts }
    }

    /// Whether there may be another.
    pub(super) fn may_go_on(&self) -> bool {
        self.left > 0
    }

    /// Takes one more, at `next`, if the budget has room for it at this tick.
    ///
    /// A request that was never sent is no more to do for another server than it would have been at
    /// first, so that costs nothing.
    pub(super) fn again(
        &mut self,
        next: &Arc<Member>,
        cost: Cost,
        budget: &Budget,
        now: u32,
    ) -> bool {
        let is_free = cost == Cost::NeverSent && !self.has_tried(next);
        if self.left == 0 || !is_free && !budget.spend(now) {
            return false;
        }
        self.left -= 1;
        true
    }

    /// Whether `member` has failed the request already.
    pub(super) fn has_tried(&self, member: &Arc<Member>) -> bool {
        self.tried.iter().any(|tried| Arc::ptr_eq(tried, member))
    }
}

impl UpstreamError {
    /// Whether it speaks against the server, and neither against the client nor for its being busy.
    pub fn is_servers_fault(&self) -> bool {
        match self {
            UpstreamError::NoAddress
            | UpstreamError::Busy
            | UpstreamError::ShareUsed
            | UpstreamError::Exhausted(_)
            | UpstreamError::RequestBody(_)
            | UpstreamError::RequestBodyTooLarge
            | UpstreamError::RequestBodyTimeout
            | UpstreamError::RequestBodyTooSlow => false,
            UpstreamError::Connect(_)
            | UpstreamError::Tls { .. }
            | UpstreamError::ConnectTimeout
            | UpstreamError::ResponseTimeout
            | UpstreamError::Exchange(_)
            | UpstreamError::Unsound => true,
        }
    }

    /// Whether the client has not sent what it was about to: it has broken off its body, sent too
    /// much, or nothing for too long.
    pub fn is_broken_off(&self) -> bool {
        matches!(
            self,
            UpstreamError::RequestBody(_)
                | UpstreamError::RequestBodyTooLarge
                | UpstreamError::RequestBodyTimeout
                | UpstreamError::RequestBodyTooSlow
        )
    }

    /// Whether asking the same server again would only take as long again.
    pub(super) fn calls_for_another(&self) -> bool {
        matches!(
            self,
            UpstreamError::Busy
                | UpstreamError::ShareUsed
                | UpstreamError::ConnectTimeout
                | UpstreamError::ResponseTimeout
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_the_requests_and_a_few() {
        for (percent, most) in [(20, 203), (0, 3), (100, 1003)] {
            let budget = Budget::new();
            let retries = Retries { budget_percent: percent, ..Retries::default() };
            let mut spent = 0;
            for _ in 0..1000 {
                budget.earn(&retries);
                spent += usize::from(budget.spend(1));
            }
            assert!(spent <= most && spent >= most.saturating_sub(4), "{percent}: {spent}");
        }
    }

    #[test]
    fn what_is_saved_up_is_bounded() {
        let budget = Budget::new();
        (0..10_000).for_each(|_| budget.earn(&Retries::default()));
        let spent = (0..1000).filter(|_| budget.spend(1)).count();
        assert_eq!(spent, 20);
    }

    #[test]
    fn a_few_are_allowed_again_after_a_while() {
        let budget = Budget::new();
        let spend_all = |now| (0..100).filter(|_| budget.spend(now)).count();
        assert_eq!(spend_all(1), 3);
        assert_eq!(spend_all(WHILE_TICKS - 1), 0);
        assert_eq!(spend_all(WHILE_TICKS), 3);
        assert_eq!(spend_all(WHILE_TICKS + 1), 0);
    }
}
