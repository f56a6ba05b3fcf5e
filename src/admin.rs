//! The admin listener: how the proxy is, for people, orchestrators and Prometheus, and the way to
//! have it read its configuration.
//!
//! It has a thread of its own, so that admin requests and traffic do not slow each other down. What
//! it answers is a table of endpoints (`endpoint.rs`); before that, a request passes the guard
//! against pages of other origins (`src/guard.rs`) and the check of its token (`CurrentTokens`).

mod admin_request;
mod callers;
mod certificates;
mod dashboard;
mod disk;
mod endpoint;
mod explain;
mod exposition;
mod fleet;
mod guests;
mod live;
mod metrics;
mod openapi;
mod process;
mod ranking;
mod reception;
mod requests;
mod status;
mod stores;
mod upstreams;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread::JoinHandle,
};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{Either, Full};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tollgate_clock::Timestamp;
use tollgate_gate::Shared;
use tollgate_identity::RemoteStatus;
use tollgate_keyword::keywords;
use tollgate_observe::access_log::AccessLog;
use tollgate_settings::{AdminSettings, ListenerSettings, ReadyRule, ReadyRules};

use self::{
    admin_request::AdminRequest,
    endpoint::Page,
    exposition::TextFormat,
    live::{EventBody, EventStream, Live},
    reception::{Offer, Reception},
};
use crate::{
    reload::{ReloadHandle, ReloadState},
    server::Listener,
};

pub use self::disk::{BackupOrder, BackupReport, CheckReport, DamagedFile, DiskStatus};
pub use self::fleet::{Describer, FleetReport, ProxySummary};
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
    /// The listeners for traffic, whose certificates a reload renews; none if they came from no
    /// files.
    pub listeners: Vec<ListenerSettings>,
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
    /// Describes the proxy to others.
    pub describer: Arc<Describer>,
    /// When it is ready.
    pub ready: ReadyRules,
}

/// What the process is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It does not take requests yet.
    Starting,
    /// It takes requests.
    Serving,
    /// It finishes those that it has, and takes no others.
    Draining,
}

keywords! { Phase { Starting = "starting", Serving = "serving", Draining = "draining" } }

/// That the process runs.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct Health {
    /// `ok`.
    pub status: String,
    /// Whether the latest configuration is in force: `ok`, or `failed` if it was refused.
    pub reload: String,
}

/// A configuration was read again, and is in force.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct Reloaded {
    /// Which configuration it is: one more with each reload.
    pub generation: u64,
    /// Why callers that are to be moved to another store are not moved yet.
    pub move_waits_for: Option<String>,
}

/// A sentence for people: why there is no other answer.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct Message {
    /// The sentence.
    pub message: String,
}

