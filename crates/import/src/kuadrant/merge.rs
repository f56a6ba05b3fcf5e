//! Which policy holds on a path: defaults and overrides of several, as Kuadrant merges them.

use crate::gateway::{Level, Listener, Path, Target, are_alike, field::Field, objects::Objects};

/// A policy of Kuadrant.
#[derive(Clone)]
pub(super) struct Policy<'r> {
    pub(super) object: Field<'r>,
    pub(super) name: &'r str,
    pub(super) target: Target<'r>,
    created: Option<&'r str>,
    /// Where its rules are: `spec`, or its `defaults` or `overrides`.
    pub(super) block: Field<'r>,
    is_override: bool,
    is_merge: bool,
    /// The names and contents of its rules.
    pub(super) rules: Vec<(&'r str, Field<'r>)>,
}

/// What holds on a path: rules with the policies that they are from, and the policy whose `when`
/// holds for all of them.
#[derive(Clone, Default)]
pub(super) struct Effective {
    /// The names of rules, and where their policies are among all.
    pub(super) rules: Vec<(String, usize)>,
    pub(super) when: Option<usize>,
}

impl<'r> Policy<'r> {
    /// All policies of a kind; `section`: what their rules are below.
    pub(super) fn all(objects: &Objects<'r>, kind: &str, section: &str) -> Vec<Policy<'r>> {
        let mut all: Vec<Policy<'r>> = Vec::new();
        for object in objects.of_kind(kind) {
            let (namespace, name) = object.name();
            let Some(spec) = object.at(&["spec"]) else { continue };
            let (overrides, defaults) = (spec.at(&["overrides"]), spec.at(&["defaults"]));
            let block = overrides.or(defaults).unwrap_or(spec);
            let Some(target) = spec.at(&["targetRef"]).map(|own| Target::of(own, namespace)) else {
                object.complain("a policy without targetRef", "write what it is for");
                continue;
            };
            let own = Policy {
                object,
                name,
                target,
                created: object.text_at(&["metadata", "creationTimestamp"]),
                block,
                is_override: overrides.is_some(),
                is_merge: block.text_at(&["strategy"]) == Some("merge"),
                rules: block.entries(&[section]),
            };
            // Limits by tokens are left out, whichever is in force.
            let other = all.iter().find(|other| own.is_in_doubt(other));
            if let Some(other) = other.filter(|_| kind != "TokenRateLimitPolicy") {
                let message = format!(
                    "{kind} {} is for the same, and which is in force depends on their age",
                    other.name
                );
                object.complain(
                    message,
                    "give both as `kubectl get -o yaml` has them, with creationTimestamp, or only \
                     the one that is in force",
                );
            }
            all.push(own);
        }
        all
    }

    /// That it, or a part of it, holds nowhere.
    pub(super) fn nowhere(&self) -> String {
        format!(
            "not in force on any route in the files: it is for {}, where others may take its \
             place; give that, too, if it is missing",
            self.target.words()
        )
    }

    /// Whether it matters which of two policies on one target is older, and it is not known.
    fn is_in_doubt(&self, other: &Policy<'r>) -> bool {
        let target = |own: &Policy<'r>| Target { namespace: "", ..own.target };
        let is_same = target(self) == target(other)
            && are_alike(self.target.namespace, other.target.namespace);
        let is_known = self.created.is_some() && other.created.is_some();
        let has_common =
            self.rules.iter().any(|(name, _)| other.rules.iter().any(|(own, _)| own == name))
                || (self.block.at(&["when"]).is_some() && other.block.at(&["when"]).is_some());
        is_same && !is_known && !(self.is_merge && other.is_merge && !has_common)
    }
}

/// What holds on a path at a listener.
pub(super) fn effective<'r>(
    path: &Path<'r>,
    listener: &Listener<'r>,
    policies: &[Policy<'r>],
) -> Effective {
    let level = |own: &Policy<'r>| own.target.level(path, listener);
    let mut known: Vec<(Level, Option<&str>, usize)> = policies
        .iter()
        .enumerate()
        .filter_map(|(at, own)| Some((level(own)?, own.created, at)))
        .collect();
    // From the Gateway to the rule, and the older one first.
    known.sort();
    let mut result: Option<Effective> = None;
    for (_, _, at) in known.into_iter().rev() {
        let Some(source) = policies.get(at) else { continue };
        let own = Effective {
            rules: source.rules.iter().map(|(name, _)| ((*name).to_owned(), at)).collect(),
            when: source.block.at(&["when"]).map(|_| at),
        };
        result = Some(match result {
            None => own,
            Some(target) => merged(source, own, target),
        });
    }
    result.unwrap_or_default()
}

/// A policy's rules over those of what is nearer to the path, by its own strategy.
fn merged(policy: &Policy<'_>, source: Effective, target: Effective) -> Effective {
    let (mut winner, loser) = match (policy.is_override, policy.is_merge) {
        (true, false) => return source,
        (false, false) if target.rules.is_empty() => return source,
        (false, false) => return target,
        (true, true) => (source, target),
        (false, true) => (target, source),
    };
    let is_new = |(name, _): &&(String, usize)| !winner.rules.iter().any(|(own, _)| own == name);
    let others: Vec<(String, usize)> = loser.rules.iter().filter(is_new).cloned().collect();
    winner.rules.extend(others);
    winner.when = winner.when.or(loser.when);
    winner
}
