//! The signature algorithms that a token may use. `none` is not among them.

use std::{fmt, str::FromStr};

use thiserror::Error;
use tollgate_keyword::{Keyword, keywords};

keywords! {
    /// A JWS algorithm (RFC 7518 section 3.1, RFC 8037) that Tollgate verifies.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[expect(missing_docs, reason = "the names are those of the registry")]
    pub enum Algorithm {
        HS256 = "HS256",
        HS384 = "HS384",
        HS512 = "HS512",
        //= rfc7519#section-8
        //# It is RECOMMENDED that implementations also support RSASSA-PKCS1-v1_5 with the SHA-256
        //# hash algorithm ("RS256") and ECDSA using the P-256 curve
        RS256 = "RS256",
        RS384 = "RS384",
        RS512 = "RS512",
        PS256 = "PS256",
        PS384 = "PS384",
        PS512 = "PS512",
        ES256 = "ES256",
        ES384 = "ES384",
        EdDSA = "EdDSA",
    }
}

/// A name that is not an [`Algorithm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "unknown algorithm: write one of HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, \
     PS512, ES256, ES384, EdDSA, in exactly this case"
)]
pub struct UnknownAlgorithm;

impl Algorithm {
    /// Whether the key is a shared secret, with which a verifier could also sign.
    pub const fn is_symmetric(self) -> bool {
        self.min_secret_bytes().is_some()
    }

    /// The shortest secret for an HMAC: as long as its hash (RFC 7518 section 3.2).
    pub(crate) const fn min_secret_bytes(self) -> Option<usize> {
        match self {
            Algorithm::HS256 => Some(32),
            Algorithm::HS384 => Some(48),
            Algorithm::HS512 => Some(64),
            _ => None,
        }
    }

    /// The same algorithm in `jsonwebtoken`.
    pub(crate) const fn to_jsonwebtoken(self) -> jsonwebtoken::Algorithm {
        match self {
            Algorithm::HS256 => jsonwebtoken::Algorithm::HS256,
            Algorithm::HS384 => jsonwebtoken::Algorithm::HS384,
            Algorithm::HS512 => jsonwebtoken::Algorithm::HS512,
            Algorithm::RS256 => jsonwebtoken::Algorithm::RS256,
            Algorithm::RS384 => jsonwebtoken::Algorithm::RS384,
            Algorithm::RS512 => jsonwebtoken::Algorithm::RS512,
            Algorithm::PS256 => jsonwebtoken::Algorithm::PS256,
            Algorithm::PS384 => jsonwebtoken::Algorithm::PS384,
            Algorithm::PS512 => jsonwebtoken::Algorithm::PS512,
            Algorithm::ES256 => jsonwebtoken::Algorithm::ES256,
            Algorithm::ES384 => jsonwebtoken::Algorithm::ES384,
            Algorithm::EdDSA => jsonwebtoken::Algorithm::EdDSA,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.keyword())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        Self::from_keyword(name).ok_or(UnknownAlgorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_is_parsed_from_its_name() {
        for algorithm in Algorithm::all() {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
            assert_eq!(format!("{:?}", algorithm.to_jsonwebtoken()), algorithm.keyword());
        }
    }

    #[test]
    fn names_that_are_almost_right_are_unknown() {
        for name in
            ["", "none", "None", "NONE", "hs256", "HS256 ", "HS256\0", "ES512", "ES256K", "Ed25519"]
        {
            assert_eq!(name.parse::<Algorithm>(), Err(UnknownAlgorithm), "{name:?}");
        }
    }
}
