//! The phase of a connection that decides which timeout applies.

use std::time::Duration;

use tollgate_clock::deadline::Deadline;
use tollgate_settings::Timeouts;
use tollgate_upstream::downstream::Writing;

use super::read_rate::ReadRate;
use crate::server::socket::CLOSE_TIMEOUT;

/// The phase of a connection. The numbers make consecutive phases of one kind differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Waiting for the next request, after `served` requests.
    Idle { served: u64 },
    /// A request head has begun; `number` counts heads.
    Head { number: u64 },
    /// A request is being served; it has deadlines of its own.
    Busy,
    /// The client does not read the response.
    Stalled(u64),
    /// The last response was written. Bytes that the client still sends are discarded: closing a
    /// socket with unread bytes would reset the connection and could lose that response.
    Lingering,
}

/// The state that a change of [`Step`] reads and updates.
pub(super) struct Reader<'c> {
    pub(super) read_rate: &'c mut ReadRate,
    pub(super) writing: &'c Writing,
    pub(super) deadline: &'c Deadline,
    pub(super) timeouts: &'c Timeouts,
}

impl Step {
    /// Changes to `next` and sets its deadline; `idle` is how long a connection of this protocol
    /// may wait for its next request.
    pub(super) fn go_on_to(&mut self, next: Step, reader: Reader<'_>, idle: Duration) {
        let Reader { read_rate, writing, deadline, timeouts } = reader;
        let now = deadline.ticker().now();
        if let Step::Stalled(_) = self {
            read_rate.end_to_wait(now, writing.bytes(), timeouts);
        }
        *self = next;
        match next {
            // A connection without a first request is not kept alive.
            Step::Idle { served: 0 } => deadline.set(idle.min(timeouts.head)),
            Step::Idle { .. } => deadline.set(idle),
            Step::Head { .. } => deadline.set(timeouts.head),
            Step::Busy => deadline.clear(),
            Step::Stalled(_) => {
                deadline.set(read_rate.begin_to_wait(now, writing.bytes(), timeouts));
            }
            Step::Lingering => deadline.set(CLOSE_TIMEOUT),
        }
    }
}
