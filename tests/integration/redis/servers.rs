//! Checks that the servers of these tests do what other tests rely on.

use std::time::Duration;

use redis::{
    Client, ClientTlsConfig, Connection, ErrorKind, RedisError, RedisResult, TlsCertificates, Value,
};

use crate::support::{
    Certificates, Cluster, Gremlin, PATIENCE, Redis, Sentinels, Shards, eventually,
};

/// How long is waited for an answer that must not come.
const BRIEFLY: Duration = Duration::from_millis(300);

fn get(server: &Redis, key: &str) -> Option<String> {
    server.ask(&["GET", key])
}

/// What kind of error an answer is: its first word.
fn code<T>(answer: RedisResult<T>) -> String {
    let error = answer.err().expect("it was not refused");
    error.code().map_or_else(|| error.to_string(), str::to_owned)
}

fn connect(client: &Client, patience: Duration) -> RedisResult<Connection> {
    let connection = client.get_connection_with_timeout(patience)?;
    connection.set_read_timeout(Some(patience))?;
    Ok(connection)
}

fn ping(client: &Client, patience: Duration) -> RedisResult<String> {
    redis::cmd("PING").query(&mut connect(client, patience)?)
}

fn ping_at(url: &str, patience: Duration) -> RedisResult<String> {
    ping(&Client::open(url)?, patience)
}

#[test]
fn server_has_after_a_restart_what_it_has_saved() {
    let server = Redis::start();
    server.command(&["SET", "kept", "1"]);
    server.save();
    server.command(&["SET", "lost", "1"]);
    let port = server.port();
    let pid = server.pid();
    server.restart();
    assert_eq!((get(&server, "kept").as_deref(), get(&server, "lost")), (Some("1"), None));
    assert_eq!(server.info("tcp_port"), port.to_string());
    assert_ne!(server.pid(), pid);
}

#[test]
fn scripts_are_gone_after_they_were_flushed() {
    let server = Redis::start();
    let hash: String = server.ask(&["SCRIPT", "LOAD", "return 1"]);
    assert_eq!(server.command(&["EVALSHA", &hash, "0"]), Value::Int(1));
    server.flush_scripts();
    assert_eq!(code(server.try_ask::<Value>(&["EVALSHA", &hash, "0"])), "NOSCRIPT");
}

#[test]
fn paused_server_takes_connections_and_answers_later() {
    let server = Redis::start();
    server.pause();
    assert!(!server.is_up());
    assert!(ping_at(&server.url(), BRIEFLY).unwrap_err().is_timeout());
    server.resume();
    assert_eq!(ping_at(&server.url(), PATIENCE).unwrap(), "PONG");
}

#[test]
fn killed_server_refuses_connections() {
    let server = Redis::start();
    server.kill();
    assert!(!server.is_up());
    assert!(ping_at(&server.url(), PATIENCE).unwrap_err().is_connection_refusal());
}

#[test]
fn loading_server_says_so() {
    let server = Redis::start();
    server.restart_loading();
    assert_eq!(code(server.try_ask::<Value>(&["GET", "any"])), "LOADING");
    server.finish_loading();
    assert_eq!(get(&server, "any"), None);
}

#[test]
fn full_server_refuses_to_write() {
    let server = Redis::with().max_memory(1).start();
    assert_eq!(code(server.try_ask::<Value>(&["SET", "key", "1"])), "OOM");
    assert_eq!(get(&server, "key"), None);
}

#[test]
fn server_with_passwords_knows_its_users() {
    let server = Redis::with().password("secret").user("tollgate", "other").start();
    let host = format!("127.0.0.1:{}", server.port());
    let answer = |user| ping_at(&format!("redis://{user}{host}"), PATIENCE);
    assert_eq!(answer(":secret@").unwrap(), "PONG");
    assert_eq!(answer("tollgate:other@").unwrap(), "PONG");
    assert_eq!(answer(":wrong@").unwrap_err().kind(), ErrorKind::AuthenticationFailed);
    assert_eq!(code(answer("")), "NOAUTH");
}

#[test]
fn server_with_tls_is_known_by_its_authority_alone() {
    // Another test may have done so.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let certificates = Certificates::new();
    let identity = ClientTlsConfig {
        client_cert: certificates.read("client.pem"),
        client_key: certificates.read("client.key"),
    };
    let answer = |server: &Redis, client_tls, root_cert| {
        let tls = TlsCertificates { client_tls, root_cert };
        ping(&Client::build_with_tls(server.url(), tls)?, PATIENCE)
    };
    let authority = || Some(certificates.read("ca.pem"));
    let open = Redis::with().tls(&certificates).start();
    assert_eq!(answer(&open, None, authority()).unwrap(), "PONG");
    answer(&open, None, None).unwrap_err();
    let closed = Redis::with().mutual_tls(&certificates).start();
    assert_eq!(answer(&closed, Some(identity), authority()).unwrap(), "PONG");
    answer(&closed, None, authority()).unwrap_err();
}

#[test]
fn shards_have_replicas_that_can_be_promoted() {
    let shards = Shards::start(2);
    for shard in 0..shards.count() {
        let primary = shards.primary(shard);
        let replica = shards.replica(shard);
        primary.command(&["SET", "shard", &shard.to_string()]);
        let has_it = || get(replica, "shard") == Some(shard.to_string());
        eventually("the replica has it", || has_it().then_some(()));
        assert_eq!(code(replica.try_ask::<Value>(&["SET", "shard", "none"])), "READONLY");
    }
    shards.promote(1);
    assert_eq!(
        (shards.replica(0).info("role"), shards.replica(1).info("role")),
        ("slave".into(), "master".into())
    );
    shards.replica(1).command(&["SET", "shard", "none"]);
}

