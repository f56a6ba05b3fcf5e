//! Errors in gRPC's form: a status in the fields of a response that is nothing but a head
//! ("Trailers-Only" in gRPC over HTTP/2).
//!
//! For HTTP such a response is a success. So only clients whose route has an upstream of HTTP/2 get
//! it, and charges are corrected by the HTTP status that other clients would have got, which the
//! access log has too.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header, request::Parts,
};
use tollgate_identity::IdentityError;
use tollgate_policy::Responses;
use tollgate_upstream::UpstreamError;

use super::rejection::Rejection;

pub(super) static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

static GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
static GRPC_RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
pub(super) static APPLICATION_GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// The statuses of gRPC that this proxy sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum GrpcCode {
    /// The call says something that cannot be meant.
    InvalidArgument = 3,
    /// Something took too long.
    DeadlineExceeded = 4,
    /// There is no such thing.
    NotFound = 5,
    /// The caller may not.
    PermissionDenied = 7,
    /// A limit has no room, or a bound is exceeded.
    ResourceExhausted = 8,
    /// There is no such method.
    Unimplemented = 12,
    /// This proxy has failed.
    Internal = 13,
    /// Another try may work.
    Unavailable = 14,
    /// The caller is not known.
    Unauthenticated = 16,
}

/// The status of a gRPC call, if these fields, of the head or the trailers, have one.
pub fn grpc_status(fields: &HeaderMap) -> Option<u64> {
    fields.get(&GRPC_STATUS)?.to_str().ok()?.parse().ok()
}

/// Whether a request has the form of a gRPC call: a POST over HTTP/2 with a content type of gRPC.
pub fn is_grpc_call(request: &Parts) -> bool {
    if request.version != Version::HTTP_2 || request.method != Method::POST {
        return false;
    }
    let Some(value) = request.headers.get(header::CONTENT_TYPE) else { return false };
    let prefix = APPLICATION_GRPC.as_bytes();
    let Some((begun, rest)) = value.as_bytes().split_at_checked(prefix.len()) else { return false };
    begun.eq_ignore_ascii_case(prefix) && matches!(rest, [] | [b'+' | b';' | b' ' | b'\t', ..])
}

/// Writes why a call is refused into the header of a response without a body.
pub(super) fn write_status(rejection: &Rejection, responses: &Responses, headers: &mut HeaderMap) {
    let code = code(rejection, rejection.status(responses));
    write_code(code, &rejection.message(), headers);
    if let Some(seconds) = rejection.retry_after() {
        headers.insert(GRPC_RETRY_PUSHBACK.clone(), seconds.saturating_mul(1000).into());
    }
}

/// Writes a status and a message for people.
pub(super) fn write_code(code: GrpcCode, message: &str, headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_TYPE, APPLICATION_GRPC.clone());
    headers.insert(GRPC_STATUS.clone(), HeaderValue::from(code as u16));
    if let Ok(message) = HeaderValue::from_str(&percent_encoded(message)) {
        headers.insert(GRPC_MESSAGE.clone(), message);
    }
}

/// The code that gRPC maps an HTTP status to, or a more exact one where the error has it.
fn code(rejection: &Rejection, status: StatusCode) -> GrpcCode {
    match rejection {
        Rejection::Primary(_)
        | Rejection::Secondary(_)
        | Rejection::Identity(IdentityError::TooManyLookups) => return GrpcCode::ResourceExhausted,
        Rejection::Upstream(
            UpstreamError::ResponseTimeout
            | UpstreamError::RequestBodyTimeout
            | UpstreamError::RequestBodyTooSlow,
        ) => return GrpcCode::DeadlineExceeded,
        _ => {}
    }
    match status {
        StatusCode::UNAUTHORIZED => GrpcCode::Unauthenticated,
        StatusCode::FORBIDDEN => GrpcCode::PermissionDenied,
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            GrpcCode::Unimplemented
        }
        StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::URI_TOO_LONG
        | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => GrpcCode::ResourceExhausted,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            GrpcCode::Unavailable
        }
        _ => GrpcCode::Internal,
    }
}

/// `grpc-message` holds printable ASCII; everything else, and the percent sign, is escaped.
fn percent_encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use tollgate_policy::AddressRefusal;

    use super::*;

    #[test]
    fn a_call_has_the_content_type_of_grpc() {
        for (content_type, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/gRPC; charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/json", false),
            ("application/grp", false),
        ] {
            let is_call = |method, version| {
                let head = http::Request::builder().method(method).version(version);
                let head = head.header(header::CONTENT_TYPE, content_type).body(()).unwrap();
                is_grpc_call(&head.into_parts().0)
            };
            assert_eq!(is_call(Method::POST, Version::HTTP_2), expected, "{content_type}");
            assert!(!is_call(Method::GET, Version::HTTP_2));
            assert!(!is_call(Method::POST, Version::HTTP_11));
        }
    }

    #[test]
    fn statuses_are_those_that_grpc_clients_act_on() {
        let timeout = |error| Rejection::Upstream(error);
        for (rejection, expected) in [
            (Rejection::Identity(IdentityError::Missing), 16),
            (Rejection::Denied, 7),
            (Rejection::Address(AddressRefusal::NotAllowed), 7),
            (Rejection::NoRoute, 12),
            (Rejection::BodyTooLarge, 8),
            (timeout(UpstreamError::ConnectTimeout), 14),
            (timeout(UpstreamError::ResponseTimeout), 4),
            (timeout(UpstreamError::Unsound), 14),
            (Rejection::Identity(IdentityError::Unavailable), 14),
            (Rejection::Identity(IdentityError::TooManyLookups), 8),
            (Rejection::Internal, 13),
        ] {
            let status = rejection.status(&Responses::DEFAULT);
            assert_eq!(code(&rejection, status) as u16, expected, "{rejection:?}");
        }
    }

    #[test]
    fn a_message_is_printable_ascii() {
        assert_eq!(percent_encoded("100 % of caf\u{e9}\n"), "100 %25 of caf%C3%A9%0A");
    }
}
