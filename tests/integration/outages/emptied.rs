//! Servers of shards and clusters that lose counters: proxies restore what they know to the server
//! that takes the place.

use super::callers::{Caller, find_callers, primaries, primaries_of, settings, split};
use crate::support::{Cluster, Policy, Proxy, Redis, Shards, Upstream, eventually};

/// The server that loses its counters.
const VICTIM: usize = 1;

const LIMIT: u64 = 20;

/// Two proxies with the same callers, who have used three quarters of their limit by the first.
fn fleet(
    servers: &str,
    places: &[&Redis],
    upstream: &Upstream,
) -> ([Proxy; 2], (Vec<Caller>, Vec<Caller>)) {
    let fields = format!("rate: {LIMIT}/day, on_store_error: closed");
    let policy = Policy::before(upstream).core(&fields);
    let fleet = [(); 2].map(|()| Proxy::with_settings(&settings(servers), &[&policy]));
    let callers = find_callers(&fleet[0], places, 2);
    for caller in &callers {
        for used in 2..=LIMIT * 3 / 4 {
            assert_eq!(caller.count_one(&fleet[0]), used);
        }
    }
    (fleet, split(&callers, VICTIM))
}

/// How many of a caller's requests pass: this many at most, and none while Redis does not decide.
fn admit(proxy: &Proxy, caller: &Caller, most: u64) -> u64 {
    let mut admitted = 0;
    while admitted < most {
        let status = eventually("redis decides", || {
            let status = proxy.send(caller.request()).status;
            (status != 503).then_some(status)
        });
        match status {
            200 => admitted += 1,
            _ => break,
        }
    }
    admitted
}

/// That callers have a quarter left, whichever proxy they ask after the one that knows them.
fn assert_a_quarter_is_left(fleet: &[Proxy; 2], callers: &[Caller]) {
    for caller in callers {
        let admitted = admit(&fleet[0], caller, 2) + admit(&fleet[1], caller, LIMIT);
        assert_eq!(admitted, LIMIT / 4, "{}", caller.sub);
    }
}

#[test]
fn shard_that_comes_back_empty_is_restored() {
    let upstream = Upstream::start();
    let shards = Shards::start(3);
    let (fleet, (victims, others)) = fleet(&shards.settings(), &primaries_of(&shards), &upstream);
    // No other server is to take its place.
    shards.replica(VICTIM).kill();
    shards.primary(VICTIM).restart();
    assert_a_quarter_is_left(&fleet, &victims);
    assert_a_quarter_is_left(&fleet, &others);
}

#[test]
fn replica_that_is_promoted_without_its_primary_s_counters_is_restored() {
    let upstream = Upstream::start();
    let shards = Shards::start(3);
    let (fleet, (victims, others)) = fleet(&shards.settings(), &primaries_of(&shards), &upstream);
    shards.primary(VICTIM).kill();
    shards.replica(VICTIM).command(&["CONFIG", "SET", "replica-read-only", "no"]);
    shards.replica(VICTIM).command(&["FLUSHALL"]);
    shards.promote(VICTIM);
    assert_a_quarter_is_left(&fleet, &victims);
    assert_a_quarter_is_left(&fleet, &others);
}

#[test]
fn node_of_a_cluster_that_comes_back_empty_is_restored() {
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let (fleet, (victims, others)) = fleet(&cluster.settings(), &primaries(&cluster), &upstream);
    cluster.node(VICTIM).restart();
    assert_a_quarter_is_left(&fleet, &victims);
    assert_a_quarter_is_left(&fleet, &others);
}
