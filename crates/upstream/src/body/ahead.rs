//! What is read of a client's body before its request goes to a server: limits may count by it.

use std::{future::poll_fn, pin::Pin, rc::Rc, task::Poll, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use tollgate_clock::deadline::Ticker;

use crate::UpstreamError;

/// What was read and not passed on yet. Nothing for most requests, which are not read ahead.
#[derive(Debug, Default)]
pub struct Ahead {
    /// Of the body: in one piece, as a client may send a frame for each byte.
    data: BytesMut,
    trailers: Option<Frame<Bytes>>,
}

impl Ahead {
    pub(super) fn next(&mut self) -> Option<Frame<Bytes>> {
        match self.data.is_empty() {
            false => Some(Frame::data(self.data.split().freeze())),
            true => self.trailers.take(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none()
    }

    /// Bytes of the body in it.
    pub(super) fn bytes(&self) -> u64 {
        self.data.len() as u64
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
        let Ahead { data, trailers } = self;
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
                let frame = match frame.into_data() {
                    Ok(bytes) => bytes,
                    Err(other) => {
                        *trailers = Some(other);
                        continue;
                    }
                };
                let bytes = frame.len() as u64;
                data.extend_from_slice(&frame);
                match room.checked_sub(bytes) {
                    Some(left) => room = left,
                    None => return Poll::Ready(Ok(false)),
                }
            }
        })
        .await
    }

    /// Puts other bytes in the place of those of the body.
    pub(super) fn replace(&mut self, data: &[u8]) {
        self.data = BytesMut::from(data);
    }

    /// All of the body in it.
    pub(super) fn whole(&self) -> &[u8] {
        &self.data
    }
}
