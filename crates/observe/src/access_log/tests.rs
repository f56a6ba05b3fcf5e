//! Lines, and the page that describes them.

use std::{
    collections::BTreeSet,
    fmt::Display,
    sync::{LazyLock, mpsc},
};

use serde_json::{Value, json};
use tollgate_clock::Timestamp;
use tollgate_limit::{Retry, Standing};

use super::*;

struct Sink(mpsc::Sender<Vec<u8>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(std::io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What is written with these settings; `finish` ends the line, if there is one.
fn logged_by(settings: AccessLogSettings, entry: &Entry<'_>, finish: impl FnOnce(Tail)) -> String {
    let (sender, receiver) = mpsc::channel();
    let pipe = Pipe::start(Sink(sender), |_| {});
    let log = AccessLog::new(settings, pipe.clone());
    let buffer = Rc::new(log.buffer());
    if let Some(line) = buffer.begin(entry) {
        finish(Tail::new(Rc::clone(&buffer), line));
    }
    buffer.flush();
    assert!(pipe.flush(Duration::from_secs(10)));
    drop((buffer, log, pipe));
    String::from_utf8(receiver.into_iter().flatten().collect()).unwrap()
}

const TOTALS: Totals = Totals { received: 7, sent: 12, time: Duration::from_millis(3) };

fn logged(format: Format, entry: &Entry<'_>) -> String {
    let settings = AccessLogSettings { format, ..AccessLogSettings::default() };
    logged_by(settings, entry, |tail| tail.end(TOTALS, true))
}

fn json(entry: &Entry<'_>) -> Value {
    let line = logged(Format::Json, entry);
    assert_eq!(line.lines().count(), 1, "{line}");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

const CORE: LimitStanding<'_> = LimitStanding {
    name: "core",
    mode: Mode::Enforce,
    window_seconds: Some(3600),
    standing: Standing {
        limit: 5000,
        remaining: 4999,
        used: 1,
        reset: Timestamp::from_secs(3600),
        next: Timestamp::from_secs(0),
        retry: Retry::Now,
    },
    cost: 1,
    decision: Decision::Allow,
    decided_by: "redis",
    key: None,
    awaited: None,
};

const INFLIGHT: LimitStanding<'_> = LimitStanding {
    name: "inflight",
    mode: Mode::Shadow,
    window_seconds: None,
    standing: Standing {
        limit: 2,
        remaining: 0,
        used: 2,
        reset: Timestamp::from_secs(3600),
        next: Timestamp::from_secs(3600),
        retry: Retry::At(Timestamp::from_secs(3600)),
    },
    cost: 0,
    decision: Decision::WouldDeny,
    decided_by: "local",
    key: Some("key:acct-7"),
    awaited: None,
};

fn entry<'e>(caller: &'e dyn Display) -> Entry<'e> {
    Entry {
        time: Timestamp::from_secs(0),
        request_id: "id",
        trace_id: None,
        client: [127, 0, 0, 1].into(),
        caller: Some(caller),
        tier: Some("free"),
        method: "GET",
        host: Some("api.example.com"),
        path: "/a",
        route: Some("/**"),
        asked_by: None,
        status: 200,
        is_exempt: false,
        decided_by: Some("local"),
        denied: None,
        would_deny: None,
        error: None,
        limit: Some(CORE),
        key: None,
        limits: &[CORE, INFLIGHT],
        user_agent: Some(b"curl/8"),
        facts: None,
        upstream: Some(Duration::from_micros(1204)),
    }
}

static FACTS: LazyLock<Facts> = LazyLock::new(|| {
    let mut facts = Facts::default();
    facts.add(&"jwt.org", FactValue::Text("acme"));
    facts
});

