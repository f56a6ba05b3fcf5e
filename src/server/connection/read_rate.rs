//! How fast a client reads the response bytes that wait for it.

use std::time::Duration;

use tollgate_clock::deadline::Arrears;
use tollgate_settings::Timeouts;

/// How far a client is behind the least rate at which it has to read.
///
/// Only time in which bytes wait for the client counts: a slow upstream or a quiet event stream is
/// not held against the client.
#[derive(Default)]
pub(super) struct ReadRate {
    arrears: Arrears,
    /// The tick since which bytes wait for the client.
    since: Option<u32>,
    /// Bytes that the client had read when they were last counted.
    counted: u64,
}

impl ReadRate {
    /// Bytes begin to wait for the client, which has read `bytes` in all. Returns how long they
    /// may.
    pub(super) fn begin_to_wait(&mut self, now: u32, bytes: u64, timeouts: &Timeouts) -> Duration {
        self.end_to_wait(now, bytes, timeouts);
        self.since = Some(now);
        match &timeouts.response_rate {
            Some(rate) => timeouts.response.min(self.arrears.left(rate)),
            None => timeouts.response,
        }
    }

    /// No bytes wait for the client any more.
    pub(super) fn end_to_wait(&mut self, now: u32, bytes: u64, timeouts: &Timeouts) {
        if let (Some(since), Some(rate)) = (self.since.take(), &timeouts.response_rate) {
            self.arrears.wait(now.saturating_sub(since), rate);
        }
        self.arrears.pay(bytes.wrapping_sub(self.counted));
        self.counted = bytes;
    }
}
