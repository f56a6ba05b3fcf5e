//! Several windows of one limit, and windows of the calendar.

use super::{MICROSECOND, reset_after};
use crate::support::{MINUTE, Policy, Proxy, SECOND, Upstream, algorithms, seconds};

#[test]
fn the_longest_window_is_shown_on_success_and_the_one_that_denied_on_denial() {
    let upstream = Upstream::start();
    for rate in ["[2/second, 5/minute, 8/hour]", "[8/hour, 2/second, 5/minute]"] {
        let proxy = Proxy::start(&Policy::before(&upstream).rate(rate));
        let hour = reset_after(3600);
        proxy.get_as("alice").assert_status(200).assert_limit(["8", "7", "1", &hour, "core"]);
        proxy.get_as("alice").assert_status(200).assert_limit(["8", "6", "2", &hour, "core"]);
        let denied = proxy.get_as("alice");
        denied
            .assert_status(429)
            .assert_limit(["2", "0", "2", &reset_after(1), "core"])
            .assert_field("retry-after", "1")
            .assert_field("x-tollgate-denied-by", "core");
        assert!(denied.text().contains("API rate limit exceeded for user alice"), "{denied:?}");
        // What the second has denied was charged to no other window.
        assert_eq!(proxy.used("alice", "core"), 2);
        proxy.advance(SECOND);
        for used in ["3", "4"] {
            proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-used", used);
        }
        proxy.advance(SECOND);
        proxy.get_as("alice").assert_status(200);
        let minute = reset_after(60);
        proxy
            .get_as("alice")
            .assert_status(429)
            .assert_limit(["5", "0", "5", &minute, "core"])
            .assert_field("retry-after", "58");
    }
}

#[test]
fn who_is_denied_by_two_windows_waits_for_the_longer_one() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("[2/second, 2/minute]"));
    for _ in 0..2 {
        proxy.get_as("alice").assert_status(200);
    }
    let denied = proxy.get_as("alice");
    denied.assert_status(429).assert_field("retry-after", "60");
    // The headers of the window agree with that.
    denied.assert_limit(["2", "0", "2", &reset_after(60), "core"]);
    proxy.advance(MINUTE);
    proxy.get_as("alice").assert_status(200);
}

#[test]
fn several_windows_go_with_each_algorithm() {
    let upstream = Upstream::start();
    for algorithm in algorithms() {
        let fields = format!("rate: [2/second, 3/minute], algorithm: {algorithm}");
        let proxy = Proxy::start(&Policy::before(&upstream).core(&fields));
        for remaining in ["2", "1"] {
            let response = proxy.get_as("alice");
            response.assert_status(200).assert_field("x-ratelimit-remaining", remaining);
        }
        proxy.get_as("alice").assert_status(429).assert_field("x-ratelimit-limit", "2");
        proxy.advance(2 * SECOND);
        proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-used", "3");
        proxy.get_as("alice").assert_status(429).assert_field("x-ratelimit-limit", "3");
        assert_eq!(proxy.used("alice", "core"), 3, "{algorithm}");
    }
}

/// Where windows of a unit end that are open at an instant, and that they end there.
#[test]
fn windows_of_the_calendar_end_with_their_unit() {
    const BERLIN: &str = "Europe/Berlin";
    let upstream = Upstream::start();
    for (unit, zone, opened, end) in [
        ("hour", "UTC", "2026-09-30T23:59:59Z", "2026-10-01T00:00:00Z"),
        ("hour", "Asia/Kolkata", "2026-10-01T12:00:00Z", "2026-10-01T12:30:00Z"),
        ("day", "UTC", "2026-10-01T00:00:00Z", "2026-10-02T00:00:00Z"),
        ("day", "America/New_York", "2026-10-01T00:00:00Z", "2026-10-01T04:00:00Z"),
        ("day", "Asia/Kathmandu", "2026-10-01T18:00:00Z", "2026-10-01T18:15:00Z"),
        ("week", "UTC", "2026-10-04T23:00:00Z", "2026-10-05T00:00:00Z"),
        ("week", "UTC", "2026-10-05T00:00:00Z", "2026-10-12T00:00:00Z"),
        ("month", "UTC", "2026-09-30T12:00:00Z", "2026-10-01T00:00:00Z"),
        ("month", "UTC", "2026-10-31T12:00:00Z", "2026-11-01T00:00:00Z"),
        ("month", "UTC", "2026-12-31T12:00:00Z", "2027-01-01T00:00:00Z"),
        ("month", "UTC", "2027-02-01T00:00:00Z", "2027-03-01T00:00:00Z"),
        ("month", "UTC", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
        ("month", BERLIN, "2027-03-01T00:00:00Z", "2027-03-31T22:00:00Z"),
        ("year", "UTC", "2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"),
        ("year", BERLIN, "2026-12-31T22:00:00Z", "2026-12-31T23:00:00Z"),
        // In autumn a day has 25 hours, in spring 23.
        ("day", BERLIN, "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
        ("day", BERLIN, "2026-10-25T22:59:59Z", "2026-10-25T23:00:00Z"),
        ("day", BERLIN, "2027-03-27T23:00:00Z", "2027-03-28T22:00:00Z"),
        ("week", BERLIN, "2027-03-21T23:00:00Z", "2027-03-28T22:00:00Z"),
        // The hour that comes twice is two windows, the one that is left out none.
        ("hour", BERLIN, "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z"),
        ("hour", BERLIN, "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z"),
        ("hour", BERLIN, "2027-03-28T00:30:00Z", "2027-03-28T01:00:00Z"),
    ] {
        let fields = format!("rate: 1/{unit}, align: calendar, timezone: {zone}");
        let proxy = Proxy::start(&Policy::before(&upstream).core(&fields));
        proxy.advance_to(opened);
        let reset = seconds(end);
        let wait = reset - seconds(opened);
        let asked = proxy.get_as("alice");
        asked.assert_status(200);
        assert_eq!(asked.number("x-ratelimit-reset"), reset, "{unit} of {zone} at {opened}");
        let denied = proxy.get_as("alice");
        assert_eq!(denied.number("retry-after"), wait, "{unit} of {zone} at {opened}");
        proxy.advance_to(end);
        proxy.turn_back(MICROSECOND);
        assert_eq!(proxy.get_as("alice").status, 429, "{unit} of {zone} before {end}");
        proxy.advance(MICROSECOND);
        assert_eq!(proxy.get_as("alice").status, 200, "{unit} of {zone} at {end}");
    }
}

#[test]
fn windows_of_the_calendar_go_together() {
    let upstream = Upstream::start();
    let fields = "rate: [2/day, 3/month], align: calendar, timezone: Europe/Berlin";
    let proxy = Proxy::start(&Policy::before(&upstream).core(fields));
    proxy.advance_to("2026-10-30T12:00:00Z");
    for _ in 0..2 {
        proxy.get_as("alice").assert_status(200);
    }
    let midnight = seconds("2026-10-30T23:00:00Z").to_string();
    proxy.get_as("alice").assert_status(429).assert_field("x-ratelimit-reset", &midnight);
    proxy.advance_to("2026-10-31T12:00:00Z");
    proxy.get_as("alice").assert_status(200);
    let november = seconds("2026-10-31T23:00:00Z").to_string();
    proxy.get_as("alice").assert_status(429).assert_field("x-ratelimit-reset", &november);
    proxy.advance_to("2026-10-31T23:00:00Z");
    proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-used", "1");
}
