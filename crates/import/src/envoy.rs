//! The descriptors of envoyproxy/ratelimit: a tree of keys and values, with a rate at some of its
//! nodes. Each path to a rate becomes a limit and an entry of `rls`.
//!
//! The reference takes one node at each level (the value itself; then the first one in the file
//! whose value has `*` and matches; then the key alone), and never goes back to another one.
//! Entries of `rls` are tried in their order, so they are written in that one; where a node hides
//! what is below another one, an entry without limits says so.

mod policy_text;

use std::rc::Rc;

use serde::Deserialize;
use tollgate_yaml::{Document, Node, Span, Spanned};

use self::policy_text::policy_text;
use crate::{
    Finding, Imported, Input, Problems,
    flow::UNITS,
    manifest::{self, scalar},
    problem_of_all,
};

/// A file of the reference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Configuration {
    // Envoy Gateway calls what it writes as its domain.
    #[serde(rename = "name")]
    _name: Option<Node>,
    domain: Node,
    #[serde(default)]
    descriptors: Vec<Spanned<Descriptor>>,
}

/// A node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Descriptor {
    key: Node,
    value: Option<Node>,
    rate_limit: Option<Spanned<RateLimit>>,
    #[serde(default)]
    descriptors: Vec<Spanned<Descriptor>>,
    shadow_mode: Option<bool>,
    // These change what the reference measures and how, not what it limits.
    #[serde(rename = "detailed_metric")]
    _detailed_metric: Option<bool>,
    #[serde(rename = "value_to_metric")]
    _value_to_metric: Option<bool>,
    #[serde(rename = "metadata")]
    _metadata: Option<Node>,
    #[serde(default)]
    share_threshold: bool,
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

/// An entry of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry<'c> {
    key: &'c str,
    /// None: any.
    value: Option<&'c str>,
    is_shared: bool,
}

/// An entry of `rls` to be.
#[derive(Clone)]
struct Rule<'c> {
    domain: &'c str,
    entries: Vec<Entry<'c>>,
    /// None: it hides another entry.
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

/// The most nodes that are looked through, each as often as another one hides it: what is hidden is
/// hidden again on the next level, so a small file can make very many entries.
const MAX_VISITS: usize = 10_000;

/// The configuration needs more entries than a policy should have.
#[derive(Debug, PartialEq, Eq)]
struct TooManyEntries;

/// The policy for the descriptors of envoyproxy/ratelimit, as files or in ConfigMaps.
///
/// # Errors
/// What is wrong with the files, and that they need too many entries.
pub fn envoy(inputs: &[Input]) -> Result<Imported, Problems> {
    let mut problems = Vec::new();
    let mut configurations = Vec::new();
    for document in manifest::documents(inputs)? {
        let decoded = document.decode::<Configuration>(&[], &mut problems);
        configurations.extend(decoded.map(|configuration| (document, configuration)));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    policy(&configurations).map_err(|TooManyEntries| {
        let message = format!(
            "it needs more than {MAX_VISITS} entries: nodes with a value hide those without one on \
             many levels"
        );
        let help = "write out the values, or give each level fewer nodes, and import again";
        vec![problem_of_all(inputs, message, help)]
    })
}

/// The policy for configurations, each with the document that it is decoded from.
fn policy(configurations: &[(Rc<Document>, Configuration)]) -> Result<Imported, TooManyEntries> {
    let mut rules = Vec::new();
    let mut findings = Vec::new();
    let mut visits = 0;
    for (document, configuration) in configurations {
        let domain = scalar(document, &configuration.domain).unwrap_or_default();
        let mut tree = Tree { document, domain, left_out: Vec::new(), visits };
        tree.collect(&configuration.descriptors, &[], &mut rules)?;
        visits = tree.visits;
        tree.left_out.sort();
        findings.extend(tree.left_out.into_iter().map(|(span, message)| {
            let place = document.problem(span, "", "").place();
            Finding::left_out(place, message, "no counterpart")
        }));
    }
    Ok(Imported { policy: policy_text(&rules, &findings), findings })
}

/// The nodes of a configuration, on the way to rules.
struct Tree<'c> {
    document: &'c Document,
    domain: &'c str,
    /// What has no counterpart here.
    left_out: Vec<(Span, String)>,
    visits: usize,
}

