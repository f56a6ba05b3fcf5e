//! What clients are told: the only place that knows status codes, bodies and limit headers.

mod body;
mod cors;
mod denied_for;
mod grpc;
mod json;
mod limit_headers;
mod negotiation;
mod problem;
mod rate_limit_fields;
mod standings;

use http::{HeaderName, HeaderValue, Response, StatusCode, header, request::Parts};

use crate::{
    identity::{CredentialError, IdentityError, Scheme},
    policy::{AddressRefusal, HeaderProfile, Responses},
    server::{NotGood, Violation, ViolationKind},
    store::{NoRoom, StoreError},
    target::TargetError,
    upstream::{ConnectionNamesProtectedField, UpstreamError},
};

use self::{
    json::json_line,
    problem::{PROBLEM_JSON, Problem},
};

pub use self::{
    body::Body,
    cors::{AllowedOrigin, preflight_answer},
    denied_for::DenialReason,
    grpc::{grpc_status, is_grpc_call},
    limit_headers::{LimitHeaders, expose, told_reset},
    negotiation::Format,
    rate_limit_fields::{Item as RateLimitItem, RateLimitFields, t},
    standings::standings,
};

static X_TOLLGATE_DENIED_BY: HeaderName = HeaderName::from_static("x-tollgate-denied-by");

static JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
static NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The form of errors that a client prefers that does not call gRPC; the policy's, if it does not
/// tell.
pub fn preferred_format(request: &Parts, responses: &Responses) -> Format {
    let default = match responses.headers {
        HeaderProfile::Ietf => Format::Problem,
        HeaderProfile::Github | HeaderProfile::Both | HeaderProfile::None => Format::Json,
    };
    negotiation::preferred(&request.headers, default)
}

