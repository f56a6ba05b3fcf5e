//! Header fields on their way through: what is taken out, and what is put in.
//!
//! Hop-by-hop fields are removed (RFC 9110 section 7.6.1). So is everything that a client could
//! send to pose as another client to the upstream: limit, identity and forwarding fields are set by
//! this proxy or not at all.

mod names;

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use smallvec::SmallVec;

use self::names::Spelled;
pub(super) use self::names::ends_here;
pub use self::names::{FAMILIES_OF_PROXIES, NAMES_OF_PROXIES, Unaliased};
use tollgate_identity::ForwardedField;
use tollgate_policy::{OwnHeaders, is_reserved};

use self::names::{ends_at_envoy, is_alias, is_hop_by_hop, is_of_a_proxy};

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static HTTP: HeaderValue = HeaderValue::from_static("http");
static HTTPS: HeaderValue = HeaderValue::from_static("https");

/// `Connection` names a field that is not the connection's business: `Connection: Authorization`
/// would have this proxy strip a credential that it has just checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connection names an end-to-end field")]
pub struct ConnectionNamesProtectedField;

/// Servers that make a variable of a field's name take this one for a field in which only a proxy
/// names the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a field has a name that servers take for one that says who the caller is")]
pub struct IdentityAlias;

/// What this proxy says about where a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Forwarding<'r> {
    /// The peer's address, as a value made once for its connection.
    pub peer: &'r HeaderValue,
    /// The peer's address.
    pub peer_address: IpAddr,
    /// Whether the peer speaks TLS to this proxy.
    pub speaks_tls: bool,
    /// The field that the peer, a trusted proxy, maintains: it is passed on. None: the peer is not
    /// trusted, and nothing that it says about those before it is.
    pub trusted_field: Option<ForwardedField>,
    /// Whether to write `Forwarded` too.
    pub write_forwarded: bool,
}

/// Whether a request's `Connection` names only what is the connection's own.
///
/// # Errors
/// [`ConnectionNamesProtectedField`]; the request must not be forwarded then.
pub fn check_connection(
    headers: &HeaderMap,
    own: Option<&OwnHeaders>,
) -> Result<(), ConnectionNamesProtectedField> {
    let is_judged = |name: &str| own.is_some_and(|own| own.are_judged(name));
    let is_refused = |name: &str| is_protected(name) || is_judged(name);
    match named_by_connection(headers).any(|name| is_refused(name.as_str())) {
        true => Err(ConnectionNamesProtectedField),
        false => Ok(()),
    }
}

/// Makes the header of a client's request fit for the upstream. In `own` fields only this proxy
/// says anything.
pub fn clean_request(headers: &mut HeaderMap, own: &OwnHeaders, forwarding: Forwarding<'_>) {
    //= rfc9110#section-7.6
    //# An intermediary not acting as a tunnel MUST implement the Connection header field
    remove_named_by_connection(headers);
    let is_own = |name: &str, spelled| is_identity_field(own, name, spelled);
    //= rfc9110#section-5.1
    //# A proxy MUST forward unrecognized header fields unless
    remove_where(headers, |name| ends_here(name, forwarding.trusted_field, is_own));
    join_cookies(headers);
    join_lengths(headers);
    set_forwarding(headers, forwarding);
}

/// Removes from the header of a request that Envoy forwards what a client may not say. What Envoy
/// says itself stays, and so does what a trusted proxy before it says.
pub fn clean_request_of_envoy(headers: &mut HeaderMap, own: &OwnHeaders, peer_is_trusted: bool) {
    // Envoy appends to this one.
    let trusted = peer_is_trusted.then_some(ForwardedField::XForwardedFor);
    let is_own = |name: &str, spelled| is_identity_field(own, name, spelled);
    remove_where(headers, |name| ends_at_envoy(name, trusted, is_own));
}

