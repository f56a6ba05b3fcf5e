//! A request's share of what there is of connections, before it looks for one.

use std::{future::poll_fn, task::Poll, time::Duration};

use tollgate_policy::{Protocol, Upstream};

use super::Pool;
use crate::{
    UpstreamError,
    client_shares::{QueuedShare, Share, ShareOutcome},
    frames::MAX_STREAMS,
};

impl Pool {
    /// The right of a request of `client` to use one more connection or stream. Waits for it while
    /// others need what there is more.
    pub(crate) async fn share(
        &self,
        client: Option<u128>,
        upstream: &Upstream,
    ) -> Result<Share, UpstreamError> {
        let bounds = &upstream.bounds;
        match self.member.shares.take(client, self.streams_each(), bounds) {
            ShareOutcome::Share(share) => Ok(share),
            ShareOutcome::Queued(turn) => {
                Box::pin(self.wait_for_turn(turn, bounds.queue_timeout)).await
            }
            ShareOutcome::Full => Err(UpstreamError::ShareUsed),
        }
    }

    async fn wait_for_turn(
        &self,
        mut turn: QueuedShare,
        time: Duration,
    ) -> Result<Share, UpstreamError> {
        let deadline = self.ticker.deadline();
        deadline.set(time);
        let share = poll_fn(|context| match turn.poll(context) {
            Poll::Pending if deadline.poll_passed(context) => Poll::Ready(None),
            polled => polled,
        });
        share.await.ok_or(UpstreamError::ShareUsed)
    }

    /// Requests at once that a connection is good for.
    fn streams_each(&self) -> usize {
        match self.protocol {
            Protocol::Http1 => 1,
            Protocol::Http2 => {
                let shared = self.shared.borrow();
                let streams = shared.first().map(|connection| connection.max_streams());
                streams.filter(|streams| *streams > 0).unwrap_or(MAX_STREAMS)
            }
        }
    }
}
