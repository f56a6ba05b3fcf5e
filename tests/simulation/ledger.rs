//! What proxies have answered, as the callers know it, and what was asked of counters: what the
//! judge goes by.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tollgate_clock::Timestamp;
use tollgate_limit::{DecidedBy, Outcomes, Verdict};

/// One charge that was admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    /// The caller, and which of its limits.
    pub(crate) limit: (usize, usize),
    pub(crate) units: u32,
    /// By the clock of who decided.
    pub(crate) at: Timestamp,
    /// When the limit was said to be whole again.
    pub(crate) reset: Timestamp,
    /// When it was asked for and answered, since the simulation began.
    pub(crate) asked: Duration,
    pub(crate) answered: Duration,
    pub(crate) decided_by: DecidedBy,
    pub(crate) proxy: usize,
    /// When it was given back.
    pub(crate) refunded: Option<Duration>,
    /// Whether it was taken after the decision, whether or not it fits.
    pub(crate) is_late: bool,
}

/// What a caller was answered.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) caller: usize,
    /// The limits that were charged.
    pub(crate) which: &'static [usize],
    pub(crate) cost: u32,
    pub(crate) proxy: usize,
    /// By the clock of who decided.
    pub(crate) at: Timestamp,
    /// When it was asked for and answered, since the simulation began.
    pub(crate) asked: Duration,
    pub(crate) answered: Duration,
    pub(crate) verdict: Verdict,
    /// One for each limit; none: it was refused without a decision.
    pub(crate) outcomes: Outcomes,
    /// Where its admissions begin, if it was admitted: one for each limit.
    pub(crate) first_admission: usize,
}

impl Answer {
    /// How many admissions it has.
    pub(crate) fn taken(&self) -> usize {
        if self.verdict == Verdict::Allow { self.outcomes.len() } else { 0 }
    }
}

/// A reset of all limits of a caller that was said to have been made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reset {
    pub(crate) caller: usize,
    pub(crate) begun: Duration,
    pub(crate) made: Duration,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) admissions: Vec<Admission>,
    /// All answers, also those that admitted nothing.
    pub(crate) answers: Vec<Answer>,
    pub(crate) resets: Vec<Reset>,
    /// Callers whose limits may have been reset or not.
    pub(crate) doubted: BTreeSet<usize>,
    /// Units of requests that were never answered.
    pub(crate) unanswered: BTreeMap<usize, u32>,
    /// Answers that were late, or wrong in themselves.
    pub(crate) faulty: Vec<String>,
}

impl Ledger {
    /// When the last reset of a caller was begun.
    pub(crate) fn last_reset(&self, caller: usize) -> Option<Duration> {
        let of_caller = self.resets.iter().filter(|reset| reset.caller == caller);
        of_caller.map(|reset| reset.begun).max()
    }

    /// What was admitted on a limit.
    pub(crate) fn admitted(&self, limit: (usize, usize)) -> impl Iterator<Item = &Admission> {
        self.admissions.iter().filter(move |it| it.limit == limit)
    }

    /// Units of a limit that were taken whether or not they fit.
    pub(crate) fn taken_late(&self, limit: (usize, usize)) -> u32 {
        self.admitted(limit).filter(|it| it.is_late).map(|it| it.units).sum()
    }

    /// What was admitted on a limit and not given back, since the last reset of its caller was
    /// begun.
    pub(crate) fn kept(&self, limit: (usize, usize)) -> impl Iterator<Item = &Admission> {
        let since = self.last_reset(limit.0).unwrap_or_default();
        self.admitted(limit).filter(move |it| it.refunded.is_none() && it.asked >= since)
    }
}
