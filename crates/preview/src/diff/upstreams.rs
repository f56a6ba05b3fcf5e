//! Differences of upstreams: where requests go, and how they are sent there.

use tollgate_policy::{Policy, Upstream};

use super::change::Change;

/// Upstreams that are otherwise, that are there only before, and only after.
pub(super) fn upstreams(old: &Policy, new: &Policy) -> Vec<Change> {
    let mut changes = Vec::new();
    for own in &old.upstreams {
        let what = format!("upstream {}", own.name);
        match find(new, &own.name) {
            Some(other) => changes.extend(between(&what, own, other)),
            None => changes.push(Change::removed(&what, own.servers_in_words())),
        }
    }
    for own in new.upstreams.iter().filter(|own| find(old, &own.name).is_none()) {
        changes.push(Change::added(&format!("upstream {}", own.name), own.servers_in_words()));
    }
    changes
}

fn find<'p>(policy: &'p Policy, name: &str) -> Option<&'p Upstream> {
    policy.upstreams.iter().find(|own| *own.name == *name)
}

fn between(upstream: &str, old: &Upstream, new: &Upstream) -> Vec<Change> {
    let what = |field: &str| match field {
        // What an upstream is, before all.
        "servers" => upstream.to_owned(),
        field => format!("{upstream}: {field}"),
    };
    let mut changes = Change::between_fields(old.in_words(), new.in_words(), what);
    let have_same_words = old.transport.to_string() == new.transport.to_string();
    if have_same_words && old.transport != new.transport {
        let what = format!("{upstream}: authorities or certificates are others");
        changes.push(Change { what, before: None, after: None, effect: None });
    }
    changes
}
