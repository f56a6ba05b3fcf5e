//! Single callers and addresses that a policy names: exemptions, refusals.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use tollgate_identity::{CallerValue, Identity, IdentityRules, ResolvedCaller, WholeName};

/// A caller as policies write it: `user:42`, `anonymous:192.0.2.1`; with several issuers
/// `main/user:42`, since user 42 of another issuer is another caller; of an issuer with tenants
/// `main/acme/user:42`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerName {
    /// The kind: the name of an entry of `callers`.
    pub kind: Box<str>,
    /// Which one.
    pub value: Box<str>,
    /// Whose: the position of an issuer. None: the policy knows only one, or it is an address.
    pub issuer: Option<usize>,
    /// The tenant of that issuer, if it has several.
    pub tenant: Option<Box<str>>,
}

/// Without the issuer: see [`CallerName::whole`].
impl fmt::Display for CallerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tenant.iter().try_for_each(|tenant| write!(f, "{tenant}/"))?;
        write!(f, "{}:{}", self.kind, self.value)
    }
}

impl CallerName {
    /// As a policy with these rules writes it.
    pub fn whole<'c>(&'c self, rules: &'c IdentityRules) -> WholeName<'c> {
        rules.caller_name(self.issuer, self.tenant.as_deref(), &self.kind, &self.value)
    }

    /// Whether it names this caller.
    pub fn is_of(&self, caller: &ResolvedCaller<'_>) -> bool {
        *self.kind == *caller.kind
            && self.issuer.is_none_or(|issuer| caller.issuer == Some(issuer))
            && self.is_of_tenant(caller)
            && match &caller.value {
                CallerValue::Claim(value) => self.value.as_bytes() == value.as_bytes(),
                CallerValue::Certificate(name) => self.value == *name,
                CallerValue::Address(address) => *self.value == *address.to_string(),
            }
    }

    fn is_of_tenant(&self, caller: &ResolvedCaller<'_>) -> bool {
        self.tenant.as_deref() == caller.tenant.as_ref().map(|tenant| &*tenant.name)
    }
}

/// Addresses and callers that a policy singles out.
#[derive(Clone, Debug, Default)]
pub struct CallerList {
    /// Addresses.
    pub networks: Vec<IpNet>,
    /// Callers.
    pub callers: Vec<CallerName>,
}

impl CallerList {
    /// Whether this address is among them.
    pub fn contains_address(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// Whether the address or the caller is among them.
    pub fn contains(&self, identity: &Identity<'_>) -> bool {
        let is_caller =
            |caller: &ResolvedCaller<'_>| self.callers.iter().any(|listed| listed.is_of(caller));
        self.contains_address(identity.address) || identity.caller.as_ref().is_some_and(is_caller)
    }
}
