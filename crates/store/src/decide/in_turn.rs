//! Waiting until a charge fits, in the order of arrival for a key.
//!
//! A waiter stands in the line of the limit that denies it, sleeps until that has room, and is not
//! woken for nothing: only the first of a line asks the store. What cannot come in time is denied
//! at once, so that nobody stands at the head of a line in vain. Lines are of this process, and
//! bounded, also for one of several tenants who share a limit.

use std::{
    collections::{HashMap, VecDeque},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use tollgate_clock::{Clock, Timestamp};
use tollgate_limit::{Charge, DecidedBy, Decision, Outcome, Retry, Stance, Verdict};

use crate::{Store, StoreError};

/// Who waits, of all keys. One for the whole process.
#[derive(Default)]
pub struct WaitingLines(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    by_key: HashMap<u128, VecDeque<Waiter>>,
    /// Those of all lines.
    waiting: usize,
    next_id: u64,
}

struct Waiter {
    id: u64,
    /// Another owner that it charges, besides the line's own: in a line that many share, whose
    /// place this is.
    tenant: Option<u128>,
    /// Notified when it has become the first, or units were given back.
    news: Arc<Notify>,
}

/// A place in a line, until it is dropped.
struct Place {
    lines: Arc<Mutex<Lines>>,
    key: u128,
    id: u64,
    news: Arc<Notify>,
}

/// Those that may wait at once, for all keys and for one.
const MAX_WAITING: usize = 10_000;
const MAX_IN_LINE: usize = 1000;

/// Those of one tenant that may wait for a key that it shares, and those that may wait for any key
/// while half of all places are taken.
const MAX_OF_ONE: usize = 100;

/// How long the first of a line sleeps at most where another process may give back at any time.
const LEASE_PAUSE: Duration = Duration::from_millis(500);

/// What timers are late by on a busy machine.
const TIMER_LATENESS: Duration = Duration::from_millis(10);

impl Store {
    /// Takes all `charges` or none; if they do not fit, waits for that, for at most `wait`. What
    /// will not fit by then is denied at once.
    ///
    /// # Errors
    /// As of [`Store::charge`].
    pub async fn charge_in_turn(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        clock: &Clock,
        wait: Duration,
    ) -> Result<Decision, StoreError> {
        if wait.is_zero() {
            return self.charge(charges, clock.now()).await;
        }
        let deadline = Instant::now() + wait;
        let lines = &self.stores.waiting;
        let mut place = None;
        // Those that wait for one of the keys came before.
        if let Some(key) = lines.joined_by(charges) {
            if self.is_hopeless(charges, clock.now(), wait).await {
                return self.charge(charges, clock.now()).await;
            }
            place = lines.join(key, charges);
            if place.is_none() {
                return self.charge(charges, clock.now()).await;
            }
        }
        let mut due = None;
        loop {
            if let Some(place) = &place {
                place.wait_for_turn(deadline).await;
            }
            let now = punctual(clock.now(), due.take());
            let decision = self.charge(charges, now).await?;
            let denial = match decision.verdict {
                Verdict::Allow => return Ok(decision),
                Verdict::Deny => Denial::of(charges, &decision),
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(Denial { key, pause }) = denial.filter(|denial| denial.ends_within(left))
            else {
                return Ok(decision);
            };
            let own = match place.take().filter(|own| own.key == key) {
                Some(own) => own,
                None => match lines.join(key, charges) {
                    Some(joined) => joined,
                    None => return Ok(decision),
                },
            };
            if own.is_first() {
                let pause = pause.time();
                due = Some(now + pause);
                let until = deadline.min(Instant::now() + pause);
                // Either way it is worth another try.
                let _ = timeout_at(until, own.news.notified()).await;
            }
            place = Some(own);
        }
    }

    /// Whether charges that have to wait for others will not fit in time even so.
    async fn is_hopeless(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        now: Timestamp,
        wait: Duration,
    ) -> bool {
        let mut decision = self.peek(charges, now).await;
        for (charge, outcome) in charges.iter().zip(&mut decision.outcomes) {
            let standing = &mut outcome.standing;
            let is_known = outcome.decided_by != DecidedBy::NoStore;
            if is_known && charge.takes() && standing.remaining < charge.cost {
                standing.retry = charge.quota.foresee(standing, charge.cost, decision.now);
            }
        }
        let fits = |(charge, outcome): (&Charge<'_>, &Outcome)| {
            charge.stance == Stance::Observe || outcome.fits()
        };
        let all_fit = charges.iter().zip(&decision.outcomes).all(fits);
        !all_fit && !Denial::of(charges, &decision).is_some_and(|denial| denial.ends_within(wait))
    }
}

/// Why charges wait: the limit that denies them for the longest time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Denial {
    key: u128,
    pause: Pause,
}

/// How long a limit will deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// Nobody knows: until a slot is given back.
    Unknown,
    /// For so long.
    Known(Duration),
}

