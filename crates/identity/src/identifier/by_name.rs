//! Callers by their names in words, as policies and logs write them: `user:42`. Of such a caller,
//! what its requests would show is not known; only its counters, and mostly its tier, can be found.

use std::{fmt, ops::Range, sync::Arc};

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
    #[error("no entry of `callers` is called `{kind}`: write one such as {known}")]
    Kind {
        /// The kind.
        kind: String,
        /// A name of each kind that there is.
        known: String,
    },
    /// It is a value alone.
    #[error("`{name}` does not say what it is: write one of {choices}")]
    Bare {
        /// The value.
        name: String,
        /// The names that it may be a part of.
        choices: String,
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
            let known = rules.names_with("VALUE").join(", ");
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

/// The whole name of a caller: [`IdentityRules::caller_name`].
#[derive(Clone, Copy)]
pub struct WholeName<'n> {
    whose: WhoseWord<'n>,
    kind: &'n str,
    value: &'n dyn fmt::Display,
}

impl fmt::Display for WholeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}:{}", self.whose, self.kind, self.value)
    }
}

/// What names begin with: [`IdentityRules::whose`].
#[derive(Clone, Copy)]
pub struct WhoseWord<'n>([Option<&'n str>; 2]);

impl fmt::Display for WhoseWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().flatten().try_for_each(|part| write!(f, "{part}/"))
    }
}

/// Who has signed the claims in a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimsIssuer {
    /// The id that distinguishes them from those of others.
    pub id: String,
    /// What names have before them: `main/`, or nothing where only one issuer has tokens.
    pub whose: String,
}

impl IdentityRules {
    /// A name with this value for each kind of callers that can be found by name.
    pub fn names_with(&self, value: &str) -> Vec<String> {
        let named = self.callers.iter().filter_map(|rule| match &rule.key {
            CallerKey::Certificate(_) => None,
            CallerKey::Address { .. } if value == "VALUE" => Some((rule, "192.0.2.1")),
            _ => Some((rule, value)),
        });
        named.map(|(rule, value)| format!("{}:{value}", rule.name)).collect()
    }

    /// The whole name of a caller, as policies, logs and commands write it: `user:42`, and before
    /// it [whose](Self::whose) it is. [`Identifier::by_name`] finds the caller by it.
    pub fn caller_name<'n>(
        &'n self,
        issuer: Option<usize>,
        tenant: Option<&'n str>,
        kind: &'n str,
        value: &'n dyn fmt::Display,
    ) -> WholeName<'n> {
        let issuer = issuer.and_then(|issuer| self.issuer_in_names(issuer));
        WholeName { whose: WhoseWord([issuer, tenant]), kind, value }
    }

    /// What names have before a caller or a claim that an issuer vouches for: `main/` where several
    /// issuers have tokens, and the tenant where that has several.
    pub fn whose<'n>(&'n self, issuer: usize, tenant: Option<&'n str>) -> WhoseWord<'n> {
        WhoseWord([self.issuer_in_names(issuer), tenant])
    }

    /// Whether a text is all that says [whose](Self::whose) a caller or a claim is.
    pub fn is_whose(&self, text: &str) -> bool {
        text.ends_with('/') && Whose::of(self, text).short.is_empty()
    }

    /// Whose word the claim in a name is: `main/jwt.org:1` where several issuers have tokens.
    ///
    /// # Errors
    /// [`NameError::WhoseIsIt`].
    pub fn claims_issuer(&self, name: &str) -> Result<ClaimsIssuer, NameError> {
        let whose = Whose::of(self, name).vouching(self, 0..self.api_keys_position())?;
        let Vouching { issuer, tenant } = whose;
        let id = tenant.as_ref().map(|tenant| &*tenant.iss).or_else(|| self.issuer_id(issuer));
        let name = tenant.as_ref().map(|tenant| &*tenant.name);
        Ok(ClaimsIssuer {
            id: id.unwrap_or_default().to_owned(),
            whose: self.whose(issuer, name).to_string(),
        })
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
        let any = |position| rules.tenants(position).map(|_| tenant.unwrap_or("TENANT"));
        let issuer = match (issuer, vouching.len()) {
            (Some(issuer), _) => issuer,
            (None, 1) => vouching.start,
            (None, _) => {
                let choice = |position| format!("{}{short}", rules.whose(position, any(position)));
                return Err(unclear(vouching.map(choice).collect::<Vec<_>>().join(", ")));
            }
        };
        let tenant = match (rules.tenants(issuer), tenant) {
            (Some(tenants), Some(tenant)) => {
                let form = || NameError::Form(name.to_owned());
                Some(tenants.named(tenant).ok_or_else(form)?)
            }
            (Some(_), None) => {
                return Err(unclear(format!("{}{short}", rules.whose(issuer, any(issuer)))));
            }
            (None, _) => None,
        };
        Ok(Vouching { issuer, tenant })
    }
}

impl ResolvedCaller<'_> {
    /// Its whole name: [`IdentityRules::caller_name`].
    pub fn name<'c>(&'c self, rules: &'c IdentityRules) -> WholeName<'c> {
        let tenant = self.tenant.as_ref().map(|tenant| &*tenant.name);
        rules.caller_name(self.issuer, tenant, self.kind, &self.value)
    }

    /// The same as a header's value. None: it cannot be one.
    pub(super) fn name_field(&self, rules: &IdentityRules) -> Option<HeaderValue> {
        HeaderValue::from_maybe_shared(self.name(rules).to_string().into_bytes()).ok()
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