/// The same limits, of which the rest of the response tells the costs.
const AWAITED: [LimitStanding<'_>; 2] =
    [LimitStanding { awaited: Some(0), ..CORE }, LimitStanding { awaited: Some(1), ..INFLIGHT }];

/// One with everything that a text line can have.
fn full_entry<'e>() -> Entry<'e> {
    Entry {
        asked_by: Some("forward"),
        key: Some("key:a b"),
        trace_id: Some(&"4bf9"),
        is_exempt: true,
        denied: Some(DenialCause { reason: "limit", by: Some("core") }),
        would_deny: Some("search;candidate"),
        error: Some(&"denied by limit core"),
        facts: Some(&FACTS),
        limit: Some(AWAITED[0]),
        limits: &AWAITED,
        ..entry(&"user:42")
    }
}

fn finish_with_everything(mut tail: Tail) {
    tail.add_grpc_status(8, Some(StatusCode::TOO_MANY_REQUESTS));
    tail.add_tunnel(1, 2);
    let told = FinalCost { position: 0, units: 20, reserved: 1, source: "openai" };
    tail.settle(&[told, FinalCost { position: 1, ..told }]);
    tail.end(TOTALS, false);
}

/// Lines without how long they took, which differs.
fn timeless(line: &str) -> String {
    let (start, rest) = line.split_once("total=").unwrap();
    format!("{start}total={}", &rest[rest.find("ms").unwrap()..])
}

#[test]
fn text_lines_read_from_left_to_right() {
    let line = timeless(&logged(Format::Text, &entry(&"user:42")));
    assert_eq!(
        line,
        "1970-01-01T00:00:00.000Z id 127.0.0.1 user:42 free GET /a route=/** 200 core=1/5000 \
         decided_by=local upstream=1.204ms in=7 out=12 total=ms\n"
    );
    let settings = AccessLogSettings::default();
    let line = timeless(&logged_by(settings, &full_entry(), finish_with_everything));
    assert_eq!(
        line,
        "1970-01-01T00:00:00.000Z id 127.0.0.1 user:42 free GET /a route=/** 200 core=1/5000 \
         key=key:a\\x20b asked_by=forward decided_by=local exempt denied=limit denied_by=core would_deny=\"search;candidate\" upstream=1.204ms \
         trace_id=4bf9 facts={\"jwt.org\":\"acme\"} error=\"denied by limit core\" grpc_status=8 \
         stands_for=429 up=1 down=2 cost=20 reserved=1 cost_source=openai in=7 out=12 total=ms \
         aborted\n"
    );
}

#[test]
fn json_lines_are_json() {
    let value = json(&entry(&"user:a\"b\n"));
    assert_eq!(value["caller"], "user:a\"b\n");
    assert!(value["total_ms"].is_f64());
    assert_eq!((&value["used"], &value["of"]), (&1.into(), &5000.into()));
    assert_eq!((&value["request_bytes"], &value["response_bytes"]), (&7.into(), &12.into()));
    let limits = serde_json::json!([
        {"name": "core", "mode": "enforce", "window_seconds": 3600, "limit": 5000, "used": 1,
         "remaining": 4999, "reset": 3600, "cost": 1, "decision": "allow", "decided_by": "redis"},
        {"name": "inflight", "mode": "shadow", "window_seconds": null, "limit": 2, "used": 2,
         "remaining": 0, "reset": null, "cost": 0, "decision": "would_deny",
         "decided_by": "local", "key": "key:acct-7"},
    ]);
    assert_eq!(value["limits"], limits);
    assert_eq!((&value["denied"], &value["exempt"]), (&Value::Null, &false.into()));
    assert!(value.get("trace_id").is_none(), "there are no traces");
    assert!(value.get("asked_by").is_none(), "no proxy has asked");
    assert!(value.get("key").is_none(), "no program has named a counter");
    assert_eq!(value["decided_by"], "local");
    assert_eq!(json(&Entry { decided_by: None, ..entry(&"user:42") })["decided_by"], Value::Null);
    let value = json(&full_entry());
    assert_eq!((&value["denied"], &value["denied_by"]), (&"limit".into(), &"core".into()));
    assert_eq!(
        (&value["error"], &value["key"]),
        (&"denied by limit core".into(), &"key:a b".into())
    );
    assert_eq!((&value["trace_id"], &value["asked_by"]), (&"4bf9".into(), &"forward".into()));
    assert_eq!(
        (&value["would_deny"], &value["exempt"]),
        (&"search;candidate".into(), &true.into())
    );
}

#[test]
fn log_of_denials_has_no_other_lines() {
    let denied = DenialCause { reason: "auth", by: None };
    for (only, entry, expected) in [
        (Only::All, entry(&"user:42"), 1),
        (Only::Denied, entry(&"user:42"), 0),
        (Only::Denied, Entry { error: Some(&"no route"), status: 404, ..entry(&"user:42") }, 0),
        (Only::Denied, Entry { denied: Some(denied), ..entry(&"user:42") }, 1),
        (Only::Denied, Entry { would_deny: Some("core"), ..entry(&"user:42") }, 1),
    ] {
        for format in [Format::Text, Format::Json] {
            let settings = AccessLogSettings { format, only, ..AccessLogSettings::default() };
            let log = logged_by(settings, &entry, |tail| tail.end(TOTALS, true));
            assert_eq!(log.lines().count(), expected, "{log}");
        }
    }
}

#[test]
fn caller_cannot_forge_a_line_or_a_field() {
    let line = logged(Format::Text, &entry(&"user:x\n1970 y"));
    assert_eq!(line.lines().count(), 1);
    assert!(line.contains("user:x\\n1970\\x20y "), "{line}");
    let path = Entry { path: "/a denied=\"x\"\u{202e}\u{7f}/é", ..entry(&"user:42") };
    let line = logged(Format::Text, &path);
    assert!(line.contains(" /a\\x20denied=\\\"x\\\"\\u{202e}\\u{7f}/é route=/** "), "{line}");
    let error = Entry { error: Some(&"x\" total=1\n"), ..entry(&"user:42") };
    let line = logged(Format::Text, &error);
    assert!(line.contains(" error=\"x\\\" total=1\\n\" "), "{line}");
}

#[test]
fn user_agent_cannot_forge_a_field_and_is_cut() {
    let long = "é".repeat(200);
    for (sent, expected) in [
        (&b"curl/8.5 (x86_64)"[..], "curl/8.5 (x86_64)"),
        (b"\",\"status\":200,\"x\":\"", "\",\"status\":200,\"x\":\""),
        (b"a\tb\\", "a\tb\\"),
        (b"a\xffb", "a\u{fffd}b"),
        ("\u{202e}gnp\u{1f600}".as_bytes(), "\u{202e}gnp\u{1f600}"),
        (&[b'x'; 256], &"x".repeat(256)),
        (&[b'x'; 257], &format!("{}…", "x".repeat(256))),
        (long.as_bytes(), &format!("{}…", "é".repeat(128))),
        (format!("x{long}").as_bytes(), &format!("x{}…", "é".repeat(127))),
        (b"", ""),
    ] {
        let entry = Entry { user_agent: Some(sent), ..entry(&"user:42") };
        let line = logged(Format::Json, &entry);
        let hidden = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!line.contains(hidden) && line.lines().count() == 1, "{line}");
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["user_agent"], expected);
        assert_eq!(line.matches("\"status\":").count(), 1, "{line}");
    }
    assert_eq!(json(&Entry { user_agent: None, ..entry(&"user:42") })["user_agent"], Value::Null);
}