impl<'c> Tree<'c> {
    /// Adds the rules of nodes that are below `above`.
    fn collect(
        &mut self,
        nodes: &'c [Spanned<Descriptor>],
        above: &[Entry<'c>],
        rules: &mut Vec<Rule<'c>>,
    ) -> Result<(), TooManyEntries> {
        let ordered = self.ordered(nodes);
        for (at, &(entry, node)) in ordered.iter().enumerate() {
            self.visits += 1;
            if self.visits > MAX_VISITS {
                return Err(TooManyEntries);
            }
            let mut path = above.to_vec();
            path.push(entry);
            self.note_what_is_ignored(&node.value);
            if path.len() > MAX_KEYS {
                let message = format!("a descriptor of more than {MAX_KEYS} keys");
                self.left_out.push((node.span, message));
                continue;
            }
            let first = rules.len();
            rules.extend(self.rule(&node.value, &path));
            self.collect(&node.value.descriptors, &path, rules)?;
            // What another node of the same key has is not found from here.
            let behind = ordered.iter().skip(at + 1);
            for (_, other) in behind.filter(|(other, _)| may_be_both(*other, entry)) {
                let mut hidden = Vec::new();
                let noted = self.left_out.len();
                self.collect(std::slice::from_ref(*other), above, &mut hidden)?;
                self.left_out.truncate(noted);
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

    /// Nodes in the order in which the reference takes them.
    fn ordered(
        &mut self,
        nodes: &'c [Spanned<Descriptor>],
    ) -> Vec<(Entry<'c>, &'c Spanned<Descriptor>)> {
        let mut ordered = Vec::with_capacity(nodes.len());
        for node in nodes {
            let own = &node.value;
            let key = scalar(self.document, &own.key).filter(|key| !key.is_empty());
            let value = own.value.as_ref().map(|value| scalar(self.document, value));
            match (key, value) {
                (Some(key), _) if key.contains('*') => {
                    self.left_out.push((own.key.span, "a key with `*`".to_owned()));
                }
                (Some(key), None | Some(Some(_))) => {
                    let value = value.flatten().filter(|value| !value.is_empty());
                    let entry = Entry { key, value, is_shared: own.share_threshold };
                    ordered.push((entry, node));
                }
                (None, _) => self.left_out.push((own.key.span, "a key that is no text".to_owned())),
                (_, Some(None)) => {
                    self.left_out.push((node.span, "a value that is no text".to_owned()));
                }
            }
        }
        ordered.sort_by_key(|(entry, _)| match entry.value {
            Some(value) => u8::from(value.contains('*')),
            None => 2,
        });
        ordered
    }

    /// The rule of a node that has a rate.
    fn rule(&mut self, node: &'c Descriptor, path: &[Entry<'c>]) -> Option<Rule<'c>> {
        let rate_limit = node.rate_limit.as_ref()?;
        let Some(rate) = rate_limit.value.rate() else {
            let message = "a rate without `requests_per_unit`, or without a `unit` from second to \
                           year";
            self.left_out.push((rate_limit.span, message.to_owned()));
            return None;
        };
        let is_shadow = node.shadow_mode == Some(true);
        let rate = Rate { rate, name: rate_limit.value.name.as_deref(), is_shadow };
        Some(Rule { domain: self.domain, entries: path.to_vec(), rate: Some(rate) })
    }

    fn note_what_is_ignored(&mut self, node: &Descriptor) {
        let replaces = node.rate_limit.as_ref().and_then(|rate| rate.value.replaces.as_ref());
        let replaces = replaces.filter(|field| !field.value.is_empty());
        let quota_mode = node.quota_mode.as_ref().filter(|field| field.value);
        let fields = [
            (replaces.map(|field| field.span), "`replaces`: all limits of a request are charged"),
            (quota_mode.map(|field| field.span), "`quota_mode`"),
        ];
        for (span, message) in fields {
            self.left_out.extend(span.map(|span| (span, message.to_owned())));
        }
    }
}

/// Whether a descriptor may be for both nodes, of which `taken` is taken then.
fn may_be_both(other: Entry<'_>, taken: Entry<'_>) -> bool {
    let both = |one: &str, another: &str| one.starts_with(another) || another.starts_with(one);
    other.key == taken.key
        && match (other.value, taken.value) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(other), Some(taken)) => match other.split_once('*') {
                None => false,
                // What they have between their stars may be anything.
                Some((begin, _)) => {
                    let start = taken.split('*').next().unwrap_or_default();
                    match taken.contains('*') {
                        true => both(begin, start),
                        false => start.starts_with(begin),
                    }
                }
            },
        }
}

