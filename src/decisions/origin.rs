//! Whether a web page of another origin may have sent a question.

use http::request::Parts;
use tollgate_upstream::downstream::Peer;

use crate::guard::{Hosts, Suspicion, check_page};

/// Refuses a question that a web page of another origin may have sent.
///
/// # Errors
/// [`Suspicion`].
pub(super) fn check_origin(parts: &Parts, peer: &Peer) -> Result<(), Suspicion> {
    if peer.speaks_tls() {
        // No certificate of this listener is for the name of such a page.
        return check_page(&parts.uri, &parts.headers);
    }
    let listed = peer.listener.asked.as_ref().map_or(&[][..], |asked| &asked.hosts);
    let hosts = Hosts { listed, takes_local_names: true };
    hosts.check(&parts.uri, &parts.headers, peer.own_address)
}
