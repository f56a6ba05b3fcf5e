//! `tollgate.yaml`: what needs a restart to change. Policies, which do not, are files of their own.
//!
//! This crate says what is to be opened, and opens no socket and no store.
//!
//! The types to know first:
//!
//! - [`Configuration`]: the settings and the policies that they name.
//! - [`Settings`]: the settings, checked.
//! - [`ListenerSettings`]: a place where clients come in.
//! - [`StoreSettings`]: where counters live.
//! - [`AdminSettings`]: the admin listener for operators.

mod admin;
mod askers;
mod changes;
mod configuration;
mod decisions;
mod disk;
mod ending;
mod limits;
mod listener;
mod log;
mod memory;
mod redis;
mod reload;
mod secret;
mod store;
mod timeouts;
mod tokens;
mod traces;
mod unverified;
mod via;
mod warnings;

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::LazyLock,
    time::Duration,
};

use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use tollgate_identity::{ForwardedField, TrustedProxies};
use tollgate_observe::{
    access_log::{AccessLogSettings, Format},
    trace::TraceSettings,
};
use tollgate_wire::via::Via;
use tollgate_yaml::{
    Check, Choice, Document, Inspection, Problem, Sources, Spanned, schema_of, warning::Warning,
};

pub use self::{
    admin::{AdminPlace, AdminSettings, ReadyRule, ReadyRules, admin_place},
    askers::{AskProtocol, AskedHere, Askers},
    configuration::{Configuration, read_policies, read_policies_of, read_text},
    decisions::{DecisionSettings, Decisions},
    disk::{DiskSettings, SyncMode},
    limits::{Http2Limits, Limits},
    listener::{
        ALPN_HTTP2, CertificateChoice, CertificateValidity, CurrentTls, Epoch, HandshakeConfig,
        ListenAddress, ListenerSettings, Protocols, Redirect, Renewed,
    },
    log::events_format,
    memory::{MemoryBounds, SnapshotSettings},
    redis::{CurrentAccess, Primary, RedisAddress, RedisSettings, Shard, StoreClock, Topology},
    reload::{ReloadSettings, TestsRule},
    secret::Secret,
    store::{MoveMode, Moving, StoreKind, StoreSettings},
    timeouts::Timeouts,
    tokens::{CurrentTokens, MAX_TOKEN_FILE_BYTES, Permission, TokenRefusal, token_in},
};

use self::{
    admin::RawAdmin,
    decisions::RawDecisions,
    ending::{DEFAULT_DRAIN, DRAINS},
    limits::RawLimits,
    listener::RawListener,
    log::{RawAccessLog, RawLog},
    reload::RawReload,
    store::RawStore,
    timeouts::RawTimeouts,
    traces::RawTracing,
};

/// The settings, checked.
#[derive(Clone)]
pub struct Settings {
    /// Where to listen.
    pub listeners: Vec<ListenerSettings>,
    /// Where other programs ask for decisions.
    pub decisions: Decisions,
    /// A policy file, or a folder of them.
    pub policies: PathBuf,
    /// Worker threads.
    pub workers: usize,
    /// The proxies that are trusted about a client's address.
    pub trusted_proxies: TrustedProxies,
    /// Whether upstreams get a `Forwarded` field beside `X-Forwarded-*`.
    pub write_forwarded: bool,
    /// What messages that are forwarded get in `Via`; none: nothing.
    pub via: Option<Via>,
    /// Where counters live.
    pub store: StoreSettings,
    /// Memory for verified tokens.
    pub token_cache_bytes: u64,
    /// The access log; none: there is none.
    pub access_log: Option<AccessLogSettings>,
    /// How events, which are not about single requests, look on standard error.
    pub events: Format,
    /// How long requests in flight may take to finish at shutdown.
    pub drain: Duration,
    /// How long it still accepts connections after it is signalled to end.
    pub drain_delay: Duration,
    /// A Unix socket at which the next process takes over the listening sockets.
    pub handover: Option<PathBuf>,
    /// How long clients may take.
    pub timeouts: Timeouts,
    /// How much clients may send and hold.
    pub limits: Limits,
    /// The admin listener for operators, if there is one.
    pub admin: Option<AdminSettings>,
    /// How changes of files are noticed.
    pub reload: ReloadSettings,
    /// Where spans of requests go; none: nowhere.
    pub tracing: Option<TraceSettings>,
    /// Settings that are most likely not intended, in the order of the file.
    pub warnings: Vec<Warning>,
}

