use std::sync::Arc;

use tollgate_yaml::{Problem, Sources};

use super::*;
use crate::{
    StoreKind, StoreSettings,
    tests::{rendered, store},
};

fn sources() -> Sources {
    Sources::system()
        .with_variable("PASSWORD", "hunter2")
        .with_variable("USER_NAME", "app")
        .with_file("config/password", "from a file\n")
        .with_file("config/empty", "\n")
        .with_file("config/binary", [0xff])
        .with_file("config/ca.pem", CERTIFICATE)
        .with_file("config/key.pem", KEY)
        .with_file("config/other.pem", OTHER_KEY)
}

fn parse(redis: &str) -> Result<StoreSettings, Vec<Problem>> {
    store(&format!("redis:\n{redis}\n"), &sources())
}

fn good(redis: &str) -> Arc<RedisSettings> {
    let settings = parse(redis).unwrap_or_else(|problems| panic!("{redis}\n{}", problems[0]));
    match settings.current {
        StoreKind::Redis(redis) => redis,
        StoreKind::Memory | StoreKind::Disk(_) => panic!("not in Redis: {redis}"),
    }
}

/// The user, password and database that a connection sends to a server.
fn user_at(redis: &RedisSettings, address: &RedisAddress) -> (Option<String>, Option<String>, i64) {
    let client = redis.access.client(address).unwrap();
    let session = client.get_connection_info().redis_settings();
    let owned = |text: Option<&str>| text.map(str::to_owned);
    (owned(session.username()), owned(session.password()), session.db())
}

#[test]
fn one_url_is_one_server() {
    let redis = good("  url: redis://127.0.0.1:7000/3");
    let Topology::Single(Primary::Fixed(server)) = &redis.topology else { panic!("{redis:?}") };
    assert_eq!((server.to_string(), server.database), ("127.0.0.1:7000".into(), 3));
    assert_eq!((&*redis.prefix, redis.clock), ("tollgate", StoreClock::Redis));
    assert_eq!(user_at(&redis, server), (None, None, 3));
}

#[test]
fn sentinels_name_the_primary() {
    let redis = good(
        "  sentinels: [\"redis://:asked@s1\", \"redis://:asked@s2:7000\"]
  service: main
  password_env: PASSWORD",
    );
    let Topology::Single(Primary::Sentinel { sentinels, service }) = &redis.topology else {
        panic!("{redis:?}")
    };
    assert_eq!(service, "main");
    let shown: Vec<String> = sentinels.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["s1:26379", "s2:7000"]);
    assert_eq!(user_at(&redis, &sentinels[0]), (None, Some("asked".into()), 0));
    let primary = sentinels[0].at("10.0.0.1", 6379);
    assert_eq!(user_at(&redis, &primary), (None, Some("hunter2".into()), 0));
}

#[test]
fn sentinel_never_gets_a_database_or_the_password_of_servers() {
    let redis = good("  sentinels: [redis://s1/5]\n  service: main\n  password_env: PASSWORD");
    let Topology::Single(Primary::Sentinel { sentinels, .. }) = &redis.topology else {
        panic!("{redis:?}")
    };
    assert_eq!(user_at(&redis, &sentinels[0]), (None, None, 0));
    let primary = sentinels[0].at("10.0.0.1", 6379);
    assert_eq!(user_at(&redis, &primary), (None, Some("hunter2".into()), 5));
}

