//! The descriptors of envoyproxy/ratelimit: a tree of keys and values, with a rate at some of its
//! nodes. Each path to a rate becomes a limit and an entry of `rls`.
//!
//! The reference looks for the most specific node at each level (a value, then a value that begins
//! so, then any value), and never goes back to a less specific one. Entries of `rls` are tried in
//! their order, so they are written in that one; where a specific node hides what is below a less
//! specific one, an entry without limits says so.

use std::fmt::Write;

use serde::Deserialize;
use tollgate_yaml::{Span, Spanned};

/// A file of the reference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Configuration {
    domain: Spanned<String>,
    #[serde(default)]
    descriptors: Vec<Spanned<Descriptor>>,
}

/// A node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Descriptor {
    key: Spanned<String>,
    value: Option<Spanned<String>>,
    rate_limit: Option<Spanned<RateLimit>>,
    #[serde(default)]
    descriptors: Vec<Spanned<Descriptor>>,
    shadow_mode: Option<bool>,
    // These change what the reference measures and how, not what it limits.
    #[serde(rename = "detailed_metric")]
    _detailed_metric: Option<bool>,
    #[serde(rename = "value_to_metric")]
    _value_to_metric: Option<bool>,
    share_threshold: Option<Spanned<bool>>,
    quota_mode: Option<Spanned<bool>>,
}

/// A rate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RateLimit {
    name: Option<String>,
    unit: Option<Spanned<String>>,
    requests_per_unit: Option<Spanned<u32>>,
    #[serde(default)]
    unlimited: bool,
    replaces: Option<Spanned<Vec<Replaced>>>,
    #[serde(rename = "sleep_on_throttle")]
    _sleep_on_throttle: Option<bool>,
}

/// A limit that another one replaces.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replaced {
    #[serde(rename = "name")]
    _name: String,
}

/// The reference's units: their names, and the rates of a window of one.
const UNITS: [(&str, &str); 7] = [
    ("second", "second, align: epoch"),
    ("minute", "minute, align: epoch"),
    ("hour", "hour, align: epoch"),
    ("day", "day, align: epoch"),
    ("week", "week, align: calendar, timezone: UTC"),
    ("month", "month, align: calendar, timezone: UTC"),
    ("year", "year, align: calendar, timezone: UTC"),
];

/// A policy, and what is not in it.
pub(super) struct Imported {
    pub(super) policy: String,
    pub(super) left_out: Vec<LeftOut>,
}

/// Something that has no counterpart here.
pub(super) struct LeftOut {
    pub(super) span: Span,
    pub(super) message: String,
}

/// An entry of `rls` to be.
#[derive(Clone)]
struct Rule<'c> {
    entries: Vec<(&'c str, Option<&'c str>)>,
    /// None: it hides a less specific entry.
    rate: Option<Rate<'c>>,
}

#[derive(Clone)]
struct Rate<'c> {
    /// As a limit has it.
    rate: String,
    name: Option<&'c str>,
    is_shadow: bool,
}

/// The keys of a limit.
const MAX_KEYS: usize = 8;

/// The length of a limit's name.
const MAX_NAME: usize = 64;

/// The most nodes that are looked through, each as often as a more specific one hides it: what is
/// hidden is hidden again on the next level, so a small file can make very many entries.
const MAX_VISITS: usize = 10_000;

/// The configuration needs more entries than a policy should have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "more than {MAX_VISITS} entries are needed: nodes with a value hide those without one on many \
     levels. Write out the values, or give each level fewer nodes, and import again"
)]
pub(super) struct TooManyEntries;

