//! Tiers: classes of consumers that have limits of their own, or of their groups.

use super::{auth::Auth, file::File, limit::KINDS};
use crate::{flow::Flow, names::Names, report::Report};

/// All tiers; the first one is that of consumers without limits of their own.
pub(super) struct Tiers(Vec<Tier>);

struct Tier {
    name: String,
    /// One of those who have it.
    consumer: Option<usize>,
    /// It is that of requests without credentials.
    is_anonymous: bool,
    /// The positions of consumers.
    members: Vec<usize>,
    groups: Vec<usize>,
}

impl Tiers {
    pub(super) fn of(file: &File<'_>, report: &mut Report) -> Self {
        let mut names = Names::default();
        let tier = |name: String, is_anonymous| Tier {
            name,
            consumer: None,
            is_anonymous,
            members: Vec::new(),
            groups: Vec::new(),
        };
        let mut all = vec![tier(names.take("standard"), false)];
        let limits =
            file.plugins.iter().filter(|own| own.is_enabled && KINDS.contains(&&*own.kind));
        let limits: Vec<_> = limits.map(|own| own.scope).collect();
        for (at, consumer) in file.consumers.iter().enumerate() {
            let has_own = limits.iter().any(|scope| scope.consumer == Some(at));
            let is_limited = |group: &usize| limits.iter().any(|scope| scope.group == Some(*group));
            let groups: Vec<usize> = consumer.groups.iter().copied().filter(is_limited).collect();
            let words: Vec<&str> =
                groups.iter().filter_map(|at| file.groups.get(*at)).map(|own| &*own.name).collect();
            if words.len() > 1 {
                let there =
                    format!("consumer {} in groups {}", consumer.own.name, words.join(", "));
                let here = "the limit of the first one by name: see which one Kong takes";
                report.left_out(consumer.own.section.place(), there, here);
            }
            if !has_own && groups.is_empty() {
                continue;
            }
            let is_anonymous = file.is_anonymous(at);
            let known = all
                .iter_mut()
                .find(|own| !has_own && !is_anonymous && !own.is_anonymous && own.groups == groups);
            if let Some(known) = known {
                known.members.push(at);
                continue;
            }
            let written =
                if has_own || is_anonymous { &consumer.own.name } else { &words.join("-") };
            let own = tier(names.take(written), is_anonymous);
            let groups = if has_own { Vec::new() } else { groups };
            all.push(Tier { consumer: Some(at), members: vec![at], groups, ..own });
        }
        Tiers(all)
    }

    pub(super) fn is_standard(&self, consumer: usize) -> bool {
        !self.0.iter().any(|own| own.members.contains(&consumer))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// For each tier who asks. None: nobody who has limits of their own.
    pub(super) fn consumers(&self, auth: &Auth) -> impl Iterator<Item = Option<usize>> {
        let is_optional = auth.is_optional();
        self.0.iter().map(move |own| own.consumer.filter(|_| !own.is_anonymous || is_optional))
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
        let tiers = self.0.iter().skip(1).zip(others).filter(|(_, own)| *own != standard);
        let mut fields: Vec<(String, Flow)> =
            tiers.map(|(tier, own)| (tier.name.clone(), value(own))).collect();
        fields.push(("default".to_owned(), value(standard)));
        Flow::Fields(fields)
    }

    /// The section of the policy.
    pub(super) fn section(&self) -> Option<Flow> {
        let nobody = self.0.iter().find(|own| own.is_anonymous).or(self.0.first())?;
        let names = Flow::list(self.0.iter().map(|own| own.name.clone()));
        let section = Flow::fields([("names", names), ("default", nobody.name.clone().into())]);
        (self.0.len() > 1).then_some(section)
    }

    /// A caller with its tier: `values` are what names each consumer.
    pub(super) fn caller(&self, name: &str, key: &str, values: &[(usize, String)]) -> Flow {
        let mut caller = Flow::fields([("name", name.into()), ("key", key.into())]);
        let tier = |at: &usize| self.0.iter().skip(1).find(|own| own.members.contains(at));
        let entries = values.iter().filter_map(|(at, value)| Some((value.clone(), tier(at)?)));
        let map: Vec<(String, Flow)> =
            entries.map(|(value, tier)| (value, tier.name.clone().into())).collect();
        let standard = self.0.first().map(|own| own.name.clone()).unwrap_or_default();
        if self.0.len() > 1 {
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

impl File<'_> {
    /// Whether requests without credentials may be those of a consumer.
    pub(super) fn has_anonymous(&self) -> bool {
        (0..self.consumers.len()).any(|at| self.is_anonymous(at))
    }

    /// Whether an authentication lets requests without credentials pass as this consumer.
    pub(super) fn is_anonymous(&self, consumer: usize) -> bool {
        self.plugins.iter().any(|own| {
            let name = own.config.text("anonymous");
            own.is_enabled && name.is_some_and(|name| self.consumer_named(&name) == Some(consumer))
        })
    }
}
