//! What limits count by, of one request, for its line in the log: enough to judge it by other
//! limits later.

use http::HeaderMap;
use serde_json::Value;
use smallvec::SmallVec;

use super::{
    charge_context::keys::{counted_claim, only_value},
    request_state::RequestState,
    tally::cost_in,
};
use crate::{
    access_log::{FactValue, Facts, MAX_FACT_BYTES},
    identity::{Claims, cookie_to_count},
    limit::Hashing,
    policy::{Fact, FactSource},
};

/// What hashes in the log are made from, apart from all hashes that name counters: who reads the
/// log learns no key.
#[repr(u8)]
enum Tag {
    Fact = b'F',
    Value = b'f',
}

impl RequestState<'_> {
    /// What limits count by, of a request that was judged and had these headers. None: it was
    /// refused before anything was counted.
    pub(super) fn facts(&self, headers: &HeaderMap, hashing: &Hashing) -> Option<Facts> {
        let policy = self.policy?;
        // A request whose credentials are bad is counted too: by its address.
        let tier = match (&self.identity, &self.tally) {
            (Some(identity), _) => identity.tier,
            (None, Some(tally)) => tally.tier(),
            (None, None) => return None,
        };
        let mut facts = Facts::default();
        if let Some(tier) = policy.identity.tiers.get(tier) {
            facts.add(&"tier", FactValue::Text(&tier.name));
        }
        let known = self.identity.as_ref().and_then(|identity| identity.token.as_ref());
        if let Some(issuer) = known.and_then(|known| policy.identity.issuer_id(known.token.issuer))
        {
            facts.add(&"issuer", FactValue::Text(issuer));
        }
        // A key has fields, not claims.
        let has_claims = |issuer| issuer != policy.identity.api_keys_position();
        let known = known.filter(|known| has_claims(known.token.issuer));
        let claims = known.map(|known| &known.token.claims);
        for fact in &policy.facts {
            fact.add_to(&mut facts, claims, headers, hashing);
        }
        if self.is_revalidation {
            facts.add(&"revalidation", FactValue::Truth(true));
        }
        Some(facts)
    }

    /// Adds what the response of the upstream says that the request has cost.
    pub(super) fn add_costs(&self, facts: &mut Facts, headers: &HeaderMap) {
        let (Some(policy), Some(route)) = (self.policy, self.route) else { return };
        let mut names: SmallVec<[_; 2]> = SmallVec::new();
        for name in policy.cost_headers(route) {
            if let Some(cost) = cost_in(headers, name)
                && !names.contains(&name)
            {
                facts.add(&format_args!("cost.{name}"), FactValue::Units(cost));
                names.push(name);
            }
        }
    }
}

impl Fact {
    /// Adds the request's value, if it has one that a limit can count by.
    fn add_to(
        &self,
        facts: &mut Facts,
        claims: Option<&Claims>,
        headers: &HeaderMap,
        hashing: &Hashing,
    ) {
        match &self.source {
            FactSource::Claim(name) => {
                let Some(claim) = claims.and_then(|claims| claims.lookup(name)) else { return };
                let claim = counted_claim(claim);
                if !is_fit(claim) {
                    return;
                }
                let json = claim.to_string();
                match self.must_hash(json.len()) {
                    true => self.add_hash(facts, json.as_bytes(), hashing),
                    false => facts.add(&self.name, FactValue::Claim(claim)),
                }
            }
            FactSource::Header(name) => {
                if let Some(value) = only_value(headers, name) {
                    self.add_bytes(facts, value, hashing);
                }
            }
            FactSource::Cookie(name) => {
                if let Ok(Some(value)) = cookie_to_count(headers, name) {
                    self.add_bytes(facts, &value, hashing);
                }
            }
        }
    }

    /// What is no text has a hash: as text, two such values could look the same.
    fn add_bytes(&self, facts: &mut Facts, value: &[u8], hashing: &Hashing) {
        match std::str::from_utf8(value) {
            Ok(text) if !self.must_hash(text.len()) => {
                facts.add(&self.name, FactValue::Text(text));
            }
            _ => self.add_hash(facts, value, hashing),
        }
    }

    fn must_hash(&self, bytes: usize) -> bool {
        self.is_hashed || bytes > MAX_FACT_BYTES
    }

    fn add_hash(&self, facts: &mut Facts, value: &[u8], hashing: &Hashing) {
        let parts = [(Tag::Fact as u8, self.name.as_bytes()), (Tag::Value as u8, value)];
        facts.add(&self.name, FactValue::Hash(hashing.hash(parts)));
    }
}

/// Whether a claim says something to a limit, or to a table of tiers: these take lists of texts.
fn is_fit(claim: &Value) -> bool {
    match claim {
        Value::String(text) => !text.is_empty(),
        Value::Number(_) | Value::Bool(_) => true,
        Value::Array(values) => !values.is_empty() && values.iter().all(|value| value.is_string()),
        Value::Null | Value::Object(_) => false,
    }
}
