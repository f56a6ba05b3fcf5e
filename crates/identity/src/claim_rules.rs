//! What the claims of a token must be, whichever issuer or server confirms them.

use serde_json::Value;

use super::{
    claims::Claims,
    token_error::TokenError,
    token_refusal::{Quoted, QuotedList, TokenRefusal},
};

/// How long a `sub` may be.
const MAX_SUBJECT_BYTES: usize = 256;

/// How many accepted values of a claim the log shows.
const MAX_VALUES: usize = 4;

/// What claims must be. Used for tokens of issuers and for introspected ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimRules {
    /// `aud` must contain one of these; empty: any audience, or none.
    pub audience: Vec<String>,
    /// Claims that a token must have.
    pub required: Vec<RequiredClaim>,
    /// Claims with another name in tokens: the name in the policy, and the path in the token.
    pub names: Vec<(Box<str>, Box<str>)>,
}

/// A claim that a token must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredClaim {
    /// Its name or dotted path.
    pub path: Box<str>,
    /// The values that are accepted, alone or in a list; empty: any value but null.
    pub accepted: Vec<Value>,
}

impl ClaimRules {
    /// Checks all that does not depend on the time. Returns the claims under the policy's names.
    pub(super) fn check(&self, claims: Claims) -> Result<Claims, TokenRefusal> {
        self.check_required(&claims)?;
        let claims = claims.renamed(&self.names);
        check_subject(&claims)?;
        Ok(claims)
    }

    /// Checks the audience and the required claims.
    pub(super) fn check_required(&self, claims: &Claims) -> Result<(), TokenRefusal> {
        self.check_audience(claims)?;
        match self.unmet_by(claims) {
            None => Ok(()),
            Some(unmet) => {
                Err(TokenRefusal::new(TokenError::RequiredClaim, unmet.expectation(claims)))
            }
        }
    }

    /// The first required claim that a token does not have.
    pub fn unmet_by(&self, claims: &Claims) -> Option<&RequiredClaim> {
        self.required.iter().find(|required| !required.is_met(claims))
    }

    pub(super) fn check_audience(&self, claims: &Claims) -> Result<(), TokenRefusal> {
        let found = match claims.get("aud") {
            None if self.audience.is_empty() => return Ok(()),
            None => return Err(TokenError::MissingClaim("aud").into()),
            Some(audience @ Value::String(_)) => std::slice::from_ref(audience),
            Some(Value::Array(audiences)) if audiences.iter().all(Value::is_string) => audiences,
            Some(_) => return Err(TokenError::MalformedClaim("aud").into()),
        };
        //= rfc7519#section-4.1.3
        //# Each principal intended to process the JWT MUST identify itself with a value in the
        //# audience claim
        //= rfc7519#section-7.3
        //# These comparison rules MUST be used for all JSON string comparisons
        let is_ours = |value: &Value| self.audience.iter().any(|audience| value == audience);
        if self.audience.is_empty() || found.iter().any(is_ours) {
            return Ok(());
        }
        let expected = QuotedList(self.audience.iter().map(String::as_str));
        let found = QuotedList(found.iter().filter_map(Value::as_str));
        let detail = format!("expected {expected}, found {found}");
        Err(TokenRefusal::new(TokenError::WrongAudience, detail))
    }
}

impl RequiredClaim {
    /// What is expected of it, for the log: its name and, if it is there with another value, the
    /// accepted ones. That value may identify a user, and is not told.
    pub fn expectation(&self, claims: &Claims) -> String {
        let name = Quoted(&self.path);
        if matches!(claims.lookup(&self.path), None | Some(Value::Null)) {
            return name.to_string();
        }
        let shown = self.accepted.iter().take(MAX_VALUES).map(|value| match value {
            Value::String(text) => Quoted(text).to_string(),
            other => other.to_string(),
        });
        let shown = shown.collect::<Vec<_>>().join(", ");
        match self.accepted.len().saturating_sub(MAX_VALUES) {
            0 => format!("{name} is not {shown}"),
            more => format!("{name} is not {shown} or one of {more} more"),
        }
    }

