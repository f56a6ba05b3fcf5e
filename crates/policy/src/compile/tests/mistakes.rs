//! Mistakes, one by one and two by two: one hides no other.

use std::collections::BTreeSet;

use tollgate_yaml::{Node, Span, Value};

use super::*;

const SOUND: &str = r#"version: 1
hosts: [a.example]
upstreams:
  api: { servers: ["http://127.0.0.1:27390"] }
identity:
  jwt:
    - { name: main, issuer: "https://id.example.com/", audience: [api], algorithms: [HS256], jwks_file: main.jwks }
  callers:
    - { name: user, key: jwt.sub, tier: jwt.plan }
    - { name: anonymous, key: client.ip, tier: anonymous }
tiers: { default: free, names: [anonymous, free] }
limits:
  core: { per: caller, rate: { anonymous: 20/minute, free: 1000/minute } }
  addr: { per: client.ip, rate: 100/minute }
overrides:
  - { caller: "user:1", limit: core, rate: 5/minute, why: x }
routes:
  - { match: { path: "/a" }, auth: required, limits: [core, addr] }
  - { match: { path: "/**" }, limits: [core] }
responses: { headers: github }
tests:
  - { name: t, given: { path: /a, jwt: { sub: "1" } }, expect: { status: 200 } }
"#;

/// What is written in place of what.
const MISTAKES: [(&str, &str); 54] = [
    ("responses: {", "respnses: {}\nresponses: {"),
    ("  callers:\n", "  calers: []\n  callers:\n"),
    ("audience: [api]", "audiense: [api]"),
    ("key: client.ip, tier", "kee: x, key: client.ip, tier"),
    ("tiers: { ", "tiers: { nmes: [a], "),
    ("rate: 100/minute }", "rate: 100/minute, algoritm: gcra }"),
    ("rate: 100/minute }", "rate: 100/minute, zzz: 1 }"),
    ("servers: [", "servrs: 1, servers: ["),
    ("auth: required", "atuh: none, auth: required"),
    ("auth: required", "zzz: 1, auth: required"),
    ("why: x", "why: x, foo: 1"),
    ("name: t,", "name: t, foo: 1,"),
    ("headers: github", "headrs: github"),
    ("100/minute", "100/minut"),
    ("free: 1000/minute", "fre: 1000/minute"),
    ("per: client.ip", "per: clent.ip"),
    ("main.jwks", "nope.jwks"),
    ("key: jwt.sub", "key: jwt."),
    ("default: free", "default: fre"),
    ("http://127.0.0.1:27390", "htp://127.0.0.1:27390"),
    ("hosts: [a.example]", "hosts: [\"a b\"]"),
    ("path: \"/a\"", "path: \"/a**\""),
    ("[core, addr]", "[core, adr]"),
    ("auth: required", "auth: maybe"),
    ("headers: github", "headers: githb"),
    ("rate: 5/minute", "rate: 5/minut"),
    ("user:1", "usr:1"),
    ("status: 200", "status: 2000"),
    ("given: { path: /a", "given: { path: a"),
    ("per: client.ip, ", ""),
    ("version: 1\n", ""),
    ("[anonymous, free]", "[anonymous, free, free]"),
    ("[core, addr]", "[core, core, addr]"),
    ("limits: [core, addr]", "cost: 5000, limits: [core, addr]"),
    ("rate: 100/minute", "rate: [[1]]"),
    ("auth: required", "auth: none, scopes: [a]"),
    ("tiers:", "deny: [300.1.1.1]\ntiers:"),
    ("tiers:", "cors: { origins: [foo] }\ntiers:"),
    ("tiers:", "rls: [{ domain: d, when: { key: [a] }, limits: [nope] }]\ntiers:"),
    ("hosts: [a.example]", "hosts: [\"${TOLLGATE_UNSET_A}\"]"),
    ("http://127.0.0.1:27390", "http://${TOLLGATE_UNSET_B}:80"),
    ("name: main", "name: \"${TOLLGATE_UNSET_C}\""),
    ("https://id.example.com/", "https://${TOLLGATE_UNSET_D}/"),
    ("main.jwks", "\"${TOLLGATE_UNSET_E}.jwks\""),
    ("name: user", "name: \"${TOLLGATE_UNSET_F}\""),
    ("default: free", "default: \"${TOLLGATE_UNSET_G}\""),
    ("[anonymous, free]", "[anonymous, \"${TOLLGATE_UNSET_H}\"]"),
    ("free: 1000/minute", "free: \"${TOLLGATE_UNSET_I}\""),
    ("rate: 100/minute", "rate: \"${TOLLGATE_UNSET_J}/minute\""),
    ("user:1", "user:${TOLLGATE_UNSET_K}"),
    ("limit: core", "limit: \"${TOLLGATE_UNSET_L}\""),
    ("path: \"/a\"", "path: \"/${TOLLGATE_UNSET_M}\""),
    ("[core, addr]", "[core, \"${TOLLGATE_UNSET_N}\"]"),
    ("{ status: 200 }", "{ status: \"${TOLLGATE_UNSET_O}\" }"),
];

