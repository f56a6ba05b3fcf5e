//! Which counters a caller has: its name, the policies that know it, and their limits.

use std::net::IpAddr;

use tollgate_clock::Timestamp;
use tollgate_gate::{hash_descriptor, hash_named_key};
use tollgate_identity::{CallerByName, Identifier, NameError, Prefixes, ResolvedCaller};
use tollgate_limit::{Charge, Key, Later, Origin, Stance};
use tollgate_policy::{Allowance, CallerList, KeyPart, Limit, Override, Policies, Policy, Wanted};

use super::{CallerError, CallerQuery};

/// What names an address whose limits per `client.ip` are asked for.
const CLIENT_IP: &str = "client.ip";

/// The counters of a caller under one policy.
pub(super) struct OwnCounters<'p> {
    pub(super) policy: &'p Policy,
    pub(super) who: Who<'p>,
    /// The limits that are asked for and count by the caller alone.
    pub(super) limits: Vec<&'p Limit>,
    /// The limits that count by the caller and something else.
    pub(super) shared: Vec<&'p Limit>,
    hasher: &'p Identifier,
}

/// Whose counters they are.
pub(super) enum Who<'p> {
    /// A caller, of limits per `caller`.
    Caller(CallerByName<'p>),
    /// An address, of limits per `client.ip`.
    Address(IpAddr),
    /// What programs name, or Envoy, of limits that no request charges.
    Named(Named),
}

/// A key that programs name, or a value of a descriptor's key.
pub(super) struct Named {
    /// What limits count by.
    part: KeyPart,
    value: String,
    /// Rates of limits by these are those of the default tier.
    tier: usize,
}

/// A window of a limit.
pub(super) struct Row<'p> {
    pub(super) limit: &'p Limit,
    pub(super) allowance: &'p Allowance,
    /// The tier whose window it is; none: it is an override's, or every tier's.
    pub(super) tier: Option<usize>,
    pub(super) is_candidate: bool,
    /// What reads it: a charge of nothing.
    pub(super) charge: Charge<'p>,
}

/// The counters that are asked for, of each policy that knows the caller.
pub(super) fn find<'p>(
    identifier: &'p Identifier,
    policies: &'p Policies,
    query: &CallerQuery,
) -> Result<Vec<OwnCounters<'p>>, CallerError> {
    let CallerQuery { caller, policy: wanted, limit } = query;
    let is_wanted = |policy: &&Policy| wanted.as_ref().is_none_or(|name| **name == *policy.name);
    if let Some(policy) = wanted
        && !policies.iter().any(|policy| is_wanted(&policy))
    {
        let known = list(policies.iter().map(|policy| &*policy.name));
        return Err(CallerError::Policy { policy: policy.clone(), known });
    }
    let mut found = Vec::new();
    let mut errors = Vec::new();
    for policy in policies.iter().filter(is_wanted) {
        match Who::find(identifier, policy, caller) {
            Ok(who) => found.push(OwnCounters::of(policy, who, identifier)),
            Err(error) => errors.push(error),
        }
    }
    // A policy that does not have callers of this kind is not meant.
    if let Some(error) = why_not(errors, found.is_empty()) {
        return Err(error.into());
    }
    match limit {
        Some(limit) => only(found, limit, caller),
        None => Ok(found),
    }
}

/// The error to report, if any: a kind that one policy does not know may be another one's.
fn why_not(errors: Vec<NameError>, is_all: bool) -> Option<NameError> {
    let mut kinds: Vec<String> = Vec::new();
    let mut unknown = None;
    for error in errors {
        match error {
            NameError::Kind { kind, known } => {
                for name in known.split(", ") {
                    if !kinds.iter().any(|listed| listed == name) {
                        kinds.push(name.to_owned());
                    }
                }
                unknown = Some(kind);
            }
            other => return Some(other),
        }
    }
    unknown.filter(|_| is_all).map(|kind| NameError::Kind { kind, known: kinds.join(", ") })
}

/// Only the limits with this name.
fn only<'p>(
    found: Vec<OwnCounters<'p>>,
    limit: &str,
    caller: &str,
) -> Result<Vec<OwnCounters<'p>>, CallerError> {
    let is_it = |own: &&Limit| *own.name == *limit;
    let all = list(found.iter().flat_map(|own| &own.limits).map(|limit| &*limit.name));
    let others = found.iter().flat_map(|own| &own.policy.limits).find(is_it).map(per_in_words);
    let narrowed: Vec<OwnCounters<'p>> = found
        .into_iter()
        .map(|own| OwnCounters {
            limits: own.limits.iter().copied().filter(is_it).collect(),
            shared: Vec::new(),
            ..own
        })
        .filter(|own| !own.limits.is_empty())
        .collect();
    if !narrowed.is_empty() {
        return Ok(narrowed);
    }
    let [limit, caller] = [limit, caller].map(str::to_owned);
    Err(match others {
        Some(per) => CallerError::NotAlone { limit, per, caller, known: all },
        None => CallerError::Limit { limit, caller, known: all },
    })
}

