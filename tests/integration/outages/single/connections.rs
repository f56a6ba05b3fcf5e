//! Connections that break: a charge whose reply is lost may have been made, and is not sent again.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use tollgate_store::Unanswered;

use super::{
    REASONS, is_decided, ten, undecided, used_in_redis, wait_until_decided, wait_until_written_back,
};
use crate::support::{Gremlin, HOUR, Policy, Proxy, Redis, Signal, Upstream, eventually, get};

/// A server that is reached through a bad network; the proxy that does so, and one that has a way
/// of its own.
struct Wire {
    /// Dropped before what it stands in front of.
    proxy: Proxy,
    direct: Proxy,
    gremlin: Gremlin,
    redis: Redis,
}

impl Wire {
    fn new(policy: &Policy) -> Wire {
        let redis = Redis::start();
        let gremlin = Gremlin::before(redis.port());
        let proxy = Proxy::with_redis(&format!("url: {}", gremlin.url()), policy);
        let direct = Proxy::with_redis(&redis.settings(), policy);
        Wire { proxy, direct, gremlin, redis }
    }

    /// What alice has used, as Redis knows it.
    fn used(&self) -> u64 {
        self.direct.used("alice", "core")
    }
}

#[test]
fn charge_whose_reply_is_cut_is_not_sent_again() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("1000/hour");
    let Wire { proxy, direct, gremlin, redis: _redis } = &Wire::new(&policy);
    let used = || direct.used("alice", "core");
    let mut before = used_in_redis(proxy);
    assert_eq!(before, 1);
    // From nothing of the reply to almost all of it.
    for bytes in [0, 1, 4, 8, 16, 24] {
        // The connection's own questions may be cut in place of the charge.
        let lost = || undecided(proxy, Unanswered::Lost);
        let mut sent = 0;
        let lost_before = lost();
        while lost() == lost_before {
            wait_until_decided(proxy);
            gremlin.cut_answer_after(bytes);
            let response = proxy.get_as("alice");
            response.assert_status(200);
            sent += 1;
        }
        gremlin.behave();
        wait_until_decided(proxy);
        wait_until_written_back(proxy);
        let counted = used() - before;
        let lost = lost() - lost_before;
        // What was lost was admitted here, and perhaps there too.
        assert!(
            (sent..=sent + lost).contains(&counted),
            "{counted} of {sent} were counted, and {lost} were lost, after {bytes} bytes"
        );
        let after = used_in_redis(proxy);
        assert_eq!(after, before + counted + 1);
        before = after;
    }
}

#[test]
fn connection_that_is_cut_between_requests_affects_no_request() {
    let upstream = Upstream::start();
    let wire = Wire::new(&Policy::before(&upstream).rate("1000/hour"));
    wait_until_decided(&wire.proxy);
    let mut sent = 0;
    let mut decided = 0;
    for _ in 0..20 {
        wire.gremlin.cut();
        let response = wire.proxy.get_as("alice");
        response.assert_status(200);
        sent += 1;
        decided += u64::from(is_decided(&response));
    }
    wait_until_decided(&wire.proxy);
    let counted = wire.used();
    eprintln!("of {sent} requests after a cut, redis decided {decided} and counted {counted}");
    assert!((decided..=sent).contains(&counted), "{decided}, {counted}, {sent}");
}

