//! What a connection is in the middle of, as far as time is concerned.

use std::time::Duration;

use super::reading::Reading;
use crate::{deadline::Deadline, downstream::Writing, settings::Timeouts};

/// What a connection is in the middle of. A number tells one from the next of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Waiting for the next request, after so many.
    Idle { served: u64 },
    /// A head has begun, after so many.
    Head { number: u64 },
    /// A request is being served; it has deadlines of its own.
    Busy,
    /// The client does not read what it asked for.
    Stalled(u64),
    /// All was said, and what the client still sends is thrown away, so that it reads that.
    Lingering,
}

/// What is known about how a client reads, and what that changes.
pub(super) struct Reader<'c> {
    pub(super) reading: &'c mut Reading,
    pub(super) writing: &'c Writing,
    pub(super) deadline: &'c Deadline,
    pub(super) timeouts: &'c Timeouts,
}

/// How long the last words to a client may take, and how long it may take to hear them.
pub(in crate::server) const LAST_WORDS: Duration = Duration::from_secs(2);

impl Step {
    /// Goes on from here to what is `next`, and sets what time there is for that; `idle` is how long
    /// the protocol lets a connection wait for its next request.
    pub(super) fn go_on_to(&mut self, next: Step, reader: Reader<'_>, idle: Duration) {
        let Reader { reading, writing, deadline, timeouts } = reader;
        let now = deadline.ticker().now();
        if let Step::Stalled(_) = self {
            reading.end_to_wait(now, writing.bytes(), timeouts);
        }
        *self = next;
        match next {
            // Who has not sent a request yet has no connection to keep.
            Step::Idle { served: 0 } => deadline.set(idle.min(timeouts.head)),
            Step::Idle { .. } => deadline.set(idle),
            Step::Head { .. } => deadline.set(timeouts.head),
            Step::Busy => deadline.clear(),
            Step::Stalled(_) => {
                deadline.set(reading.begin_to_wait(now, writing.bytes(), timeouts));
            }
            Step::Lingering => deadline.set(LAST_WORDS),
        }
    }
}