/// Without the values, some of which may be of the environment.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").finish_non_exhaustive()
    }
}

/// The JSON Schema of a settings file.
pub fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> =
        LazyLock::new(|| schema_of::<RawSettings>("Settings of Tollgate"));
    &SCHEMA
}

// Not `Debug`, as the URLs in it may hold passwords.
/// What needs a restart to change: where to listen, where counters live. Policies, which do not,
/// are files of their own. Values may name environment variables: `${NAME}` or `${NAME:-default}`;
/// `$${` is the text `${`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "settings file")]
struct RawSettings {
    /// Version of the format: 1.
    #[schemars(range(min = 1, max = 1))]
    version: Spanned<u32>,
    /// Where to listen for requests: at least one address.
    #[schemars(length(min = 1))]
    #[schemars(extend("examples" = [[{ "address": "127.0.0.1:8080" }]]))]
    listeners: Spanned<Vec<RawListener>>,
    /// Where other programs ask for decisions, in a protocol of theirs. Left out: nowhere.
    #[serde(default)]
    #[schemars(extend("examples" = [[{ "address": "127.0.0.1:6380", "protocol": "redis" }]]))]
    decisions: Vec<RawDecisions>,
    /// A policy file or a folder of them, from this file's folder. Default: policies.
    #[schemars(extend("examples" = ["policies/api.yaml"]))]
    policies: Option<Spanned<String>>,
    /// Threads that serve requests, 1 to 256. Left out: one a core.
    #[schemars(range(min = 1, max = 256))]
    workers: Option<Spanned<u16>>,
    /// Addresses and networks of proxies that are trusted about a client's address, such as
    /// `10.0.0.0/8`. Left out: no proxy.
    #[serde(default)]
    #[schemars(extend("examples" = [["10.0.0.0/8"]]))]
    trusted_proxies: Vec<Spanned<String>>,
    /// Which field trusted proxies write: `x-forwarded-for` or `forwarded`. Default:
    /// x-forwarded-for.
    client_address_from: Option<Spanned<Choice<ForwardedField>>>,
    /// Whether upstreams get a `Forwarded` field (RFC 7239) beside `X-Forwarded-*`. Default: false.
    #[serde(default)]
    send_forwarded: bool,
    /// A name for this proxy, which forwarded requests and responses get in `Via` (RFC 9110). A
    /// request that already has it there goes in a loop, and is refused with 508. Left out: nothing
    /// is added, and no request is refused.
    #[schemars(length(min = 1, max = 64))]
    #[schemars(extend("examples" = ["edge-1"]))]
    via: Option<Spanned<String>>,
    /// Where counters live. Left out: in the process.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "redis": { "url": "redis://127.0.0.1:6379" } }]))]
    store: RawStore,
    /// Memory for verified tokens, in bytes. Default: 67108864, which is 64 MiB.
    #[schemars(extend("examples" = [67108864]))]
    token_cache_bytes: Option<Spanned<u64>>,
    /// The access log: one line a request on standard output.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "format": "json" }]))]
    access_log: RawAccessLog,
    /// The log of events, which are not about single requests, on standard error.
    #[serde(default)]
    log: RawLog,
    /// How long requests in flight may take to finish at shutdown, up to 1h. Default: 30s.
    #[schemars(extend("examples" = ["30s"]))]
    drain: Option<Spanned<String>>,
    /// How long the process serves as before after a signal to end, while `/readyz` reports that it
    /// is not ready: a load balancer has this time to notice. Up to 1h. Default: 0s.
    #[schemars(extend("examples" = ["10s"]))]
    drain_delay: Option<Spanned<String>>,
    /// A Unix socket, from this file's folder. A process that is started with the same takes over
    /// the listening sockets of the one that serves, which then finishes what it has begun and
    /// ends. Left out: there is no handover.
    #[schemars(extend("examples" = ["/run/tollgate/handover.sock"]))]
    handover: Option<Spanned<String>>,
    /// How long clients may take.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "head": "10s" }]))]
    timeouts: RawTimeouts,
    /// How much clients may send and hold.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "connections": 20000 }]))]
    limits: RawLimits,
    /// The admin listener for operators. Left out: there is none.
    #[schemars(extend("examples" = [{ "address": "127.0.0.1:9901" }]))]
    admin: Option<RawAdmin>,
    /// How changes of policies, keys and this file are noticed.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "poll": "5s" }]))]
    reload: RawReload,
    /// Traces: where spans of requests go, and of which requests.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "otlp": "http://127.0.0.1:4318" }]))]
    tracing: RawTracing,
}

