//! Warns that an untrusted peer names other clients: most likely it is the operator's own proxy,
//! and all its clients share one address until it is configured as trusted.

use std::net::IpAddr;

use http::HeaderMap;
use tollgate_clock::Timestamp;
use tollgate_settings::ListenAddress;
use tollgate_upstream::downstream::Peer;

use super::Shared;

/// Warns about a field of an untrusted peer that would name other clients if the peer were trusted:
/// once an hour in the whole process, since any client can send one.
pub(super) fn warn_of_ignored_chain(
    shared: &Shared,
    peer: &Peer,
    headers: &HeaderMap,
    now: Timestamp,
) {
    // The field is looked up only while a warning is due.
    let warnings = &shared.ignored_chains;
    let field = shared.trusted_proxies.field().name();
    if !warnings.is_due(now) || !headers.contains_key(field) || !warnings.take(now) {
        return;
    }
    let setting = match &peer.listener.address {
        // The peer's address is the one that the balancer names: most often a client's. No operator
        // should paste a setting that trusts it.
        _ if peer.listener.proxy_protocol.is_some() => {
            "trusted_proxies: [the networks of your proxies]".to_owned()
        }
        ListenAddress::Unix(_) => "peers: trusted".to_owned(),
        ListenAddress::Tcp(_) => match peer.address {
            IpAddr::V4(address) => format!("trusted_proxies: [{address}/32]"),
            // Quoted, because colons mean something in YAML.
            IpAddr::V6(address) => format!("trusted_proxies: [\"{address}/128\"]"),
        },
    };
    tracing::warn!(
        peer = %peer.address,
        field = %field,
        %setting,
        "ignored the client address that a peer that is not trusted names: if the peer is your \
         proxy, add the setting to tollgate.yaml"
    );
}
