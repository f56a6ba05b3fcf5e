//! Replicas that are behind, or away: they serve reads while they are up to date, and never decide.

use std::time::Instant;

use super::callers::{
    Caller, cut_link, find_callers, primaries, primaries_of, settings, wait_for_replica,
};
use crate::support::{
    Cluster, Gremlin, MINUTE, Policy, Proxy, Redis, SECOND, Shards, Upstream, eventually,
};

fn start(servers: &str, deadline: &str, upstream: &Upstream) -> Proxy {
    let policy = Policy::before(upstream).core("rate: 100/minute, on_store_error: closed");
    let settings = format!(
        "workers: 1\nstore: {{ redis: {{ {servers}, clock: proxy }}, deadline: {deadline} }}"
    );
    Proxy::with_settings(&settings, &[&policy])
}

/// A caller of the first server, who has used one.
fn caller(proxy: &Proxy, servers: &[&Redis]) -> Caller {
    find_callers(proxy, servers, 1).into_iter().find(|caller| caller.home == 0).unwrap()
}

/// What `GET /rate_limit` reports as used.
fn reported_use(proxy: &Proxy, caller: &Caller) -> u64 {
    proxy.used(&caller.sub, "core")
}

/// Fifty charges of one proxy while the replica is cut off. That proxy reports all of them at once.
/// Another one, which has charged nothing, reports them once it has found that the replica is cut
/// off.
fn check_cut_replica(
    [charging, reading]: [&Proxy; 2],
    caller: &Caller,
    [primary, replica]: [&Redis; 2],
) {
    wait_until_read(reading, caller, replica);
    assert_eq!(reported_use(reading, caller), 1);
    cut_link(primary, replica);
    charge_until(charging, caller, 50);
    assert_eq!(reported_use(charging, caller), 50, "the proxy has seen this count before");
    eventually("the replica is left out", || (reported_use(reading, caller) == 50).then_some(()));
    assert_eq!(reported_use(reading, caller), 50);

    for proxy in [charging, reading] {
        proxy.advance(MINUTE + SECOND);
        assert_eq!(reported_use(proxy, caller), 0, "a window that has ended");
    }
    charge_until(charging, caller, 1);
    assert_eq!(reported_use(charging, caller), 1);
    // With so many queries, the response may be from a moment ago.
    eventually("the new count is reported", || (reported_use(reading, caller) == 1).then_some(()));
    replica.kill();
    for proxy in [charging, reading] {
        assert_eq!(reported_use(proxy, caller), 1, "the primary reports it as well");
    }
}

/// Charges a caller until so much is used.
fn charge_until(proxy: &Proxy, caller: &Caller, used: u64) {
    while caller.count_one(proxy) < used {}
}

/// Waits until a replica is asked how this caller stands.
fn wait_until_read(proxy: &Proxy, caller: &Caller, replica: &Redis) {
    let before = reads(replica);
    let is_read = || {
        reported_use(proxy, caller);
        reads(replica) > before
    };
    eventually("the replica is read", || is_read().then_some(()));
}

/// How often a server was asked about counters.
fn reads(server: &Redis) -> u64 {
    let stats: String = server.ask(&["INFO", "commandstats"]);
    let calls = |line: &str| line.split(['=', ',']).nth(1)?.parse::<u64>().ok();
    stats.lines().filter(|line| line.starts_with("cmdstat_eval")).filter_map(calls).sum()
}

#[test]
fn cut_replica_of_a_shard_is_not_read() {
    let upstream = Upstream::start();
    let shards = Shards::start(2);
    let [charging, reading] = [(); 2].map(|()| start(&shards.settings(), "3s", &upstream));
    let caller = caller(&charging, &primaries_of(&shards));
    wait_for_replica(shards.primary(0), shards.replica(0));
    check_cut_replica([&charging, &reading], &caller, [shards.primary(0), shards.replica(0)]);
}

#[test]
fn cut_replica_of_a_cluster_is_not_read() {
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let caller = caller(&start(&cluster.settings(), "3s", &upstream), &primaries(&cluster));
    wait_until_named(&cluster, 3);
    wait_for_replica(cluster.node(0), cluster.node(3));
    let [charging, reading] = [(); 2].map(|()| start(&cluster.settings(), "3s", &upstream));
    check_cut_replica([&charging, &reading], &caller, [cluster.node(0), cluster.node(3)]);
}

/// A shard whose replica follows it through a bad network.
fn shard_behind_a_gremlin() -> (Redis, Gremlin, Redis, String) {
    let primary = Redis::start();
    let gremlin = Gremlin::before(primary.port());
    let replica = Redis::with().replica_of(gremlin.port()).start();
    wait_for_replica(&primary, &replica);
    let servers = format!(
        "shards: [{{ name: a, primary: {}, replicas: [{}] }}]",
        primary.url(),
        replica.url()
    );
    (primary, gremlin, replica, servers)
}

