//! Overrides before and after: which of them match, and which callers they are for.

use tollgate_policy::{Chooser, KeyValue, Limit, Override, Policy, Wanted};

use super::{
    caller_classes::{CallerClass, CallerSource, Family},
    change::Change,
    words,
};

/// An override before and after.
pub(super) struct OverridePair<'p> {
    /// What it applies to, as the policy writes it.
    pub(super) name: String,
    pub(super) before: Option<PolicyOverride<'p>>,
    pub(super) after: Option<PolicyOverride<'p>>,
}

/// An override, and its policy.
#[derive(Clone, Copy)]
pub(super) struct PolicyOverride<'p> {
    pub(super) rule: &'p Override,
    policy: &'p Policy,
}

impl<'p> OverridePair<'p> {
    /// All overrides of a limit, in the order of the old policy and then of the new one.
    pub(super) fn all(
        [old, new]: [&'p Policy; 2],
        [before, after]: [Option<&'p Limit>; 2],
    ) -> Vec<OverridePair<'p>> {
        let mut all: Vec<OverridePair<'p>> = Vec::new();
        for own in of_limit(before, old) {
            all.push(OverridePair { name: own.name(), before: Some(own), after: None });
        }
        for own in of_limit(after, new) {
            let is_same = |other: &&mut OverridePair<'p>| {
                other.before.is_some_and(|before| before.is_for_the_same_as(&own))
            };
            match all.iter_mut().find(is_same) {
                Some(other) => other.after = Some(own),
                None => all.push(OverridePair { name: own.name(), before: None, after: Some(own) }),
            }
        }
        all
    }

    /// Whether callers of a class may have one of them.
    pub(super) fn may_apply_to(&self, class: &CallerClass<'_>) -> bool {
        self.before.or(self.after).is_some_and(|own| own.may_be_for(class))
    }
}

impl PolicyOverride<'_> {
    fn name(&self) -> String {
        let name = |own: &KeyValue| match &own.value {
            Wanted::Caller(name) => words::caller(name, self.policy),
            Wanted::Claim { issuer, .. } => {
                match issuer.and_then(|at| self.policy.identity.issuer_id(at)) {
                    Some(issuer) => format!("{own} of {issuer}"),
                    None => own.to_string(),
                }
            }
            _ => own.to_string(),
        };
        self.rule.of.iter().map(name).collect::<Vec<_>>().join(" and ")
    }

    /// Compares the names, and the secret values that names leave out.
    fn is_for_the_same_as(&self, other: &PolicyOverride<'_>) -> bool {
        self.name() == other.name() && self.secrets().eq(other.secrets())
    }

    fn secrets(&self) -> impl Iterator<Item = &str> {
        self.rule.of.iter().filter_map(KeyValue::secret)
    }

    fn may_be_for(&self, class: &CallerClass<'_>) -> bool {
        self.rule.of.iter().all(|own| match &own.value {
            Wanted::Caller(name) => {
                let callers = [class.rules.before, class.rules.after];
                callers.into_iter().flatten().any(|caller| caller.name == name.kind)
            }
            Wanted::Network(network) => match class.family {
                Family::V4 => network.addr().is_ipv4(),
                Family::V6 => network.addr().is_ipv6(),
            },
            Wanted::Claim { issuer, .. } => match class.rules.source {
                CallerSource::Token { issuer: own, .. } => {
                    issuer.is_none_or(|at| self.policy.identity.issuer_id(at) == Some(own))
                }
                CallerSource::Opaque { .. } => {
                    issuer.is_none_or(|at| at == self.policy.identity.introspection_position())
                }
                CallerSource::Key { .. } | CallerSource::Address => false,
            },
            Wanted::Host(_) | Wanted::Path(_) => true,
            Wanted::Text(_) => own.part.chooser() != Chooser::Program,
        })
    }
}

fn of_limit<'p>(
    limit: Option<&'p Limit>,
    policy: &'p Policy,
) -> impl Iterator<Item = PolicyOverride<'p>> {
    limit.into_iter().flat_map(move |limit| {
        limit.overrides.0.iter().map(move |rule| PolicyOverride { rule, policy })
    })
}

/// Overrides with another end, or in another order: the first that matches applies.
pub(super) fn changes(old: &Policy, new: &Policy) -> Vec<Change> {
    let mut changes = Vec::new();
    for limit in &old.limits {
        let other = new.limits.iter().find(|other| other.name == limit.name);
        let all = OverridePair::all([old, new], [Some(limit), other]);
        for own in &all {
            if let (Some(before), Some(after)) = (own.before, own.after) {
                let what = format!("override of {} for {}: until", limit.name, own.name);
                changes.extend(Change::between(what, until(before.rule), until(after.rule)));
            }
        }
        let is_kept = |own: &PolicyOverride<'_>| {
            all.iter().any(|kept| {
                let (Some(before), Some(_)) = (kept.before, kept.after) else { return false };
                before.is_for_the_same_as(own)
            })
        };
        let order = |limit: Option<&Limit>, policy| {
            words::list(of_limit(limit, policy).filter(is_kept).map(|own| own.name()))
        };
        let what = format!("order of the overrides of {}", limit.name);
        changes.extend(Change::between(what, order(Some(limit), old), order(other, new)));
    }
    changes
}

fn until(rule: &Override) -> String {
    // Named one by one, so that a new field cannot be forgotten here. The first two are compared as
    // windows, and the reason changes nothing.
    let Override { of: _, allowances: _, until, why: _ } = rule;
    until.map_or_else(|| "no end".to_owned(), |until| until.to_string())
}
