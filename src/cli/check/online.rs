//! `tollgate check --online`: whether what a configuration names can be reached now. Everything is
//! tried at once, and each for as long as a running proxy would wait.

use std::{
    collections::BTreeMap,
    fmt::Display,
    io,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::{LocalBoxFuture, join_all};
use serde::Serialize;
use tokio::{runtime, task::LocalSet};
use tollgate_clock::{Clock, Timestamp};
use tollgate_identity::{FetchError, Fetcher, IssuerKeys, IssuerServer, KeyRing, RemoteSpec};
use tollgate_keyword::Keyword;
use tollgate_policy::{Policies, Policy, Server, Upstream};
use tollgate_settings::{Settings, StoreSettings};
use tollgate_store::{MemoryStore, ServerHealth, ServerReport, Store, Stores};
use tollgate_upstream::reach;

use crate::cli::counted;

/// How long the servers of Redis may take to be known.
const REDIS_TIMEOUT: Duration = Duration::from_secs(5);

/// Something that was tried.
#[derive(Serialize)]
pub(super) struct Attempt {
    /// What: `upstream app, 127.0.0.1:3000`.
    pub(super) what: String,
    /// Whether a proxy can use it now.
    pub(super) is_good: bool,
    /// What was found, or why it cannot be used.
    pub(super) found: String,
    /// How long that took, in milliseconds.
    pub(super) took_ms: f64,
}

/// Where a proxy reads keys, or asks about tokens.
#[derive(Default)]
struct Issuers<'p> {
    keys: BTreeMap<String, &'p RemoteSpec>,
    introspection: BTreeMap<String, &'p IssuerServer>,
}

/// Tries everything that settings and policies name.
///
/// # Errors
/// The system refuses a thread or an event queue.
pub(super) fn attempt_all(
    settings: Option<&Settings>,
    policies: &Policies,
) -> io::Result<Vec<Attempt>> {
    let now = Clock::System.now();
    let ring = KeyRing::start(Clock::System)?;
    let issuers = Issuers::of(policies);
    let mut attempts: Vec<LocalBoxFuture<'_, Attempt>> = Vec::new();
    for (url, spec) in issuers.keys {
        attempts.push(Box::pin(read_keys(url, spec, &ring, now)));
    }
    for (url, server) in issuers.introspection {
        attempts.push(Box::pin(ask_introspection(url, server, ring.fetcher())));
    }
    for (policy, upstream, server) in servers_of(policies) {
        attempts.push(Box::pin(connect(policy, upstream, server)));
    }
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut tried, redis) = LocalSet::new().block_on(&runtime, async {
        let redis = settings.map(|settings| connect_to_redis(settings.store.clone()));
        let redis = async { join_all(redis).await.into_iter().flatten() };
        futures_util::future::join(join_all(attempts), redis).await
    });
    tried.extend(redis);
    tried.extend(settings.into_iter().flat_map(|settings| certificates(settings, now)));
    // Does not wait for lookups that still run.
    runtime.shutdown_background();
    Ok(tried)
}

/// How many attempts failed, as an error has it; none: all is well.
pub(super) fn failure<'a>(attempts: impl Iterator<Item = &'a Attempt>) -> Option<String> {
    let (good, bad): (Vec<_>, Vec<_>) = attempts.partition(|attempt| attempt.is_good);
    let all = counted(good.len() + bad.len(), "attempt");
    let count = bad.len();
    (count > 0).then(|| format!("{count} of {all} to reach what is configured failed"))
}

