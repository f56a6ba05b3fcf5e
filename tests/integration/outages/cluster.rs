//! Nodes of a cluster that die, hang, or have lost the others.

use std::time::{Duration, Instant};

use super::{
    callers::{Caller, find_callers, primaries, settings, split, wait_for_replica, with_deadline},
    load::{Answer, Answers, CONNECTIONS, Decider, Load, print_figures},
};
use crate::support::{Cluster, Policy, Proxy, Upstream, eventually};

/// The primary that fails.
const VICTIM: usize = 1;

/// How long a change may take that the proxy has to notice by itself, on a machine that does much
/// else.
const SOON: Duration = Duration::from_secs(3);

fn policy(upstream: &Upstream, on_store_error: &str) -> Policy {
    let fields = format!("rate: 1_000_000/hour, on_store_error: {on_store_error}");
    Policy::before(upstream).core(&fields)
}

/// Callers of the victim, and of other nodes. Its replica has all that it has.
fn find_victims(proxy: &Proxy, cluster: &Cluster) -> (Vec<Caller>, Vec<Caller>) {
    let callers = find_callers(proxy, &primaries(cluster), 4);
    wait_for_replica(cluster.node(VICTIM), cluster.node(cluster.replica_of(VICTIM)));
    split(&callers, VICTIM)
}

/// Waits until another node than the victim has its slots, as the others see it.
fn wait_for_promotion(cluster: &Cluster, caller: &Caller) -> Instant {
    let slot = cluster.slot_of(&caller.key);
    let is_promoted = || cluster.primary_of(slot) != VICTIM;
    eventually("the replica is promoted", || is_promoted().then(Instant::now))
}

/// Kills a primary under load, and goes on until its replica has taken over.
fn kill_a_primary(on_store_error: &str) -> Answers {
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let policy = policy(&upstream, on_store_error);
    let proxy = Proxy::with_settings(&settings(&cluster.settings()), &[&policy]);
    let (victims, others) = find_victims(&proxy, &cluster);
    let their_load = Load::start(&proxy, &victims);
    let other_load = Load::start(&proxy, &others);

    let killed = Instant::now();
    cluster.node(VICTIM).kill();
    let promoted = wait_for_promotion(&cluster, &victims[0]);
    their_load.wait_until_decided();
    let theirs = their_load.stop();
    let untouched = other_load.stop();

    untouched.assert_untouched();
    assert_eq!(untouched.balance(&proxy, &others), Default::default());
    let balance = theirs.balance(&proxy, &victims);
    let healed = theirs.decided_after(promoted);
    print_figures(&format!(
        "cluster, primary killed, {on_store_error}: promotion after {:?}, redis decides again {healed:?} \
         later, longest gap {:?}; its callers: {theirs}; {balance:?}; others: {untouched}",
        promoted - killed,
        theirs.longest_gap()
    ));
    assert!(healed < SOON, "{healed:?}");
    // What was let through and not counted was let through by the proxy, or lost with the primary
    // before the replica had it.
    let by_proxy = theirs.count(|answer| answer.decider == Decider::Proxy);
    assert!(balance.not_counted <= (by_proxy + CONNECTIONS) as u64, "{balance:?}");
    theirs
}

#[test]
fn callers_of_a_killed_primary_are_limited_by_the_proxy_until_another_is_there() {
    let undecided = kill_a_primary("local").undecided();
    let is_right = |answer: &Answer| (answer.status, answer.decider) == (200, Decider::Proxy);
    assert_eq!(undecided.count(|answer| !is_right(answer)), 0);
}

#[test]
fn callers_of_a_killed_primary_wait_outside_where_limits_are_closed() {
    let undecided = kill_a_primary("closed").undecided();
    assert_eq!(undecided.count(|answer| answer.status != 503), 0);
}

#[test]
fn no_more_passes_than_a_limit_and_what_the_proxy_lets_through_while_a_primary_is_dead() {
    const LIMIT: u64 = 100;
    for on_store_error in ["local", "closed"] {
        let upstream = Upstream::start();
        let cluster = Cluster::start();
        let fields = format!("rate: {LIMIT}/hour, on_store_error: {on_store_error}");
        let policy = Policy::before(&upstream).core(&fields);
        let proxy = Proxy::with_settings(&settings(&cluster.settings()), &[&policy]);
        let (victims, _) = find_victims(&proxy, &cluster);
        let load = Load::start(&proxy, &victims);
        cluster.node(VICTIM).kill();
        load.wait_until_denied();
        let answers = load.stop();

        let passed = answers.passed(&victims);
        let beyond: u64 = passed.iter().map(|passed| passed.saturating_sub(LIMIT)).sum();
        let is_by_proxy = |it: &Answer| (it.status, it.decider) == (200, Decider::Proxy);
        let by_proxy = answers.count(is_by_proxy);
        print_figures(&format!(
            "cluster, primary killed, {on_store_error}: of {} callers with {LIMIT}/hour passed {passed:?}, \
             {beyond} beyond the limits, {by_proxy} let through by the proxy",
            victims.len()
        ));
        assert!(passed.iter().all(|passed| *passed >= LIMIT), "{passed:?}");
        assert!(beyond <= (by_proxy + CONNECTIONS) as u64, "{beyond}");
    }
}

