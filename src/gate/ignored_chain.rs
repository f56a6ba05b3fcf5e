//! Says that a peer which is not trusted names other clients: most likely it is a proxy of one's own,
//! and all its clients share one address as long as nobody notices.

use std::net::IpAddr;

use http::HeaderMap;

use super::Shared;
use crate::{clock::Timestamp, downstream::Peer, settings::ListenAddress};

/// Warns about a field of an untrusted peer that would name other clients if the peer were trusted:
/// once an hour in the whole process, for anybody can send one.
pub(super) fn warn_of_ignored_chain(
    shared: &Shared,
    peer: &Peer,
    headers: &HeaderMap,
    now: Timestamp,
) {
    // The field is looked for only while there is something to say.
    let warnings = &shared.ignored_chains;
    let field = shared.trusted_proxies.field().name();
    if !warnings.is_due(now) || !headers.contains_key(field) || !warnings.take(now) {
        return;
    }
    let setting = match &peer.listener.address {
        // What is known is whom the balancer has taken the connection from: a client, most often.
        // To trust its address is not to be advice that somebody pastes.
        _ if peer.listener.proxy_protocol.is_some() => {
            "trusted_proxies: [the networks of your proxies]".to_owned()
        }
        ListenAddress::Unix(_) => "peers: trusted".to_owned(),
        ListenAddress::Tcp(_) => match peer.address {
            IpAddr::V4(address) => format!("trusted_proxies: [{address}/32]"),
            // Its colons are YAML's, too.
            IpAddr::V6(address) => format!("trusted_proxies: [\"{address}/128\"]"),
        },
    };
    tracing::warn!(
        peer = %peer.address,
        field = %field,
        %setting,
        "ignored who the client is by a peer that is not trusted: if it is your proxy, add the \
         setting to tollgate.yaml"
    );
}
