//! What clients are told: the only place that knows status codes, bodies and limit headers.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::{
    access_log::Tail,
    clock::Timestamp,
    identity::{CallerValue, CredentialError, Identity, IdentityError},
    limit::{Retry, Standing},
    policy::{Allowance, Limit, Responses},
    server::{InFlight, Violation, ViolationKind},
    store::StoreError,
    target::TargetError,
    upstream::{ConnectionNamesProtectedField, UpstreamBody, UpstreamBodyError, UpstreamError},
};

static X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static X_RATELIMIT_USED: HeaderName = HeaderName::from_static("x-ratelimit-used");
static X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
static X_RATELIMIT_RESOURCE: HeaderName = HeaderName::from_static("x-ratelimit-resource");

/// What browsers must be told that scripts may read.
const EXPOSED: &str = "Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, \
                       X-RateLimit-Used, X-RateLimit-Reset, X-RateLimit-Resource, X-Request-Id";

static JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
static NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

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
    /// The first limit of the route has no room.
    #[error("denied by the primary limit")]
    Primary(Denial),
    /// Another limit of the route has no room.
    #[error("denied by a secondary limit")]
    Secondary(Denial),
    /// The store could not decide.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The upstream gave no response.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// A fault of ours.
    #[error("internal error")]
    Internal,
}

/// What a denied client is told.
#[derive(Debug)]
pub struct Denial {
    /// Who was denied, as the message says it.
    pub who: String,
    /// Whole seconds to wait; none if waiting does not help.
    pub retry_after: Option<u64>,
}

impl Denial {
    /// The denial of `identity` until `retry`.
    pub fn new(identity: &Identity<'_>, retry: Retry, now: Timestamp) -> Self {
        let who = match &identity.caller {
            Some(caller) => match &caller.value {
                value @ CallerValue::Claim(_) => format!("{} {value}", caller.kind),
                CallerValue::Address(_) => identity.address.to_string(),
            },
            None => identity.address.to_string(),
        };
        let wait = |instant: Timestamp| {
            let micros = instant.saturating_since(now).as_micros() as u64;
            micros.div_ceil(1_000_000).max(1)
        };
        let retry_after = match retry {
            Retry::Now => Some(1),
            Retry::At(instant) => Some(wait(instant)),
            Retry::Never => None,
        };
        Denial { who, retry_after }
    }
}

/// What the log says of a request whose client had gone before it was answered, as nginx does.
pub const CLIENT_CLOSED_REQUEST: u16 = 499;

