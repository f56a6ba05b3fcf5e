//! `Cache-Control` of a response to a request that was authenticated by a token in its URL.
//!
//! A shared cache knows that a request with `Authorization` is one client's (RFC 9111 section 3.5),
//! and nothing of a token in a URL. It would answer anybody who has that URL, without asking
//! this proxy: also when the token has expired, was revoked, or its caller is over a limit.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use tollgate_wire::quoted::split_unquoted;

/// Has shared caches keep nothing of a response; a client's own cache may keep it as before.
///
/// Where the response says nothing else, `private` is added. `public`, `s-maxage` and `private` for
/// single fields are taken out, since they let a shared cache keep the rest: of directives that
/// conflict, not every cache obeys the strictest. Fields that only shared caches read, and prefer
/// to this one (RFC 9213), go altogether.
//= rfc6750#section-2.3
//# Server success (2XX status) responses to these requests SHOULD contain a Cache-Control header
//# with the "private" option
pub fn keep_from_shared_caches(headers: &mut HeaderMap) {
    let is_targeted = |name: &&HeaderName| is_for_shared_caches(name.as_str());
    let targeted: Vec<HeaderName> = headers.keys().filter(is_targeted).cloned().collect();
    for name in targeted {
        headers.remove(name);
    }
    if !is_kept_from_them(headers) {
        let kept = directives(headers).filter(|directive| !lets_them_keep(directive));
        let all: Vec<&[u8]> = [&b"private"[..]].into_iter().chain(kept).collect();
        let value = HeaderValue::from_bytes(&all.join(&b", "[..]));
        headers.insert(
            header::CACHE_CONTROL,
            value.unwrap_or_else(|_| HeaderValue::from_static("private")),
        );
    }
}

/// Whether no shared cache keeps a response with these fields.
fn is_kept_from_them(headers: &HeaderMap) -> bool {
    let has = |sought: &[u8]| directives(headers).any(|own| own.eq_ignore_ascii_case(sought));
    // A cache that knows the status does not look at `no-store` beside `must-understand` (RFC 9111
    // section 5.2.2.3).
    has(b"private") || has(b"no-store") && !has(b"must-understand")
}

fn directives(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let fields = headers.get_all(header::CACHE_CONTROL).iter();
    let directives = fields.flat_map(|field| split_unquoted(field.as_bytes(), b','));
    //= rfc9110#section-5.6.1.2
    //# A recipient MUST parse and ignore a reasonable number of empty list elements
    directives.map(<[u8]>::trim_ascii).filter(|directive| !directive.is_empty())
}

fn lets_them_keep(directive: &[u8]) -> bool {
    let name = directive.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
    let is = |own: &&[u8]| name.eq_ignore_ascii_case(own);
    [&b"public"[..], b"s-maxage", b"private", b"no-store", b"must-understand"].iter().any(is)
}

/// Whether caches of servers' own, and content delivery networks, take their orders from it.
fn is_for_shared_caches(name: &str) -> bool {
    matches!(name, "surrogate-control" | "edge-control" | "x-accel-expires")
        || name.ends_with("-cache-control")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_caches_keep_nothing() {
        for (fields, expected) in [
            (&[][..], "private"),
            (&["max-age=60"], "private, max-age=60"),
            (&["public, max-age=60"], "private, max-age=60"),
            (&["Public", "S-MaxAge = 600, max-age=60"], "private, max-age=60"),
            (&["public"], "private"),
            (&["no-cache"], "private, no-cache"),
            (&["Private, max-age=60"], "Private, max-age=60"),
            (&["no-store"], "no-store"),
            (&["no-store, must-understand, max-age=5"], "private, max-age=5"),
            (&["private=\"x-a, x-b\", max-age=60"], "private, max-age=60"),
            (&["no-cache=\"private, no-store\", ,"], "private, no-cache=\"private, no-store\""),
            (&["ext=\"unclosed, public"], "private, ext=\"unclosed, public"),
        ] {
            let field = |value: &&'static str| HeaderValue::from_static(value);
            let mut headers: HeaderMap =
                fields.iter().map(|value| (header::CACHE_CONTROL, field(value))).collect();
            keep_from_shared_caches(&mut headers);
            assert_eq!(headers[header::CACHE_CONTROL], expected, "{fields:?}");
            assert_eq!(headers.get_all(header::CACHE_CONTROL).iter().count(), 1);
        }
    }

    #[test]
    fn what_only_shared_caches_read_goes() {
        for (name, is_kept) in [
            ("cdn-cache-control", false),
            ("acme-cdn-cache-control", false),
            ("surrogate-control", false),
            ("x-accel-expires", false),
            ("expires", true),
            ("etag", true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("max-age=60"));
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private"));
            keep_from_shared_caches(&mut headers);
            assert_eq!(headers.contains_key(name), is_kept, "{name}");
        }
    }
}