    fn is_met(&self, claims: &Claims) -> bool {
        let is_accepted = |value: &Value| self.accepted.contains(value);
        match claims.lookup(&self.path) {
            None | Some(Value::Null) => false,
            Some(_) if self.accepted.is_empty() => true,
            Some(Value::Array(values)) => values.iter().any(is_accepted),
            Some(value) => is_accepted(value),
        }
    }
}

/// A subject becomes a limit's key and a log field, so it is text of bounded length without control
/// characters.
fn check_subject(claims: &Claims) -> Result<(), TokenError> {
    match claims.get("sub") {
        None => Ok(()),
        Some(Value::String(subject))
            if !subject.is_empty()
                && subject.len() <= MAX_SUBJECT_BYTES
                && !subject.contains(char::is_control) =>
        {
            Ok(())
        }
        Some(_) => Err(TokenError::MalformedClaim("sub")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(value: &Value) -> Claims {
        Claims::parse(value.to_string().as_bytes()).unwrap()
    }

    fn requiring(path: &str, accepted: &[Value]) -> ClaimRules {
        let required = vec![RequiredClaim { path: path.into(), accepted: accepted.to_vec() }];
        ClaimRules { required, ..ClaimRules::default() }
    }

    #[test]
    fn required_claim_has_an_accepted_value() {
        for (path, accepted, given, is_met) in [
            ("azp", vec![json!("web")], json!({ "azp": "web" }), true),
            ("azp", vec![json!("web"), json!("app")], json!({ "azp": "app" }), true),
            ("azp", vec![json!("web")], json!({ "azp": "Web" }), false),
            ("azp", vec![json!("web")], json!({ "azp": ["web"] }), true),
            ("azp", vec![json!("web")], json!({ "azp": ["app"] }), false),
            ("azp", vec![json!("web")], json!({}), false),
            ("azp", vec![], json!({ "azp": 1 }), true),
            ("azp", vec![], json!({ "azp": null }), false),
            ("realm.roles", vec![json!("api")], json!({ "realm": { "roles": ["api"] } }), true),
            ("verified", vec![json!(true)], json!({ "verified": true }), true),
            ("verified", vec![json!(true)], json!({ "verified": "true" }), false),
            ("level", vec![json!(2)], json!({ "level": 2 }), true),
        ] {
            let result = requiring(path, &accepted).check(claims(&given)).map(|_| ());
            let result = result.map_err(|refusal| refusal.error);
            let expected = if is_met { Ok(()) } else { Err(TokenError::RequiredClaim) };
            assert_eq!(result, expected, "{path} {accepted:?} {given}");
        }
    }

    #[test]
    fn claims_get_the_names_of_the_policy() {
        let names = |pairs: &[(&str, &str)]| ClaimRules {
            names: pairs.iter().map(|(name, path)| ((*name).into(), (*path).into())).collect(),
            ..ClaimRules::default()
        };
        let given = claims(&json!({ "sub": "app", "oid": "42", "realm": { "plan": "pro" } }));
        let read = names(&[("sub", "oid"), ("plan", "realm.plan")]).check(given.clone()).unwrap();
        assert_eq!(read.get("sub"), Some(&json!("42")));
        assert_eq!(read.get("plan"), Some(&json!("pro")));
        // A claim that has the name already is replaced, even by nothing.
        let read = names(&[("sub", "absent")]).check(given.clone()).unwrap();
        assert_eq!(read.get("sub"), None);
        // Two claims that swap names.
        let read = names(&[("sub", "oid"), ("oid", "sub")]).check(given).unwrap();
        assert_eq!((read.get("sub"), read.get("oid")), (Some(&json!("42")), Some(&json!("app"))));
    }
}
