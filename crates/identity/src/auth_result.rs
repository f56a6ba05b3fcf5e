//! What came of looking for a request's sender, in fixed words for metrics.

use tollgate_keyword::{Keyword, keywords};

use super::{
    CallerValue, Identity, IdentityRules, credential::CredentialError, error::IdentityError,
    token_error::TokenError,
};

keywords! {
    /// The kind of a request's credential, or what is wrong with it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[expect(missing_docs, reason = "each is named as the credential or the error that it stands for")]
    pub enum AuthResult {
        /// The request needs no credential and has none that is read.
        None = "none",
        Jwt = "jwt",
        /// A token that its issuer was asked about (RFC 7662).
        Introspected = "introspected",
        ApiKey = "api_key",
        Certificate = "certificate",
        /// A bad credential that the route treats as none.
        Ignored = "ignored",
        Missing = "missing",
        Several = "several_credentials",
        Empty = "empty_credential",
        MalformedCredential = "malformed_credential",
        TooLong = "too_long",
        Malformed = "malformed",
        MalformedHeader = "malformed_header",
        AlgorithmNotAllowed = "algorithm_not_allowed",
        CriticalExtension = "critical_extension",
        KeyHint = "key_in_header",
        UnexpectedType = "unexpected_type",
        MalformedPayload = "malformed_payload",
        UnknownIssuer = "unknown_issuer",
        UnknownKey = "unknown_key",
        AmbiguousKey = "ambiguous_key",
        WrongSignature = "wrong_signature",
        MissingClaim = "missing_claim",
        MalformedClaim = "malformed_claim",
        RequiredClaim = "required_claim",
        TooLongLived = "too_long_lived",
        Inactive = "inactive",
        Opaque = "opaque",
        MalformedKey = "malformed_api_key",
        WrongKey = "wrong_api_key",
        RevokedKey = "revoked_api_key",
        WrongAudience = "wrong_audience",
        Expired = "expired",
        NotYetValid = "not_yet_valid",
        TooOld = "too_old",
        Unavailable = "issuer_unavailable",
        TooManyBadTokens = "too_many_bad_tokens",
        TooManyLookups = "too_many_lookups",
        IssuerNotAccepted = "issuer_not_accepted",
        NoCaller = "no_caller",
        /// The client's certificate is no longer valid.
        BadCertificate = "bad_certificate",
    }
}

impl AuthResult {
    /// The kind of credential of a request whose sender is known under these rules.
    pub fn of(identity: &Identity<'_>, rules: &IdentityRules) -> AuthResult {
        if identity.has_bad_token {
            return AuthResult::Ignored;
        }
        let is_certificate = |value: &CallerValue| matches!(value, CallerValue::Certificate(_));
        match &identity.token {
            Some(known) => match known.token.issuer {
                issuer if issuer < rules.introspection_position() => AuthResult::Jwt,
                issuer if issuer < rules.api_keys_position() => AuthResult::Introspected,
                _ => AuthResult::ApiKey,
            },
            None if identity.caller.as_ref().is_some_and(|own| is_certificate(&own.value)) => {
                AuthResult::Certificate
            }
            None => AuthResult::None,
        }
    }

    /// The words of all, by their positions.
    pub fn words() -> impl ExactSizeIterator<Item = &'static str> {
        Self::KEYWORDS.iter().map(|(word, _)| *word)
    }

    /// Its position among all, in the order of its keywords.
    pub fn position(self) -> usize {
        self as usize
    }
}

impl From<&IdentityError> for AuthResult {
    fn from(error: &IdentityError) -> Self {
        match error {
            IdentityError::Missing => AuthResult::Missing,
            IdentityError::Credential(CredentialError::Several) => AuthResult::Several,
            IdentityError::Credential(CredentialError::Empty) => AuthResult::Empty,
            IdentityError::Credential(CredentialError::Malformed) => {
                AuthResult::MalformedCredential
            }
            IdentityError::Token(refusal) => refusal.error.into(),
            IdentityError::Unavailable => AuthResult::Unavailable,
            IdentityError::TooManyBadTokens => AuthResult::TooManyBadTokens,
            IdentityError::TooManyLookups => AuthResult::TooManyLookups,
            IdentityError::IssuerNotAccepted => AuthResult::IssuerNotAccepted,
            IdentityError::NoCaller => AuthResult::NoCaller,
        }
    }
}

impl From<TokenError> for AuthResult {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::TooLong => AuthResult::TooLong,
            TokenError::Malformed => AuthResult::Malformed,
            TokenError::MalformedHeader => AuthResult::MalformedHeader,
            TokenError::AlgorithmNotAllowed => AuthResult::AlgorithmNotAllowed,
            TokenError::CriticalExtension => AuthResult::CriticalExtension,
            TokenError::KeyHint => AuthResult::KeyHint,
            TokenError::UnexpectedType => AuthResult::UnexpectedType,
            TokenError::MalformedPayload => AuthResult::MalformedPayload,
            TokenError::UnknownIssuer => AuthResult::UnknownIssuer,
            TokenError::UnknownKey => AuthResult::UnknownKey,
            TokenError::AmbiguousKey => AuthResult::AmbiguousKey,
            TokenError::WrongSignature => AuthResult::WrongSignature,
            TokenError::MissingClaim(_) => AuthResult::MissingClaim,
            TokenError::MalformedClaim(_) => AuthResult::MalformedClaim,
            TokenError::RequiredClaim => AuthResult::RequiredClaim,
            TokenError::TooLongLived => AuthResult::TooLongLived,
            TokenError::Inactive => AuthResult::Inactive,
            TokenError::Opaque => AuthResult::Opaque,
            TokenError::MalformedKey => AuthResult::MalformedKey,
            TokenError::WrongKey => AuthResult::WrongKey,
            TokenError::RevokedKey => AuthResult::RevokedKey,
            TokenError::WrongAudience => AuthResult::WrongAudience,
            TokenError::Expired => AuthResult::Expired,
            TokenError::NotYetValid => AuthResult::NotYetValid,
            TokenError::TooOld => AuthResult::TooOld,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_of_the_keywords() {
        for (position, (_, result)) in AuthResult::KEYWORDS.iter().enumerate() {
            assert_eq!(result.position(), position);
        }
    }
}
