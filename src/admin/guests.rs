//! Connections to the admin listener. Each has one request, and they are bounded in number, time
//! and bytes: who is slow keeps no others out.

use std::{
    convert::Infallible,
    net::Ipv4Addr,
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::AbortHandle,
    time::timeout,
};

use super::{
    live::Progress,
    reception::{Ends, Offer, Reception},
};
use crate::server::{Accepted, AcceptedStream, Listener, Transport};

/// Connections at once; one more takes the place of one that has not asked yet.
const MAX_CONNECTIONS: usize = 32;
/// How long a request's head may take, and all of a connection, which is one request. A client that
/// is sent events must take one in that time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_FIELDS: usize = 64;
const MAX_BUFFER_BYTES: usize = 16 * 1024;
/// How long accepting pauses when it fails: there may be descriptors again then.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers who comes in at `listener`, where they get what `offer` says, until this is dropped.
pub(super) async fn receive(listener: Listener, offer: Offer, reception: Arc<Reception>) {
    let acceptor = match listener.adopt() {
        Ok(acceptor) => acceptor,
        Err(error) => return tracing::error!(%error, "the admin listener cannot be used"),
    };
    let mut guests: Vec<Guest> = Vec::with_capacity(MAX_CONNECTIONS);
    loop {
        match acceptor.accept().await {
            Ok(accepted) => {
                guests.retain(|guest| !guest.task.is_finished());
                if guests.len() < MAX_CONNECTIONS || make_room(&mut guests) {
                    guests.extend(Guest::receive(accepted, offer, &reception));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept at the admin listener");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A connection.
struct Guest {
    task: AbortHandle,
    /// Whether its request has been read.
    has_asked: Arc<AtomicBool>,
}

impl Guest {
    /// None: the system has taken the connection back.
    fn receive(accepted: Accepted, offer: Offer, reception: &Arc<Reception>) -> Option<Guest> {
        let (peer, own) = match &accepted.stream {
            AcceptedStream::Tcp(stream, peer) => (peer.ip(), stream.local_addr().ok()),
            AcceptedStream::Unix(_) => (Ipv4Addr::LOCALHOST.into(), None),
        };
        let stream = Transport::adopt(accepted.stream).ok()?;
        let has_asked = Arc::new(AtomicBool::new(false));
        let visit = Visit {
            reception: Arc::clone(reception),
            ends: Ends { peer, own: own.map(|address| address.ip()), offer },
            has_asked: Arc::clone(&has_asked),
            progress: OnceLock::new(),
        };
        let task = tokio::spawn(async move { visit.last(stream).await });
        Some(Guest { task: task.abort_handle(), has_asked })
    }
}

/// Closes the connection that has been silent longest, so that idle clients cannot lock others out.
fn make_room(guests: &mut Vec<Guest>) -> bool {
    let silent = guests.iter().position(|guest| !guest.has_asked.load(Ordering::Relaxed));
    silent.map(|at| guests.remove(at).task.abort()).is_some()
}

/// What the task of a connection has.
struct Visit {
    reception: Arc<Reception>,
    ends: Ends,
    has_asked: Arc<AtomicBool>,
    /// Of the events that it is sent, if it has asked for those.
    progress: OnceLock<Progress>,
}

impl Visit {
    /// Serves for as long as a connection may last. One that is sent events may last for as long as
    /// it takes them.
    async fn last(&self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut serving = pin!(self.serve(stream));
        let mut taken = 0;
        while timeout(CONNECTION_TIMEOUT, &mut serving).await.is_err() {
            match self.progress.get().map(Progress::taken) {
                Some(so_far) if so_far > taken => taken = so_far,
                _ => return,
            }
        }
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let service = service_fn(async |request| {
            self.has_asked.store(true, Ordering::Relaxed);
            let answer = self.reception.answer(request, self.ends).await;
            if let Some(progress) = answer.extensions().get::<Progress>() {
                let _ = self.progress.set(progress.clone());
            }
            Ok::<_, Infallible>(answer)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .keep_alive(false)
            .max_headers(MAX_FIELDS)
            .max_buf_size(MAX_BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        // Who goes away without the answer does not want it.
        let _ = connection.await;
    }
}