const DEFAULT_TOKEN_CACHE_BYTES: u64 = 64 << 20;
const MAX_WORKERS: u16 = 256;

impl Settings {
    /// Reads the settings in `text`; `file` is where they came from, and `sources` has the secrets
    /// and files that they name.
    ///
    /// # Errors
    /// Every problem, in the order of their places.
    pub fn parse(file: &Path, text: &str, sources: &Sources) -> Result<Settings, Vec<Problem>> {
        let shown = file.display().to_string();
        let document = Document::parse_with(&shown, text, sources)
            .map_err(|problem| vec![problem])?
            .with_schema(schema())
            .with_stand_ins();
        let mut problems = Vec::new();
        let raw = document.decode::<RawSettings>(&[], &mut problems);
        let inspection = Inspection::new(&document, file, sources, problems);
        let mut checker = Checker { inspection, file };
        let settings = raw.and_then(|raw| checker.check(raw));
        checker.inspection.conclude(settings)
    }
}

struct Checker<'c> {
    inspection: Inspection<'c>,
    /// The settings file: paths in it start from its folder.
    file: &'c Path,
}

impl<'c> Check<'c> for Checker<'c> {
    fn inspection(&mut self) -> &mut Inspection<'c> {
        &mut self.inspection
    }
}

impl Checker<'_> {
    fn check(&mut self, raw: RawSettings) -> Option<Settings> {
        self.version(&raw.version);
        let listeners = self.listeners(&raw.listeners);
        let decisions = self.decisions(&raw.decisions);
        let field = self.keyword_or_default(raw.client_address_from.as_ref());
        self.refuse_other_field_of_askers(raw.client_address_from.as_ref(), field, &decisions);
        let networks = self.trusted_networks(&raw.trusted_proxies);
        let via = self.via(raw.via.as_ref());
        let access_log = self.access_log(&raw.access_log);
        let events = self.events(&raw.log);
        let workers = self.workers(raw.workers.as_ref());
        let store = self.store(&raw.store);
        let drain = self.time_or(&raw.drain, DRAINS, DEFAULT_DRAIN);
        let drain_delay = self.time_or(&raw.drain_delay, DRAINS, Duration::ZERO);
        let handover = self.handover(raw.handover.as_ref());
        let timeouts = self.timeouts(&raw.timeouts);
        let limits = self.limits(&raw.limits);
        let admin = self.admin(raw.admin.as_ref());
        let reload = self.reload(&raw.reload);
        let tracing = self.tracing(&raw.tracing);
        Some(Settings {
            listeners,
            decisions,
            policies: beside(
                self.file,
                raw.policies.as_ref().map_or(DEFAULT_POLICIES, |path| &path.value),
            ),
            workers,
            trusted_proxies: TrustedProxies::new(networks, field?),
            write_forwarded: raw.send_forwarded,
            via,
            store: store?,
            token_cache_bytes: raw
                .token_cache_bytes
                .map_or(DEFAULT_TOKEN_CACHE_BYTES, |bytes| bytes.value),
            access_log: access_log?,
            events: events?,
            drain,
            drain_delay,
            handover,
            timeouts,
            limits,
            admin,
            reload,
            tracing,
            warnings: self.take_warnings(),
        })
    }

    fn address(&mut self, raw: &Spanned<String>) -> Option<SocketAddr> {
        let address = raw.value.parse().ok();
        if address.is_none() {
            let message = format!("`{}` is not an address to listen on", raw.value);
            self.note(raw, message, "write an IP address and a port: 127.0.0.1:8080, [::]:8080");
        }
        address
    }

    fn workers(&mut self, raw: Option<&Spanned<u16>>) -> usize {
        let Some(raw) = raw else {
            return std::thread::available_parallelism().map_or(1, usize::from);
        };
        if !(1..=MAX_WORKERS).contains(&raw.value) {
            self.note(
                raw,
                "number of workers out of range",
                "write 1 to 256, or remove it: one per core",
            );
        }
        raw.value.into()
    }
}

/// A path in a settings file is read from the file's folder.
fn beside(file: &Path, path: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

/// The default of `policies`.
const DEFAULT_POLICIES: &str = "policies";

#[cfg(test)]
mod tests;
