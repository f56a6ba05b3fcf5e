//! What is read of a client's body before its request goes to a server: limits may count by it.

use std::{
    borrow::Cow, collections::VecDeque, future::poll_fn, pin::Pin, rc::Rc, task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use tollgate_clock::deadline::Ticker;

use crate::UpstreamError;

/// Frames that were read and not passed on yet. None for most requests, which are not read ahead.
#[derive(Debug, Default)]
pub struct Ahead(VecDeque<Frame<Bytes>>);

impl Ahead {
    pub(super) fn next(&mut self) -> Option<Frame<Bytes>> {
        self.0.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of the body in them.
    pub(super) fn bytes(&self) -> u64 {
        self.data().map(|data| data.len() as u64).sum()
    }

    fn data(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter().filter_map(Frame::data_ref)
    }

    /// Reads on until more than `max_bytes` have come, or all, for as long as `time`. Returns
    /// whether that is all.
    ///
    /// # Errors
    /// [`UpstreamError`]: the client has broken it off, or is too slow.
    pub(super) async fn read(
        &mut self,
        incoming: &mut Incoming,
        max_bytes: u64,
        time: Duration,
        ticker: &Rc<Ticker>,
    ) -> Result<bool, UpstreamError> {
        let deadline = ticker.deadline();
        deadline.set(time);
        let mut room = max_bytes;
        let frames = &mut self.0;
        poll_fn(|context| {
            loop {
                let frame = match Pin::new(&mut *incoming).poll_frame(context) {
                    Poll::Ready(Some(Ok(frame))) => frame,
                    Poll::Ready(Some(Err(error))) => {
                        return Poll::Ready(Err(UpstreamError::RequestBody(error.into())));
                    }
                    Poll::Ready(None) => return Poll::Ready(Ok(true)),
                    Poll::Pending if deadline.poll_passed(context) => {
                        return Poll::Ready(Err(UpstreamError::RequestBodyTimeout));
                    }
                    Poll::Pending => return Poll::Pending,
                };
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                frames.push_back(frame);
                match room.checked_sub(bytes) {
                    Some(left) => room = left,
                    None => return Poll::Ready(Ok(false)),
                }
            }
        })
        .await
    }

    /// All of the body in them.
    pub(super) fn whole(&self) -> Cow<'_, [u8]> {
        let mut data = self.data();
        match (data.next(), data.next()) {
            (None, _) => Cow::Borrowed(&[]),
            (Some(only), None) => Cow::Borrowed(only),
            (Some(_), Some(_)) => Cow::Owned(self.data().flatten().copied().collect()),
        }
    }
}
