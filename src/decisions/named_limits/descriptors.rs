//! From descriptors that Envoy sends to charges: which counters, and how many units.

use smallvec::SmallVec;
use tollgate_clock::Timestamp;
use tollgate_gate::{
    CounterNames, charge_plan::ChargePlan, hash_descriptor, tally::DecidedCharge, write_key_name,
};
use tollgate_limit::{Hashing, Later, Stance};
use tollgate_policy::{
    DescriptorCharge, DescriptorRule, KeyValue, Limit, Policies, Policy, Wanted,
};
use tollgate_wire::envoy::rate_limit::{RateLimitDescriptor, RateLimitRequest};

use super::charges::{Asker, ChargeTerms, add};

/// Why descriptors cannot be planned: Envoy has to ask otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::decisions) enum DescriptorError {
    /// Nobody's limits.
    #[error("the domain is empty: set `domain` of the filter")]
    Domain,
    /// There are none, or too many.
    #[error(
        "a request has to have 1 to {MAX_DESCRIPTORS} descriptors, with up to {MAX_ENTRIES} entries each"
    )]
    Number,
}

/// Descriptors of a request.
const MAX_DESCRIPTORS: usize = 64;

/// Entries of a descriptor.
const MAX_ENTRIES: usize = 32;

/// The most hits of a descriptor, which more count as: what a limit can be.
const MAX_HITS: u32 = i32::MAX as u32;

/// Planned charges of descriptors.
pub(in crate::decisions) struct DescriptorPlan<'p, 'd> {
    /// Whose limits they are.
    pub(in crate::decisions) policy: &'p Policy,
    /// All charges that have to fit.
    pub(in crate::decisions) plan: ChargePlan<'p>,
    /// The charges of each descriptor.
    pub(in crate::decisions) parts: Vec<DescriptorPart>,
    /// What is corrected once the charges are taken: the position of a charge, and the hits.
    pub(in crate::decisions) afterwards: Vec<(usize, Afterwards)>,
    /// The first descriptor that has limits, as denials name it.
    pub(in crate::decisions) who: String,
    pub(in crate::decisions) counters: DescriptorCounters<'p, 'd>,
}

/// The counters that are charged, each once.
#[derive(Default)]
pub(in crate::decisions) struct DescriptorCounters<'p, 'd>(Vec<Counter<'p, 'd>>);

/// The charges of a descriptor.
#[derive(Clone, Debug, Default)]
pub(in crate::decisions) struct DescriptorPart {
    /// Their positions in the plan.
    pub(in crate::decisions) charges: SmallVec<[usize; 2]>,
    /// Whether its hits have happened: they are taken whatever becomes of the rest.
    pub(in crate::decisions) has_happened: bool,
}

/// What is done with hits that need not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decisions) enum Afterwards {
    /// They are taken, over the limit too.
    Take(u32),
    /// They are given back.
    GiveBack(u32),
}

impl<'p, 'd> DescriptorPlan<'p, 'd> {
    /// Plans a request that came at `now`; none: no policy has limits for its domain.
    ///
    /// # Errors
    /// [`DescriptorError`].
    pub(in crate::decisions) fn of(
        policies: &'p Policies,
        asker: Asker<'_>,
        request: &'d RateLimitRequest,
        now: Timestamp,
    ) -> Result<Option<DescriptorPlan<'p, 'd>>, DescriptorError> {
        let RateLimitRequest { domain, descriptors, hits_addend } = request;
        if domain.is_empty() {
            return Err(DescriptorError::Domain);
        }
        let is_small = |descriptor: &RateLimitDescriptor| descriptor.entries.len() <= MAX_ENTRIES;
        if !(1..=MAX_DESCRIPTORS).contains(&descriptors.len()) || !descriptors.iter().all(is_small)
        {
            return Err(DescriptorError::Number);
        }
        let hits = descriptors.iter().map(|own| {
            let hits = own.hits_addend.unwrap_or_else(|| u64::from((*hits_addend).max(1)));
            u32::try_from(hits).unwrap_or(MAX_HITS).min(MAX_HITS)
        });
        let has_domain =
            |policy: &&Policy| policy.descriptors.iter().any(|rule| *rule.domain == **domain);
        let Some(policy) = policies.iter().find(has_domain) else { return Ok(None) };

        let mut planned = DescriptorPlan {
            policy,
            plan: ChargePlan::of_tier(policy.identity.tiers.default),
            parts: Vec::with_capacity(descriptors.len()),
            afterwards: Vec::new(),
            who: String::new(),
            counters: DescriptorCounters::default(),
        };
        for (descriptor, hits) in descriptors.iter().zip(hits) {
            let rule = policy
                .descriptors
                .iter()
                .find(|rule| *rule.domain == **domain && rule.matches(pairs(descriptor)));
            let part = rule.map(|rule| planned.add_descriptor(rule, descriptor, hits, asker, now));
            planned.parts.push(part.unwrap_or_default());
        }
        Ok(Some(planned))
    }