#[test]
fn primary_that_hangs_is_left_for_its_replica_and_not_believed_when_it_goes_on() {
    const PAUSE: Duration = Duration::from_secs(10);
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let policy = policy(&upstream, "closed");
    let settings = with_deadline(&cluster.settings(), "1s");
    let proxy = Proxy::with_settings(&settings, &[&policy]);
    let (victims, others) = find_victims(&proxy, &cluster);
    let their_load = Load::start(&proxy, &victims);
    let other_load = Load::start(&proxy, &others);

    let paused = Instant::now();
    cluster.node(VICTIM).pause();
    let promoted = wait_for_promotion(&cluster, &victims[0]);
    their_load.wait_until_decided();
    let well = Instant::now();
    eventually("it was paused for long", || (paused.elapsed() >= PAUSE).then_some(()));
    cluster.node(VICTIM).resume();
    cluster.wait_for_return(VICTIM);
    their_load.wait_until_decided();
    let theirs = their_load.stop();
    let untouched = other_load.stop();

    untouched.assert_untouched();
    theirs.since(well).assert_untouched();
    let balance = theirs.balance(&proxy, &victims);
    let healed = theirs.decided_after(promoted);
    print_figures(&format!(
        "cluster, primary paused for {PAUSE:?}: promotion after {:?}, redis decides again {healed:?} \
         later, longest gap {:?}; its callers: {theirs}; {balance:?}; others: {untouched}",
        promoted - paused,
        theirs.longest_gap()
    ));
    assert!(healed < SOON, "{healed:?}");
    assert!(balance.not_counted <= CONNECTIONS as u64, "{balance:?}");
    assert_eq!(untouched.balance(&proxy, &others), Default::default());
}

#[test]
fn cluster_that_is_down_holds_up_few_requests_and_is_believed_when_it_is_back() {
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let policy = policy(&upstream, "closed");
    let settings = with_deadline(&cluster.settings(), "250ms");
    let proxy = Proxy::with_settings(&settings, &[&policy]);
    let callers = find_callers(&proxy, &primaries(&cluster), 2);
    let (mine, _) = split(&callers, 0);
    let load = Load::start(&proxy, &mine);

    // One of three is not enough, and no replica is promoted by one.
    let others = [1, 2].map(|node| cluster.node(node));
    others.iter().for_each(|node| node.pause());
    load.wait_until_undecided(400);
    assert!(is_down(&cluster));
    others.iter().for_each(|node| node.resume());
    eventually("the cluster is well", || (!is_down(&cluster)).then_some(()));
    let well = Instant::now();
    load.wait_until_decided();
    let answers = load.stop();

    let undecided = answers.undecided();
    let slow = undecided.count(|answer| answer.took() > Duration::from_millis(25));
    print_figures(&format!(
        "cluster without a majority: {undecided}, of which {slow} waited longer than 25ms; redis \
         decides again {:?} after it is well",
        answers.decided_after(well)
    ));
    assert_eq!(undecided.count(|answer| answer.status != 503), 0);
    assert!(slow * 4 < undecided.count(|_| true), "{slow} of {undecided}");
    assert_eq!(answers.balance(&proxy, &mine).not_counted, 0);
    for caller in &callers {
        let is_decided = || Decider::of(&proxy.send(caller.request())) == Decider::Redis;
        eventually("all nodes decide", || is_decided().then_some(()));
    }
}

fn is_down(cluster: &Cluster) -> bool {
    let info: String = cluster.node(0).ask(&["CLUSTER", "INFO"]);
    info.contains("cluster_state:fail")
}

#[test]
fn one_seed_that_answers_is_enough() {
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let policy = policy(&upstream, "closed");
    cluster.node(5).kill();
    cluster.node(4).pause();
    let seeds = [5, 4, 0].map(|node| cluster.node(node).url()).join(", ");
    let begun = Instant::now();
    let proxy = Proxy::with_settings(&settings(&format!("cluster: [{seeds}]")), &[&policy]);
    // Each of these is decided by Redis, from the first on.
    let callers = find_callers(&proxy, &primaries(&cluster), 2);
    print_figures(&format!(
        "cluster, one of three seeds answers: {} requests decided {:?} after the start",
        callers.len(),
        begun.elapsed()
    ));
    cluster.node(4).resume();
}

#[test]
fn nodes_that_do_not_tell_their_host_are_where_they_were_asked() {
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    for node in 0..6 {
        let name = "cluster-preferred-endpoint-type";
        cluster.node(node).command(&["CONFIG", "SET", name, "unknown-endpoint"]);
    }
    let seed = format!("cluster: [{}]", cluster.node(0).url());
    let proxy = Proxy::with_settings(&settings(&seed), &[&policy(&upstream, "closed")]);
    let callers = find_callers(&proxy, &primaries(&cluster), 2);
    // The node that had these slots redirects the proxy (MOVED).
    for caller in &callers {
        cluster.reshard([cluster.slot_of(&caller.key)], (caller.home + 1) % 3);
        assert_eq!(caller.count_one(&proxy), 2);
    }
}

#[test]
fn cluster_that_died_as_a_whole_is_found_again() {
    let upstream = Upstream::start();
    let cluster = Cluster::start();
    let proxy =
        Proxy::with_settings(&settings(&cluster.settings()), &[&policy(&upstream, "local")]);
    let callers = find_callers(&proxy, &primaries(&cluster), 2);
    let decider = |caller: &Caller| Decider::of(&proxy.send(caller.request()));
    (0..6).for_each(|node| cluster.node(node).kill());
    for caller in &callers {
        eventually("the proxy decides", || (decider(caller) == Decider::Proxy).then_some(()));
    }
    (0..6).for_each(|node| cluster.node(node).restart());
    for caller in &callers {
        eventually("redis decides", || (decider(caller) == Decider::Redis).then_some(()));
    }
}
