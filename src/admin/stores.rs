//! Redis on the admin pages: the state of its servers, whether it decides, and how callers are
//! moved.
//!
//! The settings, and the servers that a cluster reports, bound the values of labels.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_clock::Timestamp;
use tollgate_keyword::Keyword;
use tollgate_settings::{MoveMode, StoreKind};
use tollgate_store::{ReplicaLink, ServerHealth, ServerReport, Servers, Stores};

use super::exposition::{Exposition, MetricKind};

/// A server of a store in Redis.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct RedisStatus {
    /// The store that it belongs to: `current`, or `next`.
    pub store: String,
    /// Its host and port, and its database unless that is 0.
    pub server: String,
    /// `primary`, `rival` (it says that it is primary, and is not used), `replica`, `sentinel` or
    /// `unknown`.
    pub role: String,
    /// `serving`, `doubted`, `away` or `unknown`.
    pub health: String,
    /// Since when it has this health.
    pub since: String,
    /// Why it was last away.
    pub last_error: Option<String>,
    /// The message with which it refuses charges, if it does.
    pub refusal: Option<String>,
    /// Whether a replica replicates its primary, if that is known.
    pub follows: Option<bool>,
    /// How far it is behind, in seconds.
    pub lag: Option<f64>,
}

impl RedisStatus {
    /// The state of all servers.
    pub(super) fn all(stores: &Stores, now: Timestamp) -> Vec<RedisStatus> {
        let of = |(store, report)| RedisStatus::of(store, report, now);
        all(stores).into_iter().map(of).collect()
    }

    fn of(store: &str, report: ServerReport, now: Timestamp) -> RedisStatus {
        let since = report.began(now).to_string();
        let ServerReport { server, role, health, last_error, refusal, link, .. } = report;
        let (follows, lag) = match link {
            ReplicaLink::Unknown => (None, None),
            ReplicaLink::Up(lag) => (Some(true), Some(lag.as_secs_f64())),
            ReplicaLink::Down => (Some(false), None),
        };
        RedisStatus {
            store: store.into(),
            server,
            role: role.keyword().into(),
            health: health.keyword().into(),
            since,
            last_error,
            refusal,
            follows,
            lag,
        }
    }
}

/// All servers, by the store that they belong to.
fn all(stores: &Stores) -> Vec<(&'static str, ServerReport)> {
    let settings = stores.settings();
    let of = |store: &'static str, kind: &StoreKind, servers: &Servers| match kind {
        StoreKind::Memory | StoreKind::Disk(_) => Vec::new(),
        StoreKind::Redis(_) => servers.report().into_iter().map(|it| (store, it)).collect(),
    };
    let mut reports = of("current", &settings.current, &stores.current_servers);
    if let Some(next) = &settings.next {
        reports.extend(of("next", &next.to, &stores.next_servers));
    }
    reports
}

/// Writes the metrics of the stores.
pub(super) fn write_metrics(text: &mut Exposition, stores: &Stores, now: Timestamp) {
    let help = "Whether some or all callers are decided without Redis.";
    text.flag("tollgate_store_alone", help, !stores.degradations().is_empty());
    let help = "Percentage of callers to be mirrored in the next store, or moved to it.";
    text.family("tollgate_store_move_percent", MetricKind::Gauge, help);
    let plan = stores.moving.plan();
    for mode in [MoveMode::Mirror, MoveMode::Move, MoveMode::MoveNow] {
        let percent =
            plan.filter(|(_, planned)| *planned == mode).map_or(0, |(percent, _)| percent);
        text.sample(&[("mode", mode.keyword())], percent.into());
    }

    let reports = all(stores);
    let each = |text: &mut Exposition, number: &dyn Fn(&ServerReport) -> u64| {
        for (store, report) in &reports {
            let labels = labels(store, report);
            text.sample(&labels, number(report));
        }
    };
    let help = "Whether a server of a store in Redis answers.";
    text.family("tollgate_store_server_up", MetricKind::Gauge, help);
    each(text, &|report| u64::from(report.health == ServerHealth::Serving));
    let help = "Whether a server refuses charges.";
    text.family("tollgate_store_server_refuses", MetricKind::Gauge, help);
    each(text, &|report| u64::from(report.refusal.is_some()));
    let help = "When a server last began to answer, or to be away.";
    text.family("tollgate_store_server_changed_timestamp_seconds", MetricKind::Gauge, help);
    each(text, &|report| report.began(now).as_micros() / 1_000_000);

    let help = "From handing a call to a server to its reply.";
    text.family("tollgate_store_call_duration_seconds", MetricKind::Histogram, help);
    for (store, report) in &reports {
        text.histogram(&[("store", store), ("server", &report.server)], &report.calls);
    }

    let help = "Whether a replica replicates its primary.";
    text.family("tollgate_store_replica_follows", MetricKind::Gauge, help);
    for (store, report) in &reports {
        let follows = match report.link {
            ReplicaLink::Unknown => continue,
            ReplicaLink::Up(_) => 1,
            ReplicaLink::Down => 0,
        };
        text.sample(&[("store", store), ("server", &report.server)], follows);
    }
    let help = "How far a replica is behind its primary.";
    text.family("tollgate_store_replica_lag_seconds", MetricKind::Gauge, help);
    for (store, report) in &reports {
        if let ReplicaLink::Up(lag) = report.link {
            text.sample_time(&[("store", store), ("server", &report.server)], lag);
        }
    }
}

fn labels<'r>(store: &'r str, report: &'r ServerReport) -> [(&'static str, &'r str); 3] {
    [("store", store), ("server", &report.server), ("role", report.role.keyword())]
}
