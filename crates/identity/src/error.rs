//! The error of identifying a request's sender.

use super::{credential::CredentialError, token_error::TokenError, token_refusal::TokenRefusal};

/// Why a request's sender could not be identified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The route requires a token and the request has none.
    #[error("no token")]
    Missing,
    /// The request's credentials cannot be read as one token.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The token is not valid.
    #[error(transparent)]
    Token(#[from] TokenRefusal),
    /// The issuer's keys or its introspection server are needed and cannot be reached.
    #[error("the token's issuer cannot be reached")]
    Unavailable,
    /// The client has sent too many bad tokens, so this one was not verified.
    #[error("token not verified: the client has sent too many bad tokens")]
    TooManyBadTokens,
    /// Too many tokens from the client's address are being introspected, so this one was not.
    #[error("token not verified: too many tokens from the client's address are being introspected")]
    TooManyLookups,
    /// The token is valid, but the route accepts no tokens of its issuer.
    #[error("the token's issuer is not accepted on this route")]
    IssuerNotAccepted,
    /// The token has none of the claims that name callers, or one with a value that cannot.
    #[error("the token names no caller")]
    NoCaller,
}

impl From<TokenError> for IdentityError {
    fn from(error: TokenError) -> IdentityError {
        IdentityError::Token(error.into())
    }
}
