//! The same requests in each form of log have the same answer.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tollgate_history::{Format, ReadOptions};
use tollgate_policy::{Policies, load};
use tollgate_yaml::Sources;

use super::{PolicySet, Report, Simulation, SimulationError};

const POLICY: &str = r#"
version: 1
hosts: [api.example.com]
upstreams: { api: { servers: [http://127.0.0.1:9] } }
identity: { callers: [{ name: anonymous, key: client.ip }] }
limits: { core: { per: caller, rate: [2/minute, 20/hour] } }
routes: [{ match: { path: "/**" }, auth: none, limits: [core] }]
"#;

/// A request: when it came and how long it took, in milliseconds.
struct Request {
    at: u64,
    took: u64,
    client: String,
    method: &'static str,
    path: &'static str,
    query: &'static str,
    status: u16,
}

/// What has what, and the name of its column.
type Columns = &'static [(&'static str, &'static str)];

/// When the first hour begins: 2026-11-20T10:00:00Z.
const BEGUN: u64 = 1_795_168_800_000;

/// Requests of an hour, in order. All are so far from the edge of a
/// window that rounding to seconds moves none into another.
fn requests() -> Vec<Request> {
    let mut requests = Vec::new();
    for at in 0..300_u64 {
        // One script in three, and callers who are rarely there, with IPv6 and without.
        let client = match at % 3 {
            0 => "203.0.113.50".to_owned(),
            1 => format!("198.51.100.{}", at % 17),
            _ => format!("2001:db8:{}::1", at % 11),
        };
        let second = at * 12 + 3 - at % 3;
        requests.push(Request {
            at: BEGUN + second * 1000 + 250,
            took: at % 7 * 10,
            client,
            method: if at % 5 == 0 { "POST" } else { "GET" },
            path: if at % 4 == 0 { "/login" } else { "/v1/items/7" },
            query: if at % 2 == 0 { "q=a%20b" } else { "" },
            status: if at % 9 == 0 { 404 } else { 200 },
        });
    }
    requests
}

impl Request {
    fn target(&self) -> String {
        let Request { path, query, .. } = self;
        if query.is_empty() { (*path).to_owned() } else { format!("{path}?{query}") }
    }

    fn query(&self) -> &str {
        if self.query.is_empty() { "-" } else { self.query }
    }

    fn end(&self) -> u64 {
        self.at + self.took
    }

    fn seconds(&self) -> String {
        format!("0.{:03}", self.took)
    }

    /// `address:port`.
    fn peer(&self) -> String {
        let client = &self.client;
        if client.contains(':') { format!("[{client}]:4711") } else { format!("{client}:4711") }
    }
}

fn time(millis: u64, form: &str) -> String {
    let time = jiff::Timestamp::from_millisecond(i64::try_from(millis).unwrap()).unwrap();
    time.strftime(form).to_string()
}

fn rfc3339(millis: u64) -> String {
    time(millis, "%Y-%m-%dT%H:%M:%S%.3fZ")
}

/// `[time]` as common has it, of the start or the end.
fn clf(millis: u64) -> String {
    time(millis, "[%d/%b/%Y:%H:%M:%S +0000]")
}

/// The end of a line of combined, from the request on.
fn tail(it: &Request) -> String {
    format!("\"{} {} HTTP/1.1\" {} 512 \"-\" \"a b\"", it.method, it.target(), it.status)
}

fn combined(it: &Request) -> String {
    format!("{} - - {} {}", it.client, clf(it.at), tail(it))
}

fn ingress(it: &Request) -> String {
    format!("{} - - {} {} 310 {} [api] [] -", it.client, clf(it.end()), tail(it), it.seconds())
}

fn apisix(it: &Request) -> String {
    let Request { client, method, status, .. } = it;
    let (end, target, took) = (clf(it.end()), it.target(), it.seconds());
    format!(
        "{client} - - {end} api.example.com \"{method} {target} HTTP/1.1\" {status} 5 {took} \"-\" \
         \"a b\" 10.42.0.17:8080 200 {took} \"http://api.example.com\""
    )
}

fn host_and_list(it: &Request) -> String {
    let Request { client, .. } = it;
    format!("api.example.com \"{client}, 10.0.0.1\" 10.2.1.185 - - {} {}", clf(it.at), tail(it))
}

fn plain_list(it: &Request) -> String {
    format!("{}, 10.0.0.1 10.2.1.185 - - {} {}", it.client, clf(it.at), tail(it))
}

fn alb(it: &Request) -> String {
    let Request { method, status, .. } = it;
    format!(
        "https {} app/a/5 {} 10.0.3.17:8080 0.001 {} 0.000 {status} {status} 310 512 \"{method} \
         https://api.example.com:443{} HTTP/2.0\" \"a b\" ECDHE TLSv1.2 arn:aws:a \"Root=1-6\" \
         \"api.example.com\" \"arn:aws:b\" 0 {} \"forward\" \"-\" \"-\" \"-\" \"-\" \"-\" \"-\"",
        rfc3339(it.end()),
        it.peer(),
        it.seconds(),
        it.target(),
        rfc3339(it.at)
    )
}

fn cloudfront(it: &Request) -> String {
    let Request { client, method, path, status, .. } = it;
    format!(
        "{}\tFRA56-P4\t{client}\t{method}\td1.cloudfront.net\t{path}\t{status}\ta%20b\t{}\t\
         api.example.com\t{}",
        time(it.end(), "%Y-%m-%d\t%H:%M:%S"),
        it.query(),
        it.seconds()
    )
}

fn iis(it: &Request) -> String {
    let Request { client, method, path, status, took, .. } = it;
    format!(
        "{} {method} {path} {} {client} a+b {status} {took}",
        time(it.end(), "%Y-%m-%d %H:%M:%S"),
        it.query()
    )
}

fn cloudflare(it: &Request, time: impl Fn(u64) -> String) -> String {
    let Request { client, method, path, status, .. } = it;
    let (target, start, end) = (it.target(), time(it.at), time(it.end()));
    format!(
        r#"{{"ClientIP":"{client}","ClientRequestHost":"api.example.com","ClientRequestMethod":"{method}","ClientRequestPath":"{path}","ClientRequestURI":"{target}","EdgeEndTimestamp":{end},"EdgeResponseStatus":{status},"EdgeStartTimestamp":{start}}}"#
    )
}

fn gcp(it: &Request) -> String {
    let Request { client, method, status, .. } = it;
    let (target, took, at) = (it.target(), it.seconds(), rfc3339(it.at));
    format!(
        r#"{{"httpRequest":{{"latency":"{took}s","remoteIp":"{client}","requestMethod":"{method}","requestUrl":"https://api.example.com{target}","status":{status}}},"logName":"a","timestamp":"{at}"}}"#
    )
}

fn own_json(it: &Request) -> String {
    let Request { client, method, status, took, .. } = it;
    let (target, end) = (it.target(), it.end());
    format!(
        r#"{{"t":{{"done":{end},"ms":{took}}},"from":"{client}","verb":"{method}","what":"{target}","code":{status}}}"#
    )
}

fn two_columns(it: &Request) -> String {
    let Request { client, method, path, query, .. } = it;
    format!("{},{client},{method},{path},{query}", time(it.at, "%Y-%m-%d,%H:%M:%S%.3fZ"))
}

const CLOUDFRONT: &str = "#Version: 1.0\n#Fields: date time x-edge-location c-ip cs-method cs(Host) \
                          cs-uri-stem sc-status cs(User-Agent) cs-uri-query x-host-header \
                          time-taken\n";
const IIS: &str = "#Software: Microsoft Internet Information Services 10.0\n#Fields: date time \
                   cs-method cs-uri-stem cs-uri-query c-ip cs(User-Agent) sc-status time-taken\n";
const COLUMNS: Columns = &[
    ("end", "t.done"),
    ("duration_ms", "t.ms"),
    ("client", "from"),
    ("method", "verb"),
    ("target", "what"),
    ("status", "code"),
];

fn judge(log: &str, columns: Columns) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    fs::write(&file, log).unwrap();
    judge_file(file, columns).unwrap()
}

fn judge_file(file: PathBuf, columns: Columns) -> Result<Report, SimulationError> {
    let policies =
        Policies::new(vec![load(Path::new("main.yaml"), POLICY, &Sources::system()).unwrap()]);
    let owned = |(what, name): &(&str, &str)| ((*what).to_owned(), (*name).to_owned());
    let simulation = Simulation {
        read: ReadOptions {
            files: vec![file],
            columns: columns.iter().map(owned).collect(),
            ..ReadOptions::default()
        },
        callers: Vec::new(),
        host: None,
        candidate: PolicySet { policies: &policies, settings: None, name: "main.yaml" },
        against: None,
    };
    simulation.run(&mut |_| {})
}

#[test]
fn each_form_of_log_has_the_same_answer() {
    let requests = requests();
    let log = |head: &str, line: &dyn Fn(&Request) -> String| {
        requests.iter().fold(head.to_owned(), |log, it| log + &line(it) + "\n")
    };
    let quoted = |millis| format!("\"{}\"", time(millis, "%Y-%m-%dT%H:%M:%SZ"));
    let nanos = |millis| format!("{millis}000000");
    let seconds = |millis: u64| (millis / 1000).to_string();
    let forms: [(Format, String, Columns); 15] = [
        (Format::Combined, log("", &combined), &[]),
        (Format::Combined, log("", &|it| format!("api.example.com:443 {}", combined(it))), &[]),
        (Format::Combined, log("", &ingress), &[]),
        (Format::Combined, log("", &apisix), &[]),
        (Format::Combined, log("", &host_and_list), &[]),
        (Format::Combined, log("", &plain_list), &[]),
        (Format::Alb, log("", &alb), &[]),
        (Format::Cloudfront, log(CLOUDFRONT, &cloudfront), &[]),
        (Format::W3c, log(IIS, &iis), &[]),
        (Format::Cloudflare, log("", &|it| cloudflare(it, quoted)), &[]),
        (Format::Cloudflare, log("", &|it| cloudflare(it, nanos)), &[]),
        (Format::Cloudflare, log("", &|it| cloudflare(it, seconds)), &[]),
        (Format::Gcp, log("", &gcp), &[]),
        (Format::Json, log("", &own_json), COLUMNS),
        (Format::Csv, log("# made up\ndate,time,client,method,path,query\n", &two_columns), &[]),
    ];
    for (format, log, columns) in forms {
        let report = judge(&log, columns);
        let outcome = &report.outcome;
        let found = (outcome.requests, outcome.denied, outcome.callers);
        let sample = log.lines().last().unwrap_or_default();
        assert_eq!(report.read.files[0].format, format.to_string(), "{sample}");
        assert_eq!(report.read.bad, 0, "{sample}: {:?}", report.read.bad_lines);
        assert_eq!(found, (300, 80, 29), "{sample}");
    }
}

#[test]
fn the_order_of_lines_changes_no_answer() {
    let lines: Vec<String> = requests().iter().map(|it| combined(it) + "\n").collect();
    let reversed: String = lines.iter().rev().map(String::as_str).collect();
    // In the first lines nothing is amiss; then, and later on, most come too late.
    let shuffled: String = (0..300)
        .map(|at| if at < 20 { at } else { 20 + (at - 20) * 37 % 280 })
        .map(|at| lines[at].as_str())
        .collect();
    for log in [&lines.concat(), &reversed, &shuffled] {
        let report = judge(log, &[]);
        let outcome = &report.outcome;
        assert_eq!((outcome.requests, outcome.denied, report.read.late), (300, 80, 0));
    }
    let suggested = |log: &str| {
        let text = suggest_from(log);
        let (notes, policy) = text.split_once("\n\n").unwrap();
        (notes.contains("were sorted"), policy.to_owned())
    };
    let (_, expected) = suggested(&lines.concat());
    assert_eq!(suggested(&reversed), (true, expected.clone()));
    assert_eq!(suggested(&shuffled), (true, expected));
}

fn suggest_from(log: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    fs::write(&file, log).unwrap();
    let read = ReadOptions { files: vec![file], ..ReadOptions::default() };
    super::suggest(&read, &[], None, &mut |_| {}).unwrap()
}

#[test]
fn suggestion_begins_with_a_warning_of_late_requests() {
    let lines: Vec<String> = requests().iter().map(|it| combined(it) + "\n").collect();
    let text = suggest_from(&(lines.concat() + &lines[0]));
    assert!(text.starts_with("# - WARNING: 1 of the requests are out of order"), "{text}");
}

#[test]
fn a_log_out_of_order_that_is_read_once_has_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let lines: Vec<String> = requests().iter().map(|it| combined(it) + "\n").collect();
    let shuffled: String = (0..300).map(|at| lines[at * 37 % 300].as_str()).collect();
    let path = pipe.clone();
    let writer = std::thread::spawn(move || fs::write(path, shuffled));
    let error = judge_file(pipe, &[]).unwrap_err();
    writer.join().unwrap().unwrap();
    assert!(matches!(error, SimulationError::OutOfOrder { .. }), "{error}");
}
