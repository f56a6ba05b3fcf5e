//! Keys that an issuer publishes: fetched, cached, and fetched again before they are too old.
//!
//! Requests read the cached keys with one atomic load. Fetches run on the fetcher's thread, one at
//! a time for each issuer: a request that needs one waits for the one that is under way. [`state`]
//! decides, without a clock, when a fetch is due and when a token may cause one.

mod ring;
mod source;
mod state;

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::watch;

pub use self::ring::KeyRing;
pub(super) use self::source::RemoteError;
use tollgate_clock::{Clock, Timestamp};

use self::{
    source::FetchedKeys,
    state::{CachedKeys, FetchReport, Refresh, State, Timing},
};
use super::{Algorithm, KeySet};
use crate::{
    fetch::{Fetcher, IssuerServer},
    lenient::Deviation,
};

/// Where an issuer publishes its keys, and how they are cached. Equal specs share their keys across
/// reloads. A spec that differs only in how keys are fetched and cached starts with the keys of the
/// other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemoteSpec {
    /// Where they are published.
    pub location: KeyLocation,
    /// The algorithms that they may be used with; empty: the one that each key names or has by
    /// default. Never HS*.
    pub algorithms: Vec<Algorithm>,
    /// What they may have against the specifications.
    pub lenient: Vec<Deviation>,
    /// How long they are cached before they are fetched again.
    pub cache: Duration,
    /// The shortest time between two fetches that tokens can cause.
    pub cooldown: Duration,
    /// How long they are used beyond `cache` while they cannot be fetched.
    pub max_stale: Duration,
}

impl RemoteSpec {
    /// Whether keys fetched for `other` may serve for this spec until its own are fetched: they
    /// come from the same location, over the same authorities, for the same algorithms, and are
    /// read alike.
    ///
    /// Times and limits may differ. The next fetch, by the new spec, is due at once; if the issuer
    /// is down just then, an edited number must not lock out its users.
    fn has_keys_of(&self, other: &RemoteSpec) -> bool {
        // Keys that were fetched over an authority that is no longer trusted are not trusted.
        self.location.is_same_as(&other.location)
            && self.location.server().ca == other.location.server().ca
            && self.algorithms == other.algorithms
            && self.lenient == other.lenient
    }
}

/// Where an issuer's keys are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyLocation {
    /// A JSON Web Key Set at this URL.
    Jwks(IssuerServer),
    /// At the URL in the issuer's metadata (OpenID Connect Discovery 1.0 section 4).
    Discovery {
        /// The `issuer` that the metadata must have.
        issuer: String,
        /// The URL of the metadata: the issuer without a slash at its end, and
        /// `/.well-known/openid-configuration`.
        server: IssuerServer,
    },
}

impl KeyLocation {
    /// The document that is fetched first.
    pub fn server(&self) -> &IssuerServer {
        match self {
            KeyLocation::Jwks(server) | KeyLocation::Discovery { server, .. } => server,
        }
    }

    /// Whether it is the same URL and issuer, whatever the other options of the server.
    fn is_same_as(&self, other: &KeyLocation) -> bool {
        let is_same_issuer = match (self, other) {
            (KeyLocation::Jwks(_), KeyLocation::Jwks(_)) => true,
            (
                KeyLocation::Discovery { issuer, .. },
                KeyLocation::Discovery { issuer: other_issuer, .. },
            ) => issuer == other_issuer,
            _ => false,
        };
        is_same_issuer && self.server().url == other.server().url
    }
}

/// The keys of one issuer, shared by all workers and all policies with the same spec.
pub struct RemoteKeys {
    spec: RemoteSpec,
    clock: Clock,
    fetcher: Fetcher,
    /// The cached keys of `state`, for readers without its lock.
    published: ArcSwapOption<CachedKeys>,
    state: Mutex<State>,
    latest_fetch: watch::Sender<LatestFetch>,
}

/// Which set of keys an issuer has at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeysVersion {
    /// Changes with the keys; see [`RemoteKeys::generation`].
    pub(crate) generation: u64,
    /// Whether tokens may be verified with them.
    pub(crate) are_usable: bool,
}

impl KeysVersion {
    /// No keys.
    pub(crate) const NONE: KeysVersion = KeysVersion { generation: 0, are_usable: false };
}

