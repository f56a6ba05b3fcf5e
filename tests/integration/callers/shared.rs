//! Resets where several proxies, or several stores, count the same callers.

use tollgate_settings::MoveMode;

use crate::support::{Cluster, Policy, Proxy, Redis, SECOND, Shards, Upstream, eventually};

const LIMIT: u64 = 4;

fn policy(upstream: &Upstream) -> Policy {
    Policy::before(upstream).core(&format!("rate: {LIMIT}/hour"))
}

/// Uses up the caller's limit, and then has each proxy remember a denial.
fn use_up(fleet: &[&Proxy], shares: u64) {
    for number in 0..LIMIT * shares {
        fleet[number as usize % fleet.len()].get_as("42").assert_status(200);
    }
    for proxy in fleet.iter().cycle().take(2 * fleet.len()) {
        proxy.get_as("42").assert_status(429);
    }
}

/// That the caller has its whole limit, and no more, whichever proxy it asks.
fn assert_fresh(fleet: &[&Proxy]) {
    for number in 0..LIMIT {
        let response = fleet[number as usize % fleet.len()].get_as("42");
        response.assert_status(200).assert_no_field("x-tollgate-store");
        assert_eq!(response.number("x-ratelimit-used"), number + 1);
    }
    fleet[0].get_as("42").assert_status(429);
}

fn assert_reset_reaches_all(settings: &str) {
    let upstream = Upstream::start();
    let fleet = [(); 3].map(|()| Proxy::with_redis(settings, &policy(&upstream)));
    let fleet = fleet.each_ref();
    use_up(&fleet, 1);
    fleet[0].reset("user:42");
    // The proxy that has reset it sees it at once, the others when a second has passed.
    fleet[0].get_as("42").assert_status(200);
    fleet[0].reset("user:42");
    fleet.iter().for_each(|proxy| proxy.advance(SECOND));
    assert_fresh(&fleet);

    // Or sooner, as soon as they have heard of it: their clock stands still.
    for proxy in &fleet {
        proxy.get_as("42").assert_status(429);
    }
    fleet[2].reset("user:42");
    for proxy in fleet {
        let passes = || (proxy.get_as("42").status == 200).then_some(());
        eventually("the caller passes", passes);
    }
}

#[test]
fn reset_on_one_proxy_reaches_all_that_share_a_redis_cluster() {
    assert_reset_reaches_all(&Cluster::start().settings());
}

#[test]
fn reset_on_one_proxy_reaches_all_that_share_shards() {
    assert_reset_reaches_all(&Shards::start(3).settings());
}

/// Two proxies whose callers may be moved.
fn movers(current: &str, next: &str, upstream: &Upstream) -> [Proxy; 2] {
    let store =
        format!("current: {{ {current} }}, next: {{ {next} }}, mode: move_now, deadline: 10s");
    [(); 2].map(|()| Proxy::with_store(&store, &policy(upstream)))
}

fn set(fleet: &[&Proxy], percent: u8, mode: MoveMode) {
    for proxy in fleet {
        proxy.stores().moving.set(percent, mode);
    }
}

fn in_redis(redis: &Redis) -> String {
    format!("redis: {{ {}, clock: proxy }}", redis.settings())
}

#[test]
fn counters_of_the_store_before_do_not_come_back_when_a_caller_is_moved() {
    let upstream = Upstream::start();
    let [first, second] = [(); 2].map(|()| Redis::start());
    for (current, next, shares) in [
        // Each proxy has the whole limit as long as the counters are in the process.
        ("memory: {}", in_redis(&second), 2),
        (&*in_redis(&first), in_redis(&second), 1),
    ] {
        for is_moved_before in [true, false] {
            [&first, &second].iter().for_each(|redis| drop(redis.command(&["FLUSHALL"])));
            let fleet = movers(current, &next, &upstream);
            let fleet = fleet.each_ref();
            use_up(&fleet, shares);
            if is_moved_before {
                set(&fleet, 100, MoveMode::MoveNow);
                fleet[0].get_as("42").assert_status(429);
            }
            fleet[0].reset("user:42");
            set(&fleet, 100, MoveMode::MoveNow);
            // The other one has not carried its counter over yet.
            fleet.iter().for_each(|proxy| proxy.advance(SECOND));
            assert_fresh(&[fleet[1], fleet[0]]);
        }
    }
}

#[test]
fn mirrored_counters_are_reset_too() {
    let upstream = Upstream::start();
    let [first, second] = [(); 2].map(|()| Redis::start());
    let fleet = movers(&in_redis(&first), &in_redis(&second), &upstream);
    let fleet = fleet.each_ref();
    set(&fleet, 100, MoveMode::Mirror);
    use_up(&fleet, 1);
    let mirrored = || fleet.iter().map(|proxy| proxy.stores().counts.mirrored.get()).sum::<u64>();
    eventually("the mirror has answered", || (mirrored() >= LIMIT).then_some(()));
    fleet[0].reset("user:42");
    // What is left is the mark that receipts from before have ended.
    assert_eq!([&first, &second].map(|redis| redis.counters().len()), [1, 0]);
    set(&fleet, 100, MoveMode::MoveNow);
    fleet.iter().for_each(|proxy| proxy.advance(SECOND));
    assert_fresh(&fleet);
}

