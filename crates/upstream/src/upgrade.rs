//! Switching to another protocol (RFC 9110 section 7.8): the server's end of it.
//!
//! It takes a connection in HTTP/1.1 of the request's own, which is never kept. Nothing but the
//! head goes out on it before the server has agreed: what the client sends meanwhile waits at the
//! client's end, and is no part of this if the server declines.

use std::{
    io,
    pin::Pin,
    rc::Weak,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tollgate_observe::trace::Attempts;
use tollgate_policy::Upstream;

use super::{
    Destination, Load, OwnConnection, Sender, Slot, Stream, UpstreamBody, UpstreamBodyError,
    UpstreamError, Upstreams,
    body::Source,
    http1::{Connection, Message, write_head},
    record_health,
    response_check::without_content,
    traced::TracedAttempt,
};

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
    stream: Stream,
    _slot: Slot,
    _load: Load,
}

/// The body of an answer that declines. Its connection is closed with it.
pub struct DeclinedBody(UpstreamBody);

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
        trace: Option<&Attempts>,
    ) -> Result<Switch, UpstreamError> {
        let upstream = destination.upstream;
        let connection = self.connect(destination, sender).await?;
        let member = Arc::clone(&connection.member);
        // The request is sent once: attempts to connect before it are no part of the trace.
        let traced = TracedAttempt::first(trace, &member);
        let answer = self.ask(connection, head, upstream).await;
        let status = match &answer {
            Ok(Switch::Agreed(response, _)) => Ok(response.status()),
            Ok(Switch::Declined(response)) => Ok(response.status()),
            Err(error) => Err(error),
        };
        traced.end(status);
        member.answers.count(status.ok());
        match &answer {
            Ok(Switch::Agreed(..)) => member.succeed(),
            Ok(Switch::Declined(response)) => record_health(&member, response.status(), upstream),
            Err(error) if error.is_servers_fault() => member.fail(),
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
        let OwnConnection { stream, slot, load, .. } = connection;
        let mut written = BytesMut::new();
        write_head(&head, &mut written);
        let message = Message {
            head: written.freeze(),
            body: None,
            length: None,
            sent: None,
            is_head: head.method == Method::HEAD,
            may_switch: true,
            interim: None,
        };
        // It belongs to no pool, so that it is closed after its only response.
        let connection = Connection::new(stream, slot, self.ticker.deadline(), Weak::new());
        let (response, connection) =
            connection.exchange(message, upstream).await.map_err(|failure| failure.error)?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let named = response.headers().get(header::UPGRADE);
            //= rfc9110#section-7.8
            //# A server MUST NOT switch to a protocol that was not indicated by the client in the
            //# corresponding request's Upgrade header field
            if !connection.is_sent() || !is_same(named, asked.as_ref()) {
                return Err(UpstreamError::Unsound);
            }
            let (stream, slot, early) = connection.into_parts();
            let switched = Switched { early, stream, _slot: slot, _load: load };
            return Ok(Switch::Agreed(response, switched));
        }
        let body = UpstreamBody::new(Source::Http1(connection), load, upstream.idle_timeout, None);
        let response = response.map(|()| DeclinedBody(body));
        Ok(Switch::Declined(match response.status() {
            StatusCode::RESET_CONTENT => without_content(response).await?,
            _ => response,
        }))
    }
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
        // A client that asked for another protocol cannot be sent trailers.
        let without_trailers = |frame: Frame<Bytes>| match frame.into_data() {
            Ok(data) => Frame::data(data),
            Err(_) => Frame::data(Bytes::new()),
        };
        let polled = Pin::new(&mut self.get_mut().0).poll_frame(context);
        polled.map(|frame| frame.map(|frame| frame.map(without_trailers)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
