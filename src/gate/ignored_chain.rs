//! Says that a peer which is not trusted names other clients: most likely it is a proxy of one's own,
//! and all its clients share one address as long as nobody notices.

use http::HeaderMap;

use super::Shared;
use crate::{clock::Timestamp, server::Peer, settings::ListenAddress};

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
        ListenAddress::Unix(_) if peer.listener.proxy_protocol.is_none() => {
            "peers: trusted".to_owned()
        }
        _ => {
            let bits = if peer.address.is_ipv4() { 32 } else { 128 };
            format!("trusted_proxies: [\"{}/{bits}\"]", peer.address)
        }
    };
    tracing::warn!(
        peer = %peer.address,
        field = %field,
        setting,
        "a peer that is not trusted says who its client is, which is ignored; if it is your proxy, \
         add the setting to the settings file"
    );
}
