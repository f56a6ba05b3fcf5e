use std::collections::BTreeMap;
use std::num::NonZeroU32;

use proptest::prelude::*;
use serde::Deserialize;

use super::Later;
use crate::{Document, Entries, Node, Problem, Spanned, Value};

/// Everything that raw structs are made of.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename = "policy")]
struct Policy {
    version: u32,
    #[serde(default)]
    hosts: Vec<Spanned<String>>,
    #[serde(default)]
    limits: Entries<Limit>,
    #[serde(default)]
    upstreams: BTreeMap<Spanned<String>, Upstream>,
    keys: Option<Keys>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename = "limit")]
struct Limit {
    per: Spanned<Per>,
    rate: Node,
    algorithm: Option<Algorithm>,
    cost: Option<NonZeroU32>,
    #[serde(default)]
    strict: bool,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename = "per", rename_all = "snake_case")]
enum Per {
    Caller,
    Header(String),
    Address { prefix: u8 },
}

#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename = "algorithm", rename_all = "snake_case")]
enum Algorithm {
    FixedWindow,
    Gcra,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename = "upstream")]
struct Upstream {
    servers: Vec<String>,
    port: u16,
    name: String,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename = "keys")]
struct Keys {
    ports: Option<BTreeMap<u16, f64>>,
    by: Option<BTreeMap<Algorithm, (u8, i8)>>,
}

const LATER: &[Later] = &[
    Later { section: "limit", fields: &["burst"] },
    Later { section: "algorithm", fields: &["token_bucket"] },
];

fn decode(text: &str) -> (Option<Policy>, Vec<Problem>) {
    let document = Document::parse("f.yaml", text).unwrap_or_else(|problem| panic!("{problem}"));
    let mut problems = Vec::new();
    (document.decode(LATER, &mut problems), problems)
}

fn shown(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// Both texts start on the line below the quote.
#[track_caller]
fn decodes_in_part(text: &str, expected: &str) {
    let (policy, problems) = decode(text.trim_start());
    assert_eq!(shown(&problems), expected.trim_start());
    assert!(policy.is_some());
}

#[track_caller]
fn fails(text: &str, expected: &str) {
    let (policy, problems) = decode(text.trim_start());
    assert_eq!(shown(&problems), expected.trim_start());
    assert_eq!(policy, None);
}

#[test]
fn well_formed_file_is_decoded_without_problems() {
    let text = r#"
version: 1
hosts: [api.example.com, "42"]
limits:
  search: { per: caller, rate: 5/minute, algorithm: gcra, cost: 2, strict: true }
  core:
    per: { header: x-key }
    rate: { free: 60, pro: [1.5, ~] }
  deep: &deep { per: { address: { prefix: 64 } }, rate: *text }
  same: { <<: *deep, cost: 1 }
upstreams: { one: { servers: [], port: 80, name: n } }
keys: { ports: { 80: 1, 443: 2.5 }, by: { gcra: [1, -1] } }
"#;
    let text = text.trim_start().replace("5/minute", "&text 5/minute");
    let (policy, problems) = decode(&text);
    assert_eq!(shown(&problems), "");
    let policy = policy.unwrap();

    assert_eq!(
        policy.hosts.iter().map(|host| host.as_str()).collect::<Vec<_>>(),
        ["api.example.com", "42"]
    );
    let names: Vec<_> = policy.limits.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["search", "core", "deep", "same"], "in the order of the file");
    let core = policy.limits.get("core").unwrap();
    assert_eq!(core.per.value, Per::Header("x-key".into()));
    assert_eq!((&core.algorithm, core.cost, core.strict), (&None, None, false));
    let Value::Mapping(rates) = &core.rate.value else { panic!("{:?}", core.rate) };
    assert_eq!(rates[0].1.value, Value::Integer(60));
    assert_eq!(rates[1].1.value.kind(), "a list");
    let same = policy.limits.get("same").unwrap();
    assert_eq!(same.per.value, Per::Address { prefix: 64 });
    assert_eq!(same.rate.value, Value::String("5/minute".into()));
    assert_eq!(same.cost, NonZeroU32::new(1));
    assert_eq!(policy.upstreams.get("one").map(|upstream| upstream.port), Some(80));
    let keys = policy.keys.unwrap();
    assert_eq!(keys.ports.unwrap(), BTreeMap::from([(80, 1.0), (443, 2.5)]));
    assert_eq!(keys.by.unwrap(), BTreeMap::from([(Algorithm::Gcra, (1, -1))]));
}

