//! One request at a time over one connection.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    rc::{Rc, Weak},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tollgate_clock::deadline::Deadline;
use tollgate_policy::Upstream;

use super::{
    body_length::{BodyLength, BodyPart},
    response_head::{Expected, HeadError, HeadReader, ResponseHead},
    sending::{SendError, Sending},
};
use crate::{
    ExchangeError, RequestBody, RequestBodyError, Stream, UpstreamBodyError, UpstreamError,
    body::{BodyState, Timing},
    clean_response,
    downstream::Interim,
    failure::Failure,
    pool::Pool,
    slots::Slot,
};

/// What is read at once: at first, and at most. What a client does not read stays here.
const MIN_READ_BYTES: usize = 8 * 1024;
pub(crate) const MAX_READ_BYTES: usize = 16 * 1024;

/// A connection in HTTP/1.1, used by one request at a time.
pub(crate) struct Connection {
    stream: Stream,
    /// Counts the connection among the server's.
    slot: Slot,
    pub(crate) deadline: Rc<Deadline>,
    sending: Sending,
    /// What was read and is not taken yet.
    read: BytesMut,
    /// How much is read at once.
    read_bytes: usize,
    /// What is still to come of the latest response.
    body: BodyLength,
    /// Whether the server keeps the connection after this response.
    is_persistent: bool,
    /// How long it may be kept unused.
    keep_alive: Duration,
    /// The latest request was not sent whole, and the rest will not be.
    send_has_failed: bool,
    /// The client has broken off the body of the latest request.
    client_has_failed: bool,
    /// Where interim responses to the latest request go.
    interim: Option<Rc<Interim>>,
    /// Not its owner: unused connections are the pool's.
    pool: Weak<Pool>,
}

/// A request in HTTP/1.1.
pub(crate) struct Message {
    /// The head, as it is written.
    pub(crate) head: Bytes,
    /// The body, if it has one.
    pub(crate) body: Option<Box<RequestBody>>,
    /// How long the head says that the body is; none: it is chunked.
    pub(crate) length: Option<u64>,
    /// Set when the request is first sent; none: that is not needed.
    pub(crate) sent: Option<Rc<Cell<bool>>>,
    /// The method is HEAD: the response has no body.
    pub(crate) is_head: bool,
    /// The server may switch to another protocol.
    pub(crate) may_switch: bool,
    /// Where interim responses go; none: the client gets none.
    pub(crate) interim: Option<Rc<Interim>>,
}

impl Message {
    /// The request again, which has no body.
    pub(crate) fn again(&self) -> Message {
        let (head, interim) = (self.head.clone(), self.interim.clone());
        Message { head, body: None, sent: None, interim, ..*self }
    }
}

/// Why there is no response.
enum NoResponse {
    Send(SendError),
    Read(io::Error),
    Head(HeadError),
    /// The server closed the connection.
    Closed,
    Late,
}

impl Connection {
    /// Speaks HTTP/1.1 over a new stream.
    pub(crate) fn new(
        stream: Stream,
        slot: Slot,
        deadline: Deadline,
        pool: Weak<Pool>,
    ) -> Box<Connection> {
        Box::new(Connection {
            stream,
            slot,
            deadline: Rc::new(deadline),
            sending: Sending::nothing(),
            read: BytesMut::new(),
            read_bytes: MIN_READ_BYTES,
            body: BodyLength::NONE,
            is_persistent: false,
            keep_alive: Duration::ZERO,
            send_has_failed: false,
            client_has_failed: false,
            interim: None,
            pool,
        })
    }

    /// Sends a request and waits for the head of its response.
    pub(crate) async fn exchange(
        mut self: Box<Self>,
        message: Message,
        upstream: &Upstream,
    ) -> Result<(Response<()>, Box<Connection>), Failure<Message>> {
        // Bytes that come before the request are no response to it.
        if self.is_closed() {
            let error = UpstreamError::Exchange(ExchangeError::Closed);
            return Err(Failure { is_stale: true, ..Failure::unsent(error, message) });
        }
        let Message { head, mut body, length, sent, is_head, may_switch, interim } = message;
        if let Some(sent) = sent {
            sent.set(true);
        }
        if let Some(body) = &mut body {
            body.attach(Timing::new(&self.deadline, upstream));
        }
        let body_state = body.as_ref().map(|body| body.state());
        self.sending = Sending::new(head, body, length);
        self.send_has_failed = false;
        self.client_has_failed = false;
        self.interim = interim;
        self.deadline.set(upstream.response_timeout);
        let expected = Expected { is_head, may_switch };
        let mut heads = HeadReader::default();
        let mut is_unanswered = true;
        let outcome =
            poll_fn(|context| self.poll_head(context, &mut heads, expected, &mut is_unanswered));
        let ended = match outcome.await {
            Ok(ResponseHead { response, length, is_persistent }) => {
                if let Some(state) = body_state {
                    state.set_answered();
                }
                self.body = length;
                self.is_persistent = is_persistent && !self.send_has_failed;
                self.keep_alive = keep_alive(&response, upstream);
                return Ok((response, self));
            }
            Err(ended) => ended,
        };
        let is_late = matches!(ended, NoResponse::Late);
        let is_unanswered = is_unanswered && !self.client_has_failed;
        let awaited_client = body_state.as_deref().is_some_and(BodyState::is_waiting);
        let error = ended.into_error(body_state.as_deref());
        let is_stale = !is_late && is_unanswered;
        Err(Failure { error, unsent: None, is_unanswered, is_stale, awaited_client })
    }

