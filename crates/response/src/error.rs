//! The response to a request that is refused: status, body and fields, without limit headers.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use tollgate_policy::{HeaderProfile, Responses};
use tollgate_usage::mcp::Recipients;

use super::{
    body::Body,
    grpc,
    json::{JSON, PLAIN_JSON, json_line},
    json_rpc::rpc_errors,
    limit_headers::number,
    negotiation::Format,
    openai::OpenAiError,
    options::FORWARDED_METHODS,
    problem::{PROBLEM_JSON, Problem},
    rejection::{Denial, Rejection},
};

static X_TOLLGATE_DENIED_BY: HeaderName = HeaderName::from_static("x-tollgate-denied-by");

static NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// What an error response needs besides the error.
#[derive(Debug)]
pub struct ErrorDetails<'r> {
    /// The form of its body.
    pub format: Format,
    /// The request's id.
    pub request_id: &'r HeaderValue,
    /// The names of all windows that denied the request. Only problem details have them.
    pub violated: Vec<&'r str>,
    /// Whom it is for, in the form of JSON-RPC.
    pub recipients: Option<&'r Recipients<'r>>,
}

#[derive(serde::Serialize)]
struct ErrorBody<'b> {
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    documentation_url: Option<Cow<'b, str>>,
}

/// Fields of a denial, with those of its limit, so that the header map does not grow.
const USUAL_FIELDS: usize = 12;

impl Rejection {
    /// The response, without limit headers.
    pub fn into_response(
        self,
        responses: &Responses,
        details: &ErrorDetails<'_>,
    ) -> Response<Body> {
        let mut response = match details.format {
            Format::Grpc => {
                let mut response = Response::new(Body::empty());
                grpc::write_status(&self, responses, response.headers_mut());
                response
            }
            Format::Json | Format::Problem | Format::JsonRpc => {
                //= rfc9110#section-15.5
                //# Except when responding to a HEAD request, the server SHOULD send a
                //# representation containing an explanation of the error situation
                //= rfc9110#section-15.6
                //# Except when responding to a HEAD request, the server SHOULD send a
                //# representation containing an explanation of the error situation
                let (body, media_type) = self.error_body(responses, details);
                let mut response = Response::new(Body::full(body));
                *response.headers_mut() = HeaderMap::with_capacity(USUAL_FIELDS);
                //= rfc9457#section-3.1.2
                //# Generators MUST use the same status code in the actual HTTP response
                *response.status_mut() = self.status_for(responses, details);
                //= rfc9110#section-8.3
                //# A sender that generates a message containing content SHOULD generate a
                //# Content-Type header field in that message
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
            headers.insert(header::RETRY_AFTER, number(seconds));
        }
        //= rfc9110#section-11.6.1
        //# A server generating a 401 (Unauthorized) response MUST send a WWW-Authenticate header
        //# field containing at least one challenge
        //= rfc9110#section-15.5.2
        //# The server generating a 401 response MUST send a WWW-Authenticate header field
        //= rfc6750#section-3
        //# the resource server MUST include the HTTP "WWW-Authenticate" response header field
        for challenge in self.challenges(responses) {
            headers.append(header::WWW_AUTHENTICATE, challenge);
        }
        //= rfc9110#section-10.2.1
        //# An origin server MUST generate an Allow header field in a 405 (Method Not Allowed)
        //# response
        //= rfc9110#section-15.5.6
        //# The origin server MUST generate an Allow header field in a 405 response
        if let Rejection::Method = self {
            headers.insert(header::ALLOW, HeaderValue::from_static(FORWARDED_METHODS));
        }
        if self.closes_connection() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// The body in the client's format, and its media type.
    fn error_body(
        &self,
        responses: &Responses,
        details: &ErrorDetails<'_>,
    ) -> (Vec<u8>, HeaderValue) {
        let (body, media_type) = match details.format {
            Format::Json | Format::Grpc => {
                let message = self.message();
                if responses.headers == HeaderProfile::OpenAi {
                    let error = OpenAiError::of(self, self.status(responses), message);
                    return (json_line(&error), JSON.clone());
                }
                let documentation_url = self.documentation_url(responses);
                (json_line(&ErrorBody { message, documentation_url }), &JSON)
            }
            Format::JsonRpc => {
                let none = Recipients::default();
                let recipients = details.recipients.unwrap_or(&none);
                (rpc_errors(self, responses, recipients), &PLAIN_JSON)
            }
            Format::Problem => {
                let status = self.status(responses);
                let detail = self.message();
                //= rfc9457#section-3
                //# it is RECOMMENDED that the most relevant or urgent problem be represented in the
                //# response
                let problem = match self {
                    Rejection::Primary(_) | Rejection::Secondary(_) => {
                        Problem::quota_exceeded(status, &detail, details.violated.clone())
                    }
                    _ => Problem::new(status, &detail),
                };
                let problem = problem.of_request(details.request_id.to_str().unwrap_or_default());
                (json_line(&problem), &PROBLEM_JSON)
            }
        };
        (body, media_type.clone())
    }

    /// The status for this client.
    fn status_for(&self, responses: &Responses, details: &ErrorDetails<'_>) -> StatusCode {
        let is_denial = matches!(self, Rejection::Primary(_) | Rejection::Secondary(_));
        let is_old = details.recipients.is_some_and(|recipients| !recipients.is_recent);
        match responses.mcp_denied_status {
            Some(status) if is_denial && is_old => status,
            _ => self.status(responses),
        }
    }

    /// The documentation of the limits; its fragment marks secondary denials for clients.
    fn documentation_url<'r>(&self, responses: &'r Responses) -> Option<Cow<'r, str>> {
        let url = responses.documentation_url.as_deref();
        match self {
            Rejection::Secondary(Denial { retry_after: Some(_), .. }) => {
                let page = url.map(|url| url.split('#').next().unwrap_or(url));
                page.map(|page| format!("{page}#about-secondary-rate-limits").into())
            }
            _ => url.map(Cow::Borrowed),
        }
    }
}
