//! Both clients, in front of a server that sends the bytes of a case.

use std::{
    cell::RefCell,
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::{Rc, Weak},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty};
use hyper::{client::conn::http1::Builder, ext::ReasonPhrase};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tollgate_clock::deadline::Ticker;
use tollgate_policy::Upstream;

use super::responses::Case;
use crate::{
    Slots, Stream,
    http1::{Connection, Message, write_head},
    slots::{Claimant, PoolId, SlotOutcome},
};

/// More than a case has: nothing waits for room.
const ROOM: usize = 1024 * 1024;

/// What the proxy had set when it used hyper's client.
const HEAD_BYTES: usize = 64 * 1024;
const FIELDS: usize = 256;

/// What a client makes of a response.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) head: Option<Head>,
    pub(super) body: Vec<u8>,
    pub(super) trailers: HeaderMap,
    pub(super) end: End,
    /// For the reader of a failure: errors are not compared.
    error: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    version: Version,
    reason: Option<Vec<u8>>,
    pub(super) fields: HeaderMap,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// More has to come, and the connection is open.
    #[default]
    Waits,
    /// The response is refused, or breaks off.
    Fails,
    /// It is whole, and the connection is not used again.
    Closes,
    /// It is whole, and the connection may be used again.
    Keeps,
}

impl Outcome {
    fn set_head(&mut self, response: &Response<()>) {
        let reason = response.extensions().get::<ReasonPhrase>();
        self.head = Some(Head {
            status: response.status(),
            version: response.version(),
            reason: reason.map(|reason| reason.as_bytes().to_vec()),
            fields: response.headers().clone(),
        });
    }

    /// Whether it was trailers, after which nothing comes.
    fn push(&mut self, frame: Frame<Bytes>) -> bool {
        match frame.into_data() {
            Ok(data) => self.body.extend_from_slice(&data),
            Err(frame) => {
                self.trailers = frame.into_trailers().unwrap_or_default();
                return true;
            }
        }
        false
    }

    fn fail(&mut self, error: impl fmt::Debug) {
        self.end = End::Fails;
        self.error = format!("{error:?}");
    }
}

impl PartialEq for Outcome {
    fn eq(&self, other: &Outcome) -> bool {
        // How much comes of a body that breaks off depends on how it is cut.
        let is_same_body = match self.end {
            End::Fails => self.body.starts_with(&other.body) || other.body.starts_with(&self.body),
            _ => self.body == other.body,
        };
        self.head == other.head
            && is_same_body
            && self.trailers == other.trailers
            && self.end == other.end
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { head, body, trailers, end, error } = self;
        write!(formatter, "{end:?} {error} {} {trailers:?} ", body.escape_ascii())?;
        match head {
            Some(Head { status, version, reason, fields }) => {
                write!(formatter, "{status} {version:?} {reason:?} {fields:?}")
            }
            None => write!(formatter, "no head"),
        }
    }
}

/// What this codec makes of it.
pub(super) fn ours(case: &Case) -> Outcome {
    let (client, server) = duplex(ROOM);
    let ticker = Rc::new(Ticker::new(Duration::from_secs(60), None));
    let upstream = Upstream::new("u", Vec::new());
    let claimant = Claimant { pool: PoolId::unique(), needs_first_connection: false };
    let slots = Arc::<Slots>::default();
    slots.bound(&upstream.bounds);
    let SlotOutcome::Slot(slot) = slots.take(&upstream.bounds, claimant) else {
        panic!("a slot is free")
    };
    let stream = Stream::Memory(client);
    let connection = Connection::new(stream, slot, ticker.deadline(), Weak::new());
    let mut head = BytesMut::new();
    write_head(&request(case).into_parts().0, &mut head);
    let message = Message {
        head: head.freeze(),
        body: None,
        length: None,
        sent: None,
        is_head: case.is_head,
        may_switch: false,
        interim: None,
    };
    let outcome = RefCell::new(Outcome::default());
    let used = RefCell::new(None);
    let client = pin!(async {
        let (response, mut connection) = match connection.exchange(message, &upstream).await {
            Ok(answered) => answered,
            Err(failure) => return outcome.borrow_mut().fail(failure.error),
        };
        outcome.borrow_mut().set_head(&response);
        // As the body of a response does it.
        while !connection.is_body_over() {
            match poll_fn(|context| connection.poll_frame(context)).await {
                Some(Ok(frame)) => {
                    if outcome.borrow_mut().push(frame) {
                        break;
                    }
                }
                Some(Err(error)) => return outcome.borrow_mut().fail(error),
                None => break,
            }
        }
        *used.borrow_mut() = Some(connection);
    });
    let _server = play(case, server, client);
    let mut outcome = outcome.take();
    if let Some(mut connection) = used.take() {
        outcome.end = if connection.may_be_kept() { End::Keeps } else { End::Closes };
    }
    outcome
}

