//! The counter that a program names: of a limit with `per: key`, or of one that requests are
//! charged to, which they then share.

use tollgate_clock::Timestamp;
use tollgate_gate::{CountedKey, charge_plan::ChargePlan, hash_named_key};
use tollgate_identity::NameError;
use tollgate_policy::{KeyPart, KeyValue, Limit, Policy, Wanted, are_alike};

use super::{
    charges::{Asker, ChargeTerms, add},
    named_charge::{NamedCharge, NamedError},
};

/// A counter that a program names.
pub(super) struct NamedCounter<'p> {
    /// Hash of it.
    pub(super) entry: u128,
    /// Whose it is, as denials name them.
    pub(super) who: String,
    /// Its name, as `tollgate top` shows it.
    pub(super) name: String,
    owner: u128,
    /// The position of the tier whose rates hold.
    tier: usize,
    /// What requests are counted by. None: the program's own key.
    key: Option<CountedKey<'p>>,
    is_exempt: bool,
}

impl<'p> NamedCounter<'p> {
    /// # Errors
    /// [`NamedError`].
    pub(super) fn of(
        charge: &NamedCharge<'_>,
        limit: &Limit,
        policy: &'p Policy,
        asker: Asker<'_>,
    ) -> Result<NamedCounter<'p>, NamedError> {
        if limit.is_named() {
            if charge.tier.is_some() {
                return Err(NamedError::TierOfKey(charge.limit.to_owned()));
            }
            let hash = hash_named_key(asker.hasher(), charge.key);
            let key = String::from_utf8_lossy(charge.key);
            return Ok(NamedCounter {
                owner: hash,
                entry: hash,
                tier: policy.identity.tiers.default,
                who: format!("key {key}"),
                name: format!("{}:{key}", KeyPart::Key),
                key: None,
                is_exempt: false,
            });
        }
        let name = String::from_utf8_lossy(charge.key);
        let limit_name = || charge.limit.to_owned();
        let key =
            CountedKey::find(asker.identifier, policy, &name).map_err(|error| match error {
                NameError::Bare { .. } | NameError::Form(_) => {
                    let form = CountedKey::name_like(limit, policy, &name);
                    NamedError::Parts { limit: limit_name(), form }
                }
                error => NamedError::Name { limit: limit_name(), error },
            })?;
        if !key.is_whole(limit) {
            let form = key.name_with_more(limit);
            return Err(NamedError::Parts { limit: limit_name(), form });
        }
        let (owner, entry) = key.hash(asker.identifier, policy, limit);
        let tier = tier_of(&key, charge.tier, limit, policy)?;
        let (who, is_exempt) = (key.shown(asker.hasher()), key.is_on(&policy.exempt));
        let name = who.clone();
        Ok(NamedCounter { entry, who, name, owner, tier, key: Some(key), is_exempt })
    }

    /// Adds what is charged to it at `now`.
    pub(super) fn charge(
        &self,
        plan: &mut ChargePlan<'p>,
        charge: &NamedCharge<'_>,
        limit: &'p Limit,
        now: Timestamp,
        asker: Asker<'_>,
    ) {
        if self.is_exempt {
            return;
        }
        let &NamedCounter { owner, entry, tier, .. } = self;
        let cost = charge.cost.unwrap_or(limit.cost.default);
        let terms =
            ChargeTerms { owner, entry, tier, cost, now, origin: asker.origin_of_key(limit) };
        add(plan, limit, terms, |wanted: &KeyValue| match (&self.key, &wanted.value) {
            (Some(key), _) => key.has(std::slice::from_ref(wanted)),
            (None, Wanted::Text(text)) => text.as_bytes() == charge.key,
            (None, _) => false,
        });
    }
}

/// The tier whose rates hold: the one that is written, or else that of the key.
fn tier_of(
    key: &CountedKey<'_>,
    written: Option<&str>,
    limit: &Limit,
    policy: &Policy,
) -> Result<usize, NamedError> {
    let tiers = &policy.identity.tiers;
    let all = || tiers.names().collect::<Vec<_>>().join(", ");
    if let Some(tier) = written {
        let position = tiers.names().position(|name| name == tier);
        return position.ok_or_else(|| NamedError::NoTier { tier: tier.to_owned(), tiers: all() });
    }
    let mut rates = limit.rates.iter();
    let first = rates.next();
    let is_one_for_all = rates.all(|rates| first.is_some_and(|first| are_alike(first, rates)));
    key.tier(policy)
        .or(is_one_for_all.then_some(tiers.default))
        .ok_or_else(|| NamedError::UnknownTier { key: key.name(), tiers: all() })
}
