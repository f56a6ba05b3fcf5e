//! Route x identity x request to charges: which counters a request asks for.

use smallvec::SmallVec;

use super::head::Head;
use crate::{
    identity::{Client, DEFAULT_IPV6_PREFIX, Identifier, Identity},
    limit::{Charge, Key},
    policy::{Allowance, KeyPart, Limit, Policy, Route},
};

/// What every request costs until limits can say otherwise.
const COST: u32 = 1;

/// What charges are made from.
#[derive(Clone, Copy)]
pub(super) struct Charges<'r, 'p> {
    pub(super) identifier: &'r Identifier,
    pub(super) policy: &'p Policy,
    pub(super) route: &'p Route,
    pub(super) head: &'r Head<'r>,
    pub(super) client: Client<'r>,
}

/// The charges of a request, and the limits that ask for them.
#[derive(Default)]
pub(super) struct Asked<'p> {
    pub(super) limits: SmallVec<[AskedLimit<'p>; 2]>,
    pub(super) charges: SmallVec<[Charge; 2]>,
}

/// A limit that asks for a charge.
#[derive(Clone, Copy)]
pub(super) struct AskedLimit<'p> {
    pub(super) limit: &'p Limit,
    pub(super) allowance: &'p Allowance,
    /// It is the route's first.
    pub(super) is_primary: bool,
}

impl<'r, 'p> Charges<'r, 'p> {
    /// All charges of the route.
    pub(super) fn of(&self, identity: &Identity<'_>) -> Asked<'p> {
        self.of_limits(identity, |_| true)
    }

    /// Only those by address.
    pub(super) fn by_address(&self, identity: &Identity<'_>) -> Asked<'p> {
        self.of_limits(identity, Limit::is_by_address)
    }

    fn of_limits(&self, identity: &Identity<'_>, is_asked: impl Fn(&Limit) -> bool) -> Asked<'p> {
        let mut asked = Asked::default();
        for (position, at) in self.route.limits.iter().enumerate() {
            let Some(limit) = self.policy.limits.get(*at) else { continue };
            // Unlimited for this tier: the limit does not apply.
            let Some(Some(allowance)) = limit.allowances.get(identity.tier) else { continue };
            if !is_asked(limit) {
                continue;
            }
            let Some((owner, entry)) = self.hash(limit, identity) else { continue };
            let key = Key::new(owner, entry, allowance.id);
            asked.limits.push(AskedLimit { limit, allowance, is_primary: position == 0 });
            asked.charges.push(Charge { key, quota: allowance.quota, cost: COST });
        }
        asked
    }

    /// Whose counter a limit asks for, and which; none if it counts per caller and there is none.
    ///
    /// A claim or header that the request lacks counts as a value of its own, the same for all that
    /// lack it: leaving it out is no way around the limit.
    fn hash(&self, limit: &Limit, identity: &Identity<'_>) -> Option<(u128, u128)> {
        match limit.per.as_slice() {
            [KeyPart::Caller] => identity.caller.as_ref().map(|caller| (caller.hash, caller.hash)),
            [KeyPart::ClientIp] => {
                let address = self.address();
                Some((address, address))
            }
            parts => self.hash_tuple(parts, identity),
        }
    }

    fn hash_tuple(&self, parts: &[KeyPart], identity: &Identity<'_>) -> Option<(u128, u128)> {
        let caller = identity.caller.as_ref().map(|caller| caller.hash.to_le_bytes());
        let address = self.address().to_le_bytes();
        // Not every server tells `get` from GET, so counters do not either.
        let method = self.head.method.as_str().to_ascii_uppercase();
        let claims = identity.token.as_ref().map(|known| &known.token.claims);
        let numbers: SmallVec<[Option<String>; 4]> = parts
            .iter()
            .map(|part| match part {
                KeyPart::Claim(name) => claims?.lookup(name).and_then(scalar),
                _ => None,
            })
            .collect();
        let mut tuple: SmallVec<[(u8, &[u8]); 8]> = SmallVec::new();
        for (part, claim) in parts.iter().zip(&numbers) {
            match part {
                KeyPart::Caller => tuple.push((b'c', caller.as_ref()?)),
                KeyPart::ClientIp => tuple.push((b'i', &address)),
                KeyPart::Path => tuple.push((b'p', without_final_slash(&self.head.path))),
                KeyPart::Method => tuple.push((b'm', method.as_bytes())),
                KeyPart::Claim(name) => {
                    tuple.push((b'n', name.as_bytes()));
                    tuple.extend(claim.as_ref().map(|claim| (b'v', claim.as_bytes())));
                }
                KeyPart::Header(name) => {
                    tuple.push((b'n', name.as_str().as_bytes()));
                    // All of them, so that sending a header twice is not sending it once.
                    let values = self.client.headers.get_all(name).iter();
                    tuple.extend(values.map(|value| (b'h', value.as_bytes())));
                }
            }
        }
        let entry = self.identifier.hasher.hash(tuple);
        // All counters of one owner are decided together: the caller's, else the address's.
        let owner = if parts.contains(&KeyPart::Caller) {
            identity.caller.as_ref()?.hash
        } else if parts.contains(&KeyPart::ClientIp) {
            self.address()
        } else {
            entry
        };
        Some((owner, entry))
    }

    fn address(&self) -> u128 {
        self.identifier.hash_address(self.client.address, DEFAULT_IPV6_PREFIX)
    }
}

/// A slash at the end makes no difference to routes, so none to counters.
fn without_final_slash(path: &str) -> &[u8] {
    path.strip_suffix('/').unwrap_or(path).as_bytes()
}

/// A claim that can be counted by: text, number or truth value, not empty. The kind is part of it,
/// so that `"1"` and `1` differ.
fn scalar(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) if text.is_empty() => None,
        serde_json::Value::String(text) => Some(format!("s{text}")),
        serde_json::Value::Number(number) => Some(format!("n{number}")),
        serde_json::Value::Bool(truth) => Some(format!("b{truth}")),
        _ => None,
    }
}
