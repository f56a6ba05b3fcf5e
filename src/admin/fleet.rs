//! The fleet: this proxy, and those that share its Redis. `GET /fleet`.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};
use tollgate_clock::Timestamp;
use tollgate_gate::{PolicyTotal, Shared};
use tollgate_store::OtherProxies;
use tollgate_upstream::MemberState;

use super::{Context, Phase, PhaseCell, json_response, upstreams};
use crate::reload::ReloadState;

/// Time between two summaries.
const PAUSE: Duration = Duration::from_secs(3);

/// The longest text of a problem that other proxies get.
const MAX_PROBLEM_BYTES: usize = 500;

/// Names of policies that other proxies get.
const MAX_POLICIES: usize = 50;

/// How old the answer about other proxies may be.
const MAX_AGE: Duration = Duration::from_secs(5);

/// How long an answer waits for what other proxies say.
const MAX_WAIT: Duration = Duration::from_millis(1500);

/// All proxies.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct FleetReport {
    /// Whether there may be others: counters are in Redis. Otherwise there is only this proxy.
    pub shared: bool,
    /// Why other proxies are not known, or not all of them.
    pub problem: Option<String>,
    /// The proxies: this one, and then the others by name.
    pub proxies: Vec<ProxySummary>,
}

/// What a proxy says about itself.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct ProxySummary {
    /// The name of its host, and a random part that changes with each start.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// What its process is in the middle of.
    pub phase: Phase,
    /// When it was started.
    pub started: String,
    /// When it has said this.
    pub time: String,
    /// Which of its configurations is in force: 1 at its start, one more with each reload.
    pub generation: u64,
    /// A short name of the policies, the same at every proxy that has the same.
    pub digest: String,
    /// The policies in force, at most 50.
    pub policies: Vec<String>,
    /// Requests a second, of the last few seconds.
    pub requests_per_second: f64,
    /// The share of them that was denied, 0 to 1.
    pub denied_share: f64,
    /// The share of them that limits would have denied if they were enforced, 0 to 1.
    pub would_be_denied_share: f64,
    /// `memory` or `redis`.
    pub store: String,
    /// Why Redis does not decide about some callers, or about any.
    pub store_problem: Option<String>,
    /// Addresses of servers of upstreams.
    pub servers: usize,
    /// Those of them that get requests.
    pub servers_serving: usize,
    /// Why its last reload was refused, if it was: the first problem.
    pub reload_problem: Option<String>,
}

/// Describes this proxy.
pub struct Describer {
    shared: Arc<Shared>,
    state: Arc<ReloadState>,
    phase: Arc<PhaseCell>,
    started: Timestamp,
    name: String,
    latest: Mutex<Latest>,
}

#[derive(Default)]
struct Latest {
    /// When that was, and what had been counted until then.
    counted: Option<(Instant, Requests)>,
    rates: Rates,
}

/// How many requests there were.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Requests {
    all: u64,
    denied: u64,
    would_be_denied: u64,
}

/// How many there are in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rates {
    requests_per_second: f64,
    denied_share: f64,
    would_be_denied_share: f64,
}

impl Describer {
    /// Of a proxy that was `started` then.
    pub fn new(
        shared: Arc<Shared>,
        state: Arc<ReloadState>,
        phase: Arc<PhaseCell>,
        started: Timestamp,
    ) -> Describer {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host = if host.is_empty() { "proxy".to_owned() } else { host };
        let random = shared.stores.process_name();
        let name = format!("{host}-{}", random.get(..6).unwrap_or(random));
        Describer { shared, state, phase, started, name, latest: Mutex::default() }
    }

    /// Tells other proxies about this one every few seconds, if this is called more often.
    pub fn tick(&self) {
        {
            let mut latest = self.latest.lock();
            let now = Instant::now();
            let before = latest.counted.map(|(at, counted)| (now - at, counted));
            if before.is_some_and(|(passed, _)| passed < PAUSE) {
                return;
            }
            let counted = Requests::of(&self.shared);
            latest.rates =
                before.map(|(passed, before)| counted.rates(before, passed)).unwrap_or_default();
            latest.counted = Some((now, counted));
        }
        if self.shared.stores.settings().is_shared()
            && let Ok(text) = serde_json::to_string(&self.summary())
        {
            self.shared.stores.fleet.describe(text);
        }
    }