#[test]
fn shards_have_fixed_primaries_or_services() {
    let redis = good(
        "  sentinels: [redis://s1]
  shards:
    - { name: a, primary: redis://a1, replicas: [redis://a2, redis://a3] }
    - { name: b, service: b-main }",
    );
    let Topology::Sharded(shards) = &redis.topology else { panic!("{redis:?}") };
    let [a, b] = shards.as_slice() else { panic!("{shards:?}") };
    assert_eq!(format!("{a:?}").matches("redis://").count(), 3);
    assert_eq!((&*a.name, a.replicas.len()), ("a", 2));
    assert!(matches!(&b.primary, Primary::Sentinel { service, .. } if service == "b-main"));
}

#[test]
fn cluster_is_some_of_its_nodes() {
    let redis = good("  cluster: [redis://10.0.0.1:7000, redis://10.0.0.2:7000]\n  clock: proxy");
    let Topology::Cluster(nodes) = &redis.topology else { panic!("{redis:?}") };
    assert_eq!((nodes.len(), redis.clock), (2, StoreClock::Proxy));
}

#[test]
fn replicas_may_be_so_far_behind() {
    for (text, millis) in [("", 1_000), ("100ms", 100), ("2500ms", 2_500), ("1m", 60_000)] {
        let lag = if text.is_empty() { String::new() } else { format!("\n  replica_lag: {text}") };
        let redis = good(&format!("  cluster: [redis://10.0.0.1:7000]{lag}"));
        assert_eq!(redis.replica_lag, std::time::Duration::from_millis(millis), "{text}");
    }
}

#[test]
fn who_to_be_is_in_the_url_or_beside_it() {
    let hunter = || Some("hunter2".to_owned());
    for (text, user, password) in [
        ("  url: redis://app:hunter2@h", Some("app"), hunter()),
        (
            "  url: redis://h\n  username_env: USER_NAME\n  password_env: PASSWORD",
            Some("app"),
            hunter(),
        ),
        ("  url: redis://h\n  username: app\n  password_env: PASSWORD", Some("app"), hunter()),
        ("  url: redis://h\n  password_env: PASSWORD", None, hunter()),
        ("  url: redis://h\n  password_file: password", None, Some("from a file".into())),
    ] {
        let redis = good(text);
        let server = redis.topology.addresses()[0];
        assert_eq!(user_at(&redis, server), (user.map(str::to_owned), password, 0), "{text}");
    }
}

#[test]
fn connections_are_made_for_small_answers_that_are_waited_for() {
    let redis = good("  url: redis://h");
    let client = redis.access.client(redis.topology.addresses()[0]).unwrap();
    let tcp = client.get_connection_info().tcp_settings();
    assert!(tcp.nodelay());
    assert!(tcp.keepalive().is_some());
}

#[test]
fn tls_has_a_client_with_and_without_files() {
    for tls in [
        "",
        "  tls: {}",
        "  tls: { ca_file: ca.pem }",
        "  tls: { ca_file: ca.pem, certificate_file: ca.pem, key_file: key.pem }",
    ] {
        let redis = good(&format!("  url: rediss://h\n{tls}"));
        let client = redis.access.client(redis.topology.addresses()[0]).unwrap();
        let address = client.get_connection_info().addr();
        let ::redis::ConnectionAddr::TcpTls { insecure, .. } = address else { panic!("{tls}") };
        assert!(!insecure, "{tls}");
    }
}

#[test]
fn every_mistake_is_reported_with_its_place() {
    const KEEP: &str = "keep one of: url, cluster, shards, service with sentinels";
    const NAME_SENTINELS: &str =
        "add `service`, the name of the primary in the sentinels, or remove this";
    const USERS: &str = "keep the user in one place";
    const ALIKE: &str = "use one scheme, one database and one user in all of them";
    for (redis, expected) in [
        (
            "  prefix: a",
            "5:5 no address of Redis: add one of: url, cluster, shards, service with sentinels",
        ),
        (
            "  url: redis://a\n  cluster: [redis://b]",
            &format!("6:14 Redis is configured twice: {KEEP}"),
        ),
        ("  shards: []\n  url: redis://a", &format!("6:10 Redis is configured twice: {KEEP}")),
        (
            "  sentinels: [redis://a]",
            &format!("5:16 `sentinels` without `service`: {NAME_SENTINELS}"),
        ),
        (
            "  url: redis://b\n  sentinels: [redis://a]",
            &format!("6:16 `sentinels` without `service`: {NAME_SENTINELS}"),
        ),
        ("  service: main", &format!("5:14 `service` needs `sentinels`: {ADD_SENTINELS}")),
        ("  sentinels: []\n  service: main", "5:16 no URL: add some: `[redis://10.0.0.1:6379]`"),
        (
            "  sentinels: [redis://a]\n  service: \"\"",
            "6:14 `service` is empty: write the primary's name in the sentinels",
        ),
        (
            "  sentinels: [redis://a, rediss://b]\n  service: main",
            &format!("5:28 scheme, database or user differ from the first URL: {ALIKE}"),
        ),
        (
            "  cluster: [redis://a, \"redis://:x@b\"]",
            &format!("5:26 scheme, database or user differ from the first URL: {ALIKE}"),
        ),
        ("  cluster: [redis://a, redis://a:6379]", "5:26 named twice: write another"),
        ("  cluster: [redis://a/1]", "5:15 a cluster has database 0 only: remove the number"),
        ("  cluster: []", "5:14 no URL: add some: `[redis://10.0.0.1:6379]`"),
        ("  shards: []", "5:13 no shard: add one: `- { name: a, primary: redis://10.0.0.1:6379 }`"),
        ("  shards: [{ name: a }]", "5:14 no primary: add `primary: redis://10.0.0.1:6379`"),
        (
            "  shards: [{ name: a, service: b }]",
            &format!("5:34 `service` needs `sentinels`: {ADD_SENTINELS}"),
        ),
        (
            "  sentinels: [redis://s]\n  shards: [{ name: a, primary: redis://a, service: b }]",
            "6:54 two primaries: keep `primary` or `service`",
        ),
        (
            "  sentinels: [redis://s]\n  shards: [{ name: a, service: b, replicas: [redis://c] }]",
            "6:47 `replicas` does not go with `service`: remove it; only a fixed primary has them",
        ),
        (
            "  shards: [{ name: a b, primary: redis://a }]",
            "5:22 not the name of a shard: write 1 to 64 of A-Z a-z 0-9 _ . -",
        ),
        (
            "  shards: [{ name: a, primary: redis://a }, { name: a, primary: redis://b }]",
            "5:55 named twice: write another",
        ),
        (
            "  shards: [{ name: a, primary: redis://a, replicas: [redis://a] }]",
            "5:56 named twice: write another",
        ),
        (
            "  url: http://a",
            "5:10 not the URL of a Redis server: write redis://host:6379, or rediss://host:6379 for TLS",
        ),
        ("  url: redis://", "5:10 a URL without a host: write redis://host:6379"),
        (
            "  url: redis://a:99999",
            "5:10 not a port: write 1 to 65535 after the host: redis://host:6379",
        ),
        (
            "  url: redis://a/zero",
            "5:10 not the number of a database: write a number: redis://host:6379/0",
        ),
        (
            "  url: unix:/run/redis.sock",
            "5:10 Unix sockets are not supported: write redis://host:6379",
        ),
        (
            "  url: redis://a\n  username: app",
            "6:15 `username` needs a password: add `password_env` or `password_file`",
        ),
        (
            "  url: redis://a\n  username: \"\"\n  password_env: PASSWORD",
            "6:15 `username` is empty: write it, or remove this",
        ),
        (
            "  url: redis://b:c@a\n  password_env: PASSWORD",
            &format!("6:19 a URL names a user too: {USERS}"),
        ),
        (
            "  url: redis://a\n  password_env: NOT_SET",
            "6:19 environment variable `NOT_SET` is not set: set it to the secret",
        ),
        (
            "  url: redis://a\n  password_file: none",
            "6:20 cannot read `none`: No such file or directory (os error 2): write a path from this file's folder",
        ),
        (
            "  url: redis://a\n  password_file: empty",
            "6:20 `empty` contains no secret: write the secret into it, as text",
        ),
        (
            "  url: redis://a\n  password_file: binary",
            "6:20 `binary` contains no secret: write the secret into it, as text",
        ),
        (
            "  url: redis://a\n  password_file: password\n  password_env: PASSWORD",
            "7:19 a secret from two sources: keep the variable or the file",
        ),
        (
            "  url: redis://a\n  tls: { ca_file: ca.pem }",
            "6:10 no URL uses TLS: write rediss:// in the URLs",
        ),
        (
            "  url: rediss://a\n  tls: { ca_file: none }",
            "6:21 cannot read `none`: No such file or directory (os error 2): write a path from this file's folder",
        ),
        (
            "  url: rediss://a\n  tls: { ca_file: password }",
            "6:21 no certificate in the file: name a file in PEM form",
        ),
        (
            "  url: rediss://a\n  tls: { certificate_file: ca.pem }",
            "6:30 a certificate without its key: add `key_file`",
        ),
        (
            "  url: rediss://a\n  tls: { key_file: key.pem }",
            "6:22 a key without its certificate: add `certificate_file`",
        ),
        (
            "  url: rediss://a\n  tls: { certificate_file: ca.pem, key_file: ca.pem }",
            "6:48 not a private key in PEM form: name a file in PEM form",
        ),
        (
            "  url: rediss://a\n  tls: { certificate_file: ca.pem, key_file: other.pem }",
            "6:48 the key is not that of the certificate: name a file in PEM form",
        ),
        (
            "  url: redis://a\n  prefix: \"{a}\"",
            "6:13 not a prefix: write 1 to 64 of A-Z a-z 0-9 _ . : -",
        ),
        ("  url: redis://a\n  clock: wall", "6:12 unknown value `wall`: one of: redis, proxy"),
        (
            "  url: redis://a\n  replica_lag: 2m",
            "6:18 `2m` is out of range: write a number and a unit, 100ms to 1m",
        ),
        ("  uri: redis://a", "5:5 unknown field `uri` in a redis section: did you mean `url`?"),
    ] {
        let problems = parse(redis).expect_err(redis);
        assert_eq!(rendered(&problems)[0], expected, "{redis}");
    }
}

#[test]
fn password_is_never_shown() {
    let settings = [
        "  url: redis://app:hunter2@h",
        "  url: redis://h\n  password_env: PASSWORD",
        "  sentinels: [\"redis://:hunter2@h\"]\n  service: main",
        "  url: rediss://h\n  tls: { certificate_file: ca.pem, key_file: key.pem }\n  password_env: PASSWORD",
    ];
    for redis in settings {
        let shown = format!("{:?} {:#?}", good(redis), good(redis));
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(!shown.contains("PRIVATE KEY"), "{shown}");
    }
    let mistakes = [
        "  url: redis://app:hunter2@h:port",
        "  url: redis://app:hunter2@h/x",
        "  url: redis://app:hun/hunter2@h",
        "  url: redis://app:hun hunter2@h:port",
        "  url: http://app:hunter2@h",
        "  url: redis://app:hunter2@",
        "  uri: redis://app:hunter2@h",
        "  url: [redis://app:hunter2@h]",
        "  cluster: \"redis://app:hunter2@h, redis://i\"",
        "  cluster: { redis://app:hunter2@h }",
        "  shards: [{ name: a, primary: redis://app:hunter2@h, colour: red }]",
        "  url: \"redis://app:hunter2@h",
        "  url: redis://h\n  password: hunter2",
    ];
    for redis in mistakes {
        let problems = parse(redis).expect_err(redis);
        let shown = problems.iter().map(|problem| format!("{problem}\n{problem:?}"));
        let shown: String = shown.collect();
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUK+zjNCGkAeIjTfoyrErrwcd2NWAwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjExNTIyNTFaGA8yMTI2MTAyODE1MjI1
MVowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABKWh
k724k8nQxqHzJCPjmdCIKu5HS+QzgORu5NS8dVrV77mL9wjN8afFIKGvBl5QEZcC
8+XT9XSncMnqjuMuwVmjUzBRMB0GA1UdDgQWBBQkTGtZUa7lEiAxmcyQ5dUkS/OA
6jAfBgNVHSMEGDAWgBQkTGtZUa7lEiAxmcyQ5dUkS/OA6jAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIElZIL3ZzJP6c5XL0T3/jtArlihAL/23EoWY
I0rJ9bolAiEA4hj869R8zl0sDo7bKjJ0xREj0F3KAufbtVYQh8ObVog=
-----END CERTIFICATE-----
";

/// Of the certificate.
const KEY: &str = "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgIp1S8MDMXkLJAvvA
ixALyQ0Wk+sYi5NwKSkWA7Pxr2ShRANCAASloZO9uJPJ0Mah8yQj45nQiCruR0vk
M4DkbuTUvHVa1e+5i/cIzfGnxSChrwZeUBGXAvPl0/V0p3DJ6o7jLsFZ
-----END PRIVATE KEY-----
";

const OTHER_KEY: &str = "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg86Ldg6WFVemgjYen
RAjJ3+tEYkPoHlLrqPgeyaoSXaihRANCAATGn8xu/rEDhJsfMlqlfwRQLFWASzAf
TLvpETZES4yAxv+Mr4dr53ou9dhp0Vn0OdltpNpLHDDEzlV4I9fuU0Kd
-----END PRIVATE KEY-----
";
