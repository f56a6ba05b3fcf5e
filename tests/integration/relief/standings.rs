//! Callers that query their standings all the time: Redis is queried ten times a second, and the
//! responses are correct.

use std::{thread, time::Instant};

use super::Asked;
use crate::support::{Policy, SECOND, Upstream, get};

const QUESTIONS: usize = 500;

/// How often Redis is asked while this goes on, and in how many seconds that was begun.
fn calls_of(asked: &Asked, work: impl FnOnce()) -> (u64, u64) {
    let before = asked.calls();
    let begun = Instant::now();
    work();
    (asked.calls() - before, begun.elapsed().as_secs() + 1)
}

fn used(asked: &Asked, sub: &str) -> u64 {
    let response = asked.proxy.send(get("/rate_limit").by(sub));
    response.assert_status(200).assert_no_field("x-tollgate-store");
    response.json()["resources"]["core"]["used"].as_u64().unwrap()
}

#[test]
fn caller_that_asks_all_the_time_makes_no_work_for_redis() {
    let upstream = Upstream::start();
    let asked = Asked::new(&Policy::before(&upstream).rate("100/hour"));
    for _ in 0..3 {
        assert_eq!(asked.alice(), 200);
    }
    let (calls, seconds) = calls_of(&asked, || {
        (0..QUESTIONS).for_each(|_| assert_eq!(used(&asked, "alice"), 3));
    });
    assert!(calls <= 10 * (seconds + 1), "{calls} in {seconds} s");
    // Others have nothing to do with it.
    assert_eq!(used(&asked, "bob"), 0);
    assert_eq!(asked.send(get("/").by("bob")), 200);
    assert_eq!(used(&asked, "bob"), 1);
}

#[test]
fn caller_that_asks_many_times_at_once_does_not_either() {
    const THREADS: usize = 20;
    let upstream = Upstream::start();
    let asked = Asked::new(&Policy::before(&upstream).rate("100/hour"));
    assert_eq!(asked.alice(), 200);
    let (calls, seconds) = calls_of(&asked, || {
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    (0..QUESTIONS / THREADS).for_each(|_| assert_eq!(used(&asked, "alice"), 1));
                });
            }
        });
    });
    assert!(calls <= 10 * (seconds + 1), "{calls} in {seconds} s");
}

#[test]
fn caller_sees_its_own_requests_however_often_it_asks() {
    let upstream = Upstream::as_asked();
    let fields = "rate: 100/hour, refund: { status: [404] }";
    let asked = Asked::new(&Policy::before(&upstream).core(fields));
    for number in 1..=10 {
        assert_eq!(asked.alice(), 200);
        for _ in 0..12 {
            assert_eq!(used(&asked, "alice"), number);
        }
    }
}

#[test]
fn denied_requests_in_between_do_not_have_redis_asked_again() {
    let upstream = Upstream::start();
    let asked = Asked::new(&Policy::before(&upstream).rate("2/hour"));
    assert_eq!([asked.alice(), asked.alice(), asked.alice()], [200, 200, 429]);
    let (calls, seconds) = calls_of(&asked, || {
        for _ in 0..QUESTIONS / 2 {
            assert_eq!(used(&asked, "alice"), 2);
            assert_eq!(asked.alice(), 429);
        }
    });
    assert!(calls <= 10 * (seconds + 1), "{calls} in {seconds} s");
}

#[test]
fn answer_is_asked_for_again_after_a_second() {
    let upstream = Upstream::start();
    let asked = Asked::new(&Policy::before(&upstream).rate("2/minute"));
    assert_eq!(asked.alice(), 200);
    (0..20).for_each(|_| assert_eq!(used(&asked, "alice"), 1));
    asked.proxy.advance(60 * SECOND);
    assert_eq!(used(&asked, "alice"), 0);
}

#[test]
fn address_that_makes_up_callers_is_bounded_and_no_other() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&["keys: { per: header.x-key, rate: 5/hour }"])
        .routes(&["{ match: { path: /** }, limits: [keys] }"]);
    let asked = Asked::with_settings("workers: 1\ntrusted_proxies: [127.0.0.1]", &policy);
    let ask = |number: usize, address: &str| {
        let question = get("/rate_limit").field("x-key", &format!("made-up-{number}"));
        asked.proxy.send(question.from(address))
    };
    let (calls, _) = calls_of(&asked, || {
        for number in 0..150 {
            let expected = if number < 100 { 200 } else { 429 };
            ask(number, "203.0.113.9").assert_status(expected);
        }
    });
    assert_eq!(calls, 100);
    let denied = ask(200, "203.0.113.9");
    denied.assert_status(429).assert_field("retry-after", "1");
    ask(0, "198.51.100.1").assert_status(200);
    asked.proxy.advance(SECOND);
    ask(0, "203.0.113.9").assert_status(200);
}
