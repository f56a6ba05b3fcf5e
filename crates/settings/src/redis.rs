//! Settings of Redis: which servers there are, how they share the counters, and how to get in.

mod access;
mod address;

use std::{collections::HashSet, fmt, hash::Hash, ops::RangeInclusive, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_keyword::keywords;
use tollgate_yaml::{Check, Choice, Span, Spanned};

use self::{access::RawTls, address::Role};
use super::Checker;

pub use self::{access::CurrentAccess, address::RedisAddress};

/// Counters in Redis.
pub struct RedisSettings {
    /// The servers.
    pub topology: Topology,
    /// What the name of each key begins with.
    pub prefix: String,
    /// The clock that counters use.
    pub clock: StoreClock,
    /// How far a replica may lag behind its primary and still be read.
    pub replica_lag: Duration,
    /// How to get in.
    pub access: CurrentAccess,
}

/// All but how to get in, which changes while traffic flows.
impl PartialEq for RedisSettings {
    fn eq(&self, other: &Self) -> bool {
        self.has_same_keys(other)
            && self.clock == other.clock
            && self.replica_lag == other.replica_lag
    }
}

/// The servers, and how they share the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server has them all.
    Single(Primary),
    /// Each caller's are on one shard, which the name of the shard decides; at least one, with
    /// different names.
    Sharded(Vec<Shard>),
    /// A Redis Cluster; at least one node, from which the others are learned.
    Cluster(Vec<RedisAddress>),
}

/// A server that takes writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Primary {
    /// Always the same.
    Fixed(RedisAddress),
    /// The one that sentinels name; it is reached as they are ([`RedisAddress::at`]).
    Sentinel {
        /// The sentinels to query; at least one.
        sentinels: Vec<RedisAddress>,
        /// The name under which they monitor it.
        service: String,
    },
}

/// Slots of a cluster.
const SLOTS: usize = 16_384;

/// A part of the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Decides which callers it has, so that addresses may change.
    pub name: String,
    /// Takes writes.
    pub primary: Primary,
    /// May be read.
    pub replicas: Vec<RedisAddress>,
}

/// The clock that counters use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreClock {
    /// That of Redis: the same for all proxies.
    #[default]
    Redis,
    /// The proxy's, unless it is too far off.
    Proxy,
}

keywords! { StoreClock { Redis = "redis", Proxy = "proxy" } }

/// Without the values, some of which may be of the environment.
impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings").finish_non_exhaustive()
    }
}

impl RedisSettings {
    /// Whether both name the same keys of the same servers.
    pub(super) fn has_same_keys(&self, other: &RedisSettings) -> bool {
        self.topology == other.topology && self.prefix == other.prefix
    }
}

impl Topology {
    /// How many places there are whose counters may be on different servers.
    pub fn places(&self) -> usize {
        match self {
            Topology::Single(_) => 1,
            Topology::Sharded(shards) => shards.len(),
            Topology::Cluster(_) => SLOTS,
        }
    }

    /// Every server and sentinel that is known by its URL.
    fn addresses(&self) -> Vec<&RedisAddress> {
        match self {
            Topology::Single(primary) => primary.addresses().iter().collect(),
            Topology::Sharded(shards) => shards
                .iter()
                .flat_map(|shard| shard.primary.addresses().iter().chain(&shard.replicas))
                .collect(),
            Topology::Cluster(nodes) => nodes.iter().collect(),
        }
    }
}

impl Primary {
    fn addresses(&self) -> &[RedisAddress] {
        match self {
            Primary::Fixed(address) => std::slice::from_ref(address),
            Primary::Sentinel { sentinels, .. } => sentinels,
        }
    }
}

