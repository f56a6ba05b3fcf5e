//! Clocks that differ: proxies take turns, and each one uses its own clock.

use std::time::Duration;

use proptest::{prelude::*, test_runner::TestCaseError};

use super::{START, Subject, decide, history::History};
use crate::{MAX_SKEW, tolerated_skew};

/// The bound that an algorithm promises to the upstream that it protects.
pub(crate) trait Bounded: Subject {
    /// The most units that it admits in a time span, whatever came before, by a clock that never
    /// goes back.
    fn most(&self, span: Duration) -> u64;

    /// The window that decides how far apart clocks may be.
    fn window(&self) -> Duration;
}

/// Three clocks that differ by the tolerated skew take turns: the difference counts as elapsed time
/// once, however often they do.
pub(crate) fn prop_clocks_that_are_apart_count_once<S: Bounded>(
    subject: &S,
    history: &History,
) -> Result<(), TestCaseError> {
    const TURNS: usize = 400;
    let apart = tolerated_skew(subject.window()).mul_f64(history.behind.div_duration_f64(MAX_SKEW));
    let mut state = S::State::default();
    let mut time = START;
    let mut admitted = 0;
    for (turn, step) in history.unforced().iter().cycle().take(TURNS).enumerate() {
        time = time + step.advance / 100;
        let clock = (turn as u32 * 7 + step.cost) % 3;
        if decide(subject, &mut state, step.cost, time + apart * clock / 2).0 {
            admitted += u64::from(step.cost);
        }
        let most = subject.most(time.saturating_since(START) + apart);
        prop_assert!(admitted <= most, "{} of {} with clocks {:?} apart", admitted, most, apart);
    }
    Ok(())
}

/// The most units that the windows which overlap `span` admit together, at `limit` units each.
pub(crate) fn in_windows(limit: u32, window: Duration, span: Duration) -> u64 {
    let whole = span.as_micros() / window.as_micros().max(1);
    u64::from(limit) * (whole as u64 + 2)
}
