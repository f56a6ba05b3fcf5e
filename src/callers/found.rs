//! Which counters a key has: the policies that know it, and their limits.

use tollgate_clock::Timestamp;
use tollgate_gate::{CountedKey, Shared};
use tollgate_identity::{Auth, Identifier, NameError};
use tollgate_limit::{Charge, Key, Later, Origin, Stance};
use tollgate_policy::{Allowance, Limit, Override, Policies, Policy, are_alike};

use super::{
    CallerError, CallerQuery, asked_limit,
    seen::{CounterCommand, SeenNames},
    shared_limit::SharedLimit,
};

/// The counters of a key under one policy.
pub(super) struct OwnCounters<'p> {
    pub(super) policy: &'p Policy,
    pub(super) key: CountedKey<'p>,
    /// The limits that are asked for and count by the key's values alone.
    pub(super) limits: Vec<&'p Limit>,
    /// The limits that count by these and something else.
    pub(super) shared: Vec<&'p Limit>,
    /// Of a caller, the limits of its routes that do not count by it.
    pub(super) beside: Vec<&'p Limit>,
    hasher: &'p Identifier,
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

/// What a name finds.
pub(super) struct Found<'p> {
    /// The counters, of each policy that takes the name.
    pub(super) own: Vec<OwnCounters<'p>>,
    /// Policies that want more of the name, and what.
    pub(super) skipped: Vec<(&'p str, NameError)>,
}

/// The counters that a command asks for.
pub(super) fn find<'p>(
    shared: &'p Shared,
    policies: &'p Policies,
    query: &CallerQuery,
    command: CounterCommand,
) -> Result<Found<'p>, CallerError> {
    let identifier = &shared.identifier;
    let CallerQuery { caller, policy, limit } = query;
    let (wanted, limit) = asked_limit(policy.as_deref(), limit.as_deref());
    let is_wanted = |policy: &&Policy| wanted.is_none_or(|name| *name == *policy.name);
    if let Some(policy) = wanted
        && !policies.iter().any(|policy| is_wanted(&policy))
    {
        let known = list(policies.iter().map(|policy| &*policy.name));
        return Err(CallerError::Policy { policy: policy.to_owned(), known });
    }
    let mut own = Vec::new();
    let mut errors = Vec::new();
    for policy in policies.iter().filter(is_wanted) {
        match CountedKey::find(identifier, policy, caller) {
            Ok(key) => own.push(OwnCounters::of(policy, key, identifier)),
            Err(error) => errors.push((&*policy.name, error)),
        }
    }
    if own.is_empty() {
        return Err(why_not(errors));
    }
    // A policy that has nothing of this kind is not meant.
    errors.retain(|(_, error)| {
        !matches!(error, NameError::Kind { .. } | NameError::Bare { .. } | NameError::Form(_))
    });
    Ok(match limit {
        Some(limit) => {
            let seen = SeenNames::new(shared);
            Found { own: only(own, limit, query, (seen, command))?, skipped: errors }
        }
        None => Found { own, skipped: errors },
    })
}

/// Why no policy takes a name: what those say that know its kind, each once, or else all kinds.
fn why_not(errors: Vec<(&str, NameError)>) -> CallerError {
    let mut kinds: Vec<String> = Vec::new();
    let mut unknown = None;
    let mut others: Vec<(&str, NameError)> = Vec::new();
    for (policy, error) in errors {
        match error {
            NameError::Kind { kind, known } => {
                for name in known.split(", ") {
                    if !kinds.iter().any(|listed| listed == name) {
                        kinds.push(name.to_owned());
                    }
                }
                unknown = Some(kind);
            }
            other if others.iter().any(|(_, own)| *own == other) => {}
            other => others.push((policy, other)),
        }
    }
    match (unknown, others.len()) {
        (_, 2..) => {
            let each = others.iter().map(|(policy, error)| format!("in {policy}, {error}"));
            CallerError::Policies(each.collect::<Vec<_>>().join("; "))
        }
        (Some(kind), 0) => CallerError::Kind { kind, known: kinds.join(", ") },
        _ => match others.pop() {
            Some((_, error)) => error.into(),
            None => CallerError::Policies("there are no policies".into()),
        },
    }
}

/// Only the limits with this name.
fn only<'p>(
    found: Vec<OwnCounters<'p>>,
    limit: &str,
    query: &CallerQuery,
    (seen, command): (SeenNames<'_>, CounterCommand),
) -> Result<Vec<OwnCounters<'p>>, CallerError> {
    let is_it = |own: &&Limit| *own.name == *limit;
    let all = list(found.iter().flat_map(|own| &own.limits).map(|limit| &*limit.name));
    let with_more = |own: &OwnCounters<'_>| {
        let other = own.policy.limits.iter().find(is_it)?;
        Some(SharedLimit::of(&own.key, own.policy, other, seen))
    };
    let others = found.iter().find_map(with_more);
    let narrowed: Vec<OwnCounters<'p>> = found
        .into_iter()
        .map(|own| OwnCounters {
            limits: own.limits.iter().copied().filter(is_it).collect(),
            shared: Vec::new(),
            beside: Vec::new(),
            ..own
        })
        .filter(|own| !own.limits.is_empty())
        .collect();
    if !narrowed.is_empty() {
        return Ok(narrowed);
    }
    let caller = query.caller.clone();
    Err(match others {
        Some(other) => CallerError::not_alone(other, &caller, command),
        None => CallerError::Limit { limit: limit.to_owned(), caller, known: all },
    })
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

