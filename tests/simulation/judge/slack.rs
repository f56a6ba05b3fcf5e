//! By how much a counter may differ from what its caller was told: what nobody can know, and what
//! was under way when the counter was reset.

use std::time::Duration;

use tollgate_limit::DecidedBy;

use super::Facts;
use crate::ledger::{Admission, Ledger};

/// How long an adjustment may take to reach its counter.
const LONGEST_ADJUSTMENT: Duration = Duration::from_secs(10);

/// The most units of a request.
const MAX_COST: u32 = 2;

/// Units that a counter may have less, or more.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slack {
    pub(super) less: u32,
    pub(super) more: u32,
}

impl Slack {
    pub(super) fn of(place: (usize, usize), ledger: &Ledger, facts: &Facts) -> Slack {
        let Slack { less, more } = Slack::of_reset(place, ledger);
        // A charge that was answered late is given back, perhaps after the reset that undid it.
        let given_back_late = match ledger.last_reset(place.0) {
            Some(_) => MAX_COST * facts.unknown_charges,
            None => 0,
        };
        let late = ledger.admitted(place).filter(|it| it.is_late);
        let lost = late.filter(|it| is_doubtful(it.proxy, it.asked, facts)).map(|it| it.units);
        Slack {
            less: less + given_back_late + lost.sum::<u32>(),
            more: more + unknown(place, ledger, facts),
        }
    }

    /// What is under way while a counter is reset may reach it before or after that.
    fn of_reset(place: (usize, usize), ledger: &Ledger) -> Slack {
        let mut slack = Slack::default();
        let Some(begun) = ledger.last_reset(place.0) else { return slack };
        for admission in ledger.admitted(place) {
            let is_older = admission.asked < begun;
            let may_be_given_back_after =
                admission.refunded.is_some_and(|at| at + LONGEST_ADJUSTMENT >= begun);
            // A proxy that has not heard of the reset yet drops what it has decided alone.
            let may_be_dropped = !is_older && admission.decided_by == DecidedBy::Local;
            if is_older && may_be_given_back_after || may_be_dropped {
                slack.less += admission.units;
            }
            let may_come_after = admission.is_late && admission.asked + LONGEST_ADJUSTMENT >= begun;
            if is_older && (admission.answered >= begun || may_come_after) {
                slack.more += admission.units;
            }
        }
        slack
    }
}

/// What a counter may have although nobody was told so.
fn unknown(place: (usize, usize), ledger: &Ledger, facts: &Facts) -> u32 {
    if facts.doubts.is_empty() && !facts.was_replaced {
        return 0;
    }
    let was_lost = facts.doubts.iter().any(|doubt| doubt.is_lost);
    let has_unknown = |admission: &&Admission| {
        // A proxy that writes back what it knows may undo a refund by another one.
        let may_be_undone = facts.was_replaced && admission.refunded.is_some();
        // A write of pending charges is repeated where its reply was lost.
        let may_be_repeated = was_lost && admission.decided_by == DecidedBy::Local;
        may_be_undone || may_be_repeated || is_refund_doubtful(admission, facts)
    };
    let unknown: u32 = ledger.admitted(place).filter(has_unknown).map(|it| it.units).sum();
    let unanswered = ledger.unanswered.get(&place.0).copied().unwrap_or_default();
    unknown + unanswered + MAX_COST * facts.unknown_charges
}

/// Whether it may be lost that a charge was given back.
fn is_refund_doubtful(admission: &Admission, facts: &Facts) -> bool {
    admission.refunded.is_some_and(|at| is_doubtful(admission.proxy, at, facts))
}

/// Whether an adjustment that a proxy has begun then may be lost.
fn is_doubtful(proxy: usize, begun: Duration, facts: &Facts) -> bool {
    let soon = begun..=begun + LONGEST_ADJUSTMENT + LONGEST_ADJUSTMENT;
    facts.doubts.iter().any(|doubt| doubt.proxy == proxy && soon.contains(&doubt.at))
}
