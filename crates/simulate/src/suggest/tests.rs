//! Logs of every kind, and the policies that are made of them.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::PathBuf};

use tempfile::TempDir;

use super::*;
use crate::{Curve, Report};

/// A log in a folder of its own.
struct Log {
    _folder: TempDir,
    file: PathBuf,
}

impl Log {
    fn new(text: &str) -> Log {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("access.log");
        fs::write(&file, text).unwrap();
        Log { _folder: folder, file }
    }

    fn read(&self) -> ReadOptions {
        ReadOptions { files: vec![self.file.clone()], ..ReadOptions::default() }
    }

    fn suggest(&self) -> Result<String, SimulationError> {
        suggest(&self.read(), &[], None, &mut |_| {})
    }

    /// The policy that is suggested, and what it would do.
    fn simulated(&self) -> (String, Report) {
        let text = self.suggest().unwrap_or_else(|error| panic!("{error}"));
        let policies = Policies::new(vec![parse(&text).unwrap()]);
        let candidate = PolicySet { policies: &policies, settings: None, name: NAME };
        let simulation = Simulation {
            read: self.read(),
            callers: Vec::new(),
            host: None,
            candidate,
            against: None,
        };
        let report = simulation.run(&mut |_| {}).unwrap();
        assert_eq!(report.outcome.denied, 0, "{text}");
        (text, report)
    }
}

/// A combined log of these paths, each of them several times.
fn combined(paths: &[&str]) -> Log {
    let mut text = String::new();
    for at in 0..paths.len() * 20 {
        let (hour, minute, second) = (8 + at / 3600, at / 60 % 60, at % 60);
        let path = paths[at % paths.len()];
        let _ = writeln!(
            text,
            "192.0.2.{} - - [21/Nov/2026:{hour:02}:{minute:02}:{second:02} +0000] \"GET {path} HTTP/1.1\" \
             200 5 \"-\" \"x\"",
            at % 7
        );
    }
    Log::new(&text)
}

/// A log of tollgate: caller, tier and facts of each request, each of them several times.
fn own(requests: &[(&str, &str, &str)]) -> Log {
    let mut text = String::new();
    for at in 0..requests.len() * 20 {
        let (caller, tier, facts) = requests[at % requests.len()];
        let (minute, second) = (at / 60 % 60, at % 60);
        let _ = writeln!(
            text,
            "{{\"time\":\"2026-11-20T08:{minute:02}:{second:02}.000Z\",\"request_id\":\"a\",\
             \"client\":\"192.0.2.7\",\"caller\":\"{caller}\",\"tier\":\"{tier}\",\
             \"method\":\"GET\",\"host\":\"a\",\"path\":\"/a\",\"route\":\"/**\",\"status\":200,\
             \"exempt\":false,\"denied\":null,\"limits\":[],\"facts\":{facts},\"total_ms\":1.0}}"
        );
    }
    Log::new(&text)
}

/// The tiers of a limit that were used.
fn tiers(report: &Report) -> BTreeSet<&str> {
    report.limits.iter().filter(|it| it.requests > 0).map(|it| it.tier.as_str()).collect()
}

#[test]
fn tier_of_a_policy_without_tiers_is_left_out() {
    let (text, report) =
        own(&[("user:1", "default", "{}"), ("user:2", "default", "{}")]).simulated();
    assert!(!text.contains("tiers:"), "{text}");
    assert_eq!((report.outcome.refused.len(), report.outcome.callers), (0, 2));
    let (text, _) = own(&[("user:1", "default", "{}"), ("user:2", "pro", "{}")]).simulated();
    assert!(text.contains("tiers: { default: pro, names: [pro] }"), "{text}");
}