/// What is not said beside a value that is not set: it may be what is named, or what is beside it
/// in its section may be good with it.
const UNSAID: [(&str, &str); 5] = [
    ("fre: 1000/minute", "TOLLGATE_UNSET_H"),
    ("default: fre", "TOLLGATE_UNSET_H"),
    ("usr:1", "TOLLGATE_UNSET_F"),
    ("cost: 5000, limits: [core, addr]", "TOLLGATE_UNSET_N"),
    ("auth: none, scopes: [a]", "TOLLGATE_UNSET_N"),
];

/// What is said about a policy.
fn said(text: &str) -> BTreeSet<String> {
    let keys = r#"{"keys":[{"kty":"oct","k":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","alg":"HS256"}]}"#;
    let sources = Sources::system().with_file("main.jwks", keys);
    let problems = load(Path::new("api.yaml"), text, &sources).err().unwrap_or_default();
    // Whose tier is named behind the colon depends on what else is wrong.
    let what = |problem: &Problem| problem.message().split(": tier").next().map(str::to_owned);
    problems.iter().filter_map(what).collect()
}

/// The policy with these mistakes; none if one leaves no place for the other.
fn mistaken(mistakes: &[&(&str, &str)]) -> Option<String> {
    mistakes.iter().try_fold(SOUND.to_owned(), |text, (old, new)| {
        text.contains(old).then(|| text.replacen(old, new, 1))
    })
}

#[test]
fn each_mistake_gives_a_message_and_of_two_neither_hides_the_other() {
    assert_eq!(said(SOUND), BTreeSet::new());
    let alone: Vec<BTreeSet<String>> =
        MISTAKES.iter().map(|mistake| said(&mistaken(&[mistake]).unwrap())).collect();
    let silent = MISTAKES.iter().zip(&alone).filter(|(_, said)| said.is_empty());
    assert_eq!(silent.count(), 0, "{alone:?}");
    let (mut pairs, mut hidden) = (0, String::new());
    for (at, one) in MISTAKES.iter().enumerate() {
        for (other_at, other) in MISTAKES.iter().enumerate().skip(at + 1) {
            let Some(text) = mistaken(&[one, other]) else { continue };
            pairs += 1;
            let found = said(&text);
            for (at, beside) in [(at, other), (other_at, one)] {
                let mistake = MISTAKES[at].1;
                let is_unsaid =
                    |(hidden, by): &(&str, &str)| mistake == *hidden && beside.1.contains(by);
                if alone[at].is_disjoint(&found) && !UNSAID.iter().any(is_unsaid) {
                    hidden += &format!("{mistake:?} beside {:?}: only {found:?}\n", beside.1);
                }
            }
        }
    }
    assert!(pairs > 650, "{pairs}");
    assert!(hidden.is_empty(), "{}\n{hidden}", hidden.lines().count());
}

/// A policy that has most fields, each section on lines of its own.
const RICH: &str = r#"version: 1
hosts: [a.example]
upstreams:
  api: { servers: ["http://127.0.0.1:9"], response_timeout: 5s }
  other: { servers: ["http://127.0.0.1:9"] }
identity:
  token: { schemes: [bearer], cookie: sid }
  jwt:
    - { name: id, issuer: "https://id.example.com/", jwks_file: main.jwks, algorithms: [HS256], audience: [x], leeway: 60s, types: [JWT], required_claims: { azp: web }, claim_names: { sub: oid }, key_hints: ignore, max_age: 1h, from: [cookie] }
    - { name: far, issuer: "https://far.example.com/", jwks_url: "https://far.example.com/keys", algorithms: [RS256], cache: 600s, timeout: 5s, leeway: 60s }
  callers:
    - { name: user, key: jwt.sub, tier: jwt.plan }
    - { name: anonymous, key: client.ip, ipv6_prefix: 64, tier: free }
  forward_claims: { headers: { x-e: jwt.email } }
tiers: { default: free, names: [free, pro] }
limits:
  core: { per: caller, rate: { free: 5/minute, pro: 6/minute }, algorithm: fixed_window, align: epoch, mode: enforce, on_missing: skip, cost: 1 }
  two: { per: client.ip, rate: 7/minute, count_when: { status: [401] }, enforce_percent: 50, on_store_error: open }
  three: { per: client.ip, concurrent: 5, lease: 60s, retry_after: 1s }
  four: { per: client.ip, rate: 8/minute, algorithm: gcra, burst: 4, refund: { status: [304], callers: all }, candidate: { rate: 9/minute } }
  five: { per: client.ip, refill: { amount: 5, interval: 1s }, algorithm: token_bucket, capacity: 10, strict: true }
  last: { per: client.ip, rate: 10/minute }
