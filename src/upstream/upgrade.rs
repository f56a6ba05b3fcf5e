//! Switching to another protocol (RFC 9110 section 7.8): the server's end of it.
//!
//! It takes a connection in HTTP/1.1 of the request's own, which is never kept. Nothing but the
//! head goes out on it before the server has agreed: what the client sends meanwhile waits at the
//! client's end, and is no part of this if the server declines.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header, request::Parts};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Empty;
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    Destination, Loaded, OwnConnection, Sender, UpstreamBodyError, UpstreamError, Upstreams,
    pool::http1::builder,
    record_health,
    response_check::{is_unsound, without_content},
    stream::MeteredStream,
};
use crate::{deadline::Deadline, policy::Upstream};

type Driver = http1::Connection<TokioIo<MeteredStream>, Empty<Bytes>>;

/// What a server makes of a request to switch.
pub enum Switch {
    /// It agrees.
    Agreed(Response<()>, Switched),
    /// It does not: an answer like any other.
    Declined(Response<DeclinedBody>),
}

/// A connection that has left HTTP. What the server has sent since is read first.
pub struct Switched {
    early: Bytes,
    stream: MeteredStream,
    _loaded: Loaded,
}

/// The body of an answer that declines. It drives the connection that it comes from, and closes it.
pub struct DeclinedBody {
    incoming: Incoming,
    driver: Option<Box<Driver>>,
    deadline: Deadline,
    idle_timeout: Duration,
    _loaded: Loaded,
}

impl Upstreams {
    /// Asks a server to switch to the protocol that the head's `Upgrade` names, and waits for its
    /// answer.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn switch(
        &self,
        destination: Destination<'_>,
        sender: Sender,
        head: Parts,
    ) -> Result<Switch, UpstreamError> {
        let upstream = destination.upstream;
        let connection = self.connect(destination, sender).await?;
        let endpoint = Arc::clone(&connection.endpoint);
        let answer = self.ask(connection, head, upstream).await;
        match &answer {
            Ok(Switch::Agreed(..)) => endpoint.succeed(),
            Ok(Switch::Declined(response)) => record_health(&endpoint, response.status(), upstream),
            Err(error) if error.is_servers_fault() => endpoint.fail(),
            Err(_) => {}
        }
        answer
    }

    async fn ask(
        &self,
        connection: OwnConnection,
        head: Parts,
        upstream: &Upstream,
    ) -> Result<Switch, UpstreamError> {
        let asked = head.headers.get(header::UPGRADE).cloned();
        let OwnConnection { stream, slot, loaded, .. } = connection;
        let (stream, traffic) = MeteredStream::new(stream, slot);
        let (mut sender, driver) =
            builder().handshake(TokioIo::new(stream)).await.map_err(UpstreamError::Exchange)?;
        let mut driver = Box::new(driver);
        let deadline = self.ticker.deadline();
        deadline.set(upstream.response_timeout);
        traffic.await_head();
        let request = Request::from_parts(head, Empty::new());
        let mut sending = pin!(sender.send_request(request));
        let mut answer = None;
        poll_fn(|context| {
            let has_ended = Pin::new(&mut driver).poll(context).is_ready();
            // The connection is what produces the answer, in this same task: no waker is needed.
            let mut quiet = Context::from_waker(Waker::noop());
            if answer.is_none()
                && let Poll::Ready(result) = sending.as_mut().poll(&mut quiet)
            {
                answer = Some(result);
            }
            match &answer {
                // The connection has to be done with HTTP before it is given to the tunnel.
                Some(Ok(response)) if is_switch(response) && !has_ended => {}
                Some(_) => return Poll::Ready(()),
                None if has_ended || traffic.is_unsound(0) => return Poll::Ready(()),
                None => {}
            }
            if deadline.poll_passed(context) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        match answer {
            Some(Ok(_)) if traffic.is_unsound(0) => Err(UpstreamError::Unsound),
            Some(Ok(response)) if is_switch(&response) => {
                let named = response.headers().get(header::UPGRADE);
                if deadline.has_passed() || !is_same(named, asked.as_ref()) {
                    return Err(UpstreamError::Unsound);
                }
                let http1::Parts { io, read_buf: early, .. } = driver.into_parts();
                let switched = Switched { early, stream: io.into_inner(), _loaded: loaded };
                Ok(Switch::Agreed(response.map(drop), switched))
            }
            Some(Ok(response)) if is_unsound(&response) => Err(UpstreamError::Unsound),
            Some(Ok(response)) => {
                deadline.set(upstream.idle_timeout);
                let idle_timeout = upstream.idle_timeout;
                let driver = Some(driver);
                let body = |incoming| DeclinedBody {
                    incoming,
                    driver,
                    deadline,
                    idle_timeout,
                    _loaded: loaded,
                };
                let response = response.map(body);
                Ok(Switch::Declined(match response.status() {
                    StatusCode::RESET_CONTENT => without_content(response).await?,
                    _ => response,
                }))
            }
            Some(Err(error)) => Err(UpstreamError::Exchange(error)),
            None if deadline.has_passed() => Err(UpstreamError::ResponseTimeout),
            None => Err(UpstreamError::Unsound),
        }
    }
}

fn is_switch<B>(response: &Response<B>) -> bool {
    response.status() == StatusCode::SWITCHING_PROTOCOLS
}

/// Whether a server switches to what it was asked for, and nothing else.
fn is_same(named: Option<&HeaderValue>, asked: Option<&HeaderValue>) -> bool {
    let (Some(named), Some(asked)) = (named, asked) else { return false };
    named.as_bytes().trim_ascii().eq_ignore_ascii_case(asked.as_bytes())
}

impl AsyncRead for Switched {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let switched = self.get_mut();
        if switched.early.is_empty() {
            return Pin::new(&mut switched.stream).poll_read(context, buffer);
        }
        let length = switched.early.len().min(buffer.remaining());
        buffer.put_slice(&switched.early.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Switched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Body for DeclinedBody {
    type Data = Bytes;
    type Error = UpstreamBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        let body = self.get_mut();
        let mut quiet = Context::from_waker(Waker::noop());
        let mut polled = Pin::new(&mut body.incoming).poll_frame(&mut quiet);
        if polled.is_pending() {
            if let Some(driver) = &mut body.driver
                && Pin::new(driver).poll(context).is_ready()
            {
                body.driver = None;
            }
            polled = Pin::new(&mut body.incoming).poll_frame(&mut quiet);
        }
        match &polled {
            Poll::Pending if body.deadline.poll_passed(context) => {
                body.driver = None;
                return Poll::Ready(Some(Err(UpstreamBodyError::Timeout)));
            }
            Poll::Pending => {}
            Poll::Ready(Some(Ok(_))) => body.deadline.set(body.idle_timeout),
            Poll::Ready(_) => body.driver = None,
        }
        // A client that asked for another protocol cannot be sent trailers.
        let without_trailers = |frame: Frame<Bytes>| match frame.into_data() {
            Ok(data) => Frame::data(data),
            Err(_) => Frame::data(Bytes::new()),
        };
        polled.map(|frame| frame.map(|frame| frame.map(without_trailers).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
