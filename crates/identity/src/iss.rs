//! What the claim `iss` of an issuer's tokens is, and the tenants that it may name.

use std::fmt;

use serde_json::{Map, Value};

use super::{
    claims::Claims,
    token_error::TokenError,
    token_refusal::{Quoted, QuotedList, TokenRefusal},
};

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
        (is_accepted && is_tenant_name(name))
            .then(|| Tenant { name: name.into(), iss: self.iss_with(name).into() })
    }

    fn iss_with(&self, name: &str) -> String {
        format!("{}{name}{}", self.before, self.after)
    }

    /// The tenant of tokens with this `iss`.
    pub(super) fn of_iss(&self, iss: &str) -> Option<Tenant> {
        self.named(self.name_in(iss)?)
    }

    /// What an `iss` has in place of the claim, if that may be the name of a tenant, listed or not.
    pub(super) fn name_in<'i>(&self, iss: &'i str) -> Option<&'i str> {
        let name = iss.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        is_tenant_name(name).then_some(name)
    }

    /// The tenant of a token, whose `iss` and claim name the same one. Or why it has none: what the
    /// policy says of the claim is most often what has to change.
    pub(super) fn of(&self, claims: &Claims) -> Result<Tenant, TokenRefusal> {
        let unknown = |detail: String| TokenRefusal::new(TokenError::UnknownIssuer, detail);
        let text = || self.iss_with(&format!("{{{}}}", self.claim));
        let claim = Quoted(&self.claim);
        let Some(claimed) = claims.lookup(&self.claim) else {
            let text = text();
            let text = Quoted(&text);
            let detail = format!("{claim}, which is in braces in the policy's issuer {text}");
            return Err(TokenRefusal::new(TokenError::RequiredClaim, detail));
        };
        let iss = claims.get("iss").and_then(Value::as_str).unwrap_or_default();
        let Some(name) = self.name_in(iss) else {
            return Err(unknown(format!("expected {}, found {}", Quoted(&text()), Quoted(iss))));
        };
        if claimed.as_str() != Some(name) {
            let found = match claimed.as_str() {
                Some(text) => Quoted(text).to_string(),
                None => "no text".to_owned(),
            };
            let name = Quoted(name);
            let detail = format!("its `iss` is of the tenant {name}, its {claim} is {found}");
            return Err(unknown(detail));
        }
        self.named(name).ok_or_else(|| {
            let listed = QuotedList(self.tenants.iter().map(|tenant| &**tenant));
            unknown(format!("expected a tenant of {listed}, found {}", Quoted(name)))
        })
    }

    /// Completes `iss` by the tenant that the claim names, listed or not.
    pub(super) fn complete_iss(&self, claims: &mut Map<String, Value>) {
        let as_given = Claims::from(claims.clone());
        if let Some(name) = as_given.lookup(&self.claim).and_then(Value::as_str) {
            claims.entry("iss").or_insert_with(|| self.iss_with(name).into());
        }
    }

    /// Completes `iss` and the claim with the tenant by each other, or by the first tenant that is
    /// listed, for tokens that are made.
    pub fn complete(&self, claims: &mut Map<String, Value>) {
        if Claims::from(claims.clone()).lookup(&self.claim).is_none() {
            let given = claims.get("iss").and_then(Value::as_str).and_then(|iss| self.of_iss(iss));
            let any = || self.named(self.tenants.first().map_or("tenant", |first| first));
            if let Some(tenant) = given.or_else(any) {
                claims.insert(self.claim().to_owned(), (*tenant.name).into());
            }
        }
        self.complete_iss(claims);
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
