//! Shards that go away, come back, change their primaries or their addresses.

use std::time::{Duration, Instant};

use tollgate_store::Unanswered;

use super::{
    callers::{
        Caller, decided, find_callers, primaries_of, settings, split, wait_for_replica,
        with_deadline,
    },
    load::{CONNECTIONS, Decider, Load, print_figures},
};
use crate::support::{Policy, Proxy, Redis, Response, Shards, Upstream, eventually, get};

/// The shard that fails.
const VICTIM: usize = 1;

/// How long a change may take that the proxy has to notice by itself, on a machine that does much
/// else.
const SOON: Duration = Duration::from_secs(3);

fn policy(upstream: &Upstream) -> Policy {
    Policy::before(upstream).core("rate: 1_000_000/hour, on_store_error: closed")
}

fn start(servers: &str, upstream: &Upstream) -> Proxy {
    Proxy::with_settings(&settings(servers), &[&policy(upstream)])
}

/// Callers of the victim, and of other shards. Its replica has all that it has.
fn find_victims(proxy: &Proxy, shards: &Shards) -> (Vec<Caller>, Vec<Caller>) {
    let callers = find_callers(proxy, &primaries_of(shards), 4);
    wait_for_replica(shards.primary(VICTIM), shards.replica(VICTIM));
    split(&callers, VICTIM)
}

#[test]
fn counters_stay_with_the_name_of_their_shard() {
    let upstream = Upstream::start();
    let shards = Shards::start(3);
    let proxy = start(&shards.settings(), &upstream);
    let callers = find_callers(&proxy, &primaries_of(&shards), 4);
    let url = |shard: usize| shards.primary(shard).url();

    // In another order, and without the second: only its own callers begin anew.
    let listed = [2, 0].map(|it| format!("{{ name: shard-{it}, primary: {} }}", url(it)));
    let fewer = start(&format!("shards: [{}]", listed.join(", ")), &upstream);
    for caller in &callers {
        let counted = if caller.home == 1 { 1 } else { 2 };
        assert_eq!(caller.count_one(&fewer), counted, "{}", caller.home);
    }

    // At another address, under the same name.
    wait_for_replica(shards.primary(0), shards.replica(0));
    shards.promote(0);
    shards.primary(0).kill();
    let replica = shards.replica(0).url();
    let listed = [replica, url(1), url(2)].into_iter().enumerate();
    let listed = listed.map(|(number, url)| format!("{{ name: shard-{number}, primary: {url} }}"));
    let listed = listed.collect::<Vec<_>>().join(", ");
    let moved = start(&format!("shards: [{listed}]"), &upstream);
    for caller in callers.iter().filter(|caller| caller.home == 0) {
        assert_eq!(caller.count_one(&moved), 3);
    }
}

#[test]
fn shard_that_is_down_keeps_out_its_own_callers_until_its_replica_is_promoted() {
    let upstream = Upstream::start();
    let shards = Shards::start(3);
    let proxy = start(&shards.settings(), &upstream);
    let (victims, others) = find_victims(&proxy, &shards);
    let their_load = Load::start(&proxy, &victims);
    let other_load = Load::start(&proxy, &others);

    let killed = Instant::now();
    shards.primary(VICTIM).kill();
    their_load.wait_until_undecided(200);
    let promoted = Instant::now();
    shards.promote(VICTIM);
    their_load.wait_until_decided();
    let well = Instant::now();
    // It comes back without anything, and still takes itself for what it was.
    shards.primary(VICTIM).restart();
    assert_eq!(shards.primary(VICTIM).info("role"), "master");
    their_load.wait_until_decided();
    their_load.wait_until_decided();
    let theirs = their_load.stop();
    let untouched = other_load.stop();

    untouched.assert_untouched();
    theirs.since(well).assert_untouched();
    assert_eq!(theirs.undecided().count(|answer| answer.status != 503), 0);
    let balance = theirs.balance(&proxy, &victims);
    let healed = theirs.decided_after(promoted);
    print_figures(&format!(
        "shards, primary killed, replica promoted by hand after {:?}: redis decides again {healed:?} \
         later; its callers: {theirs}; {balance:?}; others: {untouched}",
        promoted - killed
    ));
    assert!(healed < SOON, "{healed:?}");
    assert!(balance.not_counted <= CONNECTIONS as u64, "{balance:?}");
    assert_eq!(untouched.balance(&proxy, &others), Default::default());
    assert_eq!(shards.primary(VICTIM).counters().len(), 0, "the old primary was believed");
}

