//! Waiting until a charge fits, in the order of arrival for a key.
//!
//! A waiter sleeps until the limit has room, and is not woken for nothing: only the first of a line
//! asks the store. Lines are of this process, and bounded.

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
use tollgate_limit::{Charge, Decision, Outcome, Retry, Stance, Verdict};

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

/// How long the first of a line sleeps at most where another process may give back at any time.
const LEASE_PAUSE: Duration = Duration::from_millis(500);

/// What timers are late by on a busy machine.
const TIMER_LATENESS: Duration = Duration::from_millis(10);

impl Store {
    /// Takes all `charges` or none; if they do not fit, waits for that, for at most `wait`.
    ///
    /// # Errors
    /// As of [`Store::charge`].
    pub async fn charge_in_turn(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        clock: &Clock,
        wait: Duration,
    ) -> Result<Decision, StoreError> {
        let place = match charges.first() {
            Some(first) if !wait.is_zero() => self.stores.waiting.join(first.key.entry),
            _ => None,
        };
        let Some(place) = place else { return self.charge(charges, clock.now()).await };
        let deadline = Instant::now() + wait;
        while !place.is_first() {
            if timeout_at(deadline, place.news.notified()).await.is_err() {
                break;
            }
        }
        let mut due = None;
        loop {
            let now = punctual(clock.now(), due);
            let decision = self.charge(charges, now).await?;
            let pause = match decision.verdict {
                Verdict::Allow => return Ok(decision),
                Verdict::Deny => pause(charges, &decision),
            };
            let Some(pause) = pause.filter(|_| Instant::now() < deadline) else {
                return Ok(decision);
            };
            due = Some(now + pause);
            let until = deadline.min(Instant::now() + pause);
            // Either way it is worth another try.
            let _ = timeout_at(until, place.news.notified()).await;
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

    /// None: too many wait already.
    fn join(&self, key: u128) -> Option<Place> {
        let lines = &mut *self.0.lock();
        let has_room = lines.waiting < MAX_WAITING
            && lines.by_key.get(&key).is_none_or(|line| line.len() < MAX_IN_LINE);
        if !has_room {
            return None;
        }
        lines.waiting += 1;
        lines.next_id += 1;
        let (id, news) = (lines.next_id, Arc::<Notify>::default());
        let waiter = Waiter { id, news: Arc::clone(&news) };
        lines.by_key.entry(key).or_default().push_back(waiter);
        Some(Place { lines: Arc::clone(&self.0), key, id, news })
    }
}

impl Place {
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

/// How long to sleep before charges that were denied may fit; none: they never will.
fn pause(charges: &[Charge<'_>], decision: &Decision) -> Option<Duration> {
    let denying = |(charge, outcome): &(&Charge<'_>, &Outcome)| {
        charge.stance == Stance::Enforce && !outcome.fits()
    };
    let mut longest = Duration::ZERO;
    for (charge, outcome) in charges.iter().zip(&decision.outcomes).filter(denying) {
        let pause = match outcome.standing.retry {
            Retry::Never => return None,
            Retry::Now => Duration::ZERO,
            Retry::At(instant) => instant.saturating_since(decision.now),
        };
        let most = if charge.quota.holds_leases() { LEASE_PAUSE } else { Duration::MAX };
        longest = longest.max(pause.min(most));
    }
    Some(longest)
}

/// When to charge after waiting until `due`: then, if the timer was only a little late.
///
/// Else the lateness of timers would add up, and a line would move slower than the limit allows.
fn punctual(now: Timestamp, due: Option<Timestamp>) -> Timestamp {
    due.filter(|due| *due <= now && now.saturating_since(*due) <= TIMER_LATENESS).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_moves_on_when_its_first_leaves_and_ends_with_its_last() {
        let lines = WaitingLines::default();
        let [first, second, other] = [1, 1, 2].map(|key| lines.join(key).unwrap());
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
        let one: Vec<Place> = (0..MAX_IN_LINE).map_while(|_| lines.join(1)).collect();
        assert!(one.len() == MAX_IN_LINE && lines.join(1).is_none());
        let all: Vec<Place> = (2..).map_while(|key| lines.join(key)).collect();
        assert_eq!(one.len() + all.len(), MAX_WAITING);
        drop(one);
        assert!(lines.join(1).is_some());
    }
}
