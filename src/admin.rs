//! The admin listener: how the proxy is, for people, orchestrators and Prometheus, and the way to
//! have it read its configuration.
//!
//! It has a thread of its own, so that admin requests and traffic do not slow each other down. It
//! has no passwords: it belongs on a loopback address or in a network of its own.

mod callers;
mod explain;
mod exposition;
mod guard;
mod metrics;
mod page;
mod process;
mod requests;
mod status;
mod stores;
mod upstreams;

use std::{
    convert::Infallible,
    io,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{net::TcpStream, sync::oneshot, task::AbortHandle, time::timeout};

use self::{callers::Asker, exposition::TextFormat, page::Page};
use crate::{
    access_log::AccessLog,
    clock::Timestamp,
    gate::Shared,
    identity::RemoteStatus,
    reload::{Refused, ReloadHandle, ReloadState},
    settings::ReadyStore,
};

pub use self::status::{
    ClockStatus, PolicyStatus, RefusedReload, Reloads, RemoteKeysStatus, RivalStatus, Status,
    StoreStatus,
};
pub use self::stores::RedisStatus;
pub use self::upstreams::{EndpointStatus, ServerStatus, UpstreamStatus};

/// What the listener reports on.
pub struct Context {
    /// What the workers share.
    pub shared: Arc<Shared>,
    /// How the configuration came to be what it is.
    pub state: Arc<ReloadState>,
    /// The access log, if there is one.
    pub access_log: Option<AccessLog>,
    /// Reads the configuration, if it came from files.
    pub reload: Option<ReloadHandle>,
    /// What the process is in the middle of.
    pub phase: Arc<PhaseCell>,
    /// When it was started.
    pub started: Timestamp,
    /// What the store has to do with whether it is ready.
    pub ready_store: ReadyStore,
}

/// What the process is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It does not take requests yet.
    Starting,
    /// It takes requests.
    Serving,
    /// It finishes those that it has, and takes no others.
    Draining,
}

/// Whether new requests should come.
#[derive(Debug, Deserialize, Serialize)]
pub struct Readiness {
    /// What the process is in the middle of.
    pub status: Phase,
    /// Why they should not; nothing: they should.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// The phase, shared by the code that changes it and the code that reports it.
#[derive(Debug, Default)]
pub struct PhaseCell(AtomicU8);

/// A listener at work, until it is dropped.
pub struct Admin {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Connections at once; one more takes the place of one that has not asked yet.
const MAX_CONNECTIONS: usize = 32;
/// How long a request's head may take, and all of a connection, which is one request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_FIELDS: usize = 64;
const MAX_BUFFER_BYTES: usize = 16 * 1024;
const MAX_BODY_BYTES: usize = 64 * 1024;
/// How long accepting pauses when it fails: there may be descriptors again then.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl PhaseCell {
    /// The present phase.
    pub fn get(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            _ => Phase::Draining,
        }
    }

    /// Another phase has begun.
    pub fn set(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }
}

