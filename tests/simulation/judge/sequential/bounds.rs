//! Where something went wrong, nobody knows all that a server has counted. But some of it is sure:
//! Redis has answered that it has taken it, and nobody has given it back. And it cannot be more
//! than all that was ever asked for. So what Redis has answered lies between these two.

use std::time::Duration;

use tollgate_limit::{DecidedBy, Outcome, Quota};

use super::{
    super::Facts,
    Review,
    lists::{List, Refills, Taken},
};
use crate::{
    ledger::{Admission, Answer, Ledger},
    limits::Limit,
};

/// The most units of a request.
const MAX_COST: u64 = 2;

/// How long a proxy tries to give something back, with its last attempt.
const LONGEST_REFUND: Duration = Duration::from_secs(11);

/// Judges the answers of Redis to a caller.
pub(super) fn judge(
    both: &[Limit; 2],
    caller: usize,
    (ledger, facts): (&Ledger, &Facts),
    review: &mut Review,
) {
    for answer in ledger.answers.iter().filter(|answer| answer.caller == caller) {
        for (at, outcome) in answer.which.iter().zip(&answer.outcomes) {
            if outcome.decided_by != DecidedBy::Current {
                continue;
            }
            let quota = &both[*at].quota;
            let asked = Asked { quota, place: (caller, *at), answer, outcome, ledger, facts };
            let name = &both[*at].name;
            let wrong = |what: String| format!("{name}: {what}: {answer}");
            match asked.has_sure_least() {
                false => review.unjudged += 1,
                true => {
                    review.at_least += 1;
                    review.broken.extend(asked.is_below_least().map(wrong));
                }
            }
            match asked.has_sure_most() {
                false => review.unjudged += 1,
                true => {
                    review.at_most += 1;
                    review.broken.extend(asked.is_above_most().map(wrong));
                }
            }
        }
    }
}

/// One limit in an answer of Redis.
struct Asked<'a> {
    quota: &'a Quota,
    /// The caller, and which of its limits.
    place: (usize, usize),
    answer: &'a Answer,
    outcome: &'a Outcome,
    ledger: &'a Ledger,
    facts: &'a Facts,
}

impl<'a> Asked<'a> {
    /// Whether all that Redis has answered to have taken is still counted. It is not by a server
    /// that has lost data; what was taken before a clock was set back or ahead may count in another
    /// window; and what was charged before a reset may be given back after it.
    fn has_sure_least(&self) -> bool {
        !self.facts.has_lost_data && !self.facts.has_set_clock && !self.has_been_reset()
    }

    /// Whether what may be counted is known. What a proxy has decided alone comes with an instant
    /// of its clock: if that is wrong, it counts in another window, or comes back later. Logs are
    /// joined entry by entry where a server was replaced, which may count some of them twice.
    fn has_sure_most(&self) -> bool {
        let is_hourly = self.place.1 == 0;
        let may_be_joined = matches!(self.quota, Quota::SlidingLog(_)) && self.facts.was_replaced;
        is_hourly && !self.facts.has_set_clock || !self.facts.has_odd_clocks && !may_be_joined
    }

    fn has_been_reset(&self) -> bool {
        let caller = self.place.0;
        let was_reset = |begun: Duration| begun <= self.answer.answered;
        self.ledger.doubted.contains(&caller)
            || self.ledger.resets.iter().any(|it| it.caller == caller && was_reset(it.begun))
    }

    /// What is wrong if less was counted than was sure.
    fn is_below_least(&self) -> Option<String> {
        let now = self.now();
        let sure: Vec<Taken> = self.others().filter_map(|it| self.is_sure(it)).collect();
        let list = List { refills: Refills::Most, ..List::new(self.quota, &sure) };
        let given_back_twice = match self.quota {
            // What has come back by itself may be given back once more (docs/budgets.md).
            Quota::Gcra(_) | Quota::TokenBucket(_) => {
                MAX_COST * u64::from(self.facts.unknown_charges)
            }
            _ => 0,
        };
        let least = list.used(now).saturating_sub(given_back_twice);
        let used = u64::from(self.outcome.standing.used).saturating_sub(self.own_units());
        (used < least).then(|| format!("{used} were used before, and {least} or more must be"))
    }