#[test]
fn replica_whose_link_is_silent_is_not_read_before_it_has_caught_up() {
    let upstream = Upstream::start();
    let (primary, gremlin, replica, servers) = shard_behind_a_gremlin();
    let [charging, reading] = [(); 2].map(|()| start(&servers, "3s", &upstream));
    let caller = caller(&charging, &[&primary]);
    wait_until_read(&reading, &caller, &replica);

    // To both servers the link is as good as ever.
    gremlin.stall();
    charge_until(&charging, &caller, 50);
    assert_eq!(reported_use(&charging, &caller), 50);
    eventually("the replica is left out", || (reported_use(&reading, &caller) == 50).then_some(()));
    assert_eq!(replica.info("master_link_status"), "up");
    // It is, beside the primary, where that takes long to answer.
    eventually("the replica is not queried", || {
        let before = reads(&replica);
        for _ in 0..5 {
            assert_eq!(reported_use(&reading, &caller), 50);
        }
        (reads(&replica) == before).then_some(())
    });

    gremlin.behave();
    wait_until_read(&reading, &caller, &replica);
    assert_eq!(reported_use(&reading, &caller), 50);
}

#[test]
fn reported_use_never_goes_back_with_any_algorithm() {
    for algorithm in ["sliding_window", "sliding_log", "token_bucket", "gcra"] {
        let upstream = Upstream::start();
        let (primary, gremlin, replica, servers) = shard_behind_a_gremlin();
        let limit = format!("rate: 100/day, algorithm: {algorithm}");
        let settings = settings(&servers);
        let proxy = Proxy::with_settings(&settings, &[&Policy::before(&upstream).core(&limit)]);
        let caller = caller(&proxy, &[&primary]);
        wait_until_read(&proxy, &caller, &replica);
        gremlin.stall();
        for used in 2..=20 {
            assert_eq!(caller.count_one(&proxy), used);
            assert_eq!(reported_use(&proxy, &caller), used, "{algorithm}");
        }
        gremlin.behave();
    }
}

#[test]
fn refund_is_reported_though_a_replica_has_not_received_it() {
    let upstream = Upstream::as_asked();
    let (primary, gremlin, replica, servers) = shard_behind_a_gremlin();
    let proxy = start(&servers, "3s", &upstream);
    let caller = caller(&proxy, &[&primary]);
    wait_until_read(&proxy, &caller, &replica);
    gremlin.stall();
    charge_until(&proxy, &caller, 5);
    let refunded = proxy.send(caller.request().wants(304).revalidating());
    refunded.assert_status(304).assert_field("x-ratelimit-used", "5");
    assert_eq!(reported_use(&proxy, &caller), 5);
    gremlin.behave();
}

/// Waits until all primaries list a replica. They do so only after it has announced that it has
/// data.
fn wait_until_named(cluster: &Cluster, replica: usize) {
    let port = format!("int({})", cluster.node(replica).port());
    let is_named =
        |node: &Redis| format!("{:?}", node.command(&["CLUSTER", "SLOTS"])).contains(&port);
    let is_named_by_all = || primaries(cluster).into_iter().all(is_named);
    eventually("the replica is listed", || is_named_by_all().then_some(()));
}

#[test]
fn replica_that_hangs_costs_no_wait() {
    let upstream = Upstream::start();
    let shards = Shards::start(2);
    let proxy = start(&shards.settings(), "10s", &upstream);
    let caller = caller(&proxy, &primaries_of(&shards));
    wait_for_replica(shards.primary(0), shards.replica(0));
    wait_until_read(&proxy, &caller, shards.replica(0));
    shards.replica(0).pause();
    let begun = Instant::now();
    for _ in 0..8 {
        assert_eq!(reported_use(&proxy, &caller), 1);
    }
    assert!(begun.elapsed() < 4 * SECOND, "somebody has waited for the replica");
    shards.replica(0).resume();
}

#[test]
fn replica_serves_reads_while_its_primary_is_away() {
    let upstream = Upstream::start();
    let shards = Shards::start(2);
    let proxy = start(&shards.settings(), "3s", &upstream);
    let caller = caller(&proxy, &primaries_of(&shards));
    wait_for_replica(shards.primary(0), shards.replica(0));
    shards.primary(0).kill();
    proxy.send(caller.request()).assert_status(503);
    assert_eq!(reported_use(&proxy, &caller), 1);
}