#[test]
fn facts_are_one_word_of_json_and_cannot_forge_another() {
    let claims = serde_json::json!({
        "list": ["a b", 1, true, null, ["deep"]], "text": "1", "number": 1, "half": 0.5, "no": false,
    });
    let mut facts = Facts::default();
    facts.add(
        &"header.x",
        FactValue::Text("\",\"tier\":\"pro\" x\\\u{a0}\u{202e}\u{7f}\t\u{1f600}é"),
    );
    facts.add(&"cookie.a b", FactValue::Hash(0xabc));
    facts.add(&format_args!("cost.{}", "x-cost"), FactValue::Units(3));
    facts.add(&"revalidation", FactValue::Truth(true));
    for (name, claim) in claims.as_object().unwrap() {
        facts.add(name, FactValue::Claim(claim));
    }
    let expected = serde_json::json!({
        "header.x": "\",\"tier\":\"pro\" x\\\u{a0}\u{202e}\u{7f}\t\u{1f600}é",
        "cookie.a b": { "hash": "00000000000000000000000000000abc" },
        "cost.x-cost": 3, "revalidation": true,
        "list": ["a b", 1, true, null, null], "text": "1", "number": 1, "half": 0.5, "no": false,
    });
    for facts in [&facts, &Facts::default()] {
        let entry = Entry { facts: Some(facts), ..entry(&"user:42") };
        let text = logged(Format::Text, &entry);
        let hidden = |c: char| c.is_control() && c != '\n' || c == '\u{202e}' || c == '\u{a0}';
        assert!(!text.contains(hidden) && text.lines().count() == 1, "{text}");
        let word = text.split(' ').find_map(|word| word.strip_prefix("facts=")).unwrap();
        let told: Value = serde_json::from_str(word).unwrap();
        assert_eq!(json(&entry)["facts"], told);
        assert_eq!(told, if word == "{}" { serde_json::json!({}) } else { expected.clone() });
    }
}

