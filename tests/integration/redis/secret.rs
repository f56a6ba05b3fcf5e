//! The secret that counters' names are hashed under, where none was configured: Redis keeps it.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use tollgate_limit::KeyHasher;
use tollgate_store::Degradation;

use crate::support::{
    Cluster, Gremlin, ISSUER, MINUTE, Policy, Proxy, Redis, Sentinels, Shards, Upstream, eventually,
};

const NAME: &str = "tollgate:key-secret";

/// A proxy that counts in this Redis. It waits as long as a busy machine takes.
fn proxy(redis: &str, upstream: &Upstream) -> Proxy {
    Proxy::with_redis(redis, &Policy::before(upstream).rate("100/hour"))
}

fn used(proxy: &Proxy) -> u64 {
    let response = proxy.get_as("alice");
    response.assert_status(200).assert_no_field("x-tollgate-store").number("x-ratelimit-used")
}

fn kept(redis: &Redis) -> Option<String> {
    redis.ask(&["GET", NAME])
}

/// The part of a counter's name that says whose it is, as who knows the secret would write it.
fn tag_of_alice(secret: [u8; 16]) -> String {
    let parts = [(b'u', ISSUER), (b'c', "sub"), (b'v', "alice")];
    let hash = KeyHasher::new(secret).hash(parts.map(|(kind, part)| (kind, part.as_bytes())));
    format!("{{{}}}", URL_SAFE_NO_PAD.encode(((hash >> 64) as u64).to_be_bytes()))
}

/// A minute passes, and the proxy has looked what Redis keeps.
fn wait_for_look(proxies: &[&Proxy], is_done: impl Fn() -> bool) {
    eventually("redis was looked at", || {
        proxies.iter().for_each(|proxy| proxy.advance(2 * MINUTE));
        is_done().then_some(())
    });
}

#[test]
fn proxies_without_a_configured_secret_share_a_random_one() {
    let upstream = Upstream::start();
    let mut names = Vec::new();
    for redis in [Redis::start(), Redis::start()] {
        let proxies = [proxy(&redis.settings(), &upstream), proxy(&redis.settings(), &upstream)];
        assert_eq!(proxies.each_ref().map(used), [1, 2]);
        let counters = redis.counters();
        assert_eq!(counters.len(), 1, "{counters:?}");
        for known in [*b"tollgate/counter", [0; 16]] {
            assert!(!counters[0].contains(&tag_of_alice(known)), "{counters:?}");
        }
        let secret = u128::from_str_radix(&kept(&redis).unwrap(), 16).unwrap().to_be_bytes();
        assert!(counters[0].contains(&tag_of_alice(secret)), "{counters:?}");
        // Who starts later, and alone, goes on with it.
        drop(proxies);
        assert_eq!(used(&proxy(&redis.settings(), &upstream)), 3);
        names.extend(counters);
    }
    assert_ne!(names[0], names[1]);
}

#[test]
fn configured_secret_is_not_put_into_redis() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let policy = Policy::before(&upstream).rate("10/hour");
    let store = format!("redis: {{ {} }}, deadline: 10s", redis.settings());
    let proxy = Proxy::with_store(&format!("{store}, key_secret_env: TEST_SECRET"), &policy);
    assert_eq!(used(&proxy), 1);
    assert_eq!(kept(&redis), None);
}

#[test]
fn proxies_that_start_while_redis_is_away_agree_once_it_is_there() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    redis.kill();
    let start = || proxy(&redis.settings(), &upstream);
    let proxies = [start(), start()];
    for proxy in &proxies {
        // Tokens that are known already must not keep the name that they had at first.
        proxy.get_as("alice").assert_status(200).assert_field("x-tollgate-store", "local");
    }
    redis.restart();
    for proxy in &proxies {
        let is_decided = || proxy.get_as("bob").field("x-tollgate-store").is_none();
        eventually("redis decides", || is_decided().then_some(()));
        let is_written_back = || proxy.stores().pending() == 0;
        eventually("nothing is pending", || is_written_back().then_some(()));
    }
    // One of them has stored its own secret: what it admitted in fallback mode is written back. The
    // other's is not.
    assert_eq!(proxies.each_ref().map(used), [2, 3]);
    assert_eq!(redis.counters().len(), 2, "alice's and bob's");
}

