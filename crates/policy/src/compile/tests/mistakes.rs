//! Mistakes, one by one and two by two: one hides no other.

use std::collections::BTreeSet;

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
const MISTAKES: [(&str, &str); 39] = [
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
                if alone[at].is_disjoint(&found) {
                    let mistake = MISTAKES[at].1;
                    hidden += &format!("{mistake:?} beside {:?}: only {found:?}\n", beside.1);
                }
            }
        }
    }
    assert!(pairs > 650, "{pairs}");
    assert!(hidden.is_empty(), "{}\n{hidden}", hidden.lines().count());
}