routes:
  - { match: { path: /a, methods: [GET], from: [10.0.0.0/8] }, auth: required, scopes: [s], limits: [core, two], allow: [10.0.0.0/8], max_body: 1MiB, request_headers: { set: { x-a: b } }, upstream: api }
  - { match: { path: /b, host: a.example }, auth: { required: [id], audience: [x] }, limits: [two, three], cost: 1, upstream: api }
  - { match: { path: /c }, name: c, limits: [last], upstream: other }
cors: { origins: ["https://a.example"], max_age: 5s, preflight: answer }
responses: { headers: github, denied_status: 429, jitter: 0s, documentation_url: "https://d.example/" }
overrides:
  - { limit: core, caller: "id/user:42", rate: 50/hour, until: 2027-01-01, why: x }
  - { limit: last, client.ip: 192.0.2.1, rate: 51/hour, why: y }
exempt: [10.9.0.0/16]
deny: [10.8.0.0/16, "anonymous:192.0.2.7"]
tests:
  - { name: t, given: { path: /a, jwt: { iss: "https://id.example.com/", sub: "1" }, address: 10.0.0.1 }, repeat: 2, every: 1s, expect: { status: 403, limit: core } }
  - { name: u, after: 1s, given: { path: /b }, expect: { status: 401, would_deny: two } }
"#;

/// Mistakes in each section, beside which values of a wrong type are written.
const FAR: [(&str, &str); 15] = [
    ("audience: [x], leeway: 60s", "audience: [x], leeway: 60z"),
    ("cache: 600s", "cache: 600z"),
    ("ipv6_prefix: 64", "ipv6_prefix: 129"),
    ("pro: 6/minute", "pro: 6/mina"),
    ("7/minute", "7/minb"),
    ("8/minute", "8/minc"),
    ("9/minute", "9/mind"),
    ("10/minute", "10/mine"),
    ("limits: [two, three]", "limits: [two, thre]"),
    ("limits: [core, two]", "limits: [core, tow]"),
    ("upstream: other", "upstream: othr"),
    ("50/hour", "50/hora"),
    ("51/hour", "51/horb"),
    ("limit: core }", "limit: cor }"),
    ("would_deny: two", "would_deny: twoo"),
];

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

#[test]
fn value_of_a_wrong_type_or_not_set_hides_no_mistake_in_any_section_and_makes_none() {
    assert_eq!(said(RICH), BTreeSet::new());
    let mut places = Vec::new();
    values(Document::parse("rich", RICH).unwrap().root(), &mut places);
    assert!(places.len() > 190, "{}", places.len());
    let mut wrong = String::new();
    for span in places {
        // Those that are written elsewhere.
        let far: Vec<(usize, &(&str, &str))> = FAR
            .iter()
            .map(|mistake| (RICH.find(mistake.0).unwrap(), mistake))
            .filter(|(start, (old, _))| span.end <= *start || start + old.len() <= span.start)
            .collect();
        let with = |value: &str, far: &[(usize, &(&str, &str))]| {
            let mut edits: Vec<(usize, usize, &str)> =
                far.iter().map(|(start, (old, new))| (*start, start + old.len(), *new)).collect();
            edits.push((span.start, span.end, value));
            edits.sort_unstable();
            let text = edits.iter().rev().fold(RICH.to_owned(), |mut text, (start, end, new)| {
                text.replace_range(*start..*end, new);
                text
            });
            said(&text)
        };
        let around = &RICH[..span.end];
        let around = &around[around.rfind('\n').map_or(0, |at| at + 1)..];
        let sound = &RICH[span.start..span.end];
        let beside = with(sound, &far);
        assert_eq!(beside.len(), far.len(), "{beside:?}");
        for value in ["5", "true", "[[1]]", "{ zz: 1 }", "\"${TOLLGATE_UNSET}\"", "bogus"] {
            let alone = with(value, &[]);
            let all = with(value, &far);
            let expected: BTreeSet<String> = alone.union(&beside).cloned().collect();
            // Another text may be of the right type, so that what it breaks is reported last.
            let is_wrong_type = value != "bogus";
            let hidden: Vec<_> = match is_wrong_type {
                true => expected.difference(&all).collect(),
                false => beside.difference(&all).collect(),
            };
            let made: Vec<_> = all.difference(&expected).collect();
            if !hidden.is_empty() || !made.is_empty() {
                wrong += &format!("{around} -> {value}: hidden {hidden:?}, made {made:?}\n");
            }
            if alone.len() > 1 && is_wrong_type && !value.starts_with('{') {
                wrong += &format!("{around} -> {value}: {alone:?}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{wrong}", wrong.lines().count());
}

#[test]
fn help_of_a_field_is_never_the_example_of_the_field_beside_it() {
    let text = SOUND.replace("name: t,", "name: 1, repeat: x,");
    let sources = Sources::system().with_file("main.jwks", "{}");
    let problems = load(Path::new("api.yaml"), &text, &sources).err().unwrap_or_default();
    let helps: Vec<&str> = problems.iter().map(Problem::help).collect();
    assert!(helps.contains(&"put it in quotes: \"1\""), "{helps:?}");
    assert!(helps.contains(&"write a number from 1"), "{helps:?}");
}
