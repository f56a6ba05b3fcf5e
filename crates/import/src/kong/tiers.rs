//! Tiers: classes of consumers that have limits of their own, or of their groups.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    auth::Auth,
    file::{Consumer, File},
    limit::KINDS,
};
use crate::{flow::Flow, names::Names, report::Report};

/// All tiers; the first one is that of consumers without limits of their own.
pub(super) struct Tiers {
    all: Vec<Tier>,
    /// The tiers of consumers with limits of their own, all by position.
    of: BTreeMap<usize, usize>,
    /// The tier of requests without credentials, which are another consumer on each route.
    nobody: Option<usize>,
    /// Consumers that requests without credentials are on some route.
    anonymous: BTreeSet<usize>,
}

struct Tier {
    name: String,
    /// One of those who have it.
    consumer: Option<usize>,
}

impl Tiers {
    pub(super) fn of(file: &File<'_>, report: &mut Report) -> Self {
        let mut names = Names::default();
        // What rates call all other tiers.
        names.take("default");
        let standard = Tier { name: names.take("standard"), consumer: None };
        let (of, anonymous) = (BTreeMap::new(), file.anonymous());
        let mut tiers = Tiers { all: vec![standard], of, nobody: None, anonymous };
        let is_known = |kind: &str| kind == "jwt" || kind == "key-auth";
        if !file.plugins.iter().any(|own| own.is_enabled && is_known(&own.kind)) {
            return tiers;
        }
        let is_limit = |kind: &str| KINDS.contains(&kind);
        let limits = file.plugins.iter().filter(|own| own.is_enabled && is_limit(&own.kind));
        let limits: Vec<_> = limits.map(|own| own.scope).collect();
        let own: BTreeSet<usize> = limits.iter().filter_map(|scope| scope.consumer).collect();
        let limited: BTreeSet<usize> = limits.iter().filter_map(|scope| scope.group).collect();
        let mut by_groups: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        let mut nobodies = Vec::new();
        for (at, consumer) in file.consumers.iter().enumerate() {
            let groups = consumer.groups.iter().copied().filter(|group| limited.contains(group));
            let groups: Vec<usize> = groups.collect();
            let groups_name = name_of_groups(file, consumer, &groups, report);
            let has_own = own.contains(&at);
            if !has_own && groups.is_empty() {
                continue;
            }
            if tiers.anonymous.contains(&at) {
                nobodies.push(consumer);
                if !has_credentials(consumer) {
                    continue;
                }
            }
            let known = by_groups.get(&groups).filter(|_| !has_own);
            let known = known.copied().unwrap_or_else(|| {
                let name = names.take(if has_own { &consumer.own.name } else { &groups_name });
                tiers.all.push(Tier { name, consumer: Some(at) });
                tiers.all.len() - 1
            });
            if !has_own {
                by_groups.insert(groups, known);
            }
            tiers.of.insert(at, known);
        }
        tiers.add_nobody(&nobodies, names, report);
        tiers
    }

