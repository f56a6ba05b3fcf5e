//! What is told once a second, for the whole process: what was counted meanwhile. However many
//! workers there are, a kind of it is one line.

use std::{convert::Infallible, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

use crate::{events::Events, gate::Shared};

const PAUSE: Duration = Duration::from_secs(1);

/// Reports for as long as this future is polled.
pub(super) async fn keep_reporting(shared: &Shared, events: &Events) -> Infallible {
    let mut ticks = interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        report(shared);
        events.tell_left_out();
    }
}

/// Logs the counts that have not been logged yet.
pub(super) fn report(shared: &Shared) {
    shared.stores.counts.report();
    shared.admission.faults().report();
}