/// How long to wait after a fault that is expected to pass.
const SOON: u64 = 1;

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
            Rejection::Target(_) | Rejection::Connection(_) => StatusCode::BAD_REQUEST,
            Rejection::Method => StatusCode::METHOD_NOT_ALLOWED,
            Rejection::NoRoute => StatusCode::NOT_FOUND,
            Rejection::Identity(error) => match error {
                IdentityError::Credential(_) => StatusCode::BAD_REQUEST,
                IdentityError::Missing
                | IdentityError::Token(_)
                | IdentityError::IssuerNotAccepted
                | IdentityError::NoCaller => StatusCode::UNAUTHORIZED,
            },
            Rejection::Primary(_) | Rejection::Secondary(_) => responses.denied_status,
            Rejection::Store(StoreError::Full) => StatusCode::SERVICE_UNAVAILABLE,
            Rejection::Upstream(error) => match error {
                UpstreamError::Connect(_) | UpstreamError::Exchange(_) | UpstreamError::Unsound => {
                    StatusCode::BAD_GATEWAY
                }
                UpstreamError::ConnectTimeout | UpstreamError::ResponseTimeout => {
                    StatusCode::GATEWAY_TIMEOUT
                }
                UpstreamError::RequestBody(_) => StatusCode::BAD_REQUEST,
                UpstreamError::RequestBodyTimeout => StatusCode::REQUEST_TIMEOUT,
            },
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
                IdentityError::Credential(_) => {
                    "The request has more than one credential, or an empty one.".into()
                }
                IdentityError::Token(_)
                | IdentityError::IssuerNotAccepted
                | IdentityError::NoCaller => "Bad credentials".into(),
            },
            Rejection::Primary(Denial { retry_after: None, .. })
            | Rejection::Secondary(Denial { retry_after: None, .. }) => {
                "The cost of this request exceeds its limit.".into()
            }
            Rejection::Primary(Denial { who, .. }) => format!("API rate limit exceeded for {who}."),
            Rejection::Secondary(_) => "You have exceeded a secondary rate limit. \
                                        Please wait a few minutes before you try again."
                .into(),
            Rejection::Store(_) => "The service is busy. Try again later.".into(),
            Rejection::Upstream(error) => match error {
                UpstreamError::Connect(_) | UpstreamError::Exchange(_) | UpstreamError::Unsound => {
                    "The upstream service could not be reached.".into()
                }
                UpstreamError::ConnectTimeout | UpstreamError::ResponseTimeout => {
                    "The upstream service did not answer in time.".into()
                }
                UpstreamError::RequestBody(_) => "The request body is malformed.".into(),
                UpstreamError::RequestBodyTimeout => {
                    "The request body did not arrive in time.".into()
                }
            },
            Rejection::Internal => "Something went wrong.".into(),
        }
    }

    fn retry_after(&self) -> Option<u64> {
        match self {
            Rejection::Primary(denial) | Rejection::Secondary(denial) => denial.retry_after,
            Rejection::Store(_) => Some(SOON),
            _ => None,
        }
    }

    /// Whether the connection must not be used again: what follows on it cannot be trusted.
    fn closes_connection(&self) -> bool {
        matches!(
            self,
            Rejection::Framing(_)
                | Rejection::Target(_)
                | Rejection::Connection(_)
                | Rejection::Upstream(
                    UpstreamError::RequestBody(_) | UpstreamError::RequestBodyTimeout
                )
        )
    }

    /// `WWW-Authenticate` (RFC 6750 section 3), from fixed texts only.
    fn challenge(&self, realm: &str) -> Option<String> {
        let Rejection::Identity(error) = self else { return None };
        let invalid_token = |description: &str| {
            format!(", error=\"invalid_token\", error_description=\"{description}\"")
        };
        let parameters = match error {
            IdentityError::Missing => String::new(),
            IdentityError::Credential(CredentialError::Several | CredentialError::Empty) => {
                ", error=\"invalid_request\"".into()
            }
            IdentityError::Token(error) => invalid_token(error.description()),
            IdentityError::IssuerNotAccepted => invalid_token("the issuer is not accepted here"),
            IdentityError::NoCaller => invalid_token("the token does not name a caller"),
        };
        Some(format!("Bearer realm=\"{realm}\"{parameters}"))
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

    /// The response, without limit headers.
    pub fn into_response(self, responses: &Responses) -> Response<Body> {
        let body = ErrorBody {
            message: self.message(),
            documentation_url: self.documentation_url(responses),
        };
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = Response::new(Body::full(body));
        *response.status_mut() = self.status(responses);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, JSON.clone());
        headers.insert(header::CACHE_CONTROL, NO_STORE.clone());
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(challenge) = self.challenge(&responses.realm)
            && let Ok(challenge) = HeaderValue::from_str(&challenge)
        {
            headers.insert(header::WWW_AUTHENTICATE, challenge);
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

/// The five `x-ratelimit-*` headers of one limit: all of them or none.
#[derive(Clone, Debug)]
pub struct LimitHeaders {
    limit: HeaderValue,
    remaining: HeaderValue,
    used: HeaderValue,
    reset: HeaderValue,
    resource: HeaderValue,
}

impl LimitHeaders {
    /// What `standing` says about `limit`.
    ///
    /// With nothing left, the reset is when one more request is possible; clients wait until then
    /// even after a success.
    pub fn new(limit: &Limit, allowance: &Allowance, standing: &Standing) -> Self {
        let reset = if standing.remaining == 0 { standing.next } else { standing.reset };
        LimitHeaders {
            limit: allowance.limit.clone(),
            remaining: standing.remaining.into(),
            used: standing.used.into(),
            reset: reset.ceil_secs().into(),
            resource: limit.resource.clone(),
        }
    }

    /// Puts them on a response that has none: an upstream's own were taken out.
    pub fn stamp(self, headers: &mut HeaderMap) {
        headers.reserve(FIELDS_STAMPED);
        headers.append(X_RATELIMIT_LIMIT.clone(), self.limit);
        headers.append(X_RATELIMIT_REMAINING.clone(), self.remaining);
        headers.append(X_RATELIMIT_USED.clone(), self.used);
        headers.append(X_RATELIMIT_RESET.clone(), self.reset);
        headers.append(X_RATELIMIT_RESOURCE.clone(), self.resource);
        expose(headers);
    }
}

/// Fields that a response gains, with a little room: it is made at once.
const FIELDS_STAMPED: usize = 8;

/// Lets scripts of other origins read the limit headers where they may read the response.
fn expose(headers: &mut HeaderMap) {
    if !headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
        return;
    }
    let exposed = headers.get_all(header::ACCESS_CONTROL_EXPOSE_HEADERS);
    let mut names: Vec<&[u8]> = exposed.iter().map(HeaderValue::as_bytes).collect();
    names.push(EXPOSED.as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&names.join(&b", "[..])) {
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, value);
    }
}

/// A response's body, and what is left to do once it has ended.
pub struct Body {
    content: Content,
    /// The access log's line.
    tail: Option<Tail>,
    /// Counts the request until the body has ended or was given up.
    in_flight: Option<InFlight>,
}

enum Content {
    Full(Option<Bytes>),
    Upstream(Box<UpstreamBody>),
    Ended,
}

impl Body {
    /// A body made here.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Body::new(Content::Full(Some(bytes.into())))
    }

    /// No body.
    pub fn empty() -> Self {
        Body::new(Content::Ended)
    }

    /// A body on its way from the upstream.
    pub fn upstream(body: UpstreamBody) -> Self {
        Body::new(Content::Upstream(Box::new(body)))
    }

    fn new(content: Content) -> Self {
        Body { content, tail: None, in_flight: None }
    }

    /// With a log line to finish at its end.
    #[must_use]
    pub fn with_tail(mut self, tail: Tail) -> Self {
        self.tail = Some(tail);
        self
    }

    /// With a count to be kept until its end.
    #[must_use]
    pub fn in_flight(mut self, in_flight: InFlight) -> Self {
        self.in_flight = Some(in_flight);
        self
    }

    fn end(&mut self) {
        self.content = Content::Ended;
        self.in_flight = None;
        if let Some(tail) = self.tail.take() {
            tail.end(true);
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        // A body made here that was not asked for is the answer to a HEAD request.
        let is_complete = self.is_end_stream() || matches!(self.content, Content::Full(_));
        if let Some(tail) = self.tail.take() {
            tail.end(is_complete);
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = UpstreamBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        let body = self.get_mut();
        let polled = match &mut body.content {
            Content::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Upstream(upstream) => Pin::new(upstream).poll_frame(context),
            Content::Ended => Poll::Ready(None),
        };
        if matches!(polled, Poll::Ready(None)) {
            body.end();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Full(bytes) => bytes.is_none(),
            Content::Upstream(body) => body.is_end_stream(),
            Content::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Full(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Content::Upstream(body) => body.size_hint(),
            Content::Full(None) | Content::Ended => SizeHint::with_exact(0),
        }
    }
}
