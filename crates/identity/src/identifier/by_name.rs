//! Callers by their names in words, as policies and logs write them: `user:42`. Of such a caller,
//! what its requests would show is not known; only its counters, and mostly its tier, can be found.

use std::{fmt::Write, ops::Range, sync::Arc};

use http::HeaderValue;

use super::{Identifier, by_address, hash_claim};
use crate::{
    Caller, CallerKey, CallerValue, Identity, IdentityRules, Prefixes, ResolvedCaller, Tenant,
    TierSource, address, caller_text::is_caller_text,
};

/// A caller that was found by its name.
#[derive(Clone, Debug)]
pub struct CallerByName<'p> {
    /// The caller.
    pub caller: ResolvedCaller<'p>,
    /// The position of its tier; none: no token in the cache tells.
    pub tier: Option<usize>,
}

/// Why a name is not that of a caller, under the rules of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is not of the form `kind:value`.
    #[error("`{0}` is not a caller: write an entry of `callers` and a value, such as user:42")]
    Form(String),
    /// The policy has no callers of this kind.
    #[error("no entry of `callers` is called `{kind}`: there are {known}")]
    Kind {
        /// The kind.
        kind: String,
        /// Those that there are.
        known: String,
    },
    /// Several issuers may have a caller of this name.
    #[error("`{name}` may be a caller of any issuer: write whose, one of {choices}")]
    WhoseIsIt {
        /// The name.
        name: String,
        /// The name with each issuer.
        choices: String,
    },
    /// Callers of this kind are addresses.
    #[error("callers of kind `{kind}` are addresses: write one such as {kind}:192.0.2.1")]
    NotAnAddress {
        /// The kind.
        kind: String,
    },
    /// A counter is shown so whose value may be a secret.
    #[error("a hash stands for {part} since that may be a secret: write the value itself")]
    Hashed {
        /// What is hashed.
        part: String,
    },
    /// The counters of such callers also depend on who signed the certificate.
    #[error(
        "callers of kind `{kind}` are named by certificates: their counters cannot be found by name"
    )]
    Certificate {
        /// The kind.
        kind: String,
    },
}

impl Identifier {
    /// The caller with this name under the rules of a policy.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn by_name<'p>(
        &self,
        rules: &'p IdentityRules,
        name: &str,
    ) -> Result<CallerByName<'p>, NameError> {
        let whose = Whose::of(rules, name);
        let form = || NameError::Form(name.to_owned());
        let (kind, value) = whose.short.split_once(':').ok_or_else(form)?;
        if kind.is_empty() || !is_caller_text(value) {
            return Err(form());
        }
        let Some(rule) = rules.callers.iter().find(|rule| *rule.name == *kind) else {
            let known: Vec<&str> = rules.callers.iter().map(|rule| &*rule.name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(NameError::Kind { kind: kind.to_owned(), known });
        };
        let claim = match &rule.key {
            CallerKey::Claim(claim) | CallerKey::ApiKey(claim) => claim,
            CallerKey::Address { .. } => return self.address_by_name(rules, rule, value),
            CallerKey::Certificate(_) => {
                return Err(NameError::Certificate { kind: kind.to_owned() });
            }
        };
        let vouching = match &rule.key {
            CallerKey::ApiKey(_) => rules.api_keys_position()..rules.api_keys_position() + 1,
            _ => 0..rules.api_keys_position(),
        };
        let Vouching { issuer, tenant } = whose.vouching(rules, vouching)?;
        let id = tenant.as_ref().map(|tenant| &*tenant.iss).or_else(|| rules.issuer_id(issuer));
        let id = id.unwrap_or_default();
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| form())?;
        let caller = ResolvedCaller {
            issuer: Some(issuer),
            kind: &rule.name,
            hash: hash_claim(&self.hasher, id, claim, value.as_bytes()),
            tenant: tenant.map(Arc::new),
            value: CallerValue::Claim(value),
        };
        let tier = tier_without_claims(rules, rule).or_else(|| self.tokens.tier_of(rules, &caller));
        Ok(CallerByName { caller, tier })
    }

    fn address_by_name<'p>(
        &self,
        rules: &'p IdentityRules,
        rule: &'p Caller,
        value: &str,
    ) -> Result<CallerByName<'p>, NameError> {
        let refused = || NameError::NotAnAddress { kind: rule.name.to_string() };
        let address = value.parse().map_err(|_| refused())?;
        // Only the first such rule names callers.
        let prefixes = by_address(rules).map_or_else(Prefixes::default, |(_, _, found)| found);
        let caller = ResolvedCaller {
            issuer: None,
            tenant: None,
            kind: &rule.name,
            value: CallerValue::Address(address::prefix(address, prefixes).addr()),
            hash: self.hash_address(address, prefixes),
        };
        Ok(CallerByName { caller, tier: Some(super::tier(rules, &rule.tier, None)) })
    }
}

