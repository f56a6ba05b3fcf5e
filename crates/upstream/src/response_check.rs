//! Checks of upstream responses that must not be passed on as they are.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{UpstreamBodyError, UpstreamError};

/// Largest head of a response that is passed on.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// The last status code of a defined class (RFC 9110 section 15).
const LAST_STATUS: u16 = 599;

/// Whether a response must not be passed on: its length is given twice, its transfer coding or its
/// protocol switch was not requested, its status has no defined class, or its head is too large.
pub(super) fn is_unsound(response: &Response<Incoming>) -> bool {
    let headers = response.headers();
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let framing_is_unsound = codings.next().is_some_and(|coding| {
        !coding.as_bytes().eq_ignore_ascii_case(b"chunked")
            || codings.next().is_some()
            || headers.contains_key(header::CONTENT_LENGTH)
    });
    framing_is_unsound
        || !has_one_length(headers)
        || response.status() == StatusCode::SWITCHING_PROTOCOLS
        //= rfc9110#section-15
        //# a client MUST understand the class of any status code
        || response.status().as_u16() > LAST_STATUS
        || head_bytes(headers) > MAX_HEAD_BYTES
}

/// Reads a 205 response to its end to verify that it has no content (RFC 9110 section 15.3.6): a
/// chunked body shows that only at its end.
///
/// # Errors
/// [`UpstreamError::Unsound`] if there is content, or what became of the body instead.
pub(super) async fn without_content<B>(
    mut response: Response<B>,
) -> Result<Response<B>, UpstreamError>
where
    B: Body<Data = Bytes, Error = UpstreamBodyError> + Unpin,
{
    //= rfc9110#section-15.3.6
    //# a server MUST NOT generate content in a 205 response
    let body = response.body_mut();
    if body.size_hint().lower() > 0 {
        return Err(UpstreamError::Unsound);
    }
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) if frame.data_ref().is_none_or(Bytes::is_empty) => {}
            Ok(_) => return Err(UpstreamError::Unsound),
            Err(UpstreamBodyError::Connection(error)) => {
                return Err(UpstreamError::Exchange(error));
            }
            Err(UpstreamBodyError::Timeout) => return Err(UpstreamError::ResponseTimeout),
        }
    }
    Ok(response)
}

/// Whether all Content-Length values are the same digits. The HTTP engine checks them only where a
/// body is expected.
fn has_one_length(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CONTENT_LENGTH).iter().map(HeaderValue::as_bytes);
    let mut lengths =
        values.flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let Some(first) = lengths.next() else { return true };
    let number = str::from_utf8(first).ok().filter(|_| first.iter().all(u8::is_ascii_digit));
    number.is_some_and(|number| number.parse::<u64>().is_ok())
        && lengths.all(|other| other == first)
}

/// Bytes of a head's fields, with their separators.
fn head_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}
