//! Responses that cannot be passed on in the way in which they came.

use http::{HeaderMap, Response, StatusCode, header};
use hyper::body::Incoming;

/// Largest head of a response that is passed on.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Whether a response cannot be passed on: it says its length in two ways, in a coding that was not
/// asked for, switches to a protocol that was not, or has a head of outrageous size.
pub(super) fn is_unsound(response: &Response<Incoming>) -> bool {
    let headers = response.headers();
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let framing_is_unsound = codings.next().is_some_and(|coding| {
        !coding.as_bytes().eq_ignore_ascii_case(b"chunked")
            || codings.next().is_some()
            || headers.contains_key(header::CONTENT_LENGTH)
    });
    framing_is_unsound
        || response.status() == StatusCode::SWITCHING_PROTOCOLS
        || head_bytes(headers) > MAX_HEAD_BYTES
}

/// Bytes of a head's fields, with their separators.
fn head_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}