/// What hyper's client makes of it.
pub(super) fn hypers(case: &Case) -> Outcome {
    let (client, server) = duplex(ROOM);
    let mut builder = Builder::new();
    builder.max_buf_size(HEAD_BYTES).max_headers(FIELDS);
    let handshake = builder.handshake::<_, Empty<Bytes>>(TokioIo::new(client));
    let (mut sender, connection) =
        handshake.now_or_never().expect("it waits for nothing").expect("nothing was sent");
    let outcome = RefCell::new(Outcome::default());
    let used = RefCell::new(None);
    let drive = async { drop(connection.await) };
    let exchange = async {
        let response = match sender.send_request(request(case).map(|()| Empty::new())).await {
            Ok(response) => response,
            Err(error) => return outcome.borrow_mut().fail(error),
        };
        let (head, mut body) = response.into_parts();
        outcome.borrow_mut().set_head(&Response::from_parts(head, ()));
        while !body.is_end_stream() {
            match body.frame().await {
                Some(Ok(frame)) => {
                    if outcome.borrow_mut().push(frame) {
                        break;
                    }
                }
                Some(Err(error)) => return outcome.borrow_mut().fail(error),
                None => break,
            }
        }
        drop(body);
        *used.borrow_mut() = Some(sender);
    };
    let mut client = pin!(async { tokio::join!(drive, exchange) });
    let _server = play(case, server, client.as_mut());
    let mut outcome = outcome.take();
    if let Some(sender) = &*used.borrow() {
        outcome.end = if sender.is_ready() { End::Keeps } else { End::Closes };
    }
    outcome
}

fn request(case: &Case) -> Request<()> {
    let method = if case.is_head { Method::HEAD } else { Method::GET };
    Request::builder().method(method).uri("/").header("host", "h").body(()).expect("it is valid")
}

/// Has a client talk to a server that sends the bytes of a case, piece by piece, until nothing goes
/// on by itself. Returns the server, which is there for as long as what is left of the client is
/// looked at.
fn play(case: &Case, mut server: DuplexStream, mut client: Pin<&mut impl Future>) -> DuplexStream {
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let mut is_over = poll_until_stalled(client.as_mut(), &woken);
    for piece in case.pieces() {
        // It fails if the client has closed the connection.
        let _ = server.write_all(piece).now_or_never().expect("there is room");
        is_over = is_over || poll_until_stalled(client.as_mut(), &woken);
    }
    if case.closes {
        server.shutdown().now_or_never().expect("it waits for nothing").expect("nothing to flush");
        let _ = is_over || poll_until_stalled(client.as_mut(), &woken);
    }
    server
}

/// Whether it is over.
fn poll_until_stalled(mut client: Pin<&mut impl Future>, woken: &Arc<Woken>) -> bool {
    let waker = Waker::from(Arc::clone(woken));
    let mut context = Context::from_waker(&waker);
    while woken.0.swap(false, Ordering::Relaxed) {
        if client.as_mut().poll(&mut context).is_ready() {
            return true;
        }
    }
    false
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
