//! Verification of a token: [`verify`] is the only way from bytes to claims.
//!
//! The checks go from cheap to dear and from what the token is to what it says. Nothing that the
//! token says chooses how it is verified: the issuer's key does, and it has one algorithm.

mod error;
#[cfg(test)]
mod tests;

use std::time::Duration;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

pub use self::error::TokenError;
use super::{
    claims::{Claims, parse_object},
    keys::{Algorithm, KeySet, MAX_KID_BYTES, Selection},
};
use crate::clock::Timestamp;

/// How long a token may be.
pub(super) const MAX_TOKEN_BYTES: usize = 8192;
/// How long a `sub` may be.
const MAX_SUBJECT_BYTES: usize = 256;

/// Who may issue tokens, and what they must look like.
#[derive(Clone, Debug)]
pub struct Issuer {
    /// What the policy calls it.
    pub name: String,
    /// The `iss` of its tokens, to the letter. Of two issuers with the same, the first counts.
    pub issuer: String,
    /// A token's `aud` must hold one of these; empty: any audience, or none.
    pub audience: Vec<String>,
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
    /// The keys that sign its tokens.
    pub keys: KeySet,
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

/// A token whose signature and claims were good at one instant.
#[derive(Clone, Debug)]
pub struct VerifiedToken {
    /// The place of its issuer in the slice given to `verify`.
    pub issuer: usize,
    /// What it says.
    pub claims: Claims,
    validity: Validity,
}

/// When a token is good; the issuer's leeway is already in each instant.
#[derive(Clone, Copy, Debug, Default)]
struct Validity {
    /// From here on, by `nbf` and `iat`.
    starts: Timestamp,
    /// Before this instant, by `exp`.
    expires: Option<Timestamp>,
    /// Up to this instant, by `iat` and the largest age.
    outdated_after: Option<Timestamp>,
}

/// Verifies a compact JWS by the keys and rules of the issuer that it names.
pub(super) fn verify(
    token: &[u8],
    issuers: &[Issuer],
    now: Timestamp,
) -> Result<VerifiedToken, TokenError> {
    let segments = Segments::split(token)?;
    let header = Header::parse(&decode(segments.header)?)?;
    // Before the issuer is known: no key is looked at for an algorithm that nobody allows.
    if !issuers.iter().any(|issuer| issuer.keys.allows(header.algorithm)) {
        return Err(TokenError::AlgorithmNotAllowed);
    }
    // The parser's error would quote the token, so it goes no further.
    let claims =
        Claims::parse(&decode(segments.payload)?).map_err(|_| TokenError::MalformedPayload)?;
    let (index, issuer) = select_issuer(&claims, issuers)?;
    issuer.check_header(&header)?;
    issuer.check_signature(&header, &segments)?;
    let validity = issuer.check_claims(&claims)?;
    validity.check(now)?;
    Ok(VerifiedToken { issuer: index, claims, validity })
}

impl VerifiedToken {
    /// Whether the token is still good at `now`, for a result that was kept.
    pub fn is_current(&self, now: Timestamp) -> Result<(), TokenError> {
        self.validity.check(now)
    }

    /// The instant from which [`is_current`](Self::is_current) fails for good, if there is one.
    pub fn expires_at(&self) -> Option<Timestamp> {
        let Validity { expires, outdated_after, .. } = self.validity;
        let outdated = outdated_after.map(|instant| instant + Duration::from_micros(1));
        expires.into_iter().chain(outdated).min()
    }
}

/// The three parts of a token, and the first two as they were signed.
struct Segments<'a> {
    header: &'a str,
    payload: &'a str,
    signature: &'a str,
    signed: &'a str,
}

impl<'a> Segments<'a> {
    fn split(token: &'a [u8]) -> Result<Segments<'a>, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong);
        }
        let segments = Self::find(token).ok_or(TokenError::Malformed)?;
        let all = [segments.header, segments.payload, segments.signature];
        // Empty segments too: without a signature there is nothing to verify.
        if all.into_iter().all(is_canonical) { Ok(segments) } else { Err(TokenError::Malformed) }
    }

    /// Splits at the last dot and at the one before; a third is no base64url.
    fn find(token: &'a [u8]) -> Option<Segments<'a>> {
        let (signed, signature) = std::str::from_utf8(token).ok()?.rsplit_once('.')?;
        let (header, payload) = signed.rsplit_once('.')?;
        Some(Segments { header, payload, signature, signed })
    }
}

/// Whether `segment` is the one unpadded base64url text of some bytes, and of more than none.
///
/// The decoder checks all of this too. But the signature is decoded last, by `jsonwebtoken`, and a
/// token with a second spelling should not come as far as that.
fn is_canonical(segment: &str) -> bool {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    };
    let spare_bits = match segment.len() % 4 {
        0 => 0,
        2 => 0b1111,
        3 => 0b11,
        _ => return false,
    };
    let last = segment.bytes().last().and_then(value);
    segment.bytes().all(|byte| value(byte).is_some())
        && last.is_some_and(|last| last & spare_bits == 0)
}

fn decode(segment: &str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(segment).map_err(|_| TokenError::Malformed)
}

