//! What a worker counts of a limit and a tier.

use super::Count;

/// What a limit decided about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitDecision {
    /// The request fits.
    Allow,
    /// It fits, and more than 80 % of a window is used now.
    Near,
    /// It does not fit.
    Deny,
    /// It does not fit, and the limit only counts here.
    WouldDeny,
    /// The limit does not apply: the request lacks what it counts by, the caller is exempt or of a
    /// tier without a rate, or no store answered.
    Skip,
}

impl LimitDecision {
    /// All of them.
    pub const ALL: [LimitDecision; 5] = [
        LimitDecision::Allow,
        LimitDecision::Near,
        LimitDecision::Deny,
        LimitDecision::WouldDeny,
        LimitDecision::Skip,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            LimitDecision::Allow => "allow",
            LimitDecision::Near => "near",
            LimitDecision::Deny => "deny",
            LimitDecision::WouldDeny => "would_deny",
            LimitDecision::Skip => "skip",
        }
    }
}

/// What a worker counts of a limit and a tier. What each request counts fills a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct LimitCounters {
    /// By [`LimitDecision`].
    decisions: [Count; 5],
    /// Units that requests have taken.
    pub charged: Count,
    /// Those of them that were given back.
    pub refunded: Count,
    /// Costs that responses have told.
    pub settlements: SettlementCounts,
}

/// What is counted of costs that responses have told. It fills a cache line, too.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct SettlementCounts {
    /// Units that were reserved for them.
    pub reserved: Count,
    /// What they came to.
    pub settled: Count,
    /// How much of that was not reserved: it was charged though nobody had asked whether it is
    /// there.
    pub debt: Count,
}

impl LimitCounters {
    /// Counts a decision.
    pub fn count(&self, decision: LimitDecision) {
        self.of(decision).increment();
    }

    /// Counts that a request which had reserved some units has cost others.
    pub fn settle(&self, reserved: u32, cost: u32) {
        let SettlementCounts { reserved: units, settled, debt } = &self.settlements;
        units.add(reserved.into());
        settled.add(cost.into());
        debt.add(cost.saturating_sub(reserved).into());
    }

    /// The count of one kind of decision.
    pub fn of(&self, decision: LimitDecision) -> &Count {
        let [allow, near, deny, would_deny, skip] = &self.decisions;
        match decision {
            LimitDecision::Allow => allow,
            LimitDecision::Near => near,
            LimitDecision::Deny => deny,
            LimitDecision::WouldDeny => would_deny,
            LimitDecision::Skip => skip,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_decision_has_its_own_count() {
        let counters = LimitCounters::default();
        for (times, decision) in LimitDecision::ALL.into_iter().enumerate() {
            (0..times).for_each(|_| counters.count(decision));
        }
        let counts = LimitDecision::ALL.map(|decision| counters.of(decision).get());
        assert_eq!(counts, [0, 1, 2, 3, 4]);
        assert_eq!(size_of::<LimitCounters>(), 2 * 64);
    }
}
