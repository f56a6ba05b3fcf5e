//! Verification of a token: from its bytes to claims that can be believed.
//!
//! The checks go from cheap to dear and from what the token is to what it says. Nothing that the
//! token says chooses how it is verified: the issuer's key does, and it has one algorithm. What is
//! cheap comes first as a step of its own ([`Unverified::read`]), so that whoever is not trusted with
//! the dear part can be turned away before it.

mod error;
#[cfg(test)]
pub(super) mod tests;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

pub use self::error::TokenError;
use super::{
    claims::{Claims, parse_object},
    issuer::{Issuer, Validity},
    keys::{Algorithm, KeySet, MAX_KID_BYTES, Selection},
};
use crate::clock::Timestamp;

/// How long a token may be.
pub(super) const MAX_TOKEN_BYTES: usize = 8192;

/// A token whose signature and claims were good at one instant.
#[derive(Clone, Debug)]
pub struct VerifiedToken {
    /// Who vouches for it: a position among the issuers of the policy.
    pub issuer: usize,
    /// What it says.
    pub claims: Claims,
    pub(super) validity: Validity,
}

impl VerifiedToken {
    /// What somebody other than a signature vouches for: a key's file, or whoever rehearses.
    pub fn vouched(issuer: usize, claims: Claims, expires: Option<Timestamp>) -> Self {
        VerifiedToken { issuer, claims, validity: Validity::expiring(expires) }
    }

    /// Whether the token is still good at `now`, for a result that was kept.
    pub fn is_current(&self, now: Timestamp) -> Result<(), TokenError> {
        self.validity.check(now)
    }

    /// The instant from which [`is_current`](Self::is_current) fails for good, if there is one.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.validity.ends_at()
    }
}

/// A token in the right form that names a known issuer. Nothing that it says is believed yet.
pub(super) struct Unverified<'t> {
    segments: Segments<'t>,
    header: Header,
    claims: Claims,
    /// The issuer that it names, by position.
    pub(super) issuer: usize,
}

impl<'t> Unverified<'t> {
    /// Reads a compact JWS, and checks all that needs no key.
    pub(super) fn read(token: &'t [u8], issuers: &[Issuer]) -> Result<Self, TokenError> {
        let segments = Segments::split(token)?;
        let header = Header::parse(&decode(segments.header)?)?;
        // Before the issuer is known: no key is looked at for an algorithm that nobody allows.
        if !issuers.iter().any(|issuer| issuer.keys.allows(header.algorithm)) {
            return Err(TokenError::AlgorithmNotAllowed);
        }
        // The parser's error would quote the token, so it goes no further.
        let claims =
            Claims::parse(&decode(segments.payload)?).map_err(|_| TokenError::MalformedPayload)?;
        let (at, issuer) = select_issuer(&claims, issuers)?;
        issuer.check_header(header.algorithm, header.typ.as_deref(), header.has_key_hint)?;
        Ok(Unverified { segments, header, claims, issuer: at })
    }

    /// Verifies it by `keys` and the rules of the issuer that it names.
    pub(super) fn verify(
        &self,
        issuer: &Issuer,
        keys: &KeySet,
        now: Timestamp,
    ) -> Result<VerifiedToken, TokenError> {
        self.check_signature(keys)?;
        let (claims, validity) = issuer.check_claims(self.claims.clone())?;
        validity.check(now)?;
        Ok(VerifiedToken { issuer: self.issuer, claims, validity })
    }

    fn check_signature(&self, keys: &KeySet) -> Result<(), TokenError> {
        let Unverified { header, segments, .. } = self;
        if !keys.allows(header.algorithm) {
            return Err(TokenError::AlgorithmNotAllowed);
        }
        let (key, failure) = match keys.select(header.kid.as_deref(), header.algorithm) {
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
}

/// The payload of a compact JWS as it is written: base64url.
pub(super) fn payload(token: &[u8]) -> Option<&str> {
    Segments::find(token).map(|segments| segments.payload)
}

/// Whether a token has the three segments of a compact JWS. One that has not is opaque: only its
/// issuer can read it.
pub(super) fn is_compact(token: &[u8]) -> bool {
    token.iter().filter(|byte| **byte == b'.').count() == 2
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