/// Counters in Redis. Exactly one of `url`, `service`, `shards` and `cluster` says where it is.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "redis section")]
pub(super) struct RawRedis {
    /// The URL of one server: `redis://` or `rediss://` (TLS), `user:password@` if need be,
    /// percent-encoded, host, port, `/database`.
    #[schemars(regex(pattern = "^rediss?://"))]
    #[schemars(extend("examples" = ["redis://127.0.0.1:6379"]))]
    url: Option<Spanned<String>>,
    /// URLs of sentinels, for `service` here or in `shards`.
    #[schemars(extend("examples" = [["redis://10.0.0.1:26379"]]))]
    sentinels: Option<Spanned<Vec<Spanned<String>>>>,
    /// What sentinels call the one primary.
    #[schemars(length(min = 1))]
    service: Option<Spanned<String>>,
    /// Servers that share the counters: a caller's are on the shard that its name decides.
    #[schemars(length(min = 1))]
    #[schemars(extend("examples" = [[{ "name": "a", "primary": "redis://10.0.0.1:6379" }]]))]
    shards: Option<Spanned<Vec<Spanned<RawShard>>>>,
    /// URLs of some nodes of a Redis Cluster; one that answers is enough.
    #[schemars(length(min = 1))]
    #[schemars(extend("examples" = [["redis://10.0.0.1:6379"]]))]
    cluster: Option<Spanned<Vec<Spanned<String>>>>,
    /// The user for servers whose URL has no user. Left out: the default user.
    #[schemars(length(min = 1))]
    username: Option<Spanned<String>>,
    /// Environment variable with the user.
    #[schemars(extend("examples" = ["REDIS_USER"]))]
    username_env: Option<Spanned<String>>,
    /// File with the user, from this file's folder.
    #[schemars(extend("examples" = ["redis-user"]))]
    username_file: Option<Spanned<String>>,
    /// Environment variable with the password for servers whose URL has no user.
    #[schemars(extend("examples" = ["REDIS_PASSWORD"]))]
    password_env: Option<Spanned<String>>,
    /// File with the password for servers whose URL has no user, from this file's folder.
    #[schemars(extend("examples" = ["redis-password"]))]
    password_file: Option<Spanned<String>>,
    /// Certificates for servers that are reached by TLS. Left out: the public authorities, and none
    /// of ours.
    #[schemars(extend("examples" = [{ "ca_file": "redis-ca.pem" }]))]
    tls: Option<Spanned<RawTls>>,
    /// What the name of each key begins with: 1 to 64 of `A-Z a-z 0-9 _ . : -`. Default: tollgate.
    #[schemars(regex(pattern = "^[A-Za-z0-9_.:-]{1,64}$"))]
    #[schemars(extend("examples" = ["tollgate"]))]
    prefix: Option<Spanned<String>>,
    /// The clock that counters use: `redis`, the same for all proxies, or `proxy`, unless it is
    /// more than two seconds off. Default: redis.
    clock: Option<Spanned<Choice<StoreClock>>>,
    /// How far a replica may lag behind its primary and still be read, 100ms to 60s. Default: 1s.
    #[schemars(extend("examples" = ["1s"]))]
    replica_lag: Option<Spanned<String>>,
}

/// A part of the counters. Exactly one of `primary` and `service` says where it is.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "shard")]
struct RawShard {
    /// Its name, 1 to 64 of `A-Z a-z 0-9 _ . -`, which decides whose counters it has. Keep it when
    /// the server moves.
    #[schemars(regex(pattern = "^[A-Za-z0-9_.-]{1,64}$"))]
    #[schemars(extend("examples" = ["a"]))]
    name: Spanned<String>,
    /// The URL of the server that takes writes.
    #[schemars(regex(pattern = "^rediss?://"))]
    #[schemars(extend("examples" = ["redis://10.0.0.1:6379"]))]
    primary: Option<Spanned<String>>,
    /// What sentinels call the primary.
    #[schemars(length(min = 1))]
    service: Option<Spanned<String>>,
    /// URLs of servers that may be read.
    #[schemars(extend("examples" = [["redis://10.0.0.2:6379"]]))]
    replicas: Option<Spanned<Vec<Spanned<String>>>>,
}

const DEFAULT_PREFIX: &str = "tollgate";
const DEFAULT_REPLICA_LAG: Duration = Duration::from_secs(1);
const REPLICA_LAGS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);
/// Longest prefix and name of a shard.
const MAX_NAME: usize = 64;
const ADD_SENTINELS: &str = "add `sentinels: [redis://10.0.0.1:26379]` beside it";

