//! The response to `OPTIONS *`, which is about this server and no resource behind it, and to an
//! OPTIONS request that may pass no further proxy.

use http::{HeaderValue, Response, StatusCode, header};

use super::body::Body;

/// The methods that requests may have.
//= rfc9110#section-9.1
//# All general-purpose servers MUST support the methods GET and HEAD
pub(super) const FORWARDED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Says which methods are forwarded.
pub fn options() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    //= rfc9110#section-9.3.7
    //# A server generating a successful response to OPTIONS SHOULD send any header that might
    //# indicate optional features
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(FORWARDED_METHODS));
    response
}
