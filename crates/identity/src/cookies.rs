//! Cookies of a request (RFC 6265 section 5.4), read less strictly than the RFC defines them, as
//! servers do: with spaces around the name, in quotes, with escapes.
//!
//! A cookie that two servers could read differently is ambiguous. It is reported, so that no client
//! is counted by one reading and served by the upstream by another.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, header};

/// A cookie that servers may read in more than one way: it occurs twice, some of them take the name
/// of another for its name, or its value or the text around it has characters that RFC 6265 section
/// 4.1.1 does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmbiguousCookie;

/// The value of the one cookie with this name, without quotes. None: there is no such cookie.
///
/// # Errors
/// [`AmbiguousCookie`], but not for characters inside the value, which the caller checks.
pub(super) fn only_cookie<'h>(
    headers: &'h HeaderMap,
    name: &str,
) -> Result<Option<&'h [u8]>, AmbiguousCookie> {
    let mut found = None;
    for pair in cookies(headers) {
        match Reading::of(pair, name) {
            Reading::Same(value) if found.is_none() && !has_open_edges(value) => {
                found = Some(value);
            }
            Reading::Same(_) | Reading::Alike => return Err(AmbiguousCookie),
            Reading::Other => {}
        }
        if hides_another(pair, name) {
            return Err(AmbiguousCookie);
        }
    }
    Ok(found)
}

/// Whether servers that end cookies early find one with this name inside `pair`.
fn hides_another(pair: &[u8], name: &str) -> bool {
    pair.split(ends_early).skip(1).any(|part| Reading::of(part, name) != Reading::Other)
}

/// Whether some servers end a cookie at this byte: a comma (RFC 2109 section 4.4), or white space.
fn ends_early(byte: &u8) -> bool {
    matches!(byte, b',' | b' ' | b'\t')
}

/// Whether a value begins or ends in what is not ASCII. Some servers take white space of Unicode
/// away there.
fn has_open_edges(value: &[u8]) -> bool {
    [value.first(), value.last()].into_iter().flatten().any(|byte| !byte.is_ascii())
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

/// Removes the cookies from a request that some server may take for the one with this name.
pub(super) fn strip_cookie(headers: &mut HeaderMap, name: &str) {
    let is_other =
        |pair: &&[u8]| Reading::of(pair, name) == Reading::Other && !hides_another(pair, name);
    if cookies(headers).all(|pair| is_other(&pair)) {
        return;
    }
    let kept: Vec<&[u8]> = cookies(headers).filter(is_other).collect();
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

/// What a cookie is to servers that look for one of a certain name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading<'r> {
    /// It is the one, with this value, without quotes. The case of the name is ignored, as some
    /// servers do.
    Same(&'r [u8]),
    /// Some servers take it for the one.
    Alike,
    /// It is another.
    Other,
}

impl<'r> Reading<'r> {
    fn of(pair: &'r [u8], name: &str) -> Reading<'r> {
        // Some servers skip an equals sign in front of a name.
        let named = pair.iter().position(|byte| *byte != b'=').unwrap_or(pair.len());
        let (skipped, named) = pair.split_at_checked(named).unwrap_or_default();
        let Some((own_name, value)) =
            memchr::memchr(b'=', named).and_then(|equals| named.split_at_checked(equals))
        else {
            return Reading::Other;
        };
        if skipped.is_empty() && own_name.trim_ascii().eq_ignore_ascii_case(name.as_bytes()) {
            let value = value.strip_prefix(b"=").unwrap_or_default().trim_ascii();
            let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
            return Reading::Same(unquoted.unwrap_or(value));
        }
        match are_alike(own_name, name.as_bytes()) {
            true => Reading::Alike,
            false => Reading::Other,
        }
    }
}

/// Whether some server takes two names of cookies for one: by decoding escapes, by taking away
/// white space of Unicode, quotes or what is not ASCII, by cutting the name off at a NUL, or at a
/// bracket that is closed, or by writing an underscore for a dot, a space or a bracket that is not
/// closed, as PHP does.
fn are_alike(one: &[u8], other: &[u8]) -> bool {
    let (one, other) = (unescaped_cookie(one), unescaped_cookie(other));
    let are_alike_if = |cut: &'static [u8]| folded(&one, cut).eq(folded(&other, cut));
    are_alike_if(b"[\0") || one.contains(&b'[') && are_alike_if(b"\0")
}

/// What is left of a name that is cut off at one of these bytes.
fn folded<'n>(name: &'n [u8], cut: &'static [u8]) -> impl Iterator<Item = u8> + 'n {
    let is_edge = |byte: &u8| !byte.is_ascii_graphic() || matches!(byte, b'"' | b'=');
    let begin = name.iter().position(|byte| !is_edge(byte)).unwrap_or(name.len());
    let name = name.get(begin..).unwrap_or_default();
    let end = name.iter().position(|byte| cut.contains(byte)).unwrap_or(name.len());
    let name = name.get(..end).unwrap_or_default();
    let end = name.iter().rposition(|byte| !is_edge(byte)).map_or(0, |last| last + 1);
    let name = name.get(..end).unwrap_or_default();
    name.iter().filter(|byte| byte.is_ascii()).map(|byte| match byte {
        b'.' | b' ' | b'[' => b'_',
        byte => byte.to_ascii_lowercase(),
    })
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
            &["sess%69on=abc"],
            &["session=abc; session%20=j"],
            &["session=abc; =session=j"],
            &["session=abc; = session=j"],
            &["session=abc; \"session\"=j"],
            &["session=abc; session[x]=j"],
            &["session=abc; session%00x=j"],
        ] {
            assert_eq!(counted(fields), Err(AmbiguousCookie), "{fields:?}");
        }
    }

    #[test]
    fn cookie_with_more_than_ascii_around_it_is_ambiguous() {
        for bytes in [
            &b"session\xA0=abc"[..],
            b"\xA0session=abc",
            b"session\xC2\xA0=abc",
            b"session=abc; session \xA0 =j",
            b"session=abc; \xEF\xBB\xBFsession=j",
            b"session=abc; sess\xC2\xADion=j",
            b"x=1 \xA0session=abc",
            b"session=\xA0abc",
            b"session=abc\xE2\x80\x83",
            b"session=\"abc\xA0\"",
        ] {
            let value = HeaderValue::from_bytes(bytes).unwrap();
            let headers = HeaderMap::from_iter([(header::COOKIE, value)]);
            let counted = cookie_to_count(&headers, "session");
            assert_eq!(counted, Err(AmbiguousCookie), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn cookie_of_another_name_is_not_alike() {
        for bytes in [
            &b"\xA0=1; session=abc"[..],
            b"sessions\xA0=1; session=abc",
            b"n\xC3\xA4me=\xC3\xA4; session=abc",
            b"session2=1; session=abc; =x; x",
            b"session=a\xC3\xA4c; my.session=1",
            b"__Host-session=1; session=abc",
        ] {
            let value = HeaderValue::from_bytes(bytes).unwrap();
            let headers = HeaderMap::from_iter([(header::COOKIE, value)]);
            let counted = cookie_to_count(&headers, "session");
            assert!(matches!(counted, Ok(Some(_))), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn underscores_stand_for_what_php_makes_them_of() {
        for other in ["app.sid", "app sid", "app%2Esid", "App.Sid", "app_sid[0]", "app[sid"] {
            let cookie = HeaderValue::from_str(&format!("{other}=j")).unwrap();
            let headers = HeaderMap::from_iter([(header::COOKIE, cookie)]);
            assert_eq!(cookie_to_count(&headers, "app_sid"), Err(AmbiguousCookie), "{other}");
        }
    }
}
