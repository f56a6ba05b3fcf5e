//! Verification of signed tokens (JWT): from bytes to trusted claims.
//!
//! The checks go from cheap to costly, and from the form of the token to its content. The token
//! does not choose how it is verified: the issuer's key does, which has exactly one algorithm. The
//! cheap checks are a step of their own ([`Unverified::read`]), so that most bad tokens never reach
//! a signature check.

#[cfg(test)]
pub(super) mod tests;

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};
use tollgate_clock::Timestamp;
use tollgate_keyword::Keyword;

use super::{
    claims::{Claims, parse_object},
    credential::TokenPlace,
    iss::Tenant,
    issuer::Issuer,
    keys::{Algorithm, Key, KeySet, MAX_KID_BYTES, Selection},
    lenient::Deviation,
    origin::Origin,
    token_error::{MAX_TOKEN_BYTES, TokenError},
    token_refusal::{QuotedList, TokenRefusal, wrong_algorithm},
    validity::Validity,
};

/// A token whose signature and claims were valid at one instant.
#[derive(Clone, Debug)]
pub struct VerifiedToken {
    /// Its issuer: a position among the issuers of the policy.
    pub issuer: usize,
    /// The tenant of its issuer, if that has several.
    pub tenant: Option<Arc<Tenant>>,
    /// Its claims.
    pub claims: Claims,
    pub(super) validity: Validity,
}

impl VerifiedToken {
    /// Claims that are trusted without a signature: those of an API key, or of a dry run.
    pub fn trusted(issuer: usize, claims: Claims, expires: Option<Timestamp>) -> Self {
        VerifiedToken { issuer, tenant: None, claims, validity: Validity::expiring(expires) }
    }

    /// Whether the token is still valid at `now`, for a token from the cache.
    pub fn is_current(&self, now: Timestamp) -> Result<(), TokenRefusal> {
        self.validity.check(now)
    }

    /// The instant from which [`is_current`](Self::is_current) always fails, if there is one.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.validity.ends_at()
    }
}

/// A well-formed token that names a known issuer. Its claims are not trusted yet.
pub(super) struct Unverified<'t> {
    segments: Segments<'t>,
    header: Header,
    claims: Claims,
    /// The position of the issuer that it names.
    pub(super) issuer: usize,
}

impl<'t> Unverified<'t> {
    /// Reads a compact JWS and makes every check that needs no key. The issuer may depend on the
    /// place of the token, if it is in a request.
    pub(super) fn read(
        token: &'t [u8],
        issuers: &[Issuer],
        place: Option<TokenPlace>,
    ) -> Result<Self, TokenRefusal> {
        //= rfc7519#section-7.2
        //# If any of the listed steps fail, then the JWT MUST be rejected
        let segments = Segments::split(token)?;
        let takes_padding = |issuer: &Issuer| {
            !segments.is_padded || issuer.lenient.contains(&Deviation::TokenPadding)
        };
        if !issuers.iter().any(takes_padding) {
            return Err(TokenError::Malformed.into());
        }
        let header = Header::parse(&decode(segments.header)?, issuers)?;
        // The parser's error would quote the token, so it is dropped.
        let claims =
            //= rfc7519#section-12
            //# measures MUST be taken to prevent disclosure of this information to unintended
            //# parties
            Claims::parse(&decode(segments.payload)?).map_err(|_| TokenError::MalformedPayload)?;
        let kid = header.kid.as_deref();
        let origin = Origin { claims: &claims, algorithm: header.algorithm, kid, place };
        let (position, issuer) = origin.select(issuers)?;
        if !takes_padding(issuer) {
            return Err(TokenError::Malformed.into());
        }
        issuer.check_header(header.algorithm, header.typ.as_deref(), header.has_key_hint)?;
        Ok(Unverified { segments, header, claims, issuer: position })
    }

