//! A request to the admin listener that has passed the checks.

use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Uri};
use tollgate_settings::Permission;

/// A request that may be answered.
pub(super) struct AdminRequest {
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    /// The client's address.
    pub(super) peer: IpAddr,
    /// What the token that was sent was needed for. None: none was needed.
    pub(super) token: Option<Permission>,
    pub(super) body: Bytes,
    /// Whether whoever asks may also read. Of endpoints that need no token it is not known.
    pub(super) may_read: bool,
}