    /// What this proxy says about itself.
    pub fn summary(&self) -> ProxySummary {
        let Describer { shared, state, phase, started, name, latest } = self;
        let Rates { requests_per_second, denied_share, would_be_denied_share } =
            latest.lock().rates;
        let report = state.report();
        let snapshot = shared.snapshot();
        let degradations = shared.stores.degradations();
        let upstreams = upstreams::all(shared);
        let all = upstreams.iter().flat_map(|upstream| &upstream.servers);
        let states = all.flat_map(|server| &server.members).map(|member| member.state);
        let states: Vec<MemberState> = states.collect();
        let is_serving = |state: &&MemberState| **state == MemberState::Serving;
        let refused = report.refused.and_then(|refused| refused.problems.into_iter().next());
        ProxySummary {
            name: name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            phase: phase.get(),
            started: started.to_string(),
            time: shared.clock.now().to_string(),
            generation: report.generation,
            digest: report.digest,
            policies: snapshot
                .policies
                .iter()
                .take(MAX_POLICIES)
                .map(|policy| policy.name.to_string())
                .collect(),
            requests_per_second,
            denied_share,
            would_be_denied_share,
            store: shared.stores.settings().current.name().into(),
            store_problem: degradations.first().map(|problem| cut(problem.to_string())),
            servers: states.len(),
            servers_serving: states.iter().filter(is_serving).count(),
            reload_problem: refused.map(cut),
        }
    }
}

impl Requests {
    fn of(shared: &Shared) -> Requests {
        let ended = |total: &PolicyTotal| {
            let routes = total.routes.iter();
            routes.map(|route| route.requests.values().sum::<u64>()).sum::<u64>()
        };
        let totals = shared.series.totals();
        let all = totals.iter().map(|total| total.in_flight + ended(total)).sum();
        let (denied, would_be_denied) = shared.denials.totals();
        Requests { all, denied, would_be_denied }
    }

    fn rates(self, before: Requests, passed: Duration) -> Rates {
        let all = self.all.saturating_sub(before.all);
        // A request in flight is counted when it is decided about, or when it ends.
        let share = |now: u64, before: u64| match all {
            0 => 0.0,
            all => (now.saturating_sub(before) as f64 / all as f64).min(1.0),
        };
        Rates {
            requests_per_second: tenths(all as f64 / passed.as_secs_f64()),
            denied_share: share(self.denied, before.denied),
            would_be_denied_share: share(self.would_be_denied, before.would_be_denied),
        }
    }
}

fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_PROBLEM_BYTES {
        text.truncate(text.floor_char_boundary(MAX_PROBLEM_BYTES));
        text.push('…');
    }
    // What follows shows the place.
    text.lines().next().unwrap_or_default().to_owned()
}

impl Context {
    /// All proxies.
    pub(super) async fn fleet(&self) -> Response<Full<Bytes>> {
        let shared = self.shared.stores.settings().is_shared();
        let others = match shared {
            true => self.other_proxies().await,
            false => OtherProxies::default(),
        };
        json_response(StatusCode::OK, &report(shared, self.describer.summary(), others))
    }

    /// What other proxies have said. It is read in the background, for which this waits a little.
    async fn other_proxies(&self) -> OtherProxies {
        let fleet = &self.shared.stores.fleet;
        let begun = Instant::now();
        loop {
            let others = fleet.others();
            let is_recent = others.read.is_some_and(|read| read.elapsed() < MAX_AGE);
            if is_recent || begun.elapsed() > MAX_WAIT {
                return others;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

fn report(shared: bool, own: ProxySummary, others: OtherProxies) -> FleetReport {
    let is_stale = others.read.is_none_or(|read| read.elapsed() > MAX_AGE * 2);
    let unread = "redis does not tell of other proxies in time".to_owned();
    let mut problem = others.problem.or(is_stale.then_some(unread)).filter(|_| shared);
    let mut proxies = Vec::new();
    for text in others.summaries.values() {
        match serde_json::from_str::<ProxySummary>(text) {
            Ok(summary) => proxies.push(summary),
            Err(_) => {
                let unreadable = "another version of the program has written about itself";
                problem.get_or_insert_with(|| unreadable.to_owned());
            }
        }
    }
    proxies.sort_by(|one, other| one.name.cmp(&other.name));
    proxies.insert(0, own);
    FleetReport { shared, problem, proxies }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_what_came_meanwhile() {
        let before = Requests { all: 100, denied: 10, would_be_denied: 0 };
        let now = Requests { all: 140, denied: 20, would_be_denied: 1 };
        let rates = now.rates(before, Duration::from_secs(4));
        let expected =
            Rates { requests_per_second: 10.0, denied_share: 0.25, would_be_denied_share: 0.025 };
        assert_eq!(rates, expected);
        assert_eq!(now.rates(now, Duration::from_secs(4)), Rates::default());
    }
}
