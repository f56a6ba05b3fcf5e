//! `tollgate status --fleet`: proxies that share a Redis tell about each other.

use std::net::SocketAddr;

use serde_json::Value;

use super::{
    Folder, Running, assert_exit,
    callers::{folder, local, serve, use_up},
    send, text,
};
use crate::support::{Cluster, Redis, Shards, Upstream, eventually, get};

/// A proxy of a fleet.
struct Member {
    running: Running,
    folder: Folder,
    address: SocketAddr,
    admin: String,
}

impl Member {
    fn start(upstream: &Upstream, redis: &Redis) -> Member {
        Member::sharing(upstream, &redis.settings())
    }

    /// With counters in the Redis of these settings.
    fn sharing(upstream: &Upstream, redis: &str) -> Member {
        let folder = folder(upstream, &format!("store: {{ redis: {{ {redis} }} }}"));
        let (running, address, admin) = serve(&folder);
        Member { running, folder, address, admin }
    }

    fn fleet(&self) -> Value {
        send(self.admin.parse().unwrap(), local(get("/fleet"))).json()
    }

    /// The names of all proxies, sorted.
    fn names(&self) -> Vec<String> {
        let report = self.fleet();
        let proxies = report["proxies"].as_array().unwrap().iter();
        let mut names: Vec<String> =
            proxies.map(|proxy| proxy["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    /// Its own name, which comes first.
    fn name(&self) -> String {
        self.fleet()["proxies"][0]["name"].as_str().unwrap().to_owned()
    }
}

#[test]
fn three_proxies_know_each_other_until_they_stop() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let fleet = [(); 3].map(|()| Member::start(&upstream, &redis));
    let mut names = fleet.each_ref().map(Member::name);
    names.sort();
    for member in &fleet {
        eventually("all are seen", || (member.names() == names).then_some(()));
    }
    let report = fleet[0].fleet();
    assert_eq!((&report["shared"], &report["problem"]), (&true.into(), &Value::Null));
    let other = &report["proxies"][2];
    for (field, expected) in
        [("version", env!("CARGO_PKG_VERSION")), ("phase", "serving"), ("store", "redis")]
    {
        assert_eq!(other[field], expected, "{field}");
    }
    assert_eq!(other["policies"][0], "api");
    assert_eq!(other["digest"], report["proxies"][0]["digest"]);
    assert_eq!((&other["servers"], &other["servers_serving"]), (&1.into(), &1.into()));

    // What is written is valid for ten seconds by the clock of Redis, and then forgotten.
    let summaries: Vec<String> = redis.ask(&["HVALS", "tollgate:fleet"]);
    let (now, _): (u64, u64) = redis.ask(&["TIME"]);
    assert_eq!(summaries.len(), 3);
    for summary in &summaries {
        let ends: u64 = summary.split(' ').next().unwrap().parse().unwrap();
        assert!(ends <= (now + 11) * 1000, "{ends} {now}");
    }
    let left: i64 = redis.ask(&["PTTL", "tollgate:fleet"]);
    assert!((1..=10_000).contains(&left), "{left}");

    // One that is killed has not withdrawn its summary; here it expires at once.
    let [first, second, third] = fleet;
    third.running.signal("KILL");
    drop(third);
    let expired = "for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do local text = \
                   redis.call('HGET', KEYS[1], name); redis.call('HSET', KEYS[1], name, '1 ' .. \
                   string.match(text, '^%d+ (.*)$')) end";
    redis.command(&["EVAL", expired, "1", "tollgate:fleet"]);
    let mut two = [first.name(), second.name()];
    two.sort();
    eventually("the killed one is gone", || (first.names() == two).then_some(()));

    // One that ends withdraws its own.
    second.running.signal("TERM");
    assert_exit(&second.running.finish(), 0);
    eventually("the stopped one is gone", || (first.names().len() == 1).then_some(()));
    let said = first.folder.run(&["status", "--fleet", "--admin", &first.admin]);
    assert_exit(&said, 0);
    assert!(text(&said.stdout).ends_with("no other proxy shares this redis\n"), "{said:?}");
}

#[track_caller]
fn assert_both_know_each_other(redis: &str) {
    let upstream = Upstream::start();
    let fleet = [(); 2].map(|()| Member::sharing(&upstream, redis));
    let mut names = fleet.each_ref().map(Member::name);
    names.sort();
    for member in &fleet {
        eventually("both are seen", || (member.names() == names).then_some(()));
    }
}

#[test]
fn proxies_that_share_a_cluster_know_each_other() {
    assert_both_know_each_other(&Cluster::start().settings());
}

#[test]
fn proxies_that_share_shards_know_each_other() {
    assert_both_know_each_other(&Shards::start(3).settings());
}

#[test]
fn fleet_is_a_table_with_what_is_wrong_below_it() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let [first, second] = [(); 2].map(|()| Member::start(&upstream, &redis));
    use_up(second.address, &second.folder.token(&["--sub", "42"]));
    second.folder.write("policies/api.yaml", "version: 2\n");
    let refused = second.folder.run(&["reload", "--admin", &second.admin]);
    assert_exit(&refused, 1);
    let said = eventually("the other one is listed with its problem", || {
        let said = first.folder.run(&["status", "--fleet", "--admin", &first.admin]);
        assert_exit(&said, 0);
        let said = text(&said.stdout).to_owned();
        said.contains("serving, reload refused").then_some(said)
    });
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("proxy "), "{said}");
    assert_eq!(lines.len(), 5, "{said}");
    let problem = format!("{}: the last reload was refused: ", second.name());
    assert!(lines[3].starts_with(&problem), "{said}");
    assert_eq!(lines[4], "2 proxies share this redis");

    redis.kill();
    let said = eventually("redis is away", || {
        let said = first.folder.run(&["status", "--fleet", "--admin", &first.admin]);
        assert_exit(&said, 0);
        let said = text(&said.stdout).to_owned();
        said.contains("redis does not tell of other proxies").then_some(said)
    });
    assert!(said.contains("limits are decided without redis: "), "{said}");
    send(first.address, get("/").token(&first.folder.token(&["--sub", "7"])));
}

#[test]
fn proxy_without_the_rights_says_so_once_and_works() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    redis.command(&["ACL", "SETUSER", "default", "-hset"]);
    let mut member = Member::start(&upstream, &redis);
    member.running.wait_for_event("this proxy cannot be listed in redis");
    let token = member.folder.token(&["--sub", "42"]);
    send(member.address, get("/").token(&token)).assert_status(200);
    let report = eventually("it is read", || {
        let report = member.fleet();
        report["problem"]
            .as_str()
            .is_some_and(|said| said.starts_with("redis does not tell of other proxies: "))
            .then_some(report)
    });
    assert_eq!(report["proxies"].as_array().unwrap().len(), 1);
    member.running.signal("TERM");
    let output = member.running.finish();
    assert_eq!(text(&output.stderr).matches("cannot be listed in redis").count(), 1);
}

#[test]
fn proxy_with_counters_in_memory_says_that_it_knows_of_no_other() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, "");
    let (_running, _, admin) = serve(&folder);
    let said = folder.run(&["status", "--fleet", "--admin", &admin]);
    assert_exit(&said, 0);
    let said = text(&said.stdout);
    assert!(said.ends_with("counters are in memory: this proxy knows of no other\n"), "{said}");
    let json = folder.run(&["status", "--fleet", "--json", "--admin", &admin]);
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&report["shared"], report["proxies"].as_array().unwrap().len()),
        (&false.into(), 1)
    );
}