#[test]
fn sentinels_put_a_replica_in_the_place_of_its_primary() {
    let shards = Shards::start(1);
    let first = shards.primary(0).port();
    let second = shards.replica(0).port();
    let sentinels = Sentinels::start(shards.primary(0), 3);
    assert_eq!(sentinels.urls().len(), 3);
    assert_eq!(sentinels.primary_port(), first);
    shards.primary(0).kill();
    assert_eq!(sentinels.wait_for_failover(first), second);
}

#[test]
fn sentinels_fail_over_on_command() {
    let shards = Shards::start(1);
    let first = shards.primary(0).port();
    let second = shards.replica(0).port();
    let sentinels = Sentinels::start(shards.primary(0), 1);
    sentinels.fail_over();
    assert_eq!(sentinels.wait_for_failover(first), second);
}

#[test]
fn cluster_replaces_a_primary_and_takes_it_back() {
    let cluster = Cluster::start();
    assert_eq!(cluster.urls().len(), 6);
    let slot = cluster.slot_of("{alice}:core");
    assert_eq!(slot, cluster.slot_of("alice"));
    let primary = cluster.primary_of(slot);
    assert!(cluster.slots_of(primary).any(|has| has == slot));
    let replica = cluster.replica_of(primary);
    cluster.node(primary).command(&["SET", "{alice}:core", "1"]);
    cluster.node(primary).command(&["WAIT", "1", "1000"]);

    cluster.node(primary).kill();
    cluster.wait_for_failover(primary);
    assert_eq!(cluster.primary_of(slot), replica);
    assert_eq!(get(cluster.node(replica), "{alice}:core").as_deref(), Some("1"));

    cluster.node(primary).restart();
    cluster.wait_for_return(primary);
    assert_eq!(cluster.replica_of(replica), primary);
}

#[test]
fn cluster_replaces_a_paused_primary() {
    let cluster = Cluster::start();
    cluster.node(1).pause();
    cluster.wait_for_failover(1);
    cluster.node(1).resume();
    cluster.wait_for_return(1);
}

#[test]
fn cluster_moves_slots_with_their_keys() {
    let cluster = Cluster::start();
    let slot = cluster.slot_of("{alice}");
    let from = cluster.primary_of(slot);
    let to = (from + 1) % 3;
    let old = cluster.node(from);
    let new = cluster.node(to);
    let keys = ["{alice}:core", "{alice}:search"];
    for key in keys {
        old.command(&["SET", key, "1"]);
    }

    let on_its_way = cluster.begin_move(slot, to);
    assert_eq!(get(old, keys[0]).as_deref(), Some("1"));
    assert_eq!(code(old.try_ask::<Value>(&["GET", "{alice}:new"])), "ASK");
    assert_eq!(on_its_way.move_keys(), 2);
    assert_eq!(code(old.try_ask::<Value>(&["GET", keys[0]])), "ASK");
    assert_eq!(code(new.try_ask::<Value>(&["GET", keys[0]])), "MOVED");
    on_its_way.finish();
    assert_eq!(code(old.try_ask::<Value>(&["GET", keys[0]])), "MOVED");
    assert_eq!(get(new, keys[0]).as_deref(), Some("1"));
    assert_eq!(cluster.primary_of(slot), to);

    let some: Vec<u16> = cluster.slots_of(from).take(20).collect();
    cluster.reshard(some.iter().copied(), to);
    assert!(some.iter().all(|slot| cluster.primary_of(*slot) == to));
}

#[test]
fn gremlin_breaks_connections_on_command() {
    let server = Redis::start();
    let gremlin = Gremlin::before(server.port());
    let client = Client::open(gremlin.url()).unwrap();
    let connect = |patience| connect(&client, patience).unwrap();
    let count = |connection: &mut Connection| -> Result<u64, RedisError> {
        redis::cmd("INCR").arg("count").query(connection)
    };
    let counted = || server.ask::<u64>(&["GET", "count"]);

    let mut connection = connect(PATIENCE);
    assert_eq!(count(&mut connection).unwrap(), 1);
    gremlin.cut();
    assert!(count(&mut connection).unwrap_err().is_connection_dropped());
    assert_eq!(counted(), 1);

    for (bytes, count_after) in [(0, 2), (3, 3)] {
        let mut connection = connect(PATIENCE);
        gremlin.cut_answer_after(bytes);
        assert!(count(&mut connection).unwrap_err().is_connection_dropped());
        assert_eq!(counted(), count_after, "the server has run it");
    }

    let mut connection = connect(PATIENCE);
    connection.set_read_timeout(Some(BRIEFLY)).unwrap();
    gremlin.stall();
    assert!(count(&mut connection).unwrap_err().is_timeout());
    assert_eq!(counted(), 3);
    gremlin.behave();
    eventually("it passes on what it has kept", || (counted() == 4).then_some(()));

    gremlin.delay(2 * BRIEFLY);
    assert!(ping(&client, BRIEFLY).unwrap_err().is_timeout());
    gremlin.behave();
    gremlin.refuse();
    ping(&client, PATIENCE).unwrap_err();
    gremlin.behave();
    assert_eq!(ping(&client, PATIENCE).unwrap(), "PONG");
    assert_eq!(gremlin.connections(), 7);
}