#[test]
fn places_of_keys_and_values_are_kept() {
    let text = "version: 1\nhosts: [é, 'b']\nlimits:\n  core: { per: caller, rate: }\n";
    let document = Document::parse("f.yaml", text).unwrap();
    let policy: Policy = document.decode(&[], &mut Vec::new()).unwrap();
    let (name, core) = &policy.limits[0];
    let places = [policy.hosts[0].span, policy.hosts[1].span, name.span, core.per.span];
    let written = places.map(|span| document.source(span));
    assert_eq!(written, ["é", "'b'", "core", "caller"]);
    assert_eq!(document.source(core.rate.span), "rate", "the key stands for what is left out");
}

#[test]
fn captured_node_is_decoded_on_its_own() {
    let text = "version: 1\nlimits: { core: { per: caller, rate: { free: 1, pro: many } } }\n";
    let document = Document::parse("f.yaml", text).unwrap();
    let mut problems = Vec::new();
    let policy: Policy = document.decode(&[], &mut problems).unwrap();
    assert_eq!(problems, []);
    let rate = &policy.limits.get("core").unwrap().rate;
    let rates: Entries<u32> = document.decode_node(rate, &[], &mut problems).unwrap();
    assert_eq!((rates.get("free"), rates.get("pro")), (Some(&1), None));
    assert_eq!(problems.iter().map(Problem::column).collect::<Vec<_>>(), [54]);
}

#[test]
fn unknown_fields_are_reported_and_the_rest_is_decoded() {
    let text = r#"
version: 1
verson: 2
host: []
zzz: ~
"#;
    let expected = r#"
f.yaml:2:1: unknown field `verson` in a policy
  |
2 | verson: 2
  | ^^^^^^ did you mean `version`?
f.yaml:3:1: unknown field `host` in a policy
  |
3 | host: []
  | ^^^^ did you mean `hosts`?
f.yaml:4:1: unknown field `zzz` in a policy
  |
4 | zzz: ~
  | ^^^ one of: version, hosts, limits, upstreams, keys
"#;
    decodes_in_part(text, expected);
}

#[test]
fn all_problems_of_a_file_are_reported_at_once() {
    let text = r#"
version: one
hosts: api, web
keys: 5
"#;
    let expected = r#"
f.yaml:1:10: expected a whole number from 0 to 4294967295, found text
  |
1 | version: one
  |          ^^^
f.yaml:2:8: expected a list, found text
  |
2 | hosts: api, web
  |        ^^^^^^^^ write [api, web]
f.yaml:3:7: expected a mapping, found a number
  |
3 | keys: 5
  |       ^ write `name: value`
"#;
    fails(text, expected);

    let text = r#"
version: 1
limits:
  core:
    rat: 5000/hour
    per: caler
    algorithm: token_bucket
    burst: 3
  search: {per: caller, strict: yes, cost: 0}
"#;
    let expected = r#"
f.yaml:4:5: unknown field `rat` in a limit
  |
4 |     rat: 5000/hour
  |     ^^^ did you mean `rate`?
f.yaml:5:10: unknown value `caler`
  |
5 |     per: caler
  |          ^^^^^ did you mean `caller`?
f.yaml:6:16: `token_bucket` is not supported yet
  |
6 |     algorithm: token_bucket
  |                ^^^^^^^^^^^^ one of: fixed_window, gcra
f.yaml:7:5: `burst` is not supported yet
  |
7 |     burst: 3
  |     ^^^^^ remove it; this version would ignore it
f.yaml:8:3: missing field `rate` in a limit
  |
8 |   search: {per: caller, strict: yes, cost: 0}
  |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ add `rate`
f.yaml:8:33: expected true or false, found text
  |
8 |   search: {per: caller, strict: yes, cost: 0}
  |                                 ^^^ write true
f.yaml:8:44: expected a whole number above 0, found `0`
  |
8 |   search: {per: caller, strict: yes, cost: 0}
  |                                            ^
"#;
    decodes_in_part(text, expected);
}

