//! Cookies of a request (RFC 6265 section 5.4), read less strictly than the RFC defines them, as
//! servers do: with spaces around the name, in quotes, with escapes.
//!
//! A cookie that two servers could read differently is ambiguous. It is reported, so that no client
//! is counted by one reading and served by the upstream by another.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, header};

/// A cookie that servers may read in more than one way: it occurs twice, or its value or the text
/// around it has characters that RFC 6265 section 4.1.1 does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmbiguousCookie;

/// The value of the one cookie with this name, without quotes. None: there is no such cookie.
///
/// # Errors
/// [`AmbiguousCookie`], but not for the characters of the value, which the caller checks.
pub(super) fn only_cookie<'h>(
    headers: &'h HeaderMap,
    name: &str,
) -> Result<Option<&'h [u8]>, AmbiguousCookie> {
    let mut values = cookie_values(headers, name);
    let value = match (values.next(), values.next()) {
        (_, Some(_)) => return Err(AmbiguousCookie),
        (value, None) => value,
    };
    let hides_another =
        |pair: &[u8]| pair.split(ends_early).skip(1).any(|part| value_of(part, name).is_some());
    match cookies(headers).any(hides_another) {
        true => Err(AmbiguousCookie),
        false => Ok(value),
    }
}

/// Whether some servers end a cookie at this byte: a comma (RFC 2109 section 4.4), or white space.
fn ends_early(byte: &u8) -> bool {
    matches!(byte, b',' | b' ' | b'\t')
}

/// The values of the cookies with this name, without quotes. The case of the name is ignored, as
/// some servers do.
fn cookie_values<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h [u8]> {
    cookies(headers).filter_map(move |pair| value_of(pair, name))
}

/// The value of a cookie in canonical form, the same for all its spellings. None: there is no such
/// cookie, or it is empty.
///
/// # Errors
/// [`AmbiguousCookie`].
pub fn cookie_to_count<'h>(
    headers: &'h HeaderMap,
    name: &str,
) -> Result<Option<Cow<'h, [u8]>>, AmbiguousCookie> {
    let value = only_cookie(headers, name)?;
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    // An unpaired quote, or an escape in quoted text, ends or changes the value for some servers.
    if value.iter().any(|byte| ends_early(byte) || matches!(byte, b'"' | b'\\')) {
        return Err(AmbiguousCookie);
    }
    Ok(Some(unescaped_cookie(value)))
}

/// Removes the cookies with this name from a request.
pub(super) fn strip_cookie(headers: &mut HeaderMap, name: &str) {
    if !cookies(headers).any(|pair| value_of(pair, name).is_some()) {
        return;
    }
    let kept: Vec<&[u8]> = cookies(headers).filter(|pair| value_of(pair, name).is_none()).collect();
    match HeaderValue::from_bytes(&kept.join(&b"; "[..])) {
        Ok(value) if !value.is_empty() => {
            headers.insert(header::COOKIE, value);
        }
        _ => {
            headers.remove(header::COOKIE);
        }
    }
}

/// All cookies of all `Cookie` fields: HTTP/2 splits the field (RFC 9113 section 8.2.3).
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let fields = headers.get_all(header::COOKIE).iter();
    fields.flat_map(|field| field.as_bytes().split(|byte| *byte == b';')).map(<[u8]>::trim_ascii)
}

fn value_of<'r>(pair: &'r [u8], name: &str) -> Option<&'r [u8]> {
    let equals = memchr::memchr(b'=', pair)?;
    let (own_name, value) = pair.split_at_checked(equals)?;
    if !own_name.trim_ascii().eq_ignore_ascii_case(name.as_bytes()) {
        return None;
    }
    let value = value.strip_prefix(b"=")?.trim_ascii();
    let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    Some(unquoted.unwrap_or(value))
}

/// A value with its percent-encoding decoded, as many servers do. Some of them decode a plus sign
/// as a space, so both become a space.
pub fn unescaped_cookie(value: &[u8]) -> Cow<'_, [u8]> {
    if !value.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(value);
    }
    let mut decoded = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| escaped_byte(after)).flatten();
        let (byte, after) = escaped.unwrap_or((*first, after));
        decoded.push(if byte == b'+' { b' ' } else { byte });
        rest = after;
    }
    Cow::Owned(decoded)
}

/// The byte that two hexadecimal digits encode, and the bytes that follow them.
fn escaped_byte(digits: &[u8]) -> Option<(u8, &[u8])> {
    let (pair, after) = digits.split_at_checked(2)?;
    let text = std::str::from_utf8(pair).ok().filter(|_| pair.iter().all(u8::is_ascii_hexdigit))?;
    Some((u8::from_str_radix(text, 16).ok()?, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(fields: &[&'static str]) -> Result<Option<String>, AmbiguousCookie> {
        let fields = fields.iter().map(|field| (header::COOKIE, HeaderValue::from_static(field)));
        let headers: HeaderMap = fields.collect();
        let value = cookie_to_count(&headers, "session")?;
        Ok(value.map(|value| String::from_utf8(value.into_owned()).unwrap()))
    }

    #[test]
    fn all_spellings_of_a_cookie_have_one_value() {
        for fields in [
            &["session=abc"][..],
            &["a=b; session=abc; c=d"],
            &["a=b", "session=abc"],
            &["session =abc"],
            &["\tsession\t=\tabc\t; x=y"],
            &["SESSION=abc"],
            &["session=\"abc\""],
            &["session= \"abc\" "],
            &["session=%61b%63"],
        ] {
            assert_eq!(counted(fields), Ok(Some("abc".into())), "{fields:?}");
        }
        for fields in [["session=a+b"], ["session=a%2bb"], ["session=a%2Bb"], ["session=a%20b"]] {
            assert_eq!(counted(&fields), Ok(Some("a b".into())), "{fields:?}");
        }
        assert_eq!(counted(&["session=100%"]), Ok(Some("100%".into())));
        assert_eq!(counted(&["session=%zz%4"]), Ok(Some("%zz%4".into())));
    }

    #[test]
    fn cookie_that_is_not_there_is_none() {
        for fields in [&[][..], &["xsession=abc"], &["session"], &["session="], &["session=\"\""]] {
            assert_eq!(counted(fields), Ok(None), "{fields:?}");
        }
    }

    #[test]
    fn cookie_that_servers_may_read_differently_is_ambiguous() {
        for fields in [
            &["session=abc; session=j"][..],
            &["session=abc", "session=abc"],
            &["session=abc; Session =j"],
            &["x=1, session=abc"],
            &["session=abc,session=j"],
            &["session=abc,1"],
            &["session=abc x=1"],
            &["session=abc\t1"],
            &["x=1 session=abc"],
            &["x=1\tSession=abc"],
            &["session=\"abc"],
            &["session=abc\""],
            &["session=\"a\\bc\""],
            &["session=; session=abc"],
        ] {
            assert_eq!(counted(fields), Err(AmbiguousCookie), "{fields:?}");
        }
    }
}
