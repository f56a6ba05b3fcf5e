//! Slots of a cluster that move while requests are charged to them.

use std::{collections::BTreeSet, process::Command, thread};

use super::{
    callers::{Caller, decided, find_callers, find_counter, primaries, settings},
    load::{Load, print_figures},
};
use crate::support::{Cluster, Policy, Proxy, Redis, Upstream, eventually, get};

fn start(cluster: &Cluster, upstream: &Upstream) -> Proxy {
    let policy = Policy::before(upstream).core("rate: 1_000_000/hour, on_store_error: closed");
    Proxy::with_settings(&settings(&cluster.settings()), &[&policy])
}

#[test]
fn no_request_goes_undecided_while_its_slot_moves_there_and_back() {
    const ROUNDS: usize = 4;
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let proxy = start(&cluster, &upstream);
    let callers = find_callers(&proxy, &primaries(&cluster), 3);
    let load = Load::start(&proxy, &callers);
    for round in 1..=ROUNDS {
        for Caller { home, key, .. } in &callers {
            cluster.reshard([cluster.slot_of(key)], (home + round) % 3);
            wait_until_agreed(&cluster);
        }
        load.wait_until_decided();
    }
    let answers = load.stop();
    print_figures(&format!(
        "cluster, {} slots moved under load: {answers}",
        ROUNDS * callers.len()
    ));
    answers.assert_untouched();
    assert_eq!(answers.balance(&proxy, &callers), Default::default());
}

/// Waits until all primaries say the same. Who moves a slot again before that may find that two
/// nodes each say that the other one has it, for good.
fn wait_until_agreed(cluster: &Cluster) {
    // Columns that differ from node to node are left out: flags, and the times of pings and pongs.
    let said = |node: &Redis| {
        let lines: String = node.ask(&["CLUSTER", "NODES"]);
        let words = lines.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let facts = words.map(|words| [words[0], words[6], &words[8..].join(" ")].join(" "));
        facts.collect::<BTreeSet<String>>()
    };
    eventually("the primaries agree", || {
        let [one, two, three] = primaries(cluster).map(said);
        (one == two && two == three).then_some(())
    });
}

#[test]
fn no_request_goes_undecided_while_redis_cli_reshards() {
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let proxy = start(&cluster, &upstream);
    let callers = find_callers(&proxy, &primaries(&cluster), 6);
    let load = Load::start(&proxy, &callers);
    // It moves the first slots of a node. So many that some of our callers' are among them.
    let mut slots: Vec<u16> = callers.iter().map(|caller| cluster.slot_of(&caller.key)).collect();
    slots.sort_unstable();
    let some = &slots[..2];
    let count = slots[1] + 1;
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        reshard(&cluster, [from, to].map(|node| cluster.node(node)), count);
        assert!(some.iter().all(|slot| cluster.primary_of(*slot) == to));
    }
    load.wait_until_decided();
    let answers = load.stop();
    print_figures(&format!(
        "cluster, three times {count} slots resharded by redis-cli under load, with those of {} of {} \
         callers: {answers}",
        some.len(),
        callers.len()
    ));
    answers.assert_untouched();
    assert_eq!(answers.balance(&proxy, &callers), Default::default());
}

fn reshard(cluster: &Cluster, between: [&Redis; 2], slots: u16) {
    let [from, to] = between.map(|node| node.ask::<String>(&["CLUSTER", "MYID"]));
    let redis_cli = |operation: &str, more: &[&str]| {
        let done = Command::new("redis-cli")
            .args(["--cluster", operation, &format!("127.0.0.1:{}", cluster.node(0).port())])
            .args(more)
            .output();
        done.unwrap_or_else(|error| panic!("the tests need redis-cli: {error}"))
    };
    // It begins with nothing before all nodes agree about what was done last.
    let is_ready = || redis_cli("check", &[]).status.success();
    eventually("all nodes agree", || is_ready().then_some(()));
    let slots = slots.to_string();
    let between = ["--cluster-from", &from, "--cluster-to", &to];
    let what = ["--cluster-slots", &slots, "--cluster-yes"];
    let done = redis_cli("reshard", &[&between[..], &what].concat());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

/// Two limits of one caller, which share a slot: `/core`, `/search`, and both on all other paths.
fn two_limits(cluster: &Cluster, upstream: &Upstream) -> Proxy {
    let policy = Policy::before(upstream)
        .limits(&[
            "core: { per: caller, rate: 100/hour, on_store_error: closed }",
            "search: { per: caller, rate: 100/hour, on_store_error: closed }",
        ])
        .routes(&[
            "{ match: { path: /core }, limits: [core] }",
            "{ match: { path: /search }, limits: [search] }",
            "{ match: { path: /** }, limits: [core, search] }",
        ]);
    Proxy::with_settings(&settings(&cluster.settings()), &[&policy])
}

#[test]
fn counters_of_a_slot_on_its_way_are_found_wherever_they_are() {
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let proxy = two_limits(&cluster, &upstream);
    let used = |path: &str| decided(&proxy.send(get(path).by("alice"))).number("x-ratelimit-used");
    let (home, key) = find_counter(&primaries(&cluster), || assert_eq!(used("/core"), 1));
    let to = (home + 1) % 3;
    let moving = cluster.begin_move(cluster.slot_of(&key), to);
    assert_eq!(used("/core"), 2, "it is where it was");
    assert_eq!(used("/search"), 1, "it begins where the slot goes");
    assert_eq!(moving.move_keys(), 1);
    assert_eq!(used("/core"), 3, "it has gone ahead");
    assert_eq!(used("/search"), 2);
    assert_eq!(used("/both"), 4, "all have gone ahead");
    moving.finish();
    assert_eq!((used("/core"), used("/search"), used("/both")), (5, 4, 6));
}

#[test]
fn two_new_counters_of_a_slot_on_its_way_wait_until_it_has_arrived() {
    const MANY: u32 = 10;
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let proxy = two_limits(&cluster, &upstream);
    let (home, key) = find_counter(&primaries(&cluster), || {
        decided(&proxy.send(get("/core").by("alice"))).assert_status(200);
    });
    let to = (home + 1) % 3;
    cluster.node(home).command(&["DEL", &key]);
    let moving = cluster.begin_move(cluster.slot_of(&key), to);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| proxy.send(get("/both").by("alice")));
        eventually("it tries again for as long as it has time", || {
            assert!(!waiting.is_finished(), "it has given up");
            let stats: String = cluster.node(to).ask(&["INFO", "errorstats"]);
            let (_, count) = stats.split_once("errorstat_TRYAGAIN:count=")?;
            (count.lines().next()?.parse::<u32>().unwrap() >= MANY).then_some(())
        });
        moving.move_keys();
        moving.finish();
        decided(&waiting.join().unwrap()).assert_field("x-ratelimit-used", "1");
    });
}