/// Whether a request that another proxy forwards has no field which servers take for one that says
/// who the caller is: that proxy replaces fields of these very names only. If it cannot take out
/// what it is told to, there may be no alias of any other field that ends here, either.
///
/// # Errors
/// [`IdentityAlias`]; the request must not be forwarded then.
pub fn check_identity_aliases(
    headers: &HeaderMap,
    own: &OwnHeaders,
    of: Unaliased,
) -> Result<(), IdentityAlias> {
    let is_own = |name: &str, spelled| is_identity_field(own, name, spelled);
    match headers.keys().any(|name| is_alias(name.as_str(), of, is_own)) {
        true => Err(IdentityAlias),
        false => Ok(()),
    }
}

/// A credential may go on under its own name, and under no other that servers take for it; so may a
/// field that overrides the method.
fn is_identity_field(own: &OwnHeaders, name: &str, spelled: Spelled) -> bool {
    match spelled {
        Spelled::Exactly => own.are_closed(name),
        Spelled::Alike => own.are_guarded(name),
    }
}

/// Makes the header of an upstream's response fit for the client.
//= rfc9113#section-10.3
//# An intermediary that receives any fields that require removal before forwarding (see Section
//# 7.6.1 of [RFC9110]) MUST remove or replace those header fields
pub fn clean_response(headers: &mut HeaderMap) {
    remove_named_by_connection(headers);
    remove_where(headers, |name| is_hop_by_hop(name) || is_reserved(name));
    join_lengths(headers);
}

/// Whether `Connection` may not name a field: what carries identity, routing or length belongs to
/// the message and not to the hop.
fn is_protected(name: &str) -> bool {
    is_of_a_proxy(name)
        || is_reserved(name)
        || matches!(
            name,
            "authorization" | "content-length" | "cookie" | "forwarded" | "host" | "x-request-id"
        )
}

fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    //= rfc9110#section-7.6.1
    //# Intermediaries MUST parse a received Connection header field before a message is forwarded
    let fields = headers.get_all(header::CONNECTION).iter();
    let tokens = fields.flat_map(|field| field.as_bytes().split(|byte| *byte == b','));
    tokens.map(<[u8]>::trim_ascii).filter_map(|token| {
        let is_usual = token.eq_ignore_ascii_case(b"keep-alive")
            || token.eq_ignore_ascii_case(b"close")
            //= rfc9110#section-5.6.1.2
            //# A recipient MUST parse and ignore a reasonable number of empty list elements
            || token.is_empty();
        if is_usual { None } else { HeaderName::from_bytes(token).ok() }
    })
}

fn remove_named_by_connection(headers: &mut HeaderMap) {
    if !headers.contains_key(header::CONNECTION) {
        return;
    }
    let named: SmallVec<[HeaderName; 4]> =
        named_by_connection(headers).filter(|name| !is_protected(name.as_str())).collect();
    for name in named {
        headers.remove(name);
    }
}

/// One walk over the names, because most messages carry nothing that has to go.
fn remove_where(headers: &mut HeaderMap, is_dropped: impl Fn(&str) -> bool) {
    let dropped: SmallVec<[HeaderName; 8]> =
        headers.keys().filter(|name| is_dropped(name.as_str())).cloned().collect();
    for name in dropped {
        headers.remove(name);
    }
}

/// Several equal lengths, as fields or as members of a list, are one (RFC 9110 section 8.6). Others
/// were refused when they came.
//= rfc9110#section-8.6
//# a sender MUST NOT forward a message with a Content-Length header field value that does not match
//# the ABNF above
fn join_lengths(headers: &mut HeaderMap) {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let (Some(first), is_alone) = (lengths.next(), lengths.next().is_none()) else { return };
    let end = memchr::memchr(b',', first.as_bytes());
    if is_alone && end.is_none() {
        return;
    }
    let digits = first.as_bytes().get(..end.unwrap_or(first.len())).unwrap_or_default();
    if let Ok(length) = HeaderValue::from_bytes(digits.trim_ascii()) {
        headers.insert(header::CONTENT_LENGTH, length);
    }
}