/// The header, as far as it counts.
struct Header {
    algorithm: Algorithm,
    kid: Option<String>,
    typ: Option<String>,
    has_key_hint: bool,
}

impl Header {
    fn parse(json: &[u8]) -> Result<Header, TokenError> {
        let mut members = parse_object(json).map_err(|_| TokenError::MalformedHeader)?;
        // No block-list: what is not exactly a name of ours is not allowed.
        let algorithm = match members.get("alg") {
            Some(Value::String(name)) => {
                name.parse().map_err(|_| TokenError::AlgorithmNotAllowed)?
            }
            _ => return Err(TokenError::AlgorithmNotAllowed),
        };
        // RFC 7515 section 4.1.11: an extension that is not understood must not be ignored. So
        // RFC 7797's `b64` can have no effect, and without `crit` it means nothing.
        if members.contains_key("crit") {
            return Err(TokenError::CriticalExtension);
        }
        let has_key_hint = members.keys().any(|name| {
            matches!(name.as_str(), "jwk" | "jku" | "x5u" | "x5c") || name.starts_with("x5t")
        });
        let (kid, typ) = (take_text(&mut members, "kid")?, take_text(&mut members, "typ")?);
        if kid.as_ref().is_some_and(|kid| kid.len() > MAX_KID_BYTES) {
            return Err(TokenError::MalformedHeader);
        }
        Ok(Header { algorithm, kid, typ, has_key_hint })
    }
}

fn take_text(members: &mut Map<String, Value>, name: &str) -> Result<Option<String>, TokenError> {
    match members.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(TokenError::MalformedHeader),
    }
}

fn select_issuer<'a>(
    claims: &Claims,
    issuers: &'a [Issuer],
) -> Result<(usize, &'a Issuer), TokenError> {
    let name = match claims.get("iss") {
        None => return Err(TokenError::MissingClaim("iss")),
        Some(Value::String(name)) => name,
        Some(_) => return Err(TokenError::MalformedClaim("iss")),
    };
    let found = issuers.iter().enumerate().find(|(_, issuer)| issuer.issuer == *name);
    found.ok_or(TokenError::UnknownIssuer)
}

impl Issuer {
    /// What of the header depends on the issuer.
    fn check_header(&self, header: &Header) -> Result<(), TokenError> {
        if !self.keys.allows(header.algorithm) {
            return Err(TokenError::AlgorithmNotAllowed);
        }
        if header.has_key_hint && self.key_hints == KeyHints::Reject {
            return Err(TokenError::KeyHint);
        }
        let is_expected = |typ: &str| {
            let typ = without_application(typ);
            self.types.iter().any(|known| without_application(known).eq_ignore_ascii_case(typ))
        };
        if self.types.is_empty() || header.typ.as_deref().is_some_and(is_expected) {
            Ok(())
        } else {
            Err(TokenError::UnexpectedType)
        }
    }

    fn check_signature(&self, header: &Header, segments: &Segments<'_>) -> Result<(), TokenError> {
        let (key, failure) = match self.keys.select(header.kid.as_deref(), header.algorithm) {
            Selection::Key(key) => (key, TokenError::WrongSignature),
            Selection::Ambiguous => return Err(TokenError::AmbiguousKey),
            // A decoy is tried, and its verdict not used, so that the time to answer does not tell
            // an unknown key from a wrong signature.
            Selection::Unknown { decoy: Some(decoy) } => (decoy, TokenError::UnknownKey),
            Selection::Unknown { decoy: None } => return Err(TokenError::UnknownKey),
        };
        let verdict = jsonwebtoken::crypto::verify(
            segments.signature,
            segments.signed.as_bytes(),
            &key.decoding,
            key.algorithm.to_jsonwebtoken(),
        );
        match (verdict, failure) {
            (Ok(true), TokenError::WrongSignature) => Ok(()),
            _ => Err(failure),
        }
    }

    /// Checks the registered claims but for the time, which may be asked again later. A claim of
    /// the wrong type is an error, never a claim that is absent.
    fn check_claims(&self, claims: &Claims) -> Result<Validity, TokenError> {
        let expires = numeric_date(claims, "exp")?;
        let not_before = numeric_date(claims, "nbf")?;
        let issued = numeric_date(claims, "iat")?;
        if self.require_exp && expires.is_none() {
            return Err(TokenError::MissingClaim("exp"));
        }
        if self.max_age.is_some() && issued.is_none() {
            return Err(TokenError::MissingClaim("iat"));
        }
        self.check_audience(claims)?;
        check_subject(claims)?;
        let leeway = u64::try_from(self.leeway.as_micros()).unwrap_or(u64::MAX);
        let starts = not_before.max(issued).unwrap_or_default();
        Ok(Validity {
            starts: Timestamp::from_micros(starts.as_micros().saturating_sub(leeway)),
            expires: expires.map(|instant| instant + self.leeway),
            outdated_after: issued
                .zip(self.max_age)
                .map(|(issued, max_age)| issued + max_age + self.leeway),
        })
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

impl Validity {
    fn check(&self, now: Timestamp) -> Result<(), TokenError> {
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
