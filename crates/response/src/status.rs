//! The HTTP status of each rejection: the only place where errors become status codes.

use http::StatusCode;
use tollgate_identity::IdentityError;
use tollgate_policy::Responses;
use tollgate_store::{NoRoom, StoreError};
use tollgate_upstream::UpstreamError;
use tollgate_wire::{ViolationKind, forward_auth::AskError};

use super::rejection::Rejection;

impl Rejection {
    /// The status that the client sees.
    pub fn status(&self, responses: &Responses) -> StatusCode {
        match self {
            Rejection::Framing(violation) => match violation.kind() {
                //= rfc9112#section-2.2
                //# the server SHOULD respond with a 400 (Bad Request) response and close the
                //# connection
                //= rfc9113#section-8.2.1
                //# When a request message violates one of these requirements, an implementation
                //# SHOULD generate a 400 (Bad Request) status code
                ViolationKind::Malformed => StatusCode::BAD_REQUEST,
                //= rfc9112#section-3
                //# A server that receives a request-target longer than any URI it wishes to parse
                //# MUST respond with a 414 (URI Too Long) status code
                ViolationKind::TargetTooLong => StatusCode::URI_TOO_LONG,
                //= rfc9110#section-5.4
                //# A server that receives a request header field line, field value, or set of
                //# fields larger than it wishes to process MUST respond with an appropriate 4xx
                //# (Client Error) status code
                ViolationKind::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                //= rfc9112#section-6.1
                //# A server that receives a request message with a transfer coding it does not
                //# understand SHOULD respond with 501 (Not Implemented)
                ViolationKind::UnknownCoding => StatusCode::NOT_IMPLEMENTED,
            },
            Rejection::Target(_)
            | Rejection::Connection(_)
            | Rejection::Alias(_)
            | Rejection::MethodOverride(_)
            | Rejection::AmbiguousKey(_)
            | Rejection::Member(_)
            | Rejection::NoStreamUsage
            | Rejection::Query(_)
            | Rejection::Message(_) => StatusCode::BAD_REQUEST,
            Rejection::Question(error) => match error {
                AskError::NotAnAsker => StatusCode::FORBIDDEN,
                AskError::Path => StatusCode::NOT_FOUND,
                AskError::Missing(_)
                | AskError::Repeated(_)
                | AskError::Malformed(_)
                | AskError::RequestLine { .. } => StatusCode::BAD_REQUEST,
            },
            Rejection::Method => StatusCode::METHOD_NOT_ALLOWED,
            Rejection::NoRoute => StatusCode::NOT_FOUND,
            Rejection::Misdirected(_) => StatusCode::MISDIRECTED_REQUEST,
            // RFC 5842 section 7.2.
            Rejection::Loop => StatusCode::LOOP_DETECTED,
            Rejection::Identity(error) => match error {
                //= rfc6750#section-3.1
                //# The resource server SHOULD respond with the HTTP 400 (Bad Request) status code
                IdentityError::Credential(_) => StatusCode::BAD_REQUEST,
                IdentityError::Missing
                | IdentityError::Token(_)
                | IdentityError::TooManyBadTokens
                | IdentityError::IssuerNotAccepted
                //= rfc6750#section-3.1
                //# The resource SHOULD respond with the HTTP 401 (Unauthorized) status code
                | IdentityError::NoCaller => StatusCode::UNAUTHORIZED,
                IdentityError::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                // This address has sent too many tokens; others are served meanwhile.
                IdentityError::TooManyLookups => StatusCode::TOO_MANY_REQUESTS,
            },
            Rejection::Primary(_) | Rejection::Secondary(_) => responses.denied_status,
            // Others are served: a 503 would make a load balancer take this proxy out.
            Rejection::Store(StoreError::NoRoom(NoRoom::Client | NoRoom::Minute)) => {
                responses.denied_status
            }
            Rejection::Denied
            | Rejection::Certificate(_)
            | Rejection::Address(_)
            | Rejection::MissingKey(_)
            | Rejection::Scope(_)
            //= rfc6750#section-3.1
            //# The resource server SHOULD respond with the HTTP 403 (Forbidden) status code
            | Rejection::Claim(_) => StatusCode::FORBIDDEN,
            Rejection::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Rejection::Store(
                StoreError::NoRoom(
                    NoRoom::Full
                    | NoRoom::Part
                    | NoRoom::Addresses
                    | NoRoom::Networks
                    | NoRoom::Marks
                    | NoRoom::Unverified,
                )
                | StoreError::Unanswered(_),
            ) => StatusCode::SERVICE_UNAVAILABLE,
            Rejection::Upstream(error) => match error {
                UpstreamError::NoAddress
                | UpstreamError::Connect(_)
                | UpstreamError::Tls { .. }
                | UpstreamError::Exchange(_)
                //= rfc9112#section-6.3
                //# the proxy MUST close the connection to the server, discard the received
                //# response, and send a 502 (Bad Gateway) response to the client
                | UpstreamError::Unsound => StatusCode::BAD_GATEWAY,
                UpstreamError::Busy | UpstreamError::ShareUsed | UpstreamError::Exhausted(_) => {
                    StatusCode::SERVICE_UNAVAILABLE
                }
                UpstreamError::ConnectTimeout | UpstreamError::ResponseTimeout => {
                    StatusCode::GATEWAY_TIMEOUT
                }
                UpstreamError::RequestBody(_) => StatusCode::BAD_REQUEST,
                UpstreamError::RequestBodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                UpstreamError::RequestBodyTimeout | UpstreamError::RequestBodyTooSlow => {
                    StatusCode::REQUEST_TIMEOUT
                }
            },
            Rejection::HeadTimeout => StatusCode::REQUEST_TIMEOUT,
            Rejection::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}