impl RateLimit {
    /// As a limit's `rate` has it; none: it has no rate, or a unit that is none.
    fn rate(&self) -> Option<String> {
        if self.unlimited {
            return Some("unlimited".to_owned());
        }
        let unit = &self.unit.as_ref()?.value;
        let (_, window, _) =
            UNITS.into_iter().find(|(name, ..)| unit.eq_ignore_ascii_case(name))?;
        Some(format!("{}/{window}, align: epoch", self.requests_per_unit.as_ref()?.value))
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
        let Imported { policy, findings } =
            super::policy(&[(document.into(), configuration)]).unwrap();
        let left_out = findings.into_iter().map(|own| format!("{}: {}", own.place, own.there));
        let lines = policy.lines().filter(|line| line.starts_with("  "));
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
            "a-xy: { per: [descriptor.a], rate: 3/30d, align: epoch, mode: shadow }",
            "a-x: { per: [descriptor.a], rate: unlimited }",
            "a: { per: [descriptor.a], rate: 1/second, align: epoch }",
            "a-b: { per: [descriptor.a, descriptor.b], rate: 2/hour, align: epoch }",
            "- { domain: d, when: { key: [a], value: { a: xy } }, limits: [a-xy] }",
            "- { domain: d, when: { key: [a, b], value: { a: xy } }, limits: [] }",
            "- { domain: d, when: { key: [a], value: { a: x* } }, limits: [a-x] }",
            "- { domain: d, when: { key: [a, b], value: { a: x* } }, limits: [] }",
            "- { domain: d, when: { key: [a] }, limits: [a] }",
            "- { domain: d, when: { key: [a, b] }, limits: [a-b] }",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn what_has_no_counterpart_is_left_out_and_reported() {
        let (lines, left_out) = imported(
            "name: d\ndomain: d\ndescriptors:\n\
             - { key: \"k*\", rate_limit: { unit: day, requests_per_unit: 1 } }\n\
             - { key: [k], rate_limit: { unit: day, requests_per_unit: 1 } }\n\
             - { key: l, rate_limit: { unit: fortnight, requests_per_unit: 1 } }\n\
             - { key: m, rate_limit: { unit: day, requests_per_unit: 1, replaces: [{ name: n }] } }\n\
             - { key: n, quota_mode: false, rate_limit: { unit: day, requests_per_unit: 1, replaces: [] } }\n",
        );
        assert_eq!(lines.len(), 4, "{lines:?}");
        let expected = [
            "limits.yaml:4:10: a key with",
            "limits.yaml:5:10: a key that is no text",
            "limits.yaml:6:25: a rate without",
            "limits.yaml:7:70: `replaces`",
        ];
        assert_eq!(left_out.len(), expected.len(), "{left_out:?}");
        for (note, expected) in left_out.iter().zip(expected) {
            assert!(note.starts_with(expected), "{note}");
        }
    }

    #[test]
    fn values_with_stars_are_taken_in_the_order_of_the_file() {
        let rate =
            |number: u32| format!("rate_limit: {{ unit: day, requests_per_unit: {number} }}");
        let (lines, left_out) = imported(&format!(
            "domain: 7\ndescriptors:\n\
             - {{ key: p, value: \"foo*\", {} }}\n\
             - {{ key: p, value: \"foobar*\", descriptors: [{{ key: q, value: 30, {} }}] }}\n\
             - {{ key: p, value: true, metadata: {{ owner: a }}, {} }}\n",
            rate(1),
            rate(2),
            rate(3)
        ));
        assert_eq!(left_out, [""; 0]);
        let rules: Vec<&String> = lines.iter().filter(|line| line.starts_with('-')).collect();
        assert_eq!(
            rules,
            [
                "- { domain: \"7\", when: { key: [p], value: { p: \"true\" } }, limits: [p-true] }",
                "- { domain: \"7\", when: { key: [p], value: { p: foo* } }, limits: [p-foo] }",
                "- { domain: \"7\", when: { key: [p, q], value: { p: foo*, q: \"30\" } }, limits: [] }",
                "- { domain: \"7\", when: { key: [p, q], value: { p: foobar*, q: \"30\" } }, \
                 limits: [p-foobar-q-30] }",
            ]
        );
    }

    #[test]
    fn key_that_is_there_twice_and_shared_counters_are_said_entry_by_entry() {
        let (lines, left_out) = imported(
            "domain: d\ndescriptors:\n\
             - { key: k, value: a, descriptors: [\
                 { key: k, value: b, rate_limit: { unit: day, requests_per_unit: 1 } }] }\n\
             - { key: f, value: \"f/*\", share_threshold: true, \
                 rate_limit: { unit: day, requests_per_unit: 2 } }\n",
        );
        assert_eq!(left_out, [""; 0]);
        let rules: Vec<&String> = lines.iter().filter(|line| line.starts_with('-')).collect();
        assert_eq!(
            rules,
            [
                "- { domain: d, when: [{ key: k, value: a }, { key: k, value: b }], limits: [k-a-k-b] }",
                "- { domain: d, when: [{ key: f, value: f/*, shared: true }], limits: [f-f] }",
            ]
        );
        assert!(lines.iter().any(|line| line.starts_with("k-a-k-b: { per: [descriptor.k], ")));
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
        let all = [(document.into(), configuration)];
        assert_eq!(super::policy(&all).err(), Some(TooManyEntries));
    }
}
