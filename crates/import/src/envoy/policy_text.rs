//! Rules as the text of a policy.

use std::fmt::Write;

use super::{Rate, Rule, entry::Entry};
use crate::{Finding, Verdict, flow::quoted};

/// What is left to do where values of descriptors are not fixed.
const UNSAID: &str = "\
# To do: `tollgate check` names the limits below of which only you know who chooses the values that
# they count by. Add `verified: true` to those whose values no client can make up, such as users
# that Envoy has authenticated, and `verified: false` to the others, such as paths and headers.
";

/// Whether a rule has a limit that counts by values that it does not fix.
fn is_open(rule: &Rule<'_>) -> bool {
    let is_fixed = |own: &Entry<'_>| own.value.is_some_and(|value| !value.contains('*'));
    rule.rate.is_some() && !rule.entries.iter().all(is_fixed)
}

/// Rules as a policy, each with the name of its limit, if it has one. At the top is what is left
/// out of it.
pub(super) fn policy_text(
    rules: &[Rule<'_>],
    names: &[Option<String>],
    findings: &[Finding],
) -> String {
    let (mut limits, mut entries) = (String::new(), String::new());
    for (rule, name) in rules.iter().zip(names) {
        let listed = name.as_deref().unwrap_or_default();
        if let Some(rate) = &rule.rate {
            let _ = writeln!(limits, "  {listed}: {{ {} }}", measure(&rule.entries, rate));
        }
        let (domain, when) = (quoted(rule.domain), when(&rule.entries));
        let _ = writeln!(entries, "  - {{ domain: {domain}, when: {when}, limits: [{listed}] }}");
    }
    let sections = [("limits", limits), ("rls", entries)].into_iter();
    let sections: String = sections
        .filter(|(_, lines)| !lines.is_empty())
        .map(|(name, lines)| format!("{name}:\n{lines}\n"))
        .collect();
    let left_out: String = findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::LeftOut)
        .map(|Finding { place, there, .. }| format!("# Left out: {place}: {there}\n"))
        .collect();
    let unsaid = if rules.iter().any(is_open) { UNSAID } else { "" };
    let host = host_of(rules.first().map_or("", |rule| rule.domain));
    format!(
        "# Limits for Envoy's rate limit filter, from descriptors of envoyproxy/ratelimit.\n\
         {left_out}version: 1\n\n\
         # Envoy asks by gRPC, and sends no request here: host, upstream and route stand only \
         for\n\
         # what every policy has. Leave them as they are.\n\
         hosts: [{host}]\n\
         upstreams: {{ none: {{ servers: [\"http://127.0.0.1:9\"], paths: {{}} }} }}\n\
         routes: [{{ match: {{ path: /** }}, auth: none, limits: [] }}]\n\n\
         {unsaid}{}\n",
        sections.trim_end()
    )
}

/// The `when` of a rule: keys and values, or entries where that cannot say it.
fn when(entries: &[Entry<'_>]) -> String {
    let is_there_twice =
        |own: &Entry<'_>| entries.iter().filter(|entry| entry.key == own.key).count() > 1;
    if entries.iter().any(|own| own.is_shared || is_there_twice(own)) {
        let entry = |own: &Entry<'_>| {
            let value = own.value.map(|value| format!(", value: {}", quoted(value)));
            let shared = if own.is_shared { ", shared: true" } else { "" };
            format!("{{ key: {}{}{shared} }}", quoted(own.key), value.unwrap_or_default())
        };
        return format!("[{}]", entries.iter().map(entry).collect::<Vec<_>>().join(", "));
    }
    let keys: Vec<String> = entries.iter().map(|own| quoted(own.key)).collect();
    let valued = |own: &Entry<'_>| Some(format!("{}: {}", quoted(own.key), quoted(own.value?)));
    let values: Vec<String> = entries.iter().filter_map(valued).collect();
    match values.is_empty() {
        true => format!("{{ key: [{}] }}", keys.join(", ")),
        false => format!("{{ key: [{}], value: {{ {} }} }}", keys.join(", "), values.join(", ")),
    }
}

/// The fields of a limit.
fn measure(entries: &[Entry<'_>], rate: &Rate<'_>) -> String {
    let mut parts: Vec<String> = Vec::new();
    for entry in entries {
        let part = quoted(&format!("descriptor.{}", entry.key));
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    let mode = if rate.is_shadow { ", mode: shadow" } else { "" };
    format!("per: [{}], rate: {}{mode}", parts.join(", "), rate.rate)
}

/// The limit's own name, or one of its keys and values.
pub(super) fn written_name(rule: &Rule<'_>, own: Option<&str>) -> String {
    let words = rule.entries.iter().flat_map(|own| [Some(own.key), own.value]).flatten();
    own.map_or_else(|| words.collect::<Vec<&str>>().join("-"), str::to_owned)
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