/// The latest fetch that has ended.
#[derive(Clone, Copy, Default)]
struct LatestFetch {
    number: u64,
    has_succeeded: bool,
}

/// The state of an issuer's keys, for the admin interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteStatus {
    /// Where they are published.
    pub url: String,
    /// How many keys there are to verify with now.
    pub keys: usize,
    /// When they were last fetched.
    pub fetched: Option<Timestamp>,
    /// Why the latest fetch failed, if it did.
    pub last_error: Option<String>,
    /// How many fetches were started.
    pub fetches: u64,
}

impl RemoteStatus {
    /// Whether no keys were ever fetched, so that nothing can verify the tokens of the issuer.
    pub fn are_missing(&self) -> bool {
        self.fetched.is_none()
    }

    /// What is wrong with them.
    pub fn problem(&self) -> Option<String> {
        const MISSING: &str = "there never were any: requests with tokens of the issuer get 503";
        match (self.are_missing(), &self.last_error) {
            (true, Some(error)) => Some(format!("{MISSING}; {error}")),
            (true, None) => Some(MISSING.to_owned()),
            (false, error) => error.clone(),
        }
    }
}

impl RemoteKeys {
    /// Starts the first fetch, and uses the keys of `known` until it ends.
    fn start(
        spec: &RemoteSpec,
        known: Option<&RemoteKeys>,
        clock: &Clock,
        fetcher: &Fetcher,
    ) -> Arc<RemoteKeys> {
        let timing = Timing::of(spec);
        let state = match known {
            Some(known) => known.state.lock().with_timing(timing),
            None => State::new(timing),
        };
        let keys = Arc::new(RemoteKeys {
            spec: spec.clone(),
            clock: clock.clone(),
            fetcher: fetcher.clone(),
            published: ArcSwapOption::empty(),
            state: Mutex::new(state),
            latest_fetch: watch::Sender::default(),
        });
        keys.fetch_if_due(clock.now());
        keys
    }

    /// The keys to verify with. None: they were never fetched, or are too old.
    pub fn current(&self, now: Timestamp) -> Option<Arc<KeySet>> {
        let published = self.published.load();
        let cached = published.as_ref()?;
        cached.is_usable(now).then(|| Arc::clone(&cached.keys))
    }

    /// The number of the current set of keys. It changes when, and only when, the keys change; no
    /// two sets in this process have the same number, and 0 means no keys.
    ///
    /// Code that caches a verified token reads this first and [`RemoteKeys::current`] after it: a
    /// change in between then costs one more check, and accepts no token by the old keys alone.
    pub fn generation(&self) -> u64 {
        self.published.load().as_ref().map_or(0, |cached| cached.generation)
    }

    /// The [generation](RemoteKeys::generation) of the keys and whether they are usable, read at
    /// once.
    pub(crate) fn version(&self, now: Timestamp) -> KeysVersion {
        let published = self.published.load();
        let version = |cached: &Arc<CachedKeys>| KeysVersion {
            generation: cached.generation,
            are_usable: cached.is_usable(now),
        };
        published.as_ref().map_or(KeysVersion::NONE, version)
    }

    /// Fetches the keys for a token whose key is unknown, or waits for the fetch that is under way.
    /// Returns whether the fetch succeeded, with new keys or the same.
    ///
    /// Returns false at once if the latest fetch started less than the cooldown ago: clients that
    /// make up key names can cause one fetch in that time, whatever its result.
    pub async fn refresh(self: &Arc<Self>, now: Timestamp) -> bool {
        let mut latest = self.latest_fetch.subscribe();
        let refresh = self.state.lock().request_refresh(now);
        let number = match refresh {
            Refresh::Refuse => return false,
            Refresh::Join(number) => number,
            Refresh::Start(number) => {
                self.spawn_fetch();
                number
            }
        };
        let latest = latest.wait_for(|latest| latest.number >= number).await;
        latest.is_ok_and(|latest| latest.has_succeeded)
    }

