//! Who vouches for callers, and what must be true of what they say.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    claims::Claims,
    jwt::{TokenError, Unverified},
    keys::{Algorithm, KeyRing, KeySet, RemoteKeys, RemoteSpec},
};
use crate::clock::Timestamp;

/// How long a `sub` may be.
const MAX_SUBJECT_BYTES: usize = 256;

/// Who may issue tokens, and what they must look like.
#[derive(Clone, Debug)]
pub struct Issuer {
    /// What the policy calls it.
    pub name: String,
    /// The `iss` of its tokens, to the letter. Of two issuers with the same, the first counts.
    pub issuer: String,
    /// What its claims must be.
    pub claims: ClaimRules,
    /// A token's `typ` must be one of these, whatever its case and with or without `application/`;
    /// empty: any type, or none.
    pub types: Vec<String>,
    /// What a token that carries or links a key comes to.
    pub key_hints: KeyHints,
    /// How far the issuer's clock may be off.
    pub leeway: Duration,
    /// How old a token may be by its `iat`, which must then be there.
    pub max_age: Option<Duration>,
    /// Whether a token without `exp` is refused.
    pub require_exp: bool,
    /// How long a token may live from `iat` to `exp`, both of which must then be there.
    pub max_lifetime: Option<Duration>,
    /// The keys that sign its tokens.
    pub keys: IssuerKeys,
}

/// What claims must be, whoever vouches for them.
#[derive(Clone, Debug, Default)]
pub struct ClaimRules {
    /// `aud` must hold one of these; empty: any audience, or none.
    pub audience: Vec<String>,
    /// Claims that must be there.
    pub required: Vec<RequiredClaim>,
    /// What others call a claim: its name here, and where it is found.
    pub names: Vec<(Box<str>, Box<str>)>,
}

/// A claim that must be there.
#[derive(Clone, Debug, PartialEq)]
pub struct RequiredClaim {
    /// Its name or dotted path.
    pub path: Box<str>,
    /// It must be one of these, or a list with one of these; empty: whatever it is.
    pub accepted: Vec<Value>,
}

/// Where an issuer's keys come from.
#[derive(Clone, Debug)]
pub enum IssuerKeys {
    /// From the policy: a file or a secret.
    Fixed(Arc<KeySet>),
    /// From the issuer.
    Remote {
        /// Where they are fetched, and when.
        spec: Box<RemoteSpec>,
        /// None until the policy is in force: only then are they fetched.
        keys: Option<Arc<RemoteKeys>>,
    },
}

impl IssuerKeys {
    /// Has keys that the issuer publishes fetched, unless the ring has them.
    pub(crate) fn adopt(&mut self, ring: &KeyRing) {
        if let IssuerKeys::Remote { spec, keys } = self {
            *keys = Some(ring.adopt(spec));
        }
    }

    /// Those that are known now; none if they were never fetched, or too long ago.
    pub(super) fn current(&self, now: Timestamp) -> Option<Arc<KeySet>> {
        match self {
            IssuerKeys::Fixed(keys) => Some(Arc::clone(keys)),
            IssuerKeys::Remote { keys, .. } => keys.as_ref()?.current(now),
        }
    }

    /// What changes when the set of keys does, for what was found out by one set may not hold by
    /// another; and whether there are any now.
    pub(super) fn standing(&self, now: Timestamp) -> (u64, bool) {
        match self {
            IssuerKeys::Fixed(_) => (0, true),
            IssuerKeys::Remote { keys, .. } => {
                keys.as_ref().map_or((0, false), |keys| keys.standing(now))
            }
        }
    }

    /// Has them fetched anew, unless that was done just now; whether they were.
    pub(super) async fn refresh(&self, now: Timestamp) -> bool {
        match self {
            IssuerKeys::Remote { keys: Some(keys), .. } => keys.refresh(now).await,
            _ => false,
        }
    }

