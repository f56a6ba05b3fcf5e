//! Coarse deadlines: one timer a worker, instead of one a request.
//!
//! A deadline is set for nearly every step of every request and almost never met, so setting one
//! must cost no more than storing a number. A worker ticks ten times a second, looks at its
//! deadlines, and wakes those that have passed. They end up to a tick late and never early, which
//! is exact enough for seconds.

mod least_rate;

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    task::{Context, Waker},
    time::Duration,
};

pub use self::least_rate::{Arrears, LeastRate};

/// How far apart ticks are.
pub const TICK: Duration = Duration::from_millis(100);

const NEVER: u32 = u32::MAX;

/// A worker's clock of ticks, and the deadlines that hang on it.
pub struct Ticker {
    now: Cell<u32>,
    patience: Duration,
    body_rate: Option<LeastRate>,
    /// While it drains.
    drain: Cell<Option<DrainTimes>>,
    /// The tick at which tunnels end.
    last_call: Cell<u32>,
    timers: RefCell<Vec<Weak<Timer>>>,
}

/// How long a draining worker keeps connections that do not end by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainTimes {
    /// Connections without a request: one may be on its way.
    pub linger: Duration,
    /// Tunnels, which have no last request.
    pub tunnels: Duration,
}

/// One deadline, kept with a connection and set again for each step.
pub struct Deadline {
    timer: Rc<Timer>,
    ticker: Rc<Ticker>,
}

struct Timer {
    at: Cell<u32>,
    waker: RefCell<Option<Waker>>,
}

impl Timer {
    fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}

impl Ticker {
    /// At tick 0, with the rules for the bodies of requests: how long one may make no progress, and
    /// how fast it has to come on average, if that is bounded.
    pub fn new(patience: Duration, body_rate: Option<LeastRate>) -> Self {
        Ticker {
            now: Cell::new(0),
            patience,
            body_rate,
            drain: Cell::new(None),
            last_call: Cell::new(NEVER),
            timers: RefCell::default(),
        }
    }

    /// How long a client's body may make no progress.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// How fast it has to come, on average; none: as it likes.
    pub fn body_rate(&self) -> Option<&LeastRate> {
        self.body_rate.as_ref()
    }

    /// A deadline on this ticker, not set.
    pub fn deadline(self: &Rc<Self>) -> Deadline {
        let timer = Rc::new(Timer { at: Cell::new(NEVER), waker: RefCell::default() });
        self.timers.borrow_mut().push(Rc::downgrade(&timer));
        Deadline { timer, ticker: Rc::clone(self) }
    }

    /// Deadlines that there are.
    pub fn deadlines(&self) -> usize {
        self.timers.borrow().iter().filter(|timer| timer.strong_count() > 0).count()
    }

    /// Ticks since the worker started.
    pub fn now(&self) -> u32 {
        self.now.get()
    }

    /// Lets one tick pass and wakes the tasks whose deadline is now over.
    pub fn tick(&self) {
        let now = self.now.get().saturating_add(1);
        self.now.set(now);
        self.timers.borrow_mut().retain(|timer| {
            let Some(timer) = timer.upgrade() else { return false };
            if timer.at.get() <= now {
                timer.wake();
            }
            true
        });
    }

    /// Has every connection finish its requests and close. Those that would go on, such as tunnels,
    /// get the time that `times` allows.
    pub fn drain(&self, times: DrainTimes) {
        self.drain.set(Some(times));
        self.last_call.set(self.now().saturating_add(ticks(times.tunnels)));
        for timer in self.timers.borrow().iter().filter_map(Weak::upgrade) {
            timer.wake();
        }
    }

    /// Whether the worker is on its way out.
    pub fn is_draining(&self) -> bool {
        self.drain.get().is_some()
    }

    /// How long connections without a request are kept, if the worker is on its way out.
    pub fn linger(&self) -> Option<Duration> {
        self.drain.get().map(|times| times.linger)
    }

    /// How long tunnels are kept from now on, if the worker is on its way out.
    pub fn tunnels(&self) -> Option<Duration> {
        let left = self.last_call.get().saturating_sub(self.now());
        self.is_draining().then(|| TICK * left)
    }
}

impl Deadline {
    /// Sets it `after` from now, in place of what it was.
    pub fn set(&self, after: Duration) {
        // One more tick, because the present one has begun already.
        self.timer.at.set(self.ticker.now().saturating_add(ticks(after)).saturating_add(1));
    }

    /// Sets it `after` from now, unless it is sooner already.
    pub fn set_at_most(&self, after: Duration) {
        let before = self.timer.at.get();
        self.set(after);
        self.timer.at.set(self.timer.at.get().min(before));
    }

    /// Takes it off.
    pub fn clear(&self) {
        self.timer.at.set(NEVER);
    }

    /// Whether it has passed.
    pub fn has_passed(&self) -> bool {
        self.timer.at.get() <= self.ticker.now()
    }

    /// Whether it has passed. If not, the task will be woken when it does, and on drain.
    pub fn poll_passed(&self, context: &Context<'_>) -> bool {
        if self.has_passed() {
            return true;
        }
        let mut waker = self.timer.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        false
    }

    /// The ticker that it hangs on.
    pub fn ticker(&self) -> &Rc<Ticker> {
        &self.ticker
    }
}

/// So many ticks are at least as long as `time`.
fn ticks(time: Duration) -> u32 {
    // Of 64 bits: more milliseconds than that are for ever, and 128 are slow to divide.
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    u32::try_from(millis.div_ceil(TICK.as_millis() as u64)).unwrap_or(NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(deadline: &Deadline) -> bool {
        deadline.poll_passed(&Context::from_waker(Waker::noop()))
    }

    #[test]
    fn deadline_passes_after_its_time_and_not_before() {
        let ticker = Rc::new(Ticker::new(Duration::MAX, None));
        let deadline = ticker.deadline();
        deadline.set(Duration::from_millis(250));
        for _ in 0..3 {
            ticker.tick();
            assert!(!passed(&deadline));
        }
        ticker.tick();
        assert!(passed(&deadline));
        deadline.set(Duration::from_millis(250));
        assert!(!passed(&deadline));
        deadline.clear();
        (0..100).for_each(|_| ticker.tick());
        assert!(!passed(&deadline));
    }

    #[test]
    fn dropped_deadlines_are_forgotten() {
        let ticker = Rc::new(Ticker::new(Duration::MAX, None));
        drop(ticker.deadline());
        ticker.tick();
        assert!(ticker.timers.borrow().is_empty());
    }
}