#[test]
fn grpc_status_is_logged_once() {
    let settings = AccessLogSettings { format: Format::Json, ..AccessLogSettings::default() };
    let line = logged_by(settings, &entry(&"user:42"), |mut tail| {
        tail.add_grpc_status(8, None);
        tail.add_grpc_status(0, None);
        tail.end(TOTALS, true);
    });
    assert!(line.contains(",\"grpc_status\":8,") && line.matches("grpc_status").count() == 1);
}

#[test]
fn costs_are_those_that_the_response_has_told() {
    let settings = AccessLogSettings { format: Format::Json, ..AccessLogSettings::default() };
    let entry = Entry { limit: Some(AWAITED[0]), limits: &AWAITED, ..entry(&"user:42") };
    let told = |position, units| FinalCost { position, units, reserved: 1, source: "json" };
    for (costs, expected) in [
        (vec![], json!([1, null, 1, 0])),
        (vec![told(0, 1_000_000)], json!([1_000_000, 1, 1_000_000, 0])),
        (vec![told(1, 7)], json!([1, null, 1, 7])),
        (vec![told(0, 20), told(1, 7)], json!([20, 1, 20, 7])),
    ] {
        let line = logged_by(settings, &entry, |mut tail| {
            tail.settle(&costs);
            tail.end(TOTALS, true);
        });
        let line: Value = serde_json::from_str(&line).unwrap();
        let [core, other] = [&line["limits"][0], &line["limits"][1]];
        assert_eq!(json!([line["cost"], line["reserved"], core["cost"], other["cost"]]), expected);
    }
}

/// What stands in backticks in the first column of the tables under a heading of `docs/log.md`.
fn documented(heading: &str) -> BTreeSet<String> {
    let page = include_str!("../../../../docs/log.md");
    let sections = page.split("\n## ").filter_map(|section| section.split_once('\n'));
    let mut sections = sections.filter(|(title, _)| *title == heading);
    let (_, section) = sections.next().unwrap_or_else(|| panic!("no section {heading}"));
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap().to_owned()).collect()
}

#[test]
fn every_json_field_is_documented_and_the_other_way_round() {
    let settings = AccessLogSettings {
        format: Format::Json,
        denials: NonZeroU32::new(2),
        ..AccessLogSettings::default()
    };
    let line = logged_by(settings, &full_entry(), finish_with_everything);
    let value: Value = serde_json::from_str(&line).unwrap();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    // The one whose counter a program has named.
    let of_limits = names(&value["limits"][1]).into_iter().map(|name| format!("limits[].{name}"));
    let written: BTreeSet<String> = names(&value).into_iter().chain(of_limits).collect();
    assert_eq!(written, documented("Fields of a JSON line"));
}

#[test]
fn every_text_field_is_documented_and_the_other_way_round() {
    let settings =
        AccessLogSettings { denials: NonZeroU32::new(2), ..AccessLogSettings::default() };
    let line = logged_by(settings, &full_entry(), finish_with_everything);
    let words: Vec<&str> = line.split_whitespace().collect();
    // The first seven have no names, and neither has the status.
    let first = ["time", "request_id", "client", "caller", "tier", "method", "path"];
    let named = words.iter().skip(first.len()).filter_map(|word| match *word {
        "200" => Some("status"),
        // Named by the limit.
        "core=1/5000" => Some("<limit>"),
        "exempt" | "aborted" => Some(*word),
        // The error has spaces.
        word => word.split_once('=').map(|(name, _)| name),
    });
    let written: BTreeSet<String> = first.into_iter().chain(named).map(str::to_owned).collect();
    assert_eq!(written, documented("Fields of a text line"));
}
