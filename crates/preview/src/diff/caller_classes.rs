//! Classes of callers: callers of one class are named by the same rules and have the same tier, in
//! the old policy and in the new one.
//!
//! The rules of both policies are applied to the same token, API key or address. Each pair of
//! results that is possible is a class.

use std::collections::HashSet;

use tollgate_identity::{Caller, CallerKey, ClaimRules, IdentityRules, TierSource};

/// Callers with the same rules and the same tier, before and after.
#[derive(Clone, Copy)]
pub(super) struct CallerClass<'p> {
    /// The rules that name them.
    pub(super) rules: CallerRules<'p>,
    /// The version of IP that they connect with.
    pub(super) family: Family,
    /// Position of their tier before.
    pub(super) tier_before: usize,
    /// Position of their tier after.
    pub(super) tier_after: usize,
}

/// The rules that name the caller of one token, key or address. None: no rule applies.
#[derive(Clone, Copy)]
pub(super) struct CallerRules<'p> {
    /// The kind of credential.
    pub(super) source: CallerSource<'p>,
    /// The rule of the old policy.
    pub(super) before: Option<&'p Caller>,
    /// The rule of the new one.
    pub(super) after: Option<&'p Caller>,
}

/// What identifies a caller, of the sources that both policies know.
#[derive(Clone, Copy)]
pub(super) enum CallerSource<'p> {
    /// A token that contains its claims.
    Token {
        /// Its issuer.
        issuer: &'p str,
        /// The claim rules of the old policy and of the new one.
        claims: [&'p ClaimRules; 2],
    },
    /// A token that only the introspection endpoint can read.
    Opaque {
        /// The ids of the endpoint in the old policy and in the new one.
        ids: [&'p str; 2],
        /// The claim rules of both.
        claims: [&'p ClaimRules; 2],
    },
    /// An API key.
    Key {
        /// The ids of the key file in the old policy and in the new one.
        ids: [&'p str; 2],
    },
    /// Only an address.
    Address,
}

/// The version of IP of a request: limits have a prefix length for each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl CallerRules<'_> {
    /// Whether the caller's part of counter keys stays the same. It is made of the issuer, the
    /// claim's name and its value, or of the address and the prefix, but not of the rule's name.
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

    /// The name of the kind of caller.
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
    /// The claim rules of both policies, if the source has claims.
    pub(super) fn claims(&self) -> Option<[&'p ClaimRules; 2]> {
        match *self {
            CallerSource::Token { claims, .. } | CallerSource::Opaque { claims, .. } => {
                Some(claims)
            }
            CallerSource::Key { .. } | CallerSource::Address => None,
        }
    }

    /// The ids before and after, if they differ. They are part of counter keys, so the same value
    /// under another id is another caller.
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

    /// Its label where the kind of caller is not enough.
    pub(super) fn label(&self) -> String {
        match self {
            CallerSource::Token { issuer, .. } => format!("with tokens of {issuer}"),
            CallerSource::Opaque { .. } => "with opaque tokens".to_owned(),
            CallerSource::Key { .. } => "with API keys".to_owned(),
            CallerSource::Address => "without tokens".to_owned(),
        }
    }
}

/// The path in the token of a claim that the policy calls `claim`.
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

/// All pairs of rules that can name the caller of the same token, key or address.
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

/// The sources that both policies know. A policy has at most one introspection endpoint and one
/// file of API keys, so these are compared even if their ids differ.
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
/// that is named by a rule has none of the claims before it. Where no rule is for such tokens,
/// their callers are named by address.
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

/// The rules for callers with this source, each with the claim or field that it reads.
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

/// The values that a token may have for a tier: none, each value that a policy knows, one unknown
/// value, and each pair of these. More than two make no difference to two tables.
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
    // The unknown value: no tier and no table has it.
    known.push("");
    let mut seen = HashSet::new();
    // Keeps the order of the policy, in which changes are shown.
    known.retain(|value| seen.insert(*value));
    let pairs = known.clone().into_iter().flat_map({
        let known = known.clone();
        move |one| known.clone().into_iter().map(move |other| vec![one, other])
    });
    let single = known.into_iter().map(|value| vec![value]);
    single.chain([Vec::new()]).chain(pairs)
}

/// The tier of callers that `caller` names and whose token has these values.
fn tier(rules: &IdentityRules, caller: Option<&Caller>, values: &[&str]) -> usize {
    let source = caller.map_or(&TierSource::Default, |caller| &caller.tier);
    source.tier(values.iter().copied(), &rules.tiers)
}