#[test]
fn scalars_are_never_taken_for_text() {
    let text = r#"
version: 1
hosts: [a, 42, true, ~, {b: 1}, [c]]
"#;
    let expected = r#"
f.yaml:2:12: expected text, found a number
  |
2 | hosts: [a, 42, true, ~, {b: 1}, [c]]
  |            ^^ put it in quotes: "42"
f.yaml:2:16: expected text, found true/false
  |
2 | hosts: [a, 42, true, ~, {b: 1}, [c]]
  |                ^^^^ put it in quotes: "true"
f.yaml:2:22: expected text, found nothing
  |
2 | hosts: [a, 42, true, ~, {b: 1}, [c]]
  |                      ^
f.yaml:2:25: expected text, found a mapping
  |
2 | hosts: [a, 42, true, ~, {b: 1}, [c]]
  |                         ^^^^^^
f.yaml:2:33: expected text, found a list
  |
2 | hosts: [a, 42, true, ~, {b: 1}, [c]]
  |                                 ^^^
"#;
    decodes_in_part(text, expected);
}

#[test]
fn all_missing_fields_are_reported() {
    let text = r#"
zzz: 1
"#;
    let expected = r#"
f.yaml:1:1: missing field `version` in a policy
  |
1 | zzz: 1
  | ^^^^^^ add `version`
f.yaml:1:1: unknown field `zzz` in a policy
  |
1 | zzz: 1
  | ^^^ one of: version, hosts, limits, upstreams, keys
"#;
    fails(text, expected);

    let text = r#"
version: 1
upstreams:
  one: {}
  two: {servers: [1], name: 5}
  three:
    port: "80"
    servers:
      http://x, http://y
"#;
    let expected = r#"
f.yaml:3:3: missing field `name` in an upstream
  |
3 |   one: {}
  |   ^^^^^^^ add `name`
f.yaml:3:3: missing field `port` in an upstream
  |
3 |   one: {}
  |   ^^^^^^^ add `port`
f.yaml:3:3: missing field `servers` in an upstream
  |
3 |   one: {}
  |   ^^^^^^^ add `servers`
f.yaml:4:3: missing field `port` in an upstream
  |
4 |   two: {servers: [1], name: 5}
  |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ add `port`
f.yaml:4:19: expected text, found a number
  |
4 |   two: {servers: [1], name: 5}
  |                   ^ put it in quotes: "1"
f.yaml:4:29: expected text, found a number
  |
4 |   two: {servers: [1], name: 5}
  |                             ^ put it in quotes: "5"
f.yaml:5:3: missing field `name` in an upstream
  |
5 |   three:
  |   ^^^^^ add `name`
f.yaml:6:11: expected a whole number from 0 to 65535, found text
  |
6 |     port: "80"
  |           ^^^^ write 80 without quotes
f.yaml:8:7: expected a list, found text
  |
8 |       http://x, http://y
  |       ^^^^^^^^^^^^^^^^^^ write [http://x, http://y]
"#;
    decodes_in_part(text, expected);
}

#[test]
fn a_single_value_is_a_list_of_one() {
    let one = "version: 1\nhosts: a\nupstreams: { one: { servers: b, port: 1, name: c } }\n";
    let lists = one.replace("hosts: a", "hosts: [a]").replace("servers: b", "servers: [b]");
    for text in [one, &lists] {
        let (policy, problems) = decode(text);
        assert_eq!(shown(&problems), "", "{text}");
        let Policy { hosts, upstreams, .. } = policy.unwrap();
        let hosts: Vec<&str> = hosts.iter().map(|host| host.as_str()).collect();
        let servers: Vec<_> = upstreams.into_values().flat_map(|one| one.servers).collect();
        assert_eq!((hosts, servers), (vec!["a"], vec!["b".to_owned()]), "{text}");
    }
}

#[test]
fn lists_and_mappings_are_not_guessed() {
    let text = r#"
version: 1
limits: []
hosts:
upstreams:
  a:
"#;
    let expected = r#"
f.yaml:2:9: expected a mapping, found a list
  |
2 | limits: []
  |         ^^ write `name: value`
f.yaml:3:1: expected a list, found nothing
  |
3 | hosts:
  | ^^^^^ write [] for an empty list
f.yaml:5:3: expected a mapping, found nothing
  |
5 |   a:
  |   ^ write `name: value`
"#;
    decodes_in_part(text, expected);
}

#[test]
fn enums_say_which_values_they_take() {
    let text = r#"
version: 1
limits:
  a: {per: {header: 5}, rate: 1}
  b: {per: header, rate: 1}
  c: {per: {address: {prefix: 300}}, rate: 1}
  d: {per: {address: {}}, rate: 1}
  e: {per: {adress: 1}, rate: 1}
  f: {per: {caller: 1}, rate: 1}
  g: {per: {}, rate: 1}
  h: {per: [caller], rate: 1}
  i: {per: , rate: 1}
"#;
    let expected = r#"
f.yaml:3:21: expected text, found a number
  |
3 |   a: {per: {header: 5}, rate: 1}
  |                     ^ put it in quotes: "5"
f.yaml:4:12: `header` needs a value
  |
4 |   b: {per: header, rate: 1}
  |            ^^^^^^ write `header: …`
f.yaml:5:31: expected a whole number from 0 to 255, found `300`
  |
5 |   c: {per: {address: {prefix: 300}}, rate: 1}
  |                               ^^^
f.yaml:6:13: missing field `prefix` in an address
  |
6 |   d: {per: {address: {}}, rate: 1}
  |             ^^^^^^^^^^^ add `prefix`
f.yaml:7:13: unknown value `adress`
  |
7 |   e: {per: {adress: 1}, rate: 1}
  |             ^^^^^^ did you mean `address`?
f.yaml:8:12: `caller` takes no value
  |
8 |   f: {per: {caller: 1}, rate: 1}
  |            ^^^^^^^^^^^ write `caller` alone
f.yaml:9:12: expected a single entry, found 0
  |
9 |   g: {per: {}, rate: 1}
  |            ^^ one of: caller, header, address
f.yaml:10:12: expected text, found a list
   |
10 |   h: {per: [caller], rate: 1}
   |            ^^^^^^^^ one of: caller, header, address
f.yaml:11:7: expected text, found nothing
   |
11 |   i: {per: , rate: 1}
   |       ^^^ one of: caller, header, address
"#;
    decodes_in_part(text, expected);
}

#[test]
fn keys_are_checked_like_values() {
    let text = r#"
version: 1
keys:
  ports: {http: 1, 99999: 2, 80: x}
  by: {gcra: [1], fixed: [1, 2], fixed_window: [1, 999]}
"#;
    let expected = r#"
f.yaml:3:11: expected a whole number from 0 to 65535, found `http`
  |
3 |   ports: {http: 1, 99999: 2, 80: x}
  |           ^^^^
f.yaml:3:20: expected a whole number from 0 to 65535, found `99999`
  |
3 |   ports: {http: 1, 99999: 2, 80: x}
  |                    ^^^^^
f.yaml:3:34: expected a number, found text
  |
3 |   ports: {http: 1, 99999: 2, 80: x}
  |                                  ^
f.yaml:4:14: expected a list of 2 items, found 1
  |
4 |   by: {gcra: [1], fixed: [1, 2], fixed_window: [1, 999]}
  |              ^^^
f.yaml:4:19: unknown value `fixed`
  |
4 |   by: {gcra: [1], fixed: [1, 2], fixed_window: [1, 999]}
  |                   ^^^^^ did you mean `fixed_window`?
f.yaml:4:52: expected a whole number from -128 to 127, found `999`
  |
4 |   by: {gcra: [1], fixed: [1, 2], fixed_window: [1, 999]}
  |                                                    ^^^
"#;
    decodes_in_part(text, expected);
}

#[test]
fn numbers_out_of_range_are_quoted_as_written() {
    let text = r#"
version: -1
"#;
    let expected = r#"
f.yaml:1:10: expected a whole number from 0 to 4294967295, found `-1`
  |
1 | version: -1
  |          ^^
"#;
    fails(text, expected);

    let text = r#"
version: 1.5
"#;
    let expected = r#"
f.yaml:1:10: expected a whole number from 0 to 4294967295, found `1.5`
  |
1 | version: 1.5
  |          ^^^
"#;
    fails(text, expected);

    let text = r#"
version: 0x1_0000_0000
"#;
    let expected = r#"
f.yaml:1:10: expected a whole number from 0 to 4294967295, found `0x1_0000_0000`
  |
1 | version: 0x1_0000_0000
  |          ^^^^^^^^^^^^^
"#;
    fails(text, expected);

    let text = r#"
version: 99999999999999999999
"#;
    let expected = r#"
f.yaml:1:10: expected a whole number from 0 to 4294967295, found `99999999999999999999`
  |
1 | version: 99999999999999999999
  |          ^^^^^^^^^^^^^^^^^^^^
"#;
    fails(text, expected);
}

#[test]
fn problem_of_an_aliased_value_is_reported_once_where_it_is_defined() {
    let text = r#"
version: 1
limits:
  a: &a {rate: 1, per: calle, cost: 1}
  b: *a
  c:
    <<: *a
    cost: -1
"#;
    let expected = r#"
f.yaml:3:24: unknown value `calle`
  |
3 |   a: &a {rate: 1, per: calle, cost: 1}
  |                        ^^^^^ did you mean `caller`?
f.yaml:7:11: expected a whole number from 0 to 4294967295, found `-1`
  |
7 |     cost: -1
  |           ^^
"#;
    decodes_in_part(text, expected);
}

#[test]
fn problems_beyond_the_first_hundred_are_only_mentioned() {
    let text = format!("version: 1\nhosts: [{}]\n", "1, ".repeat(5000));
    let (policy, problems) = decode(&text);
    assert_eq!(policy, None);
    assert_eq!(problems.len(), 101);
    assert_eq!(problems[0].to_string(), "f.yaml: too many problems; 100 of them follow");
}

#[test]
fn several_documents_share_a_list_of_problems_in_order() {
    let mut problems = vec![Problem::whole_file("z.yaml", "gone", "")];
    for name in ["b.yaml", "a.yaml"] {
        let document = Document::parse(name, "version: x").unwrap();
        assert_eq!(document.decode::<Policy>(&[], &mut problems), None);
    }
    let files: Vec<_> = problems.iter().map(Problem::file).collect();
    assert_eq!(files, ["a.yaml", "b.yaml", "z.yaml"]);
}

/// A required field of a type without an end must not be made up forever.
#[test]
fn missing_field_of_a_recursive_type_is_reported() {
    #[derive(Debug, Deserialize)]
    #[serde(rename = "rule", rename_all = "snake_case")]
    #[expect(dead_code, reason = "only decoded")]
    enum Rule {
        Not(Box<Rule>),
        Always,
    }
    #[derive(Debug, Deserialize)]
    #[serde(rename = "route")]
    #[expect(dead_code, reason = "only decoded")]
    struct Route {
        rule: Rule,
    }
    let document = Document::parse("f.yaml", "{}").unwrap();
    let mut problems = Vec::new();
    assert!(document.decode::<Route>(&[], &mut problems).is_none());
    assert_eq!(
        problems.iter().map(Problem::message).collect::<Vec<_>>(),
        ["missing field `rule` in a route"]
    );
}

/// Well formed YAML from the names and values of a policy, each seldom where it belongs.
fn jumbled_policy() -> impl Strategy<Value = String> {
    let name = words(
        "version hosts limits upstreams keys per rate algorithm cost burst servers port name \
         ports by header address prefix 80 gcra rat é",
    );
    let scalar =
        words(r#"1 -1 0 70000 1.5 caller gcra header token_bucket true ~ 'x' "\e[31m" 日本"#);
    let value = scalar.prop_map(str::to_owned).prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            3 => prop::collection::btree_map(name.clone(), inner.clone(), 0..5).prop_map(braced),
            1 => prop::collection::vec(inner, 0..4)
                .prop_map(|items| format!("[{}]", items.join(", "))),
        ]
    });
    let limits = prop::collection::btree_map("[a-c]", value.clone(), 0..3).prop_map(braced);
    (prop::sample::select(vec!["1", "x"]), limits, value).prop_map(|(version, limits, other)| {
        format!("version: {version}\nlimits: {limits}\nkeys: &a {other}\nupstreams: {{one: *a}}\n")
    })
}

