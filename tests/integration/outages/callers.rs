//! Callers, and which server has their counters.

use std::collections::HashSet;

use super::load::Decider;
use crate::support::{Cluster, Proxy, Redis, Request, Response, Shards, eventually, get};

/// The store section for these servers. Nothing is waited for that long where no server hangs, so
/// that a busy machine is not taken for a server that does.
pub(super) fn settings(servers: &str) -> String {
    with_deadline(servers, "3s")
}

pub(super) fn with_deadline(servers: &str, deadline: &str) -> String {
    format!(
        "workers: 1\ntrusted_proxies: [127.0.0.1]\n\
         store: {{ redis: {{ {servers} }}, deadline: {deadline}, fallback_header: true }}"
    )
}

/// A caller who has charged one request.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) sub: String,
    /// The number of the server that has its counter.
    pub(super) home: usize,
    /// The name of its counter.
    pub(super) key: String,
}

impl Caller {
    pub(super) fn request(&self) -> Request {
        get("/").by(&self.sub)
    }

    /// What Redis has counted, with the request that asks.
    pub(super) fn count_one(&self, proxy: &Proxy) -> u64 {
        decided(&proxy.send(self.request())).number("x-ratelimit-used")
    }
}

/// So many callers of each server. There is one limit, and no caller has a counter yet.
pub(super) fn find_callers(proxy: &Proxy, servers: &[&Redis], count: usize) -> Vec<Caller> {
    const ENOUGH: usize = 200;
    let mut callers: Vec<Caller> = Vec::new();
    for number in 0..ENOUGH {
        let sub = format!("caller-{number}");
        let (home, key) = find_counter(servers, || {
            decided(&proxy.get_as(&sub));
        });
        let known = callers.iter().filter(|caller| caller.home == home).count();
        if known < count {
            callers.push(Caller { sub, home, key });
        }
        if callers.len() == count * servers.len() {
            return callers;
        }
    }
    panic!("not all servers have callers");
}

/// The callers of this server, and all others.
pub(super) fn split(callers: &[Caller], home: usize) -> (Vec<Caller>, Vec<Caller>) {
    callers.iter().cloned().partition(|caller| caller.home == home)
}

/// The server of the one counter that a request creates, and its name.
pub(super) fn find_counter(servers: &[&Redis], request: impl FnOnce()) -> (usize, String) {
    let before: Vec<HashSet<String>> = servers.iter().copied().map(counters).collect();
    request();
    let new = servers.iter().zip(&before).enumerate().find_map(|(number, (server, before))| {
        Some((number, counters(server).difference(before).next()?.clone()))
    });
    new.expect("a first request makes a counter")
}

fn counters(server: &Redis) -> HashSet<String> {
    server.counters().into_iter().collect()
}

/// Fails the test unless Redis has decided.
pub(super) fn decided(response: &Response) -> &Response {
    assert_eq!(Decider::of(response), Decider::Redis, "\n{response:?}");
    response
}

/// The primaries, by number.
pub(super) fn primaries(cluster: &Cluster) -> [&Redis; 3] {
    [0, 1, 2].map(|number| cluster.node(number))
}

pub(super) fn primaries_of(shards: &Shards) -> Vec<&Redis> {
    (0..shards.count()).map(|shard| shards.primary(shard)).collect()
}

/// Waits until a replica has all that its primary has. A new one is sent nothing more before it has
/// said that it has taken in what it was given first, which may be a second after.
pub(super) fn wait_for_replica(primary: &Redis, replica: &Redis) {
    let has_all = || {
        let written = primary.info("master_repl_offset");
        replica.info("slave_repl_offset") == written
    };
    eventually("the replica has caught up", || has_all().then_some(()));
}

/// Has a replica go on with what it has: its primary lets it have nothing more.
pub(super) fn cut_link(primary: &Redis, replica: &Redis) {
    wait_for_replica(primary, replica);
    primary.command(&["ACL", "SETUSER", "default", "-psync", "-sync", "-replconf"]);
    primary.command(&["CLIENT", "KILL", "TYPE", "replica"]);
    let is_cut = || replica.info("master_link_status") == "down";
    eventually("the link is cut", || is_cut().then_some(()));
}
