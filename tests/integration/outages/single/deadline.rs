//! Servers that do not answer: which requests wait for them, for how long, and what happens to a
//! late result that no request waits for.

use std::time::{Duration, Instant};

use tollgate_store::Unanswered;

use super::{is_decided, undecided, used_in_redis, wait_until_decided};
use crate::support::{Client, Gremlin, Policy, Proxy, Redis, Upstream, eventually, get};

/// How long a decision may take here.
const DEADLINE: Duration = Duration::from_secs(1);

fn proxy(redis: &str, policy: &Policy) -> Proxy {
    let deadline = DEADLINE.as_millis();
    Proxy::with_store(
        &format!("redis: {{ {redis}, clock: proxy }}, deadline: {deadline}ms"),
        policy,
    )
}

/// Has a server stop responding, and respond again. Alice sends requests all the time.
#[expect(clippy::print_stderr, reason = "how long requests wait is printed, and not asserted")]
fn fall_silent(proxy: &Proxy, silence: impl FnOnce(), end: impl FnOnce()) {
    const REQUESTS: u64 = 40;
    wait_until_decided(proxy);
    let [late, away] = [Unanswered::Timeout, Unanswered::Away];
    let before = [late, away].map(|reason| undecided(proxy, reason));
    silence();
    let latencies: Vec<Duration> = (0..REQUESTS)
        .map(|_| {
            let sent = Instant::now();
            proxy.get_as("alice").assert_status(200).assert_field("x-tollgate-store", "local");
            sent.elapsed()
        })
        .collect();
    let [late, away] = [undecided(proxy, late) - before[0], undecided(proxy, away) - before[1]];
    let (first, last) = latencies.split_at(late as usize);
    let longest = |some: &[Duration]| some.iter().max().copied().unwrap_or_default();
    eprintln!(
        "a deadline of {DEADLINE:?}: {late} requests waited, {:?} at most; {away} did not, {:?} at \
         most",
        longest(first),
        longest(last)
    );
    // One request finds out, unless the proxy has by itself; no request waits after that.
    assert!(late <= 1, "{late} requests waited");
    assert_eq!(late + away, REQUESTS);

    end();
    let spoke = Instant::now();
    wait_until_decided(proxy);
    eprintln!("redis decides again {:?} after it speaks", spoke.elapsed());
    let used = used_in_redis(proxy);
    let sent = REQUESTS + 1;
    assert!((sent..=sent + late).contains(&used), "{used} are counted of {sent}, {late} were late");
}

#[test]
fn one_waits_for_a_network_that_has_stalled() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let gremlin = Gremlin::before(redis.port());
    let policy = Policy::before(&upstream).rate("1000/hour");
    let proxy = proxy(&format!("url: {}", gremlin.url()), &policy);
    eventually("redis has decided once", || is_decided(&proxy.get_as("bob")).then_some(()));
    fall_silent(&proxy, || gremlin.stall(), || gremlin.behave());
}

#[test]
fn one_waits_for_a_server_that_has_stopped() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let policy = Policy::before(&upstream).rate("1000/hour");
    let proxy = proxy(&redis.settings(), &policy);
    fall_silent(&proxy, || redis.pause(), || redis.resume());
}

#[test]
fn one_waits_for_all_workers() {
    const CLIENTS: usize = 12;
    let upstream = Upstream::start();
    let redis = Redis::start();
    let store = format!(
        "workers: 4\nstore: {{ redis: {{ {}, clock: proxy }}, deadline: 1s, fallback_header: true }}",
        redis.settings()
    );
    let proxy = Proxy::with_settings(&store, &[&Policy::before(&upstream).rate("1000/hour")]);
    // Connections go to workers in turn.
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        eventually("redis decides", || {
            is_decided(&client.send(&get("/").by("alice"))).then_some(())
        });
    }
    let [late, away] = [Unanswered::Timeout, Unanswered::Away];
    let before = [late, away].map(|reason| undecided(&proxy, reason));
    redis.pause();
    for client in &mut clients {
        let response = client.send(&get("/").by("alice"));
        response.assert_status(200).assert_field("x-tollgate-store", "local");
    }
    let [late, away] = [undecided(&proxy, late) - before[0], undecided(&proxy, away) - before[1]];
    assert!(late <= 1, "{late} requests waited");
    assert_eq!(late + away, CLIENTS as u64);
    redis.resume();
    for client in &mut clients {
        eventually("redis decides", || {
            is_decided(&client.send(&get("/").by("alice"))).then_some(())
        });
    }
}

