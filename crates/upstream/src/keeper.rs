//! All upstreams of the policies in force, and the thread that ticks after their servers: it ticks
//! up names and asks for health. It exists only while it has something to do.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{
    runtime,
    sync::Notify,
    time::{MissedTickBehavior, interval},
};
use tollgate_policy::{Policies, Upstream};

use super::{
    Group, Member, UpstreamGroups,
    balance::chance,
    health::Probe,
    report::UpstreamReport,
    resolve::{Resolver, ask_system, look_up},
};

/// How often the groups are checked for work that is due.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);
/// Threads that look up names: a name server that hangs takes one for as long as it does.
const MAX_LOOKUPS: usize = 64;

/// Keeps the groups of all upstreams, across reloads. Its thread ends soon after it is dropped.
pub struct Keeper {
    registry: Arc<Registry>,
    resolver: Resolver,
    has_thread: Mutex<bool>,
}

#[derive(Default)]
struct Registry {
    groups: Mutex<Groups>,
    /// Something may be due that was not a moment ago.
    news: Notify,
}

/// By the names of the policy and of the upstream.
type Groups = BTreeMap<(Box<str>, Box<str>), Arc<Group>>;

impl Default for Keeper {
    fn default() -> Self {
        Keeper::asking(ask_system)
    }
}

impl Keeper {
    /// One that resolves names so.
    fn asking(resolver: Resolver) -> Keeper {
        Keeper { registry: Arc::default(), resolver, has_thread: Mutex::default() }
    }

    /// Finds each upstream its group: the one that it had, if its servers are spoken to as before.
    /// Groups of upstreams that are in none of the policies are not looked after any more.
    pub fn adopt(&self, policies: &Policies) -> UpstreamGroups {
        self.adopt_all(policies.iter().map(|policy| (&*policy.name, &*policy.upstreams)))
    }

    /// The upstreams of each policy, with the policy's name.
    fn adopt_all<'p>(
        &self,
        policies: impl Iterator<Item = (&'p str, &'p [Upstream])>,
    ) -> UpstreamGroups {
        let mut groups = self.registry.groups.lock();
        let mut known = std::mem::take(&mut *groups);
        let mut adopt = |policy: &str, upstream: &Upstream| {
            let key = (Box::from(policy), upstream.name.clone());
            let known = known.remove(&key);
            let group = match known.as_ref().filter(|group| group.speaks_like(upstream)) {
                Some(group) => {
                    group.update(upstream);
                    Arc::clone(group)
                }
                None => {
                    known.iter().for_each(|group| group.retire());
                    Group::labelled(&format!("{policy}/{}", upstream.name), upstream)
                }
            };
            groups.insert(key, Arc::clone(&group));
            group
        };
        let adopted = policies
            .map(|(policy, upstreams)| upstreams.iter().map(|own| adopt(policy, own)).collect())
            .collect();
        known.values().for_each(|group| group.retire());
        let needs_care = groups.values().any(|group| group.needs_care());
        drop(groups);
        if needs_care {
            self.look_after();
        }
        UpstreamGroups::new(adopted)
    }

    /// How all servers are, in the order of policies and upstreams by name.
    pub fn report(&self) -> Vec<UpstreamReport> {
        let now = Instant::now();
        let report = |((policy, upstream), group): (&(Box<str>, Box<str>), &Arc<Group>)| {
            let policy = policy.clone();
            let upstream = upstream.clone();
            UpstreamReport { policy, upstream, total: group.total(), servers: group.report(now) }
        };
        self.registry.groups.lock().iter().map(report).collect()
    }

    /// Sees to it that there is a thread, and that it ticks now.
    fn look_after(&self) {
        let mut has_thread = self.has_thread.lock();
        if !*has_thread {
            match start(Arc::downgrade(&self.registry), self.resolver) {
                Ok(()) => *has_thread = true,
                // Addresses are served all the same, and the next reload tries again.
                Err(error) => {
                    tracing::error!(%error, "upstreams are not looked after: no names are resolved and no health is checked")
                }
            }
        }
        self.registry.news.notify_one();
    }
}

fn start(registry: Weak<Registry>, resolver: Resolver) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("lookup")
        .max_blocking_threads(MAX_LOOKUPS)
        .build()?;
    thread::Builder::new().name("upstreams".into()).spawn(move || {
        runtime.block_on(watch(registry, resolver));
        // Lookups that are still running do not delay the end.
        runtime.shutdown_background();
    })?;
    Ok(())
}

