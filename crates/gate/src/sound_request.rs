//! A request whose form is sound, and whose client has shown no bad certificate: what is judged.

use http::{HeaderMap, request::Parts};
use tollgate_clock::Timestamp;
use tollgate_identity::Client;
use tollgate_policy::{Policies, Policy};
use tollgate_response::Rejection;
use tollgate_upstream::{IdentityAlias, Unaliased, check_identity_aliases};
use tollgate_wire::{forward_auth::Asker, method_override::check_undropped};

use super::{forward::Inbound, head::Head};

/// What is known about such a request before it is judged.
pub(super) struct SoundRequest<'r, 'p> {
    pub(super) head: Head<'r>,
    /// The policy for the host, if any.
    pub(super) policy: Option<&'p Policy>,
    pub(super) client: Client<'r>,
}

impl<'r, 'p> SoundRequest<'r, 'p> {
    /// Checks the form of a request's head, that its connection is one for its host, and then its
    /// client's certificate, as of `now`.
    ///
    /// # Errors
    /// A [`Rejection`] of the head, of the connection, or of the certificate.
    pub(super) fn check(
        parts: &'r Parts,
        policies: &'p Policies,
        inbound: Inbound<'r>,
        now: Timestamp,
    ) -> Result<Self, Rejection> {
        let (head, policy) = Head::read(parts, policies)?;
        if let Some(asker) = inbound.asker {
            head.check_forwarded_as_it_came()?;
            check_aliases(&parts.headers, policy, asker)?;
        }
        if let (Some(Asker::Forward | Asker::Nginx), Some(policy)) = (inbound.asker, policy) {
            // These cannot be told to take a field out.
            check_undropped(&parts.headers, policy.method_override)?;
        }
        // A proxy that asks has its client's connection.
        if let (None, Some(host)) = (inbound.asker, head.host()) {
            inbound.peer.check_host(host)?;
        }
        let certificate = inbound.peer.certificate(now)?;
        let client = Client {
            address: inbound.address,
            // That of a proxy that asks is not its client's.
            certificate: certificate.filter(|_| inbound.asker.is_none()),
            headers: &parts.headers,
            query: parts.uri.query(),
        };
        Ok(SoundRequest { head, policy, client })
    }
}

/// Checks that no field reads like one of those in which the proxy that asks names the caller: that
/// proxy passes them on.
///
/// # Errors
/// [`IdentityAlias`].
fn check_aliases(
    headers: &HeaderMap,
    policy: Option<&Policy>,
    asker: Asker,
) -> Result<(), IdentityAlias> {
    // All upstreams of a policy have the same. Without a policy nothing is forwarded.
    let upstream = policy.and_then(|policy| policy.upstreams.first());
    let Some(upstream) = upstream else { return Ok(()) };
    let of = match asker {
        Asker::Envoy => Unaliased::OfIdentity,
        Asker::Forward | Asker::Nginx => Unaliased::AllThatEndHere,
    };
    check_identity_aliases(headers, &upstream.own_headers, of)
}
