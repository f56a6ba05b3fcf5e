//! Ways to get at a Redis: TLS, users, databases, sentinels.

use std::fs;

use crate::support::{
    Certificates, Policy, Proxy, Redis, SECRET, Sentinels, Shards, Upstream, eventually,
};

/// Whether Redis decides for a proxy with these settings. It does so within its deadline, or else
/// at once not.
fn decides(redis: &str) -> bool {
    let upstream = Upstream::start();
    let proxy = Proxy::with_redis(redis, &Policy::before(&upstream).rate("10/hour"));
    let response = proxy.get_as("alice");
    response.assert_status(200);
    response.field("x-tollgate-store").is_none()
}

#[test]
fn server_with_tls_is_trusted_for_its_authority() {
    let certificates = Certificates::new();
    let others = Certificates::new();
    let redis = Redis::with().tls(&certificates).start();
    let with = |tls: &str| decides(&format!("{}, {tls}", redis.settings()));
    let authority = |of: &Certificates| format!("tls: {{ ca_file: {} }}", of.path("ca.pem"));
    assert!(with(&authority(&certificates)));
    assert!(!with(&authority(&others)), "somebody else's authority");
    assert!(!decides(&redis.settings()), "the public authorities");
    // Somebody who speaks no TLS is not asked, whatever is there.
    let plain = format!("url: rediss://127.0.0.1:{}, {}", redis.port(), authority(&certificates));
    assert!(!decides(&plain));
}

#[test]
fn server_may_ask_for_a_certificate() {
    let certificates = Certificates::new();
    let redis = Redis::with().mutual_tls(&certificates).start();
    let path = |name| certificates.path(name);
    let authority = format!("ca_file: {}", path("ca.pem"));
    let own = format!("certificate_file: {}, key_file: {}", path("client.pem"), path("client.key"));
    let with = |tls: &str| decides(&format!("{}, tls: {{ {tls} }}", redis.settings()));
    assert!(with(&format!("{authority}, {own}")));
    assert!(!with(&authority));
}

#[test]
fn password_may_be_anywhere_but_wrong() {
    let redis = Redis::with().password(SECRET).user("tollgate", "pass/word").start();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let file = folder.path().join(name);
        fs::write(&file, content).unwrap();
        file.display().to_string()
    };
    let default = file("default", &format!("{SECRET}\n"));
    let own = file("own", "pass/word");
    let address = format!("127.0.0.1:{}", redis.port());
    for (settings, expected) in [
        (format!("url: redis://{address}, password_env: TEST_SECRET"), true),
        (format!("url: redis://{address}, password_file: {default}"), true),
        (format!("url: redis://{address}, username: tollgate, password_file: {own}"), true),
        (format!("url: redis://tollgate:pass%2Fword@{address}"), true),
        (format!("url: redis://{address}"), false),
        (format!("url: redis://{address}, password_file: {own}"), false),
        (format!("url: redis://{address}, username: unknown, password_file: {own}"), false),
        (format!("url: redis://tollgate:password@{address}"), false),
    ] {
        assert_eq!(decides(&settings), expected, "{settings}");
    }
}

#[test]
fn counters_are_in_the_database_and_under_the_prefix_that_the_settings_say() {
    let redis = Redis::start();
    assert!(decides(&format!("url: {}/3, prefix: edge:eu", redis.url())));
    assert_eq!(redis.ask::<u64>(&["DBSIZE"]), 0);
    redis.command(&["SELECT", "3"]);
    let keys = redis.counters();
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert!(keys[0].starts_with("edge:eu:{"), "{keys:?}");
    // It goes when its window does, and no name of a caller is in it.
    let ttl: i64 = redis.ask(&["TTL", &keys[0]]);
    assert!((3000..=7200).contains(&ttl), "{ttl}");
    assert!(!keys[0].contains("alice"), "{keys:?}");
}

#[test]
fn service_goes_on_through_a_failover_that_sentinels_decide() {
    let upstream = Upstream::start();
    let shards = Shards::start(1);
    let primary = shards.primary(0);
    let replica = shards.replica(0);
    let sentinels = Sentinels::start(primary, 3);
    let service = Sentinels::SERVICE;
    let settings = format!("sentinels: [{}], service: {service}", sentinels.urls().join(", "));
    let policy = Policy::before(&upstream).rate("1000/hour");
    let proxy = Proxy::with_redis(&settings, &policy);
    let decided = |proxy: &Proxy| {
        let response = proxy.get_as("alice");
        response.assert_status(200);
        let is_decided = response.field("x-tollgate-store").is_none();
        is_decided.then(|| response.number("x-ratelimit-used"))
    };
    let first = eventually("a sentinel has named the primary", || decided(&proxy));
    assert!(first >= 1);
    let second = decided(&proxy).expect("redis decides");
    assert_eq!(second, first + 1);

    // They change the primary though nothing is wrong.
    wait_for_replica(primary);
    sentinels.fail_over();
    sentinels.wait_for_failover(primary.port());
    // They cut the connections of the server that they demote.
    let is_primary = |server: &Redis| {
        let role = server.try_ask::<String>(&["INFO", "replication"]);
        role.is_ok_and(|role| role.contains("role:master"))
    };
    let mut other = 0;
    let third = eventually("the new primary decides", || {
        let used = decided(&proxy);
        other += u64::from(used.is_none());
        used.filter(|_| is_primary(replica) && !is_primary(primary))
    });
    assert!(third > second, "{third} after {second}");
    eprintln!("{other} requests were decided without redis while the primary changed");

    // Now the new one dies, and the old one takes its place.
    let last = decided(&proxy).expect("redis decides");
    wait_for_replica(replica);
    replica.kill();
    sentinels.wait_for_failover(replica.port());
    let after = eventually("the old primary decides", || decided(&proxy));
    assert!(after > last, "{after} after {last}");
}

/// Waits until a replica has all that its primary has: a new one is sent nothing for a while. Redis
/// waits for what was written on the same connection.
fn wait_for_replica(primary: &Redis) {
    eventually("a replica has it all", || {
        primary.command(&["SET", "mark", "1"]);
        (primary.ask::<u64>(&["WAIT", "1", "1000"]) >= 1).then_some(())
    });
}