    /// What is wrong if more was counted than anybody has charged.
    fn is_above_most(&self) -> Option<String> {
        let now = self.now();
        let mut taken: Vec<Taken> = self.others().filter_map(|it| self.may_count(it)).collect();
        let doubtful = self.doubtful_units();
        // Each may be a lease of its own, and all may have been written just now.
        taken.extend((0..doubtful).map(|_| Taken { at: now, units: 1, entry: usize::MAX }));
        taken.sort_by_key(|taken| taken.at);
        let list = List { refills: Refills::Fewest, ..List::new(self.quota, &taken) };
        let most = list.used(now);
        let used = u64::from(self.outcome.standing.used).saturating_sub(self.own_units());
        if used > most {
            return Some(format!("{used} were used before, of {most} that were ever charged"));
        }
        let is_denied = !self.outcome.fits() && list.fits(self.answer.cost.into(), now);
        is_denied.then(|| format!("it fits even with all {most} that may count"))
    }

    /// Units that the answer itself has taken.
    fn own_units(&self) -> u64 {
        match (self.outcome.receipt, self.quota) {
            (None, _) => 0,
            (Some(_), Quota::Concurrency(_)) => 1,
            (Some(_), _) => self.answer.cost.into(),
        }
    }

    fn now(&self) -> u64 {
        self.answer.at.as_micros()
    }

    /// What else was admitted of the limit.
    fn others(&self) -> impl Iterator<Item = (usize, &'a Admission)> {
        let own = self.answer.first_admission..self.answer.first_admission + self.answer.taken();
        let all = self.ledger.admissions.iter().enumerate();
        let place = self.place;
        all.filter(move |(entry, it)| it.limit == place && !own.contains(entry))
    }

    /// The admission, if the server must have counted it before it answered.
    fn is_sure(&self, (entry, it): (usize, &Admission)) -> Option<Taken> {
        let is_kept = it.refunded.is_none_or(|at| at > self.answer.answered);
        let is_sure = it.decided_by == DecidedBy::Current && it.at < self.answer.at && is_kept;
        is_sure.then(|| Taken { at: it.at.as_micros(), units: it.units.into(), entry })
    }

    /// The admission, if Redis has decided about it and may have counted it.
    fn may_count(&self, (entry, it): (usize, &Admission)) -> Option<Taken> {
        let now = self.now();
        // Servers of one shard need not have one clock.
        let at = match self.facts.has_lost_data || self.facts.was_replaced {
            true => now,
            false => it.at.as_micros(),
        };
        let was_asked = it.asked <= self.answer.answered;
        let may_count =
            it.decided_by == DecidedBy::Current && was_asked && at <= now && !self.has_left(it);
        may_count.then(|| Taken { at, units: it.units.into(), entry })
    }

    /// Whether an admission was given back for sure before the answer was asked for.
    fn has_left(&self, it: &Admission) -> bool {
        let Some(refunded) = it.refunded else { return false };
        let doubts = &self.facts.doubts;
        let is_doubtful = doubts.iter().any(|at| at.proxy == it.proxy && at.at >= it.answered);
        let has_come = refunded + LONGEST_REFUND < self.answer.asked;
        has_come && !is_doubtful && !self.facts.was_replaced
    }

    /// Units that a server may have or not: of requests that were decided alone, refused, or never
    /// answered. They are charged late, or written later, and once more for each reply to a write
    /// that was lost.
    fn doubtful_units(&self) -> u64 {
        let Facts { doubts, .. } = self.facts;
        let (caller, limit) = self.place;
        let is_earlier = |it: &&Answer| {
            it.caller == caller
                && it.which.contains(&limit)
                && it.asked <= self.answer.answered
                && it.outcomes.iter().all(|outcome| {
                    !matches!(outcome.decided_by, DecidedBy::Current | DecidedBy::Memo)
                })
        };
        let lost = |proxy: usize| {
            doubts.iter().filter(|doubt| doubt.proxy == proxy && doubt.is_lost).count() as u64
        };
        let alone = self.ledger.answers.iter().filter(is_earlier);
        let alone: u64 = alone.map(|it| u64::from(it.cost) * (2 + lost(it.proxy))).sum();
        let unanswered = self.ledger.unanswered.get(&caller).copied().unwrap_or_default();
        alone + u64::from(unanswered)
    }
}