/// Why a request is answered here and not by the upstream.
#[derive(Debug, thiserror::Error)]
pub enum Rejection {
    /// The framing of the request is ambiguous, malformed or too large.
    #[error(transparent)]
    Framing(#[from] Violation),
    /// Its target or host.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Its `Connection` field.
    #[error(transparent)]
    Connection(#[from] ConnectionNamesProtectedField),
    /// CONNECT and TRACE are not forwarded.
    #[error("method is not forwarded")]
    Method,
    /// No policy is for this host, or no route of it matches.
    #[error("no route")]
    NoRoute,
    /// Who is calling could not be told.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The certificate that the connection was opened with.
    #[error(transparent)]
    Certificate(#[from] NotGood),
    /// The token lacks what these scopes, of which the route needs all, stand for.
    #[error("the token lacks a scope of: {0}")]
    Scope(Box<str>),
    /// The first limit of the route has no room.
    #[error("denied by limit {}", .0.limit.to_str().unwrap_or_default())]
    Primary(Denial),
    /// Another limit of the route has no room.
    #[error("denied by secondary limit {}", .0.limit.to_str().unwrap_or_default())]
    Secondary(Denial),
    /// The policy refuses this address or this caller.
    #[error("on the policy's deny list")]
    Denied,
    /// The route refuses the client's address.
    #[error(transparent)]
    Address(#[from] AddressRefusal),
    /// The request's body is larger than its route takes.
    #[error("request body too large")]
    BodyTooLarge,
    /// The request lacks what this limit counts by.
    #[error("lacks what limit {0} counts by")]
    MissingKey(Box<str>),
    /// The request has several values of what this limit counts by, or one that can be read in
    /// several ways.
    #[error("has an ambiguous value of what limit {0} counts by")]
    AmbiguousKey(Box<str>),
    /// The store could not decide.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The upstream gave no response.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// Its head did not arrive in time.
    #[error("request head did not arrive in time")]
    HeadTimeout,
    /// A fault of ours.
    #[error("internal error")]
    Internal,
}

/// How an error is told.
#[derive(Debug)]
pub struct Telling<'r> {
    /// The form of its body.
    pub format: Format,
    /// The request's id.
    pub request_id: &'r HeaderValue,
    /// Of a denial: all that had no room, by what they are called where each window has a name. Only
    /// problems tell it.
    pub violated: Vec<&'r str>,
}

/// What a denied client is told.
#[derive(Debug)]
pub struct Denial {
    /// Who was denied, as the message says it.
    pub who: String,
    /// The name of the limit that denied.
    pub limit: HeaderValue,
    /// Whole seconds to wait; none if waiting does not help.
    pub retry_after: Option<u64>,
}

/// What the log says of a request whose client had gone before it was answered, as nginx does.
pub const CLIENT_CLOSED_REQUEST: u16 = 499;

/// What it says of a request whose handling failed for a fault of ours.
pub const INTERNAL_ERROR: u16 = 500;

/// How long to wait after a fault that is expected to pass.
const SOON: u64 = 1;

/// How long to wait after asking for too many counters: the next minute has room for as many again.
const A_MINUTE: u64 = 60;

impl Rejection {
    /// The status that the client sees.
    pub fn status(&self, responses: &Responses) -> StatusCode {
        match self {
            Rejection::Framing(violation) => match violation.kind() {
                ViolationKind::Malformed => StatusCode::BAD_REQUEST,
                ViolationKind::TargetTooLong => StatusCode::URI_TOO_LONG,
                ViolationKind::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                ViolationKind::UnknownCoding => StatusCode::NOT_IMPLEMENTED,
            },
            Rejection::Target(_) | Rejection::Connection(_) | Rejection::AmbiguousKey(_) => {
                StatusCode::BAD_REQUEST
            }
            Rejection::Method => StatusCode::METHOD_NOT_ALLOWED,
            Rejection::NoRoute => StatusCode::NOT_FOUND,
            Rejection::Identity(error) => match error {
                IdentityError::Credential(_) => StatusCode::BAD_REQUEST,
                IdentityError::Missing
                | IdentityError::Token(_)
                | IdentityError::TooManyBadTokens
                | IdentityError::IssuerNotAccepted
                | IdentityError::NoCaller => StatusCode::UNAUTHORIZED,
                IdentityError::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                // It is the address that asks for too much; others are served meanwhile.
                IdentityError::TooManyLookups => StatusCode::TOO_MANY_REQUESTS,
            },
            Rejection::Primary(_) | Rejection::Secondary(_) => responses.denied_status,
            // Others are served: that is no fault of this server, and no reason to take it out.
            Rejection::Store(StoreError::NoRoom(NoRoom::Client | NoRoom::Minute)) => {
                responses.denied_status
            }
            Rejection::Denied
            | Rejection::Certificate(_)
            | Rejection::Address(_)
            | Rejection::MissingKey(_)
            | Rejection::Scope(_) => StatusCode::FORBIDDEN,
            Rejection::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Rejection::Store(
                StoreError::NoRoom(
                    NoRoom::Full
                    | NoRoom::Part
                    | NoRoom::Addresses
                    | NoRoom::Networks
                    | NoRoom::Unverified,
                )
                | StoreError::Unanswered(_),
            ) => StatusCode::SERVICE_UNAVAILABLE,
            Rejection::Upstream(error) => match error {
                UpstreamError::NoAddress
                | UpstreamError::Connect(_)
                | UpstreamError::Tls { .. }
                | UpstreamError::Exchange(_)
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

    /// What the client reads. What the log reads is the error itself, which may say more.
    fn message(&self) -> String {
        match self {
            Rejection::Framing(_) => "The request is malformed or too large.".into(),
            Rejection::Target(error) => format!("The request's address is not valid: {error}."),
            Rejection::Connection(error) => format!("The request is not valid: {error}."),
            Rejection::Method => "This method is not allowed.".into(),
            Rejection::NoRoute => "Not Found".into(),
            Rejection::Identity(error) => match error {
                IdentityError::Missing => "Requires authentication".into(),
                IdentityError::Credential(error) => match error {
                    CredentialError::Several | CredentialError::Empty => {
                        "The request has more than one credential, or an empty one.".into()
                    }
                    CredentialError::Malformed => "The request has a malformed credential.".into(),
                },
                IdentityError::Token(_)
                | IdentityError::TooManyBadTokens
                | IdentityError::IssuerNotAccepted
                | IdentityError::NoCaller => "Bad credentials".into(),
                IdentityError::Unavailable => {
                    "The credentials cannot be checked at the moment. Try again later.".into()
                }
                IdentityError::TooManyLookups => {
                    "Too many credentials from this address are being checked. Try again later."
                        .into()
                }
            },
            Rejection::Scope(scopes) => {
                format!("The credentials do not grant what this needs: {scopes}.")
            }
            Rejection::Primary(Denial { retry_after: None, .. })
            | Rejection::Secondary(Denial { retry_after: None, .. }) => {
                "The cost of this request exceeds its limit.".into()
            }
            Rejection::Primary(Denial { who, .. }) => format!("API rate limit exceeded for {who}."),
            Rejection::Secondary(_) => "You have exceeded a secondary rate limit. \
                                        Please wait a few minutes before you try again."
                .into(),
            Rejection::Certificate(_) => "The client's certificate is not good any more.".into(),
            Rejection::Denied | Rejection::Address(_) => "Forbidden".into(),
            Rejection::BodyTooLarge => TOO_LARGE.into(),
            Rejection::MissingKey(limit) => {
                format!("The request lacks what limit {limit} counts by.")
            }
            Rejection::AmbiguousKey(limit) => {
                format!("The request has an ambiguous value of what limit {limit} counts by.")
            }
            Rejection::Store(StoreError::NoRoom(reason)) if reason.is_clients_fault() => {
                "Too many different values of what a limit counts by. Try again later.".into()
            }
            Rejection::Store(_) => "The service is busy. Try again later.".into(),
            Rejection::Upstream(error) => match error {
                UpstreamError::NoAddress
                | UpstreamError::Connect(_)
                | UpstreamError::Tls { .. }
                | UpstreamError::Exchange(_)
                | UpstreamError::Unsound => "The upstream service could not be reached.".into(),
                UpstreamError::Busy | UpstreamError::ShareUsed | UpstreamError::Exhausted(_) => {
                    "The service is busy. Try again later.".into()
                }
                UpstreamError::ConnectTimeout | UpstreamError::ResponseTimeout => {
                    "The upstream service did not answer in time.".into()
                }
                UpstreamError::RequestBody(_) => "The request body is malformed.".into(),
                UpstreamError::RequestBodyTooLarge => TOO_LARGE.into(),
                UpstreamError::RequestBodyTimeout => {
                    "The request body did not arrive in time.".into()
                }
                UpstreamError::RequestBodyTooSlow => "The request body came too slowly.".into(),
            },
            Rejection::HeadTimeout => "The request did not arrive in time.".into(),
            Rejection::Internal => "Something went wrong.".into(),
        }
    }

    /// The limit that keeps a request from its way.
    pub fn limit(&self) -> Option<&str> {
        match self {
            Rejection::Primary(denial) | Rejection::Secondary(denial) => denial.limit.to_str().ok(),
            Rejection::MissingKey(limit) => Some(limit),
            _ => None,
        }
    }

    /// Whether the client has broken off its request.
    pub fn is_broken_off(&self) -> bool {
        matches!(self, Rejection::Upstream(error) if error.is_broken_off())
    }

    /// Seconds after which asking again makes sense.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Rejection::Primary(denial) | Rejection::Secondary(denial) => denial.retry_after,
            Rejection::Store(StoreError::NoRoom(reason)) if reason.is_clients_fault() => {
                Some(A_MINUTE)
            }
            Rejection::Store(_)
            | Rejection::Identity(IdentityError::Unavailable | IdentityError::TooManyLookups)
            | Rejection::Upstream(
                UpstreamError::Busy | UpstreamError::ShareUsed | UpstreamError::Exhausted(_),
            ) => Some(SOON),
            _ => None,
        }
    }

    /// Whether the connection must not be used again: what follows on it cannot be trusted, or is
    /// refused as well.
    fn closes_connection(&self) -> bool {
        matches!(
            self,
            Rejection::Framing(_)
                | Rejection::Target(_)
                | Rejection::Connection(_)
                | Rejection::Certificate(_)
                | Rejection::HeadTimeout
                | Rejection::BodyTooLarge
                | Rejection::Upstream(
                    UpstreamError::RequestBody(_)
                        | UpstreamError::RequestBodyTooLarge
                        | UpstreamError::RequestBodyTimeout
                        | UpstreamError::RequestBodyTooSlow
                )
        )
    }

    /// `WWW-Authenticate`: a field for each scheme of the policy. `Basic` (RFC 7617 section 2) asks for
    /// a password, and only where another could help.
    fn challenges(&self, responses: &Responses) -> impl Iterator<Item = HeaderValue> {
        let is_unauthenticated = self.status(responses) == StatusCode::UNAUTHORIZED;
        self.challenge_parameters().into_iter().flat_map(move |parameters| {
            responses.schemes.iter().filter_map(move |scheme| {
                let parameters = match scheme {
                    Scheme::Basic if is_unauthenticated => ", charset=\"UTF-8\"",
                    Scheme::Basic => return None,
                    Scheme::Bearer | Scheme::Token => &parameters,
                };
                let (name, realm) = (scheme.name(), &responses.realm);
                HeaderValue::from_str(&format!("{name} realm=\"{realm}\"{parameters}")).ok()
            })
        })
    }

    /// What a challenge for a token says (RFC 6750 section 3), from fixed texts only; none, if there is
    /// no challenge.
    fn challenge_parameters(&self) -> Option<String> {
        let error = match self {
            Rejection::Identity(error) => error,
            Rejection::Scope(scopes) => {
                let text = "The token does not grant the scopes that this needs";
                return Some(format!(
                    ", error=\"insufficient_scope\", error_description=\"{text}\", \
                     scope=\"{scopes}\""
                ));
            }
            _ => return None,
        };
        let invalid_token = |description: &str| {
            format!(", error=\"invalid_token\", error_description=\"{description}\"")
        };
        let parameters = match error {
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

    /// The documentation of the limits; clients tell secondary denials by its fragment.
    fn documentation_url(&self, responses: &Responses) -> Option<String> {
        let url = responses.documentation_url.as_deref();
        match self {
            Rejection::Secondary(Denial { retry_after: Some(_), .. }) => {
                let page = url.map_or("", |url| url.split('#').next().unwrap_or(url));
                Some(format!("{page}#about-secondary-rate-limits"))
            }
            _ => url.map(str::to_owned),
        }
    }

    /// The body, in a format that the client understands, and its media type.
    fn body(&self, responses: &Responses, telling: &Telling<'_>) -> (Vec<u8>, HeaderValue) {
        let (body, media_type) = match telling.format {
            Format::Json | Format::Grpc => {
                let message = self.message();
                let documentation_url = self.documentation_url(responses);
                (json_line(&ErrorBody { message, documentation_url }), &JSON)
            }
            Format::Problem => {
                let (status, detail) = (self.status(responses), self.message());
                let problem = match self {
                    Rejection::Primary(_) | Rejection::Secondary(_) => {
                        Problem::quota_exceeded(status, &detail, telling.violated.clone())
                    }
                    _ => Problem::new(status, &detail),
                };
                let problem = problem.of_request(telling.request_id.to_str().unwrap_or_default());
                (json_line(&problem), &PROBLEM_JSON)
            }
        };
        (body, media_type.clone())
    }

    /// The response, without limit headers.
    pub fn into_response(self, responses: &Responses, telling: &Telling<'_>) -> Response<Body> {
        let mut response = match telling.format {
            Format::Grpc => {
                let mut response = Response::new(Body::empty());
                grpc::tell(&self, responses, response.headers_mut());
                response
            }
            Format::Json | Format::Problem => {
                let (body, media_type) = self.body(responses, telling);
                let mut response = Response::new(Body::full(body));
                *response.status_mut() = self.status(responses);
                response.headers_mut().insert(header::CONTENT_TYPE, media_type);
                response
            }
        };
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, NO_STORE.clone());
        if let Rejection::Primary(denial) | Rejection::Secondary(denial) = &self {
            headers.insert(X_TOLLGATE_DENIED_BY.clone(), denial.limit.clone());
        }
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        for challenge in self.challenges(responses) {
            headers.append(header::WWW_AUTHENTICATE, challenge);
        }
        if let Rejection::Method = self {
            headers.insert(header::ALLOW, HeaderValue::from_static(FORWARDED_METHODS));
        }
        if self.closes_connection() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

const TOO_LARGE: &str = "The request body is too large.";

const FORWARDED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

#[derive(serde::Serialize)]
struct ErrorBody {
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    documentation_url: Option<String>,
}

/// The answer to `OPTIONS *`, which asks about this server and no resource behind it.
pub fn options_asterisk() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(FORWARDED_METHODS));
    response
}
