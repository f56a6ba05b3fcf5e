//! Sentinels and nodes of a cluster that missed a failover: what they report is out of date.

use redis::Value;

use super::callers::{decided, find_callers, primaries, settings, wait_for_replica};
use crate::support::{Cluster, Policy, Proxy, Redis, Sentinels, Upstream, eventually};

fn start(servers: &str, upstream: &Upstream) -> Proxy {
    let policy = Policy::before(upstream).core("rate: 1000/hour, on_store_error: closed");
    Proxy::with_settings(&settings(servers), &[&policy])
}

#[test]
fn sentinel_of_an_older_epoch_is_not_believed() {
    let upstream = Upstream::start();
    let old = Redis::start();
    let new = Redis::start();
    let sentinels = [Sentinels::alone(&old, 3), Sentinels::alone(&new, 4)];
    // Whichever is asked first.
    for order in [[0, 1], [1, 0]] {
        let urls = order.map(|at: usize| sentinels[at].urls().remove(0)).join(", ");
        let servers = format!("sentinels: [{urls}], service: {}", Sentinels::SERVICE);
        let proxy = start(&servers, &upstream);
        for _ in 0..10 {
            decided(&proxy.get_as("alice"));
        }
        eventually("the other primary is reported", || {
            let rivals = proxy.stores().counts.rivals().report();
            let is_reported = rivals.iter().any(|it| it.server.ends_with(&old.port().to_string()));
            is_reported.then_some(())
        });
    }
    assert_eq!((old.counters().len(), new.counters().len()), (0, 1));
}

/// What a node has under this name.
fn dump(node: &Redis, key: &str) -> Value {
    node.command(&["DUMP", key])
}

#[test]
fn node_that_its_cluster_has_left_behind_is_not_believed() {
    const VICTIM: usize = 1;
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let running = start(&cluster.settings(), &upstream);
    let callers = find_callers(&running, &primaries(&cluster), 1);
    let caller = callers.iter().find(|caller| caller.home == VICTIM).unwrap();
    let replica = cluster.replica_of(VICTIM);
    let old = cluster.node(VICTIM);
    let new = cluster.node(replica);
    wait_for_replica(old, new);
    cluster.leave_behind(VICTIM);
    let slot = cluster.slot_of(&caller.key);
    eventually("the replica takes over", || (cluster.primary_of(slot) == replica).then_some(()));
    let info: String = old.ask(&["CLUSTER", "INFO"]);
    assert!(info.contains("cluster_state:ok"), "it still serves: {info}");

    let left = dump(old, &caller.key);
    let seeds = [VICTIM, 0].map(|node| cluster.node(node).url()).join(", ");
    let started = start(&format!("cluster: [{seeds}]"), &upstream);
    for used in 2..=5 {
        assert_eq!(caller.count_one(&started), used);
    }
    assert_eq!(dump(old, &caller.key), left, "it was believed");
    eventually("the other proxy follows", || {
        let before = dump(new, &caller.key);
        caller.count_one(&running);
        (dump(new, &caller.key) != before).then_some(())
    });
}
