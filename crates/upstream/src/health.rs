//! The health of a server by its probes: good until so many probes in a row have failed, then bad
//! until so many have succeeded.

mod probe;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

pub(super) use self::probe::Probe;
pub use self::probe::ProbeError;
use tollgate_policy::HealthCheck;

/// The health of a member, and its latest probe results.
#[derive(Debug)]
pub(super) struct Health {
    is_good: AtomicBool,
    pulse: Mutex<Pulse>,
}

#[derive(Debug, Default)]
struct Pulse {
    /// When the next probe is due; `None` before the first is scheduled.
    due: Option<Instant>,
    /// When the probe that is still running began.
    probed: Option<Instant>,
    /// Results in a row that contradict the present health.
    contrary: u32,
}

/// First probes are spread over this time, so that not all servers are probed at once.
const SPREAD: Duration = Duration::from_secs(1);

impl Default for Health {
    /// Good until a probe fails: requests need not wait for the first result.
    fn default() -> Self {
        Health { is_good: AtomicBool::new(true), pulse: Mutex::default() }
    }
}

impl Health {
    /// Whether the member may get requests.
    pub(super) fn is_good(&self) -> bool {
        self.is_good.load(Ordering::Relaxed)
    }

    /// Whether a probe is due now; if so, the caller must run it. `chance` is a random number.
    pub(super) fn begin_if_due(&self, now: Instant, chance: u64, check: &HealthCheck) -> bool {
        let mut pulse = self.pulse.lock();
        // Never two probes at once, however long one may take. After its result, the next may come
        // earlier.
        let next = now + check.interval.max(check.timeout);
        let due = pulse.due.unwrap_or_else(|| {
            let spread = check.interval.min(SPREAD).as_millis();
            let late = u128::from(chance) % spread.max(1);
            now + Duration::from_millis(u64::try_from(late).unwrap_or_default())
        });
        let is_due = due <= now;
        if is_due {
            pulse.probed = Some(now);
        }
        // The interval may have become shorter.
        pulse.due = Some(if is_due { next } else { due.min(next) });
        is_due
    }

    /// Records a probe's result. True if it changes the health.
    pub(super) fn note(&self, is_good: bool, check: &HealthCheck) -> bool {
        let mut pulse = self.pulse.lock();
        if let Some(probed) = pulse.probed.take() {
            pulse.due = Some(probed + check.interval);
        }
        if is_good == self.is_good() {
            pulse.contrary = 0;
            return false;
        }
        pulse.contrary = pulse.contrary.saturating_add(1);
        let needed = if is_good { check.healthy_after } else { check.unhealthy_after };
        let is_changing = pulse.contrary >= needed.get();
        if is_changing {
            pulse.contrary = 0;
            self.is_good.store(is_good, Ordering::Relaxed);
        }
        is_changing
    }

    /// Resets to good when probing ends.
    pub(super) fn forget(&self) {
        *self.pulse.lock() = Pulse::default();
        self.is_good.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tollgate_policy::Statuses;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn check() -> HealthCheck {
        HealthCheck {
            path: "/".into(),
            host: None,
            interval: 5 * SECOND,
            timeout: 2 * SECOND,
            healthy_after: 2.try_into().unwrap(),
            unhealthy_after: 3.try_into().unwrap(),
            statuses: Statuses::default(),
        }
    }

    #[test]
    fn health_changes_after_results_in_a_row() {
        let health = Health::default();
        let answers = [
            (false, true),
            (false, true),
            (true, true),
            (false, true),
            (false, true),
            (false, false),
            (true, false),
            (false, false),
            (true, false),
            (true, true),
        ];
        for (at, (answer, expected)) in answers.into_iter().enumerate() {
            let before = health.is_good();
            assert_eq!(health.note(answer, &check()), before != expected, "answer {at}");
            assert_eq!(health.is_good(), expected, "answer {at}");
        }
    }

    #[test]
    fn first_probe_comes_soon_and_others_at_intervals() {
        let health = Health::default();
        let check = check();
        let start = Instant::now();
        assert!(!health.begin_if_due(start, 700, &check));
        assert!(!health.begin_if_due(start + Duration::from_millis(699), 0, &check));
        let first = start + Duration::from_millis(700);
        assert!(health.begin_if_due(first, 0, &check));
        assert!(!health.begin_if_due(first, 0, &check));
        assert!(!health.begin_if_due(first + 4 * SECOND, 0, &check));
        assert!(health.begin_if_due(first + 5 * SECOND, 0, &check));
    }

    #[test]
    fn next_probe_waits_for_the_result_or_the_timeout() {
        let health = Health::default();
        let start = Instant::now();
        let often = HealthCheck { interval: SECOND, ..check() };
        assert!(health.begin_if_due(start, 0, &often));
        assert!(!health.begin_if_due(start + SECOND, 0, &often));
        health.note(true, &often);
        assert!(health.begin_if_due(start + SECOND, 0, &often));
        assert!(!health.begin_if_due(start + 2 * SECOND, 0, &often));
        assert!(health.begin_if_due(start + 3 * SECOND, 0, &often));
    }

    #[test]
    fn shorter_interval_holds_at_once() {
        let health = Health::default();
        let start = Instant::now();
        assert!(health.begin_if_due(start, 0, &check()));
        let sooner = HealthCheck { interval: SECOND, ..check() };
        assert!(!health.begin_if_due(start, 0, &sooner));
        assert!(health.begin_if_due(start + 2 * SECOND, 0, &sooner));
    }

    #[test]
    fn member_without_probes_is_good() {
        let health = Health::default();
        for _ in 0..3 {
            health.note(false, &check());
        }
        assert!(!health.is_good());
        health.forget();
        assert!(health.is_good());
    }
}
