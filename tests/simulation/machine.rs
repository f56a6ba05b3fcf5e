//! The clock of a machine: it may be off, go too fast or too slowly, and be set.

use std::sync::{Arc, Mutex};

use tokio::{runtime::Handle, time::Instant};
use tollgate_clock::{Clock, SimulatedClock, Timestamp};

/// When simulations begin, by a clock that is right.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_790_000_000);

/// A clock that two machines share if it is cloned.
#[derive(Clone)]
pub(crate) struct MachineClock(Arc<Mutex<Setting>>);

/// What the clock said at some instant, and how fast it has gone since.
#[derive(Clone, Copy)]
struct Setting {
    at: Instant,
    said: Timestamp,
    /// Microseconds that it gains in a second.
    gain: i64,
    /// What the simulation has read last.
    read: Timestamp,
}

impl Setting {
    fn now(&self) -> Timestamp {
        let passed = self.at.elapsed();
        let gained = passed.as_micros() as i64 * self.gain / 1_000_000;
        (self.said + passed).saturating_add_signed(gained)
    }
}

impl MachineClock {
    /// A clock that is right now.
    pub(crate) fn new(begun: Instant) -> Self {
        let said = START + begun.elapsed();
        let setting = Setting { at: Instant::now(), said, gain: 0, read: said };
        MachineClock(Arc::new(Mutex::new(setting)))
    }

    /// The present instant. The threads of a disk know no simulated time: to them it is as late as
    /// when the simulation, which waits for them in place, has asked last.
    pub(crate) fn now(&self) -> Timestamp {
        let mut setting = self.0.lock().unwrap();
        if Handle::try_current().is_ok() {
            setting.read = setting.now();
        }
        setting.read
    }

    /// Sets it ahead by so many milliseconds, or back if they are negative.
    pub(crate) fn step(&self, millis: i64) {
        self.change(|setting| setting.said = setting.said.saturating_add_signed(millis * 1000));
    }

    /// Lets it gain so many microseconds in each second.
    pub(crate) fn drift(&self, gain: i64) {
        self.change(|setting| setting.gain = gain);
    }

    fn change(&self, change: impl FnOnce(&mut Setting)) {
        let mut setting = self.0.lock().unwrap();
        let said = setting.now();
        *setting = Setting { at: Instant::now(), said, ..*setting };
        change(&mut setting);
        setting.read = setting.now();
    }

    /// The same for a store.
    pub(crate) fn as_clock(&self) -> Clock {
        let clock = self.clone();
        Clock::Simulated(SimulatedClock(Arc::new(move || clock.now())))
    }
}