/// The policy for a configuration.
///
/// # Errors
///
/// It needs too many entries.
pub(super) fn policy(configuration: &Configuration) -> Result<Imported, TooManyEntries> {
    let mut left_out = Vec::new();
    let mut rules = Vec::new();
    let mut visits = 0;
    collect(&configuration.descriptors, &[], &mut rules, &mut left_out, &mut visits)?;
    let mut names: Vec<String> = Vec::new();
    let (mut limits, mut entries) = (String::new(), String::new());
    for rule in &rules {
        let keys: Vec<&str> = rule.entries.iter().map(|(key, _)| *key).collect();
        let mut listed = String::new();
        if let Some(rate) = &rule.rate {
            let name = unique_name(rule, rate.name, &names);
            let _ = writeln!(limits, "  {name}: {{ {} }}", measure(&keys, rate));
            listed.clone_from(&name);
            names.push(name);
        }
        let keys: Vec<String> = keys.iter().map(|key| quoted(key)).collect();
        let mut when = format!("key: [{}]", keys.join(", "));
        let values: Vec<String> = rule
            .entries
            .iter()
            .filter_map(|(key, value)| Some(format!("{}: {}", quoted(key), quoted((*value)?))))
            .collect();
        if !values.is_empty() {
            let _ = write!(when, ", value: {{ {} }}", values.join(", "));
        }
        let domain = quoted(&configuration.domain.value);
        let _ =
            writeln!(entries, "  - {{ domain: {domain}, when: {{ {when} }}, limits: [{listed}] }}");
    }
    let host = host_of(&configuration.domain.value);
    let sections = [("limits", limits), ("rls", entries)].into_iter();
    let sections: String = sections
        .filter(|(_, lines)| !lines.is_empty())
        .map(|(name, lines)| format!("{name}:\n{lines}\n"))
        .collect();
    let policy = format!(
        "# Limits for Envoy's rate limit filter, from descriptors of envoyproxy/ratelimit.\n\
         version: 1\n\n\
         # Envoy asks by gRPC. No request is for this host.\n\
         hosts: [{host}]\n\
         upstreams: {{ none: {{ servers: [\"http://127.0.0.1:9\"] }} }}\n\
         routes: [{{ match: {{ path: /** }}, auth: none, limits: [] }}]\n\n\
         {}\n",
        sections.trim_end()
    );
    Ok(Imported { policy, left_out })
}

/// Adds the rules of nodes that are below `above`.
fn collect<'c>(
    nodes: &'c [Spanned<Descriptor>],
    above: &[(&'c str, Option<&'c str>)],
    rules: &mut Vec<Rule<'c>>,
    left_out: &mut Vec<LeftOut>,
    visits: &mut usize,
) -> Result<(), TooManyEntries> {
    let mut ordered: Vec<&Spanned<Descriptor>> = nodes.iter().collect();
    ordered.sort_by_key(|node| specificity(&node.value));
    for (at, node) in ordered.iter().enumerate() {
        *visits += 1;
        if *visits > MAX_VISITS {
            return Err(TooManyEntries);
        }
        let own = &node.value;
        let entry = entry_of(own);
        let mut path = above.to_vec();
        path.push(entry);
        note_what_is_ignored(own, left_out);
        let has_key_twice = above.iter().any(|(key, _)| *key == entry.0);
        if has_key_twice || path.len() > MAX_KEYS {
            let message = match has_key_twice {
                true => format!("a descriptor that has the key `{}` more than once", entry.0),
                false => format!("a descriptor of more than {MAX_KEYS} keys"),
            };
            left_out.push(LeftOut { span: node.span, message });
            continue;
        }
        let first = rules.len();
        if let Some(rate_limit) = &own.rate_limit {
            let is_shadow = own.shadow_mode == Some(true);
            match rate_limit.value.rate() {
                Some(rate) => rules.push(Rule {
                    entries: path.clone(),
                    rate: Some(Rate { rate, name: rate_limit.value.name.as_deref(), is_shadow }),
                }),
                None => left_out.push(LeftOut {
                    span: rate_limit.span,
                    message: "a rate without `requests_per_unit`, or without a `unit` from second \
                              to year"
                        .to_owned(),
                }),
            }
        }
        collect(&own.descriptors, &path, rules, left_out, visits)?;
        // What a less specific node of the same key has is not found from here.
        for other in ordered.iter().skip(at + 1).filter(|other| covers(&other.value, own)) {
            let mut hidden = Vec::new();
            let other = std::slice::from_ref(*other);
            collect(other, above, &mut hidden, &mut Vec::new(), visits)?;
            for mut rule in hidden {
                if let Some(place) = rule.entries.get_mut(above.len()) {
                    *place = entry;
                }
                rule.rate = None;
                let mut known = rules.iter().skip(first);
                if !known.any(|known| known.entries == rule.entries) {
                    rules.push(rule);
                }
            }
        }
    }
    Ok(())
}