/// HTTP/2 may split a cookie header into crumbs, which HTTP/1 may not (RFC 9113 section 8.2.3).
//= rfc9113#section-8.2.3
//# these MUST be concatenated into a single octet string using the two-octet delimiter
fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(header::COOKIE).iter();
    if (crumbs.next(), crumbs.next()).1.is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> =
        headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

fn set_forwarding(headers: &mut HeaderMap, forwarding: Forwarding<'_>) {
    // What is left of these fields by now was written by a trusted proxy.
    let chain = match forwarding.trusted_field {
        Some(_) => extended_chain(headers, forwarding.peer),
        None => forwarding.peer.clone(),
    };
    headers.insert(X_FORWARDED_FOR.clone(), chain);
    let scheme = if forwarding.speaks_tls { &HTTPS } else { &HTTP };
    headers.entry(&X_FORWARDED_PROTO).or_insert_with(|| scheme.clone());
    let host = headers.get(header::HOST).cloned();
    if forwarding.write_forwarded {
        append_forwarded(headers, forwarding, host.as_ref());
    }
    if let Some(host) = host {
        headers.append(X_FORWARDED_HOST.clone(), host);
    }
}

/// The chain of addresses with the peer's at its end.
fn extended_chain(headers: &HeaderMap, peer: &HeaderValue) -> HeaderValue {
    //= rfc9110#section-5.3
    //# a sender MUST NOT generate multiple field lines with the same name in a message
    let so_far = headers.get_all(&X_FORWARDED_FOR).iter().map(HeaderValue::as_bytes);
    let chain: Vec<&[u8]> = so_far.chain([peer.as_bytes()]).collect();
    HeaderValue::from_bytes(&chain.join(&b", "[..])).unwrap_or_else(|_| peer.clone())
}

