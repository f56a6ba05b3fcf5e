//! Replicas that are behind, or away: they tell how limits stand, and never decide.

use super::callers::{
    Caller, cut_link, decided, find_callers, primaries, primaries_of, wait_for_replica,
};
use crate::support::{Cluster, MINUTE, Policy, Proxy, Redis, SECOND, Shards, Upstream, eventually};

fn start(servers: &str, deadline: &str, upstream: &Upstream) -> Proxy {
    let policy = Policy::before(upstream).core("rate: 5/minute, on_store_error: closed");
    let settings = format!(
        "workers: 1\nstore: {{ redis: {{ {servers}, clock: proxy }}, deadline: {deadline} }}"
    );
    Proxy::with_settings(&settings, &[&policy])
}

/// A caller of the first server, who has used one of five.
fn caller(proxy: &Proxy, servers: &[&Redis]) -> Caller {
    find_callers(proxy, servers, 1).into_iter().find(|caller| caller.home == 0).unwrap()
}

fn told(proxy: &Proxy, caller: &Caller) -> u64 {
    proxy.used(&caller.sub, "core")
}

/// A replica that is cut off with three of five used shows that until the window ends, lets nobody
/// pass, and shows nothing after.
fn check_stale_replica(proxy: &Proxy, caller: &Caller, [primary, replica]: [&Redis; 2]) {
    let charge = || proxy.send(caller.request());
    for used in ["2", "3"] {
        decided(&charge()).assert_status(200).assert_field("x-ratelimit-used", used);
    }
    cut_link(primary, replica);
    for used in ["4", "5"] {
        decided(&charge()).assert_status(200).assert_field("x-ratelimit-used", used);
    }
    assert_eq!(told(proxy, caller), 3, "the replica was not asked");
    decided(&charge()).assert_status(429).assert_field("x-ratelimit-used", "5");
    assert_eq!(told(proxy, caller), 3);

    proxy.advance(MINUTE + SECOND);
    assert_eq!(told(proxy, caller), 0, "a window that has ended");
    decided(&charge()).assert_status(200).assert_field("x-ratelimit-used", "1");
    assert_eq!(told(proxy, caller), 0);

    replica.kill();
    assert_eq!(told(proxy, caller), 1, "the primary tells as well");
    assert_eq!(told(proxy, caller), 1);
    decided(&charge()).assert_field("x-ratelimit-used", "2");
}

#[test]
fn stale_replica_of_a_shard_shows_no_window_that_has_ended_and_admits_nobody() {
    let (upstream, shards) = (Upstream::start(), Shards::start(2));
    let proxy = start(&shards.settings(), "3s", &upstream);
    let caller = caller(&proxy, &primaries_of(&shards));
    check_stale_replica(&proxy, &caller, [shards.primary(0), shards.replica(0)]);
}

#[test]
fn stale_replica_of_a_cluster_shows_no_window_that_has_ended_and_admits_nobody() {
    let (upstream, cluster) = (Upstream::start(), Cluster::start());
    let caller = caller(&start(&cluster.settings(), "3s", &upstream), &primaries(&cluster));
    wait_until_named(&cluster, 3);
    let proxy = start(&cluster.settings(), "3s", &upstream);
    check_stale_replica(&proxy, &caller, [cluster.node(0), cluster.node(3)]);
}

/// Waits until all primaries tell of a replica. They do not before they have heard from it that it has
/// something.
fn wait_until_named(cluster: &Cluster, replica: usize) {
    let port = format!("int({})", cluster.node(replica).port());
    let is_named =
        |node: &Redis| format!("{:?}", node.command(&["CLUSTER", "SLOTS"])).contains(&port);
    let is_named_by_all = || primaries(cluster).into_iter().all(is_named);
    eventually("the replica is told of", || is_named_by_all().then_some(()));
}

#[test]
fn replica_that_hangs_does_not_hide_what_its_primary_can_tell() {
    let (upstream, shards) = (Upstream::start(), Shards::start(2));
    let proxy = start(&shards.settings(), "500ms", &upstream);
    let caller = caller(&proxy, &primaries_of(&shards));
    shards.replica(0).pause();
    for _ in 0..8 {
        assert_eq!(told(&proxy, &caller), 1);
    }
    shards.replica(0).resume();
}

#[test]
fn replica_tells_while_its_primary_is_away() {
    let (upstream, shards) = (Upstream::start(), Shards::start(2));
    let proxy = start(&shards.settings(), "3s", &upstream);
    let caller = caller(&proxy, &primaries_of(&shards));
    wait_for_replica(shards.primary(0), shards.replica(0));
    shards.primary(0).kill();
    proxy.send(caller.request()).assert_status(503);
    assert_eq!(told(&proxy, &caller), 1);
}