/// The less, the earlier the reference takes it.
fn specificity(node: &Descriptor) -> (u8, std::cmp::Reverse<usize>) {
    match entry_of(node).1 {
        Some(value) => match value.strip_suffix('*') {
            None => (0, std::cmp::Reverse(0)),
            Some(prefix) => (1, std::cmp::Reverse(prefix.len())),
        },
        None => (2, std::cmp::Reverse(0)),
    }
}

fn entry_of(node: &Descriptor) -> (&str, Option<&str>) {
    let value = node.value.as_ref().map(|value| &*value.value).filter(|value| !value.is_empty());
    (&node.key.value, value)
}

/// Whether what `specific` is for, `other` is for as well.
fn covers(other: &Descriptor, specific: &Descriptor) -> bool {
    let ((key, value), (own_key, own)) = (entry_of(other), entry_of(specific));
    key == own_key
        && match (value.map(|value| value.strip_suffix('*')), own) {
            (None, Some(_)) => true,
            (Some(Some(prefix)), Some(own)) => own.starts_with(prefix),
            (Some(None), _) | (_, None) => false,
        }
}

impl RateLimit {
    /// As a limit's `rate` has it; none: it has no rate, or a unit that is none.
    fn rate(&self) -> Option<String> {
        if self.unlimited {
            return Some("unlimited".to_owned());
        }
        let unit = &self.unit.as_ref()?.value;
        let (_, window) = UNITS.into_iter().find(|(name, _)| unit.eq_ignore_ascii_case(name))?;
        Some(format!("{}/{window}", self.requests_per_unit.as_ref()?.value))
    }
}

fn note_what_is_ignored(node: &Descriptor, left_out: &mut Vec<LeftOut>) {
    let replaces = node.rate_limit.as_ref().and_then(|rate| rate.value.replaces.as_ref());
    let fields = [
        (replaces.map(|field| field.span), "`replaces`: all limits of a request are charged"),
        (
            node.share_threshold.as_ref().map(|field| field.span),
            "`share_threshold`: each value has a counter",
        ),
        (node.quota_mode.as_ref().map(|field| field.span), "`quota_mode`"),
    ];
    for (span, message) in fields {
        if let Some(span) = span {
            left_out.push(LeftOut { span, message: message.to_owned() });
        }
    }
}

/// The fields of a limit.
fn measure(keys: &[&str], rate: &Rate<'_>) -> String {
    let parts: Vec<String> = keys.iter().map(|key| quoted(&format!("descriptor.{key}"))).collect();
    let mode = if rate.is_shadow { ", mode: shadow" } else { "" };
    format!("per: [{}], rate: {}{mode}", parts.join(", "), rate.rate)
}

/// The limit's own name, or one of its keys and values, that no other has.
fn unique_name(rule: &Rule<'_>, own: Option<&str>, taken: &[String]) -> String {
    let words = rule.entries.iter().flat_map(|(key, value)| [Some(*key), *value]).flatten();
    let written = own.map_or_else(|| words.collect::<Vec<&str>>().join("-"), str::to_owned);
    let mut name: String = written
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' })
        .take(MAX_NAME - 6)
        .collect();
    while name.contains("--") {
        name = name.replace("--", "-");
    }
    let name = name.trim_matches('-');
    let name = if name.is_empty() { "limit" } else { name };
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(|name| !taken.contains(name)).unwrap_or_default()
}

/// A host that no request is for (RFC 2606), of this domain.
fn host_of(domain: &str) -> String {
    let label: String = domain
        .chars()
        .map(
            |letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' },
        )
        .take(60)
        .collect();
    let label = label.trim_matches('-');
    format!("{}.rls.invalid", if label.is_empty() { "domain" } else { label })
}

