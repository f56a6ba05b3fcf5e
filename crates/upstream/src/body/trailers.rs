//! Trailers, in both directions: which fields may follow a body.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, header};
use http_body::Frame;
use tollgate_policy::{OwnHeaders, is_reserved};

use crate::headers::ends_here;

/// The trailers of a frame, if it has any, without those that may not go on.
pub(super) fn with_trailers(
    frame: Frame<Bytes>,
    goes_on: impl Fn(&HeaderName) -> bool,
) -> Frame<Bytes> {
    //= rfc9110#section-6.5.1
    //# A recipient MUST NOT merge a trailer field into a header section unless
    //= rfc9112#section-7.1.2
    //# A recipient that retains a received trailer field MUST either store/forward the trailer
    //# field separately from the received header fields or merge
    //= rfc9112#section-7.1.2
    //# A recipient MUST NOT merge a received trailer field into the header section unless
    match frame.into_trailers() {
        Ok(trailers) => Frame::trailers(keep(trailers, goes_on)),
        Err(frame) => frame,
    }
}

/// Whether a request's trailer goes on: unless it would not in the head, or carries credentials
/// there.
///
/// Servers may merge trailers into the header (RFC 9110 section 6.5.1), where the gate has taken
/// out what poses as another client or leads elsewhere: addresses, hosts, credentials, limits.
pub(super) fn may_be_a_trailer(name: &HeaderName, own: &OwnHeaders) -> bool {
    !is_of_a_head(name) && !ends_here(name.as_str(), None, |name, _| own.are_guarded(name))
}

/// Whether a response's trailer ends here: no trailer says anything about framing, routing,
/// authentication or limits (RFC 9110 section 6.5.1). A client that merges trailers into the header
/// would be misled.
pub(super) fn is_of_a_head(name: &HeaderName) -> bool {
    //= rfc9110#section-6.5.1
    //# A sender MUST NOT generate a trailer field unless the sender knows the corresponding header
    //# field name's definition permits the field to be sent in trailers
    const FORBIDDEN: [HeaderName; 17] = [
        header::AUTHORIZATION,
        header::CACHE_CONTROL,
        header::CONNECTION,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_RANGE,
        header::CONTENT_TYPE,
        header::COOKIE,
        header::HOST,
        header::MAX_FORWARDS,
        header::PROXY_AUTHORIZATION,
        header::SET_COOKIE,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::WWW_AUTHENTICATE,
    ];
    FORBIDDEN.contains(name) || is_reserved(name.as_str())
}

fn keep(trailers: HeaderMap, goes_on: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(trailers.len());
    let mut last = None;
    for (name, value) in trailers {
        // Repeated fields come without their name after the first.
        if name.is_some() {
            last = name;
        }
        if let Some(name) = last.as_ref().filter(|name| goes_on(name)) {
            kept.append(name.clone(), value);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn trailers(names: &[&'static str]) -> HeaderMap {
        let field =
            |name: &&'static str| (HeaderName::from_static(name), HeaderValue::from_static("1"));
        names.iter().map(field).collect()
    }

    #[test]
    fn trailers_of_a_response_lose_what_belongs_in_a_head() {
        let names = ["grpc-status", "content-length", "x-ratelimit-limit", "x-tollgate-tier", "te"];
        let mut all = trailers(&names);
        all.append("grpc-status", HeaderValue::from_static("2"));
        let kept = keep(all, |name| !is_of_a_head(name));
        assert_eq!(kept.len(), 2);
        assert_eq!(kept.get_all("grpc-status").iter().count(), 2);
    }

    #[test]
    fn trailers_of_a_request_are_what_its_head_might_be() {
        let allowed = ["content-digest", "x-sum", "x-user-email"];
        for name in [
            "x_user_email",
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-real-ip",
            "forwarded",
            "x-original-url",
            "x-request-id",
            "x-tollgate-subject",
            "authorization",
            "host",
            "content-length",
        ] {
            let own = OwnHeaders::default();
            let goes_on = |name: &HeaderName| may_be_a_trailer(name, &own);
            let kept = keep(trailers(&[&allowed[..], &[name]].concat()), goes_on);
            let kept: Vec<&str> = kept.keys().map(HeaderName::as_str).collect();
            assert_eq!(kept, allowed, "{name}");
        }
    }
}