/// Whether the rates of two tiers are equal.
fn is_alike(one: &[Allowance], other: &[Allowance]) -> bool {
    let as_counted = |allowance: &Allowance| (allowance.id, allowance.quota.clone());
    one.iter().map(as_counted).eq(other.iter().map(as_counted))
}

/// What a limit counts by, as policies write it.
pub(super) fn per_in_words(limit: &Limit) -> String {
    let parts: Vec<String> = limit.per.parts.iter().map(ToString::to_string).collect();
    parts.join(" and ")
}

/// `a, b`, each once; `none` if there are none.
fn list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut all: Vec<&str> = Vec::new();
    names.for_each(|name| {
        if !all.contains(&name) {
            all.push(name)
        }
    });
    if all.is_empty() { "none".into() } else { all.join(", ") }
}

impl<'p> Who<'p> {
    fn find(identifier: &Identifier, policy: &'p Policy, name: &str) -> Result<Who<'p>, NameError> {
        match name.strip_prefix(CLIENT_IP).and_then(|rest| rest.strip_prefix(':')) {
            Some(address) => {
                let refused = |_| NameError::NotAnAddress { kind: CLIENT_IP.into() };
                Ok(Who::Address(address.parse::<IpAddr>().map_err(refused)?.to_canonical()))
            }
            None => match identifier.by_name(&policy.identity, name) {
                Err(NameError::Kind { kind, known }) => {
                    Named::find(policy, name).map(Who::Named).ok_or(NameError::Kind { kind, known })
                }
                named => Ok(Who::Caller(named?)),
            },
        }
    }

    fn key_part(&self) -> KeyPart {
        match self {
            Who::Caller(_) => KeyPart::Caller,
            Who::Address(_) => KeyPart::ClientIp,
            Who::Named(named) => named.part.clone(),
        }
    }

    fn resolved(&self) -> Option<&ResolvedCaller<'p>> {
        match self {
            Who::Caller(named) => Some(&named.caller),
            Who::Address(_) | Who::Named(_) => None,
        }
    }

    /// The position of its tier, if that is known.
    pub(super) fn tier(&self) -> Option<usize> {
        match self {
            Who::Caller(named) => named.tier,
            // Callers of every tier share its counters.
            Who::Address(_) => None,
            Who::Named(named) => Some(named.tier),
        }
    }

    /// As policies write it.
    pub(super) fn name(&self) -> String {
        match self {
            Who::Caller(CallerByName { caller, .. }) => {
                format!("{}:{}", caller.kind, caller.value)
            }
            Who::Address(address) => format!("{CLIENT_IP}:{address}"),
            Who::Named(Named { part, value, .. }) => format!("{part}:{value}"),
        }
    }

    /// Whether an override is for it, whatever else a request has.
    fn has(&self, own: &Override) -> bool {
        own.of.iter().all(|own| match (&own.value, self) {
            (Wanted::Caller(name), Who::Caller(named)) => name.is_of(&named.caller),
            (Wanted::Network(network), Who::Address(address)) => network.contains(address),
            (Wanted::Text(text), Who::Named(named)) => {
                named.part == own.part && *named.value == **text
            }
            _ => false,
        })
    }
}

impl Named {
    /// None: no limit of this policy counts by such a thing.
    fn find(policy: &Policy, name: &str) -> Option<Named> {
        let (part, value) = name.split_once(':')?;
        let mut parts = policy.limits.iter().flat_map(|limit| &limit.per.parts);
        let part = parts.find(|own| {
            matches!(own, KeyPart::Key | KeyPart::Descriptor(_)) && own.to_string() == *part
        })?;
        let tier = policy.identity.tiers.default;
        Some(Named { part: part.clone(), value: value.to_owned(), tier })
    }
}

