//! Settings of the store: where counters live, where they are moving to, and what holds when the
//! store does not answer in time.

mod moving;

use std::{fmt, num::NonZeroU32, ops::RangeInclusive, sync::Arc, time::Duration};

use aws_lc_rs::digest;
use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_yaml::{Check, Choice, Spanned};

use super::{
    Checker, DiskSettings, MemoryBounds,
    disk::RawDisk,
    memory::{DEFAULT_MAX_KEYS, RawMemory, SnapshotSettings},
    redis::{RawRedis, RedisSettings},
    unverified::{DEFAULT_NEW_PER_MINUTE, RawUnverifiedKeys},
};

pub use self::moving::{MoveMode, Moving};

/// Where counters live.
#[derive(Clone, PartialEq)]
pub struct StoreSettings {
    /// The store that decides.
    pub current: StoreKind,
    /// The store that callers are moved to, while they are.
    pub next: Option<Moving>,
    /// What keys are hashed with. Proxies that share a store have it in common. None: the process
    /// makes one, and Redis keeps it for all proxies if they share counters there.
    pub key_secret: Option<[u8; 16]>,
    /// How long a decision may take; then each limit does what its `on_store_error` says.
    pub deadline: Duration,
    /// Proxies that share the limits: each enforces its part of a limit while Redis is unreachable.
    pub instances: NonZeroU32,
    /// Whether responses say that the store did not decide.
    pub reports_fallback: bool,
    /// Counters that the in-process store keeps at most.
    pub bounds: MemoryBounds,
    /// Different counters in Redis, of those by what clients choose, that one client may ask for in
    /// a minute.
    pub new_per_minute: u32,
    /// Where its counters are kept from one start to the next.
    pub snapshot: Option<SnapshotSettings>,
}

/// A store.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreKind {
    /// In the process.
    Memory,
    /// In the process, and on its disk.
    Disk(Arc<DiskSettings>),
    /// In Redis.
    Redis(Arc<RedisSettings>),
}

impl StoreSettings {
    /// Counters in the process, with the default settings.
    pub fn in_process() -> StoreSettings {
        StoreSettings {
            current: StoreKind::Memory,
            next: None,
            key_secret: None,
            deadline: DEFAULT_DEADLINE,
            instances: NonZeroU32::MIN,
            reports_fallback: false,
            bounds: MemoryBounds::DEFAULT,
            new_per_minute: DEFAULT_NEW_PER_MINUTE,
            snapshot: None,
        }
    }

    /// Whether other proxies may share the counters.
    pub fn is_shared(&self) -> bool {
        self.kinds().any(|kind| matches!(kind, StoreKind::Redis(_)))
    }

    /// The store that keeps its counters on disk, if one does.
    pub fn disk(&self) -> Option<&DiskSettings> {
        self.kinds().find_map(|kind| match kind {
            StoreKind::Disk(disk) => Some(&**disk),
            StoreKind::Memory | StoreKind::Redis(_) => None,
        })
    }

    /// The bounds of counters on disk and in memory together, if they are kept on disk.
    pub fn disk_bounds(&self) -> Option<MemoryBounds> {
        self.disk().map(|disk| MemoryBounds { max_keys: disk.max_keys, ..self.bounds })
    }

    fn kinds(&self) -> impl Iterator<Item = &StoreKind> {
        let next = self.next.as_ref().map(|next| &next.to);
        std::iter::once(&self.current).chain(next)
    }
}

/// Without the secret, and without the values, some of which may be of the environment.
impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSettings").finish_non_exhaustive()
    }
}

impl StoreKind {
    /// What the settings call it.
    pub fn name(&self) -> &'static str {
        match self {
            StoreKind::Memory => "memory",
            StoreKind::Disk(_) => "disk",
            StoreKind::Redis(_) => "redis",
        }
    }

    fn is_same(&self, other: &StoreKind) -> bool {
        match (self, other) {
            (StoreKind::Memory, StoreKind::Memory) | (StoreKind::Disk(_), StoreKind::Disk(_)) => {
                true
            }
            (StoreKind::Redis(redis), StoreKind::Redis(other)) => redis.has_same_keys(other),
            (StoreKind::Memory | StoreKind::Disk(_) | StoreKind::Redis(_), _) => false,
        }
    }
}