    /// Their state now.
    pub fn status(&self, now: Timestamp) -> RemoteStatus {
        let state = self.state.lock();
        RemoteStatus {
            url: self.server().to_string(),
            keys: self.current(now).map_or(0, |keys| keys.len()),
            fetched: state.cached.as_ref().map(|cached| cached.fetched),
            last_error: state.last_error.as_ref().map(ToString::to_string),
            fetches: state.started,
        }
    }

    /// Starts a fetch if one is due.
    fn fetch_if_due(self: &Arc<Self>, now: Timestamp) {
        let mut state = self.state.lock();
        state.clamp_to(now);
        self.publish(&state);
        let is_due = state.start_if_due(now);
        drop(state);
        if is_due {
            self.spawn_fetch();
        }
    }

    /// Runs a fetch that `state` has started.
    fn spawn_fetch(self: &Arc<Self>) {
        let task = FetchTask { keys: Arc::clone(self), result: Err(RemoteError::Cancelled) };
        self.fetcher.spawn(task.run());
    }

    fn finish(&self, result: Result<FetchedKeys, RemoteError>) {
        let mut random = [128];
        // Without randomness, proxies that started together fetch together.
        let _ = aws_lc_rs::rand::fill(&mut random);
        let mut state = self.state.lock();
        let report = state.finish(self.clock.now(), result, random[0]);
        self.publish(&state);
        let has_succeeded = matches!(report, FetchReport::Fetched { .. });
        // Under the lock, so that the next fetch is not announced before this one.
        self.latest_fetch.send_replace(LatestFetch { number: state.started, has_succeeded });
        drop(state);
        self.log(&report);
    }

    fn publish(&self, state: &State) {
        let is_published = match (&*self.published.load(), &state.cached) {
            (Some(published), Some(cached)) => Arc::ptr_eq(published, cached),
            (None, None) => true,
            _ => false,
        };
        if !is_published {
            self.published.store(state.cached.clone());
        }
    }

    /// When the cached keys were fetched.
    fn fetched(&self) -> Option<Timestamp> {
        self.published.load().as_ref().map(|cached| cached.fetched)
    }

    fn log(&self, report: &FetchReport) {
        let url = self.server();
        match report {
            FetchReport::Failed(error) => {
                tracing::warn!(%url, %error, "an issuer's keys could not be fetched");
            }
            FetchReport::Fetched { has_changed, keys, skipped } => {
                if *has_changed {
                    tracing::info!(%url, keys, "an issuer's keys have changed");
                }
                for problem in skipped {
                    tracing::warn!(%url, %problem, "a key of an issuer is skipped");
                }
            }
        }
    }

    fn server(&self) -> &IssuerServer {
        self.spec.location.server()
    }
}

impl fmt::Debug for RemoteKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteKeys({})", self.server())
    }
}

/// A fetch that is under way. It ends when this is dropped, for whatever reason: otherwise requests
/// would wait for it forever, and no other fetch could start.
struct FetchTask {
    keys: Arc<RemoteKeys>,
    result: Result<FetchedKeys, RemoteError>,
}

impl FetchTask {
    async fn run(mut self) {
        self.result = source::fetch(&self.keys.spec, &self.keys.fetcher).await;
    }
}

impl Drop for FetchTask {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Err(RemoteError::Cancelled));
        self.keys.finish(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn fetch_that_cannot_begin_ends_at_once_and_stops_no_other() {
        let url = "https://id.example.com/jwks";
        let server = IssuerServer::parse(url, false, None, Duration::from_secs(5)).unwrap();
        let spec = RemoteSpec {
            location: KeyLocation::Jwks(server),
            algorithms: Vec::new(),
            lenient: Vec::new(),
            cache: Duration::from_secs(600),
            cooldown: Duration::from_secs(30),
            max_stale: Duration::ZERO,
        };
        let now = Timestamp::from_secs(1_790_000_000);
        let clock = Clock::Manual(Arc::new(now.as_micros().into()));
        let keys = RemoteKeys::start(&spec, None, &clock, &Fetcher::offline());
        assert!(!keys.refresh(now).await);
        assert!(!keys.refresh(now + spec.cooldown).await);
        let status = keys.status(now);
        assert_eq!((status.url.as_str(), status.keys, status.fetches), (url, 0, 2));
        assert_eq!(status.last_error.as_deref(), Some("the fetch was cancelled"));
    }
}