    /// Verifies the token by `keys` and the rules of the issuer that it names.
    pub(super) fn verify(
        &self,
        issuer: &Issuer,
        keys: &KeySet,
        now: Timestamp,
    ) -> Result<VerifiedToken, TokenRefusal> {
        self.check_signature(keys).map_err(|error| self.refusal(error, keys))?;
        let tenant = issuer.tenant_of(&self.claims)?;
        let (claims, validity) = issuer.check_claims(self.claims.clone())?;
        validity.check(now)?;
        Ok(VerifiedToken { issuer: self.issuer, tenant, claims, validity })
    }

    fn check_signature(&self, keys: &KeySet) -> Result<(), TokenError> {
        let Unverified { header, segments, .. } = self;
        //= rfc7519#section-7.2
        //# unless the algorithms used in the JWT are acceptable to the application, it SHOULD
        //# reject the JWT
        //= rfc7515#section-5.2
        //# unless the algorithm(s) used in the JWS are acceptable to the application, it SHOULD
        //# consider the JWS to be invalid
        if !keys.allows(header.algorithm) {
            return Err(TokenError::AlgorithmNotAllowed);
        }
        let selection = keys.select(header.kid.as_deref(), header.algorithm);
        let (candidates, failure) = match &selection {
            Selection::Key(key) => (std::slice::from_ref(key), TokenError::WrongSignature),
            Selection::AnyOf(keys) => (keys.as_slice(), TokenError::WrongSignature),
            Selection::Ambiguous => return Err(TokenError::AmbiguousKey),
            // A decoy key is tried and its result ignored, so that an unknown key takes as long as
            // a wrong signature.
            Selection::Unknown { decoy } => (decoy.as_slice(), TokenError::UnknownKey),
        };
        let is_signed_by = |key: &Key| {
            let algorithm = key.algorithm.to_jsonwebtoken();
            //= rfc7515#section-6
            //# These Header Parameters MUST be integrity protected if the information that they
            //# convey is to be utilized in a trust decision
            let signed = segments.signed.as_bytes();
            jsonwebtoken::crypto::verify(segments.signature, signed, &key.decoding, algorithm)
        };
        // All are tried, so that the time does not tell which of them has signed.
        //= rfc6750#section-5.2
        //# The token integrity protection MUST be sufficient to prevent the token from being
        //# modified
        let signers = candidates.iter().filter(|key| matches!(is_signed_by(key), Ok(true))).count();
        match failure {
            TokenError::WrongSignature if signers > 0 => Ok(()),
            failure => Err(failure),
        }
    }

    /// What was wrong with the key or the signature. A wrong signature is reported as an unknown
    /// key is, so that both take the same time.
    fn refusal(&self, error: TokenError, keys: &KeySet) -> TokenRefusal {
        let Header { algorithm, kid, .. } = &self.header;
        if error == TokenError::AlgorithmNotAllowed {
            let allowed: Vec<Algorithm> =
                Algorithm::all().filter(|own| keys.allows(*own)).collect();
            return wrong_algorithm(&allowed, Some(algorithm.keyword()));
        }
        let kid = QuotedList(kid.as_deref().into_iter());
        let known = QuotedList(keys.names());
        let detail = format!("{algorithm} with kid {kid}, the issuer's keys have kid {known}");
        TokenRefusal::new(error, detail)
    }
}

impl Issuer {
    /// Whether a token is valid at `now`. None: the issuer publishes its keys, so they are not
    /// here.
    pub fn check_token(&self, token: &str, now: Timestamp) -> Option<Result<(), TokenRefusal>> {
        let keys = self.keys.fixed()?;
        let verified = Unverified::read(token.as_bytes(), std::slice::from_ref(self), None)
            .and_then(|unverified| unverified.verify(self, keys, now));
        Some(verified.map(drop))
    }
}

/// The payload of a compact JWS, still in base64url, without padding.
pub(super) fn payload(token: &[u8]) -> Option<&str> {
    Segments::find(token).map(|segments| segments.payload)
}

/// Whether a token has the three segments of a compact JWS. Any other token is opaque: only its
/// issuer can read it.
pub(super) fn is_compact(token: &[u8]) -> bool {
    token.iter().filter(|byte| **byte == b'.').count() == 2
}