/// Where counters live, where they are moving to, and what holds when the store does not answer.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "store section")]
pub(super) struct RawStore {
    /// The store in the process: the only one, or that of limits that say `on_store_error: local`.
    #[schemars(extend("examples" = [{ "max_keys": 2000000 }]))]
    pub(super) memory: Option<Spanned<RawMemory>>,
    /// Counters on disk, of which those that are in use are in memory. Short for
    /// `current: { disk: … }`.
    #[schemars(extend("examples" = [{ "path": "counters" }]))]
    pub(super) disk: Option<Spanned<RawDisk>>,
    /// Counters in Redis. Short for `current: { redis: … }`.
    #[schemars(extend("examples" = [{ "url": "redis://127.0.0.1:6379" }]))]
    pub(super) redis: Option<Spanned<RawRedis>>,
    /// The store that decides. Left out: that of `redis` or `disk`, else the one in the process.
    #[schemars(extend("examples" = [{ "redis": { "url": "redis://127.0.0.1:6379" } }]))]
    pub(super) current: Option<Spanned<RawKind>>,
    /// The store that callers are moved to.
    #[schemars(extend("examples" = [{ "redis": { "url": "redis://127.0.0.1:6379" } }]))]
    pub(super) next: Option<Spanned<RawKind>>,
    /// The percentage of callers that are moved; always the same callers. Default: 0.
    #[schemars(range(min = 0, max = 100))]
    pub(super) percent: Option<Spanned<u8>>,
    /// How callers are moved. `mirror`: both stores are charged, the current one decides, and they
    /// are compared; `move`: the next store decides, once every other proxy that shares Redis has
    /// mirrored the same percentage for the longest window, and mirrors until then; `move_now`: the
    /// next store decides at once.
    pub(super) mode: Option<Spanned<Choice<MoveMode>>>,
    /// How long a decision may take, 1ms to 10s. Past it, the `on_store_error` of
    /// each limit applies. Default: 25ms.
    #[schemars(extend("examples" = ["25ms"]))]
    pub(super) deadline: Option<Spanned<String>>,
    /// Proxies that share the limits. Each enforces its part of a limit while Redis is unreachable.
    /// Default: 1.
    #[schemars(range(min = 1))]
    #[schemars(extend("examples" = [4]))]
    pub(super) instances: Option<Spanned<u32>>,
    /// Environment variable with the secret that callers' names are hashed with, at least 16 bytes.
    /// It is the same for all proxies that share a store. Left out: Redis keeps one that the first
    /// proxy makes, and who can read all of Redis can read it.
    #[schemars(extend("examples" = ["KEY_SECRET"]))]
    pub(super) key_secret_env: Option<Spanned<String>>,
    /// File with the secret that callers' names are hashed with, at least 16 bytes, from this
    /// file's folder.
    #[schemars(extend("examples" = ["key-secret"]))]
    pub(super) key_secret_file: Option<Spanned<String>>,
    /// How many counters there may be whose keys clients choose freely.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "percent": 50 }]))]
    pub(super) unverified_keys: RawUnverifiedKeys,
    /// Whether responses say (`x-tollgate-store`) that Redis did not decide, or that a limit was
    /// open for want of room. Default: false.
    #[serde(default)]
    pub(super) fallback_header: bool,
}

/// A store: one of the three.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "store")]
pub(super) struct RawKind {
    /// The store in the process.
    #[schemars(extend("examples" = [{ "max_keys": 2000000 }]))]
    pub(super) memory: Option<Spanned<RawMemory>>,
    /// Counters on disk.
    #[schemars(extend("examples" = [{ "path": "counters" }]))]
    pub(super) disk: Option<Spanned<RawDisk>>,
    /// Counters in Redis.
    #[schemars(extend("examples" = [{ "url": "redis://127.0.0.1:6379" }]))]
    pub(super) redis: Option<Spanned<RawRedis>>,
}

const DEFAULT_DEADLINE: Duration = Duration::from_millis(25);
const DEADLINES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
/// Shortest text that keys are hashed with: a caller who can guess it can aim at another's counter.
const MIN_KEY_SECRET_BYTES: usize = 16;