#[test]
fn callers_of_several_issuers_are_all_known() {
    let log = own(&[
        ("main/user:1", "free", r#"{"issuer":"https://a/"}"#),
        ("other/user:1", "free", r#"{"issuer":"https://b/"}"#),
    ]);
    let (text, report) = log.simulated();
    assert!(text.contains("{ name: user, key: jwt.sub, tier: jwt.plan }"), "{text}");
    assert!(text.contains("name: main\n      issuer: \"https://a/\""), "{text}");
    assert!(text.contains("name: other\n      issuer: \"https://b/\""), "{text}");
    assert!(report.outcome.refused.is_empty(), "{:?}", report.outcome.refused);
    assert!(report.limits.iter().all(|limit| limit.callers == 2), "{:?}", report.limits);
    // As tollgate's own log has them.
    let log = own(&[
        ("user:1", "free", r#"{"issuer":"https://a/"}"#),
        ("user:1", "free", r#"{"issuer":"https://b/"}"#),
    ]);
    let (text, report) = log.simulated();
    assert!(report.limits.iter().all(|limit| limit.callers == 2), "{text}");
}

#[test]
fn callers_by_api_keys_are_no_issuer() {
    let (text, report) = own(&[("app:k1", "free", r#"{"issuer":"api_keys:x"}"#)]).simulated();
    assert!(!text.contains("api_keys:x") && text.contains("it needs `api_keys`"), "{text}");
    assert!(report.outcome.refused.is_empty(), "{:?}", report.outcome.refused);
}

#[test]
fn addresses_keep_their_tier() {
    let log = own(&[
        ("user:1", "free", "{}"),
        ("anonymous:192.0.2.7", "anonymous", "{}"),
        ("anonymous:192.0.2.8", "anonymous", "{}"),
    ]);
    let (text, report) = log.simulated();
    let entry = "{ name: anonymous, key: client.ip, tier: anonymous }";
    assert!(text.contains(entry), "{text}");
    assert!(text.contains("tiers: { default: free, names: [free, anonymous] }"), "{text}");
    assert_eq!(tiers(&report), BTreeSet::from(["anonymous", "free"]));
    assert!(text.contains("20 requests, 1 caller of tier free;"), "{text}");
}

#[test]
fn any_name_of_a_caller_gives_a_policy() {
    let kinds =
        ["anonymous:ada", "null:1", "1e3:1", "-:x", "no one:4", "a/b/c:4", "yes:1", "ip:::1"];
    let requests: Vec<(&str, &str, &str)> = kinds
        .into_iter()
        .zip(["null", "true", "0x10", "-1", "two words", "", "é", "~"])
        .map(|(kind, tier)| (kind, tier, r#"{"issuer":"${HOME}"}"#))
        .collect();
    let (text, _) = own(&requests).simulated();
    for (kind, tier, facts) in requests {
        own(&[(kind, tier, facts)]).simulated();
    }
    assert!(text.contains("name: anonymous, key: jwt.") && text.contains("name: ip,"), "{text}");
}

#[test]
fn any_path_gives_a_policy() {
    let paths = [
        "/..",
        "/.",
        "/a/../b",
        "/null",
        "/true",
        "/No",
        "/~",
        "/1e3",
        "/0x10",
        "/2026-11-21",
        "/default",
        "/core",
        "/core-2",
        "/core-hour",
        "/x",
        "/x/minute",
        "/x/hour",
        "/-",
        "/--",
        "/...",
        "/.well-known/x",
        "/{a}",
        "/*",
        "/**",
        "/a:",
        "/#",
        "/\\",
        "/%61",
        "/%zz",
        "/%00",
        "/a%2Fb",
        "//",
        "//a",
        "/a;x=1",
        "/ä",
        "*",
        "/nan",
        "/unlimited",
        "/api",
        "/v1",
        "/rate_limit",
        "/a/b/c/d/e/f/g/h/i/j/k",
    ];
    combined(&paths).simulated();
    for path in paths {
        combined(&["/other", path, path]).simulated();
        // Some of these are no requests.
        let found = combined(&[path]).suggest();
        let is_empty = matches!(found, Err(SimulationError::NoRequest));
        assert!(is_empty || found.is_ok(), "{path}: {found:?}");
    }
}

#[test]
fn names_that_yaml_reads_as_something_else_are_quoted() {
    let (text, report) = combined(&["/null", "/x"]).simulated();
    assert!(text.contains("limits: [core, \"null\"]"), "{text}");
    let names: BTreeSet<&str> = report.limits.iter().map(|it| it.limit.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["core", "null", "x"]));
}

#[test]
fn evidence_of_a_deep_path_is_that_of_its_requests() {
    let (text, report) = combined(&["/a/b/c/d/e/f/g/h/i/j"]).simulated();
    assert!(text.contains("/a/b/c/d/e/f/g/h/** has 100.0 % of the requests"), "{text}");
    assert!(!text.contains("nobody used it"), "{text}");
    assert!(report.limits.iter().all(|limit| limit.requests == 20), "{:?}", report.limits);
}

#[test]
fn what_cannot_be_read_twice_is_refused() {
    let read = |file: &str| ReadOptions { files: vec![file.into()], ..ReadOptions::default() };
    for file in ["-", "/dev/null"] {
        let found = suggest(&read(file), &[], None, &mut |_| {});
        assert!(matches!(found, Err(SimulationError::NotTwice)), "{file}: {found:?}");
    }
    let found = suggest(&read("/nowhere"), &[], None, &mut |_| {});
    assert!(matches!(found, Err(SimulationError::History(_))), "{found:?}");
}

#[test]
fn log_without_requests_suggests_nothing() {
    let found = Log::new("").suggest();
    assert!(matches!(found, Err(SimulationError::NoRequest)), "{found:?}");
}

#[test]
fn requests_that_no_limit_counts_are_said_at_the_top() {
    let (text, _) = combined(&["/a", "/%zz"]).simulated();
    let note =
        "# - 20 of the requests are in no number here, because they would be refused before limits";
    assert!(text.contains(note), "{text}");
}

#[test]
fn kind_that_no_policy_can_have_is_said() {
    let callers = [CallerField { kind: "my user".to_owned(), field: "remote_user".to_owned() }];
    let log = combined(&["/a"]);
    let found = suggest(&log.read(), &callers, None, &mut |_| {});
    assert!(found.unwrap_err().to_string().contains("`my user`"));
}

#[test]
fn progress_goes_on_in_the_second_reading() {
    let paths: Vec<String> = (0..1500).map(|number| format!("/a/{number}")).collect();
    let log = combined(&paths.iter().map(String::as_str).collect::<Vec<_>>());
    let mut seen: Vec<(u64, u64)> = Vec::new();
    let mut most = 0;
    let mut progress = |now: Progress| {
        seen.push((now.requests, now.bytes));
        most = now.all_bytes.unwrap();
    };
    suggest(&log.read(), &[], None, &mut progress).unwrap();
    assert!(seen.len() >= 4 && seen.is_sorted(), "{seen:?}");
    let half = fs::metadata(&log.file).unwrap().len();
    assert_eq!(most, 2 * half);
    assert!(seen.last().is_some_and(|(_, bytes)| *bytes > half && *bytes <= most), "{seen:?}");
}

#[test]
fn what_needs_no_limit_gets_none() {
    let (text, report) =
        combined(&["/v1/items", "/healthz", "/static/app.css", "/rate_limit"]).simulated();
    let limits: BTreeSet<&str> = report.limits.iter().map(|row| row.limit.as_str()).collect();
    assert_eq!(limits, BTreeSet::from(["core", "items"]), "{text}");
    for path in ["/healthz", "/static/**"] {
        assert!(
            text.contains(&format!("path: \"{path}\" }}, auth: none, limits: [] }}")),
            "{text}"
        );
    }
    assert!(!text.contains("/rate_limit"), "{text}");
    assert!(text.contains("/v1/items has 25.0 % of the requests"), "{text}");
}

#[test]
fn route_of_one_item_and_route_of_all_have_different_names() {
    let items: Vec<String> = (0..40).map(|item| format!("/items/{item}")).collect();
    let mut paths: Vec<&str> = items.iter().map(String::as_str).collect();
    paths.extend(["/items"; 20]);
    let text = combined(&paths).suggest().unwrap();
    assert!(text.contains("limits: [core, items] }") && !text.contains("items-2"), "{text}");
    assert!(text.contains("limits: [core, items-one] }"), "{text}");
}

#[test]
fn the_default_tier_is_the_one_that_uses_least() {
    let mut requests = vec![("user:1", "free", "{}"); 3];
    requests.extend([("user:2", "pro", "{}"); 30]);
    let text = own(&requests).suggest().unwrap();
    assert!(text.contains("tiers: { default: free, names: [pro, free] }"), "{text}");
}

/// Sixty clients who read, and ask for `route` now and then; and one that asks for it 2,500 times
/// in an hour, with this status.
fn attacked(route: &str, status: u16) -> Log {
    let mut text = String::new();
    let mut line = |second: u64, client: &str, request: &str, status: u16| {
        let (minute, second) = (second / 60, second % 60);
        let _ = writeln!(
            text,
            "{client} - - [21/Nov/2026:{:02}:{:02}:{second:02} +0000] \"{request} HTTP/1.1\" \
             {status} 5 \"-\" \"x\"",
            8 + minute / 60,
            minute % 60
        );
    };
    for second in 0..10_800 {
        let client = format!("198.51.100.{}", second / 9 % 60);
        if second % 9 == 0 {
            line(second, &client, &format!("GET /items/{second}"), 200);
        }
        if second % 90 == 45 {
            let client = format!("198.51.100.{}", second / 90 % 60);
            line(second, &client, &format!("POST {route}"), 200);
        }
        if (3600..6100).contains(&second) {
            line(second, "203.0.113.66", &format!("POST {route}"), status);
        }
    }
    Log::new(&text)
}

#[test]
fn attack_makes_no_limit_and_its_caller_is_named() {
    let (text, report) = attacked("/items/search", 200).simulated();
    for (peak, with) in [("60 in a minute", "60/minute"), ("2500 in an hour", "2500/hour")] {
        let note = format!(
            "  # OUTLIERS, not in this number: anonymous:203.0.113.66 ({peak}), far more than all \
             others. With them it would be {with}."
        );
        assert_eq!(text.matches(&note).count(), 2, "{text}");
    }
    let curve = report.curves.iter().find(|own| own.limit == "core" && own.window_seconds == 3600);
    let curve = curve.unwrap();
    assert!(curve.suggested <= 30, "{}", curve.suggested);
    assert_eq!((curve.suggested_with_outliers, curve.outlier_callers), (2500, 1));
    assert!(!text.contains("[150/minute") && !text.contains("rate: [60/minute"), "{text}");
}

#[test]
fn only_failures_count_where_most_credentials_do_not_pass() {
    for route in ["/login", "/v1/token", "/door"] {
        let (text, report) = attacked(route, 401).simulated();
        let limit = "    per: client.ip\n    rate: [10/minute, 30/hour]\n    count_when: { status: [401, 403] }\n    mode: shadow";
        assert!(text.contains(limit), "{text}");
        let of_route = report.limits.iter().find(|own| own.limit != "core" && own.denied > 0);
        assert_eq!(of_route.map(|own| own.callers), Some(61), "{text}");
    }
    // Most requests of all clients fail: that is no login.
    let all = Log::new("");
    let text: String = (0..4000)
        .map(|at| {
            format!(
                "192.0.2.{} - - [21/Nov/2026:08:{:02}:{:02} +0000] \"GET /orders HTTP/1.1\" 401 5 \"-\" \"x\"\n",
                at % 50,
                at / 60 % 60,
                at % 60
            )
        })
        .collect();
    fs::write(&all.file, text).unwrap();
    let suggested = all.suggest().unwrap();
    assert!(!suggested.contains("count_when"), "{suggested}");
}

/// Customers who read orders and log in once, and attackers who share 2,500 attempts at a route
/// that are answered with a status.
fn guessed(customers: u64, attackers: u64, route: &str, status: u16) -> Log {
    let mut lines: Vec<(u64, String, String, u16)> = Vec::new();
    for customer in 0..customers {
        let client = format!("198.51.100.{}", customer + 1);
        for order in 0..20 {
            let at = (customer * 37 + order * 449) % 9000;
            lines.push((at, client.clone(), "GET /v1/orders".to_owned(), 200));
        }
        lines.push((customer * 61 % 7000, client, format!("POST {route}"), 200));
    }
    for attempt in 0..2500 {
        let client = format!("203.0.113.{}", attempt % attackers + 1);
        lines.push((1000 + attempt * 2 / 5, client, format!("POST {route}"), status));
    }
    lines.sort();
    let mut text = String::new();
    for (at, client, request, status) in lines {
        let (hour, minute, second) = (8 + at / 3600, at / 60 % 60, at % 60);
        let _ = writeln!(
            text,
            "{client} - - [20/Nov/2026:{hour:02}:{minute:02}:{second:02} +0000] \
             \"{request} HTTP/1.1\" {status} 5 \"-\" \"x\""
        );
    }
    Log::new(&text)
}

/// What is suggested for a limit, for a minute and for an hour; 0: nothing.
fn suggested(report: &Report, limit: &str) -> (u32, u32) {
    let of = |seconds: u64| {
        let is_own = |own: &&Curve| own.limit == limit && own.window_seconds == seconds;
        report.curves.iter().find(is_own).map_or(0, |own| own.suggested)
    };
    (of(60), of(3600))
}

#[test]
fn guesses_of_however_many_callers_make_no_limit() {
    for (customers, attackers) in [(8, 1), (15, 2), (30, 4), (60, 6), (100, 30)] {
        for route in ["/login", "/api/v2/session"] {
            let (text, report) = guessed(customers, attackers, route, 401).simulated();
            assert!(text.contains("    rate: [10/minute, 30/hour]\n    count_when"), "{text}");
            let (minute, hour) = suggested(&report, "core");
            assert!(minute <= 5 && hour <= 25 && minute <= hour, "{minute} {hour} {text}");
            assert!(text.contains(&format!("rate: [{minute}/minute, {hour}/hour]")), "{text}");
            assert!(text.contains("anonymous:203.0.113.1 ("), "{text}");
            assert!(text.contains("whose credentials did not pass"), "{text}");
        }
    }
}

#[test]
fn limit_of_a_minute_is_never_above_that_of_an_hour() {
    for (customers, attackers) in [(40, 1), (60, 6), (100, 10), (100, 30)] {
        let (text, report) = guessed(customers, attackers, "/search", 200).simulated();
        for limit in ["core", "search"] {
            let (minute, hour) = suggested(&report, limit);
            assert!(minute <= hour, "{limit}: {minute} {hour} {text}");
        }
    }
}

#[test]
fn log_whose_busiest_may_be_an_attack_says_so_first() {
    let unfilled = |text: &str| text.replace("\n#  ", "");
    // Too few to tell.
    let text = unfilled(&guessed(8, 1, "/search", 200).suggest().unwrap());
    assert!(text.starts_with("# - WARNING: only 9 callers "), "{text}");
    assert!(text.contains("anonymous:203.0.113.1, made 94 % of their requests"), "{text}");
    assert!(text.contains("With it, core is 150/minute and 2500/hour; without it, "), "{text}");
    // Also if the number is without it.
    let text = unfilled(&guessed(8, 1, "/login", 401).suggest().unwrap());
    assert!(text.contains("With it, core is 150/minute and 2500/hour; without it, "), "{text}");
    // Too many to be left out.
    let text = unfilled(&guessed(20, 5, "/search", 200).suggest().unwrap());
    assert!(text.starts_with("# - WARNING: 5 of 25 callers of core, "), "{text}");
    assert!(text.contains("The busiest of them, anonymous:203.0.113."), "{text}");
    let text = guessed(40, 1, "/search", 200).suggest().unwrap();
    assert!(!text.contains("WARNING"), "{text}");
}

#[test]
fn files_of_a_page_are_no_requests_of_an_api() {
    for folder in ["/static/", "/", "/build/js/"] {
        let mut lines: Vec<(u64, u64, String)> = Vec::new();
        for client in 0..60 {
            let at = client * 53 % 3600;
            for chunk in 0..20 {
                lines.push((at + chunk / 5, client, format!("{folder}chunk-{chunk}.js")));
            }
            for call in 0..30 {
                lines.push((at + 15 + call * 60, client, "/v1/orders".to_owned()));
            }
        }
        lines.sort();
        let mut text = String::new();
        for (at, client, path) in lines {
            let (hour, minute, second) = (8 + at / 3600, at / 60 % 60, at % 60);
            let _ = writeln!(
                text,
                "198.51.100.{client} - - [20/Nov/2026:{hour:02}:{minute:02}:{second:02} +0000] \
                 \"GET {path} HTTP/1.1\" 200 5 \"-\" \"x\""
            );
        }
        let (text, report) = Log::new(&text).simulated();
        assert_eq!(text.matches("limits: []").count(), 1, "{text}");
        assert_eq!(suggested(&report, "core").0, suggested(&report, "orders").0, "{text}");
        assert!((1..=2).contains(&suggested(&report, "core").0), "{text}");
    }
}

#[test]
fn file_that_is_not_there_makes_no_route_without_a_limit() {
    let log = combined(&["/v1/orders"]);
    let scan = fs::read_to_string(&log.file).unwrap();
    let scan = scan.replace("/v1/orders ", "/v1/orders/x.js ").replace(" 200 ", " 404 ");
    let text = fs::read_to_string(&log.file).unwrap() + &scan;
    fs::write(&log.file, text).unwrap();
    let text = log.suggest().unwrap();
    assert!(!text.contains("limits: []"), "{text}");
}