impl Checker<'_> {
    pub(super) fn redis(&mut self, raw: &Spanned<RawRedis>) -> Option<RedisSettings> {
        let topology = self.topology(raw);
        let access = self.access(raw, topology.as_ref());
        let prefix = raw.prefix.as_ref().map_or(DEFAULT_PREFIX, |prefix| &prefix.value).to_owned();
        if let Some(place) = &raw.prefix
            && !is_name(&prefix, ":")
        {
            // Braces would move all keys of a cluster to one node.
            self.note(place, "not a prefix", "write 1 to 64 of A-Z a-z 0-9 _ . : -");
        }
        let clock = self.keyword_or_default(raw.clock.as_ref());
        let replica_lag = self.time_or(&raw.replica_lag, REPLICA_LAGS, DEFAULT_REPLICA_LAG);
        let access = access.into();
        Some(RedisSettings { topology: topology?, prefix, clock: clock?, replica_lag, access })
    }

    fn topology(&mut self, raw: &Spanned<RawRedis>) -> Option<Topology> {
        self.check_one_form(raw)?;
        let sentinels = match &raw.sentinels {
            None => None,
            Some(urls) => Some(self.redis_addresses(urls, Role::Sentinel)?),
        };
        if let Some(url) = &raw.url {
            return Some(Topology::Single(Primary::Fixed(self.redis_address(url, Role::Server)?)));
        }
        if let Some(service) = &raw.service {
            return Some(Topology::Single(self.service(service, sentinels.as_deref())?));
        }
        if let Some(shards) = &raw.shards {
            return Some(Topology::Sharded(self.shards(shards, sentinels.as_deref())?));
        }
        Some(Topology::Cluster(self.cluster(raw.cluster.as_ref()?)?))
    }

    fn check_one_form(&mut self, raw: &Spanned<RawRedis>) -> Option<()> {
        const FORMS: &str = "one of: url, cluster, shards, service with sentinels";
        let mut forms: Vec<Span> = [
            raw.url.as_ref().map(|url| url.span),
            raw.service.as_ref().map(|service| service.span),
            raw.shards.as_ref().map(|shards| shards.span),
            raw.cluster.as_ref().map(|cluster| cluster.span),
        ]
        .into_iter()
        .flatten()
        .collect();
        forms.sort();
        if let [_, second, ..] = forms.as_slice() {
            self.refuse(*second, "Redis is configured twice", format!("keep {FORMS}"));
            return None;
        }
        let names_service = |shard: &Spanned<RawShard>| shard.service.is_some();
        let are_asked = raw.service.is_some()
            || raw.shards.as_ref().is_some_and(|shards| shards.iter().any(names_service));
        match (&raw.sentinels, forms.is_empty()) {
            (Some(sentinels), _) if !are_asked => {
                let help =
                    "add `service`, the name of the primary in the sentinels, or remove this";
                self.refuse(sentinels, "`sentinels` without `service`", help);
                None
            }
            (None, true) => {
                self.refuse(raw, "no address of Redis", format!("add {FORMS}"));
                None
            }
            _ => Some(()),
        }
    }

    fn service(
        &mut self,
        service: &Spanned<String>,
        sentinels: Option<&[RedisAddress]>,
    ) -> Option<Primary> {
        if service.value.is_empty() {
            self.refuse(service, "`service` is empty", "write the primary's name in the sentinels");
        }
        let Some(sentinels) = sentinels else {
            self.refuse(service, "`service` needs `sentinels`", ADD_SENTINELS);
            return None;
        };
        Some(Primary::Sentinel { sentinels: sentinels.to_vec(), service: service.value.clone() })
    }

    fn shards(
        &mut self,
        raw: &Spanned<Vec<Spanned<RawShard>>>,
        sentinels: Option<&[RedisAddress]>,
    ) -> Option<Vec<Shard>> {
        if raw.is_empty() {
            let help = "add one: `- { name: a, primary: redis://10.0.0.1:6379 }`";
            self.refuse(raw, "no shard", help);
            return None;
        }
        let shards: Vec<Option<Shard>> =
            raw.iter().map(|shard| self.shard(shard, sentinels)).collect();
        self.refuse_twice(raw.iter().map(|shard| (&shard.name, &*shard.name.value)));
        let urls = raw.iter().flat_map(|shard| {
            shard.primary.iter().chain(shard.replicas.iter().flat_map(|urls| &urls.value))
        });
        self.refuse_same_servers(urls.collect(), Role::Server);
        shards.into_iter().collect()
    }

    fn shard(
        &mut self,
        raw: &Spanned<RawShard>,
        sentinels: Option<&[RedisAddress]>,
    ) -> Option<Shard> {
        if !is_name(&raw.name, "") {
            let help = "write 1 to 64 of A-Z a-z 0-9 _ . -";
            self.note(&raw.name, "not the name of a shard", help);
        }
        let primary = match (&raw.primary, &raw.service) {
            (Some(url), None) => self.redis_address(url, Role::Server).map(Primary::Fixed),
            (None, Some(service)) => {
                if let Some(replicas) = &raw.replicas {
                    let message = "`replicas` does not go with `service`";
                    self.refuse(replicas, message, "remove it; only a fixed primary has them");
                }
                self.service(service, sentinels)
            }
            (Some(_), Some(service)) => {
                self.refuse(service, "two primaries", "keep `primary` or `service`");
                None
            }
            (None, None) => {
                self.refuse(raw, "no primary", "add `primary: redis://10.0.0.1:6379`");
                None
            }
        };
        let replicas: Vec<Option<RedisAddress>> = raw
            .replicas
            .iter()
            .flat_map(|urls| &urls.value)
            .map(|url| self.redis_address(url, Role::Server))
            .collect();
        let replicas: Option<Vec<RedisAddress>> = replicas.into_iter().collect();
        Some(Shard { name: raw.name.value.clone(), primary: primary?, replicas: replicas? })
    }

    fn cluster(&mut self, raw: &Spanned<Vec<Spanned<String>>>) -> Option<Vec<RedisAddress>> {
        let nodes = self.redis_addresses(raw, Role::Server)?;
        for (node, url) in nodes.iter().zip(&raw.value) {
            if node.database != 0 {
                self.refuse(url, "a cluster has database 0 only", "remove the number");
            }
        }
        Some(nodes)
    }

    /// Servers that report addresses of others, so all of them need the same scheme and login.
    fn redis_addresses(
        &mut self,
        raw: &Spanned<Vec<Spanned<String>>>,
        role: Role,
    ) -> Option<Vec<RedisAddress>> {
        if raw.is_empty() {
            self.refuse(raw, "no URL", "add some: `[redis://10.0.0.1:6379]`");
            return None;
        }
        let addresses: Vec<Option<RedisAddress>> =
            raw.iter().map(|url| self.redis_address(url, role)).collect();
        self.refuse_same_servers(raw.iter().collect(), role);
        let addresses: Vec<RedisAddress> = addresses.into_iter().collect::<Option<_>>()?;
        let first = addresses.first()?;
        for (address, url) in addresses.iter().zip(&raw.value) {
            if !address.is_like(first) {
                let help = "use one scheme, one database and one user in all of them";
                self.refuse(url, "scheme, database or user differ from the first URL", help);
            }
        }
        Some(addresses)
    }

    fn redis_address(&mut self, url: &Spanned<String>, role: Role) -> Option<RedisAddress> {
        match RedisAddress::parse(&url.value, role) {
            Ok(address) => Some(address),
            Err(error) => {
                self.note(url, error.to_string(), error.help());
                None
            }
        }
    }

    /// Refuses a server that is named twice. Each of its counters would be in one place under two
    /// names.
    fn refuse_same_servers(&mut self, urls: Vec<&Spanned<String>>, role: Role) {
        let servers = urls.into_iter().filter_map(|url| {
            let RedisAddress { host, port, database, .. } =
                RedisAddress::parse(&url.value, role).ok()?;
            Some((url, (host, port, database)))
        });
        self.refuse_twice(servers);
    }

    fn refuse_twice<'r, K: Hash + Eq>(
        &mut self,
        named: impl Iterator<Item = (&'r Spanned<String>, K)>,
    ) {
        let mut seen = HashSet::new();
        for (place, what) in named {
            if !seen.insert(what) {
                self.refuse(place, "named twice", "write another");
            }
        }
    }
}

/// Whether it is made of letters, digits and a few marks.
fn is_name(name: &str, more: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c) || more.contains(c);
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_fine)
}

#[cfg(test)]
mod tests;