    /// Adds the charges of a descriptor.
    fn add_descriptor(
        &mut self,
        rule: &'p DescriptorRule,
        descriptor: &'d RateLimitDescriptor,
        hits: u32,
        asker: Asker<'_>,
        now: Timestamp,
    ) -> DescriptorPart {
        if self.who.is_empty() {
            let entries = pairs(descriptor).map(|(key, value)| format!("{key} {value}"));
            self.who = entries.collect::<Vec<String>>().join(", ");
        }
        let has_happened = rule.charge == DescriptorCharge::Always;
        let mut part = DescriptorPart { charges: SmallVec::new(), has_happened };
        for limit in rule.limits.iter().filter_map(|at| self.policy.limits.get(*at)) {
            let entries = rule.counted(pairs(descriptor));
            let owner = hash_descriptor(asker.hasher(), &limit.per, entries);
            let units = hits.saturating_mul(limit.cost.default).min(MAX_HITS);
            let (cost, later) = match (descriptor.is_negative_hits, rule.charge) {
                (true, _) => (0, Some(Afterwards::GiveBack(units))),
                (false, DescriptorCharge::Always) => (0, Some(Afterwards::Take(units))),
                (false, DescriptorCharge::Admitted) => (units, None),
            };
            // Two descriptors may have one counter: it is charged once, with the sum.
            let range = match self.counters.of(limit.position, owner) {
                Some(known) => {
                    let range = known.charges.clone();
                    for charge in self.plan.charges.get_mut(range.clone()).into_iter().flatten() {
                        charge.cost = charge.cost.saturating_add(cost).min(MAX_HITS);
                    }
                    if !has_happened {
                        self.enforce(range.clone());
                    }
                    range
                }
                None => {
                    let first = self.plan.charges.len();
                    let is_for = |own: &KeyValue| match (own.part.name(), &own.value) {
                        (Some(name), Wanted::Text(value)) => {
                            pairs(descriptor).any(|pair| pair == (name, &**value))
                        }
                        _ => false,
                    };
                    let origin = asker.origin_of_descriptor(limit, pairs(descriptor));
                    let tier = self.plan.tier;
                    let terms = ChargeTerms { owner, entry: owner, tier, cost, now, origin };
                    add(&mut self.plan, limit, terms, is_for);
                    let charges = first..self.plan.charges.len();
                    if has_happened {
                        // It denies nothing else.
                        let own = self.plan.charges.get_mut(charges.clone());
                        own.into_iter().flatten().for_each(|own| own.stance = Stance::Observe);
                    }
                    self.counters.0.push(Counter {
                        limit,
                        owner,
                        charges: charges.clone(),
                        rule,
                        descriptor,
                    });
                    charges
                }
            };
            if let Some(Afterwards::Take(1..)) = later {
                self.have_counted(range.clone());
            }
            self.afterwards.extend(range.clone().filter_map(|at| Some((at, later?))));
            part.charges.extend(range);
        }
        part
    }

    /// Has charges need a counter, as they are for what has happened: where their limit is
    /// enforced, the request is refused without it.
    fn have_counted(&mut self, range: std::ops::Range<usize>) {
        let planned = self.plan.limits.get(range.clone()).into_iter().flatten();
        let charges = self.plan.charges.get_mut(range).into_iter().flatten();
        for (planned, charge) in planned.zip(charges) {
            charge.later = match planned.role.is_enforced() {
                true => Later::Happened,
                false => Later::Cost,
            };
        }
    }

    /// Has charges deny what does not fit, as their limit says: a descriptor needs them to fit.
    fn enforce(&mut self, range: std::ops::Range<usize>) {
        let planned = self.plan.limits.get(range.clone()).into_iter().flatten();
        let charges = self.plan.charges.get_mut(range).into_iter().flatten();
        for (planned, charge) in planned.zip(charges) {
            charge.stance = match planned.role.is_enforced() {
                true => Stance::Enforce,
                false => Stance::Observe,
            };
        }
    }
}

/// A counter that is charged already.
struct Counter<'p, 'd> {
    limit: &'p Limit,
    owner: u128,
    charges: std::ops::Range<usize>,
    /// The first descriptor that is charged to it, and what that is counted by.
    descriptor: &'d RateLimitDescriptor,
    rule: &'p DescriptorRule,
}

impl<'p, 'd> DescriptorCounters<'p, 'd> {
    fn of(&self, limit: usize, owner: u128) -> Option<&Counter<'p, 'd>> {
        self.0.iter().find(|own| own.limit.position == limit && own.owner == owner)
    }

    /// Their names.
    pub(in crate::decisions) fn names(&self, hasher: &Hashing) -> CounterNames {
        let mut names = CounterNames::default();
        for counter in &self.0 {
            let mut name = String::new();
            counter.write(hasher, &mut name);
            names.add(counter.owner, name);
        }
        names
    }

    /// Whether the charge at this position of the plan is that of the first window of a limit.
    pub(in crate::decisions) fn has_first_window(&self, at: usize) -> bool {
        self.0.iter().any(|own| own.charges.start == at)
    }

    /// Writes the name of the counter of a charge.
    pub(in crate::decisions) fn write(
        &self,
        own: &DecidedCharge<'_, '_>,
        hasher: &Hashing,
        to: &mut String,
    ) {
        let limit = own.planned.limit.position;
        if let Some(counter) = self.of(limit, own.charge.key.owner) {
            counter.write(hasher, to);
        }
    }
}

impl Counter<'_, '_> {
    fn write(&self, hasher: &Hashing, to: &mut String) {
        let entries = self.rule.counted(pairs(self.descriptor));
        let its = self.limit.per.parts.iter().flat_map(|part| {
            let is_its = move |(name, _): &(&str, &str)| part.name() == Some(name);
            entries.clone().filter(is_its).map(move |(_, value)| (part, value.as_bytes()))
        });
        let its: Vec<_> = its.collect();
        write_key_name(its.into_iter(), hasher, to);
    }
}

fn pairs(descriptor: &RateLimitDescriptor) -> impl ExactSizeIterator<Item = (&str, &str)> + Clone {
    descriptor.entries.iter().map(|entry| (&*entry.key, &*entry.value))
}
