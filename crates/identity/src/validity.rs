//! When a token is valid, by its claims `exp`, `nbf` and `iat`.

use std::time::Duration;

use tollgate_clock::Timestamp;

use super::{claims::Claims, token_error::TokenError, token_refusal::TokenRefusal};

/// When a token is valid. The leeway for the issuer's clock is already in each instant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Validity {
    /// Valid from this instant, by `nbf` and `iat`.
    starts: Timestamp,
    /// Valid before this instant, by `exp`.
    expires: Option<Timestamp>,
    /// Valid up to this instant, by `iat` and the largest age.
    outdated_after: Option<Timestamp>,
    /// The leeway that is in each.
    leeway: Duration,
}

/// The claims of a token that are instants.
pub(super) struct TimeClaims {
    pub(super) expires: Option<Timestamp>,
    not_before: Option<Timestamp>,
    pub(super) issued: Option<Timestamp>,
}

impl TimeClaims {
    pub(super) fn of(claims: &Claims) -> Result<TimeClaims, TokenError> {
        Ok(TimeClaims {
            expires: numeric_date(claims, "exp")?,
            not_before: numeric_date(claims, "nbf")?,
            issued: numeric_date(claims, "iat")?,
        })
    }

    pub(super) fn validity(&self, leeway: Duration, max_age: Option<Duration>) -> Validity {
        let starts = self.not_before.max(self.issued).unwrap_or_default();
        let leeway_micros = u64::try_from(leeway.as_micros()).unwrap_or(u64::MAX);
        Validity {
            starts: Timestamp::from_micros(starts.as_micros().saturating_sub(leeway_micros)),
            expires: self.expires.map(|instant| instant + leeway),
            outdated_after: self
                .issued
                .zip(max_age)
                .map(|(issued, max_age)| issued + max_age + leeway),
            leeway,
        }
    }
}

impl Validity {
    /// Valid until `expires`, if that is given, and from the beginning of time.
    pub(super) fn expiring(expires: Option<Timestamp>) -> Validity {
        Validity { expires, ..Validity::default() }
    }

    /// The instant after which the token is never valid again, if there is one.
    pub(super) fn ends_at(self) -> Option<Timestamp> {
        let outdated = self.outdated_after.map(|instant| instant + Duration::from_micros(1));
        self.expires.into_iter().chain(outdated).min()
    }

    /// The same, but valid no longer than until `end`.
    pub(super) fn until(self, end: Timestamp) -> Validity {
        match self.expires {
            Some(expires) if expires <= end => self,
            // The end of a copy, and not of the token by the issuer's clock.
            _ => Validity { expires: Some(end), leeway: Duration::ZERO, ..self },
        }
    }

    pub(super) fn check(&self, now: Timestamp) -> Result<(), TokenRefusal> {
        let (error, from, to, [before, after]) = match *self {
            //= rfc7519#section-4.1.5
            //# the current date/time MUST be after or equal to the not-before date/time listed in
            //# the "nbf" claim
            Validity { starts, .. } if now < starts => {
                (TokenError::NotYetValid, now, starts, ["it begins in ", ""])
            }
            // RFC 7519 section 4.1.4: refused from the instant itself on.
            //= rfc7519#section-4.1.4
            //# on or after which the JWT MUST NOT be accepted for processing
            //= rfc7519#section-4.1.4
            //# the current date/time MUST be before the expiration date/time listed in the "exp"
            //# claim
            Validity { expires: Some(end), .. } if now >= end => {
                (TokenError::Expired, end, now, ["", " ago"])
            }
            Validity { outdated_after: Some(end), .. } if now > end => {
                (TokenError::TooOld, end, now, ["by ", ""])
            }
            _ => return Ok(()),
        };
        // The time as the issuer has written it: the leeway is in the instants here.
        let past = Duration::from_micros(to.as_micros() - from.as_micros()) + self.leeway;
        let seconds = past.as_micros().div_ceil(1_000_000);
        let leeway = match self.leeway.as_secs() {
            0 => String::new(),
            leeway => format!("; the leeway is {leeway} s"),
        };
        Err(TokenRefusal::new(error, format_args!("{before}{seconds} s{after}{leeway}")))
    }
}

/// A claim in seconds since the epoch, whole or not (RFC 7519 section 2). Negative numbers, and
/// those beyond the integers that a double holds exactly, are refused.
fn numeric_date(claims: &Claims, name: &'static str) -> Result<Option<Timestamp>, TokenError> {
    const MAX_SECONDS: f64 = (1u64 << 53) as f64;
    let Some(value) = claims.get(name) else { return Ok(None) };
    //= rfc7519#section-4.1.4
    //# Its value MUST be a number containing a NumericDate value
    //= rfc7519#section-4.1.5
    //# Its value MUST be a number containing a NumericDate value
    //= rfc7519#section-4.1.6
    //# Its value MUST be a number containing a NumericDate value
    let number = value.as_number().ok_or(TokenError::MalformedClaim(name))?;
    let seconds = number.as_f64().filter(|seconds| (0.0..MAX_SECONDS).contains(seconds));
    let seconds = seconds.ok_or(TokenError::MalformedClaim(name))?;
    // Whole seconds are not converted through a double, so they stay exact.
    Ok(Some(number.as_u64().map_or_else(|| fraction(seconds), Timestamp::from_secs)))
}

fn fraction(seconds: f64) -> Timestamp {
    Timestamp::default() + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claims(value: &Value) -> Claims {
        Claims::parse(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn introspected_token_is_valid_until_it_expires_or_the_response_is_too_old() {
        let validity =
            |exp: Value| TimeClaims::of(&claims(&exp)).unwrap().validity(Duration::ZERO, None);
        let end = Timestamp::from_secs(60);
        for (given, last) in
            [(json!({}), 59), (json!({ "exp": 30 }), 29), (json!({ "exp": 90 }), 59)]
        {
            let validity = validity(given.clone()).until(end);
            assert_eq!(validity.check(Timestamp::from_secs(last)), Ok(()), "{given}");
            let next = Timestamp::from_secs(last + 1);
            let error = validity.check(next).unwrap_err().error;
            assert_eq!(error, TokenError::Expired, "{given}");
        }
    }
}
