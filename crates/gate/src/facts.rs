//! What limits count by, of one request, for its line in the log: enough to judge it by other
//! limits later.

use http::HeaderMap;
use serde_json::Value;
use smallvec::SmallVec;
use tollgate_identity::Claims;
use tollgate_limit::Hashing;
use tollgate_observe::access_log::{FactValue, Facts, MAX_FACT_BYTES};
use tollgate_policy::{Fact, KeyPart};

use super::{
    body_look::BodyFacts,
    charge_context::{
        keys::{chosen_value, counted_claim},
        names::hash_fact,
    },
    request_state::RequestState,
    tally::cost_in,
};

impl RequestState<'_> {
    /// What limits count by, of a request that was judged and had these headers. None: it was
    /// refused before anything was counted.
    pub(super) fn facts(
        &self,
        headers: &HeaderMap,
        body: Option<&BodyFacts>,
        hashing: &Hashing,
    ) -> Option<Facts> {
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
        if let Some(issuer) = known.and_then(|known| policy.identity.issuer_id_of(&known.token)) {
            facts.add(&"issuer", FactValue::Text(issuer));
        }
        // A key has fields, not claims.
        let has_claims = |issuer| issuer != policy.identity.api_keys_position();
        let known = known.filter(|known| has_claims(known.token.issuer));
        let claims = known.map(|known| &known.token.claims);
        let mut writer = FactWriter { facts: &mut facts, hashing };
        for fact in &policy.facts {
            writer.add(fact, claims, headers, body);
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

/// Writes the facts of one request.
struct FactWriter<'w> {
    facts: &'w mut Facts,
    hashing: &'w Hashing,
}

impl FactWriter<'_> {
    /// Adds the request's value of a fact, if it has one that a limit can count by.
    fn add(
        &mut self,
        fact: &Fact,
        claims: Option<&Claims>,
        headers: &HeaderMap,
        body: Option<&BodyFacts>,
    ) {
        match &fact.source {
            part if part.is_in_body() => {
                if let Some(text) = body.and_then(|body| body.in_words(part)) {
                    self.add_bytes(fact, text.as_bytes());
                }
            }
            KeyPart::Claim(name) => {
                let Some(claim) = claims.and_then(|claims| claims.lookup(name)) else { return };
                let claim = counted_claim(claim);
                if !is_fit(claim) {
                    return;
                }
                let json = claim.to_string();
                match must_hash(fact, json.len()) {
                    true => self.add_hash(fact, json.as_bytes()),
                    false => self.facts.add(&fact.name, FactValue::Claim(claim)),
                }
            }
            part => {
                if let Ok(Some(value)) = chosen_value(part, headers) {
                    self.add_bytes(fact, &value);
                }
            }
        }
    }

    /// What is no text has a hash: as text, two such values could look the same.
    fn add_bytes(&mut self, fact: &Fact, value: &[u8]) {
        match std::str::from_utf8(value) {
            Ok(text) if !must_hash(fact, text.len()) => {
                self.facts.add(&fact.name, FactValue::Text(text));
            }
            _ => self.add_hash(fact, value),
        }
    }

    fn add_hash(&mut self, fact: &Fact, value: &[u8]) {
        let hash = hash_fact(self.hashing, &fact.name, value);
        self.facts.add(&fact.name, FactValue::Hash(hash));
    }
}

fn must_hash(fact: &Fact, bytes: usize) -> bool {
    fact.is_hashed || bytes > MAX_FACT_BYTES
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