#[test]
fn requests_that_wait_while_the_secret_comes_are_not_counted_under_another() {
    const CLIENTS: usize = 8;
    const SLOW: Duration = Duration::from_millis(100);
    let upstream = Upstream::start();
    let redis = Redis::start();
    let policy = Policy::before(&upstream).rate("100000/hour");
    let other = Proxy::with_redis(&redis.settings(), &policy);
    assert_eq!(used(&other), 1);
    let gremlin = Gremlin::before(redis.port());
    gremlin.refuse();
    let late = Proxy::with_redis(&format!("url: {}", gremlin.url()), &policy);
    // Now something is pending, and requests wait until it is written.
    late.get_as("alice").assert_status(200).assert_field("x-tollgate-store", "local");
    gremlin.behave();
    gremlin.delay(SLOW);
    let lacks_only_secret = || late.stores().degradations() == [Degradation::NoSecret];
    eventually("it is connected", || lacks_only_secret().then_some(()));
    // A connection that was just cut is waited for.
    gremlin.cut();
    let decided = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                eventually("redis decides", || {
                    let response = late.get_as("alice");
                    let is_local = response.assert_status(200).field("x-tollgate-store").is_some();
                    decided.fetch_add(u64::from(!is_local), Ordering::Relaxed);
                    (!is_local).then_some(())
                });
            });
        }
    });
    // Two are the other proxy's own.
    let counted = used(&other) - 2;
    assert!(counted >= decided.into_inner(), "{counted}");
}

#[test]
fn secret_that_redis_has_lost_is_put_back() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let proxies = [proxy(&redis.settings(), &upstream), proxy(&redis.settings(), &upstream)];
    assert_eq!(proxies.each_ref().map(used), [1, 2]);
    let secret = kept(&redis);
    assert!(secret.is_some());
    redis.command(&["FLUSHALL"]);
    wait_for_look(&[&proxies[1]], || kept(&redis).is_some());
    assert_eq!(kept(&redis), secret);
    assert_eq!(used(&proxies[0]), 1);
    let third = proxy(&redis.settings(), &upstream);
    assert_eq!((used(&third), used(&proxies[1])), (2, 3));
}

#[test]
fn another_secret_in_redis_is_taken() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let old = proxy(&redis.settings(), &upstream);
    assert_eq!(used(&old), 1);
    // It is gone, and another proxy starts before anybody has looked.
    redis.command(&["DEL", NAME]);
    let new = proxy(&redis.settings(), &upstream);
    assert_eq!(used(&new), 1, "a fresh counter, under another secret");
    let is_shared = || used(&new) + 1 == used(&old);
    wait_for_look(&[&old], is_shared);
    assert!(is_shared());
}

#[test]
fn every_shard_has_a_copy_and_the_first_is_right() {
    let upstream = Upstream::start();
    let shards = Shards::start(3);
    let first = proxy(&shards.settings(), &upstream);
    let copies = || [0, 1, 2].map(|shard| kept(shards.primary(shard)));
    assert_eq!(used(&first), 1);
    let secret = kept(shards.primary(0));
    assert!(secret.is_some());
    assert_eq!(copies(), [0; 3].map(|_| secret.clone()));

    // One that has lost it gets it from the others.
    shards.primary(0).command(&["DEL", NAME]);
    let second = proxy(&shards.settings(), &upstream);
    assert_eq!(used(&second), 2);
    assert_eq!(kept(shards.primary(0)), secret);

    shards.primary(2).command(&["SET", NAME, &"0".repeat(32)]);
    let third = proxy(&shards.settings(), &upstream);
    assert_eq!(used(&third), 3);
    assert_eq!(copies(), [0; 3].map(|_| secret.clone()));
}

