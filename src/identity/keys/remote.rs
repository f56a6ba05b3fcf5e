//! Keys that an issuer publishes: fetched, kept, and fetched again before they are too old.
//!
//! Requests read what is there with one atomic load. Fetches run on the fetcher's thread, one at a
//! time for each issuer: whoever needs one waits for the one that is under way. When a fetch is
//! due, and when clients can cause one, is decided in [`state`], which knows no clock.

mod ring;
mod source;
mod state;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use tokio::sync::watch;

pub use self::ring::KeyRing;
pub(super) use self::source::RemoteError;
use self::{
    source::Fetched,
    state::{Held, News, Request, State, Timing},
};
use super::{Algorithm, KeySet};
use crate::{
    clock::{Clock, Timestamp},
    identity::fetch::{Endpoint, Fetcher},
};

/// Whose keys, and how they are kept. Equal ones share their keys across reloads; those that differ
/// only in how keys are fetched and kept begin with each other's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemoteSpec {
    /// Where they are.
    pub location: Location,
    /// What they may be used with; empty: what each key says or has by default. Never HS*.
    pub algorithms: Vec<Algorithm>,
    /// How long they are used before they are fetched again.
    pub cache: Duration,
    /// Time between two fetches that clients can cause.
    pub cooldown: Duration,
    /// How long they are used beyond `cache` while they cannot be fetched.
    pub max_stale: Duration,
}

impl RemoteSpec {
    /// Whether the keys of `other` are such as these: of the same place, and for the same use.
    ///
    /// Whom to trust there may be another by now, and how often to ask. Keys that were good when they
    /// were fetched still are: the next fetch, by the new rules, is due at once, and an issuer that is
    /// down just then must lock nobody out because a number was edited.
    fn has_keys_of(&self, other: &RemoteSpec) -> bool {
        // What an authority vouched for that is not trusted any more is not either.
        self.location.is_place_of(&other.location)
            && self.location.endpoint().ca == other.location.endpoint().ca
            && self.algorithms == other.algorithms
    }
}

/// Where an issuer's keys are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// A JSON Web Key Set at this URL.
    Jwks(Endpoint),
    /// Where the issuer's metadata says (OpenID Connect Discovery 1.0 section 4).
    Discovery {
        /// What the metadata must say the issuer is.
        issuer: String,
        /// The metadata: the issuer without a slash at its end, and
        /// `/.well-known/openid-configuration`.
        endpoint: Endpoint,
    },
}

impl Location {
    /// What is fetched first.
    pub fn endpoint(&self) -> &Endpoint {
        match self {
            Location::Jwks(endpoint) | Location::Discovery { endpoint, .. } => endpoint,
        }
    }

    /// Whether it is the same place, however it is reached.
    fn is_place_of(&self, other: &Location) -> bool {
        let is_same_issuer = match (self, other) {
            (Location::Jwks(_), Location::Jwks(_)) => true,
            (Location::Discovery { issuer, .. }, Location::Discovery { issuer: whose, .. }) => {
                issuer == whose
            }
            _ => false,
        };
        is_same_issuer && self.endpoint().url == other.endpoint().url
    }
}

/// The keys of one issuer, for all workers and for every policy that wants the same.
pub struct RemoteKeys {
    spec: RemoteSpec,
    clock: Clock,
    fetcher: Fetcher,
    /// What `state` holds, for those who only read.
    published: ArcSwapOption<Held>,
    state: Mutex<State>,
    ended: watch::Sender<Ended>,
}

/// The latest fetch that has ended.
#[derive(Clone, Copy, Default)]
struct Ended {
    number: u64,
    has_succeeded: bool,
}

/// How an issuer's keys are doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteStatus {
    /// Where they come from.
    pub url: String,
    /// How many there are to verify with now.
    pub keys: usize,
    /// When they were last fetched.
    pub fetched: Option<Timestamp>,
    /// Why the latest fetch failed, if it did.
    pub last_error: Option<String>,
    /// How many fetches were begun.
    pub fetches: u64,
}

impl RemoteKeys {
    /// Begins the first fetch, with what `known` holds until it ends.
    fn start(
        spec: &RemoteSpec,
        known: Option<&RemoteKeys>,
        (clock, fetcher): (&Clock, &Fetcher),
    ) -> Arc<RemoteKeys> {
        let timing = Timing::of(spec);
        let state = match known {
            Some(known) => known.state().under(timing),
            None => State::new(timing),
        };
        let keys = Arc::new(RemoteKeys {
            spec: spec.clone(),
            clock: clock.clone(),
            fetcher: fetcher.clone(),
            published: ArcSwapOption::empty(),
            state: Mutex::new(state),
            ended: watch::Sender::default(),
        });
        keys.tend(clock.now());
        keys
    }

    /// The keys to verify with; none if there never were any, or they are too old.
    pub fn current(&self, now: Timestamp) -> Option<Arc<KeySet>> {
        let held = self.published.load();
        let held = held.as_ref()?;
        held.is_usable(now).then(|| Arc::clone(&held.keys))
    }

    /// Changes when, and only when, the keys change; no two sets in this process have the same, and
    /// 0 is none. Whoever remembers what a key said about a token reads this first and
    /// [`RemoteKeys::current`] after it: a change in between then costs one more check, and lets
    /// nothing through that only the old keys vouch for.
    pub fn generation(&self) -> u64 {
        self.published.load().as_ref().map_or(0, |held| held.generation)
    }

