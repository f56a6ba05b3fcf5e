//! The descriptors of envoyproxy/ratelimit: a tree of keys and values, with a rate at some of its
//! nodes. Each path to a rate becomes a limit and an entry of `rls`.
//!
//! The reference takes one node at each level (the value itself; then the first one in the file
//! whose value has `*` and matches; then the key alone), and never goes back to another one.
//! Entries of `rls` are tried in their order, so they are written in that one; where a node hides
//! what is below another one, an entry without limits says so.

mod entry;
mod place;
mod policy_text;

use std::rc::Rc;

use serde::Deserialize;
use tollgate_yaml::{Document, Node, Span, Spanned};

use self::{
    entry::{Entry, are_alike, may_be_both},
    place::{Place, Source},
    policy_text::{policy_text, written_name},
};
use crate::{
    Finding, Imported, Input, Problems,
    flow::UNITS,
    manifest::{self, scalar},
    names::Names,
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
    of: &'c Spanned<RateLimit>,
    source: Source<'c>,
}

/// A node with the file that it is in.
#[derive(Clone, Copy)]
struct Placed<'c> {
    source: Source<'c>,
    node: &'c Spanned<Descriptor>,
}

/// The keys of a limit.
const MAX_KEYS: usize = 8;

/// The highest number of a rate here.
const MAX_REQUESTS: u32 = 2_147_483_647;

/// The most nodes that are looked through, each as often as another one hides it: what is hidden is
/// hidden again on the next level, so a small file can make very many entries.
const MAX_VISITS: usize = 10_000;

/// What is different for requests with several descriptors or hits.
const CHARGED_TOGETHER: &str = "\
    all descriptors of a request are charged, or none if one denies it. There each is charged, also \
    over its limit, unless STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT is true";

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
    let mut rules: Vec<Rule<'_>> = Vec::new();
    let mut names = Names::default();
    let mut limits = Vec::new();
    let mut findings = Vec::new();
    let mut visits = 0;
    for (domain, at, nodes) in domains(configurations) {
        let mut tree = Tree { domain, left_out: Vec::new(), unreachable: Vec::new(), visits };
        let first = rules.len();
        tree.collect(&nodes, &[], &mut rules)?;
        visits = tree.visits;
        tree.left_out.sort();
        tree.unreachable.sort();
        findings.extend(
            tree.left_out
                .into_iter()
                .map(|(place, message)| Finding::left_out(place.text(), message, "no counterpart")),
        );
        findings.extend(tree.unreachable.into_iter().map(|place| {
            let there = "a node that is never taken: another one of its key always is before it";
            Finding::same(place.text(), there, "nothing")
        }));
        findings.push(Finding::nearly(at.text(), format!("domain {domain}"), CHARGED_TOGETHER));
        for rule in rules.iter().skip(first) {
            let limit = rule.rate.as_ref().map(|rate| {
                let name = names.take(&written_name(rule, rate.name));
                findings.push(finding(rule, rate, &name));
                name
            });
            limits.push(limit);
        }
    }
    findings.sort_by_key(|finding| finding.verdict);
    Ok(Imported { policy: policy_text(&rules, &limits, &findings), findings })
}

/// The nodes of each domain, with a place where it is named: several files of one are one tree, as
/// with MERGE_DOMAIN_CONFIG.
fn domains(
    configurations: &[(Rc<Document>, Configuration)],
) -> Vec<(&str, Place<'_>, Vec<Placed<'_>>)> {
    let mut domains: Vec<(&str, Place<'_>, Vec<Placed<'_>>)> = Vec::new();
    for (file, (document, configuration)) in configurations.iter().enumerate() {
        let source = Source { file, document };
        let domain = scalar(document, &configuration.domain).unwrap_or_default();
        let nodes = configuration.descriptors.iter().map(|node| Placed { source, node });
        match domains.iter_mut().find(|(own, ..)| *own == domain) {
            Some((.., known)) => known.extend(nodes),
            None => {
                let place = source.place(configuration.domain.span);
                domains.push((domain, place, nodes.collect()));
            }
        }
    }
    domains
}

/// What became of a rate, whose limit has a name.
fn finding(rule: &Rule<'_>, rate: &Rate<'_>, name: &str) -> Finding {
    let place = rate.source.place(rate.of.span).text();
    // Not the values, which may be keys of an API.
    let keys: Vec<&str> = rule.entries.iter().map(|entry| entry.key).collect();
    let shadow = if rate.is_shadow { ", shadow_mode" } else { "" };
    let there = format!("{}: {}{shadow}", keys.join(", "), rate.of.value.words());
    let shadow = if rate.is_shadow { ", mode: shadow" } else { "" };
    let here = format!("limit {name}, {}{shadow}", rate.rate);
    match rate.of.value.is_too_many() {
        true => {
            let note = "more than a rate here has: nothing is denied";
            Finding::nearly(place, there, format!("{here}; {note}"))
        }
        false => Finding::same(place, there, here),
    }
}

/// The nodes of a configuration, on the way to rules.
struct Tree<'c> {
    domain: &'c str,
    /// What has no counterpart here.
    left_out: Vec<(Place<'c>, String)>,
    /// Nodes that the reference never takes.
    unreachable: Vec<Place<'c>>,
    visits: usize,
}