    /// Sends what can be sent, and reads until the response's head is there.
    fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        heads: &mut HeadReader,
        expected: Expected,
        is_unanswered: &mut bool,
    ) -> Poll<Result<ResponseHead, NoResponse>> {
        //= rfc9112#section-9.5
        //# A client sending a message body SHOULD monitor the network connection for an error
        //# response while it is transmitting the request
        let sent = match self.poll_send(context) {
            Err(error @ SendError::Body(_)) => return Poll::Ready(Err(NoResponse::Send(error))),
            sent => sent,
        };
        loop {
            match self.poll_read(context) {
                Poll::Ready(Ok(0)) => {
                    // That the request could not be sent is the cause, and not what follows.
                    let ended = sent.err().map_or(NoResponse::Closed, NoResponse::Send);
                    return Poll::Ready(Err(ended));
                }
                Poll::Ready(Ok(_)) => *is_unanswered = false,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(NoResponse::Read(error))),
                Poll::Pending => break,
            }
            loop {
                match heads.take(&mut self.read, expected) {
                    Ok(Some(head)) if head.is_interim() => self.pass_on(head.response),
                    Ok(Some(head)) => return Poll::Ready(Ok(head)),
                    Ok(None) => break,
                    Err(error) => return Poll::Ready(Err(NoResponse::Head(error))),
                }
            }
        }
        // The deadline runs from the last progress of the request's body, see `RequestBody`. A
        // server that takes no more of the request may have said why.
        match self.deadline.poll_passed(context) {
            true => Poll::Ready(Err(NoResponse::Late)),
            false => Poll::Pending,
        }
    }

    /// Passes an interim response on. Only this proxy says whether to go on with a body.
    fn pass_on(&self, mut interim: Response<()>) {
        if let Some(client) = &self.interim
            && interim.status() != StatusCode::CONTINUE
        {
            //= rfc9110#section-8.6
            //# A server MUST NOT send a Content-Length header field in any response with a status
            //# code of 1xx (Informational) or 204 (No Content)
            //= rfc9112#section-6.1
            //# A server MUST NOT send a Transfer-Encoding header field in any response with a
            //# status code of 1xx (Informational) or 204 (No Content)
            clean_response(interim.headers_mut());
            // RFC 9110 section 8.6.
            interim.headers_mut().remove(header::CONTENT_LENGTH);
            client.push(interim);
        }
    }

    /// Sends what can be sent now.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Result<(), SendError> {
        if self.sending.is_over() {
            return Ok(());
        }
        match self.sending.poll(context, &mut self.stream) {
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
            Poll::Ready(Err(error)) => {
                self.client_has_failed = matches!(error, SendError::Body(_));
                self.send_has_failed = true;
                self.sending.abandon();
                self.is_persistent = false;
                Err(error)
            }
        }
    }

    /// Reads what is there, at most so much; zero bytes mean that the server has closed.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.read.capacity() - self.read.len() < self.read_bytes / 2 {
            self.read.reserve(self.read_bytes);
        }
        let room = self.read.capacity() - self.read.len();
        let read = ready!(pin!(self.stream.read_buf(&mut self.read)).poll(context))?;
        if read == room {
            self.read_bytes = MAX_READ_BYTES;
        }
        Poll::Ready(Ok(read))
    }

    /// The next frame of the response's body. Sends the rest of the request meanwhile.
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        //= rfc9110#section-7.5
        //# A client that receives a response while it is still sending the associated request
        //# SHOULD continue sending that request
        if let Err(SendError::Body(error)) = self.poll_send(context) {
            return Poll::Ready(Some(Err(ExchangeError::RequestBody(error).into())));
        }
        loop {
            match self.body.take(&mut self.read) {
                //= rfc9112#section-9.8
                //# When encountering an incomplete close, a client SHOULD treat as completed all
                //# requests for which it has received either
                Ok(BodyPart::End) => return Poll::Ready(None),
                Ok(BodyPart::Incomplete) => {}
                Ok(part) => return Poll::Ready(part.into_frame().map(Ok)),
                Err(malformed) => {
                    return Poll::Ready(Some(Err(ExchangeError::Chunk(malformed).into())));
                }
            }
            match ready!(self.poll_read(context)) {
                Ok(0) if matches!(self.body, BodyLength::UntilClose) => {
                    self.body = BodyLength::NONE;
                }
                //= rfc9112#section-6.3
                //# the recipient MUST consider the message to be incomplete and close the
                //# connection
                Ok(0) => return Poll::Ready(Some(Err(ExchangeError::Incomplete.into()))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(ExchangeError::Io(error).into()))),
            }
        }
    }

    /// Whether all of the request was sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.sending.is_over() && !self.send_has_failed
    }

    /// Whether all of the response was read.
    pub(crate) fn is_body_over(&self) -> bool {
        self.body.is_over()
    }

    /// What is known of the length of the rest of the body.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    /// Whether more of the client's body is awaited.
    pub(crate) fn awaits_client(&self) -> bool {
        self.sending.awaits_body()
    }

    /// Whether the client has broken off the body that it sends.
    pub(crate) fn client_has_failed(&self) -> bool {
        self.client_has_failed
    }

    /// Whether the server has closed it while it was unused, or has sent what nobody asked for.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let mut without_waker = Context::from_waker(Waker::noop());
        //= rfc9112#section-9.2
        //# the client MUST NOT consider that data to be a valid response
        //= rfc9112#section-9.2
        //# the client SHOULD close the connection, since message delimitation is now ambiguous
        !self.read.is_empty()
            || Pin::new(&mut self.stream).poll_read(&mut without_waker, &mut buffer).is_ready()
    }

    /// Gives the connection back once its response was read to the end, or closes it if it cannot
    /// be used again: the server closes it, the request was not sent whole, or more has come than
    /// the response.
    pub(crate) fn release(mut self: Box<Self>) {
        self.deadline.clear();
        if self.may_be_kept()
            && let Some(pool) = self.pool.upgrade()
        {
            let keep_alive = self.keep_alive;
            pool.keep(self, keep_alive);
        }
    }

    /// Whether another request may be sent on it.
    pub(super) fn may_be_kept(&mut self) -> bool {
        self.is_persistent
            && self.sending.is_over()
            //= rfc9112#section-9.3
            //# a client MUST read the entire response message body if it intends to reuse the same
            //# connection for a subsequent request
            && self.body.is_over()
            // This replaces the waker of the task that has read, too: else what comes for the next
            // request would wake the task of this one.
            //= rfc9112#section-6.3
            //# A client MUST NOT process, cache, or forward such extra data as a separate response
            && !self.is_closed()
    }

    /// Lets go of the buffer for what is read, if nothing is in it.
    pub(crate) fn give_buffer_back(&mut self) {
        if self.read.is_empty() {
            self.read = BytesMut::new();
        }
    }

    /// The connection after a switch to another protocol, and what has come of that already.
    pub(crate) fn into_parts(self) -> (Stream, Slot, Bytes) {
        (self.stream, self.slot, self.read.freeze())
    }
}

