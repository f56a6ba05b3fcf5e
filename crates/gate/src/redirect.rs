//! Listeners that only redirect: every request is sent to the same host by https.

use http::{HeaderValue, Response, header};
use tollgate_response::{Body, Rejection};
use tollgate_settings::Redirect;
use tollgate_wire::target::{Form, TargetError};

use super::{head::Head, request_state::Action};

/// What is done with a sound request there. Its caller is not identified, and nothing is charged.
pub(super) fn redirect(head: &Head<'_>, redirect: Redirect) -> Action<'static> {
    if head.form == Form::Asterisk {
        return Action::Options;
    }
    // A request of HTTP/1.0 may have no host: there is nowhere to redirect it to.
    //= rfc9110#section-4.2.2
    //# A sender MUST NOT generate an "https" URI with an empty host identifier
    let Some(host) = head.host() else {
        return Action::Refuse(Rejection::Target(TargetError::MissingHost));
    };
    match HeaderValue::try_from(location(host, redirect.port, &head.path, head.query())) {
        Ok(location) => Action::Redirect(redirect.status, location),
        Err(_) => Action::Refuse(Rejection::Internal),
    }
}

/// The response to the client.
pub(super) fn redirection(status: http::StatusCode, location: HeaderValue) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    //= rfc9110#section-15.4.9
    //# The server SHOULD generate a Location header field in the response containing a preferred
    //# URI reference for the new permanent URI
    response.headers_mut().insert(header::LOCATION, location);
    response
}

/// The path is in normal form: it begins with one slash, and so cannot be taken for another host.
fn location(host: &str, port: Option<u16>, path: &str, query: Option<&str>) -> String {
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("https://{host}{port}{path}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_keeps_host_path_and_query() {
        for (host, port, path, query, expected) in [
            ("a.example", None, "/", None, "https://a.example/"),
            ("a.example", Some(8443), "/b", Some("c=d"), "https://a.example:8443/b?c=d"),
            ("[2001:db8::1]", Some(8443), "/b", Some(""), "https://[2001:db8::1]:8443/b?"),
        ] {
            assert_eq!(location(host, port, path, query), expected);
        }
    }
}