#[test]
fn what_was_charged_after_a_reset_goes_with_a_caller_who_is_moved() {
    let upstream = Upstream::start();
    let [first, second] = [(); 2].map(|()| Redis::start());
    for by in [0, 1] {
        [&first, &second].iter().for_each(|redis| drop(redis.command(&["FLUSHALL"])));
        let fleet = movers(&in_redis(&first), &in_redis(&second), &upstream);
        let fleet = fleet.each_ref();
        use_up(&fleet, 1);
        fleet[by].reset("user:42");
        fleet.iter().for_each(|proxy| proxy.advance(SECOND));
        use_up(&fleet, 1);
        set(&fleet, 100, MoveMode::MoveNow);
        fleet.iter().for_each(|proxy| proxy.advance(SECOND));
        fleet[0].get_as("42").assert_status(429);
        fleet[1].get_as("42").assert_status(429);
    }
}

/// Waits until each of two proxies has read what the other one has reset.
fn wait_until_read(redis: &Redis) {
    let reads = || {
        let statistics: String = redis.ask(&["INFO", "commandstats"]);
        let line = statistics.lines().find_map(|line| line.strip_prefix("cmdstat_zrange:calls="));
        line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0_u64)
    };
    let before = reads();
    eventually("both have read the list", || (reads() >= before + 8).then_some(()));
}

#[test]
fn server_that_loses_its_counters_gets_none_from_before_the_reset() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let fleet = [(); 2].map(|()| Proxy::with_redis(&redis.settings(), &policy(&upstream)));
    let fleet = fleet.each_ref();
    use_up(&fleet, 1);
    fleet[0].reset("user:42");
    wait_until_read(&redis);
    redis.kill();
    redis.restart();
    for proxy in fleet.iter().rev() {
        eventually("redis is back", || {
            (proxy.get_as("bob").field("x-tollgate-store").is_none()).then_some(())
        });
    }
    fleet.iter().for_each(|proxy| proxy.advance(SECOND));
    assert_fresh(&[fleet[1], fleet[0]]);
}

#[test]
fn proxy_whose_redis_is_away_decides_by_no_count_from_before_the_reset() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let store =
        format!("redis: {{ {}, clock: proxy }}, deadline: 10s, instances: 2", redis.settings());
    let fleet = [(); 2].map(|()| Proxy::with_store(&store, &policy(&upstream)));
    let fleet = fleet.each_ref();
    use_up(&fleet, 1);
    fleet[0].reset("user:42");
    wait_until_read(&redis);
    redis.kill();
    for proxy in fleet.iter().rev() {
        for _ in 0..LIMIT / 2 {
            let response = proxy.get_as("42");
            response.assert_status(200).assert_field("x-tollgate-store", "local");
        }
        proxy.get_as("42").assert_status(429);
        // It cannot be reset now, and whoever tries is told.
        let error = proxy.try_reset("user:42").unwrap_err().to_string();
        assert_eq!(error, "redis does not answer: some counters may not be reset; try again");
    }
}

#[test]
fn user_without_the_rights_to_reset_is_told_and_all_else_works() {
    let upstream = Upstream::start();
    let [first, second] = [(); 2].map(|()| Redis::start());
    let grant = |redis: &Redis, words: &[&str]| {
        redis.command(&[&["ACL", "SETUSER", "default"], words].concat());
    };
    for redis in [&first, &second] {
        grant(redis, &["-del", "-exists", "-zrange", "-zadd", "-zremrangebyrank"]);
    }
    let fleet = movers(&in_redis(&first), &in_redis(&second), &upstream);
    let fleet = fleet.each_ref();
    use_up(&fleet, 1);
    let refused = || {
        let error = fleet[0].try_reset("user:42").unwrap_err().to_string();
        let ending = "(docs/redis.md lists the rights that a reset needs): some counters may not \
                      be reset; try again";
        assert!(error.starts_with("redis refused: ") && error.ends_with(ending), "{error}");
    };
    refused();
    // Callers can be moved, with their counts.
    set(&fleet, 100, MoveMode::MoveNow);
    for proxy in fleet {
        proxy.advance(SECOND);
        proxy.get_as("42").assert_status(429).assert_no_field("x-tollgate-store");
    }
    grant(&first, &["+del", "+zadd", "+zremrangebyrank"]);
    refused();
    grant(&second, &["+del"]);
    refused();
    // Those who may not read the list forget their denials all the same.
    grant(&second, &["+zadd", "+zremrangebyrank"]);
    fleet[0].reset("user:42");
    fleet.iter().for_each(|proxy| proxy.advance(SECOND));
    assert_fresh(&fleet);
}