impl NoResponse {
    fn into_error(self, body: Option<&BodyState>) -> UpstreamError {
        match self {
            NoResponse::Send(SendError::Body(RequestBodyError::TooLarge)) => {
                UpstreamError::RequestBodyTooLarge
            }
            NoResponse::Send(SendError::Body(error)) => UpstreamError::RequestBody(error),
            NoResponse::Send(SendError::Connection(error)) | NoResponse::Read(error) => {
                UpstreamError::Exchange(ExchangeError::Io(error))
            }
            NoResponse::Head(HeadError::Malformed(error)) => {
                UpstreamError::Exchange(ExchangeError::Head(error))
            }
            NoResponse::Head(HeadError::Unsound) => UpstreamError::Unsound,
            NoResponse::Closed => UpstreamError::Exchange(ExchangeError::Closed),
            NoResponse::Late => body.map_or(UpstreamError::ResponseTimeout, BodyState::timeout),
        }
    }
}

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
/// How long the connection of a response may be kept: as the policy says, and a second less than
/// the server does, who would close it under the next request.
fn keep_alive(response: &Response<()>, upstream: &Upstream) -> Duration {
    match response.headers().get(&KEEP_ALIVE).and_then(promised) {
        Some(promised) => upstream.keep_alive.min(promised.saturating_sub(SAFETY)),
        None => upstream.keep_alive,
    }
}

const SAFETY: Duration = Duration::from_secs(1);

/// `Keep-Alive: timeout=5, max=100`, as RFC 2068 section 19.7.1 had it and servers still say it.
fn promised(value: &HeaderValue) -> Option<Duration> {
    let mut parameters = value.to_str().ok()?.split(',');
    parameters.find_map(|parameter| {
        let (name, seconds) = parameter.trim().split_once('=')?;
        let is_timeout = name.trim().eq_ignore_ascii_case("timeout");
        is_timeout.then(|| seconds.trim().parse().ok().map(Duration::from_secs))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promise_of_a_server_is_read() {
        for (value, seconds) in [
            ("timeout=5", Some(5)),
            ("max=100, Timeout = 15", Some(15)),
            ("timeout=0", Some(0)),
            ("timeout=", None),
            ("timeout=-1", None),
            ("timeout=99999999999999999999", None),
            ("max=3", None),
            ("", None),
        ] {
            let promised = promised(&HeaderValue::from_static(value));
            assert_eq!(promised, seconds.map(Duration::from_secs), "{value:?}");
        }
    }
}
