//! Escapes in text lines, turned back: those of Apache and nginx (`\x22`, `\"`), and our own
//! (`\x20`, `\n`, `\u{202e}`).

use std::borrow::Cow;

/// The text that was escaped. What is no escape stays as it is.
pub(super) fn unescape(text: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\\', text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        rest = push_unescaped(&mut bytes, escaped);
    }
    bytes.extend_from_slice(rest.as_bytes());
    // nginx escapes each byte of a character apart.
    Cow::Owned(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// Appends what an escape stands for, and returns what is behind it; `escaped` begins behind the
/// backslash.
fn push_unescaped<'t>(bytes: &mut Vec<u8>, escaped: &'t str) -> &'t str {
    let mut chars = escaped.chars();
    match chars.next() {
        Some(c @ ('"' | '\\' | '\'')) => bytes.push(c as u8),
        Some('n') => bytes.push(b'\n'),
        Some('r') => bytes.push(b'\r'),
        Some('t') => bytes.push(b'\t'),
        Some('x') => {
            if let Some((byte, rest)) = hex_byte(chars.as_str()) {
                bytes.push(byte);
                return rest;
            }
            bytes.extend_from_slice(b"\\x");
        }
        Some('u') => {
            if let Some((c, rest)) = braced_character(chars.as_str()) {
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                return rest;
            }
            bytes.extend_from_slice(b"\\u");
        }
        _ => {
            bytes.push(b'\\');
            return escaped;
        }
    }
    chars.as_str()
}

/// The byte that two hexadecimal digits are, and what is behind them.
fn hex_byte(text: &str) -> Option<(u8, &str)> {
    let (digits, rest) = text.split_at_checked(2)?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
    Some((u8::from_str_radix(digits, 16).ok()?, rest))
}

/// The character of `{202e}`, and what is behind it.
fn braced_character(text: &str) -> Option<(char, &str)> {
    let (digits, rest) = text.strip_prefix('{')?.split_once('}')?;
    Some((char::from_u32(u32::from_str_radix(digits, 16).ok()?)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_turned_back_and_other_backslashes_stay() {
        for (escaped, expected) in [
            ("/plain", "/plain"),
            (r"/a\x20b", "/a b"),
            (r#"say \"hi\" \\ \n"#, "say \"hi\" \\ \n"),
            (r"\xC3\xA4", "ä"),
            (r"\xFF", "\u{fffd}"),
            (r"\u{202e}x", "\u{202e}x"),
            (r"\q \x2 \u{zz} \", r"\q \x2 \u{zz} \"),
        ] {
            assert_eq!(unescape(escaped), expected, "{escaped}");
        }
    }
}
