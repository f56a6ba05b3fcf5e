//! Logs once a second what the process has counted meanwhile. Each kind of count is one line,
//! however many workers there are.

use std::{convert::Infallible, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use tollgate_gate::Shared;
use tollgate_observe::events::Events;

use crate::admin::Describer;

const PAUSE: Duration = Duration::from_secs(1);

/// Reports for as long as this future is polled.
pub(super) async fn keep_reporting(
    shared: &Shared,
    events: &Events,
    describer: &Describer,
) -> Infallible {
    let mut ticks = interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        report(shared);
        events.log_left_out();
        // Here, so that neither a request nor an idle hour has to do it.
        shared.series.callers.tidy(shared.clock.now());
        describer.tick();
    }
}

/// Logs the counts that have not been logged yet.
pub(super) fn report(shared: &Shared) {
    shared.stores.report_counts();
    shared.admission.faults().report();
}