/// The three parts of a token without padding, and the text that was signed: the first two as they
/// were sent.
struct Segments<'a> {
    header: &'a str,
    payload: &'a str,
    signature: &'a str,
    signed: &'a str,
    is_padded: bool,
}

impl<'a> Segments<'a> {
    fn split(token: &'a [u8]) -> Result<Segments<'a>, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong);
        }
        let segments = Self::find(token).ok_or(TokenError::Malformed)?;
        let all = [segments.header, segments.payload, segments.signature];
        // This refuses empty segments too: without a signature there is nothing to verify.
        if all.into_iter().all(is_canonical) { Ok(segments) } else { Err(TokenError::Malformed) }
    }

    /// Splits at the last two dots. A third dot is refused later, since it is not base64url.
    //= rfc7515#section-4.1.11
    //# it MUST occur only within the JWS Protected Header
    fn find(token: &'a [u8]) -> Option<Segments<'a>> {
        let (signed, signature) = std::str::from_utf8(token).ok()?.rsplit_once('.')?;
        let (header, payload) = signed.rsplit_once('.')?;
        let length = header.len() + payload.len() + signature.len();
        let [header, payload, signature] = [header, payload, signature].map(without_padding);
        let is_padded = header.len() + payload.len() + signature.len() < length;
        Some(Segments { header, payload, signature, signed, is_padded })
    }
}

/// A segment without the padding that its length calls for; any other stays and is refused later.
fn without_padding(segment: &str) -> &str {
    let padding = segment.len() - segment.trim_end_matches('=').len();
    match segment.len() % 4 {
        0 if padding <= 2 => segment.trim_end_matches('='),
        _ => segment,
    }
}

/// Whether `segment` is the canonical unpadded base64url text of at least one byte.
///
/// The decoder checks this too. But `jsonwebtoken` decodes the signature last, and a token in a
/// non-canonical spelling should be refused before that.
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

/// The members of a token's header that are used.
struct Header {
    algorithm: Algorithm,
    kid: Option<String>,
    typ: Option<String>,
    has_key_hint: bool,
}

impl Header {
    /// Refuses an algorithm that no issuer allows, before the payload is parsed.
    fn parse(json: &[u8], issuers: &[Issuer]) -> Result<Header, TokenRefusal> {
        //= rfc7515#section-4
        //# JWS parsers MUST either reject JWSs with duplicate Header Parameter names or use a JSON
        //# parser that returns only the lexically last duplicate member name
        let mut members = parse_object(json).map_err(|_| TokenError::MalformedHeader)?;
        // An allow-list: any other spelling of an algorithm is refused.
        //= rfc7515#section-4.1.1
        //# This Header Parameter MUST be present and MUST be understood and processed by
        //# implementations
        let name = members.get("alg").and_then(Value::as_str);
        let is_allowed =
            |algorithm: &Algorithm| issuers.iter().any(|issuer| issuer.keys.allows(*algorithm));
        let parsed = name.and_then(|name| name.parse::<Algorithm>().ok());
        let algorithm = parsed.filter(is_allowed).ok_or_else(|| {
            let allowed: Vec<Algorithm> = Algorithm::all().filter(is_allowed).collect();
            wrong_algorithm(&allowed, name)
        })?;
        // RFC 7515 section 4.1.11: an unsupported extension must not be ignored. This covers `b64`
        // of RFC 7797, which means nothing without `crit`.
        //= rfc7515#section-4.1.11
        //# This Header Parameter MUST be understood and processed by implementations
        if members.contains_key("crit") {
            return Err(TokenError::CriticalExtension.into());
        }
        //= rfc7515#section-4
        //# all Header Parameters not defined by this specification MUST be ignored when not
        //# understood
        let has_key_hint = members.keys().any(|name| {
            matches!(name.as_str(), "jwk" | "jku" | "x5u" | "x5c") || name.starts_with("x5t")
        });
        let kid = take_text(&mut members, "kid")?;
        let typ = take_text(&mut members, "typ")?;
        if kid.as_ref().is_some_and(|kid| kid.len() > MAX_KID_BYTES) {
            return Err(TokenError::MalformedHeader.into());
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
