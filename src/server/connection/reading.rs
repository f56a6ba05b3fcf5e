//! How fast a client takes what waits for it.

use std::time::Duration;

use crate::{deadline::Arrears, settings::Timeouts};

/// How far a client is behind with what it asked for.
///
/// Only time for which something waits for the client counts: an upstream may be as slow as it
/// likes, and a stream of events as quiet.
#[derive(Default)]
pub(super) struct Reading {
    arrears: Arrears,
    /// The tick since which something waits for it.
    since: Option<u32>,
    /// Bytes that it had taken when that was last counted.
    counted: u64,
}

impl Reading {
    /// Something waits for the client, who has taken `bytes` in all: how long that may wait.
    pub(super) fn begin_to_wait(&mut self, now: u32, bytes: u64, timeouts: &Timeouts) -> Duration {
        self.end_to_wait(now, bytes, timeouts);
        self.since = Some(now);
        match &timeouts.response_rate {
            Some(rate) => timeouts.response.min(self.arrears.left(rate)),
            None => timeouts.response,
        }
    }

    /// Nothing waits for it any more.
    pub(super) fn end_to_wait(&mut self, now: u32, bytes: u64, timeouts: &Timeouts) {
        if let (Some(since), Some(rate)) = (self.since.take(), &timeouts.response_rate) {
            self.arrears.wait(now.saturating_sub(since), rate);
        }
        self.arrears.pay(bytes.wrapping_sub(self.counted));
        self.counted = bytes;
    }
}
