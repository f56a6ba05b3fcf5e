//! The outcome of a change for open windows, by limit and class of callers.
//!
//! A counter's key is made of an [`Allowance::id`] and of what the limit is counted per. So two
//! allowances share a counter if, and only if, their ids are equal, the limit is counted per the
//! same, and so is the caller where that is part of it. A counter holds what was used, not what
//! remains: under another rate it keeps what was used.

use serde::Serialize;
use tollgate_identity::Tiers;
use tollgate_keyword::keywords;
use tollgate_limit::Quota;
use tollgate_policy::{Allowance, KeyPart, Limit, Policy};

use super::{
    caller_classes::{CallerClass, Family, caller_classes},
    labels::{labels, tier_label, unique},
    overrides::OverridePair,
    words,
};

/// The outcome for one window of a limit and some callers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowChange {
    /// The limit.
    pub limit: String,
    /// Whether it is a candidate rate, which only counts.
    pub is_candidate: bool,
    /// The outcome. Its field is called `fate` in JSON.
    #[serde(rename = "fate")]
    pub outcome: WindowOutcome,
    /// The callers: tiers, kinds of callers, single callers that have overrides.
    pub to: Vec<String>,
    /// The quota before.
    pub before: Option<String>,
    /// The quota after.
    pub after: Option<String>,
    /// Which parts of the counter's key change.
    pub because: Vec<String>,
    /// The effect on callers that have used some of it.
    pub effect: String,
}

/// The outcome for a window, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowOutcome {
    /// Another counter replaces it: all callers start from zero.
    Fresh,
    /// It no longer counts.
    Gone,
    /// The same counter, under another rate.
    Rescaled,
    /// It did not exist before.
    New,
    /// Nothing changes.
    Kept,
}

keywords! {
    WindowOutcome {
        Fresh = "fresh", Gone = "gone", Rescaled = "rescaled", New = "new", Kept = "kept",
    }
}

/// The outcomes for all windows of all limits.
pub(super) fn windows(old: &Policy, new: &Policy) -> Vec<WindowChange> {
    let classes = caller_classes(&old.identity, &new.identity);
    let names = old.limits.iter().map(|limit| &*limit.name);
    let added = new.limits.iter().map(|limit| &*limit.name);
    let added = added.filter(|name| old.limits.iter().all(|limit| *limit.name != **name));
    let mut changes: Vec<WindowChange> = names
        .chain(added)
        .flat_map(|name| LimitPair::new(name, old, new).changes(&classes))
        .collect();
    changes.sort_by_key(|change| change.outcome);
    changes
}

/// A limit, before and after.
struct LimitPair<'p> {
    name: &'p str,
    old: &'p Policy,
    new: &'p Policy,
    before: Option<&'p Limit>,
    after: Option<&'p Limit>,
}

/// The allowances of a class, before and after.
struct AllowancePair<'p> {
    class: CallerClass<'p>,
    before: &'p [Allowance],
    after: &'p [Allowance],
    is_candidate: bool,
}

impl<'p> LimitPair<'p> {
    fn new(name: &'p str, old: &'p Policy, new: &'p Policy) -> Self {
        let find = |policy: &'p Policy| policy.limits.iter().find(|limit| *limit.name == *name);
        LimitPair { name, old, new, before: find(old), after: find(new) }
    }

    /// The tiers, before and after.
    fn tiers(&self) -> [&'p Tiers; 2] {
        [self.old, self.new].map(|policy| &policy.identity.tiers)
    }

    fn changes(&self, classes: &[CallerClass<'p>]) -> Vec<WindowChange> {
        let mut groups = Groups { pair: self, classes, groups: Vec::new() };
        for class in classes {
            for is_candidate in [false, true] {
                let (before, after) = self.of_tiers(class, is_candidate);
                for change in
                    self.outcomes(&AllowancePair { class: *class, before, after, is_candidate })
                {
                    groups.add(*class, change);
                }
            }
        }
        let mut changes = groups.finish();
        for own in OverridePair::all([self.old, self.new], [self.before, self.after]) {
            changes.extend(self.override_changes(&own, classes));
        }
        changes
    }

    fn of_tiers(
        &self,
        class: &CallerClass<'p>,
        is_candidate: bool,
    ) -> (&'p [Allowance], &'p [Allowance]) {
        let of = |limit: Option<&'p Limit>, tier: usize| {
            let rates =
                limit.map(|limit| if is_candidate { &limit.candidate } else { &limit.rates });
            rates.and_then(|rates| rates.get(tier)).map_or(&[][..], Vec::as_slice)
        };
        (of(self.before, class.tier_before), of(self.after, class.tier_after))
    }

