//! Connections that are kept between requests: a stack for each server, the warmest on top.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::timeout,
};

use super::{RequestBody, UpstreamError};
use crate::{
    deadline::{Deadline, TICK, Ticker},
    policy::{Server, Upstream},
};

/// How long an unused connection is kept: shorter than most servers keep theirs would be better
/// still, but they differ; a request that meets a closed one is repeated.
const KEEP_TICKS: u32 = 60_000 / TICK.as_millis() as u32;

/// Unused connections to one server, per worker.
const MAX_IDLE: usize = 256;

/// Largest head of a response that hyper reads on for; see `is_unsound` for what is passed on.
const MAX_RESPONSE_HEAD_BYTES: usize = 64 * 1024;
const MAX_RESPONSE_FIELDS: usize = 256;

/// A worker's kept connections.
pub(super) struct Pools {
    ticker: Rc<Ticker>,
    /// Few: servers are named by policies only.
    pools: RefCell<Vec<(Server, Rc<Pool>)>>,
}

/// Kept connections to one server.
pub(super) struct Pool {
    ticker: Rc<Ticker>,
    idle: RefCell<Vec<Idle>>,
}

struct Idle {
    connection: Connection,
    since: u32,
}

/// A connection to an upstream.
pub struct Connection {
    pub(super) sender: http1::SendRequest<RequestBody>,
    driver: Pin<Box<http1::Connection<TokioIo<Counted>, RequestBody>>>,
    bytes_read: Rc<Cell<u64>>,
    pub(super) deadline: Rc<Deadline>,
    pool: Rc<Pool>,
}

impl Connection {
    /// Reads and writes as much as can be. Ready means that the connection is closed.
    pub(super) fn poll_drive(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.driver.as_mut().poll(context).map(drop)
    }

    /// Bytes that ever came from the upstream.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read.get()
    }

    /// Gives the connection back once its response was read to the end, or closes it if it cannot
    /// be used again.
    pub(super) fn release(mut self) {
        self.deadline.clear();
        // Lets hyper note the end of the message, and forget this task's waker: whoever uses the
        // connection next would wake this task with his request.
        let mut nobody = Context::from_waker(Waker::noop());
        if self.poll_drive(&mut nobody).is_pending() && self.sender.is_ready() {
            let pool = Rc::clone(&self.pool);
            pool.keep(self);
        }
    }
}

impl Pools {
    pub(super) fn new(ticker: Rc<Ticker>) -> Self {
        Pools { ticker, pools: RefCell::default() }
    }

    /// The pool of a server; made when first asked for.
    pub(super) fn of(&self, server: &Server) -> Rc<Pool> {
        let mut pools = self.pools.borrow_mut();
        if let Some((_, pool)) = pools.iter().find(|(known, _)| known == server) {
            return Rc::clone(pool);
        }
        let pool = Rc::new(Pool { ticker: Rc::clone(&self.ticker), idle: RefCell::default() });
        pools.push((server.clone(), Rc::clone(&pool)));
        pool
    }

    pub(super) fn close_idle(&self) {
        let now = self.ticker.now();
        for (_, pool) in self.pools.borrow().iter() {
            pool.idle.borrow_mut().retain(|idle| now.saturating_sub(idle.since) < KEEP_TICKS);
        }
    }
}

impl Pool {
    /// The connection that was used last. Whether it is still open shows when it is used: hyper
    /// reads before it writes, and gives a request back that it did not write.
    pub(super) fn take(&self) -> Option<Connection> {
        self.idle.borrow_mut().pop().map(|idle| idle.connection)
    }

    /// A new connection.
    pub(super) async fn connect(
        self: &Rc<Self>,
        upstream: &Upstream,
    ) -> Result<Connection, UpstreamError> {
        let [server, ..] = upstream.servers.as_slice() else {
            return Err(UpstreamError::ConnectTimeout);
        };
        let address = (&*server.host, server.port);
        let stream = timeout(upstream.connect_timeout, TcpStream::connect(address))
            .await
            .map_err(|_| UpstreamError::ConnectTimeout)?
            .map_err(UpstreamError::Connect)?;
        stream.set_nodelay(true).map_err(UpstreamError::Connect)?;
        let bytes_read = Rc::new(Cell::new(0));
        let stream = Counted { stream, bytes_read: Rc::clone(&bytes_read) };
        let (sender, driver) = http1::Builder::new()
            .max_buf_size(MAX_RESPONSE_HEAD_BYTES)
            .max_headers(MAX_RESPONSE_FIELDS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(UpstreamError::Exchange)?;
        Ok(Connection {
            sender,
            driver: Box::pin(driver),
            bytes_read,
            deadline: Rc::new(self.ticker.deadline()),
            pool: Rc::clone(self),
        })
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < MAX_IDLE && !self.ticker.is_draining() {
            idle.push(Idle { connection, since: self.ticker.now() });
        }
    }
}

/// A socket that counts what is read from it: whether anything of a response has come is what a
/// repetition depends on, and hyper does not tell it of interim responses.
struct Counted {
    stream: TcpStream,
    bytes_read: Rc<Cell<u64>>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let read = buffer.filled().len() - before;
        self.bytes_read.set(self.bytes_read.get() + read as u64);
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
