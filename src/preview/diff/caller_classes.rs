//! Seats: everybody who can be told apart by how they are named and by tier, before and after.
//!
//! A caller sits where the rules put it. The same token, API key or address is looked at with the
//! rules of both policies, and each pair of places that one of them can have is a class.

use std::collections::HashSet;

use crate::identity::{Caller, CallerKey, ClaimRules, IdentityRules, TierSource};

/// Those who are named alike and are of one tier, before and after.
#[derive(Clone, Copy)]
pub(super) struct CallerClass<'p> {
    /// How they are named.
    pub(super) rules: CallerRules<'p>,
    /// The version of IP that they come by.
    pub(super) family: Family,
    /// Position of their tier before.
    pub(super) tier_before: usize,
    /// Position of their tier after.
    pub(super) tier_after: usize,
}

/// How the same token, key or address is named before and after; none: it is nobody's.
#[derive(Clone, Copy)]
pub(super) struct CallerRules<'p> {
    /// What they show.
    pub(super) source: CallerSource<'p>,
    /// The rule of the old policy.
    pub(super) before: Option<&'p Caller>,
    /// The rule of the new one.
    pub(super) after: Option<&'p Caller>,
}

/// What a caller shows, of what both policies know.
#[derive(Clone, Copy)]
pub(super) enum CallerSource<'p> {
    /// A token that says whose it is.
    Token {
        /// Whose.
        issuer: &'p str,
        /// What the old policy and the new one make of its claims.
        claims: [&'p ClaimRules; 2],
    },
    /// A token that only those who are asked about it can read.
    Opaque {
        /// Who they are to the old policy and to the new one.
        ids: [&'p str; 2],
        /// What both make of its claims.
        claims: [&'p ClaimRules; 2],
    },
    /// An API key.
    Key {
        /// Who vouches for it, to the old policy and to the new one.
        ids: [&'p str; 2],
    },
    /// Nothing but an address.
    Address,
}

/// The version of IP that a request comes by: prefixes differ by it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl CallerRules<'_> {
    /// Whether the caller's part of counter keys stays: it is made of who vouches, the claim's name
    /// and its value, or of the address and the prefix. What the rule is called is no part of it.
    pub(super) fn is_same_caller(&self, family: Family) -> bool {
        match (self.before.map(|own| &own.key), self.after.map(|own| &own.key)) {
            (Some(CallerKey::Address { .. }), Some(CallerKey::Address { .. }))
                if family == Family::V4 =>
            {
                true
            }
            (Some(CallerKey::Claim(before)), Some(CallerKey::Claim(after))) => {
                let source = self.source;
                before == after && source.is_same_claim(before) && source.renamed().is_none()
            }
            (Some(CallerKey::ApiKey(before)), Some(CallerKey::ApiKey(after))) => {
                before == after && self.source.renamed().is_none()
            }
            (before, after) => before == after,
        }
    }

    /// What kind of caller it is.
    pub(super) fn kind(&self) -> String {
        match (self.before, self.after) {
            (Some(before), Some(after)) if before.name != after.name => {
                format!("{}, now {}", before.name, after.name)
            }
            (Some(caller), _) | (None, Some(caller)) => caller.name.to_string(),
            (None, None) => "callers without a name".to_owned(),
        }
    }
}

impl<'p> CallerSource<'p> {
    /// What both policies make of its claims, if it has any.
    pub(super) fn claims(&self) -> Option<[&'p ClaimRules; 2]> {
        match *self {
            CallerSource::Token { claims, .. } | CallerSource::Opaque { claims, .. } => {
                Some(claims)
            }
            CallerSource::Key { .. } | CallerSource::Address => None,
        }
    }

    /// Who vouched for it and who does, if it is somebody else to counters: what two say alike is not
    /// the same.
    pub(super) fn renamed(&self) -> Option<[&'p str; 2]> {
        match *self {
            CallerSource::Opaque { ids, .. } | CallerSource::Key { ids } => {
                let [before, after] = ids;
                (before != after).then_some(ids)
            }
            CallerSource::Token { .. } | CallerSource::Address => None,
        }
    }

    /// Whether a claim is read from the same place as before.
    pub(super) fn is_same_claim(&self, claim: &str) -> bool {
        let Some([before, after]) = self.claims() else { return true };
        // A dotted path may lead through a claim that has another name.
        let mut through = claim.match_indices('.').filter_map(|(dot, _)| claim.get(..dot));
        let is_same = |name| claim_path(before, name) == claim_path(after, name);
        is_same(claim) && through.all(is_same)
    }

    /// What it is called where kinds of callers do not tell it apart.
    pub(super) fn label(&self) -> String {
        match self {
            CallerSource::Token { issuer, .. } => format!("with tokens of {issuer}"),
            CallerSource::Opaque { .. } => "with opaque tokens".to_owned(),
            CallerSource::Key { .. } => "with API keys".to_owned(),
            CallerSource::Address => "without tokens".to_owned(),
        }
    }
}

/// Where a policy finds the claim that it calls so.
pub(super) fn claim_path<'p>(rules: &'p ClaimRules, claim: &'p str) -> &'p str {
    rules.names.iter().find(|(name, _)| **name == *claim).map_or(claim, |(_, path)| path)
}

/// All classes, each once.
pub(super) fn caller_classes<'p>(
    old: &'p IdentityRules,
    new: &'p IdentityRules,
) -> Vec<CallerClass<'p>> {
    let mut classes = Vec::new();
    for rules in caller_rules(old, new) {
        let mut tiers = Vec::new();
        for values in tier_values(old, new) {
            let pair = (tier(old, rules.before, &values), tier(new, rules.after, &values));
            if !tiers.contains(&pair) {
                tiers.push(pair);
            }
        }
        for (tier_before, tier_after) in tiers {
            let class = |family| CallerClass { rules, family, tier_before, tier_after };
            classes.extend([Family::V4, Family::V6].map(class));
        }
    }
    classes
}