impl Pause {
    /// How long to sleep.
    fn time(self) -> Duration {
        match self {
            Pause::Unknown => LEASE_PAUSE,
            Pause::Known(pause) => pause,
        }
    }
}

impl Denial {
    /// Why charges were denied; none: they never will fit.
    fn of(charges: &[Charge<'_>], decision: &Decision) -> Option<Denial> {
        let denying = |(charge, outcome): &(&Charge<'_>, &Outcome)| {
            charge.stance == Stance::Enforce && !outcome.fits()
        };
        let mut longest: Option<Denial> = None;
        for (charge, outcome) in charges.iter().zip(&decision.outcomes).filter(denying) {
            let pause = match outcome.standing.retry {
                Retry::Never => return None,
                _ if charge.quota.holds_leases() => Pause::Unknown,
                Retry::Now => Pause::Known(Duration::ZERO),
                Retry::At(instant) => Pause::Known(instant.saturating_since(decision.now)),
            };
            if longest.is_none_or(|longest| pause.time() > longest.pause.time()) {
                longest = Some(Denial { key: charge.key.entry, pause });
            }
        }
        longest
    }

    /// Whether it may end within this time.
    fn ends_within(&self, left: Duration) -> bool {
        match self.pause {
            Pause::Unknown => !left.is_zero(),
            Pause::Known(pause) => pause <= left && !left.is_zero(),
        }
    }
}

impl WaitingLines {
    /// How many wait.
    pub fn number(&self) -> usize {
        self.0.lock().waiting
    }

    /// Tells the first of a key's line that units were given back.
    pub fn given_back(&self, key: u128) {
        if let Some(first) = self.0.lock().by_key.get(&key).and_then(VecDeque::front) {
            first.news.notify_one();
        }
    }