    /// The [generation](RemoteKeys::generation), and whether those keys may be verified with now. Both
    /// are of one moment.
    pub fn standing(&self, now: Timestamp) -> (u64, bool) {
        let held = self.published.load();
        held.as_ref().map_or((0, false), |held| (held.generation, held.is_usable(now)))
    }

    /// Has the keys fetched for the sake of a token whose key is not there, and waits for that;
    /// waits for a fetch that is under way anyway. True if it brought keys, be they the same.
    ///
    /// False at once if the latest fetch began less than the cooldown ago: clients that make up key
    /// names cause one fetch in that time, whatever comes of it.
    pub async fn refresh(self: &Arc<Self>, now: Timestamp) -> bool {
        let mut ended = self.ended.subscribe();
        let request = self.state().request(now);
        let number = match request {
            Request::Refuse => return false,
            Request::Join(number) => number,
            Request::Begin(number) => {
                self.launch();
                number
            }
        };
        let ended = ended.wait_for(|ended| ended.number >= number).await;
        ended.is_ok_and(|ended| ended.has_succeeded)
    }

    /// How they are doing.
    pub fn status(&self, now: Timestamp) -> RemoteStatus {
        let state = self.state();
        RemoteStatus {
            url: self.endpoint().to_string(),
            keys: self.current(now).map_or(0, |keys| keys.len()),
            fetched: state.held().map(|held| held.fetched),
            last_error: state.last_error().map(ToString::to_string),
            fetches: state.begun(),
        }
    }

    /// Begins a fetch if one is due.
    fn tend(self: &Arc<Self>, now: Timestamp) {
        let mut state = self.state();
        state.observe(now);
        self.publish(&state);
        let is_due = state.begin_if_due(now);
        drop(state);
        if is_due {
            self.launch();
        }
    }

    /// Sets a fetch that was begun on its way.
    fn launch(self: &Arc<Self>) {
        let flight = Flight { keys: Arc::clone(self), result: Err(RemoteError::GivenUp) };
        self.fetcher.spawn(flight.fly());
    }

    fn land(&self, result: Result<Fetched, RemoteError>) {
        let mut random = [128];
        // Without randomness, proxies that started together fetch together.
        let _ = aws_lc_rs::rand::fill(&mut random);
        let mut state = self.state();
        let news = state.end(self.clock.now(), result, random[0]);
        self.publish(&state);
        let has_succeeded = matches!(news, News::Fetched { .. });
        // Still locked: the next fetch must not be heard of before this one.
        self.ended.send_replace(Ended { number: state.begun(), has_succeeded });
        drop(state);
        self.tell(&news);
    }

    fn publish(&self, state: &State) {
        let is_published = match (&*self.published.load(), state.held()) {
            (Some(published), Some(held)) => Arc::ptr_eq(published, held),
            (None, None) => true,
            _ => false,
        };
        if !is_published {
            self.published.store(state.held().cloned());
        }
    }

    /// When what is held was fetched.
    fn fetched(&self) -> Option<Timestamp> {
        self.published.load().as_ref().map(|held| held.fetched)
    }

    fn tell(&self, news: &News) {
        let url = self.endpoint();
        match news {
            News::Failed(error) => {
                tracing::warn!(%url, %error, "an issuer's keys could not be fetched");
            }
            News::Fetched { has_changed, keys, skipped } => {
                if *has_changed {
                    tracing::info!(%url, keys, "an issuer's keys have changed");
                }
                for problem in skipped {
                    tracing::warn!(%url, %problem, "a key of an issuer is skipped");
                }
            }
        }
    }

    fn endpoint(&self) -> &Endpoint {
        self.spec.location.endpoint()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RemoteKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteKeys({})", self.endpoint())
    }
}

/// A fetch on its way. It ends when this is dropped, however that comes about: those who wait for
/// it would wait forever, and no other would begin.
struct Flight {
    keys: Arc<RemoteKeys>,
    result: Result<Fetched, RemoteError>,
}

impl Flight {
    async fn fly(mut self) {
        self.result = source::fetch(&self.keys.spec, &self.keys.fetcher).await;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Err(RemoteError::GivenUp));
        self.keys.land(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn fetch_that_cannot_begin_ends_at_once_and_stops_no_other() {
        let url = "https://id.example.com/jwks";
        let endpoint = Endpoint::parse(url, false, None, Duration::from_secs(5)).unwrap();
        let spec = RemoteSpec {
            location: Location::Jwks(endpoint),
            algorithms: Vec::new(),
            cache: Duration::from_secs(600),
            cooldown: Duration::from_secs(30),
            max_stale: Duration::ZERO,
        };
        let now = Timestamp::from_secs(1_790_000_000);
        let clock = Clock::Manual(Arc::new(now.as_micros().into()));
        let keys = RemoteKeys::start(&spec, None, (&clock, &Fetcher::offline()));
        assert!(!keys.refresh(now).await);
        assert!(!keys.refresh(now + spec.cooldown).await);
        let status = keys.status(now);
        assert_eq!((status.url.as_str(), status.keys, status.fetches), (url, 0, 2));
        assert_eq!(status.last_error.as_deref(), Some("the fetch was given up"));
    }
}
