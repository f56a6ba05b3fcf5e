//! Where nothing went wrong, Redis has decided about all requests, one after the other. Their order
//! is that of its clock. What it did at the same microsecond, it may have done in any order, and
//! what is given back or reset has no answer with an instant: so all orders are tried, and those go
//! on that explain each answer.

use std::{fmt, time::Duration};

use tollgate_limit::{DecidedBy, Outcome, Quota, Retry, Verdict};

use super::{
    Review,
    lists::{List, Taken, length},
};
use crate::{
    ledger::{Answer, Ledger},
    limits::Limit,
    machine::START,
};

/// How long it takes at most until Redis has what is given back, if nothing is wrong.
const LONGEST_REFUND: Duration = Duration::from_millis(50);

/// For how long a proxy remembers that Redis has denied something.
const LONGEST_MEMORY: Duration = Duration::from_secs(1);

/// Judges the answers to a caller.
pub(super) fn judge(both: &[Limit; 2], caller: usize, ledger: &Ledger, review: &mut Review) {
    let is_by = |answer: &Answer, decider: DecidedBy| {
        let mut outcomes = answer.outcomes.iter();
        !answer.outcomes.is_empty() && outcomes.all(|outcome| outcome.decided_by == decider)
    };
    let of_caller = || ledger.answers.iter().filter(|answer| answer.caller == caller);
    let mut by_redis: Vec<&Answer> = Vec::new();
    for answer in of_caller() {
        if is_by(answer, DecidedBy::Current) {
            by_redis.push(answer);
        } else if !is_by(answer, DecidedBy::Memo) {
            review.broken.push(format!("without any fault, redis has not decided: {answer}"));
        } else if !is_remembered(answer, of_caller(), ledger) {
            review.broken.push(format!("nothing like this was denied before: {answer}"));
        } else {
            review.exact += 1;
        }
    }
    // The first judge says what else is wrong.
    if ledger.doubted.contains(&caller) || !review.broken.is_empty() {
        return;
    }
    by_redis.sort_by_key(|answer| answer.at);
    let events = events(caller, ledger);
    let search = Search { both, ledger, events: &events };
    let all = (0..events.len()).collect();
    let mut trials = vec![Trial { taken: Default::default(), waiting: all }];
    for group in by_redis.chunk_by(|one, other| one.at == other.at) {
        match search.follow(trials, group) {
            Ok(next) => trials = next,
            Err(why) => return review.broken.push(why),
        }
        review.exact += group.len() as u64;
    }
}

/// Whether a denial repeats one of the same proxy, and some limit still denies: the proxy has given
/// nothing back to it since.
fn is_remembered<'l>(
    answer: &Answer,
    mut all: impl Iterator<Item = &'l Answer>,
    ledger: &Ledger,
) -> bool {
    all.any(|earlier| {
        let same = |(one, other): (&Outcome, &Outcome)| one.standing == other.standing;
        let has_got_back = |limit: usize| {
            let since = earlier.answered..answer.asked;
            ledger.admitted((answer.caller, limit)).any(|admission| {
                admission.proxy == answer.proxy
                    && admission.refunded.is_some_and(|at| since.contains(&at))
            })
        };
        let still_denies = |(limit, outcome): (&usize, &Outcome)| {
            let until = outcome.standing.retry;
            matches!(until, Retry::At(until) if answer.at < until) && !has_got_back(*limit)
        };
        earlier.proxy == answer.proxy
            && (earlier.which, earlier.cost) == (answer.which, answer.cost)
            && [earlier.verdict, answer.verdict] == [Verdict::Deny; 2]
            && earlier.answered <= answer.asked
            && answer.at.saturating_since(earlier.at) <= LONGEST_MEMORY
            && earlier.outcomes.iter().all(|it| it.decided_by == DecidedBy::Current)
            && earlier.outcomes.iter().zip(&answer.outcomes).all(same)
            && answer.which.iter().zip(&answer.outcomes).any(still_denies)
    })
}

/// What Redis does to counters without an answer that has an instant.
struct Event {
    kind: EventKind,
    /// When it did that at the earliest, and at the latest.
    from: u64,
    until: u64,
}

#[derive(Clone, Copy)]
enum EventKind {
    /// This admission was given back.
    GivenBack(usize),
    /// All limits of the caller were reset.
    Reset,
}

