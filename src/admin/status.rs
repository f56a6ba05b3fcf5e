//! `GET /status`: what is in force since when, and what is not as it should be.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_clock::Timestamp;
use tollgate_identity::RemoteStatus;
use tollgate_keyword::Keyword;
use tollgate_policy::{HostPattern, Policy};
use tollgate_settings::StoreClock;
use tollgate_store::{Rival, Skew, Stores, Unanswered};

use super::{Context, DiskStatus, Phase, RedisStatus, UpstreamStatus, metrics, upstreams};
use crate::reload::Refused;

/// The whole status. Written by a proxy, and read by `tollgate status`.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct Status {
    /// Of the program.
    pub version: String,
    /// What the process is in the middle of.
    pub phase: Phase,
    /// When the process was started, as RFC 3339 writes it. So are all other times.
    pub started: String,
    /// Which configuration is in force: 1 at the start, one more with each reload.
    pub generation: u64,
    /// Since when it is.
    pub loaded: String,
    /// A short name of the policies, the same at every proxy that has the same.
    pub digest: String,
    /// How often the configuration was read anew.
    pub reloads: Reloads,
    /// What is wrong with the latest configuration, if that is why it is not in force.
    pub refused: Option<RefusedReload>,
    /// Sections of the settings file that differ from what is in force until a restart.
    pub needs_restart: Vec<String>,
    /// How many series `/metrics` has.
    #[serde(default)]
    pub metric_series: usize,
    /// The policies in force.
    pub policies: Vec<PolicyStatus>,
    /// Where counters are.
    pub store: StoreStatus,
    /// Where requests are forwarded to.
    pub upstreams: Vec<UpstreamStatus>,
    /// The keys that are fetched from issuers.
    pub remote_keys: Vec<RemoteKeysStatus>,
}

/// How often the configuration was read anew.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct Reloads {
    /// And was put in force.
    pub done: u64,
    /// And was refused.
    pub failed: u64,
}

/// A reload that was refused.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct RefusedReload {
    /// When.
    pub at: String,
    /// What is wrong, as it is shown to people.
    pub problems: Vec<String>,
    /// How many more problems there are.
    pub more: usize,
}

/// A policy in force.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct PolicyStatus {
    /// Its name.
    pub name: String,
    /// The hosts that it is for; none: all others.
    pub hosts: Vec<String>,
    /// How many limits it has.
    pub limits: usize,
    /// How many routes it has.
    pub routes: usize,
}

/// Where counters are, and what happened there.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct StoreStatus {
    /// `memory` or `redis`.
    pub current: String,
    /// The next store, if callers are mirrored in it or moved to it.
    pub next: Option<String>,
    /// The percentage of callers that are to be mirrored or moved.
    pub percent: Option<u8>,
    /// The mode: `mirror`, `move` or `move_now`, as the settings say.
    #[serde(default)]
    pub mode: Option<String>,
    /// The percentage of callers that the next store decides.
    #[serde(default)]
    pub moved: u8,
    /// Why callers are still mirrored who are to be moved.
    #[serde(default)]
    pub move_waits_for: Option<String>,
    /// For how many seconds at least, if that is known.
    #[serde(default)]
    pub move_seconds_left: Option<u64>,
    /// The servers of stores in Redis.
    #[serde(default)]
    pub servers: Vec<RedisStatus>,
    /// Why some or all callers are decided without Redis at the moment; empty if none are.
    #[serde(default)]
    pub alone: Vec<String>,
    /// Counters in the process.
    pub counters: usize,
    /// The disk that counters are kept on, if they are.
    #[serde(default)]
    pub disk: Option<DiskStatus>,
    /// Counters that programs charge at instants which they give.
    #[serde(default)]
    pub client_timed: usize,
    /// The greatest of these instants, by which such counters end; none: there are none.
    #[serde(default)]
    pub watermark: Option<String>,
    /// Decisions that the store did not make, by reason.
    pub unanswered: BTreeMap<String, u64>,
    /// Decisions that were mirrored in another store.
    pub mirrored: u64,
    /// Mirrored decisions that differed.
    pub disagreed: u64,
    /// Decisions that could not be mirrored, because the other store did not answer.
    #[serde(default)]
    pub unmirrored: u64,
    /// Counters with charges that were admitted locally and are not written to Redis yet.
    #[serde(default)]
    pub owed: usize,
    /// Counters that a server may have lost, and that were not written back to it yet.
    #[serde(default)]
    pub lost: usize,
    /// Requests admitted locally that will not be written to Redis.
    #[serde(default)]
    pub unowed: u64,
    /// Charges that Redis may have taken: the connection broke before its reply.
    #[serde(default)]
    pub unknown_charges: u64,
    /// The skew between the proxy's clock and the clock of each Redis server.
    #[serde(default)]
    pub clocks: Vec<ClockStatus>,
    /// Redis servers that say that they are primary, and are not used.
    #[serde(default)]
    pub rivals: Vec<RivalStatus>,
}

