//! What a server refuses that cannot serve, or not everything.

use std::time::Duration;

use super::{
    super::{Address, Condition},
    Pair,
    real::{RealServer, command},
    states::assert_has_lines,
};

/// Commands of all kinds.
fn commands_of_all_kinds() -> Vec<Vec<Vec<u8>>> {
    [
        &["PING"][..],
        &["GET", "a"],
        &["SET", "a", "b"],
        &["DEL", "none"],
        &["PEXPIRE", "a", "900000"],
        &["EVAL", "return 1", "0"],
        &["EVAL", "return redis.call('GET', KEYS[1])", "1", "a"],
        &["EVAL", "return redis.call('SET', KEYS[1], 'c')", "1", "a"],
        &["EVAL", "redis.call('DEL', KEYS[1])\nreturn redis.call('SET', KEYS[1], 'c')", "1", "a"],
        &["EVAL", "return redis.pcall('SET', KEYS[1], 'd')", "1", "a"],
        &["GET", "a"],
    ]
    .map(command)
    .to_vec()
}

#[test]
fn server_without_memory_refuses_as_redis_does() {
    let mut real = RealServer::start(&[]);
    let mut pair = Pair::new(&mut real, "3");
    pair.real.execute(&["CONFIG", "SET", "maxmemory", "1"]);
    pair.model.condition = Condition::OutOfMemory;
    commands_of_all_kinds().into_iter().for_each(|words| drop(pair.execute(words)));
    pair.compare("out of memory", Duration::MAX);
}

#[test]
fn server_that_cannot_save_refuses_as_redis_does() {
    let mut real = RealServer::start(&[]);
    let mut pair = Pair::new(&mut real, "3");
    pair.real.execute(&["CONFIG", "SET", "save", "3600 1"]);
    pair.real.lose_directory();
    pair.real.execute(&["BGSAVE"]);
    pair.real.until(&["INFO", "persistence"], "rdb_last_bgsave_status:err");
    pair.model.condition = Condition::CannotSave;
    commands_of_all_kinds().into_iter().for_each(|words| drop(pair.execute(words)));
    pair.compare("cannot save", Duration::MAX);
}

#[test]
fn replica_refuses_as_redis_does() {
    let mut real = RealServer::start(&[]);
    let mut pair = Pair::new(&mut real, "3");
    // Nobody is there.
    pair.real.execute(&["REPLICAOF", "127.0.0.1", "1"]);
    pair.model.follow(Address::new("127.0.0.1", 1));
    commands_of_all_kinds().into_iter().for_each(|words| drop(pair.execute(words)));
    pair.compare("replica", Duration::MAX);
    let found = pair.execute(command(&["INFO", "replication"]));
    let found = pair.session.encode(&found);
    assert_has_lines(&pair.real.execute(&["INFO", "replication"]), &found);
}

#[test]
fn busy_server_refuses_as_redis_does() {
    let mut real = RealServer::start(&["--busy-reply-threshold", "1"]);
    let mut pair = Pair::new(&mut real, "3");
    pair.real.send_elsewhere(&["EVAL", "while true do end", "0"]);
    pair.real.until(&["PING"], "BUSY");
    pair.model.condition = Condition::Busy;
    commands_of_all_kinds().into_iter().for_each(|words| drop(pair.execute(words)));
    pair.execute(command(&["INFO", "server"]));
    pair.compare("busy", Duration::MAX);
    pair.real.execute(&["SCRIPT", "KILL"]);
}

#[test]
fn loading_server_refuses_as_redis_does() {
    let mut real = RealServer::start(&["--enable-debug-command", "yes", "--rdbcompression", "no"]);
    let mut pair = Pair::new(&mut real, "3");
    // While it reads these keys, each of which takes a fifth of a second, it answers.
    for key in 0..9 {
        pair.real.execute(&["SET", &format!("large{key}"), &"x".repeat(4096)]);
    }
    pair.real.execute(&["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"]);
    pair.real.execute(&["CONFIG", "SET", "key-load-delay", "200000"]);
    pair.real.send_elsewhere(&["DEBUG", "RELOAD"]);
    pair.real.until(&["PING"], "LOADING");
    pair.model.condition = Condition::Loading;
    commands_of_all_kinds().into_iter().for_each(|words| drop(pair.execute(words)));
    pair.execute(command(&["ROLE"]));
    pair.execute(command(&["SET", "a"]));
    pair.compare("loading", Duration::MAX);
    let expected = pair.real.execute(&["TIME"]);
    assert!(expected.starts_with(b"*2"), "{}", expected.escape_ascii());
    let found = pair.execute(command(&["TIME"]));
    assert!(pair.session.encode(&found).starts_with(b"*2"));
}
