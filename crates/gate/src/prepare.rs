//! What the upstream gets: the request as it came, without the fields that end at this proxy, and
//! with the caller.

use std::mem;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header, request::Parts};
use tollgate_identity::{Auth, CallerValue, Identity};
use tollgate_policy::Protocol;
use tollgate_upstream::{Forwarding, clean_request};
use tollgate_wire::method_override;

use super::{
    X_REQUEST_ID,
    forward::Inbound,
    judge::Judge,
    max_forwards,
    request_state::{Forward, RequestState},
    tally::Tally,
    upgrade,
};

pub(super) static X_TOLLGATE_CALLER: HeaderName = HeaderName::from_static("x-tollgate-caller");
pub(super) static X_TOLLGATE_SUBJECT: HeaderName = HeaderName::from_static("x-tollgate-subject");
pub(super) static X_TOLLGATE_TIER: HeaderName = HeaderName::from_static("x-tollgate-tier");

/// Fields that a forwarded request gains: room for all is made at once.
const FIELDS_SET: usize = 11;

static IDENTITY: HeaderValue = HeaderValue::from_static("identity");
static TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

impl Judge {
    /// Makes the head of a judged request what its upstream is to see. Returns whether it asks to
    /// switch to another protocol, which `Upgrade` names.
    pub fn prepare(
        &self,
        parts: &mut Parts,
        state: &RequestState<'_>,
        forward: Forward<'_>,
        inbound: Inbound<'_>,
    ) -> bool {
        let Forward { upstream, target } = forward;
        let Inbound { peer, request_id, trace, .. } = inbound;
        parts.headers.reserve(FIELDS_SET);
        let server = upstream.servers.first().map(|server| &server.authority);
        //= rfc9110#section-7.7
        //# A proxy MUST NOT change the host name if the target URI contains a fully qualified
        //# domain name
        if let Some(host) = target.host.as_ref().or(server) {
            //= rfc9112#section-3.2
            //# A client MUST send a Host header field (Section 7.2 of [HTTP]) in all HTTP/1.1
            //# request messages
            parts.headers.entry(header::HOST).or_insert_with(|| host.clone());
        }
        // Upgrades are a part of HTTP/1.1, which a server of HTTP/2 need not know.
        let may_switch = state.route.filter(|_| upstream.protocol == Protocol::Http1);
        let upgrade = may_switch.and_then(|route| upgrade::requested(parts, route));
        // A gRPC server takes a client that does not accept trailers for a broken one.
        let takes_trailers = upstream.protocol == Protocol::Http2 && takes_trailers(&parts.headers);
        parts.uri = target.uri;
        //= rfc9112#section-2.3
        //# MUST send their own HTTP-version in forwarded messages
        let received = mem::replace(&mut parts.version, Version::HTTP_11);
        let headers = &mut parts.headers;
        max_forwards::count(&parts.method, headers);
        strip_credentials(headers, state);
        clean_request(
            headers,
            &upstream.own_headers,
            Forwarding {
                peer: &peer.address_value,
                peer_address: peer.address,
                speaks_tls: peer.speaks_tls(),
                trusted_field: peer.is_trusted.then(|| self.shared.trusted_proxies.field()),
                write_forwarded: self.shared.write_forwarded,
            },
        );
        if let Some(via) = &self.shared.via {
            //= rfc9110#section-7.6.3
            //# An HTTP-to-HTTP gateway MUST send an appropriate Via header field in each inbound
            //# request message
            via.append(headers, received);
        }
        // What is read of the response on its way is read as it is.
        if state.tally.as_ref().is_some_and(Tally::awaits_body) {
            headers.insert(header::ACCEPT_ENCODING, IDENTITY.clone());
        }
        // `clean_request` has removed the client's own fields of these names.
        headers.append(X_REQUEST_ID.clone(), request_id.clone());
        name_caller(headers, state);
        if let Some(method) = &state.overriding_method {
            name_method(headers, method);
        }
        if let Some(trace) = trace {
            trace.write(headers);
        }
        if takes_trailers {
            //= rfc9112#section-7.4
            //# A client MUST NOT send the chunked transfer coding name in TE
            //= rfc9113#section-8.2.2
            //# it MUST NOT contain any value other than "trailers"
            headers.insert(header::TE, TRAILERS.clone());
        }
        let is_upgrade = upgrade.is_some();
        if let Some(protocol) = upgrade {
            upgrade::name(headers, protocol);
        }
        if let Some(route) = state.route {
            route.request_headers.apply(headers);
        }
        is_upgrade
    }
}

/// Removes the credentials that are for this proxy only.
pub(super) fn strip_credentials(headers: &mut HeaderMap, state: &RequestState<'_>) {
    let (Some(policy), Some(route)) = (state.policy, state.route) else { return };
    let sources = &policy.identity.sources;
    let has_token = |identity: &Identity<'_>| identity.token.is_some();
    match route.auth {
        Auth::None => sources.strip_keys(headers),
        // Only verified credentials go on: an upstream that relies on this proxy does not verify
        // them again.
        _ if sources.forward && state.identity.as_ref().is_some_and(has_token) => {
            sources.strip_others(headers);
        }
        _ => sources.strip(headers),
    }
}

/// Adds the fields that say who the caller is.
pub(super) fn name_caller(headers: &mut HeaderMap, state: &RequestState<'_>) {
    if let (Some(policy), Some(identity)) = (state.policy, &state.identity)
        && let Some(caller) = &identity.caller
    {
        if let Some(tier) = policy.identity.tiers.get(identity.tier) {
            headers.append(X_TOLLGATE_TIER.clone(), tier.value.clone());
        }
        if let CallerValue::Claim(subject) = &caller.value {
            headers.append(X_TOLLGATE_SUBJECT.clone(), subject.clone());
        }
        if let Some(name) = identity.caller_name(&policy.identity) {
            headers.append(X_TOLLGATE_CALLER.clone(), name);
        }
    }
    let token = state.identity.as_ref().and_then(|identity| identity.token.as_ref());
    for (name, value) in token.map_or(&[][..], |token| &token.forwarded) {
        headers.append(name.clone(), value.clone());
    }
}

/// Has all fields that override the method name the one that the request was judged by, whichever
/// of them the server reads.
pub(super) fn name_method(headers: &mut HeaderMap, method: &Method) {
    let Ok(value) = HeaderValue::from_str(method.as_str()) else { return };
    for name in &method_override::FIELDS {
        headers.insert(name.clone(), value.clone());
    }
}

/// Whether `TE` accepts trailers.
fn takes_trailers(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(header::TE).iter();
    let mut codings = codings.flat_map(|field| field.as_bytes().split(|byte| *byte == b','));
    codings.any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}