/// Begins the work that is due, for as long as the groups are in use.
async fn watch(registry: Weak<Registry>, resolver: Resolver) {
    let mut ticks = interval(WATCH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let Some(registry) = registry.upgrade() else { return };
        tokio::select! {
            _ = ticks.tick() => {}
            () = registry.news.notified() => {}
        }
        let groups: Vec<_> = registry.groups.lock().values().cloned().collect();
        drop(registry);
        for group in groups {
            tend(&group, resolver);
        }
    }
}

fn tend(group: &Arc<Group>, resolver: Resolver) {
    let now = Instant::now();
    for (host, port) in group.begin_lookups(now) {
        let group = Arc::clone(group);
        tokio::spawn(async move {
            let found = look_up(resolver, &host, port).await;
            group.end_lookup(&host, port, &found, Instant::now());
        });
    }
    let Some((probe, due)) = group.begin_checks(now, chance) else { return };
    for member in due {
        tokio::spawn(check(Arc::clone(group), member, Arc::clone(&probe)));
    }
}

async fn check(group: Arc<Group>, member: Arc<Member>, probe: Arc<Probe>) {
    let answer = probe.run(&member).await;
    group.note(&member, &probe, answer.err());
}

#[cfg(test)]
mod tests {
    use std::{
        num::NonZeroU32,
        slice,
        sync::atomic::{AtomicU8, Ordering},
    };

    use http::HeaderValue;
    use tollgate_policy::Server;

    use super::*;
    use crate::Choice;

    fn upstream(host: &str) -> Upstream {
        let authority = HeaderValue::from_static("api");
        let server = Server { host: host.into(), port: 80, weight: NonZeroU32::MIN, authority };
        let resolve_every = Duration::from_millis(1);
        Upstream { resolve_every, ..Upstream::new("api", vec![server]) }
    }

    fn adopt(keeper: &Keeper, upstream: &Upstream) -> Arc<Group> {
        let groups = keeper.adopt_all([("main", slice::from_ref(upstream))].into_iter());
        Arc::clone(groups.destination(upstream).unwrap().group)
    }

    #[tokio::test]
    async fn names_are_looked_up_again_and_their_new_addresses_used() {
        static LAST: AtomicU8 = AtomicU8::new(1);
        let keeper = Keeper::asking(|_| {
            let last = LAST.load(Ordering::SeqCst);
            Box::pin(async move { Ok(vec![[10, 0, 0, last].into()]) })
        });
        let group = adopt(&keeper, &upstream("api.internal"));
        assert!(group.resolved(Duration::from_secs(10)).await);
        let address = || group.choose(Choice::default()).unwrap().address.to_string();
        assert_eq!(address(), "10.0.0.1:80");
        LAST.store(2, Ordering::SeqCst);
        let has_moved = async {
            while address() != "10.0.0.2:80" {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), has_moved).await.unwrap();
    }

    #[test]
    fn addresses_need_no_thread() {
        let keeper = Keeper::asking(|_| Box::pin(async { Ok(Vec::new()) }));
        adopt(&keeper, &upstream("127.0.0.1"));
        assert!(!*keeper.has_thread.lock());
    }

    #[test]
    fn group_is_kept_for_as_long_as_its_upstream_is_named() {
        let keeper = Keeper::default();
        let first = adopt(&keeper, &upstream("127.0.0.1"));
        assert!(Arc::ptr_eq(&first, &adopt(&keeper, &upstream("127.0.0.2"))));
        assert!(!first.is_retired());
        keeper.adopt_all(std::iter::empty());
        assert!(first.is_retired());
        assert!(keeper.report().is_empty());
        assert!(!Arc::ptr_eq(&first, &adopt(&keeper, &upstream("127.0.0.1"))));
    }

    #[test]
    fn servers_that_are_spoken_to_in_another_way_are_others() {
        let keeper = Keeper::default();
        let first = adopt(&keeper, &upstream("127.0.0.1"));
        let protocol = tollgate_policy::Protocol::Http2;
        let changed = Upstream { protocol, ..upstream("127.0.0.1") };
        assert!(!Arc::ptr_eq(&first, &adopt(&keeper, &changed)));
    }
}