impl<'p> Issuers<'p> {
    fn of(policies: &'p Policies) -> Issuers<'p> {
        let mut issuers = Issuers::default();
        for rules in policies.iter().map(|policy| &policy.identity) {
            for issuer in &rules.issuers {
                if let IssuerKeys::Remote { spec, .. } = &issuer.keys {
                    issuers.keys.insert(spec.location.server().to_string(), spec);
                }
            }
            if let Some(introspection) = &rules.introspection {
                let server = &introspection.introspector.server;
                issuers.introspection.insert(server.to_string(), server);
            }
        }
        issuers
    }
}

/// Each server once, with the first policy that has it.
fn servers_of(policies: &Policies) -> impl Iterator<Item = (&Policy, &Upstream, &Server)> {
    policies.iter().flat_map(|policy| {
        policy.upstreams.iter().flat_map(move |upstream| {
            upstream.servers.iter().map(move |server| (policy, upstream, server))
        })
    })
}

async fn read_keys(url: String, spec: &RemoteSpec, ring: &KeyRing, now: Timestamp) -> Attempt {
    let begun = Instant::now();
    let keys = ring.adopt(spec);
    keys.refresh(now).await;
    let status = keys.status(Clock::System.now());
    let result = match status.last_error {
        None => Ok(counted(status.keys, "key")),
        Some(error) => Err(error),
    };
    Attempt::new(format!("keys at {url}"), begun, result)
}

/// No token is sent: any answer shows that the server is there and trusted.
async fn ask_introspection(url: String, server: &IssuerServer, fetcher: &Fetcher) -> Attempt {
    let begun = Instant::now();
    let result = match fetcher.get(server, "application/json").await {
        Ok(_) | Err(FetchError::Status(_)) => Ok("it answers"),
        Err(error) => Err(error),
    };
    Attempt::new(format!("introspection at {url}"), begun, result)
}

async fn connect(policy: &Policy, upstream: &Upstream, server: &Server) -> Attempt {
    let begun = Instant::now();
    let result = reach(upstream, server).await.map(|addresses| {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("it is reached at {}", addresses.join(", "))
    });
    let what = format!("upstream {}/{}, {server}", policy.name, upstream.name);
    Attempt::new(what, begun, result)
}

/// Connects to the servers of both stores, if callers are moved from one to another.
async fn connect_to_redis(settings: StoreSettings) -> Vec<Attempt> {
    let begun = Instant::now();
    // No key is hashed. With a secret, none is asked for in Redis, or left there.
    let secret = [0; 16];
    let settings = StoreSettings { key_secret: Some(secret), ..settings };
    // Counters on disk are left alone: a proxy may have them open.
    let memory = MemoryStore::new(settings.bounds, secret);
    let stores = Arc::new(Stores::new(settings, memory, Clock::System));
    let store: Rc<Store> = Store::start(Arc::clone(&stores));
    store.reach(REDIS_TIMEOUT).await;
    let servers = [&stores.current_servers, &stores.next_servers];
    let reports = servers.into_iter().flat_map(|servers| servers.report());
    let attempt = |report: ServerReport| {
        let result = match (report.health, report.last_error) {
            (ServerHealth::Serving, _) => Ok(format!("it is {}", report.role.keyword())),
            (_, Some(error)) => Err(error),
            (_, None) => Err(format!("no answer within {} seconds", REDIS_TIMEOUT.as_secs())),
        };
        Attempt::new(format!("Redis {}", report.server), begun, result)
    };
    reports.map(attempt).collect()
}

/// Certificates that listeners show, which were read with the settings.
fn certificates(settings: &Settings, now: Timestamp) -> Vec<Attempt> {
    let all = settings.all_listeners().filter_map(|listener| listener.tls.as_ref());
    let all = all.flat_map(|tls| tls.validity().to_vec());
    let seconds = i64::try_from(now.as_micros() / 1_000_000).unwrap_or(i64::MAX);
    all.map(|certificate| {
        let until = u64::try_from(certificate.not_after).unwrap_or_default();
        let until = Timestamp::from_micros(until.saturating_mul(1_000_000));
        let result = match certificate.not_after > seconds {
            true => Ok(format!("it is valid until {until}")),
            false => Err(format!("it was valid until {until}")),
        };
        Attempt::new(format!("certificate {}", certificate.file), Instant::now(), result)
    })
    .collect()
}

impl Attempt {
    fn new(what: String, begun: Instant, result: Result<impl Display, impl Display>) -> Attempt {
        let is_good = result.is_ok();
        let found = match result {
            Ok(found) => found.to_string(),
            Err(error) => error.to_string(),
        };
        let took_ms = (begun.elapsed().as_secs_f64() * 1000.0 * 10.0).round() / 10.0;
        Attempt { what, is_good, found, took_ms }
    }
}
