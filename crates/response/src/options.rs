//! The response to `OPTIONS *`, which is about this server and no resource behind it.

use http::{HeaderValue, Response, StatusCode, header};

use super::body::Body;

/// The methods that requests may have.
pub(super) const FORWARDED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Says which methods are forwarded.
pub fn options_asterisk() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(FORWARDED_METHODS));
    response
}