/// Whether new requests should come.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
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
    /// Answers who asks at `listener`, and who asks for metrics at an address of theirs, by these
    /// settings.
    ///
    /// # Errors
    /// The thread or its runtime cannot be started.
    pub fn start(
        listener: Listener,
        metrics: Option<Listener>,
        settings: &AdminSettings,
        context: Context,
    ) -> io::Result<Admin> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let reception = Arc::new(Reception::new(settings, context));
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || {
            // Whole, for its file goes after the socket is closed.
            runtime.block_on(async {
                if let Some(metrics) = metrics {
                    let reception = Arc::clone(&reception);
                    tokio::spawn(guests::receive(metrics, Offer::Metrics, reception));
                }
                tokio::select! {
                    () = guests::receive(listener, Offer::All, Arc::clone(&reception)) => {}
                    never = reception.observe() => match never {},
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

impl Context {
    /// What is at an endpoint, for a request that may ask for it.
    async fn answer(&self, page: Page, asked: &AdminRequest, live: &Live) -> Response<AnswerBody> {
        let page = match page {
            Page::Events => return self.events(live),
            Page::History => json_response(StatusCode::OK, &live.history(self)),
            Page::Dashboard(file) => file.answer(),
            Page::Health => self.health(),
            Page::Ready => self.ready(asked.may_read),
            Page::Status => json_response(StatusCode::OK, &Status::of(self)),
            Page::Metrics => {
                let format = TextFormat::wanted(&asked.headers);
                response(StatusCode::OK, format.content_type(), metrics::text(self, format))
            }
            Page::Description => {
                response(StatusCode::OK, "application/json", openapi::DESCRIPTION.clone())
            }
            Page::Reload => self.reload().await,
            Page::Explain => self.explain(&asked.body).await,
            Page::TopCallers => self.top_callers(asked),
            Page::Denials => self.latest_denials(asked),
            Page::Fleet => self.fleet().await,
            Page::Caller => self.caller(asked).await,
            Page::ResetCaller => self.reset_caller(asked).await,
            Page::BackUpStore => self.back_up_store(asked).await,
            Page::CheckStore => self.check_store().await,
            Page::CompactStore => self.compact_store().await,
        };
        page.map(Either::Left)
    }

    /// An event a second, until the client has enough.
    fn events(&self, live: &Live) -> Response<AnswerBody> {
        let Some(EventStream { body, progress }) = live.listen(self) else {
            let text = "16 clients listen already: close another dashboard, and try again";
            return message(StatusCode::SERVICE_UNAVAILABLE, text).map(Either::Left);
        };
        let mut answer =
            response(StatusCode::OK, EVENTS, String::new()).map(|_| Either::Right(body));
        answer.extensions_mut().insert(progress);
        answer
    }

    /// How the keys are that are fetched from issuers.
    fn remote_keys(&self) -> Vec<RemoteStatus> {
        self.shared.identifier.ring.statuses(self.shared.clock.now())
    }

    /// The process lives: a bad configuration file is no reason to start it anew.
    fn health(&self) -> Response<Full<Bytes>> {
        let reload = if self.state.report().refused.is_some() { "failed" } else { "ok" };
        json_response(StatusCode::OK, &Health { status: "ok".into(), reload: reload.into() })
    }

    /// Reasons name servers, which are only for those who may read.
    fn ready(&self, may_read: bool) -> Response<Full<Bytes>> {
        let mut reasons = self.reasons_not_ready();
        if !may_read && self.phase.get() == Phase::Serving && !reasons.is_empty() {
            reasons = vec!["something that it needs is away: see /status".into()];
        }
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
            Phase::Serving => {
                let mut reasons = Vec::new();
                if self.ready.store == ReadyRule::Require {
                    self.add_reasons_of_store(&mut reasons);
                }
                if self.ready.keys == ReadyRule::Require {
                    let missing = self.remote_keys().into_iter().filter(RemoteStatus::are_missing);
                    reasons.extend(
                        missing.map(|own| format!("the keys of {} were never fetched", own.url)),
                    );
                }
                reasons
            }
        }
    }

    fn add_reasons_of_store(&self, reasons: &mut Vec<String>) {
        let degradations = self.shared.stores.degradations().into_iter();
        let lasting = degradations.filter(|degradation| !degradation.is_transient());
        reasons.extend(lasting.map(|degradation| degradation.to_string()));
        if self.shared.stores.disk().is_some_and(|disk| disk.is_failing()) {
            reasons.push("counters cannot be written to disk".to_owned());
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
                let reloaded = Reloaded { generation, move_waits_for: waits_for };
                json_response(StatusCode::OK, &reloaded)
            }
            Ok(Err(refused)) => {
                json_response(StatusCode::UNPROCESSABLE_ENTITY, &RefusedReload::from(refused))
            }
            Err(_) => message(StatusCode::SERVICE_UNAVAILABLE, "the process is about to end"),
        }
    }
}

/// The type of server-sent events.
const EVENTS: &str = "text/event-stream";

/// What is answered: all at once, or events as they come.
type AnswerBody = Either<Full<Bytes>, EventBody>;

fn message(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    json_response(status, &Message { message: text.to_owned() })
}

fn json_response(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    // What is serialized here has no maps with keys that are no text, and cannot fail.
    let text = serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
    response(status, "application/json", text)
}

fn response(status: StatusCode, content_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
