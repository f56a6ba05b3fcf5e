//! Measures, candidates and overrides: quotas, names and counter ids.

use std::time::Duration;

use tollgate_limit::{
    Align, Calendar, CalendarUnit, Concurrency, FixedWindow, Gcra, LimitId, Quota, SlidingLog,
    SlidingWindow, TokenBucket,
};

use super::{SECOND, limit, policy};
use crate::{Allowances, CallerName, KeyPart, KeyValue, Override, Wanted};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

fn quotas(allowances: &Allowances) -> Vec<Quota> {
    allowances.iter().map(|allowance| allowance.quota.clone()).collect()
}

fn fixed(limit: u32, length: Duration) -> Quota {
    Quota::FixedWindow(FixedWindow { limit, align: Align::FirstRequest(length) })
}

#[test]
fn each_example_of_a_measure_in_the_schema_is_one() {
    let schema = serde_json::to_value(crate::schema()).unwrap();
    let candidate = schema.pointer("/$defs/candidate/description").and_then(|text| text.as_str());
    let (_, examples) = candidate.unwrap().split_once("```yaml\n").unwrap();
    let (examples, _) = examples.split_once("```").unwrap();
    assert!(examples.lines().count() >= 9, "{examples}");
    for example in examples.lines() {
        let measure = example.split(" #").next().unwrap().trim();
        let fields = measure.strip_prefix("{ ").and_then(|rest| rest.strip_suffix(" }"));
        let fields = fields.unwrap_or_else(|| panic!("{example}"));
        assert!(!limit(fields).rates[0].is_empty(), "{example}");
    }
}

#[test]
fn measures_become_quotas() {
    let calendar = |limit, unit, zone| {
        let align = Align::Calendar(Calendar::new(unit, zone).unwrap());
        Quota::FixedWindow(FixedWindow { limit, align })
    };
    let epoch =
        |limit, length| Quota::FixedWindow(FixedWindow { limit, align: Align::Epoch(length) });
    let gcra = |limit, burst| Quota::Gcra(Gcra::new(limit, MINUTE, burst, burst).unwrap());
    let bucket = |capacity, refill, interval, strict| {
        Quota::TokenBucket(TokenBucket { capacity, refill, interval, even: true, strict })
    };
    let in_lumps = |capacity, refill, interval| {
        let (even, strict) = (false, false);
        Quota::TokenBucket(TokenBucket { capacity, refill, interval, even, strict })
    };
    let leases =
        |limit, lease, retry_after| Quota::Concurrency(Concurrency { limit, lease, retry_after });
    for (fields, expected) in [
        ("rate: 5000/hour", fixed(5000, HOUR)),
        ("rate: 5000/hour, algorithm: fixed_window, align: first_request", fixed(5000, HOUR)),
        ("rate: 10/90s, align: epoch", epoch(10, Duration::from_secs(90))),
        ("rate: 10/60m, align: calendar", calendar(10, CalendarUnit::Hour, "UTC")),
        ("rate: 10/24h, align: calendar", calendar(10, CalendarUnit::Day, "UTC")),
        ("rate: 10/7d, align: calendar", calendar(10, CalendarUnit::Week, "UTC")),
        (
            "rate: 10/month, align: calendar, timezone: Europe/Berlin",
            calendar(10, CalendarUnit::Month, "Europe/Berlin"),
        ),
        ("rate: 10/year, align: calendar", calendar(10, CalendarUnit::Year, "UTC")),
        (
            "rate: 10/minute, algorithm: sliding_window",
            Quota::SlidingWindow(SlidingWindow::new(10, MINUTE).unwrap()),
        ),
        (
            "rate: 10000/minute, algorithm: sliding_log",
            Quota::SlidingLog(SlidingLog { limit: 10_000, window: MINUTE }),
        ),
        ("rate: 30/minute, algorithm: gcra", gcra(30, 30)),
        ("rate: 30/minute, algorithm: gcra, burst: 10", gcra(30, 10)),
        ("rate: 0/minute, algorithm: gcra, burst: 10", gcra(0, 0)),
        ("rate: 10/second, algorithm: token_bucket", bucket(10, 10, SECOND, false)),
        (
            "rate: 10/second, algorithm: token_bucket, capacity: 5_0, strict: true",
            bucket(50, 10, SECOND, true),
        ),
        ("rate: 0/second, algorithm: token_bucket, capacity: 50", bucket(0, 0, SECOND, false)),
        (
            "refill: { amount: 3, interval: 1h }, algorithm: token_bucket, capacity: 50",
            in_lumps(50, 3, HOUR),
        ),
        ("concurrent: 20", leases(20, MINUTE, SECOND)),
        (
            "concurrent: 20, algorithm: concurrency, lease: 5m, retry_after: 10s",
            leases(20, 5 * MINUTE, 10 * SECOND),
        ),
    ] {
        let limit = limit(fields);
        for tier in &limit.rates {
            assert_eq!(quotas(tier), std::slice::from_ref(&expected), "{fields}");
        }
    }
}

