//! Limits and tiers that nothing uses.

use std::collections::HashSet;

use tollgate_identity::TierSource;
use tollgate_yaml::{Check, Node, Value, warning::Rule};

use crate::{
    KeyPart, Limit, Policy,
    compile::Compiler,
    file::{RawMeasure, RawPolicy},
};

impl Compiler<'_> {
    pub(super) fn warn_of_unused_limits(&mut self, raw: &RawPolicy, policy: &Policy) {
        let of_routes = policy.routes.iter().flat_map(|route| &route.limits);
        let of_descriptors = policy.descriptors.iter().flat_map(|rule| &rule.limits);
        let used: HashSet<usize> = of_routes.chain(of_descriptors).copied().collect();
        for (at, (name, limit)) in raw.limits.iter().enumerate() {
            let parts = policy.limits.get(at).map_or(&[][..], |limit| &limit.per.parts);
            // Programs may charge it by the name of a caller or of a claim, too.
            let may_be_named =
                parts.iter().any(|part| matches!(part, KeyPart::Caller | KeyPart::Claim(_)));
            // Programs charge it by its name.
            let is_named = policy.limits.get(at).is_some_and(Limit::is_named)
                || (may_be_named && limit.verified.is_some());
            if !used.contains(&at) && !is_named {
                let is_of_descriptors = policy.limits.get(at).is_some_and(Limit::is_of_descriptors);
                let by = if is_of_descriptors { "entry of `rls`" } else { "route" };
                let message = format!("no {by} lists limit `{}`", name.value);
                let help = match is_of_descriptors {
                    true => "add it to the `limits` of an entry of `rls`, or remove it",
                    false if may_be_named => {
                        "add it to the `limits` of a route, or remove it; where only programs \
                         charge it by a caller's name, say so by `verified: true`"
                    }
                    false => "add it to the `limits` of a route, or remove it",
                };
                self.warn(Rule::UnusedLimit, name.span, message, help);
            }
        }
    }

    /// A tier is used if a table names it, such as `rate: { pro: 900/hour }`, if an entry of
    /// `callers` does, or if it is the one of callers without another.
    pub(super) fn warn_of_unused_tiers(&mut self, raw: &RawPolicy, policy: &Policy) {
        let Some(tiers) = &raw.tiers else { return };
        let of_limits = raw.limits.iter().flat_map(|(_, limit)| {
            let candidate = limit.candidate.as_ref().map(|candidate| candidate.value.clone());
            [Some(limit.measure()), candidate]
        });
        let tables: Vec<Vec<String>> = of_limits.flatten().flat_map(tiers_of).collect();
        // Such a table treats tiers that it does not name unlike the default tier.
        let default = policy.identity.tiers.names().nth(policy.identity.tiers.default);
        let sets_default_apart = |table: &Vec<String>| {
            let names = |tier: &str| table.iter().any(|name| name == tier);
            names("default") && default.is_some_and(names)
        };
        if tables.iter().any(sets_default_apart) {
            return;
        }
        let mut used: HashSet<String> = tables.into_iter().flatten().collect();
        for (at, name) in policy.identity.tiers.names().enumerate() {
            let is_named = policy.identity.callers.iter().any(|caller| match &caller.tier {
                TierSource::Fixed(tier) => *tier == at,
                TierSource::Table(table) => {
                    table.default == at || table.entries.iter().any(|(_, tier)| *tier == at)
                }
                TierSource::Default | TierSource::Claim(_) => false,
            });
            if is_named || at == policy.identity.tiers.default {
                used.insert(name.to_owned());
            }
        }
        for name in tiers.names.iter().filter(|name| !used.contains(&name.value)) {
            let message = format!("no rate and no entry of `callers` names tier `{}`", name.value);
            let help = "give it a rate of its own, or remove it";
            self.warn(Rule::UnusedTier, name.span, message, help);
        }
    }
}

/// The tiers that each table of a measure names.
fn tiers_of(measure: RawMeasure) -> Vec<Vec<String>> {
    let RawMeasure { rate, burst, capacity, concurrent, .. } = measure;
    let names = |node: Node| {
        let Value::Mapping(entries) = node.value else { return Vec::new() };
        entries.into_iter().map(|(tier, _)| tier.value).collect()
    };
    [rate, burst, capacity, concurrent].into_iter().flatten().map(names).collect()
}