#[test]
fn first_shard_may_be_away() {
    let upstream = Upstream::start();
    let shards = Shards::start(2);
    shards.primary(0).kill();
    shards.replica(0).kill();
    let settings = shards.settings();
    let proxies = [proxy(&settings, &upstream), proxy(&settings, &upstream)];
    // A caller whose counters are on the shard that is there.
    let is_decided = |sub: &String| proxies[0].get_as(sub).field("x-tollgate-store").is_none();
    let sub = (0..64).map(|number| format!("caller-{number}")).find(is_decided).unwrap();
    assert_eq!(proxies[1].get_as(&sub).number("x-ratelimit-used"), 2);
    let secret = kept(shards.primary(1));

    shards.primary(0).restart();
    wait_for_look(&[&proxies[1]], || kept(shards.primary(0)).is_some());
    assert_eq!(kept(shards.primary(0)), secret);
}

#[test]
fn cluster_and_sentinels_keep_it_too() {
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let shards = Shards::start(1);
    let redis = shards.primary(0);
    let service = Sentinels::SERVICE;
    let sentinels = Sentinels::start(redis, 1);
    let urls = sentinels.urls().join(", ");
    let by_sentinel = format!("sentinels: [{urls}], service: {service}");
    for settings in [cluster.settings(), by_sentinel] {
        let proxies = [proxy(&settings, &upstream), proxy(&settings, &upstream)];
        assert_eq!(proxies.each_ref().map(used), [1, 2], "{settings}");
    }
    let owner = cluster.primary_of(cluster.slot_of(NAME));
    assert!(kept(cluster.node(owner)).is_some() && kept(redis).is_some());
}

#[test]
fn counters_keep_their_names_through_a_move() {
    let upstream = Upstream::start();
    let first = Redis::start();
    let second = Redis::start();
    // The next store was used for something else before.
    second.command(&["SET", NAME, &"7".repeat(32)]);
    let policy = Policy::before(&upstream).rate("100/hour");
    let kind = |redis: &Redis| format!("{{ redis: {{ {}, clock: proxy }} }}", redis.settings());
    let alone = |redis: &Redis| proxy(&redis.settings(), &upstream);
    assert_eq!(used(&alone(&first)), 1);
    let moving = |current: &str, next: &str| {
        let store = format!("current: {current}, next: {next}, percent: 100, mode: move_now");
        Proxy::with_store(&format!("{store}, deadline: 10s"), &policy)
    };
    assert_eq!(used(&moving(&kind(&first), &kind(&second))), 2);
    assert_eq!(kept(&first), kept(&second));
    assert_eq!(used(&alone(&second)), 3);

    // From the process to Redis: it has the secret that the process began with.
    let third = Redis::start();
    let proxies = [0; 2].map(|_| moving("{ memory: {} }", &kind(&third)));
    assert_eq!(proxies.each_ref().map(used), [1, 2]);
    assert_eq!(used(&alone(&third)), 3);
}

#[test]
fn redis_that_keeps_none_leaves_each_proxy_alone_with_its_own() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    for value in ["a secret that somebody has typed", "tollgate/counter"] {
        redis.command(&["FLUSHALL"]);
        redis.command(&["SET", NAME, value]);
        let proxies = [proxy(&redis.settings(), &upstream), proxy(&redis.settings(), &upstream)];
        assert_eq!(proxies.each_ref().map(used), [1, 1], "{value}");
        assert_eq!(kept(&redis).as_deref(), Some(value));
        let public = tag_of_alice(*b"tollgate/counter");
        assert!(redis.counters().iter().all(|name| !name.contains(&public)));
        // Once there is one, it is learnt.
        redis.command(&["DEL", NAME]);
        let is_shared = || used(&proxies[0]) + 1 == used(&proxies[1]);
        wait_for_look(&[&proxies[0], &proxies[1]], is_shared);
    }
}