fn events(caller: usize, ledger: &Ledger) -> Vec<Event> {
    let instant = |elapsed: Duration| (START + elapsed).as_micros();
    let of_caller = |(_, it): &(usize, &crate::ledger::Admission)| it.limit.0 == caller;
    let admissions = ledger.admissions.iter().enumerate().filter(of_caller);
    let given_back = admissions.filter_map(|(entry, admission)| {
        let at = admission.refunded?;
        let (from, until) = (instant(at), instant(at + LONGEST_REFUND));
        Some(Event { kind: EventKind::GivenBack(entry), from, until })
    });
    let resets = ledger.resets.iter().filter(|reset| reset.caller == caller);
    let resets = resets.map(|reset| {
        let (from, until) = (instant(reset.begun), instant(reset.made));
        Event { kind: EventKind::Reset, from, until }
    });
    given_back.chain(resets).collect()
}

/// How it may have been until some instant.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trial {
    /// What counts of both limits, in the order in which it was taken.
    taken: [Vec<Taken>; 2],
    /// The events that Redis has not seen yet.
    waiting: Vec<usize>,
}

struct Search<'s> {
    both: &'s [Limit; 2],
    ledger: &'s Ledger,
    events: &'s [Event],
}

impl Search<'_> {
    /// All that may have been until after these answers, which have one instant.
    ///
    /// # Errors
    /// Nothing explains them.
    fn follow<'a>(&self, trials: Vec<Trial>, group: &[&'a Answer]) -> Result<Vec<Trial>, String> {
        let now = group[0].at.as_micros();
        let trials: Vec<Trial> =
            trials.into_iter().flat_map(|trial| self.catch_up(trial, now)).collect();
        let mut open: Vec<(Trial, Vec<&'a Answer>)> =
            trials.iter().map(|trial| (trial.clone(), group.to_vec())).collect();
        let mut next = 0;
        while let Some((trial, left)) = open.get(next).cloned() {
            next += 1;
            let mut add = |trial: Trial, left: Vec<&'a Answer>| {
                let is_new = !open.iter().any(|(one, of)| *one == trial && is_same(of, &left));
                if is_new {
                    open.push((trial, left));
                }
            };
            for (at, answer) in left.iter().enumerate() {
                if let Some(trial) = self.explains(&trial, answer) {
                    let mut left = left.clone();
                    left.remove(at);
                    add(trial, left);
                }
            }
            for at in trial.waiting.iter().filter(|_| !left.is_empty()) {
                if self.events[*at].from <= now {
                    self.with(&trial, *at).into_iter().for_each(|trial| add(trial, left.clone()));
                }
            }
        }
        let done: Vec<Trial> =
            open.into_iter().filter(|(_, left)| left.is_empty()).map(|(trial, _)| trial).collect();
        if done.is_empty() {
            return Err(self.why_not(&trials, group));
        }
        Ok(done)
    }

    /// The trial with all that must have happened before `now`.
    fn catch_up(&self, trial: Trial, now: u64) -> Vec<Trial> {
        let due = trial.waiting.iter().copied().find(|at| self.events[*at].until < now);
        match due {
            None => vec![trial],
            Some(due) => {
                let next = self.with(&trial, due).into_iter();
                next.flat_map(|trial| self.catch_up(trial, now)).collect()
            }
        }
    }

    /// What may be after an event.
    fn with(&self, trial: &Trial, event: usize) -> Vec<Trial> {
        let mut next = trial.clone();
        next.waiting.retain(|waiting| *waiting != event);
        let entry = match self.events[event].kind {
            EventKind::Reset => {
                next.taken = Default::default();
                return vec![next];
            }
            EventKind::GivenBack(entry) => entry,
        };
        let admission = &self.ledger.admissions[entry];
        let (limit, units) = (admission.limit.1, u64::from(admission.units));
        let taken = &mut next.taken[limit];
        let is_counted = taken.iter().any(|taken| taken.entry == entry);
        // A log and leases know each charge. A window has one number for all of its units.
        let Some(window) = self.window(limit) else {
            taken.retain(|taken| taken.entry != entry);
            return vec![next];
        };
        let mut reduced = next.clone();
        let own_window = admission.at.as_micros() / window;
        reduced.taken[limit].sort_by_key(|taken| taken.entry == entry);
        reduce(&mut reduced.taken[limit], units, |taken| taken.at / window == own_window);
        reduced.taken[limit].sort_by_key(|taken| taken.at);
        // If it was reset meanwhile, it may be subtracted from what came later all the same.
        match is_counted || reduced == next {
            true => vec![reduced],
            false => vec![next, reduced],
        }
    }

    /// The length of the windows of a limit, in microseconds, if it has such windows.
    fn window(&self, limit: usize) -> Option<u64> {
        let quota = &self.both[limit].quota;
        matches!(quota, Quota::FixedWindow(_) | Quota::SlidingWindow(_)).then(|| length(quota))
    }

    /// What is counted after an answer; none if it cannot be the answer.
    fn explains(&self, trial: &Trial, answer: &Answer) -> Option<Trial> {
        let now = answer.at.as_micros();
        let cost = u64::from(answer.cost);
        let list = |at: usize, trial: &Trial| -> Vec<Taken> { trial.taken[at].clone() };
        let fits = |at: &usize| List::new(&self.both[*at].quota, &list(*at, trial)).fits(cost, now);
        let admits = answer.which.iter().all(fits);
        if admits != (answer.verdict == Verdict::Allow) {
            return None;
        }
        let mut next = trial.clone();
        if admits {
            for (at, entry) in answer.which.iter().zip(answer.first_admission..) {
                let units = cost;
                next.taken[*at].push(Taken { at: now, units, entry });
            }
        }
        for (at, outcome) in answer.which.iter().zip(&answer.outcomes) {
            let quota = &self.both[*at].quota;
            let standing = &outcome.standing;
            let before = List::new(quota, &trial.taken[*at]);
            let after = List::new(quota, &next.taken[*at]);
            let used = after.used(now);
            let limit = u64::from(standing.limit);
            let retry = match (before.fits(cost, now), before.retry(cost, now)) {
                (true, _) => Retry::Now,
                (false, None) => Retry::Never,
                (false, Some(at)) => Retry::At(tollgate_clock::Timestamp::from_micros(at)),
            };
            let is_right = u64::from(standing.used) == used
                && u64::from(standing.remaining) == limit.saturating_sub(used)
                && standing.reset.as_micros() == after.reset(now)
                && standing.retry == retry;
            if !is_right {
                return None;
            }
        }
        Some(next)
    }

    fn why_not(&self, trials: &[Trial], group: &[&Answer]) -> String {
        let answers: Vec<String> = group.iter().map(|answer| answer.to_string()).collect();
        let now = group[0].at.as_micros();
        let cost = u64::from(group[0].cost);
        let computed = |trial: &Trial| {
            let of_limit = |(limit, taken): (&Limit, &Vec<Taken>)| {
                let list = List::new(&limit.quota, taken);
                let [used, reset] = [list.used(now), list.reset(now)];
                let fits = list.fits(cost, now);
                format!("{}: {used} used, whole at {reset}, {cost} fits: {fits}", limit.name)
            };
            self.both.iter().zip(&trial.taken).map(of_limit).collect::<Vec<_>>()
        };
        let computed: Vec<_> = trials.iter().map(computed).collect();
        format!("no order of calls explains {answers:?}; before them it was one of {computed:?}")
    }
}

/// Subtracts units from what was taken last of what `is_meant`.
fn reduce(taken: &mut Vec<Taken>, mut units: u64, is_meant: impl Fn(&Taken) -> bool) {
    for last in taken.iter_mut().rev().filter(|taken| is_meant(taken)) {
        let less = units.min(last.units);
        last.units -= less;
        units -= less;
    }
    taken.retain(|taken| taken.units > 0);
}

fn is_same(one: &[&Answer], other: &[&Answer]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| std::ptr::eq(*one, *other))
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Answer { caller, which, cost, proxy, at, verdict, .. } = self;
        let standings: Vec<String> = self
            .outcomes
            .iter()
            .map(|outcome| {
                let standing = &outcome.standing;
                let (used, reset) = (standing.used, standing.reset.as_micros());
                format!("{used} used, whole at {reset}, retry {:?}", standing.retry)
            })
            .collect();
        let at = at.as_micros();
        write!(
            f,
            "proxy {proxy}: caller {caller} {which:?} cost {cost}: {verdict:?} at {at}, {standings:?}"
        )
    }
}
