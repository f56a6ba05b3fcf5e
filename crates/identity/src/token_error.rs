//! Why a token is refused: a message for the log, and a fixed text for the client.

use thiserror::Error;

/// How long a token may be.
pub(super) const MAX_TOKEN_BYTES: usize = 8192;

/// Why a token is refused. The log gets the [`Display`](std::fmt::Display) text and what a
/// [`TokenRefusal`](super::TokenRefusal) adds; the client gets [`TokenError::description`], which
/// quotes nothing of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// Longer than any token is read.
    #[error("token longer than {MAX_TOKEN_BYTES} bytes")]
    TooLong,
    /// Not three segments of canonical base64url.
    #[error("token is not a JWT: it needs three parts in base64url, with dots between them")]
    Malformed,
    /// A header that is not a strict JSON object, or has a member of the wrong type.
    #[error("token header is malformed")]
    MalformedHeader,
    /// An `alg` that is unknown or not allowed, such as `none`.
    #[error("token algorithm is not allowed")]
    AlgorithmNotAllowed,
    /// A `crit` with any content: no extension is supported.
    #[error("token header has critical extensions")]
    CriticalExtension,
    /// A key, or a link to one, in the header.
    #[error("token header contains a key or a link to one")]
    KeyHint,
    /// A `typ` that the issuer's tokens do not have.
    #[error("token type is not accepted from this issuer")]
    UnexpectedType,
    /// A payload that is not a strict JSON object.
    #[error("token payload is malformed")]
    MalformedPayload,
    /// An `iss` that no issuer of the policy has.
    #[error("token issuer is unknown")]
    UnknownIssuer,
    /// No key with this `kid` and algorithm.
    #[error("token key is unknown")]
    UnknownKey,
    /// No `kid`, and more keys that would fit than are tried.
    #[error("token has no `kid`, and too many keys of its issuer would fit")]
    AmbiguousKey,
    /// The signature is not that of the key.
    #[error("token signature is wrong")]
    WrongSignature,
    /// A claim that is required by the verification is absent.
    #[error("token claim {0} is missing")]
    MissingClaim(&'static str),
    /// A claim of the wrong type or out of range.
    #[error("token claim {0} is malformed")]
    MalformedClaim(&'static str),
    /// A claim that the policy requires is absent, or has none of the accepted values.
    #[error("token lacks a claim that the policy requires")]
    RequiredClaim,
    /// A longer lifetime than the policy allows for this issuer's tokens.
    #[error("token has a longer lifetime than the issuer's max_lifetime")]
    TooLongLived,
    /// The introspection server responds that the token is not active.
    #[error("token is not active according to its issuer")]
    Inactive,
    /// Opaque, and the policy has no introspection.
    #[error("token is opaque, and the policy has no `introspection` to verify it")]
    Opaque,
    /// An API key that is not `<id>.<secret>`.
    #[error("API key is malformed")]
    MalformedKey,
    /// An API key with an unknown id or a wrong secret.
    #[error("API key is unknown or its secret is wrong")]
    WrongKey,
    /// An API key that is revoked.
    #[error("API key is revoked")]
    RevokedKey,
    /// Issued for another audience.
    #[error("token is for another audience")]
    WrongAudience,
    /// Its `exp` has passed.
    #[error("token has expired")]
    Expired,
    /// Its `nbf` or `iat` is in the future.
    #[error("token is not valid yet")]
    NotYetValid,
    /// Issued too long ago.
    #[error("token is older than the issuer's max_age")]
    TooOld,
}

impl TokenError {
    /// The `error_description` for the client (RFC 6750 section 3): fixed ASCII, nothing of the
    /// token, and one text for an unknown key and a wrong signature.
    //= rfc6750#section-3
    //# MUST NOT include characters outside the set %x20-21 / %x23-5B / %x5D-7E
    pub const fn description(&self) -> &'static str {
        match self {
            TokenError::TooLong => "The token is too long",
            TokenError::Malformed => "The token is malformed",
            TokenError::MalformedHeader => "The token header is malformed",
            TokenError::AlgorithmNotAllowed => "The token algorithm is not allowed",
            TokenError::CriticalExtension => "The token header has unsupported critical extensions",
            TokenError::KeyHint => "The token header must not carry or link a key",
            TokenError::UnexpectedType => "The token type is not accepted",
            TokenError::MalformedPayload => "The token payload is malformed",
            TokenError::UnknownIssuer => "The token issuer is not accepted",
            TokenError::AmbiguousKey => "The token does not name its key",
            TokenError::UnknownKey | TokenError::WrongSignature => {
                "The token signature could not be verified"
            }
            TokenError::MalformedClaim(_) => "A token claim is malformed",
            TokenError::MissingClaim(_) | TokenError::RequiredClaim => {
                "A required token claim is missing"
            }
            TokenError::TooLongLived => "The token is valid for too long",
            TokenError::Inactive => "The token is not active",
            TokenError::Opaque => "The token is malformed",
            TokenError::MalformedKey | TokenError::WrongKey => "The API key is not valid",
            TokenError::RevokedKey => "The API key is revoked",
            TokenError::WrongAudience => "The token is for another audience",
            TokenError::Expired => "The token has expired",
            TokenError::NotYetValid => "The token is not valid yet",
            TokenError::TooOld => "The token is too old",
        }
    }
}
