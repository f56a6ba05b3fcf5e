//! The media ranges of `Accept` fields, each with its quality (RFC 9110 section 12.5.1).

use http::{HeaderMap, header};

use crate::{media_type::is_token, quoted::split_unquoted};

/// Members of `Accept` that are read; what a browser sends has ten.
pub const MAX_MEMBERS: usize = 64;

/// Thousandths, from none to 1000.
pub type Quality = u16;

/// What the fields accept, in their order. Members that are malformed say nothing.
pub fn accepted(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], Quality)> {
    let fields = headers.get_all(header::ACCEPT).iter();
    let members = fields.flat_map(|field| split_unquoted(field.as_bytes(), b','));
    members.take(MAX_MEMBERS).filter_map(read_member)
}

/// The media range and its quality; none if the member is malformed.
fn read_member(member: &[u8]) -> Option<(&[u8], Quality)> {
    let mut parts = split_unquoted(member, b';').map(<[u8]>::trim_ascii);
    let range = parts.next()?;
    let mut quality = None;
    // Parameters may be left out between semicolons (section 5.6.6).
    //= rfc9110#section-5.6.1.2
    //# A recipient MUST parse and ignore a reasonable number of empty list elements
    for parameter in parts.filter(|parameter| !parameter.is_empty()) {
        let equals = parameter.iter().position(|byte| *byte == b'=')?;
        let name = parameter.get(..equals)?;
        let value = parameter.get(equals + 1..)?;
        if !is_token(name) || !(is_token(value) || is_quoted(value)) {
            return None;
        }
        //= rfc9110#section-12.5.1
        //# Recipients SHOULD process any parameter named "q" as weight, regardless of parameter
        //# ordering
        if name.eq_ignore_ascii_case(b"q") && quality.replace(read_quality(value)?).is_some() {
            return None;
        }
    }
    Some((range, quality.unwrap_or(1000)))
}

/// A `qvalue` (section 12.4.2): from 0 to 1 with at most three decimals.
fn read_quality(text: &[u8]) -> Option<Quality> {
    let (whole, decimals) = match text {
        [whole] | [whole, b'.'] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let digit = |byte: u8| byte.is_ascii_digit().then(|| Quality::from(byte - b'0'));
    let mut quality = digit(*whole)?;
    for decimal in 0..3 {
        quality = quality * 10 + digit(decimals.get(decimal).copied().unwrap_or(b'0'))?;
    }
    (quality <= 1000).then_some(quality)
}

/// Whether a quoted string is all there is, closed by its last byte.
fn is_quoted(text: &[u8]) -> bool {
    let Some(inner) = text.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) else {
        return false;
    };
    let mut is_escaped = false;
    for byte in inner {
        if *byte == b'"' && !is_escaped {
            return false;
        }
        is_escaped = *byte == b'\\' && !is_escaped;
    }
    !is_escaped
}
