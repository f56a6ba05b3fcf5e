//! Made-up reports for tests: one as it often is, one with nothing, one that is as large as they
//! get, and one whose names are attacks.

use std::collections::BTreeMap;

use crate::{
    Against, BadLine, CallerChange, Curve, CurvePoint, FileRead, LimitAnswer, Moment, Need,
    Outcome, Read, Report, Timeline, WorstCaller,
};

/// Text that ends every kind of context early, or drives what shows it.
pub(in crate::report) const HOSTILE: &str =
    "</td><script>alert(1)</script>'\"&|`@octocat #1 \u{1b}[31m\u{202e}evil\n| a | <!--";

/// A curve of 1,000 callers with a request each for every one that is denied.
pub(in crate::report) fn curve<const N: usize>(
    limit: &str,
    window: u64,
    points: [(u32, u64); N],
) -> Curve {
    curve_of(limit, window, &points)
}

fn curve_of(limit: &str, window_seconds: u64, points: &[(u32, u64)]) -> Curve {
    let point = |(allows, denied): &(u32, u64)| CurvePoint {
        allows: *allows,
        callers_denied: *denied,
        callers_share: *denied as f64 / 1_000.0,
        requests_denied: denied * 7,
        requests_share: *denied as f64 / 5_000.0,
    };
    Curve {
        limit: limit.into(),
        tier: "default".into(),
        window_seconds,
        is_exact: true,
        shares_counters: false,
        present: 60,
        suggested: 100,
        suggested_with_outliers: 100,
        outliers: Vec::new(),
        outlier_callers: 0,
        refused_callers: 0,
        doubt: None,
        callers: 1_000,
        requests: 35_000,
        points: points.iter().map(point).collect(),
    }
}

/// Falling as those of real callers do: most ask little, a few ask very much.
fn falling(limit: &str, window_seconds: u64, points: u32, most: f64) -> Curve {
    let points: Vec<(u32, u64)> = (0..points)
        .map(|at| {
            let part = f64::from(at) / f64::from(points - 1);
            let allows = most.powf(part).round() as u32;
            (allows, (1_000.0 * (1.0 - part).powf(4.0)).floor() as u64)
        })
        .collect();
    let mut points: Vec<(u32, u64)> = points;
    points.dedup_by_key(|point| point.0);
    curve_of(limit, window_seconds, &points)
}

fn limit(name: &str, mode: &str, window_seconds: u64, allows: u32, denied: u64) -> LimitAnswer {
    LimitAnswer {
        limit: name.into(),
        tier: "default".into(),
        mode: mode.into(),
        algorithm: "fixed_window".into(),
        window_seconds: Some(window_seconds),
        allows,
        requests: 1_234_567,
        denied,
        denied_share: denied as f64 / 1_234_567.0,
        callers: 10_234,
        callers_denied: denied / 1_000,
        longest_lockout_seconds: 7_500.0,
        not_judged: 0,
    }
}