    /// Those that the policy has; none if the issuer publishes them.
    pub fn fixed(&self) -> Option<&KeySet> {
        match self {
            IssuerKeys::Fixed(keys) => Some(keys),
            IssuerKeys::Remote { .. } => None,
        }
    }

    /// Whether a token may name this algorithm, as far as that is known before the keys are.
    pub fn allows(&self, algorithm: Algorithm) -> bool {
        match self {
            IssuerKeys::Fixed(keys) => keys.allows(algorithm),
            // Whoever fetches keys has no secrets.
            IssuerKeys::Remote { spec, .. } => match spec.algorithms.as_slice() {
                [] => !algorithm.is_symmetric(),
                listed => listed.contains(&algorithm),
            },
        }
    }
}

/// What to do about the header members `jwk`, `jku`, `x5u`, `x5c` and `x5t*`. Either way they never
/// choose the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyHints {
    /// Refuse the token.
    #[default]
    Reject,
    /// Take no notice: some issuers (ADFS, Entra ID) write `x5t` into every token.
    Ignore,
}

/// When a token is good; the issuer's leeway is already in each instant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Validity {
    /// From here on, by `nbf` and `iat`.
    starts: Timestamp,
    /// Before this instant, by `exp`.
    expires: Option<Timestamp>,
    /// Up to this instant, by `iat` and the largest age.
    outdated_after: Option<Timestamp>,
}

impl Issuer {
    /// Whether a token is good at `now`. None: only its issuer has the keys to verify it with.
    pub fn judge(&self, token: &str, now: Timestamp) -> Option<Result<(), TokenError>> {
        let keys = self.keys.fixed()?;
        let verdict = Unverified::read(token.as_bytes(), std::slice::from_ref(self))
            .and_then(|unverified| unverified.verify(self, keys, now));
        Some(verdict.map(drop))
    }

    /// What of a token's header depends on the issuer.
    pub(super) fn check_header(
        &self,
        algorithm: Algorithm,
        typ: Option<&str>,
        has_key_hint: bool,
    ) -> Result<(), TokenError> {
        if !self.keys.allows(algorithm) {
            return Err(TokenError::AlgorithmNotAllowed);
        }
        if has_key_hint && self.key_hints == KeyHints::Reject {
            return Err(TokenError::KeyHint);
        }
        let is_expected = |typ: &str| {
            let typ = without_application(typ);
            self.types.iter().any(|known| without_application(known).eq_ignore_ascii_case(typ))
        };
        if self.types.is_empty() || typ.is_some_and(is_expected) {
            Ok(())
        } else {
            Err(TokenError::UnexpectedType)
        }
    }

    /// Checks the claims but for the time, which may be asked again later. A claim of the wrong type
    /// is an error, never a claim that is absent. Gives them their names here.
    pub(super) fn check_claims(&self, claims: Claims) -> Result<(Claims, Validity), TokenError> {
        let times = Times::of(&claims)?;
        if self.require_exp && times.expires.is_none() {
            return Err(TokenError::MissingClaim("exp"));
        }
        if self.max_age.is_some() && times.issued.is_none() {
            return Err(TokenError::MissingClaim("iat"));
        }
        if let Some(longest) = self.max_lifetime {
            let expires = times.expires.ok_or(TokenError::MissingClaim("exp"))?;
            let issued = times.issued.ok_or(TokenError::MissingClaim("iat"))?;
            if expires > issued + longest {
                return Err(TokenError::TooLongLived);
            }
        }
        let claims = self.claims.check(claims)?;
        Ok((claims, times.validity(self.leeway, self.max_age)))
    }
}

impl ClaimRules {
    /// Checks what does not depend on the time; gives the claims their names here.
    pub(super) fn check(&self, claims: Claims) -> Result<Claims, TokenError> {
        self.demand(&claims)?;
        let claims = claims.renamed(&self.names);
        check_subject(&claims)?;
        Ok(claims)
    }

