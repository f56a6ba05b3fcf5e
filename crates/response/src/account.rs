//! What is written down of a request when its response has ended.

use tollgate_observe::{access_log::Tail, metrics::RequestMeter, trace::EndingTrace};

/// Counts a request, and ends its line in the access log and its spans, when its response has
/// ended.
pub struct Account {
    meter: RequestMeter,
    /// The position of the request's route, if it takes one.
    route: Option<usize>,
    status: u16,
    /// Bytes of the response's body so far.
    sent: u64,
    /// None: the request has no line.
    tail: Option<Tail>,
    /// None: no spans of the request are exported.
    trace: Option<Box<EndingTrace>>,
}

impl Account {
    /// Of a request on the route at this position that is answered with `status`.
    pub fn new(meter: RequestMeter, route: Option<usize>, status: u16, tail: Option<Tail>) -> Self {
        Account { meter, route, status, sent: 0, tail, trace: None }
    }

    /// With these spans, which end when it does.
    #[must_use]
    pub fn with_trace(self, trace: Option<Box<EndingTrace>>) -> Self {
        Account { trace, ..self }
    }

    /// The line, if there is one.
    pub fn tail_mut(&mut self) -> Option<&mut Tail> {
        self.tail.as_mut()
    }

    /// Counts bytes of the response's body.
    pub(super) fn count_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Takes back the count of bytes that were not sent after all.
    pub(super) fn discount(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_sub(bytes as u64);
    }

    /// The response ended, or was broken off (`is_complete` is false).
    pub fn end(self, is_complete: bool) {
        let totals = self.meter.end(self.route, self.status, self.sent);
        if let Some(tail) = self.tail {
            tail.end(totals, is_complete);
        }
        if let Some(trace) = self.trace {
            trace.end(totals.time);
        }
    }
}
