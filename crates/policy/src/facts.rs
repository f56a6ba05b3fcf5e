//! What the access log may tell of requests beside what each line has: the values that limits
//! count by.

use http::HeaderName;
use tollgate_identity::{CallerKey, IdentityRules};
use tollgate_yaml::names_credential;

use super::{KeyPart, Limit};

/// A value of requests that some limit of the policy counts by, or that decides about the tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// As policies write it: `jwt.org`, `header.x-tenant`.
    pub name: Box<str>,
    /// Where a request has it.
    pub source: FactSource,
    /// Whether the log has only a hash of it.
    pub is_hashed: bool,
}

/// Where a request has a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FactSource {
    /// A claim of the verified token, by name or dotted path.
    Claim(Box<str>),
    /// A request header.
    Header(HeaderName),
    /// A cookie.
    Cookie(Box<str>),
}

/// The facts of a policy with these limits, in the order of the file, each once. Those that
/// `private` lists are hashed, and whatever may be a credential.
pub(super) fn facts(limits: &[Limit], identity: &IdentityRules, private: &[KeyPart]) -> Vec<Fact> {
    let mut facts: Vec<Fact> = Vec::new();
    for key in fact_keys(limits, identity) {
        let Some(source) = FactSource::of(&key) else { continue };
        let name: Box<str> = key.to_string().into();
        if facts.iter().any(|fact| fact.name == name) {
            continue;
        }
        let is_hashed = private.contains(&key) || source.may_be_credential(identity);
        facts.push(Fact { name, source, is_hashed });
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

impl FactSource {
    /// None: each line has it anyway.
    pub(super) fn of(key: &KeyPart) -> Option<FactSource> {
        match key {
            KeyPart::Claim(name) => Some(FactSource::Claim(name.clone())),
            KeyPart::Header(name) => Some(FactSource::Header(name.clone())),
            KeyPart::Cookie(name) => Some(FactSource::Cookie(name.clone())),
            KeyPart::Caller
            | KeyPart::ClientIp
            | KeyPart::Host
            | KeyPart::Path
            | KeyPart::PathParameter(_)
            | KeyPart::Method
            | KeyPart::Key
            | KeyPart::Descriptor(_) => None,
        }
    }

    /// Whether who has the value may act as its owner. Cookies mostly name a session, whatever they
    /// are called. Claims only say who somebody is: without the token's signature they open
    /// nothing.
    fn may_be_credential(&self, identity: &IdentityRules) -> bool {
        match self {
            FactSource::Claim(_) => false,
            FactSource::Header(name) => {
                identity.sources.reads(name) || names_credential(name.as_str())
            }
            FactSource::Cookie(_) => true,
        }
    }
}
