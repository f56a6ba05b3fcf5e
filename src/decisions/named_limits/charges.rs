//! The charges of a limit that is asked for by name.

use std::net::IpAddr;

use tollgate_clock::Timestamp;
use tollgate_gate::charge_plan::{ChargePlan, ChargeRole, PlannedLimit};
use tollgate_identity::{Identifier, Prefixes, canonical};
use tollgate_limit::{Hashing, Key, Origin};
use tollgate_policy::{Allowance, Enforcement, KeyPart, KeyValue, Limit};

/// What is asked of a limit.
#[derive(Clone, Copy)]
pub(super) struct ChargeTerms {
    /// Hash of whose counters.
    pub(super) owner: u128,
    /// Hash of the counters.
    pub(super) entry: u128,
    /// The position of the tier whose rates hold.
    pub(super) tier: usize,
    /// Units.
    pub(super) cost: u32,
    /// When.
    pub(super) now: Timestamp,
    /// Who may have made up the counters.
    pub(super) origin: Origin,
}

/// Who asks, and how what is named becomes keys.
#[derive(Clone, Copy)]
pub(in crate::decisions) struct Asker<'a> {
    /// Hashes keys.
    pub(in crate::decisions) identifier: &'a Identifier,
    /// The address that the question comes from.
    pub(in crate::decisions) address: IpAddr,
}

/// What Envoy fills with the client's address, and with its network.
const REMOTE_ADDRESS: &str = "remote_address";
const MASKED_ADDRESS: &str = "masked_remote_address";

impl<'a> Asker<'a> {
    pub(super) fn hasher(&self) -> &'a Hashing {
        &self.identifier.hasher
    }

    /// Who may have made up a counter that a program names, or that a receipt is for. The client is
    /// the asker, also of a key that is an address: its own client may have written that.
    pub(super) fn origin_of_key(&self, limit: &Limit) -> Origin {
        if limit.verified { Origin::Verified } else { self.chosen_by(None) }
    }

    /// Who may have made up a counter for a descriptor with these entries. The client is the asker;
    /// where Envoy tells an address, that address.
    pub(super) fn origin_of_descriptor<'d>(
        &self,
        limit: &Limit,
        mut entries: impl Iterator<Item = (&'d str, &'d str)>,
    ) -> Origin {
        if limit.verified {
            return Origin::Verified;
        }
        let address = entries.find_map(|(key, value)| match key {
            REMOTE_ADDRESS => value.parse().ok(),
            MASKED_ADDRESS => value.split_once('/')?.0.parse().ok(),
            _ => None,
        });
        let is_address = |part: &KeyPart| match part {
            KeyPart::Descriptor(name) => [REMOTE_ADDRESS, MASKED_ADDRESS].contains(&&**name),
            _ => false,
        };
        match address.map(canonical) {
            Some(IpAddr::V4(_)) if limit.per.parts.iter().all(is_address) => Origin::Address,
            address => self.chosen_by(address),
        }
    }

    fn chosen_by(&self, address: Option<IpAddr>) -> Origin {
        let address = address.unwrap_or(self.address);
        Origin::Chosen { by: self.identifier.hash_address(address, Prefixes::default()) }
    }
}

/// Adds the charges of one limit, on the counters of one owner, which has what `is_for` says.
pub(super) fn add<'p>(
    plan: &mut ChargePlan<'p>,
    limit: &'p Limit,
    terms: ChargeTerms,
    is_for: impl Fn(&KeyValue) -> bool,
) {
    let ChargeTerms { owner, entry, tier, cost, now, origin } = terms;
    let mut overrides = limit.overrides.0.iter();
    let own = overrides.find(|own| own.is_in_force(now) && own.of.iter().all(&is_for));
    let of_tier = || limit.rates.get(tier).map_or(&[][..], Vec::as_slice);
    let allowances: &'p [Allowance] = own.map_or_else(of_tier, |own| &own.allowances);
    let role = match limit.enforcement {
        Enforcement::Shadow => ChargeRole::Shadow,
        Enforcement::Percent(percent) if owner % 100 >= percent.into() => ChargeRole::Shadow,
        _ if plan.has_primary_besides(limit) => ChargeRole::Secondary,
        _ => ChargeRole::Primary,
    };
    for allowance in allowances {
        let planned = PlannedLimit { limit, allowance, cost: &limit.cost, role, input_units: 0 };
        let key = Key::new(owner, entry, allowance.id);
        // A slot is held or not.
        let units = if allowance.quota.holds_leases() { cost.min(1) } else { cost };
        plan.add(planned, planned.charge(key, units, origin));
    }
}
