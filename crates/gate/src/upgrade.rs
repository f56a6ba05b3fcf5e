//! Requests to switch to another protocol (RFC 9110 section 7.8): which of them are passed on.
//!
//! All others go on as ordinary requests, without the field: no server has to grant an upgrade.

use http::{HeaderMap, HeaderValue, Method, Version, header, request::Parts};
use tollgate_policy::Route;

use super::head::declares_body;

static UPGRADE: HeaderValue = HeaderValue::from_static("upgrade");

/// The protocol that a request asks to switch to: the first of its list that the route passes on.
///
/// Only a GET without a body counts: what follows any other head would be read in one way by a
/// server that sees an upgrade in it and in another way by one that does not.
pub(super) fn requested(request: &Parts, route: &Route) -> Option<HeaderValue> {
    let headers = &request.headers;
    let mut protocols = headers.get_all(header::UPGRADE).iter().peekable();
    protocols.peek()?;
    // `Upgrade` is the connection's own (section 7.6.1), and must be named as such.
    let is_named =
        || members(headers, header::CONNECTION).any(|it| it.eq_ignore_ascii_case(b"upgrade"));
    //= rfc9110#section-7.8
    //# A server that receives an Upgrade header field in an HTTP/1.0 request MUST ignore that
    //# Upgrade field
    if request.version != Version::HTTP_11
        //= rfc9110#section-7.8
        //# A server MUST NOT switch protocols unless the received message semantics can be honored
        //# by the new protocol
        || request.method != Method::GET
        || declares_body(headers)
        || !is_named()
    {
        return None;
    }
    let is_passed_on = |protocol: &&[u8]| {
        // HTTP/2 is spoken from the first byte of a connection or not at all (RFC 9113 section
        // 3.1).
        //= rfc9113#section-3.2
        //# The "h2c" protocol identifier MUST NOT be sent by a client or selected by a server
        let is_http2 = protocol.starts_with(b"h2");
        let mut passed_on = route.upgrades.iter().map(|own| own.as_bytes());
        //= rfc9110#section-7.8
        //# recipients SHOULD use case-insensitive comparison when matching each protocol-name to
        //# supported protocols
        !is_http2 && passed_on.any(|own| own.eq_ignore_ascii_case(protocol))
    };
    members(headers, header::UPGRADE)
        .find(is_passed_on)
        .and_then(|protocol| HeaderValue::from_bytes(protocol).ok())
}

/// Names a protocol to switch to, in the head of a message whose connection fields were removed.
pub(super) fn name(headers: &mut HeaderMap, protocol: HeaderValue) {
    //= rfc9110#section-7.6.1
    //# When a field aside from Connection is used to supply control information for or about the
    //# current connection, the sender MUST list the corresponding field name within the Connection
    //# header field
    //= rfc9110#section-7.6.1
    //# A sender MUST NOT send a connection option corresponding to a field that is intended for all
    //# recipients of the content
    //= rfc9110#section-7.8
    //# A sender of Upgrade MUST also send an "Upgrade" connection option in the Connection header
    //# field
    headers.insert(header::CONNECTION, UPGRADE.clone());
    headers.insert(header::UPGRADE, protocol);
}

/// The members of a list, from all of its fields.
fn members(headers: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = &[u8]> {
    let fields = headers.get_all(name).iter();
    fields.flat_map(|field| field.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}