    /// Checks whom they are for, and what must be there.
    pub(super) fn demand(&self, claims: &Claims) -> Result<(), TokenError> {
        self.check_audience(claims)?;
        let is_there = |required: &RequiredClaim| required.is_met(claims);
        match self.required.iter().all(is_there) {
            true => Ok(()),
            false => Err(TokenError::RequiredClaim),
        }
    }

    fn check_audience(&self, claims: &Claims) -> Result<(), TokenError> {
        let is_ours = |value: &Value| self.audience.iter().any(|audience| value == audience);
        let matches = match claims.get("aud") {
            None if self.audience.is_empty() => return Ok(()),
            None => return Err(TokenError::MissingClaim("aud")),
            Some(audience @ Value::String(_)) => is_ours(audience),
            Some(Value::Array(audiences)) if audiences.iter().all(Value::is_string) => {
                audiences.iter().any(is_ours)
            }
            Some(_) => return Err(TokenError::MalformedClaim("aud")),
        };
        if matches || self.audience.is_empty() { Ok(()) } else { Err(TokenError::WrongAudience) }
    }
}

impl RequiredClaim {
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

/// The times of a token, as it says them.
pub(super) struct Times {
    expires: Option<Timestamp>,
    not_before: Option<Timestamp>,
    issued: Option<Timestamp>,
}

impl Times {
    pub(super) fn of(claims: &Claims) -> Result<Times, TokenError> {
        Ok(Times {
            expires: numeric_date(claims, "exp")?,
            not_before: numeric_date(claims, "nbf")?,
            issued: numeric_date(claims, "iat")?,
        })
    }

    pub(super) fn validity(&self, leeway: Duration, max_age: Option<Duration>) -> Validity {
        let starts = self.not_before.max(self.issued).unwrap_or_default();
        let early = u64::try_from(leeway.as_micros()).unwrap_or(u64::MAX);
        Validity {
            starts: Timestamp::from_micros(starts.as_micros().saturating_sub(early)),
            expires: self.expires.map(|instant| instant + leeway),
            outdated_after: self
                .issued
                .zip(max_age)
                .map(|(issued, max_age)| issued + max_age + leeway),
        }
    }
}

impl Validity {
    /// Before this instant, if one is given.
    pub(super) fn expiring(expires: Option<Timestamp>) -> Validity {
        Validity { expires, ..Validity::default() }
    }

    /// The instant from which it is over for good, if there is one.
    pub(super) fn ends_at(self) -> Option<Timestamp> {
        let outdated = self.outdated_after.map(|instant| instant + Duration::from_micros(1));
        self.expires.into_iter().chain(outdated).min()
    }

    /// No longer than until this instant.
    pub(super) fn until(self, end: Timestamp) -> Validity {
        let expires = self.expires.map_or(end, |expires| expires.min(end));
        Validity { expires: Some(expires), ..self }
    }

