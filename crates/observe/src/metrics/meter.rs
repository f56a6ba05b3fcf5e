//! Counts one request from its beginning to the end of its response.

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

use super::{MethodLabel, PolicySeries};

/// Counts one request. It counts as in flight until [`RequestMeter::end`], or until this is
/// dropped.
pub struct RequestMeter {
    series: Rc<PolicySeries>,
    method: MethodLabel,
    started: Instant,
    /// Bytes of the request's body so far. None: there is no body, or it is not read.
    received: Option<Rc<Cell<u64>>>,
}

/// What a request has come to.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    /// Bytes of the request's body.
    pub received: u64,
    /// Bytes of the response's body.
    pub sent: u64,
    /// From the request's head to the end of the response.
    pub time: Duration,
}

impl RequestMeter {
    /// A request that came at `started`.
    pub fn begin(series: Rc<PolicySeries>, method: MethodLabel, started: Instant) -> RequestMeter {
        series.own.begun.increment();
        RequestMeter { series, method, started, received: None }
    }

    /// A count of the body's bytes, for the code that reads it.
    pub fn count_body(&mut self) -> Rc<Cell<u64>> {
        Rc::clone(self.received.insert(Rc::default()))
    }

    /// The counters of the request's policy.
    pub fn series(&self) -> &PolicySeries {
        &self.series
    }

    /// Counts a response with this status on the route at this position, with so many bytes in its
    /// body.
    pub fn end(self, route: Option<usize>, status: u16, sent: u64) -> Totals {
        let received = self.received.as_ref().map_or(0, |received| received.get());
        let time = self.started.elapsed();
        let policy = &self.series.own;
        policy.received.add(received);
        policy.sent.add(sent);
        let route = self.series.route(route);
        route.count(self.method, status);
        route.duration.record(time);
        Totals { received, sent, time }
    }
}

impl Drop for RequestMeter {
    fn drop(&mut self) {
        self.series.own.ended.increment();
    }
}