impl IdentityRules {
    /// Whose word the claims in a name are, by their id, and the name without that:
    /// `main/jwt.org:1` where several issuers have tokens.
    ///
    /// # Errors
    /// [`NameError::WhoseIsIt`].
    pub fn claims_issuer<'n>(&self, name: &'n str) -> Result<(String, &'n str), NameError> {
        let whose = Whose::of(self, name);
        let Vouching { issuer, tenant } = whose.vouching(self, 0..self.api_keys_position())?;
        let id = match tenant {
            Some(tenant) => tenant.iss.to_string(),
            None => self.issuer_id(issuer).unwrap_or_default().to_owned(),
        };
        Ok((id, whose.short))
    }
}

/// A name, and what it says about who vouches for it.
struct Whose<'n> {
    name: &'n str,
    issuer: Option<usize>,
    tenant: Option<&'n str>,
    /// The name without these.
    short: &'n str,
}

/// Who vouches for a caller, or for claims.
struct Vouching {
    /// Its position.
    issuer: usize,
    tenant: Option<Tenant>,
}

impl<'n> Whose<'n> {
    fn of(rules: &IdentityRules, name: &'n str) -> Whose<'n> {
        let of_issuer = |position: usize| {
            let rest = name.strip_prefix(rules.issuer_name(position)?)?.strip_prefix('/')?;
            Some((position, rest))
        };
        let (issuer, short) = match (0..=rules.api_keys_position()).find_map(of_issuer) {
            Some((position, rest)) => (Some(position), rest),
            None => (None, name),
        };
        let has_tenants = rules.tenants(issuer.unwrap_or_default()).is_some();
        let (tenant, short) = match short.split_once('/') {
            Some((tenant, rest)) if has_tenants && !tenant.contains([':', '=']) => {
                (Some(tenant), rest)
            }
            _ => (None, short),
        };
        Whose { name, issuer, tenant, short }
    }

    /// The issuer, which is one of `vouching` if the name does not say it, and its tenant.
    fn vouching(
        &self,
        rules: &IdentityRules,
        vouching: Range<usize>,
    ) -> Result<Vouching, NameError> {
        let Whose { name, issuer, tenant, short } = *self;
        let unclear = |choices: String| NameError::WhoseIsIt { name: name.to_owned(), choices };
        let issuer = match (issuer, vouching.len()) {
            (Some(issuer), _) => issuer,
            (None, 1) => vouching.start,
            (None, _) => {
                let names = vouching.filter_map(|position| rules.issuer_name(position));
                let choices: Vec<String> =
                    names.map(|issuer| format!("{issuer}/{short}")).collect();
                return Err(unclear(choices.join(", ")));
            }
        };
        let tenant = match (rules.tenants(issuer), tenant) {
            (Some(tenants), Some(tenant)) => {
                let form = || NameError::Form(name.to_owned());
                Some(tenants.named(tenant).ok_or_else(form)?)
            }
            (Some(_), None) => {
                let whose = rules.issuer_name(issuer).unwrap_or_default();
                return Err(unclear(format!("{whose}/TENANT/{short}")));
            }
            (None, _) => None,
        };
        Ok(Vouching { issuer, tenant })
    }
}

impl ResolvedCaller<'_> {
    /// Writes the name by which [`Identifier::by_name`] finds the caller: `user:42`, with the
    /// issuer before it where several have users, and the tenant where that has several.
    pub fn write_name(&self, rules: &IdentityRules, to: &mut String) {
        if let Some(issuer) = self.issuer.and_then(|issuer| rules.issuer_in_names(issuer)) {
            to.push_str(issuer);
            to.push('/');
        }
        if let Some(tenant) = &self.tenant {
            to.push_str(&tenant.name);
            to.push('/');
        }
        to.push_str(self.kind);
        to.push(':');
        // Writing to a `String` never fails.
        let _ = write!(to, "{}", self.value);
    }

    /// The same as a header's value. None: it cannot be one.
    pub(super) fn name_field(&self, rules: &IdentityRules) -> Option<HeaderValue> {
        let mut name = String::new();
        self.write_name(rules, &mut name);
        HeaderValue::from_maybe_shared(name.into_bytes()).ok()
    }
}

impl Identity<'_> {
    /// The caller's whole name, for the upstream. None: there is no caller.
    pub fn caller_name(&self, rules: &IdentityRules) -> Option<HeaderValue> {
        let caller = self.caller.as_ref()?;
        let of_token = self.token.as_ref().and_then(|known| known.named.as_ref());
        match (&caller.value, of_token) {
            (CallerValue::Claim(_), Some(named)) => named.name.clone(),
            _ => caller.name_field(rules),
        }
    }
}

/// The tier of callers of a rule, if it does not depend on claims.
fn tier_without_claims(rules: &IdentityRules, rule: &Caller) -> Option<usize> {
    match &rule.tier {
        TierSource::Default => Some(rules.tiers.default),
        TierSource::Fixed(tier) => Some(*tier),
        TierSource::Claim(_) | TierSource::Table(_) => None,
    }
}
