//! Labels of the callers that a change affects: the most general ones that are still exact.

use tollgate_identity::Tiers;

use super::caller_classes::{CallerClass, Family};

/// Labels of some of `all` classes: first of those over both versions of IP, then of the others.
pub(super) fn labels(
    tiers: [&Tiers; 2],
    all: &[CallerClass<'_>],
    classes: &[CallerClass<'_>],
) -> Vec<String> {
    let of = |classes: &[CallerClass<'_>], family| -> Vec<CallerGroup> {
        let own = classes.iter().filter(|class| class.family == family);
        own.map(|class| CallerGroup::of(tiers, class)).collect()
    };
    let all = of(all, Family::V4);
    let [v4, v6] = [Family::V4, Family::V6].map(|family| of(classes, family));
    let (both, only_v4): (Vec<CallerGroup>, Vec<CallerGroup>) =
        v4.iter().cloned().partition(|group| v6.contains(group));
    let only_v6: Vec<CallerGroup> = v6.into_iter().filter(|group| !v4.contains(group)).collect();
    let over = |groups: &[CallerGroup], version: &str| -> Vec<String> {
        let labels = group_labels(&all, groups).into_iter();
        labels.map(|label| format!("{label} over {version}")).collect()
    };
    let one_version = [over(&only_v4, "IPv4"), over(&only_v6, "IPv6")].concat();
    [group_labels(&all, &both), one_version].concat()
}

/// The callers of a class, over either version of IP.
#[derive(Clone, PartialEq)]
struct CallerGroup {
    tier: String,
    kind: String,
    source: String,
}

impl CallerGroup {
    fn of(tiers: [&Tiers; 2], class: &CallerClass<'_>) -> CallerGroup {
        let kind = class.rules.kind();
        let source = class.rules.source.label();
        CallerGroup { tier: tier_label(tiers, class), kind, source }
    }
}

/// `everybody`, tiers, kinds of callers of a tier, or those of a kind with a certain token: the
/// most general label that is still exact.
fn group_labels(all: &[CallerGroup], groups: &[CallerGroup]) -> Vec<String> {
    let has_all = |is_it: &dyn Fn(&CallerGroup) -> bool| {
        all.iter().filter(|group| is_it(group)).all(|group| groups.contains(group))
    };
    if !groups.is_empty() && has_all(&|_| true) {
        return vec!["everybody".into()];
    }
    let label = |own: &CallerGroup| {
        let CallerGroup { tier, kind, source } = own;
        let whose = match has_all(&|group| group.tier == *tier && group.kind == *kind) {
            true => kind.clone(),
            false => format!("{kind} {source}"),
        };
        match tier.as_str() {
            _ if has_all(&|group| group.tier == *tier) => tier.clone(),
            "default" => whose,
            _ => format!("{tier} ({whose})"),
        }
    };
    unique(groups.iter().map(label))
}

/// The tier of a class, before and after.
pub(super) fn tier_label(tiers: [&Tiers; 2], class: &CallerClass<'_>) -> String {
    let name = |tiers: &Tiers, at| tiers.get(at).map_or(String::new(), |t| t.name.to_string());
    let [old, new] = tiers;
    let before = name(old, class.tier_before);
    let after = name(new, class.tier_after);
    match before == after {
        true => before,
        false => format!("{before}, now {after}"),
    }
}

/// The items without duplicates, in order.
pub(super) fn unique<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for item in items {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}
