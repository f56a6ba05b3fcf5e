//! What the claim `iss` of an issuer's tokens is, and the tenants that it may name.

use std::fmt;

use serde_json::{Map, Value};

use super::claims::Claims;

/// What the `iss` of an issuer's tokens is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IssuerClaim {
    /// Exactly the text that the policy has.
    Exact,
    /// Absent: its tokens have none.
    Absent,
    /// A text with the name of a tenant in it.
    Tenants(TenantIssuer),
}

/// An `iss` with the name of a tenant in it, which a claim of the token has too:
/// `https://login.example/{tid}/v2.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantIssuer {
    before: Box<str>,
    /// The claim with the tenant.
    claim: Box<str>,
    after: Box<str>,
    /// The tenants that are accepted; empty: all.
    tenants: Vec<Box<str>>,
}

/// A tenant, whose callers are not those of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its name.
    pub name: Box<str>,
    /// The `iss` of its tokens.
    pub iss: Box<str>,
}

/// How long the name of a tenant may be.
const MAX_TENANT_BYTES: usize = 128;

/// Whether a tenant may have this name. It has no slash and no colon, which end it in the names of
/// callers.
pub fn is_tenant_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_TENANT_BYTES).contains(&name.len()) && name.bytes().all(is_plain)
}

impl TenantIssuer {
    /// Reads a text with one claim in braces. None: it has none, or more than that.
    pub fn parse(text: &str, tenants: Vec<Box<str>>) -> Option<TenantIssuer> {
        let (before, rest) = text.split_once('{')?;
        let (claim, after) = rest.split_once('}')?;
        let is_only = !before.contains('}') && !claim.contains('{') && !after.contains(['{', '}']);
        (is_only && !claim.is_empty()).then(|| TenantIssuer {
            before: before.into(),
            claim: claim.into(),
            after: after.into(),
            tenants,
        })
    }

    /// The tenant of this name.
    pub(super) fn named(&self, name: &str) -> Option<Tenant> {
        let is_accepted =
            self.tenants.is_empty() || self.tenants.iter().any(|tenant| **tenant == *name);
        (is_accepted && is_tenant_name(name)).then(|| Tenant {
            name: name.into(),
            iss: format!("{}{name}{}", self.before, self.after).into(),
        })
    }

    /// The tenant of tokens with this `iss`.
    pub(super) fn of_iss(&self, iss: &str) -> Option<Tenant> {
        self.named(iss.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?)
    }

    /// The tenant of a token, whose `iss` and claim name the same one.
    pub(super) fn of(&self, claims: &Claims) -> Option<Tenant> {
        let tenant = self.of_iss(claims.get("iss")?.as_str()?)?;
        let is_same = claims.lookup(&self.claim).and_then(Value::as_str) == Some(&*tenant.name);
        is_same.then_some(tenant)
    }

    /// Completes `iss` and the claim with the tenant by each other, or by the first tenant that is
    /// listed, for tokens that are assumed or made.
    pub fn complete(&self, claims: &mut Map<String, Value>) {
        let given = claims.get("iss").and_then(Value::as_str).and_then(|iss| self.of_iss(iss));
        let as_given = Claims::from(claims.clone());
        let claim = as_given.lookup(self.claim());
        let named = claim.and_then(Value::as_str).and_then(|name| self.named(name));
        let any = || self.named(self.tenants.first().map_or("tenant", |first| first));
        if let Some(tenant) = given.or(named).or_else(any) {
            if claim.is_none() {
                claims.insert(self.claim().to_owned(), (*tenant.name).into());
            }
            claims.entry("iss").or_insert_with(|| (*tenant.iss).into());
        }
    }

    /// The claim with the tenant.
    pub fn claim(&self) -> &str {
        &self.claim
    }

    /// Whether one `iss` may be of both.
    pub fn overlaps(&self, other: &TenantIssuer) -> bool {
        let [own, others] = [self, other];
        // What one has more is of the tenant to the other.
        let fits = |rest: &str| rest.is_empty() || is_tenant_name(rest);
        let is_start = |one: &str, other: &str| one.strip_prefix(other).is_some_and(fits);
        let is_end = |one: &str, other: &str| one.strip_suffix(other).is_some_and(fits);
        let either = |is_it: &dyn Fn(&str, &str) -> bool, one: &str, other: &str| {
            is_it(one, other) || is_it(other, one)
        };
        either(&is_start, &own.before, &others.before) && either(&is_end, &own.after, &others.after)
    }
}

impl fmt::Display for TenantIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tenants.as_slice() {
            [] => write!(f, "any {}", self.claim),
            tenants => write!(f, "{} {}", self.claim, tenants.join(", ")),
        }
    }
}
