//! Callers who were identified earlier, for requests of the past: what a log says of them takes the
//! place of their credentials.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};

use super::{
    Auth, CallerByName, CallerValue, Claims, Client, Identifier, Identity, IdentityError,
    IdentityRules, KnownToken, NameError, VerifiedToken, validity::TimeClaims,
};

/// A caller who was identified earlier.
#[derive(Clone, Debug, Default)]
pub struct AssumedCaller {
    /// Its name, as a log writes it: `user:42`, `main/user:42`.
    pub name: String,
    /// Whose token it was, as a log says; none: that of the first issuer of the policy.
    pub issuer: Option<String>,
    /// The name of its tier; it counts where the tier does not follow from the claims.
    pub tier: Option<String>,
    /// Claims of its token.
    pub claims: Map<String, Value>,
}

impl Identifier {
    /// Identifies the sender of a request by what is known of it, in place of a credential.
    ///
    /// # Errors
    /// [`IdentityError::NoCaller`] if the rules name no such callers;
    /// [`IdentityError::IssuerNotAccepted`]; [`IdentityError::Missing`] if the route needs a token
    /// and such callers have none.
    pub fn identify_assumed<'p>(
        &self,
        rules: &'p IdentityRules,
        auth: &Auth,
        assumed: &AssumedCaller,
        client: Client<'_>,
    ) -> Result<Identity<'p>, IdentityError> {
        let (accepted, is_required) = match auth {
            Auth::None => return Ok(self.without_token(rules, client)),
            Auth::Optional(accepted) => (accepted, false),
            Auth::Required(accepted) => (accepted, true),
        };
        let CallerByName { caller, tier } =
            self.by_assumed_name(rules, assumed).map_err(|_| IdentityError::NoCaller)?;
        let Some(issuer) = caller.issuer else {
            let is_certified = matches!(caller.value, CallerValue::Certificate(_));
            return match is_required && !is_certified {
                true => Err(IdentityError::Missing),
                false => Ok(self.without_token(rules, client)),
            };
        };
        if !accepted.issuers.contains(issuer) {
            return Err(IdentityError::IssuerNotAccepted);
        }
        let claims = Claims::from(assumed.claims.clone());
        let tier = assumed_tier(rules, caller.kind, assumed, &claims).or(tier);
        let validity = TimeClaims::of(&Claims::from(Map::new()))?.validity(Duration::ZERO, None);
        let token = VerifiedToken { issuer, tenant: caller.tenant.clone(), claims, validity };
        let forwarded = Box::default();
        let token = KnownToken { token, named: None, forwarded, generation: 0, bytes: 0 };
        Ok(Identity {
            address: client.address,
            token: Some(Arc::new(token)),
            has_bad_token: false,
            caller: Some(caller),
            tier: tier.unwrap_or(rules.tiers.default),
        })
    }

    fn by_assumed_name<'p>(
        &self,
        rules: &'p IdentityRules,
        assumed: &AssumedCaller,
    ) -> Result<CallerByName<'p>, NameError> {
        // A log that was written under other issuers has these in its names.
        let name = match self.by_name(rules, &assumed.name) {
            Err(NameError::WhoseIsIt { .. }) => &*assumed.name,
            Err(NameError::Kind { .. }) => without_whose(rules, &assumed.name),
            found => return found,
        };
        match self.by_name(rules, name) {
            Err(NameError::WhoseIsIt { .. }) => {
                let id = assumed.issuer.as_deref().unwrap_or_default();
                let tenant = |position: usize| rules.tenants(position)?.of_iss(id);
                let named = |position: &usize| rules.issuer_id(*position) == Some(id);
                let position = (0..rules.api_keys_position()).find(named);
                let position = position.or_else(|| rules.position_of(id)).unwrap_or_default();
                if let (Some(issuer), Some(tenant)) =
                    (rules.issuer_name(position), tenant(position))
                {
                    let name = format!("{issuer}/{}/{name}", tenant.name);
                    return self.by_name(rules, &name);
                }
                let issuer = rules.issuer_id(position).unwrap_or_default();
                self.by_name(rules, &format!("{issuer}/{name}")).or_else(|error| {
                    // Issuers are called by their names, if they have any.
                    match rules.issuer_name(position) {
                        Some(issuer) => self.by_name(rules, &format!("{issuer}/{name}")),
                        None => Err(error),
                    }
                })
            }
            found => found,
        }
    }
}

/// A name without what it says of an issuer that the rules do not know: from the first kind of
/// caller on.
fn without_whose<'n>(rules: &IdentityRules, name: &'n str) -> &'n str {
    let kinds = rules.callers.iter().filter_map(|rule| name.find(&format!("/{}:", rule.name)));
    kinds.min().and_then(|at| name.get(at + 1..)).unwrap_or(name)
}

/// The tier by the claims, if these have what decides; else by its name.
fn assumed_tier(
    rules: &IdentityRules,
    kind: &str,
    assumed: &AssumedCaller,
    claims: &Claims,
) -> Option<usize> {
    let rule = rules.callers.iter().find(|rule| *rule.name == *kind)?;
    let claim = rule.tier.claim()?;
    match claims.lookup(claim) {
        Some(_) => Some(super::identifier::tier(rules, &rule.tier, Some(claims))),
        None => {
            let name = assumed.tier.as_deref()?;
            rules.tiers.names().position(|tier| tier == name)
        }
    }
}
