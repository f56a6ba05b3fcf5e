//! What the access log may tell of requests beside what each line has: the values that limits
//! count by.

use tollgate_identity::{CallerKey, IdentityRules};
use tollgate_yaml::names_credential;

use super::{Chooser, KeyPart, Limit};

/// A value of requests that some limit of the policy counts by, or that decides about the tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// As policies write it: `jwt.org`, `header.x-tenant`.
    pub name: Box<str>,
    /// Where a request has it.
    pub source: KeyPart,
    /// Whether the log has only a hash of it.
    pub is_hashed: bool,
}

/// The facts of a policy with these limits, in the order of the file, each once. Those that
/// `private` lists are hashed, and whatever may be a credential.
pub(super) fn facts(limits: &[Limit], identity: &IdentityRules, private: &[KeyPart]) -> Vec<Fact> {
    let mut facts: Vec<Fact> = Vec::new();
    for key in fact_keys(limits, identity) {
        if !is_fact(&key) || facts.iter().any(|fact| fact.source == key) {
            continue;
        }
        let is_hashed = private.contains(&key) || may_be_credential(&key, identity);
        facts.push(Fact { name: key.to_string().into(), source: key, is_hashed });
    }
    facts
}

/// What limits count by, and the claims that decide about tiers.
pub(super) fn fact_keys(
    limits: &[Limit],
    identity: &IdentityRules,
) -> impl Iterator<Item = KeyPart> {
    // The tier of an API key is a field of the key, and that of a certificate is fixed: the tier
    // itself, which each line has, is all there is to know.
    let of_token =
        identity.callers.iter().filter(|caller| matches!(caller.key, CallerKey::Claim(_)));
    let of_tiers = of_token.filter_map(|caller| caller.tier.claim()).map(Box::from);
    let of_limits = limits.iter().flat_map(|limit| &limit.per.parts).cloned();
    of_limits.chain(of_tiers.map(KeyPart::Claim))
}

/// Whether the log has it only as a fact: the other sources are in each line anyway.
pub(super) fn is_fact(key: &KeyPart) -> bool {
    matches!(key.chooser(), Chooser::Issuer | Chooser::Client | Chooser::Calls)
}

/// Whether knowing the value lets others act as its owner. Cookies mostly name a session, whatever
/// they are called. Claims only say who somebody is: without the token's signature they open
/// nothing.
fn may_be_credential(key: &KeyPart, identity: &IdentityRules) -> bool {
    match key {
        KeyPart::Header(name) => identity.sources.reads(name) || names_credential(name.as_str()),
        _ => key.chooser() == Chooser::Client,
    }
}