#[test]
fn tiers_have_their_own_numbers_and_the_rest_the_default() {
    let core = limit("rate: { anonymous: 60/hour, pro: unlimited, default: [9/hour, 5/second] }");
    assert_eq!(quotas(&core.rates[0]), [fixed(60, HOUR)]);
    assert_eq!(quotas(&core.rates[1]), [fixed(5, SECOND), fixed(9, HOUR)]);
    assert_eq!(quotas(&core.rates[2]), []);

    let leases = limit("concurrent: { pro: unlimited, default: 7 }");
    assert_eq!(leases.rates.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 0]);

    let burst = limit("algorithm: gcra, rate: 30/minute, burst: { pro: 20, default: 5 }");
    let capacity = |tier: &Allowances| tier[0].quota.capacity();
    assert_eq!(burst.rates.iter().map(capacity).collect::<Vec<_>>(), [5, 5, 20]);
}

#[test]
fn windows_are_sorted_and_all_but_the_longest_have_names_of_their_own() {
    let core = limit("rate: [5000/hour, 10/second, 100/1500ms, 70/10m]");
    let rates: Vec<(&str, Option<u64>, &str)> = core.rates[1]
        .iter()
        .map(|window| (&*window.name, window.window_secs, window.limit.to_str().unwrap()))
        .collect();
    assert_eq!(
        rates,
        [
            ("core-1s", Some(1), "10"),
            ("core-1500ms", Some(2), "100"),
            ("core-10m", Some(600), "70"),
            ("core", Some(3600), "5000"),
        ]
    );
    for (fields, seconds) in [
        ("concurrent: 5", None),
        ("rate: 5/month, align: calendar", Some(31 * 86_400)),
        ("rate: 5/year, align: calendar", Some(366 * 86_400)),
        // What comes back in one interval is not what can be used at once.
        ("rate: 5/second, capacity: 60, algorithm: token_bucket", Some(12)),
        ("rate: 30/minute, burst: 10, algorithm: gcra", Some(20)),
    ] {
        let only = &limit(fields).rates[0][0];
        assert_eq!((&*only.name, only.window_secs), ("core", seconds), "{fields}");
    }
}

#[test]
fn ways_of_counting_have_ids_of_their_own_and_rates_have_none() {
    let id = |fields: &str| limit(fields).rates[0][0].id;
    let of = |tag: &str, micros| LimitId::new("api", "core", tag, micros);
    let minute = 60_000_000;
    for (fields, expected) in [
        ("rate: 5/minute", of("fixed_window", minute)),
        ("rate: 9/60s", of("fixed_window", minute)),
        ("rate: 5/minute, align: epoch", of("fixed_window epoch", minute)),
        ("rate: 5/day, align: calendar", of("fixed_window day UTC", 0)),
        (
            "rate: 5/month, align: calendar, timezone: Asia/Kathmandu",
            of("fixed_window month Asia/Kathmandu", 0),
        ),
        ("rate: 5/minute, algorithm: sliding_window", of("sliding_window", minute)),
        ("rate: 5/minute, algorithm: sliding_log", of("sliding_log", minute)),
        ("rate: 5/minute, algorithm: gcra", of("gcra", minute)),
        ("rate: 5/minute, algorithm: gcra, burst: 2", of("gcra", minute)),
        ("rate: 5/minute, algorithm: token_bucket", of("token_bucket", minute)),
        (
            "refill: { amount: 2, interval: 1m }, capacity: 9, algorithm: token_bucket",
            of("token_bucket", minute),
        ),
        ("concurrent: 5", of("concurrency", 0)),
        ("concurrent: 6, lease: 2m", of("concurrency", 0)),
    ] {
        assert_eq!(id(fields), expected, "{fields}");
    }
}

#[test]
fn candidates_are_the_limit_with_changes_and_counters_of_their_own() {
    let limit = limit(
        "rate: { anonymous: 6/day, default: 9/day }, align: calendar, timezone: Europe/Berlin, \
         candidate: { rate: 5/month }",
    );
    let calendar = Calendar::new(CalendarUnit::Month, "Europe/Berlin").unwrap();
    let expected = Quota::FixedWindow(FixedWindow { limit: 5, align: Align::Calendar(calendar) });
    assert_eq!(limit.candidate.len(), 3);
    for tier in &limit.candidate {
        assert_eq!(quotas(tier), std::slice::from_ref(&expected));
    }
    let same = super::limit("rate: 9/day, candidate: { rate: 9/day }");
    assert_eq!(
        same.candidate[0][0].id,
        LimitId::new("api", "core", "candidate fixed_window", 86_400_000_000)
    );
    assert_ne!(same.candidate[0][0].id, same.rates[0][0].id);
}