/// All ways in which the same token, key or address can be named by both.
pub(super) fn caller_rules<'p>(
    old: &'p IdentityRules,
    new: &'p IdentityRules,
) -> Vec<CallerRules<'p>> {
    let sources = shared_sources(old, new).into_iter();
    let mut all: Vec<CallerRules<'p>> =
        sources.flat_map(|source| rule_pairs(source, old, new)).collect();
    let before = by_address(old);
    let after = by_address(new);
    if before.is_some() || after.is_some() || all.is_empty() {
        all.push(CallerRules { source: CallerSource::Address, before, after });
    }
    all
}

/// What somebody vouches for to both policies. There is one to ask about opaque tokens and one file
/// of API keys: whatever it is called, those who show the same as before meet it.
fn shared_sources<'p>(old: &'p IdentityRules, new: &'p IdentityRules) -> Vec<CallerSource<'p>> {
    let mut all = Vec::new();
    for before in &old.issuers {
        if let Some(after) = new.issuers.iter().find(|other| other.issuer == before.issuer) {
            let claims = [&before.claims, &after.claims];
            all.push(CallerSource::Token { issuer: &before.issuer, claims });
        }
    }
    if let (Some(before), Some(after)) = (&old.introspection, &new.introspection) {
        let claims = [&before.claims, &after.claims];
        all.push(CallerSource::Opaque { ids: [&before.id, &after.id], claims });
    }
    if let (Some(before), Some(after)) = (&old.api_keys, &new.api_keys) {
        all.push(CallerSource::Key { ids: [&before.id, &after.id] });
    }
    all
}

/// The pairs of rules that can name the same token: the first whose claim it has names it, so one
/// that is named by a rule has none of the claims before it. Where no rule is for such tokens, the
/// address names their senders.
fn rule_pairs<'p>(
    source: CallerSource<'p>,
    old: &'p IdentityRules,
    new: &'p IdentityRules,
) -> Vec<CallerRules<'p>> {
    let rules_before = rules_for(source, old);
    let rules_after = rules_for(source, new);
    let mut all = Vec::new();
    let named = |before, after| CallerRules { source, before, after };
    for (at, &(before, claim)) in rules_before.iter().enumerate() {
        let lacks = |other: &str| rules_before.iter().take(at).any(|(_, own)| *own == other);
        for (at, &(after, other)) in rules_after.iter().enumerate() {
            let lacks_claim = rules_after.iter().take(at).any(|(_, own)| *own == claim);
            if !lacks(other) && !lacks_claim {
                all.push(named(Some(before), Some(after)));
            }
        }
        if rules_after.is_empty() {
            all.push(named(Some(before), by_address(new)));
        }
    }
    if rules_before.is_empty() {
        let after: Vec<Option<&Caller>> = match rules_after.as_slice() {
            [] => vec![by_address(new)],
            rules => rules.iter().map(|(caller, _)| Some(*caller)).collect(),
        };
        all.extend(after.into_iter().map(|after| named(by_address(old), after)));
    }
    all
}

/// The rules that name those who show this, each with the claim or field that it reads.
fn rules_for<'p>(source: CallerSource<'_>, rules: &'p IdentityRules) -> Vec<(&'p Caller, &'p str)> {
    let rule = |caller: &'p Caller| match (&caller.key, source) {
        (CallerKey::Claim(claim), CallerSource::Token { .. } | CallerSource::Opaque { .. }) => {
            Some((caller, &**claim))
        }
        (CallerKey::ApiKey(field), CallerSource::Key { .. }) => Some((caller, &**field)),
        _ => None,
    };
    rules.callers.iter().filter_map(rule).collect()
}

fn by_address(rules: &IdentityRules) -> Option<&Caller> {
    rules.callers.iter().find(|caller| matches!(caller.key, CallerKey::Address { .. }))
}

/// What a token may say of a tier: nothing, each value that either policy knows, and each two of
/// them, with one that none does. Of three, two tables look at no more than two.
fn tier_values<'p>(
    old: &'p IdentityRules,
    new: &'p IdentityRules,
) -> impl Iterator<Item = Vec<&'p str>> {
    let mut known: Vec<&str> = old.tiers.names().chain(new.tiers.names()).collect();
    for caller in old.callers.iter().chain(&new.callers) {
        if let TierSource::Table(table) = &caller.tier {
            known.extend(table.entries.iter().map(|(value, _)| &**value));
        }
    }
    // No tier is called so, and no table has it.
    known.push("");
    let mut seen = HashSet::new();
    // In the order of the policy: changes are shown in it.
    known.retain(|value| seen.insert(*value));
    let pairs = known.clone().into_iter().flat_map({
        let known = known.clone();
        move |one| known.clone().into_iter().map(move |other| vec![one, other])
    });
    let single = known.into_iter().map(|value| vec![value]);
    single.chain([Vec::new()]).chain(pairs)
}

/// The tier of those who are named by `caller` and whose token has these values.
fn tier(rules: &IdentityRules, caller: Option<&Caller>, values: &[&str]) -> usize {
    let source = caller.map_or(&TierSource::Default, |caller| &caller.tier);
    source.tier(values.iter().copied(), &rules.tiers)
}