#[test]
fn one_request_waits_for_a_shard_that_hangs_and_none_for_the_others() {
    let upstream = Upstream::start();
    let shards = Shards::start(3);
    let settings = with_deadline(&shards.settings(), "1s").replace("workers: 1", "workers: 2");
    let proxy = Proxy::with_settings(&settings, &[&policy(&upstream)]);
    let (victims, others) = find_victims(&proxy, &shards);
    // Connections go to workers in turn.
    let mut clients = [proxy.connect(), proxy.connect()];
    let counts = &proxy.stores().counts;
    let before = counts.unanswered(Unanswered::Timeout);
    shards.primary(VICTIM).pause();
    for caller in &victims {
        for client in &mut clients {
            client.send(&caller.request()).assert_status(503);
        }
    }
    let waited = counts.unanswered(Unanswered::Timeout) - before;
    assert!(waited <= 1, "{waited} requests waited");
    for caller in &others {
        for client in &mut clients {
            decided(&client.send(&caller.request())).assert_status(200);
        }
    }
    shards.primary(VICTIM).resume();
    for client in &mut clients {
        let is_decided = |response: &Response| Decider::of(response) == Decider::Redis;
        let mut ask = || is_decided(&client.send(&victims[0].request()));
        eventually("it decides again", || ask().then_some(()));
    }
}

/// Has a primary and its replica change places under load. Returns how many requests passed that
/// the new primary has not counted.
fn change_places(how: &str, change: impl FnOnce([&Redis; 2])) -> u64 {
    let upstream = Upstream::start();
    let shards = Shards::start(3);
    let proxy = start(&shards.settings(), &upstream);
    let (victims, others) = find_victims(&proxy, &shards);
    let their_load = Load::start(&proxy, &victims);
    let other_load = Load::start(&proxy, &others);

    let begun = Instant::now();
    let primary = shards.primary(VICTIM);
    let replica = shards.replica(VICTIM);
    change([primary, replica]);
    let is_done = || primary.info("role") == "slave" && replica.info("role") == "master";
    eventually("they change places", || is_done().then_some(()));
    let changed = Instant::now();
    their_load.wait_until_decided();
    let theirs = their_load.stop();
    let untouched = other_load.stop();

    untouched.assert_untouched();
    // They had time enough.
    theirs.assert_untouched();
    let balance = theirs.balance(&proxy, &victims);
    print_figures(&format!(
        "shards, primary and replica change places by {how} in {:?}: redis decides again {:?} later; \
         its callers: {theirs}; {balance:?}; others: {untouched}",
        changed - begun,
        theirs.decided_after(changed)
    ));
    balance.not_counted
}

#[test]
fn primary_that_hands_over_to_its_replica_is_followed_and_nothing_is_lost() {
    let lost = change_places("FAILOVER", |[primary, _]| {
        primary.command(&["FAILOVER"]);
    });
    assert_eq!(lost, 0);
}

#[test]
fn primary_that_is_made_a_replica_of_its_replica_is_not_written_to() {
    change_places("REPLICAOF", |[primary, replica]| {
        replica.command(&["REPLICAOF", "NO", "ONE"]);
        // What the other does not have has it load all data anew, and refuse to serve meanwhile.
        primary.command(&["SET", "only-here", "1"]);
        primary.command(&["REPLICAOF", "127.0.0.1", &replica.port().to_string()]);
    });
}

#[test]
fn proxy_starts_while_a_shard_is_away() {
    const CALLERS: usize = 90;
    let upstream = Upstream::start();
    let shards = Shards::start(3);
    [shards.primary(VICTIM), shards.replica(VICTIM)].into_iter().for_each(Redis::kill);
    let proxy = start(&shards.settings(), &upstream);
    let deciders = (0..CALLERS).map(|it| Decider::of(&proxy.get_as(&format!("caller-{it}"))));
    let decided = deciders.filter(|decider| *decider == Decider::Redis).count();
    let counters = [0, 2].map(|shard| shards.primary(shard).counters().len());
    assert_eq!(counters.iter().sum::<usize>(), decided);
    assert!((CALLERS / 3..CALLERS).contains(&decided), "{decided}");

    shards.primary(VICTIM).restart();
    for number in 0..CALLERS {
        let request = get("/").by(&format!("caller-{number}"));
        let is_decided = || Decider::of(&proxy.send(request.clone())) == Decider::Redis;
        eventually("all shards decide", || is_decided().then_some(()));
    }
}