#[test]
fn candidate_by_another_algorithm_takes_nothing_but_what_it_says() {
    let limit = limit(
        "rate: 60/minute, align: epoch, candidate: { rate: 60/minute, algorithm: gcra, burst: 3 }",
    );
    let expected = Quota::Gcra(Gcra::new(60, MINUTE, 3, 3).unwrap());
    assert_eq!(quotas(&limit.candidate[0]), [expected]);
}

/// Overrides of a limit, whose fields besides the caller are given.
fn overrides(limit: &str, fields: &str) -> Vec<Override> {
    let policy = policy(&format!(
        "limits: {{ core: {{ per: caller, {limit} }} }}\n\
         overrides: [{{ caller: \"user:a:b\", limit: core, why: test, {fields} }}]"
    ));
    policy.limits[0].overrides.0.clone()
}

#[test]
fn override_keeps_the_counter_and_changes_the_number() {
    let limit = limit("rate: { anonymous: 60/hour, default: 5000/hour }");
    let own = &overrides(
        "rate: { anonymous: 60/hour, default: 5000/hour }",
        "rate: 9/hour, until: 2026-12-31",
    )[0];
    assert_eq!(quotas(&own.allowances), [fixed(9, HOUR)]);
    assert_eq!(own.allowances[0].id, limit.rates[1][0].id);
    let name = CallerName { kind: "user".into(), value: "a:b".into(), issuer: None, tenant: None };
    assert_eq!(own.of, [KeyValue { part: KeyPart::Caller, value: Wanted::Caller(name) }]);
    assert_eq!(&*own.why, "test");
}

#[test]
fn override_takes_what_it_does_not_say_from_the_limit() {
    for (limit, fields, expected) in [
        (
            "rate: 30/minute, algorithm: gcra, burst: { pro: 7, default: 5 }",
            "rate: 60/minute",
            Quota::Gcra(Gcra::new(60, MINUTE, 5, 5).unwrap()),
        ),
        (
            "rate: 30/minute, algorithm: gcra",
            "burst: 50",
            Quota::Gcra(Gcra::new(30, MINUTE, 50, 50).unwrap()),
        ),
        (
            "refill: { amount: 3, interval: 1s }, capacity: 5, algorithm: token_bucket",
            "capacity: 6",
            Quota::TokenBucket(TokenBucket {
                capacity: 6,
                refill: 3,
                interval: SECOND,
                even: false,
                strict: false,
            }),
        ),
        (
            "concurrent: { pro: 9, anonymous: 1, free: 2 }, lease: 5m",
            "concurrent: 50",
            Quota::Concurrency(Concurrency { limit: 50, lease: 5 * MINUTE, retry_after: SECOND }),
        ),
    ] {
        let own = overrides(limit, &format!("until: 2026-12-31, {fields}"));
        assert_eq!(quotas(&own[0].allowances), [expected], "{limit}");
    }
    let unlimited = overrides("rate: 5/hour", "rate: unlimited, until: 2026-12-31");
    assert!(unlimited[0].allowances.is_empty());
}

#[test]
fn override_lasts_to_the_end_of_its_day() {
    for (until, expected) in [
        ("2026-12-31", "2027-01-01T00:00:00.000Z"),
        ("2028-02-28", "2028-02-29T00:00:00.000Z"),
        ("2026-12-31T18:00:00Z", "2026-12-31T18:00:00.000Z"),
        ("2026-12-31T18:00:00.5+02:00", "2026-12-31T16:00:00.500Z"),
    ] {
        let own = overrides("rate: 5/hour", &format!("rate: 6/hour, until: \"{until}\""));
        assert_eq!(own[0].until.unwrap().to_string(), expected);
    }
    assert_eq!(overrides("rate: 5/hour", "rate: 6/hour")[0].until, None);
}

#[test]
fn sliding_window_of_few_is_noted() {
    for (fields, few) in [
        ("rate: 1/10s, algorithm: sliding_window", Some("1/10s")),
        ("rate: [100/hour, 5/minute], algorithm: sliding_window", Some("5/1m")),
        ("rate: { pro: 5/minute, default: 90/minute }, algorithm: sliding_window", Some("5/1m")),
        ("rate: 90/minute, candidate: { rate: 9/hour, algorithm: sliding_window }", Some("9/1h")),
        ("rate: 10/minute, algorithm: sliding_window", None),
        ("rate: 0/minute, algorithm: sliding_window", None),
        ("rate: 1/10s, algorithm: sliding_log", None),
    ] {
        let text = format!("limits: {{ few: {{ per: client.ip, {fields} }} }}\n");
        let notes = policy(&text).notes;
        let note = notes.iter().find(|note| note.contains("sliding_log"));
        assert_eq!(note.is_some(), few.is_some(), "{fields}: {note:?}");
        if let (Some(note), Some(few)) = (note, few) {
            let text = format!(": limit few denies some callers that stay below {few}:");
            assert!(note.contains(&text) && note.starts_with("api.yaml:"), "{note}");
        }
    }
}
