//! `WWW-Authenticate`: which credentials would help.

use http::{HeaderValue, StatusCode};
use tollgate_identity::{CredentialError, IdentityError, Scheme};
use tollgate_policy::Responses;

use super::rejection::Rejection;

impl Rejection {
    /// A field for each scheme of the policy. `Basic` (RFC 7617 section 2) makes browsers ask for a
    /// password: only where another one could help.
    pub(super) fn challenges(&self, responses: &Responses) -> impl Iterator<Item = HeaderValue> {
        //= rfc9110#section-11.4
        //# an origin server SHOULD send a 401 (Unauthorized) response that contains a
        //# WWW-Authenticate header field with at least one (possibly new) challenge
        let is_unauthenticated = self.status(responses) == StatusCode::UNAUTHORIZED;
        self.challenge_parameters().into_iter().flat_map(move |parameters| {
            responses.schemes.iter().filter_map(move |scheme| {
                let parameters = match scheme {
                    Scheme::Basic if is_unauthenticated => ", charset=\"UTF-8\"",
                    Scheme::Basic => return None,
                    Scheme::Bearer | Scheme::Token => &parameters,
                };
                let name = scheme.name();
                let realm = &responses.realm;
                //= rfc9110#section-11.2
                //# each parameter name MUST only occur once per challenge
                //= rfc9110#section-11.5
                //# a sender MUST only generate the quoted-string syntax
                //= rfc6750#section-3
                //# The "realm" attribute MUST NOT appear more than once
                HeaderValue::from_str(&format!("{name} realm=\"{realm}\"{parameters}")).ok()
            })
        })
    }

    /// The parameters of a challenge for a token (RFC 6750 section 3), from fixed texts only; none
    /// if there is no challenge.
    fn challenge_parameters(&self) -> Option<String> {
        let error = match self {
            Rejection::Identity(error) => error,
            Rejection::Claim(_) => {
                let text = "The token lacks a claim that this needs";
                return Some(format!(
                    ", error=\"insufficient_scope\", error_description=\"{text}\""
                ));
            }
            Rejection::Scope(scopes) => {
                //= rfc6750#section-3
                //# The "scope" attribute MUST NOT appear more than once
                let text = "The token does not grant the scopes that this needs";
                return Some(format!(
                    ", error=\"insufficient_scope\", error_description=\"{text}\", \
                     scope=\"{scopes}\""
                ));
            }
            _ => return None,
        };
        //= rfc6750#section-3
        //# the resource server SHOULD include the "error" attribute to provide the client with the
        //# reason why the access request was declined
        //= rfc6750#section-3
        //# The "error", "error_description", and "error_uri" attributes MUST NOT appear more than
        //# once
        let invalid_token = |description: &str| {
            format!(", error=\"invalid_token\", error_description=\"{description}\"")
        };
        let parameters = match error {
            //= rfc6750#section-3.1
            //# the resource server SHOULD NOT include an error code or other error information
            IdentityError::Missing => String::new(),
            IdentityError::Credential(
                CredentialError::Several | CredentialError::Empty | CredentialError::Malformed,
            ) => ", error=\"invalid_request\"".into(),
            IdentityError::Token(error) => invalid_token(error.description()),
            IdentityError::IssuerNotAccepted => invalid_token("the issuer is not accepted here"),
            IdentityError::NoCaller => invalid_token("the token does not name a caller"),
            IdentityError::TooManyBadTokens => {
                invalid_token("too many bad tokens from this address")
            }
            IdentityError::Unavailable | IdentityError::TooManyLookups => return None,
        };
        Some(parameters)
    }
}
