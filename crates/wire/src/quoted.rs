//! Lists in field values, whose members may have quoted strings (RFC 9110 section 5.6.4).

/// The pieces between separators that are not within a quoted string.
pub fn split_unquoted(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    text.split(move |byte| {
        if is_escaped {
            is_escaped = false;
        } else if *byte == b'"' {
            is_quoted = !is_quoted;
        } else if is_quoted {
            //= rfc9110#section-5.6.4
            //# Recipients that process the value of a quoted-string MUST handle a quoted-pair as if
            //# it were replaced by the octet following the backslash
            is_escaped = *byte == b'\\';
        } else {
            return *byte == separator;
        }
        false
    })
}