    /// The first of these keys that others wait for.
    fn joined_by(&self, charges: &[Charge<'_>]) -> Option<u128> {
        let lines = self.0.lock();
        let mut keys = charges.iter().map(|charge| charge.key.entry);
        keys.find(|key| lines.by_key.contains_key(key))
    }

    /// Joins the line of one of the keys of these charges. None: too many wait already.
    fn join(&self, key: u128, charges: &[Charge<'_>]) -> Option<Place> {
        let awaited = charges.iter().find(|charge| charge.key.entry == key);
        // Several limits, and several windows of one, may be about the same key.
        let is_other = |own: &u128| awaited.is_some_and(|awaited| *own != awaited.key.owner);
        let mut owners = charges.iter().map(|charge| charge.key.owner);
        self.join_as(key, owners.find(is_other))
    }

    fn join_as(&self, key: u128, tenant: Option<u128>) -> Option<Place> {
        let lines = &mut *self.0.lock();
        let most = if lines.waiting < MAX_WAITING / 2 { MAX_IN_LINE } else { MAX_OF_ONE };
        let has_room = |line: &VecDeque<Waiter>| {
            let own = line.iter().filter(|waiter| waiter.tenant == tenant);
            line.len() < most && (tenant.is_none() || own.count() < MAX_OF_ONE)
        };
        if lines.waiting >= MAX_WAITING || !lines.by_key.get(&key).is_none_or(has_room) {
            return None;
        }
        lines.waiting += 1;
        lines.next_id += 1;
        let (id, news) = (lines.next_id, Arc::<Notify>::default());
        let waiter = Waiter { id, tenant, news: Arc::clone(&news) };
        lines.by_key.entry(key).or_default().push_back(waiter);
        Some(Place { lines: Arc::clone(&self.0), key, id, news })
    }
}

impl Place {
    /// Waits until it is the first, or the deadline.
    async fn wait_for_turn(&self, deadline: Instant) {
        while !self.is_first() {
            if timeout_at(deadline, self.news.notified()).await.is_err() {
                return;
            }
        }
    }

    fn is_first(&self) -> bool {
        let lines = self.lines.lock();
        let first = lines.by_key.get(&self.key).and_then(VecDeque::front);
        first.is_none_or(|first| first.id == self.id)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let lines = &mut *self.lines.lock();
        let Some(line) = lines.by_key.get_mut(&self.key) else { return };
        let before = line.len();
        line.retain(|waiter| waiter.id != self.id);
        lines.waiting = lines.waiting.saturating_sub(before - line.len());
        match line.front() {
            Some(first) => first.news.notify_one(),
            None => drop(lines.by_key.remove(&self.key)),
        }
    }
}

/// When to charge after waiting until `due`: then, if the timer was only a little late.
///
/// Else the lateness of timers would add up, and a line would move slower than the limit allows.
fn punctual(now: Timestamp, due: Option<Timestamp>) -> Timestamp {
    due.filter(|due| *due <= now && now.saturating_since(*due) <= TIMER_LATENESS).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use tollgate_limit::{AlgorithmKind, Key, LimitId, Quota};

    use super::*;

    #[test]
    fn line_moves_on_when_its_first_leaves_and_ends_with_its_last() {
        let lines = WaitingLines::default();
        let [first, second, other] = [1, 1, 2].map(|key| lines.join_as(key, None).unwrap());
        assert!(first.is_first() && !second.is_first() && other.is_first());
        drop(first);
        assert!(second.is_first());
        drop((second, other));
        let lines = lines.0.lock();
        assert!(lines.by_key.is_empty() && lines.waiting == 0);
    }

    #[test]
    fn charge_is_made_for_the_time_that_was_slept_until_unless_a_timer_was_very_late() {
        let at = Timestamp::from_micros;
        assert_eq!(punctual(at(5_000_900), None), at(5_000_900));
        assert_eq!(punctual(at(5_002_300), Some(at(5_000_000))), at(5_000_000));
        assert_eq!(punctual(at(5_020_000), Some(at(5_000_000))), at(5_020_000));
        // Woken early, since units were given back.
        assert_eq!(punctual(at(4_900_000), Some(at(5_000_000))), at(4_900_000));
    }

    #[test]
    fn lines_are_bounded() {
        let lines = WaitingLines::default();
        let one: Vec<Place> = (0..MAX_IN_LINE).map_while(|_| lines.join_as(1, None)).collect();
        assert!(one.len() == MAX_IN_LINE && lines.join_as(1, None).is_none());
        let all: Vec<Place> = (2..).map_while(|key| lines.join_as(key, None)).collect();
        assert_eq!(one.len() + all.len(), MAX_WAITING);
        drop(one);
        assert!(lines.join_as(1, None).is_some());
    }

    #[test]
    fn tenant_takes_few_places_in_a_line_that_it_shares() {
        let lines = WaitingLines::default();
        let of = |tenant: u128| {
            let places = || lines.join_as(1, Some(tenant));
            std::iter::repeat_with(places).map_while(|place| place).collect::<Vec<Place>>()
        };
        let [first, second] = [7, 8].map(of);
        assert_eq!((first.len(), second.len()), (MAX_OF_ONE, MAX_OF_ONE));
    }

    #[test]
    fn other_windows_of_the_awaited_key_are_no_tenant() {
        let quota = Quota::plain(AlgorithmKind::FixedWindow, 5, Duration::from_secs(60)).unwrap();
        let charge = |owner: u128, window: u64| {
            let limit = LimitId::new("test", "a", "fixed_window", window);
            Charge::new(Key::new(owner, owner, limit), &quota, 1)
        };
        let shared = [charge(1, 60), charge(1, 3600)];
        let [of_one, of_another] = [7, 8].map(|tenant| [shared[0], shared[1], charge(tenant, 60)]);
        let lines = WaitingLines::default();
        let taken = |charges: &[Charge<'_>]| {
            let places = || lines.join(shared[0].key.entry, charges);
            std::iter::repeat_with(places).map_while(|place| place).collect::<Vec<Place>>()
        };
        let [first, second] = [taken(&of_one), taken(&of_another)];
        assert_eq!((first.len(), second.len()), (MAX_OF_ONE, MAX_OF_ONE));
        assert_eq!(taken(&shared).len(), MAX_IN_LINE - 2 * MAX_OF_ONE);
    }

    #[test]
    fn few_tenants_leave_places_to_others() {
        let lines = WaitingLines::default();
        let line = |key: u128| {
            let places = || lines.join_as(key, None);
            std::iter::repeat_with(places).map_while(|place| place).collect::<Vec<Place>>()
        };
        let many: Vec<Vec<Place>> = (0..12).map(line).collect();
        let lengths: Vec<usize> = many.iter().map(Vec::len).collect();
        assert_eq!(lengths, [[MAX_IN_LINE; 5].as_slice(), &[MAX_OF_ONE; 7]].concat());
    }
}