impl<'c> Tree<'c> {
    /// Adds the rules of nodes that are below `above`.
    fn collect(
        &mut self,
        nodes: &[Placed<'c>],
        above: &[Entry<'c>],
        rules: &mut Vec<Rule<'c>>,
    ) -> Result<(), TooManyEntries> {
        let ordered = self.ordered(nodes);
        for (at, &(entry, placed)) in ordered.iter().enumerate() {
            let Placed { source, node } = placed;
            self.visits += 1;
            if self.visits > MAX_VISITS {
                return Err(TooManyEntries);
            }
            let mut path = above.to_vec();
            path.push(entry);
            self.note_what_is_ignored(placed);
            if path.len() > MAX_KEYS {
                let message = format!("a descriptor of more than {MAX_KEYS} keys");
                self.left_out.push((source.place(node.span), message));
                continue;
            }
            let first = rules.len();
            rules.extend(self.rule(placed, &path));
            let below = node.value.descriptors.iter().map(|node| Placed { source, node });
            self.collect(&below.collect::<Vec<_>>(), &path, rules)?;
            // What another node of the same key has is not found from here.
            let behind = ordered.iter().skip(at + 1);
            for (_, other) in behind.filter(|(other, _)| may_be_both(*other, entry)) {
                let mut hidden = Vec::new();
                let noted = (self.left_out.len(), self.unreachable.len());
                self.collect(std::slice::from_ref(other), above, &mut hidden)?;
                self.left_out.truncate(noted.0);
                self.unreachable.truncate(noted.1);
                for mut rule in hidden {
                    if let Some(place) = rule.entries.get_mut(above.len()) {
                        *place = entry;
                    }
                    rule.rate = None;
                    let mut known = rules.iter().skip(first);
                    if !known.any(|known| are_alike(&known.entries, &rule.entries)) {
                        rules.push(rule);
                    }
                }
            }
        }
        Ok(())
    }

    /// Nodes in the order in which the reference takes them.
    fn ordered(&mut self, nodes: &[Placed<'c>]) -> Vec<(Entry<'c>, Placed<'c>)> {
        let mut ordered = Vec::with_capacity(nodes.len());
        for placed in nodes {
            let Placed { source, node } = *placed;
            let own = &node.value;
            let key = scalar(source.document, &own.key).filter(|key| !key.is_empty());
            let value = own.value.as_ref().map(|value| scalar(source.document, value));
            let mut leave_out = |span: Span, message: &str| {
                self.left_out.push((source.place(span), message.to_owned()));
            };
            match (key, value) {
                (Some(key), _) if key.contains('*') => leave_out(own.key.span, "a key with `*`"),
                (Some(key), None | Some(Some(_))) => {
                    let value = value.flatten().filter(|value| !value.is_empty());
                    let entry = Entry { key, value, is_shared: own.share_threshold };
                    ordered.push((entry, *placed));
                }
                (None, _) => leave_out(own.key.span, "a key that is no text"),
                (_, Some(None)) => leave_out(node.span, "a value that is no text"),
            }
        }
        ordered.sort_by_key(|(entry, _)| match entry.value {
            Some(value) => u8::from(value.contains('*')),
            None => 2,
        });
        let mut reachable: Vec<(Entry<'c>, Placed<'c>)> = Vec::new();
        for (entry, placed) in ordered {
            let is_before = |(own, _): &(Entry<'c>, _)| {
                own.key == entry.key && (own.pattern().is_none() || own.is_like(&entry))
            };
            match reachable.iter().any(is_before) {
                true => self.unreachable.push(placed.source.place(placed.node.span)),
                false => reachable.push((entry, placed)),
            }
        }
        reachable
    }

    /// The rule of a node that has a rate.
    fn rule(&mut self, placed: Placed<'c>, path: &[Entry<'c>]) -> Option<Rule<'c>> {
        let Placed { source, node: Spanned { value: node, .. } } = placed;
        let rate_limit = node.rate_limit.as_ref()?;
        let Some(rate) = rate_limit.value.rate() else {
            let message = "a rate without `requests_per_unit`, or without a `unit` from second to \
                           year";
            self.left_out.push((source.place(rate_limit.span), message.to_owned()));
            return None;
        };
        let is_shadow = node.shadow_mode == Some(true);
        let name = rate_limit.value.name.as_deref();
        let rate = Rate { rate, name, is_shadow, of: rate_limit, source };
        Some(Rule { domain: self.domain, entries: path.to_vec(), rate: Some(rate) })
    }

    fn note_what_is_ignored(&mut self, placed: Placed<'c>) {
        let Placed { source, node: Spanned { value: node, .. } } = placed;
        let replaces = node.rate_limit.as_ref().and_then(|rate| rate.value.replaces.as_ref());
        let replaces = replaces.filter(|field| !field.value.is_empty());
        let quota_mode = node.quota_mode.as_ref().filter(|field| field.value);
        let fields = [
            (replaces.map(|field| field.span), "`replaces`: all limits of a request are charged"),
            (quota_mode.map(|field| field.span), "`quota_mode`"),
        ];
        for (span, message) in fields {
            self.left_out.extend(span.map(|span| (source.place(span), message.to_owned())));
        }
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
        let requests = self.requests_per_unit.as_ref()?.value;
        Some(match self.is_too_many() {
            true => "unlimited".to_owned(),
            false => format!("{requests}/{window}, align: epoch"),
        })
    }

    /// Whether its number is none that a rate here may have.
    fn is_too_many(&self) -> bool {
        let requests = self.requests_per_unit.as_ref().map_or(0, |own| own.value);
        !self.unlimited && requests > MAX_REQUESTS
    }

    /// In words, for the table.
    fn words(&self) -> String {
        match (&self.requests_per_unit, &self.unit) {
            (Some(requests), Some(unit)) if !self.unlimited => {
                format!("{} per {}", requests.value, unit.value.to_ascii_lowercase())
            }
            _ => "unlimited".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
