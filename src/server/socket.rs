//! A client's socket as the protocol engine sees it: every byte that comes in passes a check first.
//!
//! What the check refuses never reaches the engine. And a connection is closed so that the client
//! can read the last response: if a socket with unread bytes is closed, the system discards what
//! was written to it, so those bytes are read first.

use std::{
    cell::{Cell, RefCell},
    io,
    mem::MaybeUninit,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tollgate_clock::deadline::Ticker;
use tollgate_upstream::downstream::{Interim, Writing};
use tollgate_wire::{
    frames::{self, Frames},
    framing::{Framing, Phase},
};

use super::{stream::Stream, write_buffer::WriteBuffer};

/// Which protocol a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// A client's socket.
pub(super) struct Socket {
    stream: Stream,
    check: Check,
    writing: Rc<Writing>,
    /// What the HTTP/2 engine has written since `poll_send`; no other protocol's bytes.
    write_buffer: WriteBuffer,
    /// The bytes of a refused head and after it. If the connection leaves HTTP before the refusal
    /// is sent, they are passed on: they were no head.
    held: Vec<u8>,
    closing: Closing,
    /// Whether the client has said its last.
    has_ended: bool,
}

/// What passes over every byte that comes in.
enum Check {
    None,
    Http1 {
        framing: Rc<RefCell<Framing>>,
        /// Requests that the engine has handed on.
        dispatched: Rc<Cell<u64>>,
        /// Requests whose response has not ended.
        in_flight: Rc<Cell<usize>>,
        /// Whether the client has sent its last request, which the engine does not know yet.
        is_half_closed: Rc<Cell<bool>>,
        /// Whether who sends nothing more may still wait for a response.
        may_half_close: bool,
        /// Whether the engine has asked for bytes that have not come.
        is_awaited: Rc<Cell<bool>>,
        /// Interim responses, which the engine knows nothing of.
        interim: Rc<Interim>,
        /// The first line of a head that is not complete or was refused, as much of it as there
        /// was.
        line: Vec<u8>,
    },
    Http2 {
        frames: Rc<RefCell<Frames>>,
        ticker: Rc<Ticker>,
    },
}

/// What is shared of an HTTP/1 connection, beside the bytes.
#[derive(Clone, Default)]
pub(super) struct Reading {
    /// Whether the engine has asked for bytes that have not come.
    pub(super) is_awaited: Rc<Cell<bool>>,
    /// Whether the client has sent its last request, which the engine does not know yet.
    pub(super) is_half_closed: Rc<Cell<bool>>,
    /// Where interim responses go.
    pub(super) interim: Rc<Interim>,
}

/// How far a connection is on its way to being closed.
enum Closing {
    No,
    /// The last bytes that are still to be written; after them the connection is shut down.
    Finishing(Vec<u8>),
    /// Shut down on this side; so much was thrown away since.
    Lingering {
        discarded: usize,
    },
}

/// How long writing the last response before a close may take, and how long the client may then
/// take to read it.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest beginning of a refused head that is kept, for the log.
const MAX_LINE_BYTES: usize = 1024;

/// How much is read at once of bytes that are discarded, and how much at most: a client that still
/// sends a body can then read the response, and one that floods is cut off.
const DISCARDED_BYTES: usize = 16 * 1024;
const MAX_DISCARDED_HTTP1: usize = 4 * 1024 * 1024;
const MAX_DISCARDED_HTTP2: usize = 64 * 1024;

impl Socket {
    pub(super) fn new(stream: Stream) -> Socket {
        let check = Check::None;
        let closing = Closing::No;
        Socket {
            stream,
            check,
            writing: Rc::default(),
            write_buffer: WriteBuffer::default(),
            held: Vec::new(),
            closing,
            has_ended: false,
        }
    }

    /// Has every byte pass `framing` first; `dispatched` counts the requests that were handed on,
    /// and `in_flight` those whose response has not ended. `may_half_close`: who sends nothing more
    /// may still wait for a response.
    pub(super) fn check_http1(
        &mut self,
        framing: Rc<RefCell<Framing>>,
        dispatched: Rc<Cell<u64>>,
        in_flight: Rc<Cell<usize>>,
        may_half_close: bool,
    ) -> Reading {
        let reading = Reading::default();
        let Reading { is_awaited, is_half_closed, interim } = reading.clone();
        self.check = Check::Http1 {
            framing,
            dispatched,
            in_flight,
            may_half_close,
            is_half_closed,
            is_awaited,
            interim,
            line: Vec::new(),
        };
        reading
    }

    /// Ready when more has come than was read, be it bytes, the end or an error. What is left to
    /// be written is written meanwhile.
    pub(super) fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(Err(_)) => Poll::Ready(()),
            Poll::Ready(Ok(())) | Poll::Pending => self.stream.poll_readable(context),
        }
    }

    /// Lets everything pass from here on: it is no HTTP any more.
    pub(super) fn stop_checking(&mut self) {
        self.check = Check::None;
    }

    /// Has every frame counted.
    pub(super) fn check_http2(&mut self, frames: Rc<RefCell<Frames>>, ticker: Rc<Ticker>) {
        self.check = Check::Http2 { frames, ticker };
    }

    /// Sends what the HTTP/2 engine has written. To be called when the engine has nothing more to
    /// do: it flushes after each frame of data, which sends nothing.
    pub(super) fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_buffer.poll_send(context, &mut self.stream, &self.writing))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    /// How the writes to the client go.
    pub(super) fn writing(&self) -> Rc<Writing> {
        Rc::clone(&self.writing)
    }

    /// The first line of the head that was refused, as far as it is known.
    pub(super) fn refused_line(&mut self) -> Vec<u8> {
        match &mut self.check {
            Check::Http1 { line, .. } => std::mem::take(line),
            Check::None | Check::Http2 { .. } => Vec::new(),
        }
    }

    /// Whether a client that sends nothing more may still wait for a response. It gets that first:
    /// the engine would take it for gone.
    fn is_half_closed(&self) -> bool {
        let Check::Http1 { framing, in_flight, may_half_close, is_half_closed, .. } = &self.check
        else {
            return false;
        };
        let is_waiting = in_flight.get() > 0 && framing.borrow().is_between();
        is_half_closed.set(*may_half_close && is_waiting);
        is_half_closed.get()
    }

    /// Has bytes that were read pass the check, and takes back those that may not go on. False if
    /// none may.
    fn pass(&mut self, buffer: &mut ReadBuf<'_>, before: usize) -> io::Result<bool> {
        let read = buffer.filled().get(before..).unwrap_or_default();
        match &mut self.check {
            Check::None => Ok(true),
            Check::Http2 { frames, ticker } => {
                let Err(fault) = frames.borrow_mut().read(read, ticker.now()) else {
                    return Ok(true);
                };
                self.begin_goodbye(fault)?;
                Ok(false)
            }
            Check::Http1 { framing, dispatched, line, .. } => {
                let mut framing = framing.borrow_mut();
                let taken = framing.read(read);
                let is_refused = framing.refused_head().is_some();
                match taken.head.and_then(|begun| read.get(begun..)) {
                    // Of a head that may be refused when more of it comes, the log wants to know.
                    Some(head) if is_refused || framing.phase() == Phase::Head => {
                        *line = first_line(head);
                    }
                    _ if line.is_empty() || is_refused || framing.phase() == Phase::Head => {}
                    _ => line.clear(),
                }
                if is_refused {
                    self.held.extend_from_slice(read.get(taken.goes_on..).unwrap_or_default());
                    buffer.set_filled(before + taken.goes_on);
                    return Ok(taken.goes_on > 0);
                }
                // A fault in the body of a request that is being served: hyper may not see it.
                // Before that, the request is still to be answered by the verdict on it.
                let dispatched = dispatched.get();
                if dispatched == framing.heads() {
                    framing.verdict(dispatched).map_err(io::Error::other)?;
                }
                Ok(true)
            }
        }
    }

    /// What the connection is to be ended for though what was read of it last is sound.
    fn fault(&self) -> Option<frames::Fault> {
        match &self.check {
            Check::Http2 { frames, .. } => frames.borrow().fault(),
            Check::None | Check::Http1 { .. } => None,
        }
    }

    /// Prepares the last words to an HTTP/2 client that has gone too far.
    fn begin_goodbye(&mut self, fault: frames::Fault) -> io::Result<()> {
        let Check::Http2 { frames, .. } = &self.check else { return Ok(()) };
        let is_flood = matches!(fault, frames::Fault::Flood | frames::Fault::Growth);
        self.writing.set_flooded(is_flood);
        // In the middle of a frame of ours, no other frame can be written.
        if self.writing.is_blocked() {
            return Err(io::Error::other(fault));
        }
        let mut last = self.write_buffer.take();
        //= rfc9113#section-5.4.1
        //# An endpoint that encounters a connection error SHOULD first send a GOAWAY frame
        last.extend_from_slice(&frames.borrow().goodbye(fault));
        //= rfc9113#section-5.4.1
        //# After sending the GOAWAY frame for an error condition, the endpoint MUST close the TCP
        //# connection
        self.closing = Closing::Finishing(last);
        Ok(())
    }

    /// Passes on what was held back, unless it still is: then the task that drives the connection
    /// takes it over.
    fn poll_held(&mut self, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !matches!(self.check, Check::None) {
            return Poll::Pending;
        }
        let length = self.held.len().min(buffer.remaining());
        buffer.put_slice(self.held.get(..length).unwrap_or_default());
        self.held.drain(..length);
        Poll::Ready(Ok(()))
    }

    /// Writes the interim responses that wait, before what the engine writes next.
    fn poll_interim(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Check::Http1 { interim, .. } = &self.check else { return Poll::Ready(Ok(())) };
        let mut heads = interim.heads().borrow_mut();
        while !heads.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(context, &heads);
            self.writing.note(&written);
            let written = ready!(written)?.min(heads.len());
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            heads.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    /// Says whether the engine has nothing left to write.
    fn set_between(&self, is_between: bool) {
        if let Check::Http1 { interim, .. } = &self.check {
            interim.set_between(is_between);
        }
    }

    /// Writes the last bytes, shuts down, and reads what the client still sends until it closes
    /// too: it may have sent more than was read, even where it seems to be between two requests.
    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writing.linger();
        while let Closing::Finishing(bytes) = &mut self.closing {
            let stream = &mut self.stream;
            if bytes.is_empty() {
                //= rfc9112#section-9.5
                //# A client or server that wishes to time out SHOULD issue a graceful close on the
                //# connection
                //= rfc9112#section-9.8
                //# Servers MUST attempt to initiate an exchange of closure alerts with the client
                //# before closing the connection
                ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
                self.closing = Closing::Lingering { discarded: 0 };
                break;
            }
            let written = ready!(Pin::new(stream).poll_write(context, bytes))?;
            bytes.drain(..written.min(bytes.len()));
        }
        if self.has_ended {
            return Poll::Ready(Ok(()));
        }
        let most = match self.check {
            Check::Http2 { .. } => MAX_DISCARDED_HTTP2,
            Check::None | Check::Http1 { .. } => MAX_DISCARDED_HTTP1,
        };
        loop {
            let mut bytes = [MaybeUninit::uninit(); DISCARDED_BYTES];
            let mut buffer = ReadBuf::uninit(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
            self.has_ended = buffer.filled().is_empty();
            if let Closing::Lingering { discarded } = &mut self.closing {
                *discarded += buffer.filled().len();
                self.has_ended |= *discarded > most;
            }
            if self.has_ended {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

/// The first line, without its end, of a head that was read from its beginning.
fn first_line(head: &[u8]) -> Vec<u8> {
    let head = head.get(..MAX_LINE_BYTES).unwrap_or(head);
    head.split(|byte| matches!(byte, b'\r' | b'\n'))
        .find(|line| !line.is_empty())
        .unwrap_or_default()
        .to_vec()
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        if let (Closing::No, Some(fault)) = (&socket.closing, socket.fault()) {
            socket.begin_goodbye(fault)?;
        }
        if let Closing::No = socket.closing {
            if !socket.held.is_empty() {
                return socket.poll_held(buffer);
            }
            let before = buffer.filled().len();
            let read = Pin::new(&mut socket.stream).poll_read(context, buffer);
            if let Check::Http1 { is_awaited, .. } = &socket.check {
                is_awaited.set(read.is_pending());
            }
            ready!(read)?;
            socket.has_ended = buffer.filled().len() == before;
            if socket.has_ended && socket.is_half_closed() {
                return Poll::Pending;
            }
            if socket.pass(buffer, before)? {
                return Poll::Ready(Ok(()));
            }
            if let Check::Http1 { .. } = socket.check {
                return Poll::Pending;
            }
        }
        // GOAWAY is sent to an HTTP/2 client that has gone too far; the engine gets the error after
        // that.
        ready!(socket.poll_close(context))?;
        Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Check::Http2 { .. } = self.check {
            return self.poll_write_vectored(context, &[io::IoSlice::new(bytes)]);
        }
        if !matches!(self.closing, Closing::No) {
            return Poll::Ready(Ok(bytes.len()));
        }
        self.set_between(false);
        ready!(self.poll_interim(context))?;
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.writing.note(&written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let socket = self.get_mut();
        if !matches!(socket.closing, Closing::No) {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        if let Check::Http1 { .. } = socket.check {
            socket.set_between(false);
            ready!(socket.poll_interim(context))?;
        }
        let Socket { stream, check, writing, write_buffer, .. } = socket;
        if let Check::Http2 { .. } = check {
            return write_buffer.poll_write(context, slices, stream, writing);
        }
        let written = Pin::new(stream).poll_write_vectored(context, slices);
        writing.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.check {
            // `poll_send` does it.
            Check::Http2 { .. } => Poll::Ready(Ok(())),
            Check::None => Pin::new(&mut self.stream).poll_flush(context),
            Check::Http1 { .. } => {
                ready!(self.poll_interim(context))?;
                // The engine flushes when it has written all that it had.
                self.set_between(true);
                Pin::new(&mut self.stream).poll_flush(context)
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        // What is no HTTP any more may go on the other way.
        if let Check::None = socket.check {
            return Pin::new(&mut socket.stream).poll_shutdown(context);
        }
        if let Closing::No = socket.closing {
            socket.closing = Closing::Finishing(socket.write_buffer.take());
        }
        socket.poll_close(context)
    }
}