/// A text in YAML, in quotes if it needs them. `${` would name an environment variable.
fn quoted(text: &str) -> String {
    let is_plain = text.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&&*text.to_ascii_lowercase());
    match is_plain {
        true => text.to_owned(),
        false => serde_json::Value::from(text.replace("${", "$${")).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tollgate_yaml::Document;

    use super::*;

    fn imported(text: &str) -> (Vec<String>, Vec<String>) {
        let document = Document::parse("limits.yaml", text).unwrap();
        let mut problems = Vec::new();
        let configuration: Configuration = document.decode(&[], &mut problems).unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        let Imported { policy, left_out } = super::policy(&configuration).unwrap();
        let lines = policy.lines().filter(|line| line.starts_with("  "));
        let left_out = left_out.into_iter().map(|note| note.message);
        (lines.map(|line| line.trim().to_owned()).collect(), left_out.collect())
    }

    #[test]
    fn more_specific_nodes_come_first_and_hide_the_others() {
        let (lines, left_out) = imported(
            "domain: d\ndescriptors:\n\
             - { key: a, rate_limit: { unit: second, requests_per_unit: 1 }, descriptors: [\
                 { key: b, rate_limit: { unit: HOUR, requests_per_unit: 2 } }] }\n\
             - { key: a, value: x*, rate_limit: { unlimited: true } }\n\
             - { key: a, value: xy, rate_limit: { unit: month, requests_per_unit: 3 }, \
                 shadow_mode: true }\n",
        );
        assert_eq!(left_out, [""; 0]);
        let expected = [
            "a-xy: { per: [descriptor.a], rate: 3/month, align: calendar, timezone: UTC, mode: shadow }",
            "a-x: { per: [descriptor.a], rate: unlimited }",
            "a: { per: [descriptor.a], rate: 1/second, align: epoch }",
            "a-b: { per: [descriptor.a, descriptor.b], rate: 2/hour, align: epoch }",
            "- { domain: d, when: { key: [a], value: { a: xy } }, limits: [a-xy] }",
            "- { domain: d, when: { key: [a, b], value: { a: xy } }, limits: [] }",
            "- { domain: d, when: { key: [a], value: { a: \"x*\" } }, limits: [a-x] }",
            "- { domain: d, when: { key: [a, b], value: { a: \"x*\" } }, limits: [] }",
            "- { domain: d, when: { key: [a] }, limits: [a] }",
            "- { domain: d, when: { key: [a, b] }, limits: [a-b] }",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn what_has_no_counterpart_is_left_out_and_told() {
        let (lines, left_out) = imported(
            "domain: d\ndescriptors:\n\
             - { key: k, value: a, descriptors: [\
                 { key: k, rate_limit: { unit: day, requests_per_unit: 1 } }] }\n\
             - { key: l, rate_limit: { unit: fortnight, requests_per_unit: 1 } }\n\
             - { key: m, rate_limit: { unit: day, requests_per_unit: 1, replaces: [{ name: n }] } }\n",
        );
        assert_eq!(lines.len(), 2, "{lines:?}");
        let begun = ["a descriptor that has the key `k`", "a rate without", "`replaces`"];
        assert_eq!(left_out.len(), begun.len(), "{left_out:?}");
        for (note, begun) in left_out.iter().zip(begun) {
            assert!(note.starts_with(begun), "{note}");
        }
    }

    #[test]
    fn small_file_that_needs_very_many_entries_is_refused() {
        let nested = (0..8).fold(String::new(), |below, level| {
            let rate = "rate_limit: { unit: day, requests_per_unit: 1 }";
            let valued =
                ["a", "b", "c"].map(|value| format!("{{ key: k{level}, value: {value} }}"));
            let valued = valued.join(", ");
            format!("{valued}, {{ key: k{level}, {rate}, descriptors: [{below}] }}")
        });
        let text = format!("domain: d\ndescriptors: [{nested}]\n");
        let document = Document::parse("limits.yaml", &text).unwrap();
        let configuration: Configuration = document.decode(&[], &mut Vec::new()).unwrap();
        assert_eq!(super::policy(&configuration).err(), Some(TooManyEntries));
    }

    #[test]
    fn texts_are_quoted_where_yaml_needs_it() {
        for (text, expected) in [
            ("user", "user"),
            ("true", "\"true\""),
            ("7", "\"7\""),
            ("a: b", "\"a: b\""),
            ("${HOME}", "\"$${HOME}\""),
            ("/a/b", "\"/a/b\""),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