/// RFC 7239: `for=192.0.2.1;host="example.com";proto=http`.
fn append_forwarded(
    headers: &mut HeaderMap,
    forwarding: Forwarding<'_>,
    host: Option<&HeaderValue>,
) {
    let mut element = match forwarding.peer_address {
        IpAddr::V4(v4) => format!("for={v4}"),
        IpAddr::V6(v6) => format!("for=\"[{v6}]\""),
    };
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        element.push_str(&format!(";host=\"{host}\""));
    }
    element.push_str(if forwarding.speaks_tls { ";proto=https" } else { ";proto=http" });
    if let Ok(value) = HeaderValue::from_str(&element) {
        headers.append(header::FORWARDED, value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    static PEER: HeaderValue = HeaderValue::from_static("203.0.113.7");

    fn forwarding(peer_is_trusted: bool) -> Forwarding<'static> {
        Forwarding {
            peer: &PEER,
            peer_address: [203, 0, 113, 7].into(),
            speaks_tls: false,
            trusted_field: peer_is_trusted.then_some(ForwardedField::XForwardedFor),
            write_forwarded: false,
        }
    }

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        let parse = |(name, value): &(&str, &str)| {
            (
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            )
        };
        fields.iter().map(parse).collect()
    }

    fn cleaned(fields: &[(&str, &str)], peer_is_trusted: bool) -> HeaderMap {
        let mut headers = headers(fields);
        clean_request(&mut headers, &OwnHeaders::default(), forwarding(peer_is_trusted));
        headers
    }

    #[test]
    fn hop_by_hop_fields_and_those_that_connection_names_end_here() {
        let headers = cleaned(
            &[
                ("connection", "keep-alive, X-Hop"),
                ("x-hop", "1"),
                ("keep-alive", "5"),
                ("te", "trailers"),
                ("upgrade", "h2c"),
                ("http2-settings", "x"),
                ("proxy-authorization", "Basic x"),
                ("transfer-encoding", "chunked"),
                ("x-kept", "1"),
            ],
            false,
        );
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["x-forwarded-for", "x-forwarded-proto", "x-kept"]);
    }

    #[test]
    fn connection_may_not_name_what_carries_identity() {
        for name in ["Authorization", "host", "X-Forwarded-For", "Content-Length", "Cookie"] {
            let headers = headers(&[("connection", &format!("close, {name}"))]);
            let refused = Err(ConnectionNamesProtectedField);
            assert_eq!(check_connection(&headers, None), refused, "{name}");
        }
    }

    #[test]
    fn client_cannot_say_where_it_comes_from() {
        let headers = cleaned(
            &[
                ("host", "api.example.com"),
                ("x-forwarded-for", "10.0.0.1"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "evil"),
                ("forwarded", "for=10.0.0.1"),
                ("x-real-ip", "10.0.0.1"),
            ],
            false,
        );
        assert_eq!(headers["x-forwarded-for"], "203.0.113.7");
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert_eq!(headers["x-forwarded-host"], "api.example.com");
        assert!(!headers.contains_key("forwarded") && !headers.contains_key("x-real-ip"));
    }

    #[test]
    fn trusted_proxy_is_passed_on_and_appended_to() {
        let headers = cleaned(
            &[
                ("x-forwarded-for", "198.51.100.1"),
                ("x-forwarded-for", "198.51.100.2"),
                ("x-forwarded-proto", "https"),
            ],
            true,
        );
        assert_eq!(headers["x-forwarded-for"], "198.51.100.1, 198.51.100.2, 203.0.113.7");
        assert_eq!(headers.get_all("x-forwarded-for").iter().count(), 1);
        assert_eq!(headers["x-forwarded-proto"], "https");
    }

    #[test]
    fn cookie_crumbs_are_joined() {
        let headers = cleaned(&[("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3")], false);
        assert_eq!(headers["cookie"], "a=1; b=2; c=3");
        assert_eq!(headers.get_all("cookie").iter().count(), 1);
    }

    #[test]
    fn forwarded_is_written_on_demand() {
        let mut headers = headers(&[("host", "a.example")]);
        let forwarding = Forwarding { write_forwarded: true, ..forwarding(false) };
        clean_request(&mut headers, &OwnHeaders::default(), forwarding);
        assert_eq!(headers["forwarded"], "for=203.0.113.7;host=\"a.example\";proto=http");
    }

    #[test]
    fn upstream_gets_the_scheme_of_the_connection_unless_a_trusted_proxy_names_another() {
        for (fields, is_trusted, scheme) in [
            (&[][..], false, "https"),
            (&[("x-forwarded-proto", "http")], false, "https"),
            (&[], true, "https"),
            (&[("x-forwarded-proto", "http")], true, "http"),
        ] {
            let mut headers = headers(fields);
            clean_request(
                &mut headers,
                &OwnHeaders::default(),
                Forwarding { speaks_tls: true, write_forwarded: true, ..forwarding(is_trusted) },
            );
            assert_eq!(headers["x-forwarded-proto"], scheme, "{fields:?}");
            assert_eq!(headers["forwarded"], "for=203.0.113.7;proto=https");
        }
    }

    proptest! {
        #[test]
        fn prop_no_reserved_or_hop_by_hop_field_gets_through(
            names in prop::collection::vec(
                prop_oneof![
                    "[a-z_-]{1,12}",
                    "x-(ratelimit|tollgate)-[a-z]{1,6}",
                    Just("Connection".to_owned()),
                    Just("upgrade".to_owned()),
                    Just("x_forwarded_for".to_owned()),
                ],
                0..12,
            ),
            value in "[a-z-]{1,12}",
        ) {
            let fields: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), value.as_str())).collect();
            let mut headers = headers(&fields);
            clean_request(&mut headers, &OwnHeaders::default(), forwarding(false));
            for name in headers.keys().map(HeaderName::as_str) {
                prop_assert!(!is_hop_by_hop(name) && !is_reserved(name) && !name.contains('_'), "{name}");
            }
        }
    }
}