/// The skew between the proxy's clock and a Redis server's clock.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct ClockStatus {
    /// The server.
    pub server: String,
    /// By how much the proxy's clock is ahead.
    pub ahead_seconds: f64,
    /// Whose time counts: `redis` or `proxy`.
    pub clock: String,
    /// Whether that is the server's because the proxy's clock is too far off.
    pub overruled: bool,
}

/// A second primary of a shard: what it takes is lost.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct RivalStatus {
    /// Where it is.
    pub server: String,
    /// The name of the shard, or of the service.
    pub shard: String,
    /// Where the server is that is used.
    pub used: String,
}

/// Keys that are fetched from an issuer.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct RemoteKeysStatus {
    /// Where they come from.
    pub url: String,
    /// How many there are to verify with now.
    pub keys: usize,
    /// When they were last fetched.
    pub fetched: Option<String>,
    /// Why the latest fetch failed, if it did.
    pub last_error: Option<String>,
    /// How many fetches were begun.
    pub fetches: u64,
    /// What is wrong with them: why the latest fetch failed, or that there never were any, so that
    /// requests with tokens of the issuer get 503.
    #[serde(default)]
    pub problem: Option<String>,
}

impl Status {
    pub(super) fn of(context: &Context) -> Status {
        let report = context.state.report();
        let snapshot = context.shared.snapshot();
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            phase: context.phase.get(),
            started: context.started.to_string(),
            generation: report.generation,
            loaded: report.loaded.to_string(),
            digest: report.digest,
            reloads: Reloads { done: report.done, failed: report.failed },
            refused: report.refused.map(Into::into),
            metric_series: metrics::series(context),
            needs_restart: report.needs_restart.into_iter().map(str::to_owned).collect(),
            policies: snapshot.policies.iter().map(PolicyStatus::of).collect(),
            store: StoreStatus::of(&context.shared.stores, context.shared.clock.now()),
            upstreams: upstreams::all(&context.shared).into_iter().map(Into::into).collect(),
            remote_keys: context.remote_keys().into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Refused> for RefusedReload {
    fn from(Refused { at, problems, more }: Refused) -> RefusedReload {
        RefusedReload { at: at.to_string(), problems, more }
    }
}

impl PolicyStatus {
    fn of(policy: &Policy) -> PolicyStatus {
        let host = |host: &HostPattern| match host {
            HostPattern::Exact(name) => name.to_string(),
            HostPattern::Below(name) => format!("*.{name}"),
        };
        PolicyStatus {
            name: policy.name.to_string(),
            hosts: policy.hosts.iter().map(host).collect(),
            limits: policy.limits.len(),
            routes: policy.routes.len(),
        }
    }
}

impl StoreStatus {
    fn of(stores: &Stores, now: Timestamp) -> StoreStatus {
        let counted =
            |reason: Unanswered| (reason.keyword().into(), stores.counts.unanswered(reason));
        let settings = stores.settings();
        let obstacle = stores.moving.obstacle();
        StoreStatus {
            current: settings.current.name().into(),
            next: settings.next.as_ref().map(|next| next.to.name().into()),
            percent: stores.moving.plan().map(|(percent, _)| percent),
            mode: stores.moving.plan().map(|(_, mode)| mode.keyword().into()),
            moved: stores.moving.moved(),
            move_waits_for: obstacle.as_ref().map(ToString::to_string),
            move_seconds_left: obstacle.and_then(|obstacle| obstacle.seconds_left()),
            servers: RedisStatus::all(stores, now),
            alone: stores.degradations().iter().map(ToString::to_string).collect(),
            counters: stores.memory.len()
                + stores.disk.as_ref().map_or(0, |disk| disk.memory().len()),
            disk: stores.disk().map(|disk| disk.report().into()),
            client_timed: stores.client_timed.count(),
            watermark: stores.client_timed.watermark().map(|watermark| watermark.to_string()),
            unanswered: Unanswered::all().map(counted).collect(),
            mirrored: stores.counts.mirrored.get(),
            disagreed: stores.counts.disagreed.get(),
            rivals: stores.counts.rivals().report().into_iter().map(Into::into).collect(),
            unmirrored: stores.counts.unmirrored.get(),
            owed: stores.pending(),
            lost: stores.to_reseed(),
            unowed: stores.counts.unowed.get(),
            unknown_charges: stores.counts.unknown.get(),
            clocks: stores.skews().into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Skew> for ClockStatus {
    fn from(skew: Skew) -> Self {
        let clock = match skew.clock {
            StoreClock::Redis => "redis",
            StoreClock::Proxy => "proxy",
        };
        ClockStatus {
            ahead_seconds: skew.ahead_seconds(),
            server: skew.server,
            clock: clock.into(),
            overruled: skew.is_overruled,
        }
    }
}

impl From<Rival> for RivalStatus {
    fn from(rival: Rival) -> Self {
        let Rival { server, shard, used } = rival;
        RivalStatus { server, shard, used }
    }
}

impl From<RemoteStatus> for RemoteKeysStatus {
    fn from(status: RemoteStatus) -> Self {
        let problem = status.problem();
        let RemoteStatus { url, keys, fetched, last_error, fetches } = status;
        let fetched = fetched.map(|fetched| fetched.to_string());
        RemoteKeysStatus { url, keys, fetched, last_error, fetches, problem }
    }
}