impl Checker<'_> {
    pub(super) fn store(&mut self, raw: &RawStore) -> Option<StoreSettings> {
        let memory = self.memory_of(raw);
        let max_keys =
            self.max_keys(memory.and_then(|memory| memory.max_keys.as_ref()), DEFAULT_MAX_KEYS);
        let (bounds, new_per_minute) = self.unverified_keys(max_keys, &raw.unverified_keys);
        let snapshot = memory.and_then(|memory| memory.snapshot.as_ref());
        let snapshot = snapshot.and_then(|raw| self.snapshot(raw));
        let current = self.current(raw);
        let pace = self.pace(raw);
        let next = raw.next.as_ref().and_then(|raw| self.kind(raw));
        if let (Some(memory), Some(StoreKind::Disk(_))) = (&raw.memory, &current)
            && raw.next.is_none()
            && memory.has_fields()
        {
            let help = "remove it: `disk` says how many counters there may be, and keeps them";
            self.refuse(memory, "`memory` does not go with `disk`", help);
        }
        if let (Some(current), Some(next), Some(place)) = (&current, &next, &raw.next)
            && current.is_same(next)
        {
            self.refuse(place, "the same store as the current one", "write another, or remove it");
        }
        let next = next.zip(pace).map(|(to, (percent, mode))| Moving { to, percent, mode });
        let key_secret = self.key_secret(raw);
        self.warn_of_missing_key_secret(raw);
        let deadline = self.time_or(&raw.deadline, DEADLINES, DEFAULT_DEADLINE);
        let instances = self.instances(raw.instances.as_ref());
        Some(StoreSettings {
            current: current?,
            next,
            key_secret,
            deadline,
            instances,
            reports_fallback: raw.fallback_header,
            bounds,
            new_per_minute,
            snapshot,
        })
    }

    /// The section about the in-process store, from any of the places where it may be.
    fn memory_of<'r>(&mut self, raw: &'r RawStore) -> Option<&'r RawMemory> {
        let in_kind = |kind: &'r Option<Spanned<RawKind>>| kind.as_ref()?.value.memory.as_ref();
        let mut sections = [raw.memory.as_ref(), in_kind(&raw.current), in_kind(&raw.next)]
            .into_iter()
            .flatten()
            .filter(|memory| memory.has_fields());
        let first = sections.next();
        for other in sections {
            self.refuse(other, "the in-process store is configured twice", "keep one of them");
        }
        first.map(|memory| &memory.value)
    }

    fn current(&mut self, raw: &RawStore) -> Option<StoreKind> {
        if let (Some(_), Some(disk)) = (&raw.redis, &raw.disk) {
            let help = "keep one of them, or write `current` and `next` to move callers";
            self.refuse(disk, "`disk` does not go with `redis`", help);
            return None;
        }
        let redis = raw.redis.as_ref().map(|_| "redis");
        let Some(name) = redis.or(raw.disk.as_ref().map(|_| "disk")) else {
            let current = raw.current.as_ref();
            return current.map_or(Some(StoreKind::Memory), |current| self.kind(current));
        };
        for (field, place) in [("current", &raw.current), ("next", &raw.next)] {
            if let Some(place) = place {
                let message = format!("`{field}` does not go with `{name}`");
                self.refuse(place, message, format!("move `{name}` into `current`"));
            }
        }
        self.named_kind(raw.redis.as_ref(), raw.disk.as_ref())
    }

    fn named_kind(
        &mut self,
        redis: Option<&Spanned<RawRedis>>,
        disk: Option<&Spanned<RawDisk>>,
    ) -> Option<StoreKind> {
        match redis {
            Some(redis) => self.redis(redis).map(Arc::new).map(StoreKind::Redis),
            None => self.disk(&disk?.value).map(Arc::new).map(StoreKind::Disk),
        }
    }

    fn kind(&mut self, raw: &Spanned<RawKind>) -> Option<StoreKind> {
        match (&raw.memory, &raw.disk, &raw.redis) {
            (Some(_), None, None) => Some(StoreKind::Memory),
            (None, Some(_), None) | (None, None, Some(_)) => {
                self.named_kind(raw.redis.as_ref(), raw.disk.as_ref())
            }
            (None, None, None) => {
                let help = "write `memory: {}`, `disk` and its folder, or `redis` and where it is";
                self.refuse(raw, "no store", help);
                None
            }
            (_, disk, redis) => {
                let help = "keep `memory`, `disk` or `redis`";
                let message = "several stores where one is expected";
                match (redis, disk) {
                    (Some(redis), _) => self.refuse(redis, message, help),
                    (None, Some(disk)) => self.refuse(disk, message, help),
                    (None, None) => {}
                }
                None
            }
        }
    }

    fn key_secret(&mut self, raw: &RawStore) -> Option<[u8; 16]> {
        let place = raw.key_secret_env.as_ref().or(raw.key_secret_file.as_ref())?;
        let secret = self.secret(raw.key_secret_env.as_ref(), raw.key_secret_file.as_ref())?;
        if secret.reveal().len() < MIN_KEY_SECRET_BYTES {
            self.refuse(place, "the secret is too short", "use one of at least 16 bytes");
        }
        let hash = digest::digest(&digest::SHA256, secret.reveal().as_bytes());
        hash.as_ref().first_chunk().copied()
    }

    fn instances(&mut self, raw: Option<&Spanned<u32>>) -> NonZeroU32 {
        let Some(raw) = raw else { return NonZeroU32::MIN };
        NonZeroU32::new(raw.value).unwrap_or_else(|| {
            self.note(raw, "no proxy", "write how many proxies share the limits: 4");
            NonZeroU32::MIN
        })
    }
}

#[cfg(test)]
mod tests;