fn words(text: &'static str) -> impl Strategy<Value = &'static str> + Clone {
    prop::sample::select(text.split_whitespace().collect::<Vec<_>>())
}

fn braced<K: std::fmt::Display>(entries: BTreeMap<K, String>) -> String {
    let entries: Vec<_> = entries.iter().map(|(key, value)| format!("{key}: {value}")).collect();
    format!("{{{}}}", entries.join(", "))
}

/// Scraps of YAML, for the parser.
fn scraps() -> impl Strategy<Value = String> {
    let scrap = prop::sample::select(vec![
        "a: ", "b: ", "<<: *a", "&a ", "*a ", "1", "'x'", "\"", "'", "{", "}", "[", "]", ", ", "#",
        "- ", "|", ">", "!!int ", "? ", "---", "\t", "é", "日", "\u{1b}", "\u{feff}", "\n", "\n  ",
        "\n    ", "\r\n", "\r",
    ]);
    prop::collection::vec(scrap, 0..30).prop_map(|scraps| scraps.concat())
}

proptest! {
    #[test]
    fn prop_any_text_is_decoded_or_has_problems_that_lie_in_it(
        text in prop_oneof![jumbled_policy(), scraps(), any::<String>()],
    ) {
        let mut problems = Vec::new();
        match Document::parse("f.yaml", &text) {
            Err(problem) => problems.push(problem),
            Ok(document) => {
                let policy: Option<Policy> = document.decode(LATER, &mut problems);
                prop_assert!(policy.is_some() || !problems.is_empty());
            }
        }
        prop_assert!(problems.is_sorted());
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        for problem in problems.iter().filter(|problem| problem.line() > 0) {
            let line = text.split('\n').nth(problem.line() - 1).expect("the line exists");
            prop_assert!((1..=line.chars().count() + 1).contains(&problem.column()));
            let shown = problem.to_string();
            prop_assert!(!shown.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
            prop_assert_eq!(shown.lines().count(), 4);
        }
    }

    #[test]
    fn prop_a_mistake_in_each_limit_is_a_problem_for_each(
        mistakes in prop::collection::vec(prop::sample::select(vec![
            "{per: caller, rate: 1, strict: 5}",
            "{per: caller, rate: 1, cost: -1}",
            "{per: nothing, rate: 1}",
            "{per: caller, rate: 1, zzz: 1}",
            "{per: caller}",
            "{rate: 1}",
            "5",
        ]), 1..20),
    ) {
        let limits: String = mistakes.iter().enumerate()
            .map(|(number, limit)| format!("  limit{number}: {limit}\n"))
            .collect();
        let (_, problems) = decode(&format!("version: 1\nlimits:\n{limits}"));
        let lines: Vec<_> = problems.iter().map(Problem::line).collect();
        prop_assert_eq!(lines, (3..3 + mistakes.len()).collect::<Vec<_>>());
    }
}
