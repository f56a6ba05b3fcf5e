//! Whether a client asks if what it has is still current (RFC 9110 section 13.1).
//!
//! A response 304 gives back the charge of such requests only: with `If-None-Match: *`, or a date
//! in the future, a client that has nothing could get a 304 for anything, and would have no limit.

use std::time::UNIX_EPOCH;

use http::{HeaderMap, Method, header};
use httpdate::parse_http_date;
use tollgate_clock::Timestamp;

/// Whether a request of this method and with these headers can get a 304 because its client has the
/// current representation.
//= rfc9110#section-13.2.1
//# MUST NOT evaluate the conditional request header fields defined by this specification, and it
//# MUST forward them if the request is forwarded
pub(super) fn is_revalidation(method: &Method, headers: &HeaderMap, now: Timestamp) -> bool {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return false;
    }
    // Where there are entity tags, servers ignore the date (section 13.1.3).
    let mut tags = headers.get_all(header::IF_NONE_MATCH).iter().peekable();
    //= rfc9110#section-13.1.3
    //# A recipient MUST ignore If-Modified-Since if the request contains an If-None-Match header
    //# field
    if tags.peek().is_some() {
        return tags.all(|field| holds_tags(field.as_bytes()));
    }
    let mut dates = headers.get_all(header::IF_MODIFIED_SINCE).iter();
    //= rfc9110#section-13.1.3
    //# A recipient MUST ignore the If-Modified-Since header field if the received field value is
    //# not a valid HTTP-date
    let (Some(date), None) = (dates.next(), dates.next()) else { return false };
    date.to_str().is_ok_and(|date| is_past(date, now))
}

/// Whether a list has entity tags, each in quotes, and no `*` among them.
fn holds_tags(field: &[u8]) -> bool {
    let mut outside = field.split(|byte| *byte == b'"').step_by(2);
    field.contains(&b'"') && !outside.any(|part| part.contains(&b'*'))
}

//= rfc9110#section-5.6.7
//# A recipient that parses a timestamp value in an HTTP field MUST accept all three HTTP-date
//# formats
fn is_past(date: &str, now: Timestamp) -> bool {
    let date = parse_http_date(date).ok().and_then(|date| date.duration_since(UNIX_EPOCH).ok());
    date.is_some_and(|date| date.as_micros() <= now.as_micros().into())
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    /// 2026-09-21T14:13:20Z.
    const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);

    fn with(fields: &[(HeaderName, &'static str)]) -> HeaderMap {
        let fields = fields.iter().cloned();
        fields.map(|(name, value)| (name, HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn client_that_has_something_revalidates_it() {
        use header::{IF_MODIFIED_SINCE as SINCE, IF_NONE_MATCH as TAG};
        for (fields, expected) in [
            (&[][..], false),
            (&[(TAG, "\"a\"")], true),
            (&[(TAG, "W/\"a\", \"b\"")], true),
            (&[(TAG, "\"a*\"")], true),
            (&[(TAG, "\"a\""), (TAG, "W/\"b\"")], true),
            (&[(TAG, "*")], false),
            (&[(TAG, " * ")], false),
            (&[(TAG, "\"a\", *")], false),
            (&[(TAG, "\"a\""), (TAG, "*")], false),
            (&[(TAG, "")], false),
            (&[(TAG, "abc")], false),
            (&[(SINCE, "Mon, 21 Sep 2026 14:13:20 GMT")], true),
            (&[(SINCE, "Sun, 06 Nov 1994 08:49:37 GMT")], true),
            (&[(SINCE, "Mon, 21 Sep 2026 14:13:21 GMT")], false),
            (&[(SINCE, "Sunday, 06-Nov-94 08:49:37 GMT")], true),
            (&[(SINCE, "Sun Nov  6 08:49:37 1994")], true),
            (&[(SINCE, "Mon Sep 21 14:13:21 2026")], false),
            (&[(SINCE, "tomorrow")], false),
            (&[(SINCE, "Sun, 06 Nov 1994 08:49:37 GMT"), (SINCE, "x")], false),
            // The tag decides, not the date.
            (&[(TAG, "*"), (SINCE, "Sun, 06 Nov 1994 08:49:37 GMT")], false),
        ] {
            let headers = with(fields);
            assert_eq!(is_revalidation(&Method::GET, &headers, NOW), expected, "{fields:?}");
            assert_eq!(is_revalidation(&Method::HEAD, &headers, NOW), expected, "{fields:?}");
            assert!(!is_revalidation(&Method::POST, &headers, NOW), "{fields:?}");
        }
    }
}