    pub(super) fn check(&self, now: Timestamp) -> Result<(), TokenError> {
        if now < self.starts {
            return Err(TokenError::NotYetValid);
        }
        // RFC 7519 section 4.1.4: refused on the instant itself.
        if self.expires.is_some_and(|instant| now >= instant) {
            return Err(TokenError::Expired);
        }
        if self.outdated_after.is_some_and(|instant| now > instant) {
            return Err(TokenError::TooOld);
        }
        Ok(())
    }
}

/// RFC 7515 section 4.1.9: the prefix may be left out.
fn without_application(typ: &str) -> &str {
    const PREFIX: &str = "application/";
    match typ.split_at_checked(PREFIX.len()) {
        Some((prefix, rest)) if prefix.eq_ignore_ascii_case(PREFIX) => rest,
        _ => typ,
    }
}

/// A user is a limit's key and a log's field: one of bounded length that nobody can hide in.
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

/// Seconds since the epoch, whole or not (RFC 7519 section 2), neither negative nor past what a
/// double counts exactly.
fn numeric_date(claims: &Claims, name: &'static str) -> Result<Option<Timestamp>, TokenError> {
    const MAX_SECONDS: f64 = (1u64 << 53) as f64;
    let Some(value) = claims.get(name) else { return Ok(None) };
    let number = value.as_number().ok_or(TokenError::MalformedClaim(name))?;
    let seconds = number.as_f64().filter(|seconds| (0.0..MAX_SECONDS).contains(seconds));
    let seconds = seconds.ok_or(TokenError::MalformedClaim(name))?;
    // Whole seconds do not pass through a double, so that they stay exact in microseconds.
    Ok(Some(number.as_u64().map_or_else(|| fraction(seconds), Timestamp::from_secs)))
}

fn fraction(seconds: f64) -> Timestamp {
    Timestamp::default() + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::identity::jwt::tests::issuer;

    fn claims(value: &Value) -> Claims {
        Claims::parse(value.to_string().as_bytes()).unwrap()
    }

    fn requiring(path: &str, accepted: &[Value]) -> ClaimRules {
        let required = vec![RequiredClaim { path: path.into(), accepted: accepted.to_vec() }];
        ClaimRules { required, ..ClaimRules::default() }
    }

    #[test]
    fn required_claims_are_there_and_what_they_must_be() {
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
            let expected = if is_met { Ok(()) } else { Err(TokenError::RequiredClaim) };
            assert_eq!(result, expected, "{path} {accepted:?} {given}");
        }
    }

    #[test]
    fn claims_have_the_names_that_the_policy_gives_them() {
        let names = |pairs: &[(&str, &str)]| ClaimRules {
            names: pairs.iter().map(|(name, path)| ((*name).into(), (*path).into())).collect(),
            ..ClaimRules::default()
        };
        let given = claims(&json!({ "sub": "app", "oid": "42", "realm": { "plan": "pro" } }));
        let read = names(&[("sub", "oid"), ("plan", "realm.plan")]).check(given.clone()).unwrap();
        assert_eq!(read.get("sub"), Some(&json!("42")));
        assert_eq!(read.get("plan"), Some(&json!("pro")));
        // What was there under the name is not what the policy means.
        let read = names(&[("sub", "nobody")]).check(given.clone()).unwrap();
        assert_eq!(read.get("sub"), None);
        // Two that change places.
        let read = names(&[("sub", "oid"), ("oid", "sub")]).check(given).unwrap();
        assert_eq!((read.get("sub"), read.get("oid")), (Some(&json!("42")), Some(&json!("app"))));
    }

    #[test]
    fn a_token_that_is_made_to_live_too_long_is_refused() {
        let keys = crate::identity::KeySet::from_secret(&[1; 32], &[]).unwrap();
        let hour = Some(Duration::from_secs(3600));
        let issuer = Issuer { max_lifetime: hour, ..issuer("me", keys) };
        for (given, expected) in [
            (json!({ "iat": 1000, "exp": 4600 }), Ok(())),
            (json!({ "iat": 1000, "exp": 4601 }), Err(TokenError::TooLongLived)),
            (json!({ "exp": 4600 }), Err(TokenError::MissingClaim("iat"))),
        ] {
            assert_eq!(issuer.check_claims(claims(&given)).map(|_| ()), expected, "{given}");
        }
    }

    #[test]
    fn an_answer_is_believed_until_the_token_ends_or_it_is_too_old() {
        let validity =
            |exp: Value| Times::of(&claims(&exp)).unwrap().validity(Duration::ZERO, None);
        let end = Timestamp::from_secs(60);
        for (given, last) in
            [(json!({}), 59), (json!({ "exp": 30 }), 29), (json!({ "exp": 90 }), 59)]
        {
            let validity = validity(given.clone()).until(end);
            assert_eq!(validity.check(Timestamp::from_secs(last)), Ok(()), "{given}");
            let next = Timestamp::from_secs(last + 1);
            assert_eq!(validity.check(next), Err(TokenError::Expired), "{given}");
        }
    }
}
