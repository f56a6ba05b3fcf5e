//! Two servers of one shard that both say that they are its primary: all proxies use the one whose
//! data goes on.

use super::callers::{decided, settings, wait_for_replica};
use crate::support::{Policy, Proxy, Redis, SECRET, Shards, Upstream, eventually};

/// What a caller may have in a window.
const LIMIT: usize = 200;

fn policy(upstream: &Upstream) -> Policy {
    Policy::before(upstream).core(&format!("rate: {LIMIT}/hour, on_store_error: closed"))
}

fn start(servers: &str, upstream: &Upstream) -> Proxy {
    Proxy::with_settings(&settings(servers), &[&policy(upstream)])
}

/// How many of so many requests of a caller pass; Redis decides about all of them.
fn passed(proxy: &Proxy, sub: &str, requests: usize) -> usize {
    let mut client = proxy.connect();
    let request = crate::support::get("/").by(sub);
    (0..requests).filter(|_| decided(&client.send(&request)).status == 200).count()
}

/// Asks for new callers until this server has a counter of one of them.
fn wait_until_used(proxy: &Proxy, server: &Redis, name: &str) {
    let mut number = 0;
    eventually(&format!("{name} uses the server"), || {
        let before = server.counters().len();
        number += 1;
        proxy.get_as(&format!("{name}-{number}"));
        (server.counters().len() > before).then_some(())
    });
}

/// The primary dies, its replica is promoted by hand, and the proxy uses that.
fn fail_over(proxy: &Proxy, shards: &Shards) {
    let old = shards.primary(0);
    let new = shards.replica(0);
    wait_for_replica(old, new);
    old.kill();
    shards.promote(0);
    wait_until_used(proxy, new, "after-failover");
}

/// Waits until the proxy reports which of the two it does not use.
fn wait_until_reported(proxy: &Proxy, unused: &Redis) {
    eventually("the proxy reports two primaries", || {
        let rivals = proxy.stores().counts.rivals().report();
        let unused = format!("127.0.0.1:{}", unused.port());
        rivals.iter().any(|rival| rival.server == unused).then_some(())
    });
}

#[test]
fn old_primary_that_comes_back_empty_is_used_by_no_proxy() {
    let upstream = Upstream::start();
    let shards = Shards::start(1);
    let running = start(&shards.settings(), &upstream);
    assert_eq!(passed(&running, "alice", LIMIT / 2), LIMIT / 2);
    fail_over(&running, &shards);
    shards.primary(0).restart();

    let started = start(&shards.settings(), &upstream);
    let more = passed(&started, "alice", LIMIT) + passed(&running, "alice", LIMIT);
    assert_eq!(LIMIT / 2 + more, LIMIT, "of {LIMIT}");
    assert_eq!(shards.primary(0).counters(), [""; 0], "the old primary was believed");
    for proxy in [&running, &started] {
        wait_until_reported(proxy, shards.primary(0));
    }

    // It is settled when the old one follows the new one.
    let port = shards.replica(0).port().to_string();
    shards.primary(0).command(&["REPLICAOF", "127.0.0.1", &port]);
    for proxy in [&running, &started] {
        let is_settled = || proxy.stores().counts.rivals().report().is_empty();
        eventually("one primary is left", || is_settled().then_some(()));
    }
}

#[test]
fn old_primary_that_comes_back_with_its_data_is_used_by_no_proxy() {
    let upstream = Upstream::start();
    let shards = Shards::start(1);
    let running = start(&shards.settings(), &upstream);
    assert_eq!(passed(&running, "alice", LIMIT / 4), LIMIT / 4);
    shards.primary(0).save();
    fail_over(&running, &shards);
    assert_eq!(passed(&running, "alice", LIMIT / 4), LIMIT / 4);
    shards.primary(0).restart();
    assert!(!shards.primary(0).counters().is_empty(), "it has saved them");

    let started = start(&shards.settings(), &upstream);
    let more = passed(&started, "alice", LIMIT) + passed(&running, "alice", LIMIT);
    assert_eq!(LIMIT / 2 + more, LIMIT, "of {LIMIT}");
}

#[test]
fn all_proxies_follow_a_promotion_beside_a_primary_that_goes_on() {
    let upstream = Upstream::start();
    let shards = Shards::start(1);
    let proxies = [(); 2].map(|()| start(&shards.settings(), &upstream));
    let old = shards.primary(0);
    let new = shards.replica(0);
    assert_eq!(passed(&proxies[0], "alice", LIMIT / 2), LIMIT / 2);
    wait_for_replica(old, new);
    shards.promote(0);
    for (number, proxy) in proxies.iter().enumerate() {
        wait_until_used(proxy, new, &format!("proxy-{number}"));
        wait_until_reported(proxy, old);
    }

    let left = old.counters().len();
    let more: usize = proxies.iter().map(|proxy| passed(proxy, "alice", LIMIT)).sum();
    assert_eq!(LIMIT / 2 + more, LIMIT, "of {LIMIT}");
    assert_eq!(old.counters().len(), left);

    // The old one goes without a word, and nothing changes.
    old.kill();
    assert_eq!(passed(&proxies[1], "bob", 10), 10);
}

#[test]
fn promoted_primary_that_hung_while_a_proxy_started_is_found_by_it() {
    let upstream = Upstream::start();
    let shards = Shards::start(1);
    let running = start(&shards.settings(), &upstream);
    assert_eq!(passed(&running, "alice", LIMIT), LIMIT);
    fail_over(&running, &shards);
    shards.primary(0).restart();

    shards.replica(0).pause();
    let started = start(&shards.settings(), &upstream);
    // It may take the other one meanwhile: there is no other server.
    started.get_as("bob");
    shards.replica(0).resume();
    wait_until_used(&started, shards.replica(0), "started");
    wait_until_reported(&started, shards.primary(0));
    // The names of counters are those of the other proxies again.
    eventually("alice is denied", || (started.get_as("alice").status == 429).then_some(()));
    assert_eq!(passed(&running, "alice", 5), 0, "it went on with the promoted one");
}

#[test]
fn replica_is_followed_where_its_history_may_not_be_queried() {
    let upstream = Upstream::start();
    let shards = Shards::start(1);
    for server in [shards.primary(0), shards.replica(0)] {
        let password = format!(">{SECRET}");
        let keys = ["~tollgate:{*", "~tollgate:key-secret"];
        let user = ["ACL", "SETUSER", "limited", "on", &password, keys[0], keys[1]];
        server.command(&[&user[..], &["&*", "+@all", "-info"]].concat());
    }
    let user = "username: limited, password_env: TEST_SECRET";
    let proxy = start(&format!("{}, {user}", shards.settings()), &upstream);
    assert_eq!(passed(&proxy, "alice", 3), 3);
    fail_over(&proxy, &shards);
    assert_eq!(decided(&proxy.get_as("alice")).number("x-ratelimit-used"), 4);
    shards.primary(0).restart();
    assert_eq!(passed(&proxy, "alice", 10), 10);
    assert_eq!(shards.primary(0).counters(), [""; 0], "one that is in use stays in use");
}
