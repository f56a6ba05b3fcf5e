//! Values of a wrong type: none hides a mistake elsewhere, and none makes another.

use std::{collections::BTreeSet, path::Path};

use tollgate_yaml::{Document, Node, Problem, Sources, Span, Value};

use crate::Settings;

/// Settings that have most fields, each section on lines of its own.
const RICH: &str = r#"version: 1
listeners:
  - { address: "127.0.0.1:8080", protocols: [http1, h2], proxy_protocol: { trusted: [10.0.0.0/8] } }
  - { address: "127.0.0.1:8081" }
decisions:
  - { address: "127.0.0.1:6380", protocol: redis, max_keys: 1000, connections: 1000 }
policies: policies
workers: 4
trusted_proxies: [10.1.0.0/16]
client_address_from: forwarded
via: edge-1
store: { redis: { url: "redis://127.0.0.1:6379", prefix: tollgate, clock: redis, replica_lag: 1s }, instances: 2 }
access_log: { format: json, denials: 1/10 }
log: { format: json }
drain: 30s
drain_delay: 1s
timeouts: { head: 10s, keep_alive: 60s, request_body_rate: 100, rate_grace: 5s }
limits: { head_bytes: 64KiB, fields: 100, connections: 1000, http2: { streams: 100, stream_window: 64KiB } }
admin: { address: "127.0.0.1:9901", hosts: [a.example], ready: { store: ignore } }
reload: { poll: 5s, quiet: 100ms }
tracing: { otlp: "http://127.0.0.1:4318", headers: { x-a: b }, timeout: 5s, sample: 0.5, every: 5s }
"#;

/// Mistakes in each section, beside which values of a wrong type are written.
const FAR: [(&str, &str); 14] = [
    ("\"127.0.0.1:8081\"", "\"127.0.0.x:8081\""),
    ("trusted: [10.0.0.0/8]", "trusted: [10.0.0.1/8]"),
    ("\"127.0.0.1:6380\"", "\"127.0.0.y:6380\""),
    ("[10.1.0.0/16]", "[10.1.0.z/16]"),
    ("replica_lag: 1s", "replica_lag: 1a"),
    ("denials: 1/10", "denials: 1/x"),
    ("drain: 30s", "drain: 30b"),
    ("keep_alive: 60s", "keep_alive: 60c"),
    ("stream_window: 64KiB", "stream_window: 64Kib"),
    ("head_bytes: 64KiB", "head_bytes: 65Kib"),
    ("[a.example]", "[\"a b\"]"),
    ("poll: 5s", "poll: 5d_"),
    ("timeout: 5s", "timeout: 5e"),
    ("every: 5s", "every: 5f"),
];

fn said(text: &str) -> BTreeSet<String> {
    let problems = Settings::parse(Path::new("tollgate.yaml"), text, &Sources::system());
    let problems = problems.err().unwrap_or_default();
    problems.iter().map(Problem::message).map(str::to_owned).collect()
}

/// The places of all values on a single line, of lists and mappings as well.
fn values(node: &Node, places: &mut Vec<Span>) {
    let inner: Vec<&Node> = match &node.value {
        Value::Mapping(entries) => entries.iter().map(|(_, value)| value).collect(),
        Value::Sequence(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    for value in inner {
        let is_whole = match value.value {
            Value::Mapping(_) => RICH[value.span.start..].starts_with('{'),
            Value::Sequence(_) => RICH[value.span.start..].starts_with('['),
            _ => true,
        };
        places.extend(is_whole.then_some(value.span));
        values(value, places);
    }
}

/// The settings with `value` at `span`, and with those mistakes.
fn mistaken(span: Span, value: &str, far: &[(usize, &(&str, &str))]) -> BTreeSet<String> {
    let mut edits: Vec<(usize, usize, &str)> =
        far.iter().map(|(start, (old, new))| (*start, start + old.len(), *new)).collect();
    edits.push((span.start, span.end, value));
    edits.sort_unstable();
    let text = edits.iter().rev().fold(RICH.to_owned(), |mut text, (start, end, new)| {
        text.replace_range(*start..*end, new);
        text
    });
    said(&text)
}

#[test]
fn value_of_a_wrong_type_or_not_set_hides_no_mistake_in_any_section_and_makes_none() {
    assert_eq!(said(RICH), BTreeSet::new());
    let mut places = Vec::new();
    values(Document::parse("rich", RICH).unwrap().root(), &mut places);
    assert!(places.len() > 60, "{}", places.len());
    let mut wrong = String::new();
    for span in places {
        // Those that are written elsewhere.
        let far: Vec<(usize, &(&str, &str))> = FAR
            .iter()
            .map(|mistake| (RICH.find(mistake.0).unwrap(), mistake))
            .filter(|(start, (old, _))| span.end <= *start || start + old.len() <= span.start)
            .collect();
        let beside = mistaken(span, &RICH[span.start..span.end], &far);
        assert_eq!(beside.len(), far.len(), "{beside:?}");
        for value in ["[[1]]", "{ zz: 1 }", "[{ zz: [] }]", "\"${TOLLGATE_UNSET}\""] {
            let alone = mistaken(span, value, &[]);
            let all = mistaken(span, value, &far);
            let expected: BTreeSet<String> = alone.union(&beside).cloned().collect();
            if all != expected || alone.len() > 1 && !value.contains("{ ") {
                let around = &RICH[..span.end];
                let around = &around[around.rfind('\n').map_or(0, |at| at + 1)..];
                wrong += &format!("{around} -> {value}: alone {alone:?}, all {all:?}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{wrong}", wrong.lines().count());
}