#[test]
fn connection_that_breaks_under_load_loses_only_what_was_on_it() {
    const THREADS: usize = 4;
    const DECIDED: u64 = 300;
    const CUTS: u64 = 6;
    let upstream = Upstream::start();
    let wire = Wire::new(&Policy::before(&upstream).rate("1000000/hour"));
    let decided = AtomicU64::new(0);
    let sent = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut client = wire.proxy.connect();
                while decided.load(Ordering::Relaxed) < DECIDED {
                    let response = client.send(&get("/").by("alice"));
                    response.assert_status(200);
                    sent.fetch_add(1, Ordering::Relaxed);
                    decided.fetch_add(is_decided(&response).into(), Ordering::Relaxed);
                }
            });
        }
        for cut in 1..=CUTS {
            let so_far = || decided.load(Ordering::Relaxed);
            eventually("it serves again", || (so_far() > cut * DECIDED / 10).then_some(()));
            wire.gremlin.cut();
        }
    });
    wait_until_decided(&wire.proxy);
    wait_until_written_back(&wire.proxy);
    let counted = wire.used();
    let sent = sent.into_inner();
    let decided = decided.into_inner();
    let [away, lost] = [Unanswered::Away, Unanswered::Lost].map(|why| undecided(&wire.proxy, why));
    eprintln!(
        "of {sent} requests through {CUTS} cuts redis decided {decided} and counted {counted}; \
         {lost} were lost, {away} not sent"
    );
    assert!((sent..=sent + lost).contains(&counted), "each is counted, and only lost ones twice");
}

#[test]
fn unreachable_network_is_not_used_until_it_is_back() {
    let upstream = Upstream::start();
    let wire = Wire::new(&ten(&upstream, "on_store_error: open"));
    assert_eq!(used_in_redis(&wire.proxy), 1);
    wire.gremlin.refuse();
    for _ in 0..20 {
        wire.proxy.get_as("alice").assert_status(200).assert_field("x-tollgate-store", "open");
    }
    wire.gremlin.behave();
    wait_until_decided(&wire.proxy);
    assert_eq!(used_in_redis(&wire.proxy), 2);
    assert_eq!(undecided(&wire.proxy, Unanswered::Timeout), 0);
}

#[test]
fn lease_whose_grant_was_never_heard_of_ends_in_its_time() {
    let upstream = Upstream::start();
    let inflight = "inflight: { per: caller, concurrent: 1, lease: 1h, on_store_error: open }";
    let wire = Wire::new(&Policy::before(&upstream).on_all_routes(&[inflight]));
    let ask = || wire.proxy.get_as("alice");
    let leases = || -> u64 {
        let keys = wire.redis.counters();
        keys.iter().map(|key| wire.redis.ask::<u64>(&["ZCARD", key])).sum()
    };
    // Until the grant is what was cut.
    eventually("a grant is lost", || {
        wait_until_decided(&wire.proxy);
        eventually("others have ended", || (leases() == 0).then_some(()));
        wire.gremlin.cut_answer_after(0);
        let response = ask();
        response.assert_status(200);
        (response.field("x-tollgate-store").is_some() && leases() == 1).then_some(())
    });
    wire.gremlin.behave();
    wait_until_decided(&wire.proxy);
    ask().assert_status(429);
    wire.proxy.advance(HOUR);
    ask().assert_status(200).assert_no_field("x-tollgate-store");
    eventually("none is left", || (leases() == 0).then_some(()));
}

#[test]
fn script_that_is_flushed_under_traffic_is_sent_again() {
    const THREADS: u64 = 2;
    const REQUESTS: u64 = 150;
    let upstream = Upstream::as_asked();
    let redis = Redis::start();
    let proxy = Proxy::with_redis(&redis.settings(), &Policy::before(&upstream).rate("1000/hour"));
    let done = Signal::default();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = proxy.connect();
                    for number in 0..REQUESTS {
                        // Every third is given back, by another script.
                        let status = if number % 3 == 0 { 304 } else { 200 };
                        let response = client.send(&get("/").by("alice").wants(status));
                        response.assert_status(status).assert_no_field("x-tollgate-store");
                    }
                })
            })
            .collect();
        let flusher = scope.spawn(|| {
            let mut flushes = 0;
            while !done.is_open() {
                redis.flush_scripts();
                flushes += 1;
            }
            eprintln!("{flushes} times the scripts were flushed");
        });
        clients.into_iter().for_each(|client| client.join().unwrap());
        done.open();
        flusher.join().unwrap();
    });
    for reason in REASONS {
        assert_eq!(undecided(&proxy, reason), 0, "{reason}");
    }
    let expected = THREADS * REQUESTS / 3 * 2;
    eventually("what was given back has arrived", || {
        (proxy.used("alice", "core") == expected).then_some(())
    });
}
