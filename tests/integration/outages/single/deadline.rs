//! Servers that do not answer: who waits for them, for how long, and what becomes of what they do
//! when nobody waits any more.

use std::time::{Duration, Instant};

use tollgate::store::Unanswered;

use super::{is_decided, undecided, used_in_redis, wait_until_decided};
use crate::support::{Gremlin, Policy, Proxy, Redis, Upstream, eventually};

/// How long a decision may take here.
const DEADLINE: Duration = Duration::from_millis(200);

fn proxy(redis: &str, policy: &Policy) -> Proxy {
    let deadline = DEADLINE.as_millis();
    Proxy::with_store(
        &format!("redis: {{ {redis}, clock: proxy }}, deadline: {deadline}ms"),
        policy,
    )
}

/// Has a server fall silent, and speak again. Alice asks all the time.
#[expect(clippy::print_stderr, reason = "how long somebody waits is told, and not asserted")]
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
    // A few find out; after them nobody waits.
    assert!((1..=5).contains(&late), "{late} requests waited");
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
fn few_wait_for_a_network_that_has_stalled() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let gremlin = Gremlin::before(redis.port());
    let policy = Policy::before(&upstream).rate("1000/hour");
    let proxy = proxy(&format!("url: {}", gremlin.url()), &policy);
    eventually("redis has decided once", || is_decided(&proxy.get_as("bob")).then_some(()));
    fall_silent(&proxy, || gremlin.stall(), || gremlin.behave());
}

#[test]
fn few_wait_for_a_server_that_has_stopped() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let policy = Policy::before(&upstream).rate("1000/hour");
    let proxy = proxy(&redis.settings(), &policy);
    fall_silent(&proxy, || redis.pause(), || redis.resume());
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
    assert_eq!(undecided(&proxy, Unanswered::Away), 0, "it was never taken to be away");
    assert_eq!(gremlin.connections(), 1);
}

#[test]
fn lease_that_is_granted_when_nobody_waits_is_ended() {
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
        assert_eq!(calls(), before, "it was not heard");
        gremlin.behave();
        eventually("it is granted, and ended", || (calls() >= before + 2).then_some(()));
        eventually("nobody has a lease", || (leases() == 0).then_some(()));
    }
}