    /// The outcomes of a class's windows: those with the same id first, then those that replace
    /// others, then the rest.
    fn outcomes(&self, used: &AllowancePair<'p>) -> Vec<WindowChange> {
        let mut changes = Vec::new();
        let mut before: Vec<&Allowance> = used.before.iter().collect();
        let mut after: Vec<&Allowance> = used.after.iter().collect();
        let because = self.other_keys(&used.class);
        let by_id: fn(&Allowance, &Allowance) -> bool = |own, other| own.id == other.id;
        for matches in [by_id, |own, other| own.window_secs == other.window_secs, |_, _| true] {
            after.retain(|own| {
                let Some(at) = before.iter().position(|other| matches(own, other)) else {
                    return true;
                };
                changes.push(self.change(used, Some(before.remove(at)), Some(own), &because));
                false
            });
        }
        let gone = before.into_iter().map(|own| (Some(own), None));
        let added = after.into_iter().map(|own| (None, Some(own)));
        changes
            .extend(gone.chain(added).map(|(own, other)| self.change(used, own, other, &because)));
        changes
    }

    /// The changed parts that the keys of all windows share: the policy's name, what the limit is
    /// counted per, how callers are identified.
    fn other_keys(&self, class: &CallerClass<'_>) -> Vec<String> {
        let (Some(before), Some(after)) = (self.before, self.after) else { return Vec::new() };
        let mut because = Vec::new();
        if self.old.name != self.new.name {
            because.push(format!("policy {} -> {}", self.old.name, self.new.name));
        }
        let key = |limit: &Limit| (limit.per.parts.clone(), prefix(limit, class.family));
        if key(before) != key(after) {
            because.push(format!("per {} -> {}", words::per(&before.per), words::per(&after.per)));
            return because;
        }
        for part in &before.per.parts {
            match part {
                KeyPart::Caller if !class.rules.is_same_caller(class.family) => {
                    let key = |caller| words::caller_keys(caller, class.rules.source);
                    let [before, after] = key([class.rules.before, class.rules.after]);
                    because.push(format!("caller {before} -> {after}"));
                }
                KeyPart::Claim(claim) if !class.rules.source.is_same_claim(claim) => {
                    because.push(format!("jwt.{claim} is read from another claim"));
                }
                // API keys have fields, and no claims.
                KeyPart::Claim(claim) if class.rules.source.claims().is_some() => {
                    let renamed = class.rules.source.renamed();
                    because.extend(renamed.map(|[before, after]| {
                        format!("jwt.{claim} of {before} -> jwt.{claim} of {after}")
                    }));
                }
                _ => {}
            }
        }
        because
    }

    fn change(
        &self,
        used: &AllowancePair<'_>,
        before: Option<&Allowance>,
        after: Option<&Allowance>,
        other_keys: &[String],
    ) -> WindowChange {
        let (outcome, because, effect) = match (before, after) {
            (Some(before), Some(after)) if before.id != after.id || !other_keys.is_empty() => {
                let mut because = other_keys.to_vec();
                because.extend(other_counting(&before.quota, &after.quota));
                (WindowOutcome::Fresh, because, "all counters start from zero".to_owned())
            }
            (Some(before), Some(after)) if is_same_amount(before, after) => {
                (WindowOutcome::Kept, Vec::new(), String::new())
            }
            (Some(before), Some(after)) => {
                (WindowOutcome::Rescaled, Vec::new(), rescaled(&before.quota, &after.quota))
            }
            (Some(_), None) => {
                (WindowOutcome::Gone, Vec::new(), "no longer limited by it".to_owned())
            }
            (None, _) => (WindowOutcome::New, Vec::new(), "begins with nothing used".to_owned()),
        };
        WindowChange {
            limit: self.name.to_owned(),
            is_candidate: used.is_candidate,
            outcome,
            to: Vec::new(),
            before: before.map(|own| words::quota(&own.quota)),
            after: after.map(|own| words::quota(&own.quota)),
            because,
            effect,
        }
    }