#[test]
fn few_wait_for_a_server_that_answers_and_takes_no_charges() {
    const REQUESTS: usize = 20;
    let upstream = Upstream::start();
    let redis = Redis::start();
    let store = format!(
        "workers: 2\nstore: {{ redis: {{ {} }}, deadline: 200ms, fallback_header: true }}",
        redis.settings()
    );
    let proxy = Proxy::with_settings(&store, &[&Policy::before(&upstream).rate("1000/hour")]);
    let mut clients = [proxy.connect(), proxy.connect()];
    let decide = |client: &mut Client| {
        let mut ask = || is_decided(&client.send(&get("/").by("alice")));
        eventually("redis decides", || ask().then_some(()));
    };
    clients.iter_mut().for_each(decide);
    let before = undecided(&proxy, Unanswered::Timeout);
    // The server still answers reads, but not on a connection where a charge waits.
    redis.command(&["CLIENT", "PAUSE", "600000", "WRITE"]);
    for _ in 0..REQUESTS {
        for client in &mut clients {
            let response = client.send(&get("/").by("alice"));
            response.assert_status(200).assert_field("x-tollgate-store", "local");
        }
    }
    let waited = undecided(&proxy, Unanswered::Timeout) - before;
    assert!(waited <= 6, "{waited} requests waited");
    redis.command(&["CLIENT", "UNPAUSE"]);
    clients.iter_mut().for_each(decide);
}

#[test]
fn server_that_is_slow_now_and_then_is_not_given_up() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let gremlin = Gremlin::before(redis.port());
    let policy = Policy::before(&upstream).core("rate: 1000/hour, on_store_error: open");
    let proxy = proxy(&format!("url: {}", gremlin.url()), &policy);
    for _ in 0..5 {
        wait_until_decided(&proxy);
        let before = undecided(&proxy, Unanswered::Timeout);
        gremlin.stall();
        proxy.get_as("alice").assert_status(200).assert_field("x-tollgate-store", "open");
        gremlin.behave();
        assert!(undecided(&proxy, Unanswered::Timeout) > before);
    }
    let servers = proxy.stores().current_servers.report();
    assert_eq!(servers[0].last_error, None, "it was never taken to be away");
    assert_eq!(gremlin.connections(), 1);
}

#[test]
fn lease_that_is_granted_too_late_is_ended() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let gremlin = Gremlin::before(redis.port());
    let inflight = "inflight: { per: caller, concurrent: 2, lease: 1h, on_store_error: open }";
    let policy = Policy::before(&upstream).on_all_routes(&[inflight]);
    let proxy = proxy(&format!("url: {}", gremlin.url()), &policy);
    let calls = || redis.scripts_for_requests();
    let leases = || redis.counters().len();
    // Both scripts are known to the server after this.
    for _ in 0..3 {
        wait_until_decided(&proxy);
        eventually("the request has ended", || (leases() == 0).then_some(()));
    }
    for _ in 0..3 {
        let before = calls();
        gremlin.stall();
        proxy.get_as("alice").assert_status(200).assert_field("x-tollgate-store", "open");
        assert_eq!(calls(), before, "the server has not received it");
        gremlin.behave();
        eventually("it is granted, and ended", || (calls() >= before + 2).then_some(()));
        eventually("no lease is left", || (leases() == 0).then_some(()));
    }
}
