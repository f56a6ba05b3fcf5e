//! Why a token is refused: a fact for the log, a fixed text for the client.

use thiserror::Error;

use super::MAX_TOKEN_BYTES;

/// Why a token is refused. What [`Display`](std::fmt::Display) writes is for the log; the client
/// gets [`TokenError::description`]. Neither quotes the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// Longer than any token is read.
    #[error("token longer than {MAX_TOKEN_BYTES} bytes")]
    TooLong,
    /// Not three segments of canonical base64url.
    #[error("token is not a JWT: it needs three parts in base64url, with dots between them")]
    Malformed,
    /// A header that is no strict JSON object, or a member of the wrong type.
    #[error("token header is malformed")]
    MalformedHeader,
    /// An `alg` that is unknown or not allowed, `none` above all.
    #[error("token algorithm is not allowed")]
    AlgorithmNotAllowed,
    /// A `crit` of whatever content: there is no extension that we understand.
    #[error("token header has critical extensions")]
    CriticalExtension,
    /// A key, or a link to one, in the header.
    #[error("token header carries or links a key")]
    KeyHint,
    /// A `typ` that the issuer's tokens do not have.
    #[error("token type is not expected of this issuer")]
    UnexpectedType,
    /// A payload that is no strict JSON object.
    #[error("token payload is malformed")]
    MalformedPayload,
    /// An `iss` that no issuer has.
    #[error("token issuer is unknown")]
    UnknownIssuer,
    /// No key of this name and algorithm.
    #[error("token key is unknown")]
    UnknownKey,
    /// No `kid`, and several keys that would fit.
    #[error("token does not name its key")]
    AmbiguousKey,
    /// Not signed by the key.
    #[error("token signature is wrong")]
    WrongSignature,
    /// A claim that must be there is not.
    #[error("token claim {0} is missing")]
    MissingClaim(&'static str),
    /// A claim of the wrong type or out of range.
    #[error("token claim {0} is malformed")]
    MalformedClaim(&'static str),
    /// A claim that the policy requires of this issuer is not there, or not what it must be.
    #[error("token lacks a claim that the policy requires")]
    RequiredClaim,
    /// Made to live longer than the policy lets this issuer's tokens.
    #[error("token lives longer than the issuer's max_lifetime")]
    TooLongLived,
    /// The issuer, or its server, says that the token is not good.
    #[error("token is not active, says who issued it")]
    Inactive,
    /// Opaque, and there is nobody to ask about it.
    #[error("token is opaque, and the policy has no `introspection` to ask about it")]
    Opaque,
    /// An API key that cannot be one.
    #[error("API key is malformed")]
    MalformedKey,
    /// An API key that nobody has, or not with this secret.
    #[error("API key is unknown or its secret is wrong")]
    WrongKey,
    /// An API key that was taken back.
    #[error("API key is revoked")]
    RevokedKey,
    /// Meant for others.
    #[error("token is for another audience")]
    WrongAudience,
    /// Its `exp` has come.
    #[error("token has expired")]
    Expired,
    /// Its `nbf` or `iat` has yet to come.
    #[error("token is not valid yet")]
    NotYetValid,
    /// Issued too long ago.
    #[error("token is older than the issuer's max_age")]
    TooOld,
}

impl TokenError {
    /// The `error_description` for the client (RFC 6750 section 3): fixed ASCII, nothing of the
    /// token, and one text for an unknown key and a wrong signature.
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
