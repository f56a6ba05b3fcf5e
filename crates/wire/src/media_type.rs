//! What a body is, as its `Content-Type` says (RFC 9110 section 8.3).

use http::{HeaderMap, header};

/// What a `Content-Type` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaType<'h> {
    essence: &'h str,
    charset: Option<&'h str>,
}

impl<'h> MediaType<'h> {
    /// That of nothing.
    pub const NONE: MediaType<'static> = MediaType { essence: "", charset: None };

    /// That of a body. None: there are several, or it is none by RFC 9110 section 8.3.1, so that
    /// servers may take it for another one each.
    pub fn of_content(headers: &'h HeaderMap) -> Option<MediaType<'h>> {
        let mut values = headers.get_all(header::CONTENT_TYPE).iter();
        let (first, second) = (values.next(), values.next());
        if second.is_some() {
            return None;
        }
        let text = first.map_or(Some(""), |value| value.to_str().ok())?;
        let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
        let essence = essence.trim();
        let is_sound = essence.is_empty() && first.is_none()
            || essence
                .split_once('/')
                .is_some_and(|(kind, rest)| is_token(kind.as_bytes()) && is_token(rest.as_bytes()));
        let mut charset = None;
        for parameter in parameters.split(';').map(str::trim).filter(|text| !text.is_empty()) {
            let (name, value) = parameter.split_once('=')?;
            if name.eq_ignore_ascii_case("charset")
                && charset.replace(value.trim_matches('"')).is_some()
            {
                return None;
            }
        }
        is_sound.then_some(MediaType { essence, charset })
    }

    /// Whether it is this one.
    pub fn is(&self, name: &str) -> bool {
        self.essence.eq_ignore_ascii_case(name)
    }

    /// Whether servers may read JSON: some do without a type.
    pub fn is_json(&self) -> bool {
        self.essence.is_empty() || self.essence.to_ascii_lowercase().ends_with("json")
    }

    /// Whether it names no other encoding: JSON has none (RFC 8259 section 8.1).
    pub fn is_utf8(&self) -> bool {
        let known = |charset: &str| {
            ["utf-8", "utf8", "us-ascii"].iter().any(|own| charset.eq_ignore_ascii_case(own))
        };
        self.charset.is_none_or(known)
    }
}

/// Whether it is a token (RFC 9110 section 5.6.2).
pub(crate) fn is_token(text: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(is_part)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(values: &[&str]) -> HeaderMap {
        let value = |text: &&str| (header::CONTENT_TYPE, HeaderValue::from_str(text).unwrap());
        values.iter().map(value).collect()
    }

    #[test]
    fn type_and_encoding_are_read() {
        for (values, is_json, is_utf8) in [
            (&[][..], true, true),
            (&["application/json"], true, true),
            (&["Application/vnd.api+JSON ; charset=\"UTF-8\""], true, true),
            (&["application/json;charset=utf-7"], true, false),
            (&["text/plain; boundary=x; charset=us-ascii"], false, true),
        ] {
            let headers = of(values);
            let own = MediaType::of_content(&headers).unwrap();
            assert_eq!((own.is_json(), own.is_utf8()), (is_json, is_utf8), "{values:?}");
        }
    }

    #[test]
    fn what_servers_may_take_for_different_types_is_none() {
        for values in [
            &["application/json", "text/plain"][..],
            &["application/json", "application/json"],
            &[""],
            &["json"],
            &["application/json, text/plain"],
            &["application/json text/plain"],
            &["application/json; charset"],
            &["application/json; charset=utf-8; charset=utf-7"],
        ] {
            assert_eq!(MediaType::of_content(&of(values)), None, "{values:?}");
        }
        let odd = HeaderValue::from_bytes(b"application/json; a=\xFF").unwrap();
        let odd: HeaderMap = [(header::CONTENT_TYPE, odd)].into_iter().collect();
        assert_eq!(MediaType::of_content(&odd), None);
    }
}