/// Of a caller, the limits of its routes that do not count by it.
fn beside<'p>(policy: &'p Policy, key: &CountedKey<'p>) -> Vec<&'p Limit> {
    let Some(caller) = key.caller() else { return Vec::new() };
    let takes = |auth: &Auth| match (auth, caller.issuer) {
        (Auth::None | Auth::Required(_), None) => matches!(auth, Auth::None),
        (Auth::Optional(_), None) => true,
        (Auth::None, Some(_)) => false,
        (Auth::Optional(accepted) | Auth::Required(accepted), Some(issuer)) => {
            accepted.issuers.contains(issuer)
        }
    };
    let its = |at: &usize| {
        let mut routes = policy.routes.iter().filter(|route| route.limits.contains(at));
        routes.any(|route| takes(&route.auth))
    };
    let all = policy.core_first().filter(its).filter_map(|at| policy.limits.get(at));
    all.filter(|limit| !key.is_of(limit)).collect()
}

impl<'p> OwnCounters<'p> {
    fn of(policy: &'p Policy, key: CountedKey<'p>, hasher: &'p Identifier) -> OwnCounters<'p> {
        let all = policy.core_first().filter_map(|at| policy.limits.get(at));
        let (limits, shared) =
            all.filter(|limit| key.is_of(limit)).partition(|limit| key.is_whole(limit));
        let beside = beside(policy, &key);
        OwnCounters { policy, key, limits, shared, beside, hasher }
    }

    /// The limits that count by the key's values and by something else.
    pub(super) fn with_more(&self, seen: SeenNames<'_>) -> Vec<SharedLimit> {
        self.shared_limits(&self.shared, seen)
    }

    /// The limits of the caller's routes that do not count by it.
    pub(super) fn without(&self, seen: SeenNames<'_>) -> Vec<SharedLimit> {
        self.shared_limits(&self.beside, seen)
    }

    fn shared_limits(&self, limits: &[&Limit], seen: SeenNames<'_>) -> Vec<SharedLimit> {
        let all = limits.iter().map(|limit| SharedLimit::of(&self.key, self.policy, limit, seen));
        all.collect()
    }

    /// Who is meant, as far as somebody vouches for it: hash of a caller, and who has signed
    /// claims.
    pub(super) fn vouched_for(&self) -> (Option<u128>, Option<&str>) {
        let caller = self.key.caller().filter(|caller| caller.issuer.is_some());
        (caller.map(|caller| caller.hash), self.key.claims_issuer())
    }

    /// Whether the caller is charged nothing, or refused; as policies call that.
    pub(super) fn listed_as(&self) -> Option<&'static str> {
        if self.key.is_on(&self.policy.deny) {
            Some("deny")
        } else {
            self.key.is_on(&self.policy.exempt).then_some("exempt")
        }
    }

    /// The issuer that vouches for the caller, as policies call it, or for a claim.
    pub(super) fn issuer(&self) -> Option<String> {
        let rules = &self.policy.identity;
        let position = match self.key.claims_issuer() {
            Some(id) => (0..rules.api_keys_position()).find(|at| rules.issuer_id(*at) == Some(id)),
            None => self.key.caller()?.issuer,
        };
        let named = position.and_then(|position| {
            let named = rules.issuers.get(position).map(|issuer| issuer.name.as_str());
            named.or_else(|| rules.issuer_id(position))
        });
        // Of a tenant, the claim `iss`.
        named.or(self.key.claims_issuer()).map(str::to_owned)
    }

    /// The position of its tier, if that is known.
    pub(super) fn tier(&self) -> Option<usize> {
        self.key.tier(self.policy)
    }

    /// The override of a limit that is in force for the caller.
    pub(super) fn override_of(&self, limit: &'p Limit, now: Timestamp) -> Option<&'p Override> {
        limit.overrides.0.iter().find(|own| own.is_in_force(now) && self.key.has(&own.of))
    }

    /// The windows of its limits; of a key whose tier is not known, those of every tier.
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
                let is_for_all = tiers.clone().all(|tier| are_alike(of_tier(tier), of_tier(0)));
                let tiers = match self.tier() {
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
        let (owner, entry) = self.key.hash(self.hasher, self.policy, limit);
        let charge = Charge {
            key: Key::new(owner, entry, allowance.id),
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
            let (owner, entry) = self.key.hash(self.hasher, self.policy, limit);
            let overrides = limit.overrides.0.iter().map(|own| &own.allowances);
            let all = limit.rates.iter().chain(&limit.candidate).chain(overrides).flatten();
            for allowance in all {
                let bound = allowance.refunds.as_ref().map(|bound| bound.id);
                let ids = std::iter::once(allowance.id).chain(bound);
                keys.extend(ids.map(|id| Key::new(owner, entry, id)));
            }
        }
        keys
    }
}