/// As reports often are.
pub(in crate::report) fn report() -> Report {
    let mut curves = vec![falling("core", 3_600, 300, 9_000.0), falling("search", 60, 60, 240.0)];
    curves.push(Curve { present: 40, is_exact: false, ..curves[1].clone() });
    curves[0].present = 1_000;
    curves[0].suggested = 5_000;
    let worst = |at: u64| WorstCaller {
        caller: format!("user:{}", 1_000 + at * 37),
        tier: "default".into(),
        limit: "core".into(),
        requests: 40_000 / at,
        denied: 4_000 / at,
        denied_share: 0.1,
        first_denied: format!("2026-03-02T{at:02}:05:09Z"),
        explain: format!("tollgate explain --address 192.0.2.{at} GET 'https://a.test/v1/{at}'"),
    };
    let change = |caller: &str, denied, denied_against| CallerChange {
        caller: caller.into(),
        requests: 4_000,
        denied,
        denied_against,
    };
    let moment = |at: u64| {
        let day = (at as f64 / 24.0 * std::f64::consts::TAU).sin();
        let requests = (6_000.0 + 3_000.0 * day).round() as u64;
        let denied = if at % 24 > 18 { requests / 12 } else { requests / 400 };
        Moment { requests, denied, would_deny: denied / 2 }
    };
    Report {
        version: 1,
        read: Read {
            skipped: std::collections::BTreeMap::new(),
            files: vec![FileRead {
                file: "access.log.gz".into(),
                format: "combined".into(),
                lines: 1_234_600,
                bad: 33,
                grain_seconds: 1.0,
            }],
            lines: 1_234_600,
            requests: 1_234_567,
            bad: 33,
            bad_lines: vec![BadLine {
                file: "access.log.gz".into(),
                line: 77_123,
                reason: "the time is missing".into(),
                text: "192.0.2.1 - - \"GET /".into(),
            }],
            reordered: 12,
            late: 0,
            first: Some("2026-03-01T00:00:02Z".into()),
            last: Some("2026-03-07T23:59:58Z".into()),
            seconds: 604_796.0,
            took_seconds: 1.9,
        },
        notes: vec![
            "The log does not name users: callers are addresses, and those behind one NAT count as one."
                .into(),
            "Clients that would have waited and tried again are counted as they were, so the share \
             of denied requests is too high rather than too low."
                .into(),
        ],
        outcome: Outcome {
            requests: 1_234_567,
            admitted: 1_222_000,
            denied: 12_345,
            denied_share: 12_345.0 / 1_234_567.0,
            would_deny: 2_001,
            refused: BTreeMap::from([("no route".into(), 222)]),
            denied_in_log: 17,
            callers: 10_234,
            callers_denied: 12,
        },
        limits: vec![
            limit("core", "enforce", 3_600, 1_000, 12_001),
            limit("search", "enforce", 60, 60, 344),
            limit("search", "candidate", 60, 40, 2_001),
            LimitAnswer {
                window_seconds: None,
                not_judged: 5,
                ..limit("parallel", "shadow", 0, 10, 0)
            },
        ],
        worst: (1..=10).map(worst).collect(),
        curves,
        timeline: Timeline {
            begins: "2026-03-01T00:00:00Z".into(),
            bucket_seconds: 3_600,
            buckets: (0..168).map(moment).collect(),
        },
        against: Some(Against {
            policies: "config/policies".into(),
            denied: 20_000,
            denied_by_these: 12_345,
            denied_share: 0.0162,
            callers_better: 31,
            callers_worse: 2,
            callers_same: 10_201,
            better: vec![change("user:1037", 400, 900)],
            worse: vec![change("address:192.0.2.9", 12, 0)],
        }),
        store: Need {
            peak_keys: 4_321,
            memory_bytes: 1_572_864,
            peak_redis_calls_per_second: 212,
            mean_redis_calls_per_second: 2.04,
        },
    }
}

/// Of an empty file, judged by policies without a limit.
pub(in crate::report) fn nothing() -> Report {
    Report {
        version: 1,
        read: Read::default(),
        notes: Vec::new(),
        outcome: Outcome::default(),
        limits: Vec::new(),
        worst: Vec::new(),
        curves: Vec::new(),
        timeline: Timeline::default(),
        against: None,
        store: Need::default(),
    }
}

/// A hundred limits with curves of a thousand points, and as many buckets as there may be.
pub(in crate::report) fn large() -> Report {
    let mut report = report();
    let name = |at: u32| format!("limit-with-a-long-name-{at:03}");
    report.curves = (0..100).map(|at| falling(&name(at), 3_600, 2_000, 3_000_000.0)).collect();
    for curve in &mut report.curves {
        curve.points.truncate(1_000);
    }
    report.limits = (0..100).map(|at| limit(&name(at), "enforce", 3_600, 60, 12_001)).collect();
    let moment = |at| Moment { requests: 1_000_000 + at * 7_919, denied: at * at, would_deny: at };
    report.timeline.buckets = (0..240).map(moment).collect();
    report
}

/// Attacks wherever a client or a file can put text.
pub(in crate::report) fn hostile() -> Report {
    let mut report = report();
    let text = || HOSTILE.to_owned();
    report.notes.push(text());
    report.read.files[0].file = text();
    report.read.bad_lines[0] = BadLine { file: text(), line: 1, reason: text(), text: text() };
    report.outcome.refused.insert(text(), 3);
    report.limits[0].limit = text();
    report.limits[0].tier = text();
    report.curves[0].limit = text();
    report.curves[0].tier = text();
    report.worst[0].caller = text();
    report.worst[0].limit = text();
    report.worst[0].first_denied = text();
    report.worst[0].explain = text();
    report.timeline.begins = text();
    if let Some(against) = &mut report.against {
        against.policies = text();
        against.better[0].caller = text();
        against.worse[0].caller = text();
    }
    report
}

/// Numbers that a mistake in a division makes.
pub(in crate::report) fn broken() -> Report {
    let mut report = report();
    report.read.took_seconds = 0.0;
    report.read.seconds = f64::NAN;
    report.outcome.callers = 0;
    report.outcome.denied_share = f64::NAN;
    report.limits[0].denied_share = f64::INFINITY;
    report.limits[0].longest_lockout_seconds = f64::INFINITY;
    report.limits[0].requests = 0;
    report.store.mean_redis_calls_per_second = f64::NAN;
    for point in &mut report.curves[0].points {
        (point.callers_share, point.requests_share) = (f64::NAN, f64::INFINITY);
    }
    report.curves[1].points.truncate(1);
    report.timeline.bucket_seconds = 0;
    report
}
