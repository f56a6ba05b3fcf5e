//! How large a request's head may be. The framing check holds HTTP/1 to it byte by byte; of HTTP/2,
//! whose heads arrive compressed, what came out is measured.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header, request::Parts};

use super::{Violation, content_length::content_length};

/// How large a request head may be; trailers are held to the same, save the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// The whole head, with empty lines before it and the one after it.
    pub head_bytes: usize,
    /// How many fields.
    pub fields: usize,
    /// One field line, with its line end.
    pub field_bytes: usize,
    /// The request target.
    pub target_bytes: usize,
}

/// What a field line has beside its name and value: a colon, a space and the line's end.
const FIELD_OVERHEAD: usize = 4;
/// The same as HTTP/2 counts it.
pub const LIST_OVERHEAD: usize = 32;

impl HeadLimits {
    /// Holds a head of HTTP/2 to what one of HTTP/1 is held to, and to `max_list` bytes, as HTTP/2
    /// counts them (RFC 9113 section 10.5.1).
    ///
    /// # Errors
    /// The limit that it goes beyond, or that its scheme is not one of HTTP's.
    pub fn check(&self, parts: &Parts, max_list: usize) -> Result<(), Violation> {
        // Where it names no authority, the scheme is not handed on; nor has CONNECT one.
        let is_http = matches!(parts.uri.scheme_str(), Some("http" | "https"));
        if !is_http && parts.uri.authority().is_some() && parts.method != Method::CONNECT {
            return Err(Violation::BadTarget);
        }
        let target = target_bytes(&parts.uri);
        if target > self.target_bytes {
            return Err(Violation::TargetTooLong);
        }
        if parts.headers.len() > self.fields {
            return Err(Violation::TooManyFields);
        }
        let (largest, all) = parts
            .headers
            .iter()
            .map(field_bytes)
            .fold((0, 0), |(largest, all), bytes| (bytes.max(largest), bytes + all));
        if largest > self.field_bytes {
            return Err(Violation::FieldTooLarge);
        }
        let list = target + all + parts.headers.len() * (LIST_OVERHEAD - FIELD_OVERHEAD);
        if target + all > self.head_bytes || list > max_list {
            return Err(Violation::HeadTooLarge);
        }
        check_fields(&parts.headers)
    }
}

/// Bytes of fields as HTTP/1.1 writes them.
pub fn fields_bytes(fields: &HeaderMap) -> usize {
    fields.iter().map(field_bytes).sum()
}

fn field_bytes((name, value): (&HeaderName, &HeaderValue)) -> usize {
    name.as_str().len() + value.len() + FIELD_OVERHEAD
}

/// Bytes of a head as HTTP/1.1 writes it, but for what every head begins with.
pub fn head_bytes<B>(request: &Request<B>) -> usize {
    target_bytes(request.uri()) + fields_bytes(request.headers())
}

fn target_bytes(target: &Uri) -> usize {
    target.path_and_query().map_or(0, |target| target.as_str().len())
}

/// Holds the trailers of HTTP/2 to what its heads are held to on their way to HTTP/1.1.
///
/// # Errors
/// A field that HTTP/1.1 does not have.
pub fn check_trailers(trailers: &HeaderMap) -> Result<(), Violation> {
    check_fields(trailers)
}

/// What a field may not be on its way to HTTP/1.1, though it came through as one of HTTP/2.
//= rfc9113#section-8.2.1
//# an intermediary that does not process fields when forwarding messages MUST NOT forward fields
//# that contain any of the values that are listed as prohibited above
//= rfc9113#section-10.3
//# An intermediary that translates an HTTP/2 request or response MUST validate fields according to
//# the rules in Section 8.2
fn check_fields(headers: &HeaderMap) -> Result<(), Violation> {
    for (name, value) in headers {
        // The one character that is taken for a token's and is not one (RFC 9110 section 5.6.2).
        //= rfc9113#section-8.2.1
        //# HTTP/2 implementations SHOULD validate field names and values according to their
        //# definitions
        if name.as_str().contains('"') {
            return Err(Violation::BadFieldName);
        }
        // RFC 9113 section 8.2.1.
        //= rfc9113#section-8.2.1
        //# A field value MUST NOT start or end with an ASCII whitespace character
        let is_padding = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        if is_padding(value.as_bytes().first()) || is_padding(value.as_bytes().last()) {
            //= rfc9113#section-8.2.1
            //# A request or response that contains a field that violates any of these conditions
            //# MUST be treated as malformed
            return Err(Violation::PaddedValue);
        }
    }
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return Ok(()) };
    content_length(first.as_bytes())?;
    match lengths.all(|length| length == first) {
        true => Ok(()),
        false => Err(Violation::RepeatedLength),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits =
        HeadLimits { head_bytes: 160, fields: 4, field_bytes: 64, target_bytes: 16 };

    fn check(target: &str, values: &[usize]) -> Result<(), Violation> {
        let mut request = Request::get(target);
        for &length in values {
            request = request.header("x", "y".repeat(length));
        }
        LIMITS.check(&request.body(()).unwrap().into_parts().0, 200)
    }

    #[test]
    fn each_limit_has_its_own_violation() {
        for (target, values, expected) in [
            ("/", &[1, 1, 1, 1][..], Ok(())),
            ("/", &[59], Ok(())),
            ("/", &[60], Err(Violation::FieldTooLarge)),
            ("/", &[1, 1, 1, 1, 1], Err(Violation::TooManyFields)),
            ("/", &[49, 48, 48], Err(Violation::HeadTooLarge)),
            ("/23456789abcdef01", &[], Err(Violation::TargetTooLong)),
            ("https://example.com/23456789abcdef0", &[], Ok(())),
        ] {
            assert_eq!(check(target, values), expected, "{target} {values:?}");
        }
    }
}
