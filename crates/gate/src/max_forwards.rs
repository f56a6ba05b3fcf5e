//! How many more proxies an OPTIONS request may pass (RFC 9110 section 7.6.2). TRACE is not
//! forwarded, and in other requests the field means nothing.

use http::{HeaderMap, HeaderValue, Method, header};

/// Whether a request of this method and with these headers ends at this proxy.
//= rfc9110#section-7.6.2
//# If the received value is zero (0), the intermediary MUST NOT forward the request
pub(super) fn ends_here(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS && left(headers) == Some(0)
}

/// Counts this proxy.
//= rfc9110#section-7.6.2
//# Each intermediary that receives a TRACE or OPTIONS request containing a Max-Forwards header
//# field MUST check and update its value prior to forwarding the request
//= rfc9110#section-7.6.2
//# the intermediary MUST generate an updated Max-Forwards field in the forwarded message
pub(super) fn count(method: &Method, headers: &mut HeaderMap) {
    if *method == Method::OPTIONS
        && let Some(left) = left(headers)
    {
        headers.insert(header::MAX_FORWARDS, HeaderValue::from(left.saturating_sub(1)));
    }
}

/// The number that is left; none: the field is not there, or is no number.
fn left(headers: &HeaderMap) -> Option<u64> {
    let mut fields = headers.get_all(header::MAX_FORWARDS).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    let digits = field.to_str().ok()?.trim();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // A proxy may lower what is more than it can count.
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(fields: &[&'static str]) -> HeaderMap {
        let value = |field: &&'static str| HeaderValue::from_static(field);
        fields.iter().map(value).map(|value| (header::MAX_FORWARDS, value)).collect()
    }

    #[test]
    fn each_proxy_takes_one_and_the_last_one_does_not_forward() {
        for (fields, is_last, forwarded) in [
            (&["0"][..], true, &["0"][..]),
            (&["1"], false, &["0"]),
            (&[" 010 "], false, &["9"]),
            (&["99999999999999999999999"], false, &["18446744073709551614"]),
            (&[], false, &[]),
            (&["-1"], false, &["-1"]),
            (&["one"], false, &["one"]),
            (&["0", "0"], false, &["0", "0"]),
        ] {
            let mut headers = with(fields);
            assert_eq!(ends_here(&Method::OPTIONS, &headers), is_last, "{fields:?}");
            assert!(!ends_here(&Method::GET, &headers), "{fields:?}");
            count(&Method::GET, &mut headers);
            assert_eq!(headers, with(fields));
            count(&Method::OPTIONS, &mut headers);
            assert_eq!(headers, with(forwarded));
        }
    }
}