impl Admin {
    /// Answers who asks at `listener`, which does not block.
    ///
    /// # Errors
    /// The thread or its runtime cannot be started.
    pub fn start(listener: TcpListener, context: Context) -> io::Result<Admin> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, Arc::new(context)) => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        })?;
        Ok(Admin { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, context: Arc<Context>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the admin listener cannot be used"),
    };
    let mut guests: Vec<Guest> = Vec::with_capacity(MAX_CONNECTIONS);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                guests.retain(|guest| !guest.task.is_finished());
                if guests.len() < MAX_CONNECTIONS || make_room(&mut guests) {
                    guests.push(Guest::receive(stream, &context));
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
    fn receive(stream: TcpStream, context: &Arc<Context>) -> Guest {
        let has_asked = Arc::new(AtomicBool::new(false));
        let serving = serve(stream, Arc::clone(context), Arc::clone(&has_asked));
        let task = tokio::spawn(async move { drop(timeout(CONNECTION_TIMEOUT, serving).await) });
        Guest { task: task.abort_handle(), has_asked }
    }
}

/// Closes the connection that has been silent longest, so that idle clients cannot lock others out.
fn make_room(guests: &mut Vec<Guest>) -> bool {
    let silent = guests.iter().position(|guest| !guest.has_asked.load(Ordering::Relaxed));
    silent.map(|at| guests.remove(at).task.abort()).is_some()
}

async fn serve(stream: TcpStream, context: Arc<Context>, has_asked: Arc<AtomicBool>) {
    let asker = Asker { peer: stream.peer_addr().ok(), token: None };
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(asker.clone());
        has_asked.store(true, Ordering::Relaxed);
        let context = Arc::clone(&context);
        async move { Ok::<_, Infallible>(context.answer(request).await) }
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

impl Context {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (mut parts, body) = request.into_parts();
        if let Err(suspicion) = guard::check(&parts.method, &parts.uri, &parts.headers) {
            return message(StatusCode::FORBIDDEN, &suspicion.to_string());
        }
        let Some(page) = Page::at(parts.uri.path()) else {
            return message(StatusCode::NOT_FOUND, "there is nothing here");
        };
        if !page.allows(&parts.method) {
            let text = format!("ask by {}", page.allow());
            let mut response = message(StatusCode::METHOD_NOT_ALLOWED, &text);
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(page.allow()));
            return response;
        }
        let sent = match parts.method == Method::POST {
            true => read(body).await,
            false => Ok(Bytes::new()),
        };
        let sent = match sent {
            Ok(sent) => sent,
            Err(response) => return response,
        };
        match page {
            Page::Health => self.health(),
            Page::Ready => self.ready(),
            Page::Status => json_response(StatusCode::OK, &Status::of(self)),
            Page::Metrics => {
                let format = TextFormat::wanted(&parts.headers);
                response(StatusCode::OK, format.content_type(), metrics::text(self, format))
            }
            Page::Reload => self.reload().await,
            Page::Explain => self.explain(&sent).await,
            Page::Caller => self.caller(&parts.uri).await,
            Page::ResetCaller => {
                let asker = parts.extensions.remove::<Asker>().unwrap_or_default();
                self.reset_caller(&parts.uri, asker, &sent).await
            }
        }
    }

    /// How the keys are that are fetched from issuers.
    fn remote_keys(&self) -> Vec<RemoteStatus> {
        self.shared.identifier.ring.statuses(self.shared.clock.now())
    }

    /// The process lives: a bad configuration file is no reason to start it anew.
    fn health(&self) -> Response<Full<Bytes>> {
        let reload = if self.state.report().refused.is_some() { "failed" } else { "ok" };
        json_response(StatusCode::OK, &json!({ "status": "ok", "reload": reload }))
    }

    fn ready(&self) -> Response<Full<Bytes>> {
        let reasons = self.reasons_not_ready();
        let status = match reasons.is_empty() {
            true => StatusCode::OK,
            false => StatusCode::SERVICE_UNAVAILABLE,
        };
        json_response(status, &Readiness { status: self.phase.get(), reasons })
    }

    /// Why new requests should go elsewhere; nothing: they need not.
    fn reasons_not_ready(&self) -> Vec<String> {
        match self.phase.get() {
            Phase::Starting => vec!["it does not take requests yet".into()],
            Phase::Draining => vec!["it is about to end".into()],
            Phase::Serving => match self.ready_store {
                ReadyStore::Ignore => Vec::new(),
                ReadyStore::Require => {
                    let degradations = self.shared.stores.degradations().into_iter();
                    let lasting = degradations.filter(|degradation| !degradation.is_transient());
                    lasting.map(|degradation| degradation.to_string()).collect()
                }
            },
        }
    }

    async fn reload(&self) -> Response<Full<Bytes>> {
        let Some(reload) = &self.reload else {
            return message(StatusCode::CONFLICT, "this configuration came from no files");
        };
        match reload.read().await {
            Ok(Ok(generation)) => {
                let waits_for = self.shared.stores.moving.obstacle();
                let waits_for = waits_for.map(|obstacle| obstacle.to_string());
                let report = json!({ "generation": generation, "move_waits_for": waits_for });
                json_response(StatusCode::OK, &report)
            }
            Ok(Err(Refused { at, problems, more })) => {
                let refused = RefusedReload { at: at.to_string(), problems, more };
                json_response(StatusCode::UNPROCESSABLE_ENTITY, &refused)
            }
            Err(_) => message(StatusCode::SERVICE_UNAVAILABLE, "the process is about to end"),
        }
    }
}

/// The body of a request.
async fn read(body: Incoming) -> Result<Bytes, Response<Full<Bytes>>> {
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let text = format!("send at most {MAX_BODY_BYTES} bytes");
            Err(message(StatusCode::PAYLOAD_TOO_LARGE, &text))
        }
        Err(_) => Err(message(StatusCode::BAD_REQUEST, "the body cannot be read")),
    }
}

fn message(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    json_response(status, &json!({ "message": text }))
}

fn json_response(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    // What is serialized here has no maps with keys that are no text, and cannot fail.
    let text = serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
    response(status, "application/json", text)
}

fn response(status: StatusCode, content_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