    /// The tier of requests without credentials, if some of these consumers have limits.
    fn add_nobody(&mut self, limited: &[&Consumer<'_>], mut names: Names, report: &mut Report) {
        let name = match limited {
            [] => return,
            [only] if !has_credentials(only) && self.anonymous.len() == 1 => &only.own.name,
            _ => "anonymous",
        };
        self.nobody = Some(self.all.len());
        self.all.push(Tier { name: names.take(name), consumer: None });
        for own in limited.iter().filter(|own| has_credentials(own)) {
            let there = format!("consumer {} is `anonymous` and has credentials", own.own.name);
            let here = "two counters, where Kong has one: looser by what one of them lets through";
            report.nearly(own.own.section.place(), there, here);
        }
        if self.anonymous.len() > 1 {
            let here = "a limit for each that has one of its own; of the others, requests without \
                        credentials share one counter: stricter";
            report.nearly("all authentication", "several `anonymous` consumers", here);
        }
    }

    pub(super) fn is_standard(&self, consumer: usize) -> bool {
        !self.of.contains_key(&consumer)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether requests without credentials are those of a consumer on some route.
    pub(super) fn has_anonymous(&self) -> bool {
        !self.anonymous.is_empty()
    }

    /// For each tier who asks. None: nobody who has limits of their own.
    pub(super) fn consumers(&self, auth: &Auth) -> impl Iterator<Item = Option<usize>> {
        let anonymous = auth.anonymous.filter(|_| auth.is_some());
        let is_nobody = |at: usize| self.nobody == Some(at);
        let all = self.all.iter().enumerate();
        all.map(move |(at, own)| if is_nobody(at) { anonymous } else { own.consumer })
    }

    /// The consumer that a tier is on a route, if it is another one elsewhere: its limits have a
    /// counter of their own.
    pub(super) fn changing(&self, tier: usize, auth: &Auth) -> Option<usize> {
        let is_so = self.nobody == Some(tier) && self.anonymous.len() > 1;
        auth.anonymous.filter(|_| is_so)
    }

    /// Rates by tier; without any, a tier is unlimited.
    pub(super) fn rate(&self, rates: &[Vec<String>]) -> Flow {
        let value = |own: &[String]| match own {
            [] => "unlimited".into(),
            [one] => Flow::Text(one.clone()),
            more => Flow::list(more.iter().cloned()),
        };
        let Some((standard, others)) = rates.split_first() else { return Flow::fields([]) };
        if others.iter().all(|own| own == standard) {
            return value(standard);
        }
        let tiers = self.all.iter().skip(1).zip(others).filter(|(_, own)| *own != standard);
        let mut fields: Vec<(String, Flow)> =
            tiers.map(|(tier, own)| (tier.name.clone(), value(own))).collect();
        fields.push(("default".to_owned(), value(standard)));
        Flow::Fields(fields)
    }

    /// The section of the policy.
    pub(super) fn section(&self) -> Option<Flow> {
        let nobody = self.nobody.and_then(|at| self.all.get(at)).or(self.all.first())?;
        let names = Flow::list(self.all.iter().map(|own| own.name.clone()));
        let section = Flow::fields([("names", names), ("default", nobody.name.clone().into())]);
        (self.all.len() > 1).then_some(section)
    }

    /// A caller with its tier: `values` are what names each consumer.
    pub(super) fn caller(&self, name: &str, key: &str, values: &[(usize, String)]) -> Flow {
        let mut caller = Flow::fields([("name", name.into()), ("key", key.into())]);
        let tier = |at: &usize| self.of.get(at).and_then(|tier| self.all.get(*tier));
        let entries = values.iter().filter_map(|(at, value)| Some((value.clone(), tier(at)?)));
        let map: Vec<(String, Flow)> =
            entries.map(|(value, tier)| (value, tier.name.clone().into())).collect();
        let standard = self.all.first().map(|own| own.name.clone()).unwrap_or_default();
        if self.all.len() > 1 {
            let tier = match map.is_empty() {
                true => Flow::Text(standard),
                false => Flow::fields([
                    ("from", key.into()),
                    ("map", Flow::Fields(map)),
                    ("default", standard.into()),
                ]),
            };
            caller = caller.with("tier", tier);
        }
        caller
    }
}

/// What the tier of a consumer is called by its groups with limits.
fn name_of_groups(
    file: &File<'_>,
    consumer: &Consumer<'_>,
    groups: &[usize],
    report: &mut Report,
) -> String {
    let names = groups.iter().filter_map(|at| file.groups.get(*at));
    let names: Vec<&str> = names.map(|own| own.name.as_str()).collect();
    if names.len() > 1 {
        let there = format!("consumer {} in groups {}", consumer.own.name, names.join(", "));
        let here = "the limit of the first one by name: see which one Kong takes";
        report.left_out(consumer.own.section.place(), there, here);
    }
    names.join("-")
}

/// Whether requests with credentials may be those of a consumer.
pub(super) fn has_credentials(consumer: &Consumer<'_>) -> bool {
    !(consumer.keys.is_empty() && consumer.tokens.is_empty())
}

impl File<'_> {
    /// The consumers that some authentication takes requests without credentials for.
    fn anonymous(&self) -> BTreeSet<usize> {
        let enabled = self.plugins.iter().filter(|own| own.is_enabled);
        let names: BTreeSet<String> =
            enabled.filter_map(|own| own.config.text("anonymous")).collect();
        names.iter().filter_map(|name| self.consumer_named(name)).collect()
    }
}