impl<'p> OwnCounters<'p> {
    fn of(policy: &'p Policy, who: Who<'p>, hasher: &'p Identifier) -> OwnCounters<'p> {
        let part = who.key_part();
        let with_it = policy.core_first().filter_map(|at| policy.limits.get(at));
        let with_it = with_it.filter(|limit| limit.per.parts.contains(&part));
        let (limits, shared) = with_it.partition(|limit| limit.per.parts.len() == 1);
        OwnCounters { policy, who, limits, shared, hasher }
    }

    /// Whether the caller is charged nothing, or refused; as policies call that.
    pub(super) fn listed_as(&self) -> Option<&'static str> {
        let has = |listed: &CallerList| match &self.who {
            Who::Caller(named) => listed.callers.iter().any(|name| name.is_of(&named.caller)),
            Who::Address(address) => listed.contains_address(*address),
            Who::Named(_) => false,
        };
        if has(&self.policy.deny) {
            Some("deny")
        } else {
            has(&self.policy.exempt).then_some("exempt")
        }
    }

    /// The issuer that vouches for the caller, as policies call it.
    pub(super) fn issuer(&self) -> Option<String> {
        let issuer = self.who.resolved()?.issuer?;
        let rules = &self.policy.identity;
        let named = rules.issuers.get(issuer).map(|issuer| issuer.name.as_str());
        named.or_else(|| rules.issuer_id(issuer)).map(str::to_owned)
    }

    /// The override of a limit that is in force for the caller.
    pub(super) fn override_of(&self, limit: &'p Limit, now: Timestamp) -> Option<&'p Override> {
        limit.overrides.0.iter().find(|own| own.is_in_force(now) && self.who.has(own))
    }

    /// The windows of its limits; of a caller whose tier is not known, those of every tier.
    pub(super) fn rows(&self, now: Timestamp) -> Vec<Row<'p>> {
        let mut rows = Vec::new();
        for limit in &self.limits {
            if let Some(own) = self.override_of(limit, now) {
                let row = |allowance| self.row(limit, allowance, None, false);
                rows.extend(own.allowances.iter().map(row));
                continue;
            }
            for (rates, is_candidate) in [(&limit.rates, false), (&limit.candidate, true)] {
                let of_tier = |tier: usize| rates.get(tier).map_or([].as_slice(), Vec::as_slice);
                let tiers = 0..self.policy.identity.tiers.len();
                let is_for_all = tiers.clone().all(|tier| is_alike(of_tier(tier), of_tier(0)));
                let tiers = match self.who.tier() {
                    Some(tier) => tier..tier + 1,
                    None if is_for_all => 0..1,
                    None => tiers,
                };
                for tier in tiers {
                    let shown = (!is_for_all).then_some(tier);
                    let row = |allowance| self.row(limit, allowance, shown, is_candidate);
                    rows.extend(of_tier(tier).iter().map(row));
                }
            }
        }
        rows
    }

    fn row(
        &self,
        limit: &'p Limit,
        allowance: &'p Allowance,
        tier: Option<usize>,
        is_candidate: bool,
    ) -> Row<'p> {
        let charge = Charge {
            key: Key::new(self.hash(limit), self.hash(limit), allowance.id),
            quota: &allowance.quota,
            cost: 0,
            stance: Stance::Observe,
            scope: limit.scope(),
            origin: Origin::Verified,
            fallback: limit.fallback,
            full: limit.full,
            later: Later::Nothing,
        };
        Row { limit, allowance, tier, is_candidate, charge }
    }

    /// The counters of all its windows: of every tier, since it may have had another one, of rates
    /// that are tried out, of overrides, and of what bounds refunds.
    pub(super) fn keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        for limit in &self.limits {
            let hash = self.hash(limit);
            let overrides = limit.overrides.0.iter().map(|own| &own.allowances);
            let all = limit.rates.iter().chain(&limit.candidate).chain(overrides).flatten();
            for allowance in all {
                let bound = allowance.refunds.as_ref().map(|bound| bound.id);
                let ids = std::iter::once(allowance.id).chain(bound);
                keys.extend(ids.map(|id| Key::new(hash, hash, id)));
            }
        }
        keys
    }

    /// What a limit's counters of the caller are named by, as
    /// `crates/gate/src/charge_context/keys.rs` has it.
    fn hash(&self, limit: &Limit) -> u128 {
        match &self.who {
            Who::Caller(named) => named.caller.hash,
            Who::Address(address) => {
                let prefixes =
                    Prefixes { ipv4: limit.per.ipv4_prefix, ipv6: limit.per.ipv6_prefix };
                self.hasher.hash_address(*address, prefixes)
            }
            Who::Named(Named { part: KeyPart::Descriptor(name), value, .. }) => {
                let entry = std::iter::once((&**name, &**value));
                hash_descriptor(&self.hasher.hasher, &limit.per, entry)
            }
            Who::Named(named) => hash_named_key(&self.hasher.hasher, named.value.as_bytes()),
        }
    }
}