    /// The outcomes for the windows of an override. The caller's tier is not known: where it makes
    /// a difference, there is a change for each tier.
    fn override_changes(
        &self,
        of: &OverridePair<'p>,
        classes: &[CallerClass<'p>],
    ) -> Vec<WindowChange> {
        let mut groups = Groups { pair: self, classes: &[], groups: Vec::new() };
        for class in classes.iter().filter(|class| of.may_apply_to(class)) {
            let (before, after) = self.of_tiers(class, false);
            let before = of.before.map_or(before, |own| &own.rule.allowances);
            let after = of.after.map_or(after, |own| &own.rule.allowances);
            let used = AllowancePair { class: *class, before, after, is_candidate: false };
            for change in self.outcomes(&used) {
                groups.add(*class, change);
            }
        }
        groups.finish_for(of)
    }
}

/// Whether an allowance that keeps its counter allows as much as before.
fn is_same_amount(before: &Allowance, after: &Allowance) -> bool {
    // Named one by one, so that a new field cannot be forgotten here. Those that are left out
    // follow from the quota, or are compared with the limit's `refund`.
    let Allowance { quota, id: _, limit: _, name: _, window_secs: _, refunds: _ } = before;
    *quota == after.quota
}

/// The prefix length by which a limit counts, if it counts by addresses.
fn prefix(limit: &Limit, family: Family) -> Option<u8> {
    let is_by_address = limit.per.parts.contains(&KeyPart::ClientIp);
    is_by_address.then_some(match family {
        Family::V4 => limit.per.ipv4_prefix,
        Family::V6 => limit.per.ipv6_prefix,
    })
}

/// Which parts of an [`Allowance::id`] differ, besides the names of policy and limit.
fn other_counting(before: &Quota, after: &Quota) -> Vec<String> {
    let mut because = Vec::new();
    let mut compare = |what: &str, before: Option<String>, after: Option<String>| {
        if before != after {
            let word = |word: Option<String>| word.unwrap_or_else(|| "first request".into());
            because.push(format!("{what} {} -> {}", word(before), word(after)));
        }
    };
    let [old, new] = [before.kind(), after.kind()];
    compare("algorithm", Some(old.name().to_owned()), Some(new.name().to_owned()));
    if let (Some(before), Some(after)) = (words::length(before), words::length(after)) {
        compare("window", Some(before), Some(after));
    }
    if old == new {
        compare("align", words::alignment(before), words::alignment(after));
    }
    because
}

/// How what was used carries over to another quota of the same counter.
fn rescaled(before: &Quota, after: &Quota) -> String {
    let kept = match before.holds_leases() {
        true => "requests in flight stay counted",
        false => "use is kept",
    };
    let old = before.capacity();
    let new = after.capacity();
    // What comes back all at once does not come back faster.
    let [pace, pace_after] =
        [before, after].map(|quota| quota.terms()).map(|own| own.is_refilled.then_some(own.units));
    let mut words = vec![kept.to_owned()];
    if new > old {
        words.push(format!("{} more", new - old));
    } else if new < old {
        words.push(format!("{} fewer: callers that have used more wait", old - new));
    }
    match pace.cmp(&pace_after) {
        std::cmp::Ordering::Less => words.push("refills faster".into()),
        std::cmp::Ordering::Greater => words.push("refills more slowly".into()),
        std::cmp::Ordering::Equal => {}
    }
    words.join(", ")
}

/// Equal changes, with the classes that they affect.
struct Groups<'g, 'p> {
    pair: &'g LimitPair<'p>,
    classes: &'g [CallerClass<'p>],
    groups: Vec<(WindowChange, Vec<CallerClass<'p>>)>,
}

impl<'p> Groups<'_, 'p> {
    fn add(&mut self, class: CallerClass<'p>, change: WindowChange) {
        match self.groups.iter_mut().find(|(other, _)| *other == change) {
            Some((_, classes)) => classes.push(class),
            None => self.groups.push((change, vec![class])),
        }
    }

    fn finish(self) -> Vec<WindowChange> {
        let Groups { pair, classes: all, groups } = self;
        let label = |(change, classes): (WindowChange, Vec<CallerClass<'p>>)| WindowChange {
            to: labels(pair.tiers(), all, &classes),
            ..change
        };
        groups.into_iter().map(label).collect()
    }

    /// Without windows that are kept: for single callers these are not worth a line.
    fn finish_for(self, caller: &OverridePair<'_>) -> Vec<WindowChange> {
        let Groups { pair, groups, .. } = self;
        let is_one = groups.len() == 1;
        let changed =
            groups.into_iter().filter(|(change, _)| change.outcome != WindowOutcome::Kept);
        changed
            .map(|(change, classes)| {
                let tiers: Vec<String> =
                    classes.iter().map(|class| tier_label(pair.tiers(), class)).collect();
                let to = match is_one {
                    true => caller.name.clone(),
                    false => format!("{} in {}", caller.name, words::list(unique(tiers))),
                };
                WindowChange { to: vec![to], ..change }
            })
            .collect()
    }
}
