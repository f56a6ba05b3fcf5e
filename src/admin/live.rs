//! The figures of the dashboard, live: an event a second for all who listen, and the last hour in
//! steps of five seconds.
//!
//! Steps are kept whether somebody listens or not. Both are made on the thread of the admin
//! listener, from the sums of what workers count: requests notice nothing of it.

mod counts;
mod report;
mod steps;
mod stream;

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, MissedTickBehavior, interval},
};

use self::{
    counts::{CountTotals, Recent},
    steps::Steps,
};
use super::Context;

pub(super) use self::{
    report::{History, LiveReport},
    stream::{EventBody, EventStream, Progress},
};

/// Time between two events.
const PAUSE: Duration = Duration::from_secs(1);

/// How many may listen at once. Half of the connections that the admin listener has: who listens
/// keeps nobody from asking.
const MAX_LISTENERS: usize = 16;

/// What is known of the last hour, and who listens to what comes.
pub(super) struct Live {
    events: watch::Sender<Bytes>,
    /// One permit a listener.
    seats: Arc<Semaphore>,
    observations: Mutex<Observations>,
}

/// What was observed so far.
struct Observations {
    steps: Steps,
    recent: Recent,
    /// How many events were made.
    events: u64,
    /// When the last one was.
    latest: Option<Instant>,
}

impl Live {
    /// From now on.
    pub(super) fn new(context: &Context) -> Live {
        let now = Instant::now();
        let counted = CountTotals::of(&context.shared);
        let observations = Observations {
            steps: Steps::new(now),
            recent: Recent::new(now, counted),
            events: 0,
            latest: None,
        };
        Live {
            events: watch::Sender::new(Bytes::new()),
            seats: Arc::new(Semaphore::new(MAX_LISTENERS)),
            observations: Mutex::new(observations),
        }
    }

    /// Observes, until this is dropped.
    pub(super) async fn run(&self, context: &Context) -> Infallible {
        let mut ticks = interval(PAUSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let is_due = self.observations.lock().steps.is_due(Instant::now());
            let is_heard = self.events.receiver_count() > 0;
            if is_due || is_heard {
                let event = self.observe(context, is_heard);
                event.into_iter().for_each(|event| drop(self.events.send(event)));
            }
        }
    }

    /// The events from now on, the first of them at once. None: too many listen already.
    pub(super) fn listen(&self, context: &Context) -> Option<EventStream> {
        let seat = Arc::clone(&self.seats).try_acquire_owned().ok()?;
        let receiver = self.events.subscribe();
        let is_recent = self
            .observations
            .lock()
            .latest
            .is_some_and(|latest| latest.elapsed() < PAUSE + PAUSE / 2);
        if !is_recent && let Some(event) = self.observe(context, true) {
            let _ = self.events.send(event);
        }
        Some(stream::of(receiver, seat))
    }

    /// The last hour.
    pub(super) fn history(&self, context: &Context) -> History {
        History::of(&self.observations.lock().steps, context)
    }

    /// Counts what there was meanwhile. The event about it, if it is wanted.
    fn observe(&self, context: &Context, is_heard: bool) -> Option<Bytes> {
        let counted = CountTotals::of(&context.shared);
        let mut observations = self.observations.lock();
        let Observations { steps, recent, events, latest } = &mut *observations;
        let now = Instant::now();
        steps.take(now, &counted);
        recent.take(now, counted);
        if !is_heard {
            return None;
        }
        *events += 1;
        *latest = Some(now);
        let report = LiveReport::of(context, steps, recent);
        // What is serialized here has no maps with keys that are no text, and cannot fail.
        let text = serde_json::to_string(&report).unwrap_or_default();
        Some(Bytes::from(format!("id: {events}\nevent: live\ndata: {text}\n\n")))
    }
}
